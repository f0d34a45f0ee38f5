//! The synchronous core: commands in, one transaction, answers out. No clock, no sockets, no async.

pub mod board;
pub mod command;
