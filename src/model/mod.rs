//! The words of the product: ids, events, subscriptions, jobs. Types only, no decisions and no I/O.
//!
//! Every other module speaks in these. A value of one of these types has been checked at the edge where it came in:
//! inside, the type is the proof.

pub mod api_key;
pub mod attempt;
pub mod event;
pub mod gap;
pub mod idempotency;
pub mod ids;
pub mod job;
pub mod limits;
pub mod notice;
pub mod record;
pub mod replay;
pub mod space;
pub mod subscription;
