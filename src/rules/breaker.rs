//! The circuit breaker of one `(tenant, destination)`: closed, open while it cools, or probing with one claim (C7).
//!
//! Moves consume the state and give the next. Invariant: an open breaker has a time at which a probe may begin, never
//! further away than `cooling_max_ms`, and a probe is a claim's, which ends for certain: so no breaker sheds for ever
//! (invariant 14).

use crate::model::attempt::ErrorClass;
use crate::model::ids::ClaimNo;
use crate::time::HubTime;
use bincode::{Decode, Encode};

/// When breakers open and for how long (C7.1, C7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Failures in a row, in order of settling, that open it.
    pub failures: u32,
    /// The first cooling time.
    pub cooling_ms: u64,
    /// What it doubles to at most.
    pub cooling_max_ms: u64,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self { failures: 5, cooling_ms: 30_000, cooling_max_ms: 600_000 }
    }
}

/// One breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Breaker {
    /// Deliveries go on.
    Closed {
        /// Failures in a row so far.
        failures: u32,
    },
    /// Jobs are shed.
    Open {
        /// When it first opened; kept through failed probes.
        since: HubTime,
        /// When a probe may begin.
        until: HubTime,
        /// The cooling time that is running, or ran last.
        cooling_ms: u64,
        /// Jobs passed over so far (C7.1).
        shed: u64,
    },
    /// One job is on its way to try.
    Probing {
        /// When it first opened.
        since: HubTime,
        /// The cooling time that ran last.
        cooling_ms: u64,
        /// The claim of that job: its end is the probe's end.
        claim: ClaimNo,
        /// Jobs passed over so far.
        shed: u64,
    },
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker::Closed { failures: 0 }
    }
}

/// Whether a failure of that class counts here: all but what the destination's health has no part in (C7.1).
pub fn counts(error: &ErrorClass) -> bool {
    match error {
        // It answered, or the event itself is at fault.
        ErrorClass::RateLimited | ErrorClass::TooLarge | ErrorClass::NotRepresentable => false,
        // Met only by a subscription's probe, which has no breaker count (C4.7); and a crash of ours is no answer of
        // theirs.
        ErrorClass::Challenge | ErrorClass::Crashed => false,
        ErrorClass::DestinationBlocked
        | ErrorClass::Dns
        | ErrorClass::DnsTimeout
        | ErrorClass::Connect
        | ErrorClass::ConnectTimeout
        | ErrorClass::Tls
        | ErrorClass::Certificate
        | ErrorClass::Timeout
        | ErrorClass::Reset
        | ErrorClass::Protocol
        | ErrorClass::UnexpectedUpgrade
        | ErrorClass::Redirect
        | ErrorClass::Gone
        | ErrorClass::ClientError
        | ErrorClass::ServerError
        | ErrorClass::SecretUnreadable => true,
    }
}

impl Breaker {
    /// Whether jobs are shed at that time. Not when an open one's cooling is over: then a probe may begin.
    pub fn is_open_at(&self, now: HubTime) -> bool {
        match self {
            Breaker::Closed { .. } => false,
            Breaker::Open { until, .. } => now < *until,
            Breaker::Probing { .. } => true,
        }
    }

    /// When it first opened; none while it is closed.
    pub fn open_since(&self) -> Option<HubTime> {
        match self {
            Breaker::Closed { .. } => None,
            Breaker::Open { since, .. } | Breaker::Probing { since, .. } => Some(*since),
        }
    }

    /// Jobs passed over since it opened (C7.1).
    pub fn shed(&self) -> u64 {
        match self {
            Breaker::Closed { .. } => 0,
            Breaker::Open { shed, .. } | Breaker::Probing { shed, .. } => *shed,
        }
    }

    /// Whether that claim is its probe.
    pub fn is_probed_by(&self, by: ClaimNo) -> bool {
        match self {
            Breaker::Probing { claim, .. } => *claim == by,
            Breaker::Closed { .. } | Breaker::Open { .. } => false,
        }
    }

    /// A failure that [`counts`] was settled.
    #[must_use]
    pub fn on_failure(self, policy: &BreakerPolicy, now: HubTime) -> Breaker {
        match self {
            Breaker::Closed { failures } => {
                let failures = failures.saturating_add(1);
                if failures < policy.failures { Breaker::Closed { failures } } else { opened(policy, now) }
            }
            // Attempts that began before it opened fail after: known already, and no reason to wait longer.
            Breaker::Open { .. } => self,
            Breaker::Probing { since, cooling_ms, shed, .. } => {
                let cooling_ms = cooling_ms
                    .saturating_mul(2)
                    .clamp(policy.cooling_ms.min(policy.cooling_max_ms), policy.cooling_max_ms);
                Breaker::Open { since, until: now.plus_ms(cooling_ms), cooling_ms, shed }
            }
        }
    }

    /// The address policy blocked the destination: it opens at once (C6.4).
    #[must_use]
    pub fn on_blocked(self, policy: &BreakerPolicy, now: HubTime) -> Breaker {
        match self {
            Breaker::Closed { .. } => opened(policy, now),
            Breaker::Open { .. } | Breaker::Probing { .. } => self.on_failure(policy, now),
        }
    }

    /// A delivery was settled, or a verify passed: it closes, also where the attempt began before it opened, since the
    /// newest knowledge is that the destination works.
    #[must_use]
    pub fn on_success(self) -> Breaker {
        Breaker::Closed { failures: 0 }
    }

    /// A 429 was settled: a probe's closes it, since somebody answered (C7.2); else it changes nothing (C9.6).
    #[must_use]
    pub fn on_held(self) -> Breaker {
        match self {
            Breaker::Probing { .. } => Breaker::Closed { failures: 0 },
            Breaker::Closed { .. } | Breaker::Open { .. } => self,
        }
    }

    /// A job was claimed to try. The caller has seen that the cooling is over; one that is closed or probing stays as
    /// it is.
    #[must_use]
    pub fn begin_probe(self, claim: ClaimNo) -> Breaker {
        match self {
            Breaker::Open { since, cooling_ms, shed, .. } => Breaker::Probing { since, cooling_ms, claim, shed },
            Breaker::Closed { .. } | Breaker::Probing { .. } => self,
        }
    }

    /// The probe's claim ended without an outcome that says anything about the destination (released, crashed, deleted,
    /// event at fault): the next probe may begin at once.
    #[must_use]
    pub fn probe_ended_without_outcome(self, now: HubTime) -> Breaker {
        match self {
            Breaker::Probing { since, cooling_ms, shed, .. } => Breaker::Open { since, until: now, cooling_ms, shed },
            Breaker::Closed { .. } | Breaker::Open { .. } => self,
        }
    }

    /// So many more due jobs were passed over (C7.1).
    #[must_use]
    pub fn having_shed(self, more: u64) -> Breaker {
        match self {
            Breaker::Closed { .. } => self,
            Breaker::Open { since, until, cooling_ms, shed } => {
                Breaker::Open { since, until, cooling_ms, shed: shed.saturating_add(more) }
            }
            Breaker::Probing { since, cooling_ms, claim, shed } => {
                Breaker::Probing { since, cooling_ms, claim, shed: shed.saturating_add(more) }
            }
        }
    }

    /// As it is believed when it is loaded from the store: no time lies further ahead than the policy allows, and a
    /// probe of a former process is over.
    #[must_use]
    pub fn loaded(self, policy: &BreakerPolicy, now: HubTime) -> Breaker {
        match self.probe_ended_without_outcome(now) {
            Breaker::Open { since, until, cooling_ms, shed } => Breaker::Open {
                since: since.min(now),
                until: until.min(now.plus_ms(policy.cooling_max_ms)),
                cooling_ms: cooling_ms.min(policy.cooling_max_ms),
                shed,
            },
            same @ (Breaker::Closed { .. } | Breaker::Probing { .. }) => same,
        }
    }
}

fn opened(policy: &BreakerPolicy, now: HubTime) -> Breaker {
    let cooling_ms = policy.cooling_ms.min(policy.cooling_max_ms);
    Breaker::Open { since: now, until: now.plus_ms(cooling_ms), cooling_ms, shed: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const POLICY: BreakerPolicy = BreakerPolicy { failures: 5, cooling_ms: 30_000, cooling_max_ms: 600_000 };
    const T0: HubTime = HubTime(1_000_000);

    fn open_at(now: HubTime) -> Breaker {
        Breaker::default().on_blocked(&POLICY, now)
    }

    // C7.1
    #[test]
    fn five_failures_in_a_row_open_it() {
        let mut breaker = Breaker::default();
        for expected in 1..5 {
            breaker = breaker.on_failure(&POLICY, T0);
            assert_eq!(breaker, Breaker::Closed { failures: expected });
        }
        assert_eq!(
            breaker.on_success().on_failure(&POLICY, T0),
            Breaker::Closed { failures: 1 },
            "a success ends the row"
        );
        assert_eq!(breaker.on_held(), breaker, "a 429 neither counts nor ends the row");
        breaker = breaker.on_failure(&POLICY, T0);
        assert_eq!(breaker, Breaker::Open { since: T0, until: HubTime(1_030_000), cooling_ms: 30_000, shed: 0 });
        assert!(
            breaker.is_open_at(T0) && breaker.is_open_at(HubTime(1_029_999)) && !breaker.is_open_at(HubTime(1_030_000))
        );
        assert_eq!(breaker.on_failure(&POLICY, HubTime(1_020_000)), breaker, "late failures do not lengthen it");
        assert_eq!(breaker.on_blocked(&POLICY, HubTime(1_020_000)), breaker);
        assert_eq!(breaker.on_held(), breaker);
        assert_eq!(breaker.on_success(), Breaker::default());
    }

    // C6.4
    #[test]
    fn a_blocked_destination_opens_it_at_once() {
        assert_eq!(open_at(T0), Breaker::Open { since: T0, until: HubTime(1_030_000), cooling_ms: 30_000, shed: 0 });
    }

    // C7.2
    #[test]
    fn cooling_doubles_to_its_maximum_with_each_failed_probe() {
        let mut breaker = open_at(T0);
        let mut now = T0;
        for expected in [30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000] {
            assert_eq!(
                breaker,
                Breaker::Open { since: T0, until: now.plus_ms(expected), cooling_ms: expected, shed: 0 }
            );
            now = now.plus_ms(expected);
            breaker = breaker.begin_probe(ClaimNo(7));
            assert!(breaker.is_open_at(now), "all others are shed while one tries");
            breaker = breaker.on_failure(&POLICY, now);
        }
        assert_eq!(breaker.begin_probe(ClaimNo(8)).on_success(), Breaker::default());
        assert_eq!(breaker.begin_probe(ClaimNo(8)).on_held(), Breaker::default(), "a 429 closes it too");
    }

    // C7.2: a probe ends with its claim.
    #[test]
    fn a_probe_belongs_to_its_claim() {
        let probing = open_at(T0).begin_probe(ClaimNo(7));
        assert!(probing.is_probed_by(ClaimNo(7)) && !probing.is_probed_by(ClaimNo(8)));
        assert!(!open_at(T0).is_probed_by(ClaimNo(7)));
        assert_eq!(probing.begin_probe(ClaimNo(8)), probing);
        let later = HubTime(2_000_000);
        let again = probing.probe_ended_without_outcome(later);
        assert_eq!(again, Breaker::Open { since: T0, until: later, cooling_ms: 30_000, shed: 0 });
        assert!(!again.is_open_at(later));
        assert_eq!(again.probe_ended_without_outcome(HubTime(3_000_000)), again);
        assert_eq!(Breaker::default().begin_probe(ClaimNo(1)), Breaker::default());
    }

    // C7.1, C7.3
    #[test]
    fn what_was_shed_is_counted_while_it_is_not_closed() {
        let shed_of = |breaker| match breaker {
            Breaker::Open { shed, .. } | Breaker::Probing { shed, .. } => Some(shed),
            Breaker::Closed { .. } => None,
        };
        let counted = open_at(T0).having_shed(3).begin_probe(ClaimNo(1)).having_shed(4);
        assert_eq!(shed_of(counted), Some(7));
        assert_eq!(shed_of(counted.on_failure(&POLICY, T0)), Some(7));
        assert_eq!(shed_of(counted.probe_ended_without_outcome(T0)), Some(7));
        assert_eq!(shed_of(counted.having_shed(u64::MAX)), Some(u64::MAX));
        assert_eq!(shed_of(counted.on_success().having_shed(1)), None);
    }

    // C13.8: what the store says of times is believed within the policy only.
    #[test]
    fn a_loaded_breaker_is_clamped() {
        let far = HubTime(u64::MAX);
        let strange = Breaker::Open { since: far, until: far, cooling_ms: u64::MAX, shed: 2 };
        let sane = Breaker::Open { since: T0, until: HubTime(1_600_000), cooling_ms: 600_000, shed: 2 };
        assert_eq!(strange.loaded(&POLICY, T0), sane);
        assert_eq!(sane.loaded(&POLICY, T0), sane);
        let probing = Breaker::Probing { since: T0, cooling_ms: 60_000, claim: ClaimNo(1), shed: 2 };
        assert!(!probing.loaded(&POLICY, T0).is_open_at(T0), "the former process's probe is over");
        assert_eq!(Breaker::Closed { failures: 4 }.loaded(&POLICY, T0), Breaker::Closed { failures: 4 });
    }

    // C7.1
    #[test]
    fn three_classes_of_deliveries_do_not_count() {
        let not: Vec<_> = ErrorClass::ALL.iter().filter(|error| !counts(error)).map(|error| error.code()).collect();
        assert_eq!(not, ["rate_limited", "challenge_mismatch", "too_large", "not_representable", "crashed"]);
    }

    #[test]
    fn it_is_stored_and_read_back() {
        let config = bincode::config::standard();
        for breaker in [Breaker::default(), open_at(T0).having_shed(3), open_at(T0).begin_probe(ClaimNo(u64::MAX))] {
            let bytes = bincode::encode_to_vec(breaker, config).unwrap();
            assert_eq!(bincode::decode_from_slice::<Breaker, _>(&bytes, config).unwrap().0, breaker);
        }
    }

    fn any_breaker() -> impl Strategy<Value = Breaker> {
        let time = || any::<u64>().prop_map(HubTime);
        prop_oneof![
            any::<u32>().prop_map(|failures| Breaker::Closed { failures }),
            (time(), time(), any::<u64>(), any::<u64>()).prop_map(|(since, until, cooling_ms, shed)| Breaker::Open {
                since,
                until,
                cooling_ms,
                shed
            }),
            (time(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(since, cooling_ms, claim, shed)| {
                Breaker::Probing { since, cooling_ms, claim: ClaimNo(claim), shed }
            }),
        ]
    }

    proptest! {
        // Invariant 14: whatever happened, a probe may begin within the longest cooling, and one success closes it.
        #[test]
        fn no_breaker_sheds_for_ever(
            breaker in any_breaker(), moves in proptest::collection::vec(0u8..6, 0..20), now: u64,
            failures: u32, cooling_ms: u64, cooling_max_ms: u64,
        ) {
            let policy = BreakerPolicy { failures, cooling_ms, cooling_max_ms };
            let now = HubTime(now);
            let mut breaker = breaker.loaded(&policy, now);
            for step in moves {
                breaker = match step {
                    0 => breaker.on_failure(&policy, now),
                    1 => breaker.on_blocked(&policy, now),
                    2 => breaker.begin_probe(ClaimNo(1)),
                    3 => breaker.on_held(),
                    4 => breaker.having_shed(u64::MAX),
                    _ => breaker.probe_ended_without_outcome(now),
                };
            }
            let rested = breaker.probe_ended_without_outcome(now);
            prop_assert!(!rested.is_open_at(now.plus_ms(cooling_max_ms)));
            prop_assert_eq!(breaker.on_success(), Breaker::default());
        }
    }
}
