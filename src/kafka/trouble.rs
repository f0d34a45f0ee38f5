//! Where a partition goes on when its position does not fit the log (C1.4, C1.5). Decisions only: no broker is asked here.
//!
//! Invariant: the answer is never "at the end of the log", save for partitions that the operator told to start there; whatever is
//! passed over or read again is told by a gap.

use crate::model::gap::GapReason;
use crate::store::view::PositionRow;

/// A position in a partition, and what is stored of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The position in the store; none before the first step.
    pub(super) stored: Option<i64>,
    /// The next offset to read.
    pub(super) next: i64,
    /// Leader epoch of the record before it; -1 not known.
    pub(super) leader_epoch: i32,
    /// Whether `next` is known to lie between two batches.
    pub(super) between_batches: bool,
}

/// Where a partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begin {
    /// Where the store says.
    At(Place),
    /// At the start of the log: it was never read.
    Earliest,
    /// At the start of the log, because the topic is a new one under the old name; the old one was read up to there.
    Recreated {
        /// Position in the old topic.
        from: i64,
    },
}

/// Where a partition of topic `topic_id` begins. `rows` is what the store has for its name and number, whatever the topic id.
pub(super) fn begin(rows: &[PositionRow], topic_id: [u8; 16]) -> Begin {
    let at = |row: &PositionRow, stored| {
        Begin::At(Place { stored, next: row.next, leader_epoch: row.leader_epoch, between_batches: false })
    };
    if let Some(row) = rows.iter().find(|row| row.topic_id == topic_id) {
        return at(row, Some(row.next));
    }
    // A broker too old to tell topic ids says zero: that is no other topic.
    let unnamed = |id: [u8; 16]| id == [0; 16];
    let furthest = rows.iter().max_by_key(|row| row.next);
    match furthest {
        None => Begin::Earliest,
        Some(row) if unnamed(topic_id) || unnamed(row.topic_id) => at(row, None),
        Some(row) => Begin::Recreated { from: row.next },
    }
}

/// What is wrong with a position, and where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing is wrong.
    None,
    /// A gap up to there.
    Gap {
        /// Why.
        why: GapReason,
        /// Where it goes on.
        to: i64,
        /// Leader epoch of the record before that; -1 not known.
        leader_epoch: i32,
    },
    /// The log was truncated, and where it parted from what we read must be asked for, or is not known.
    Truncated,
}

/// The broker found `next` out of range. `start` and `end` are the log's ends as it tells them now.
pub(super) fn out_of_range(next: i64, start: i64, end: i64) -> Trouble {
    if next < start {
        Trouble::Gap { why: GapReason::BelowStart, to: start, leader_epoch: -1 }
    } else if next > end {
        Trouble::Truncated
    } else {
        // The log has moved meanwhile, or another broker leads by now.
        Trouble::None
    }
}

/// The leader was asked where the epoch of our last record ends in its log, and named an epoch and an offset.
pub(super) fn epoch_end(place: &Place, answered_epoch: i32, end: i64) -> Trouble {
    if answered_epoch < 0 || end < 0 {
        return Trouble::Truncated;
    }
    if end < place.next {
        return Trouble::Gap { why: GapReason::Truncated, to: end, leader_epoch: answered_epoch };
    }
    // The leader never had our epoch, yet its log reaches further: where they part cannot be told.
    if answered_epoch < place.leader_epoch { Trouble::Truncated } else { Trouble::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: [u8; 16] = [1; 16];
    const OLD: [u8; 16] = [2; 16];
    const NONE: [u8; 16] = [0; 16];

    fn row(topic_id: [u8; 16], next: i64) -> PositionRow {
        PositionRow { topic: "t".to_owned(), topic_id, partition: 0, next, leader_epoch: 4 }
    }

    fn place(stored: Option<i64>, next: i64) -> Place {
        Place { stored, next, leader_epoch: 4, between_batches: false }
    }

    // C1.4, C1.5
    #[test]
    fn a_partition_begins_where_the_store_says() {
        for (rows, topic_id, want) in [
            (vec![], OURS, Begin::Earliest),
            (vec![row(OURS, 7)], OURS, Begin::At(place(Some(7), 7))),
            (vec![row(OLD, 90), row(OURS, 7)], OURS, Begin::At(place(Some(7), 7))),
            (vec![row(OLD, 90)], OURS, Begin::Recreated { from: 90 }),
            (vec![row(NONE, 7)], OURS, Begin::At(place(None, 7))),
            (vec![row(OURS, 7)], NONE, Begin::At(place(None, 7))),
            (vec![row(NONE, 7)], NONE, Begin::At(place(Some(7), 7))),
        ] {
            assert_eq!(begin(&rows, topic_id), want, "{rows:?}");
        }
    }

    // C1.5
    #[test]
    fn a_position_out_of_range_goes_on_at_the_start_or_where_the_log_was_cut() {
        let below = Trouble::Gap { why: GapReason::BelowStart, to: 50, leader_epoch: -1 };
        for (next, want) in [(49, below), (50, Trouble::None), (80, Trouble::None), (81, Trouble::Truncated)] {
            assert_eq!(out_of_range(next, 50, 80), want, "{next}");
        }
        let cut = |to, leader_epoch| Trouble::Gap { why: GapReason::Truncated, to, leader_epoch };
        for (answered_epoch, end, want) in [
            (4, 100, Trouble::None),
            (4, 500, Trouble::None),
            (4, 99, cut(99, 4)),
            (3, 60, cut(60, 3)),
            (3, 100, Trouble::Truncated),
            (-1, -1, Trouble::Truncated),
        ] {
            assert_eq!(epoch_end(&place(None, 100), answered_epoch, end), want, "{answered_epoch} {end}");
        }
    }
}
