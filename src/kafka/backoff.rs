//! How long to wait before something is tried again: for ever, ever more slowly, never all at once.

use crate::entropy::Entropy;
use crate::time::millis;
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// The longest wait for what heals by itself.
const PASSING_MAX: Duration = Duration::from_secs(5);
/// The longest wait for what a person has to mend: whoever mended it sees within ten seconds that it works.
const PERSON_MAX: Duration = Duration::from_secs(8);
/// A failure so long after the one before it is another fault.
const ANEW_AFTER: Duration = Duration::from_secs(120);

/// Who will mend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mended {
    /// Time.
    ByTime,
    /// Somebody, who has to change a setting or a right.
    ByPerson,
}

impl Mended {
    /// From the answer to whether a person is needed.
    pub(super) fn by(needs_a_person: bool) -> Self {
        if needs_a_person { Self::ByPerson } else { Self::ByTime }
    }
}

/// The waits between tries of one thing.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    failed_at: Duration,
}

impl Backoff {
    /// After a success.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// After a failure at monotonic time `now`: how long to wait. A failure long after the one before it begins anew.
    pub(super) fn next(&mut self, mended: Mended, now: Duration, chance: &mut Entropy) -> Duration {
        if now.saturating_sub(self.failed_at) > ANEW_AFTER {
            self.failures = 0;
        }
        self.failed_at = now;
        let most = match mended {
            Mended::ByTime => PASSING_MAX,
            Mended::ByPerson => PERSON_MAX,
        };
        let step = FIRST.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
        // Between half and the whole, so that what failed together does not come back together.
        step / 2 + Duration::from_millis(chance.up_to(millis(step / 2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C1.7
    #[test]
    fn waits_grow_to_their_limit_and_shrink_again() {
        let mut chance = Entropy::from_seed(5);
        for (mended, most) in [(Mended::ByTime, PASSING_MAX), (Mended::ByPerson, PERSON_MAX)] {
            let mut backoff = Backoff::default();
            let waits: Vec<_> = (0..40).map(|_| backoff.next(mended, Duration::ZERO, &mut chance)).collect();
            assert!(waits[0] >= FIRST / 2 && waits[0] <= FIRST, "{waits:?}");
            assert!(waits.iter().all(|wait| *wait <= most) && waits[39] >= most / 2, "{waits:?}");
            backoff.reset();
            assert!(backoff.next(mended, Duration::ZERO, &mut chance) <= FIRST);
            backoff.next(mended, Duration::ZERO, &mut chance);
            assert!(backoff.next(mended, Duration::from_secs(3600), &mut chance) <= FIRST, "long after");
        }
    }
}
