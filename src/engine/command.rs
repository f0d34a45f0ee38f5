//! What may be asked of the writer, and what it answers. Everything that changes state is one of these.
//!
//! A command that is refused has written nothing (it is checked first and written after), so it cannot spoil its neighbours in
//! the same commit. An answer is given only after the commit that made it true.

mod shown;

use crate::model::api_key::ApiKey;
use crate::model::event::Event;
use crate::model::gap::Gap;
pub use crate::model::idempotency::IdempotencyRow;
use crate::model::ids::{KeyId, LogNo, ReplayId, Seq, SubNo, SubscriptionId, TenantNo};
use crate::model::notice::Notice;
use crate::model::record::PoisonRecord;
use crate::model::replay::{DeadFilter, Replay};
use crate::model::subscription::{EventPattern, Sealed, Skipped, Spec, Subscription};
use crate::time::Timestamp;
pub use shown::{BreakerSeen, BreakerState, HubState, LaneState, Tally, Wanted};
use std::sync::Arc;

/// Records to store, with the position they carry (C3.1): one transaction.
#[derive(Debug)]
pub struct Admit {
    /// Where they come from.
    pub from: AdmitFrom,
    /// The records with their verdicts, in order of offsets.
    pub records: Vec<Judged>,
}

/// Where admitted records come from.
#[derive(Debug)]
pub enum AdmitFrom {
    /// A Kafka partition: its position moves with them.
    Partition(PartitionStep),
    /// HTTP ingest: no position.
    Http,
}

/// A partition's position before and after a batch.
#[derive(Debug, Clone)]
pub struct PartitionStep {
    /// Topic name.
    pub topic: Arc<str>,
    /// Topic UUID as the broker gives it.
    pub topic_id: [u8; 16],
    /// Partition.
    pub partition: i32,
    /// The stored position that this step starts from; `None` where none was stored. Another one stored makes the step refused
    /// ([`Refusal::PositionMoved`]): the reader is behind what is stored and must read again.
    pub from: Option<i64>,
    /// The next offset to read after it.
    pub next: i64,
    /// Leader epoch of the last record read; -1 when not known.
    pub leader_epoch: i32,
    /// Stretches that could not be read, recorded with it (C1.5).
    pub gaps: Vec<Gap>,
}

/// A record with its verdict.
#[derive(Debug)]
pub enum Judged {
    /// To be stored.
    Event(Box<Event>),
    /// A system event: only counted.
    Dropped,
    /// To be kept as a poison record.
    Poison(Box<PoisonRecord>),
}

/// What became of the records of an [`Admit`].
#[derive(Debug, Default)]
pub struct Admitted {
    /// One for each record, in order.
    pub results: Vec<AdmitResult>,
}

/// What became of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdmitResult {
    /// Stored under that seq.
    Stored {
        /// Its seq.
        seq: Seq,
        /// Jobs made for it.
        jobs: u32,
    },
    /// Known already (C3.2).
    Duplicate {
        /// The seq it has, where the event is still stored.
        seq: Option<Seq>,
        /// The stored one has another body.
        conflict: bool,
    },
    /// A system event.
    Dropped,
    /// Kept as a poison record.
    Quarantined,
}

/// A change of the hub's own objects, with what an `Idempotency-Key` wants remembered in the same commit (A1.7).
#[derive(Debug)]
pub struct Manage {
    /// What to do.
    pub action: Action,
    /// The answer to repeat, when the client gave a key.
    pub idempotency: Option<IdempotencyRow>,
}

/// What can be asked about the hub's own objects.
#[derive(Debug)]
pub enum Action {
    /// Makes a subscription, `pending`.
    CreateSubscription(Box<NewSubscription>),
    /// Changes one.
    ChangeSubscription {
        /// Its tenant; another tenant's is [`Refusal::NotFound`].
        tenant: Arc<str>,
        /// Which.
        id: SubscriptionId,
        /// The revision it must have (A1.8); `None`: any.
        if_revision: Option<u64>,
        /// How.
        change: Change,
    },
    /// Deletes one, with its jobs, dead letters and secrets.
    DeleteSubscription {
        /// Its tenant.
        tenant: Arc<str>,
        /// Which.
        id: SubscriptionId,
        /// The revision it must have.
        if_revision: Option<u64>,
    },
    /// Sends dead letters again with a new curve (C6.5); those that are gone are passed over.
    Redrive(Vec<(SubNo, LogNo)>),
    /// Ends one dead letter (C6.5); one that is gone is [`Refusal::NotFound`].
    DeadLetter {
        /// Whose.
        sub: SubNo,
        /// Of which event.
        log: LogNo,
        /// How.
        end: LetterEnd,
    },
    /// Begins a replay, or bulk work on dead letters (C6.5, C6.6): it is worked on in chunks from here on.
    StartReplay {
        /// Its tenant.
        tenant: Arc<str>,
        /// Of which subscription.
        id: SubscriptionId,
        /// The revision that the subscription must have.
        if_revision: Option<u64>,
        /// What to do.
        replay: Box<NewReplay>,
    },
    /// Ends bulk work before its end. The jobs that it made stay; one that has ended stays as it is.
    CancelReplay {
        /// Its tenant.
        tenant: Arc<str>,
        /// Of which subscription.
        id: SubscriptionId,
        /// Which.
        replay: ReplayId,
    },
    /// Stores a new API key.
    CreateApiKey(Box<ApiKey>),
    /// Revokes one.
    RevokeApiKey {
        /// Which.
        id: KeyId,
        /// When.
        at: Timestamp,
    },
    /// Only remembers an answer that was not known when its action was done.
    Remember,
    /// Tells operators of something that happened outside the engine: once for each kind, tenant, subscription and subject in a window.
    Notice(Box<Notice>),
    /// Reads a lane's state; writes nothing.
    InspectLane(SubNo),
    /// Reads the state of these breakers, but for those that are closed; writes nothing.
    InspectBreakers(Vec<(TenantNo, String)>),
    /// Reads which subscriptions are of that health, newest first; writes nothing.
    InspectHealth {
        /// Which are wanted.
        wanted: Wanted,
        /// Those with a lower number; none: from the newest on.
        below: Option<SubNo>,
        /// So many at most.
        limit: usize,
        /// So many numbers are looked at, at most.
        examine: u32,
    },
    /// Reads the hub's counts; writes nothing.
    InspectHub,
}

/// A subscription to be made. Number, revision and generation are the writer's to give.
#[derive(Debug)]
pub struct NewSubscription {
    /// Its id, made by the caller.
    pub id: SubscriptionId,
    /// Its tenant.
    pub tenant: Arc<str>,
    /// What the tenant asked for.
    pub spec: Spec,
    /// The first signing secret, sealed.
    pub secret: Sealed,
    /// Wall time.
    pub at: Timestamp,
}

/// How a dead letter is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterEnd {
    /// It becomes a job with a new curve.
    Redrive,
    /// It is removed.
    Purge,
}

/// Bulk work to be begun.
#[derive(Debug)]
pub struct NewReplay {
    /// Its id, made by the caller.
    pub id: ReplayId,
    /// What it goes through.
    pub through: Through,
    /// Only these event types; empty: all.
    pub only: Vec<EventPattern>,
    /// How many the caller has counted, to be shown.
    pub count: u64,
    /// There were more.
    pub at_least: bool,
}

/// What bulk work is to go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Through {
    /// The events from one seq to another, as far as there are.
    Events {
        /// The first.
        from: Seq,
        /// The last.
        to: Seq,
    },
    /// What the subscription skipped and no replay has taken up since, up to that seq (C8.5).
    Skipped {
        /// The last seq that the caller has counted.
        upto: Seq,
    },
    /// Its dead letters of now.
    DeadLetters {
        /// What becomes of them.
        end: DeadEnd,
        /// Which of them.
        which: DeadFilter,
    },
}

/// What is to become of many dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadEnd {
    /// Sent again, and gone with the success (C6.6).
    Replay,
    /// Sent again with a new curve, and gone at once (C6.5).
    Redrive,
    /// Removed.
    Purge,
}

/// One change of a subscription.
#[derive(Debug)]
pub enum Change {
    /// A new specification. Another destination goes back to `pending`, unless `proven`.
    Spec {
        /// The whole new specification.
        spec: Box<Spec>,
        /// The new destination was probed already.
        proven: bool,
        /// Wall time.
        at: Timestamp,
    },
    /// `enabled` off, reason `paused`.
    Pause {
        /// Wall time.
        at: Timestamp,
    },
    /// `enabled` on; refused for `auto_disabled` and `gone` (C8.4).
    Resume {
        /// Wall time.
        at: Timestamp,
    },
    /// The probe passed: `active`; lifts `auto_disabled` and `gone`, closes the breaker, ends a hold (C7.2, C8.4).
    Verified {
        /// The sink that was probed; when it is no longer the subscription's, the change is refused as stale.
        sink: Box<crate::model::subscription::Sink>,
        /// Wall time.
        at: Timestamp,
    },
    /// A new signing secret (C9.2).
    RotateSecret {
        /// The new one, sealed.
        secret: Sealed,
        /// Until when the old one signs too; `None` ends it now.
        old_until: Option<Timestamp>,
        /// Wall time.
        at: Timestamp,
    },
}

/// What a [`Manage`] was answered.
#[derive(Debug)]
pub enum Managed {
    /// The subscription as it is now.
    Subscription {
        /// The subscription.
        subscription: Arc<Subscription>,
        /// What was stored while it was not matched, when this change made it matched again (C8.5).
        skipped: Option<Skipped>,
    },
    /// It is gone.
    Deleted,
    /// So many were sent again.
    Redriven(u64),
    /// Bulk work as it is now.
    Replay(Box<Replay>),
    /// The key as it is now.
    ApiKey(Box<ApiKey>),
    /// Done, nothing to show.
    Done,
    /// State of a lane.
    Lane(LaneState),
    /// Counts of the hub.
    Hub(HubState),
    /// Breakers that are not closed, in the order they were asked for.
    Breakers(Vec<BreakerSeen>),
    /// Subscriptions of the wanted health.
    Healths {
        /// Which they are, and how they do. The age of the oldest waiting event is left out.
        seen: Vec<(SubNo, LaneState)>,
        /// Below which number to go on; none: there are no more.
        next: Option<SubNo>,
    },
}

/// Why the writer did not do it. Nothing of the command was written, unless it says so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No such object for that tenant.
    #[error("no such object")]
    NotFound,
    /// The object has another revision by now (A1.8).
    #[error("the object has changed since it was read")]
    Stale,
    /// `resume` of what only `verify` lifts (C8.4).
    #[error("disabled by failures; verify it instead")]
    VerifyRequired,
    /// A rotation is under way (C9.2).
    #[error("the former secret is still valid")]
    RotationInProgress,
    /// A ceiling of `model::limits`.
    #[error("{0}")]
    LimitReached(&'static str),
    /// The partition's stored position is another one.
    #[error("the stored position is {stored:?}")]
    PositionMoved {
        /// What is stored.
        stored: Option<i64>,
    },
    /// As many jobs as may be in memory (`PENDING_IN_MEMORY_MAX`) wait for another attempt: no dead letter is sent again meanwhile.
    #[error("too many jobs wait for another attempt; send no dead letters again until some of them have ended")]
    BacklogFull,
    /// Less than `STORE_RESERVE_BYTES` is free on the disk (C13.4).
    #[error("the disk is nearly full: less than STORE_RESERVE_BYTES is free; nothing new is taken until there is more")]
    DiskLow,
    /// Writes are suspended: the store failed, or the disk is full (C13.4). Whether this command was stored is not known.
    #[error("the store is suspended: {0}")]
    Suspended(String),
    /// The hub is stopping.
    #[error("the hub is stopping")]
    Stopping,
}
