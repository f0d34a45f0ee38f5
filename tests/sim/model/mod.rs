//! The reference model: what must be true, written down the slow and obvious way, one explicit job for every match.
//!
//! It is told what was asked of the writer and what was answered, and decides each time by itself what the answer had to be. It knows
//! only what is durable: a batch whose outcome is unknown is applied when the store has shown that it is there.

mod admit;
pub mod breaker;
pub mod claim;
mod forgotten;
pub mod health;
pub mod manage;
pub mod replay;
mod settle;
mod starving;

use crate::dump::Dump;
use breaker::BreakerModel;
use health::{HealthModel, NoticeModel};
use replay::{Letter, ReplayModel};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use streaming_hub::engine::ReplayPace;
use streaming_hub::engine::command::{AdmitResult, LetterEnd, PartitionStep, Refusal, Through};
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{ClaimNo, EventId, KeyId, LogNo, ReplayId, Seq, SubNo, SubscriptionId};
use streaming_hub::model::job::{Cause, DeadReason, JobKey, Settle};
use streaming_hub::model::subscription::{DeliveryOrder, EventPattern, Spec};
use streaming_hub::rules::autodisable::{AutoDisablePolicy, Cause as OffCause};
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::time::{HubTime, Timestamp};

/// What broke: the rule or invariant, and how.
#[derive(Debug, Clone)]
pub struct Violation(pub String);

/// Whether it held.
pub type Held = Result<(), Violation>;

/// Says what broke unless it holds.
#[macro_export]
macro_rules! hold {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err($crate::model::Violation(format!($($what)*)));
        }
    };
}

/// What the model needs to know of the settings.
#[derive(Debug, Clone)]
pub struct Rules {
    pub slots: u32,
    pub claim_batch: u32,
    pub poison_threshold: u8,
    pub breaker: BreakerPolicy,
    pub autodisable: AutoDisablePolicy,
    pub schedule: Vec<u64>,
    pub pending_max: usize,
    pub replay: ReplayPace,
}

/// What was asked of the writer in one batch.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub manages: Vec<Ask>,
    pub settles: Vec<Settle>,
    pub admits: Vec<AskAdmit>,
}

/// A management command.
#[derive(Debug, Clone)]
pub enum Ask {
    Create { id: SubscriptionId, tenant: String, spec: Box<Spec> },
    Change { id: SubscriptionId, tenant: String, if_revision: Option<u64>, change: AskChange },
    Delete { id: SubscriptionId, tenant: String },
    Redrive(Vec<(SubNo, LogNo, Seq)>),
    Letter { sub: SubNo, log: LogNo, seq: Seq, end: LetterEnd },
    Replay { id: SubscriptionId, tenant: String, replay: ReplayId, through: Through, only: Vec<EventPattern> },
    Cancel { id: SubscriptionId, tenant: String, replay: ReplayId },
    Key(KeyId),
    Inspect(SubNo),
    InspectHub,
}

/// A change of a subscription.
#[derive(Debug, Clone)]
pub enum AskChange {
    Spec { spec: Box<Spec>, proven: bool },
    Pause,
    Resume,
    Verified { url: String },
    Rotate { old_until: Option<Timestamp> },
}

/// Records to store.
#[derive(Debug, Clone)]
pub struct AskAdmit {
    /// None: over HTTP.
    pub from: Option<PartitionStep>,
    pub records: Vec<Record>,
}

/// A record with its verdict.
#[derive(Debug, Clone)]
pub enum Record {
    Event(Arc<Event>),
    Dropped,
    Poison { offset: i64 },
}

/// What had to be answered.
#[derive(Debug, Default)]
pub struct Answers {
    pub manages: Vec<Result<Answer, Refusal>>,
    pub admits: Vec<Result<Vec<AdmitResult>, Refusal>>,
    pub delivered: u64,
    pub dead: u64,
    pub stale: u64,
    /// Bulk work went on.
    pub worked: bool,
}

/// What a management command had to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Subscription {
        revision: u64,
        live: bool,
        skipped: Option<(u64, u64)>,
    },
    Deleted,
    Redriven(u64),
    /// How much it has done, and whether it goes on.
    Replay {
        done: u64,
        running: bool,
    },
    Lane {
        waiting: u64,
        in_flight: u32,
        held: bool,
        breaker_open: bool,
        failures: u64,
        probing: bool,
    },
    Hub {
        unfinished: u64,
        in_flight: u64,
        subscriptions: u64,
        breakers_open: u64,
    },
    Other,
}

/// Older events still to be matched (C4.8).
#[derive(Debug, Clone)]
pub struct Fill {
    pub next: u64,
    pub to: u64,
    /// The subscription as it was when it became active: its filter of that moment counts.
    pub spec: Spec,
}

/// A subscription and its lane.
#[derive(Debug, Clone)]
pub struct Sub {
    pub id: SubscriptionId,
    pub tenant: String,
    pub spec: Spec,
    pub enabled: bool,
    /// What switched it off, where failures did.
    pub off: Option<OffCause>,
    pub health: HealthModel,
    pub active: bool,
    pub started: bool,
    pub deleted: bool,
    pub revision: u64,
    pub unmatched_from: Option<u64>,
    pub old_secret_until: Option<Timestamp>,
    /// Counts what every attempt begun later has to obey (C5.5).
    pub changes: u64,
    pub hold_until: HubTime,
    /// Whether its last attempt failed or took more than a second; none: no attempt has ended since the store was read.
    pub slow: Option<bool>,
    /// What `start_from` still has to match.
    pub fill: Option<Fill>,
    /// Stretches that were skipped and not replayed since (C8.5).
    pub skipped: Vec<(u64, u64)>,
    /// Newest seq whose first attempt began.
    pub first_begun: Seq,
    /// Seq of the last attempt of a matched job.
    pub last_begun: Seq,
    /// Order is promised from there on: the lane had another one before.
    pub ordered_after: Seq,
    /// Claims that others were given while it waited for nothing but a slot.
    pub passed_over: usize,
    /// Claims since its tokens were counted last, and since when.
    pub taken: (u64, HubTime),
}

impl Sub {
    /// Matched and attempted (C4.2).
    pub fn is_live(&self) -> bool {
        self.enabled && self.active && !self.deleted
    }

    /// Where it goes.
    pub fn destination(&self) -> (String, String) {
        (self.tenant.clone(), self.spec.sink.destination())
    }

    /// Attempts in flight at most (C5.4).
    pub fn in_flight_max(&self) -> usize {
        match self.spec.delivery_order {
            DeliveryOrder::Fifo | DeliveryOrder::Strict => 1,
            DeliveryOrder::Parallel => usize::from(self.spec.max_in_flight.max(1)),
        }
    }
}

/// One event for one subscription, from the match to its end.
#[derive(Debug, Clone)]
pub struct Job {
    pub state: State,
    pub cause: Cause,
    /// Not before the first, surely from the second on.
    pub due: (HubTime, HubTime),
    pub steps: u8,
    pub reclaims: u8,
    pub first_attempt: Option<HubTime>,
    /// Stands in the lane's queue: never failed since the last start.
    pub fresh: bool,
    pub first_begun: bool,
    /// Attempts begun, successes the receiver gave, and attempts whose outcome was lost, for the count of repeats.
    pub begun: u32,
    pub lost: u32,
    /// Deliveries after which a replay began anew.
    pub again: u32,
    /// Its dead letter: it stays while a replay of it is under way.
    pub letter: Option<Letter>,
}

/// Where a job stands: in exactly one of these (invariant 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Waiting,
    Claimed(ClaimNo),
    Delivered,
    Dead(DeadReason),
    /// Its dead letter was removed, or its subscription is gone.
    Purged,
    Removed,
}

/// A claim.
#[derive(Debug, Clone)]
pub struct ClaimModel {
    pub sub: SubNo,
    pub seq: Seq,
    /// The subscription's count of changes when it was claimed, and where its events went then.
    pub changes: u64,
    pub url: String,
    pub alone: bool,
    pub probes: bool,
    /// Given to the pool; one that was not never is, and ends when the store is read again.
    pub handed_out: bool,
    pub begun: bool,
}

/// The model.
pub struct Model {
    pub rules: Rules,
    /// Hub time of the newest commit.
    pub committed: HubTime,
    /// Events by tenant, in seq order.
    pub tenants: BTreeMap<String, Vec<EventModel>>,
    pub ids: BTreeMap<(String, EventId), Seq>,
    pub subs: BTreeMap<SubNo, Sub>,
    pub jobs: BTreeMap<(SubNo, Seq), Job>,
    pub claims: BTreeMap<ClaimNo, ClaimModel>,
    /// Claims of deleted subscriptions that the pool is not done with: their slots are taken.
    pub gone: BTreeSet<ClaimNo>,
    pub positions: BTreeMap<(Arc<str>, [u8; 16], i32), i64>,
    /// Partitions whose position a recorded gap has set back (C1.5).
    pub set_back: BTreeSet<(String, [u8; 16], i32)>,
    pub breakers: BTreeMap<(String, String), BreakerModel>,
    pub notices: Vec<NoticeModel>,
    /// When all spans are judged next (C8.2).
    pub next_look: HubTime,
    /// Bulk work under way.
    pub replays: BTreeMap<(SubNo, ReplayId), ReplayModel>,
    /// That has ended, with how much it had done.
    pub replays_ended: BTreeMap<(SubNo, ReplayId), u64>,
    pub keys: BTreeSet<KeyId>,
    pub poison: usize,
    pub gaps: usize,
    pub next_sub: u32,
    pub next_claim: u64,
    pub totals: Totals,
}

/// A stored event.
#[derive(Debug, Clone)]
pub struct EventModel {
    pub event: Arc<Event>,
    pub stored_at: HubTime,
    pub matched: BTreeSet<SubNo>,
}

/// What happened in a run, so that a test can see that things did happen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Totals {
    pub events: u64,
    pub duplicates: u64,
    pub jobs: u64,
    pub delivered: u64,
    pub dead: u64,
    pub poisoned_jobs: u64,
    pub redriven: u64,
    pub replayed: u64,
    pub purged: u64,
    pub replays: u64,
    pub cancelled: u64,
    pub stale: u64,
    pub switched_off: u64,
    pub notices: u64,
    pub doubts: u64,
}

impl Model {
    /// An empty one.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            committed: HubTime(0),
            tenants: BTreeMap::new(),
            ids: BTreeMap::new(),
            subs: BTreeMap::new(),
            jobs: BTreeMap::new(),
            claims: BTreeMap::new(),
            gone: BTreeSet::new(),
            positions: BTreeMap::new(),
            set_back: BTreeSet::new(),
            breakers: BTreeMap::new(),
            notices: Vec::new(),
            next_look: HubTime(0),
            replays: BTreeMap::new(),
            replays_ended: BTreeMap::new(),
            keys: BTreeSet::new(),
            poison: 0,
            gaps: 0,
            next_sub: 1,
            next_claim: 1,
            totals: Totals::default(),
        }
    }

    /// Applies a batch that is durable: control first, then outcomes, then events, then bulk work. Claims are told one by one
    /// afterwards.
    pub fn apply(&mut self, now: HubTime, wall: Timestamp, asked: &Asked) -> Answers {
        let mut answers = Answers::default();
        self.committed = self.committed.max(now);
        for ask in &asked.manages {
            let answer = self.manage(now, wall, ask);
            answers.manages.push(answer);
        }
        let mut failed = BTreeSet::new();
        for settle in &asked.settles {
            self.settle(now, settle, &mut answers, &mut failed);
        }
        self.judge(now, &failed);
        for admit in &asked.admits {
            let answer = self.admit(now, admit);
            answers.admits.push(answer);
        }
        self.fill_one(now);
        answers.worked = self.replay_one(now);
        answers
    }

    /// The tenant's newest seq.
    pub fn last_seq(&self, tenant: &str) -> u64 {
        self.tenants.get(tenant).map_or(0, |events| events.len() as u64)
    }

    /// Jobs waiting in all lanes.
    pub fn waiting(&self) -> usize {
        self.jobs.values().filter(|job| job.state == State::Waiting).count()
    }

    /// Of these, those that are no first attempts.
    pub fn retrying(&self) -> usize {
        self.jobs.values().filter(|job| job.state == State::Waiting && !job.fresh).count()
    }

    /// What a lane may have in memory in any case.
    pub fn head(&self) -> usize {
        let lanes = self.subs.values().filter(|sub| !sub.deleted).count();
        (self.rules.pending_max / (8 * lanes.max(1))).clamp(1, 1024)
    }

    /// Jobs of one subscription.
    pub fn lane(&self, sub: SubNo) -> impl Iterator<Item = (Seq, &Job)> {
        self.jobs.range((sub, Seq(0))..=(sub, Seq(u64::MAX))).map(|((_, seq), job)| (*seq, job))
    }

    /// Finds a subscription by its public id.
    pub fn find(&self, id: SubscriptionId) -> Option<SubNo> {
        self.subs.iter().find(|(_, sub)| sub.id == id && !sub.deleted).map(|(no, _)| *no)
    }

    /// The job of a stored key.
    pub fn key_of(dump: &Dump, key: JobKey) -> Option<(SubNo, Seq)> {
        dump.jobs.get(&key).map(|job| (key.sub, job.seq))
    }
}
