//! What is counted while samples are played and received, and the summary of it.

use super::super::hub::Answered;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Deliveries told apart by their ids; beyond so many a repeat counts as another delivery.
const DELIVERIES_REMEMBERED: usize = 4_000_000;

/// Counts, shared by the player and the receiver.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<Counts>);

/// What has been counted so far.
#[derive(Debug, Default)]
struct Counts {
    played: Played,
    received: Received,
    delivered: HashSet<(String, String)>,
    newest_first_attempt: HashMap<String, u64>,
}

/// What the hub answered to the records that were played.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Played {
    pub(super) accepted: u64,
    pub(super) dropped: u64,
    pub(super) quarantined: u64,
    pub(super) duplicates: u64,
}

/// What the receiver saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// Events answered with 2xx, each counted once for a subscription.
    pub(super) delivered: u64,
    /// Those of them whose signature the receiver could verify.
    pub(super) signatures_verified: u64,
    /// Signatures that were wrong, and answered with 401.
    pub(super) signatures_wrong: u64,
    /// First attempts of an event after the first attempt of a later one of the same subscription (C5.4).
    pub(super) out_of_order: u64,
}

/// One delivery as the receiver saw it.
#[derive(Debug)]
pub(super) struct Arrival<'a> {
    pub(super) subscription: &'a str,
    pub(super) event: &'a str,
    pub(super) seq: Option<u64>,
    /// Attempt 1 of an event that is not sent again on request.
    pub(super) first_attempt: bool,
    pub(super) signature: Signature,
    pub(super) status: u16,
}

/// What the receiver thinks of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// Verified.
    Right,
    /// Wrong, stale or absent.
    Wrong,
    /// Of a subscription whose secret the receiver does not have: one that somebody else made.
    Unknown,
}

impl Tally {
    /// Counts the hub's answer to a record; `false` when it is no verdict.
    pub(super) fn played(&self, answered: &Answered) -> bool {
        let verdict = answered.body.get("verdict").and_then(|verdict| verdict.as_str());
        let duplicate = answered.body.get("duplicate").and_then(|duplicate| duplicate.as_bool()) == Some(true);
        let mut counts = self.lock();
        let played = &mut counts.played;
        match (answered.status, verdict) {
            (202, Some("drop" | "dropped")) => played.dropped += 1,
            (202, _) if duplicate => played.duplicates += 1,
            (202, Some("accept" | "accepted")) => played.accepted += 1,
            (422, _) => played.quarantined += 1,
            _ => return false,
        }
        true
    }

    /// Counts a delivery.
    pub(super) fn arrived(&self, arrival: &Arrival<'_>) {
        let mut counts = self.lock();
        let counts = &mut *counts;
        if arrival.signature == Signature::Wrong {
            counts.received.signatures_wrong += 1;
        }
        if let (Some(seq), true) = (arrival.seq, arrival.first_attempt) {
            let newest = counts.newest_first_attempt.entry(arrival.subscription.to_owned()).or_default();
            // The same again is an attempt that a 429 put off: it uses up no step.
            if seq < *newest {
                counts.received.out_of_order += 1;
            }
            *newest = seq.max(*newest);
        }
        if (200..300).contains(&arrival.status) {
            let this = (arrival.subscription.to_owned(), arrival.event.to_owned());
            let full = counts.delivered.len() >= DELIVERIES_REMEMBERED;
            if full || counts.delivered.insert(this) {
                counts.received.delivered += 1;
                counts.received.signatures_verified += u64::from(arrival.signature == Signature::Right);
            }
        }
    }

    /// Both sides of the count.
    pub(super) fn counts(&self) -> (Played, Received) {
        let counts = self.lock();
        (counts.played, counts.received)
    }

    // Every change is a few additions: a task that panicked leaves the counts whole.
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a run.
#[derive(Debug, serde::Serialize)]
pub(super) struct Summary {
    pub(super) accepted: u64,
    pub(super) dropped: u64,
    pub(super) quarantined: u64,
    pub(super) duplicates: u64,
    pub(super) delivered: u64,
    pub(super) signatures_verified: u64,
    pub(super) out_of_order: u64,
    pub(super) dead_letters: u64,
    pub(super) seconds: f64,
}

impl Summary {
    /// Of these counts.
    pub(super) fn of((played, received): (Played, Received), dead_letters: u64, seconds: f64) -> Self {
        Self {
            accepted: played.accepted,
            dropped: played.dropped,
            quarantined: played.quarantined,
            duplicates: played.duplicates,
            delivered: received.delivered,
            signatures_verified: received.signatures_verified,
            out_of_order: received.out_of_order,
            dead_letters,
            seconds: (seconds * 1000.0).round() / 1000.0,
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        format!(
            "{} accepted, {} dropped (system events), {} quarantined, {} duplicates; \
             {} delivered, {} signatures verified, {} out of order, {} dead letters; {} s",
            self.accepted,
            self.dropped,
            self.quarantined,
            self.duplicates,
            self.delivered,
            self.signatures_verified,
            self.out_of_order,
            self.dead_letters,
            self.seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(
        event: &'static str,
        seq: u64,
        first_attempt: bool,
        signature: Signature,
        status: u16,
    ) -> Arrival<'static> {
        Arrival { subscription: "sub_1", event, seq: Some(seq), first_attempt, signature, status }
    }

    // C5.4
    #[test]
    fn order_is_judged_among_first_attempts_and_repeats_count_once() {
        let tally = Tally::default();
        for seen in [
            arrival("a", 1, true, Signature::Right, 500),
            arrival("b", 2, true, Signature::Right, 429),
            arrival("b", 2, true, Signature::Right, 200),
            arrival("a", 1, false, Signature::Right, 200),
            arrival("a", 1, false, Signature::Right, 200),
            arrival("d", 4, true, Signature::Wrong, 401),
            arrival("c", 3, true, Signature::Unknown, 204),
        ] {
            tally.arrived(&seen);
        }
        let expected = Received { delivered: 3, signatures_verified: 2, signatures_wrong: 1, out_of_order: 1 };
        assert_eq!(tally.counts().1, expected);
    }

    // C3.6
    #[test]
    fn every_verdict_is_counted_and_nothing_else_is() {
        let tally = Tally::default();
        for (status, body, counts) in [
            (202, r#"{"verdict":"accept","seq":1,"duplicate":false}"#, true),
            (202, r#"{"verdict":"accept","seq":1,"duplicate":true}"#, true),
            (202, r#"{"verdict":"drop","seq":null,"duplicate":false}"#, true),
            (422, r#"{"code":"missing_tenant"}"#, true),
            (503, r#"{"code":"store_suspended"}"#, false),
            (401, "null", false),
        ] {
            let answered = Answered { status, body: serde_json::from_str(body).unwrap() };
            assert_eq!(tally.played(&answered), counts, "{status} {body}");
        }
        assert_eq!(tally.counts().0, Played { accepted: 1, dropped: 1, quarantined: 1, duplicates: 1 });
    }
}
