//! When a subscription that keeps failing is switched off: by lasting failure (C8), or because its destination says that it is
//! gone (C9.10).
//!
//! Invariant: one success leaves nothing behind; nothing but a real failed attempt makes a span longer; and a span that was open
//! over a doubtful jump of the clock decides nothing until another attempt has failed (C13.8).

use crate::model::attempt::ErrorClass;
use crate::model::ids::LogNo;
use crate::model::subscription::DisabledReason;
use crate::time::HubTime;
use bincode::{Decode, Encode};

/// A wall clock that is further ahead of the store's last time at a start is doubted (C13.8), in milliseconds.
pub const FAR_AHEAD_MS: u64 = 48 * HOUR_MS;

/// A subscription that is still off after so long is told of once more, in milliseconds.
pub const REMIND_AFTER_MS: u64 = 24 * HOUR_MS;

const HOUR_MS: u64 = 3_600_000;

/// So many different events have to be answered with 410 (C9.10).
const GONE_EVENTS: usize = 3;

/// When a subscription is switched off (C8.2, C8.3, C9.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoDisablePolicy {
    /// Whether a verdict is acted on; it is recorded in either case.
    pub acts: Acts,
    /// The first failure must be at least so long ago, in milliseconds.
    pub window_ms: u64,
    /// The last failure must be at least so long after the first, in milliseconds.
    pub spread_ms: u64,
    /// The answers 410 must be spread over at least so long, in milliseconds.
    pub gone_over_ms: u64,
}

/// The kill switch (C8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acts {
    /// Verdicts switch subscriptions off.
    On,
    /// Verdicts are only recorded.
    Off,
}

impl Default for AutoDisablePolicy {
    fn default() -> Self {
        Self { acts: Acts::On, window_ms: 120 * HOUR_MS, spread_ms: 12 * HOUR_MS, gone_over_ms: HOUR_MS }
    }
}

/// What is remembered of a subscription that fails, as long as there is anything to remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Health {
    /// The open stretch of failures.
    pub span: Option<FailureSpan>,
    /// What was found to be so, whether or not it was acted on.
    pub verdict: Option<Verdict>,
    /// It was switched off by that verdict.
    pub down: Option<Down>,
}

/// A stretch of failed attempts without a success between them (C8.2).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FailureSpan {
    /// The first failure.
    pub first: HubTime,
    /// The last one so far.
    pub last: HubTime,
    /// How many.
    pub failures: u64,
    /// What the last one met.
    pub error: ErrorClass,
    /// Of these, the answers 410.
    pub gone: Option<GoneSpan>,
    /// The clock was doubted since the last failure: nothing is decided before the next one (C13.8).
    pub doubted: bool,
}

/// Answers 410 within a [`FailureSpan`] (C9.10). Other failures in between neither add to it nor end it.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GoneSpan {
    /// The first of them.
    pub first: HubTime,
    /// The last of them.
    pub last: HubTime,
    /// The different events that met it; those beyond the number that is needed are not noted.
    pub events: Vec<LogNo>,
}

/// A verdict, and since when it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Verdict {
    /// What speaks for switching it off.
    pub cause: Cause,
    /// When it was first found.
    pub at: HubTime,
}

/// What speaks for switching a subscription off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Cause {
    /// Failures that last (C8.2).
    Lasting,
    /// Its destination says that it is gone (C9.10).
    Gone,
}

impl Cause {
    /// The reason that is written to the subscription (C4.6).
    pub fn reason(self) -> DisabledReason {
        match self {
            Cause::Lasting => DisabledReason::AutoDisabled,
            Cause::Gone => DisabledReason::Gone,
        }
    }
}

/// A subscription that was switched off by a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Down {
    /// When.
    pub at: HubTime,
    /// That it is still off has been told.
    pub reminded: bool,
}

/// Whether a failure of that class makes a span longer: the destination was tried and failed (C8.2).
pub fn extends(error: ErrorClass) -> bool {
    match error {
        // It answered, or the event itself is at fault.
        ErrorClass::RateLimited | ErrorClass::TooLarge | ErrorClass::NotRepresentable => false,
        // Nothing was sent: our policy, our key, or our crash.
        ErrorClass::DestinationBlocked | ErrorClass::SecretUnreadable | ErrorClass::Crashed => false,
        // Met only by a subscription's probe, which counts nothing (C4.7).
        ErrorClass::Challenge => false,
        ErrorClass::Dns
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
        | ErrorClass::ServerError => true,
    }
}

impl Health {
    /// An attempt of that event failed, in a way that [`extends`] the span.
    #[must_use]
    pub fn on_failure(mut self, now: HubTime, error: ErrorClass, event: LogNo) -> Health {
        let span = self.span.get_or_insert(FailureSpan {
            first: now,
            last: now,
            failures: 0,
            error,
            gone: None,
            doubted: false,
        });
        span.last = span.last.max(now);
        span.failures = span.failures.saturating_add(1);
        span.error = error;
        span.doubted = false;
        if error == ErrorClass::Gone {
            let gone = span.gone.get_or_insert(GoneSpan { first: now, last: now, events: Vec::new() });
            gone.last = gone.last.max(now);
            if gone.events.len() < GONE_EVENTS && !gone.events.contains(&event) {
                gone.events.push(event);
            }
        }
        self
    }

    /// A delivery succeeded, or a new destination stands in its place: the span ends, and a verdict that was not acted on with it.
    /// What has been switched off stays so until it is verified (C8.4).
    #[must_use]
    pub fn on_success(self) -> Health {
        let verdict = self.verdict.filter(|_| self.down.is_some());
        Health { span: None, verdict, down: self.down }
    }

    /// The clock is doubted: see [`FAR_AHEAD_MS`].
    #[must_use]
    pub fn doubted(mut self) -> Health {
        if let Some(span) = &mut self.span {
            span.doubted = true;
        }
        self
    }

    /// Whether the span speaks for switching the subscription off now (C8.2, C9.10). A 410 says more than the other.
    pub fn judge(&self, policy: &AutoDisablePolicy, now: HubTime) -> Option<Cause> {
        let span = self.span.as_ref().filter(|span| !span.doubted)?;
        let is_gone = span.gone.as_ref().is_some_and(|gone| {
            gone.events.len() >= GONE_EVENTS && gone.last.since_ms(gone.first) >= policy.gone_over_ms
        });
        let lasts = now.since_ms(span.first) >= policy.window_ms && span.last.since_ms(span.first) >= policy.spread_ms;
        match (is_gone, lasts) {
            (true, _) => Some(Cause::Gone),
            (false, true) => Some(Cause::Lasting),
            (false, false) => None,
        }
    }

    /// With a verdict, which keeps the time at which it was first found.
    #[must_use]
    pub fn with_verdict(mut self, cause: Cause, now: HubTime) -> Health {
        match self.verdict {
            Some(found) if found.cause == cause => {}
            Some(_) | None => self.verdict = Some(Verdict { cause, at: now }),
        }
        self
    }

    /// Switched off now.
    #[must_use]
    pub fn switched_off(mut self, now: HubTime) -> Health {
        self.down = Some(Down { at: now, reminded: false });
        self
    }

    /// Whether it is to be told that it is still off.
    pub fn is_to_be_reminded(&self, now: HubTime) -> bool {
        self.down.is_some_and(|down| !down.reminded && now.since_ms(down.at) >= REMIND_AFTER_MS)
    }

    /// It has been told.
    #[must_use]
    pub fn reminded(mut self) -> Health {
        if let Some(down) = &mut self.down {
            down.reminded = true;
        }
        self
    }

    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        self.span.is_none() && self.verdict.is_none() && self.down.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: u64 = 1_700_000_000_000;
    const MINUTE: u64 = 60_000;

    fn policy() -> AutoDisablePolicy {
        AutoDisablePolicy::default()
    }

    /// A history of failures: at which minute, with what, of which event.
    fn after(failures: &[(u64, ErrorClass, u64)]) -> Health {
        failures.iter().fold(Health::default(), |health, (minute, error, event)| {
            health.on_failure(HubTime(T0 + minute * MINUTE), *error, LogNo(*event))
        })
    }

    fn judged_at(health: &Health, minute: u64) -> Option<Cause> {
        health.judge(&policy(), HubTime(T0 + minute * MINUTE))
    }

    // C8.2: sustained and spread, to the minute.
    #[test]
    fn only_what_lasts_and_is_spread_is_switched_off() {
        use ErrorClass::{Connect, ServerError};
        const H: u64 = 60;
        for (failures, judged, expected) in [
            (&[][..], 1000 * H, None),
            (&[(0, ServerError, 1)], 1000 * H, None),
            (&[(0, ServerError, 1), (12 * H - 1, ServerError, 1)], 1000 * H, None),
            (&[(0, ServerError, 1), (12 * H, ServerError, 1)], 120 * H - 1, None),
            (&[(0, ServerError, 1), (12 * H, ServerError, 1)], 120 * H, Some(Cause::Lasting)),
            (&[(0, ServerError, 1), (120 * H, Connect, 2)], 120 * H, Some(Cause::Lasting)),
            (&[(0, ServerError, 1), (6 * H, Connect, 2), (119 * H, Connect, 3)], 119 * H, None),
        ] {
            assert_eq!(judged_at(&after(failures), judged), expected, "{failures:?} at {judged}");
        }
    }

    // C8.2: one success clears it; what was switched off stays.
    #[test]
    fn one_success_clears_the_span() {
        let health = after(&[(0, ErrorClass::ServerError, 1), (7_200, ErrorClass::ServerError, 2)]);
        assert_eq!(judged_at(&health, 7_200), Some(Cause::Lasting));
        let recorded = health.clone().with_verdict(Cause::Lasting, HubTime(T0));
        assert!(recorded.clone().on_success().is_empty(), "a verdict that was not acted on goes with it");
        let off = recorded.switched_off(HubTime(T0)).on_success();
        assert_eq!((off.span.is_none(), off.verdict.is_some(), off.down.is_some()), (true, true, true));
        let again = health.on_success().on_failure(HubTime(T0 + 7_201 * MINUTE), ErrorClass::ServerError, LogNo(3));
        assert_eq!(judged_at(&again, 14_000), None, "the next span begins anew");
    }

    // C9.10: three different events over an hour; C8.2 need not hold.
    #[test]
    fn gone_is_believed_of_three_events_over_an_hour() {
        use ErrorClass::{Gone, ServerError};
        for (failures, expected) in [
            (&[(0, Gone, 1), (1, Gone, 2), (2, Gone, 3)][..], None),
            (&[(0, Gone, 1), (1, Gone, 2), (59, Gone, 3)], None),
            (&[(0, Gone, 1), (1, Gone, 2), (60, Gone, 3)], Some(Cause::Gone)),
            (&[(0, Gone, 1), (30, Gone, 1), (60, Gone, 1), (61, Gone, 2)], None),
            (&[(0, Gone, 1), (1, Gone, 2), (2, Gone, 3), (60, Gone, 1)], Some(Cause::Gone)),
            (&[(0, Gone, 1), (1, Gone, 2), (2, Gone, 3), (60, ServerError, 4)], None),
            (&[(0, Gone, 1), (1, Gone, 2), (30, ServerError, 9), (61, Gone, 4)], Some(Cause::Gone)),
            (&[(0, ServerError, 1), (1, ServerError, 2), (60, ServerError, 3)], None),
        ] {
            assert_eq!(judged_at(&after(failures), 61), expected, "{failures:?}");
        }
        let many: Vec<_> = (0..500).map(|n| (n, Gone, n)).collect();
        assert_eq!(after(&many).span.unwrap().gone.unwrap().events.len(), GONE_EVENTS, "what is kept is bounded");
        let healed = after(&[(0, Gone, 1), (1, Gone, 2)]).on_success();
        let again = healed.on_failure(HubTime(T0 + 90 * MINUTE), Gone, LogNo(3));
        assert_eq!(judged_at(&again, 90), None, "a success clears this too");
    }

    // C8.2
    #[test]
    fn seven_classes_do_not_make_a_span_longer() {
        let not: Vec<_> = ErrorClass::ALL.iter().filter(|error| !extends(**error)).map(|error| error.code()).collect();
        let expected = [
            "destination_blocked",
            "rate_limited",
            "challenge_mismatch",
            "too_large",
            "not_representable",
            "secret_unreadable",
            "crashed",
        ];
        assert_eq!(not, expected);
    }

    // C13.8
    #[test]
    fn a_doubted_span_waits_for_a_fresh_failure() {
        let health = after(&[(0, ErrorClass::Gone, 1), (720, ErrorClass::Gone, 2), (7_200, ErrorClass::Gone, 3)]);
        assert_eq!(judged_at(&health, 7_200), Some(Cause::Gone));
        let doubted = health.doubted();
        assert_eq!(judged_at(&doubted, u64::MAX / MINUTE - T0), None);
        let fresh = doubted.on_failure(HubTime(T0 + 9_000 * MINUTE), ErrorClass::ServerError, LogNo(4));
        assert_eq!(judged_at(&fresh, 9_000), Some(Cause::Gone));
        assert!(Health::default().doubted().is_empty());
    }

    // C8.1: a day later, once.
    #[test]
    fn one_that_is_still_off_is_told_of_once() {
        let off = after(&[(0, ErrorClass::Dns, 1)]).switched_off(HubTime(T0));
        assert!(!off.is_to_be_reminded(HubTime(T0 + REMIND_AFTER_MS - 1)));
        assert!(off.is_to_be_reminded(HubTime(T0 + REMIND_AFTER_MS)));
        assert!(!off.reminded().is_to_be_reminded(HubTime(u64::MAX)));
        assert!(!Health::default().is_to_be_reminded(HubTime(u64::MAX)));
    }

    #[test]
    fn a_verdict_keeps_its_beginning() {
        let first = Health::default().with_verdict(Cause::Lasting, HubTime(5));
        assert_eq!(first.clone().with_verdict(Cause::Lasting, HubTime(9)), first);
        assert_eq!(
            first.with_verdict(Cause::Gone, HubTime(9)).verdict,
            Some(Verdict { cause: Cause::Gone, at: HubTime(9) })
        );
    }

    // C13.6: these bytes are the format; another reading of them needs another version.
    #[test]
    fn golden_bytes_of_health() {
        let config = bincode::config::standard();
        let health = Health::default()
            .on_failure(HubTime(5), ErrorClass::Gone, LogNo(7))
            .on_failure(HubTime(9), ErrorClass::Timeout, LogNo(8))
            .with_verdict(Cause::Gone, HubTime(10))
            .switched_off(HubTime(11));
        let bytes = bincode::encode_to_vec(&health, config).unwrap();
        assert_eq!(bytes, [1, 5, 9, 2, 7, 1, 5, 5, 1, 7, 0, 1, 1, 10, 1, 11, 0]);
        for health in [Health::default(), health.clone().doubted(), health.reminded()] {
            let bytes = bincode::encode_to_vec(&health, config).unwrap();
            assert_eq!(bincode::decode_from_slice::<Health, _>(&bytes, config).unwrap().0, health);
        }
    }

    proptest! {
        // C8.2: whatever happened, a verdict has its failures, and a success ends it.
        #[test]
        fn no_history_is_judged_without_its_failures(
            moves in proptest::collection::vec((0u64..400_000_000, 0usize..4, 0u64..5), 0..30), now: u64,
        ) {
            let mut health = Health::default();
            let (mut at, mut since_success) = (T0, Vec::new());
            for (pause, step, event) in moves {
                at += pause;
                let error = [ErrorClass::Gone, ErrorClass::Timeout, ErrorClass::ServerError].get(step);
                health = match error {
                    Some(error) => {
                        since_success.push((at, *error, event));
                        health.on_failure(HubTime(at), *error, LogNo(event))
                    }
                    None => {
                        since_success.clear();
                        health.on_success()
                    }
                };
            }
            let now = HubTime(now.max(at));
            let lasts = since_success.first().zip(since_success.last()).is_some_and(|((first, ..), (last, ..))| {
                now.0 - first >= 120 * HOUR_MS && last - first >= 12 * HOUR_MS
            });
            let gone: Vec<_> = since_success.iter().filter(|(_, error, _)| *error == ErrorClass::Gone).collect();
            let events: std::collections::BTreeSet<_> = gone.iter().map(|(.., event)| event).collect();
            let is_gone = events.len() >= 3 && gone.last().unwrap().0 - gone[0].0 >= HOUR_MS;
            let expected = if is_gone { Some(Cause::Gone) } else { lasts.then_some(Cause::Lasting) };
            prop_assert_eq!(health.judge(&policy(), now), expected);
        }
    }
}
