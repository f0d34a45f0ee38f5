//! Whether a transaction hangs in a partition (C1.6): its last stable offset stands still while its log grows, so that nothing
//! behind it can be read. Decisions only: what a fetch told, and when, is passed in.
//!
//! Invariants: a log that is decided to its end never hangs, however long nothing is written; the state ends by itself as soon as
//! the offset moves; what happened while nobody looked is not held against the log.

use std::time::Duration;

/// The last stable offset stands still for so long before it is said (C1.6).
pub(super) const STILL_FOR: Duration = Duration::from_secs(60);
/// A longer time between two looks is not counted: with all brokers away no transaction could have ended.
const UNSEEN_MAX: Duration = Duration::from_secs(10);

/// Watches the last stable offset of one partition.
#[derive(Debug, Default)]
pub(super) struct StableWatch(Option<Still>);

/// A last stable offset that stands still below the log's end.
#[derive(Debug, Clone, Copy)]
struct Still {
    stable: i64,
    /// The log's end when it was first seen there.
    end: i64,
    since: Duration,
    seen: Duration,
    hangs: bool,
}

impl StableWatch {
    /// Looks at what a fetch told at monotonic time `now`; a `stable` below 0 is not known. For how long it has stood still when a
    /// transaction hangs, else none.
    pub(super) fn look(&mut self, now: Duration, stable: i64, end: i64) -> Option<Duration> {
        if stable < 0 || stable >= end {
            self.0 = None;
            return None;
        }
        let begun = Still { stable, end, since: now, seen: now, hangs: false };
        let still = self.0.get_or_insert(begun);
        let unseen = now.saturating_sub(still.seen);
        if still.stable != stable || (unseen > UNSEEN_MAX && !still.hangs) {
            *still = begun;
        }
        let stood = now.saturating_sub(still.since);
        still.seen = now;
        still.hangs |= stood >= STILL_FOR && end > still.end;
        still.hangs.then_some(stood)
    }

    /// Whether a transaction hung at the last look.
    pub(super) fn hangs(&self) -> bool {
        self.0.is_some_and(|still| still.hangs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second of the look, the last stable offset, the log's end, and for how many seconds it hangs then.
    type Look = (u64, i64, i64, Option<u64>);

    fn check(name: &str, looks: &[Look]) {
        let mut watch = StableWatch::default();
        for (second, stable, end, want) in looks.iter().copied() {
            let got = watch.look(Duration::from_secs(second), stable, end);
            assert_eq!(got, want.map(Duration::from_secs), "{name}: at {second} s");
            assert_eq!(watch.hangs(), want.is_some(), "{name}: at {second} s");
        }
    }

    /// Looks every five seconds from one second to before another, all alike.
    fn looks(seconds: std::ops::Range<u64>, stable: i64, end: i64) -> Vec<Look> {
        seconds.step_by(5).map(|second| (second, stable, end, None)).collect()
    }

    // C1.6
    #[test]
    fn a_stable_offset_that_stands_still_for_a_minute_while_the_log_grows_hangs() {
        let quiet = looks(0..600, 100, 100);
        check("an idle log does not hang", &quiet);
        let begun = looks(600..660, 100, 110);
        check(
            "it is counted from when something was undecided, and ends when the offset moves",
            &[
                quiet.clone(),
                begun.clone(),
                vec![(659, 100, 120, None), (660, 100, 120, Some(60)), (661, 120, 120, None)],
            ]
            .concat(),
        );
        check(
            "the growth may come first or late",
            &[vec![(0, 5, 9, None)], looks(1..60, 5, 10), vec![(60, 5, 10, Some(60)), (65, 5, 10, Some(65))]].concat(),
        );
        check(
            "a log that does not grow holds up nothing",
            &[looks(0..300, 5, 9), vec![(300, 5, 9, None), (301, 5, 10, Some(301))]].concat(),
        );
        let moved = [looks(0..55, 5, 9), looks(55..115, 6, 20), vec![(115, 6, 21, Some(60))]].concat();
        check("any move begins anew", &moved);
        check("a move within the state ends it", &[moved, vec![(116, 7, 21, None), (117, 7, 22, None)]].concat());
        check(
            "what nobody saw is not counted",
            &[looks(0..50, 5, 9), looks(500..560, 5, 20), vec![(560, 5, 21, Some(60))]].concat(),
        );
        check(
            "but a state that was told does not end unseen",
            &[looks(0..60, 5, 9), vec![(60, 5, 10, Some(60)), (500, 5, 10, Some(500)), (501, 5, 8, Some(501))]]
                .concat(),
        );
        check("where a broker does not tell the offset nothing hangs", &looks(0..300, -1, 9));
    }
}
