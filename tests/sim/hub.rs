//! The process: the real engine and pool, and the writer thread's loop without its thread (see `src/writer/thread.rs`).

use crate::chance::Chance;
use crate::disk::SimDisk;
use crate::model::{Ask, AskAdmit, AskChange, Asked, Record};
use crate::options::Options;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use streaming_hub::dispatch::pool::{Generations, Pool};
use streaming_hub::engine::board::Board;
use streaming_hub::engine::command::{Action, Admit, AdmitFrom, Change, Judged, Manage, NewReplay, NewSubscription};
use streaming_hub::engine::{Batch, Engine};
use streaming_hub::model::api_key::{ApiKey, Role};
use streaming_hub::model::ids::{Generation, SubNo};
use streaming_hub::model::job::Settle;
use streaming_hub::model::record::{Origin, PoisonRecord, Reason};
use streaming_hub::model::subscription::{Sealed, SignatureFormat, Sink, WebhookSink};
use streaming_hub::store::{Birth, Store, StoreError};
use streaming_hub::time::{Clock, HubClock, HubTime, Timestamp};

/// Who waits for the answer of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// The reader of that partition.
    Source(usize),
    /// A client of HTTP ingest.
    Http,
}

/// A running process.
pub struct Hub {
    pub engine: Engine,
    pub board: Arc<Board>,
    pub pool: Pool,
    pub clock: HubClock,
    pub manages: VecDeque<Ask>,
    pub settles: Vec<Settle>,
    pub admits: VecDeque<(Asker, AskAdmit)>,
    /// Bulk work is left.
    pub more: bool,
    pub wake_at: Option<HubTime>,
    /// World time of the next turn of the writer.
    pub next_turn: Option<u64>,
    pub next_pool_step: Option<u64>,
    /// The store failed and is to be opened again.
    pub suspended: bool,
    /// It is on its way down (C13.2), to end at that world time at the latest.
    pub stopping: Option<u64>,
    /// The generation of each subscription's last claim.
    pub claimed_under: BTreeMap<SubNo, Generation>,
    /// Turns in a row that did nothing.
    pub idle_turns: usize,
}

/// What a pool sees of the board; with [`streaming_hub::engine::PlantedBug::GenerationIgnored`], the generations that were claimed under.
pub struct Shown<'a> {
    pub board: &'a Board,
    pub planted: Option<&'a BTreeMap<SubNo, Generation>>,
}

impl Generations for Shown<'_> {
    fn generation(&self, sub: SubNo) -> Option<Generation> {
        match self.planted {
            Some(claimed_under) => claimed_under.get(&sub).copied(),
            None => self.board.subscription(sub).map(|subscription| subscription.generation),
        }
    }
}

impl Hub {
    /// Starts a process over what is on the disk.
    pub fn start(
        disk: &SimDisk,
        options: &Options,
        chance: &mut Chance,
        clock: &dyn Clock,
    ) -> Result<Self, StoreError> {
        let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
        let store = Store::open(Arc::new(disk.clone()), options.store(), &birth)?;
        let hub_clock = HubClock::start(store.hub_row()?.hub_time, clock);
        let board = Arc::new(Board::default());
        let now = hub_clock.now(clock);
        let engine = Engine::open(store, board.clone(), options.engine(), chance.entropy(), now)?;
        Ok(Self {
            engine,
            board,
            pool: Pool::new(options.pool()),
            clock: hub_clock,
            manages: VecDeque::new(),
            settles: Vec::new(),
            admits: VecDeque::new(),
            more: false,
            wake_at: None,
            next_turn: None,
            next_pool_step: None,
            suspended: false,
            stopping: None,
            claimed_under: BTreeMap::new(),
            idle_turns: 0,
        })
    }

    /// Takes a batch from the queues: all, or the first of them.
    pub fn drain(&mut self, chance: &mut Chance) -> (Asked, Vec<Asker>) {
        let mut most = |waiting: usize| if chance.permille(800) { waiting } else { waiting.min(1) };
        let (manages, admits) = (most(self.manages.len()), most(self.admits.len()));
        let (askers, admits) = self.admits.drain(..admits).unzip();
        let asked = Asked { manages: self.manages.drain(..manages).collect(), settles: self.settles.clone(), admits };
        (asked, askers)
    }

    /// Nothing to do, and nothing on its way.
    pub fn is_idle(&self, now: HubTime) -> bool {
        let queued = self.manages.is_empty() && self.settles.is_empty() && self.admits.is_empty();
        queued && !self.more && !self.suspended && self.wake_at.is_none_or(|at| at > now)
    }
}

/// The engine's own form of a batch.
pub fn batch(asked: &Asked, wall: Timestamp) -> Batch {
    Batch {
        manages: asked.manages.iter().map(|ask| manage(ask, wall)).collect(),
        settles: asked.settles.clone(),
        admits: asked.admits.iter().map(admit).collect(),
    }
}

fn admit(ask: &AskAdmit) -> Admit {
    let records = ask.records.iter().map(|record| match record {
        Record::Event(event) => Judged::Event(Box::new((**event).clone())),
        Record::Dropped => Judged::Dropped,
        Record::Poison { offset } => Judged::Poison(Box::new(PoisonRecord {
            origin: Origin::Kafka { topic: "lerian.streaming.ledger".into(), partition: 0, offset: *offset },
            reason: Reason::MissingTenant,
            headers: vec![("ce-id".into(), None)],
            body: "{}".into(),
            body_bytes: 2,
        })),
    });
    let from = ask.from.clone().map_or(AdmitFrom::Http, AdmitFrom::Partition);
    Admit { from, records: records.collect() }
}

fn manage(ask: &Ask, at: Timestamp) -> Manage {
    let action = match ask {
        Ask::Create { id, tenant, spec } => Action::CreateSubscription(Box::new(NewSubscription {
            id: *id,
            tenant: tenant.as_str().into(),
            spec: (**spec).clone(),
            secret: Sealed(vec![1, 2, 3]),
            at,
        })),
        Ask::Change { id, tenant, if_revision, change } => Action::ChangeSubscription {
            tenant: tenant.as_str().into(),
            id: *id,
            if_revision: *if_revision,
            change: match change {
                AskChange::Spec { spec, proven } => Change::Spec { spec: spec.clone(), proven: *proven, at },
                AskChange::Pause => Change::Pause { at },
                AskChange::Resume => Change::Resume { at },
                AskChange::Rotate { old_until } => {
                    Change::RotateSecret { secret: Sealed(vec![4, 5, 6]), old_until: *old_until, at }
                }
                AskChange::Verified { url } => Change::Verified { sink: Box::new(webhook(url)), at },
            },
        },
        Ask::Delete { id, tenant } => {
            Action::DeleteSubscription { tenant: tenant.as_str().into(), id: *id, if_revision: None }
        }
        Ask::Redrive(which) => Action::Redrive(which.iter().map(|(sub, log, _)| (*sub, *log)).collect()),
        Ask::Letter { sub, log, end, .. } => Action::DeadLetter { sub: *sub, log: *log, end: *end },
        Ask::Replay { id, tenant, replay, through, only } => Action::StartReplay {
            tenant: tenant.as_str().into(),
            id: *id,
            if_revision: None,
            replay: Box::new(NewReplay {
                id: *replay,
                through: through.clone(),
                only: only.clone(),
                count: 0,
                at_least: false,
            }),
        },
        Ask::Cancel { id, tenant, replay } => {
            Action::CancelReplay { tenant: tenant.as_str().into(), id: *id, replay: *replay }
        }
        Ask::Key(id) => Action::CreateApiKey(Box::new(ApiKey {
            id: *id,
            name: "sim".to_owned(),
            role: Role::Operator,
            sha256: [9; 32],
            created_at: at,
            expires_at: None,
            revoked_at: None,
        })),
        Ask::Inspect(sub) => Action::InspectLane(*sub),
        Ask::InspectHub => Action::InspectHub,
    };
    Manage { action, idempotency: None }
}

fn webhook(url: &str) -> Sink {
    Sink::Webhook(WebhookSink {
        url: url.to_owned(),
        headers: Vec::new(),
        timeout_ms: None,
        signature_format: SignatureFormat::Lerian,
        client_certificate: None,
    })
}
