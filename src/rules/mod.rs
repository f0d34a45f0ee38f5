//! Decisions: functions without I/O, clock or chance inside.

pub mod classify;
pub mod outcome;
