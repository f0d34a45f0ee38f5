//! How accepting goes when it fails, as it does while there are no file descriptors: one line when it begins, one when it is over, and
//! a wait between that grows.

use std::time::Duration;

/// What has happened lately. Moments are monotonic.
#[derive(Debug, Default)]
pub(crate) struct Accepting(Option<Trouble>);

#[derive(Debug, Clone, Copy)]
struct Trouble {
    since: Duration,
    last: Duration,
    failures: u64,
    in_a_row: u32,
}

/// What to do after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failed {
    /// It is the first for long, and to be told.
    pub(crate) is_news: bool,
    /// When to try again.
    pub(crate) wait: Duration,
}

/// A trouble that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over {
    /// How long it lasted.
    pub(crate) lasted: Duration,
    /// How often it failed.
    pub(crate) failures: u64,
}

impl Accepting {
    /// It failed.
    pub(crate) fn failed(&mut self, now: Duration) -> Failed {
        let is_news = self.0.is_none();
        let trouble = self.0.get_or_insert(Trouble { since: now, last: now, failures: 0, in_a_row: 0 });
        trouble.last = now;
        trouble.failures += 1;
        trouble.in_a_row = (trouble.in_a_row + 1).min(DOUBLINGS);
        Failed { is_news, wait: WAIT * 2_u32.pow(trouble.in_a_row - 1) }
    }

    /// It worked. The trouble is over when there was none for a while: else one connection more or less would be news each time.
    pub(crate) fn worked(&mut self, now: Duration) -> Option<Over> {
        let trouble = self.0.as_mut()?;
        trouble.in_a_row = 0;
        if now.saturating_sub(trouble.last) < QUIET {
            return None;
        }
        let over = Over { lasted: trouble.last.saturating_sub(trouble.since), failures: trouble.failures };
        self.0 = None;
        Some(over)
    }
}

const WAIT: Duration = Duration::from_millis(50);
/// The longest wait is 1.6 s.
const DOUBLINGS: u32 = 6;
const QUIET: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    // A1.9
    #[test]
    fn a_trouble_is_told_once_and_waited_out() {
        let (mut accepting, at) = (Accepting::default(), Duration::from_secs);
        assert_eq!(accepting.worked(at(1)), None);
        assert_eq!(accepting.failed(at(2)), Failed { is_news: true, wait: WAIT });
        let waits: Vec<_> = (3..10).map(|second| accepting.failed(at(second))).collect();
        assert!(waits.iter().all(|failed| !failed.is_news), "{waits:?}");
        assert!(waits.windows(2).all(|pair| pair[0].wait <= pair[1].wait), "{waits:?}");
        assert_eq!(waits.last().unwrap().wait, Duration::from_millis(1600));
        assert_eq!(accepting.worked(at(10)), None, "it may come again at once");
        assert_eq!(accepting.failed(at(11)), Failed { is_news: false, wait: WAIT });
        assert_eq!(accepting.worked(at(20)), None);
        assert_eq!(accepting.worked(at(21)), Some(Over { lasted: at(9), failures: 9 }));
        assert_eq!(accepting.worked(at(22)), None);
        assert!(accepting.failed(at(23)).is_news);
    }
}
