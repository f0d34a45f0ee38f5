//! Bulk work on one subscription: a replay of stored events, or what is to become of many dead letters (C6.5, C6.6).
//!
//! It is a row that says how far it came, and is worked on in chunks between other work; when it has ended it is still listed.

use crate::model::ids::{LogNo, ReplayId, Seq, SubNo};
use crate::model::job::{DeadLetter, DeadReason};
use crate::model::subscription::{EventPattern, Skipped, Spec};
use crate::time::HubTime;
use bincode::{Decode, Encode};

/// One piece of bulk work.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Replay {
    /// Public id.
    pub id: ReplayId,
    /// For which subscription.
    pub sub: SubNo,
    /// What is gone through, and how far it came.
    pub work: Work,
    /// Only these event types; empty: all.
    pub only: Vec<EventPattern>,
    /// How many there were to do when it was asked for.
    pub count: u64,
    /// There were more than were counted.
    pub at_least: bool,
    /// How many it has done so far: jobs made or made due, dead letters sent again or removed.
    pub done: u64,
    /// Whether it goes on.
    pub state: ReplayState,
    /// The work with the lowest one is worked on next; its turn is then behind all others.
    pub turn: u64,
    /// When it was asked for.
    pub asked_at: HubTime,
    /// When it ended.
    pub ended_at: Option<HubTime>,
}

/// What bulk work goes through.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Work {
    /// Stored events, in the order of their seqs.
    Events {
        /// Stretches of seqs, rising.
        stretches: Vec<Skipped>,
        /// The next seq to look at; those before it are done.
        next: Seq,
        /// They were skipped (C8.5). Without a choice of event types they are skipped no more, but for what is not looked at when it is
        /// cancelled.
        skipped: bool,
        /// What the subscription wanted when the replay was asked for.
        filter: Filter,
    },
    /// The dead letters that there were when it was asked for, in the order of their events.
    DeadLetters {
        /// What becomes of them.
        action: DeadAction,
        /// Which of them.
        which: DeadFilter,
        /// Those up to here are done.
        after: Option<LogNo>,
    },
}

/// What becomes of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum DeadAction {
    /// It is sent again and stays until that succeeds (C6.6), where the subscription still wants its event.
    Replay(Filter),
    /// It becomes a job with a new curve (C6.5).
    Redrive,
    /// It is removed.
    Purge,
}

/// Which dead letters are meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DeadFilter {
    /// Only of that reason.
    pub reason: Option<DeadReason>,
    /// Only those that died then or later.
    pub died_from: Option<HubTime>,
    /// Only those that died then or earlier.
    pub died_to: Option<HubTime>,
}

impl DeadFilter {
    /// Whether it means this one.
    pub fn is_met_by(&self, letter: &DeadLetter) -> bool {
        self.reason.is_none_or(|reason| reason == letter.reason)
            && self.died_from.is_none_or(|from| from <= letter.died_at)
            && self.died_to.is_none_or(|to| letter.died_at <= to)
    }
}

/// Whether bulk work goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum ReplayState {
    /// It does.
    Running,
    /// It came to its end.
    Done,
    /// It was cancelled.
    Cancelled,
}

/// What a subscription wants of its tenant's events (C4.1), as it was at some moment.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Filter {
    /// Event types.
    pub event_types: Vec<EventPattern>,
    /// Only from this producer.
    pub origin: Option<String>,
    /// Only this schema major.
    pub schema_major: Option<u32>,
}

impl Filter {
    /// What a specification wants.
    pub fn of(spec: &Spec) -> Self {
        Self { event_types: spec.event_types.clone(), origin: spec.origin.clone(), schema_major: spec.schema_major }
    }
}
