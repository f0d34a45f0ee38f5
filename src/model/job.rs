//! A job: one event for one subscription. It is a row while it is unfinished, and no row when it is delivered.

use crate::model::attempt::{AttemptRecord, ErrorClass};
use crate::model::event::Event;
use crate::model::ids::{ClaimNo, Generation, LogNo, Seq, SubNo};
use crate::time::HubTime;
use bincode::{Decode, Encode};
use std::sync::Arc;

/// Key of a job: the event's log number, then the subscription, so that new rows fill pages one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct JobKey {
    /// Log number of the event.
    pub log: LogNo,
    /// The subscription.
    pub sub: SubNo,
}

/// Why a job exists (C9.3 `X-Lerian-Redelivery`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Cause {
    /// Matched when the event was stored, or by `start_from`.
    Match,
    /// A dead letter sent again.
    Redrive,
    /// Asked for by a replay.
    Replay,
}

/// The row of an unfinished job.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Job {
    /// The event's seq in its tenant.
    pub seq: Seq,
    /// Not before this.
    pub due: HubTime,
    /// Steps of the schedule used up, which is the number of failed attempts that count.
    pub steps_used: u8,
    /// When the first attempt of this curve ended.
    pub first_attempt: Option<HubTime>,
    /// Crashes it was claimed in (C5.6).
    pub reclaims: u8,
    /// Why it exists.
    pub cause: Cause,
    /// Its last failed attempts, newest last, [`crate::model::limits::JOB_ATTEMPTS_KEPT`] at most.
    pub attempts: Vec<AttemptRecord>,
}

/// Why a job ended undelivered (C6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
pub enum DeadReason {
    /// All steps used up.
    Exhausted,
    /// The sink takes no body of that size (C6.4).
    TooLarge,
    /// The event cannot be represented at that sink (C6.4).
    NotRepresentable,
    /// Kept crashing its worker (C5.6).
    Poison,
    /// Unfinished for longer than is kept (C3.5).
    Expired,
}

impl DeadReason {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            DeadReason::Exhausted => "exhausted",
            DeadReason::TooLarge => "too_large",
            DeadReason::NotRepresentable => "not_representable",
            DeadReason::Poison => "poison",
            DeadReason::Expired => "expired",
        }
    }

    /// The reason of that code.
    pub fn from_code(code: &str) -> Option<Self> {
        [Self::Exhausted, Self::TooLarge, Self::NotRepresentable, Self::Poison, Self::Expired]
            .into_iter()
            .find(|reason| reason.code() == code)
    }
}

/// A dead letter: a job that ended undelivered, with its outcome, reason and last attempts (C6.3).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct DeadLetter {
    /// The event's seq in its tenant.
    pub seq: Seq,
    /// Why it died.
    pub reason: DeadReason,
    /// When it died.
    pub died_at: HubTime,
    /// Steps it had used.
    pub steps_used: u8,
    /// The last attempts, newest last.
    pub attempts: Vec<AttemptRecord>,
}

/// One job taken for one attempt; durable before the attempt begins.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its number; a settle names it.
    pub no: ClaimNo,
    /// The generation under which it was claimed; under another it goes back unattempted.
    pub generation: Generation,
    /// What was claimed.
    pub job: ClaimedJob,
}

/// One claimed job.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Which.
    pub key: JobKey,
    /// The event's seq.
    pub seq: Seq,
    /// Steps used so far; the attempt number is one more.
    pub steps_used: u8,
    /// Why it exists.
    pub cause: Cause,
    /// The event, where the writer had it at hand; else the worker loads it.
    pub event: Option<Arc<Event>>,
}

/// What became of one claimed job; sent to the writer to be settled.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The claim under which it was attempted. One that is gone changes nothing.
    pub claim: ClaimNo,
    /// Which job of it.
    pub key: JobKey,
    /// The generation under which the attempt began.
    pub generation: Generation,
    /// What happened.
    pub outcome: Outcome,
}

/// The outcome of one claimed job.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A 2xx, or the queue's acknowledgement.
    Delivered(AttemptRecord),
    /// A failure that uses up a step.
    Failed {
        /// What happened.
        attempt: AttemptRecord,
        /// The receiver asked for at least this wait (503 with `Retry-After`, C9.6).
        not_before_ms: Option<u64>,
    },
    /// 429: the subscription waits, no step is used (C9.6).
    Held {
        /// What happened.
        attempt: AttemptRecord,
        /// How long, already clamped.
        hold_ms: u64,
    },
    /// No retry can mend it (C6.4).
    Hopeless {
        /// What happened.
        attempt: AttemptRecord,
        /// Why.
        reason: DeadReason,
    },
    /// Given back without an attempt: a hold, pause, change or drain came first.
    Released,
    /// The worker crashed (C5.6).
    Crashed,
}

impl Outcome {
    /// The error class, where there was a failed attempt.
    pub fn error_class(&self) -> Option<ErrorClass> {
        match self {
            Outcome::Failed { attempt, .. } | Outcome::Held { attempt, .. } | Outcome::Hopeless { attempt, .. } => {
                attempt.error
            }
            Outcome::Delivered(_) | Outcome::Released | Outcome::Crashed => None,
        }
    }
}
