//! When a failed job is tried again, and when no more: steps with full jitter (C6.1, C6.2, C6.3).
//!
//! Invariant: a schedule has 1 to 12 steps of at most 10 h each, whatever the store or a caller handed in; so no wait
//! is longer.

use crate::model::limits::{RETRY_STEP_MAX_MS, RETRY_STEPS};

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The curve for subscriptions that give none (C6.1).
const CURVE: &[u64] = &[0, 5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR];
const _: () = assert!(CURVE.len() <= RETRY_STEPS);

/// The longest waits before the first attempt, the second, and so on, in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Box<[u64]>);

/// Why steps are no schedule (C6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Without a step nothing would ever be attempted.
    #[error("at least one step is needed")]
    Empty,
    /// More steps than allowed.
    #[error("{steps} steps are too many, {RETRY_STEPS} are allowed")]
    TooMany {
        /// How many were given.
        steps: usize,
    },
    /// A step is too long.
    #[error("step {step} is longer than 10h")]
    StepTooLong {
        /// Which, from 1.
        step: usize,
    },
}

impl Schedule {
    /// `0 · 5s · 5m · 30m · 2h · 5h · 10h · 10h` (C6.1).
    pub fn default_curve() -> Self {
        Self(CURVE.into())
    }

    /// A schedule of these steps.
    ///
    /// # Errors
    /// When there is none, or too many, or one is too long.
    pub fn from_steps_ms(steps: &[u64]) -> Result<Self, ScheduleError> {
        if steps.is_empty() {
            return Err(ScheduleError::Empty);
        }
        if steps.len() > RETRY_STEPS {
            return Err(ScheduleError::TooMany { steps: steps.len() });
        }
        match steps.iter().position(|&ms| ms > RETRY_STEP_MAX_MS) {
            Some(at) => Err(ScheduleError::StepTooLong { step: at + 1 }),
            None => Ok(Self(steps.into())),
        }
    }

    /// A subscription's schedule as the store has it; the default where it has none or a malformed one, which must not
    /// keep it from being delivered to (C6.2).
    pub fn of(stored: &Option<Vec<u64>>, default: &Schedule) -> Schedule {
        let own = stored.as_deref().and_then(|steps| Self::from_steps_ms(steps).ok());
        own.unwrap_or_else(|| default.clone())
    }

    /// The steps, in milliseconds.
    pub fn steps(&self) -> &[u64] {
        &self.0
    }

    /// How long after its storing the first attempt of an event is due: the whole first step, without jitter, since the
    /// head of a lane waits for it and jitter would only shuffle the lane.
    pub fn first_delay_ms(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }

    /// All steps together: how long a job that fails every time lives at most.
    pub fn total_ms(&self) -> u64 {
        self.0.iter().fold(0, |sum, &ms| sum.saturating_add(ms))
    }
}

/// What comes next for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Another attempt, not before that many milliseconds from now.
    Wait {
        /// How long.
        ms: u64,
    },
    /// The steps are used up (C6.3).
    Exhausted,
}

/// The next attempt of a job of which `steps_used` attempts failed: attempt n waits uniformly between 0 and step n.
/// `roll` is 64 random bits.
pub fn next(schedule: &Schedule, steps_used: u8, roll: u64) -> Next {
    match schedule.0.get(usize::from(steps_used)) {
        Some(&step) => Next::Wait { ms: uniform(step, roll) },
        None => Next::Exhausted,
    }
}

/// Uniform in `0..=most`: by widening multiplication, which cannot overflow and whose bias no retry delay can show.
fn uniform(most: u64, roll: u64) -> u64 {
    let product = u128::from(roll) * (u128::from(most) + 1);
    // The upper half of a product below 2^128 by a factor of at most 2^64 is at most `most`.
    u64::try_from(product >> 64).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // C6.1
    #[test]
    fn the_default_curve() {
        let curve = Schedule::default_curve();
        assert_eq!(curve.steps(), [0, 5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 36_000_000]);
        assert_eq!(Schedule::from_steps_ms(curve.steps()), Ok(curve.clone()));
        assert_eq!(curve.first_delay_ms(), 0);
        // 27 h 35 m 5 s: "about 28 h at most".
        assert_eq!(curve.total_ms(), 99_305_000);
    }

    // C6.1, C6.3: eight steps, eight attempts.
    #[test]
    fn the_steps_are_walked_one_by_one() {
        let curve = Schedule::default_curve();
        let waits: Vec<_> = (0..=8).chain([9, 255]).map(|used| next(&curve, used, u64::MAX)).collect();
        let longest: Vec<_> = curve.steps().iter().map(|&ms| Next::Wait { ms }).collect();
        assert_eq!(waits[..8], longest);
        assert_eq!(waits[8..], [Next::Exhausted; 3]);
        assert!((0..8).all(|used| next(&curve, used, 0) == Next::Wait { ms: 0 }), "full jitter goes down to nothing");
        assert_eq!(next(&curve, 1, 1 << 63), Next::Wait { ms: 2_500 }, "half of the bits is half of the step");
    }

    // C6.2
    #[test]
    fn schedules_of_subscriptions() {
        for (steps, expected) in [
            (&[][..], Err(ScheduleError::Empty)),
            (&[0; 12], Ok(())),
            (&[0; 13], Err(ScheduleError::TooMany { steps: 13 })),
            (&[36_000_000], Ok(())),
            (&[0, 36_000_001], Err(ScheduleError::StepTooLong { step: 2 })),
            (&[u64::MAX], Err(ScheduleError::StepTooLong { step: 1 })),
        ] {
            assert_eq!(Schedule::from_steps_ms(steps).map(|_| ()), expected, "{steps:?}");
        }
        let default = Schedule::default_curve();
        let of = |stored| Schedule::of(&stored, &default);
        assert_eq!(of(Some(vec![7_000, 8])).steps(), [7_000, 8]);
        assert_eq!(of(Some(vec![7_000, 8])).first_delay_ms(), 7_000);
        for malformed in [None, Some(vec![]), Some(vec![u64::MAX]), Some(vec![0; 13])] {
            assert_eq!(of(malformed.clone()), default, "{malformed:?}");
        }
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_step(
            steps in proptest::collection::vec(0..=RETRY_STEP_MAX_MS, 1..=RETRY_STEPS), used: u8, roll: u64,
        ) {
            let schedule = Schedule::from_steps_ms(&steps).unwrap();
            match next(&schedule, used, roll) {
                Next::Wait { ms } => prop_assert!(ms <= steps[usize::from(used)]),
                Next::Exhausted => prop_assert!(usize::from(used) >= steps.len()),
            }
        }

        #[test]
        fn any_bits_and_any_step_are_uniform_and_never_overflow(most: u64, roll: u64, later: u64) {
            prop_assert!(uniform(most, roll) <= most);
            prop_assert!(uniform(most, roll.min(later)) <= uniform(most, roll.max(later)));
            prop_assert_eq!(uniform(most, u64::MAX), most);
            prop_assert_eq!(uniform(u64::MAX, roll), roll);
        }

        #[test]
        fn no_list_of_numbers_makes_it_panic(
            steps in proptest::collection::vec(any::<u64>(), 0..20), used: u8, roll: u64,
        ) {
            let schedule = Schedule::of(&Some(steps), &Schedule::default_curve());
            prop_assert!((1..=RETRY_STEPS).contains(&schedule.steps().len()));
            prop_assert!(schedule.total_ms() <= RETRY_STEP_MAX_MS * RETRY_STEPS as u64);
            if let Next::Wait { ms } = next(&schedule, used, roll) {
                prop_assert!(ms <= RETRY_STEP_MAX_MS);
            }
        }
    }
}
