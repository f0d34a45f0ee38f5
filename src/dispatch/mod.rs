//! From claim to outcome.

pub mod pool;
