//! Stretches of a partition that were never read (C1.5).

use crate::time::Timestamp;

/// A stretch of offsets that was never read (C1.5).
#[derive(Debug, Clone, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub struct Gap {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// First offset not read.
    pub from: i64,
    /// First offset read again.
    pub to: i64,
    /// Wall time of finding it.
    pub at: Timestamp,
    /// Why.
    pub why: GapReason,
}

/// Why a stretch of offsets was never read (C1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, bincode::Encode, bincode::Decode)]
pub enum GapReason {
    /// The position was below the log's start: retention overtook us.
    BelowStart,
    /// The position was beyond the log's end, or of a wrong epoch: the log was truncated.
    Truncated,
    /// The topic is a new one under the same name.
    Recreated,
}

impl GapReason {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            GapReason::BelowStart => "below_start",
            GapReason::Truncated => "truncated",
            GapReason::Recreated => "recreated",
        }
    }
}
