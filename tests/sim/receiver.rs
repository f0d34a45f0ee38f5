//! Scripted receivers: what a destination does with a request, by its mood of the moment.

use crate::chance::Chance;
use std::collections::BTreeMap;
use streaming_hub::model::attempt::{AttemptRecord, ErrorClass};
use streaming_hub::model::ids::{DeliveryId, EventId, SubNo};
use streaming_hub::model::job::Outcome;
use streaming_hub::rules::outcome::{Judged, Told, judge};
use streaming_hub::time::Timestamp;

/// How a destination is just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// 200 within a moment.
    Fine,
    /// 200, but after seconds.
    Slow,
    /// 500.
    Broken,
    /// 410.
    Gone,
    /// Sometimes 200, sometimes 500 or a reset.
    Flaky,
    /// 429 with or without a wait.
    Busy,
    /// 503 with a wait.
    Unavailable,
    /// It takes the event, and its answer is lost.
    Mute,
    /// Nobody is reached.
    Unreachable,
    /// The address policy forbids it.
    Blocked,
    /// Nothing ever comes back: only the lease ends it.
    Hanging,
    /// The sink takes no such body.
    Refusing,
}

const BAD: [Mood; 11] = [
    Mood::Slow,
    Mood::Broken,
    Mood::Gone,
    Mood::Flaky,
    Mood::Busy,
    Mood::Unavailable,
    Mood::Mute,
    Mood::Unreachable,
    Mood::Blocked,
    Mood::Hanging,
    Mood::Refusing,
];

/// What a receiver does with one request.
#[derive(Debug, Clone)]
pub struct Reply {
    /// It has the event.
    pub took: bool,
    /// After how long the outcome is known; none: never.
    pub after_ms: Option<u64>,
    /// What the hub is told.
    pub told: Told,
}

/// What arrived of one event for one subscription.
#[derive(Debug, Clone, Copy, Default)]
pub struct Received {
    /// Times that it was taken.
    pub taken: u32,
    /// Of these, answered in a way that did not reach the hub.
    pub unanswered: u32,
}

/// All receivers.
pub struct Receivers {
    chance: Chance,
    moods: BTreeMap<String, Mood>,
    /// What arrived.
    pub received: BTreeMap<(SubNo, EventId), Received>,
}

impl Receivers {
    /// All in a good mood.
    pub fn new(chance: Chance) -> Self {
        Self { chance, moods: BTreeMap::new(), received: BTreeMap::new() }
    }

    /// A destination's mood changes.
    pub fn turn(&mut self, url: &str) -> Mood {
        let mood = if self.chance.permille(450) { Mood::Fine } else { self.chance.pick(&BAD) };
        self.moods.insert(url.to_owned(), mood);
        mood
    }

    /// Everybody is well again.
    pub fn heal(&mut self) {
        self.moods.clear();
    }

    /// A request arrives.
    pub fn reply(&mut self, url: &str, sub: SubNo, event: EventId) -> Reply {
        let mood = self.moods.get(url).copied().unwrap_or(Mood::Fine);
        let quick = self.chance.within(1, 40);
        let status = |status: u16| Told { status: Some(status), error: None, retry_after: None };
        let fault = |error| Told { status: None, error: Some(error), retry_after: None };
        let reply = |took, after_ms, told| Reply { took, after_ms: Some(after_ms), told };
        let wait = self.chance.pick(&[None, Some("1"), Some("3"), Some("7200"), Some("-4"), Some("soon")]);
        let wait = wait.map(|text| text.as_bytes().to_vec());
        let reply = match mood {
            Mood::Fine => reply(true, quick, status(200)),
            Mood::Slow => reply(true, self.chance.within(500, 8_000), status(204)),
            Mood::Broken => reply(false, quick, status(self.chance.pick(&[500, 404, 410, 302]))),
            Mood::Gone => reply(false, quick, status(410)),
            Mood::Flaky => match self.chance.below(3) {
                0 => reply(false, quick, status(500)),
                1 => reply(false, quick, fault(ErrorClass::Reset)),
                _ => reply(true, quick, status(200)),
            },
            Mood::Busy => reply(false, quick, Told { retry_after: wait, ..status(429) }),
            Mood::Unavailable => reply(false, quick, Told { retry_after: wait, ..status(503) }),
            Mood::Mute => reply(true, 10_000, fault(ErrorClass::Timeout)),
            Mood::Unreachable => reply(false, quick, fault(ErrorClass::Connect)),
            Mood::Blocked => reply(false, 1, fault(ErrorClass::DestinationBlocked)),
            Mood::Hanging => Reply { took: false, after_ms: None, told: Told::default() },
            Mood::Refusing => reply(false, quick, fault(ErrorClass::TooLarge)),
        };
        if reply.took {
            let received = self.received.entry((sub, event)).or_default();
            received.taken += 1;
            received.unanswered += u32::from(judge(&reply.told, Timestamp(0)) != Judged::Delivered);
        }
        reply
    }
}

/// The outcome that the hub makes of what it was told.
pub fn outcome(told: &Told, wall: Timestamp, duration_ms: u64) -> Outcome {
    let attempt = |error| AttemptRecord {
        delivery: DeliveryId([7; 16]),
        at: wall,
        duration_ms: u32::try_from(duration_ms).unwrap(),
        status: told.status,
        error,
        answer: b"answer".to_vec(),
    };
    match judge(told, wall) {
        Judged::Delivered => Outcome::Delivered(attempt(None)),
        Judged::Failed { error, not_before_ms } => Outcome::Failed { attempt: attempt(Some(error)), not_before_ms },
        Judged::Held { hold_ms } => Outcome::Held { attempt: attempt(Some(ErrorClass::RateLimited)), hold_ms },
        Judged::Hopeless { error, reason } => Outcome::Hopeless { attempt: attempt(Some(error)), reason },
    }
}
