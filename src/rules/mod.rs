//! Decisions: functions without I/O, clock or chance inside.

pub mod address;
pub mod autodisable;
pub mod backoff;
pub mod breaker;
pub mod classify;
pub mod explain;
pub mod extra_header;
mod grammar;
mod headers;
pub mod matching;
pub mod outcome;
pub mod readable;
pub mod room;
pub mod signature;
