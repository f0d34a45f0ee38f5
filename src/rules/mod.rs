//! Decisions: functions without I/O, clock or chance inside.

pub mod classify;
pub mod explain;
mod grammar;
mod headers;
pub mod outcome;
