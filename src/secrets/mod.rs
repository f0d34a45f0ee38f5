//! The key-encryption key, and sealing under it: nothing secret is ever written in clear, since pages once written stay
//! in the file.

mod envelope;
mod kek;

pub use envelope::{Envelope, Scope, SealError};
pub use kek::{Kek, KekError};
