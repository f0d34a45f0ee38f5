//! The synchronous core: commands in, one transaction, answers out. No clock, no sockets, no async.
//!
//! [`Engine::apply`] is all there is: production's writer thread and the simulator call the same function with the time as an
//! argument. What it holds in memory is changed as it goes, and rebuilt from the store whenever a commit's outcome is unknown.

mod admit;
pub mod board;
mod claim;
pub mod command;
mod core;
pub mod counting;
mod dead;
mod fill;
mod health;
mod lane;
mod lanes;
mod load;
mod manage;
mod matcher;
mod notices;
mod open;
#[cfg(feature = "planted-bugs")]
mod planted;
mod replay;
mod ring;
mod seen;
mod settle;
pub mod skip;
mod sweep;
mod wanted;

use crate::entropy::Entropy;
use crate::model::ids::SubNo;
use crate::model::job::{Claim, Settle};
use crate::model::limits::{REPLAY_JOBS_AHEAD, REPLAY_JOBS_PER_COMMIT, REPLAY_ROWS_PER_COMMIT};
use crate::model::notice::Notice;
use crate::model::record::Reason;
use crate::model::space::Room;
use crate::rules::autodisable::AutoDisablePolicy;
use crate::rules::backoff::Schedule;
use crate::rules::breaker::BreakerPolicy;
use crate::store::{Store, StoreError};
use crate::time::{HubTime, Timestamp};
use board::Board;
use command::{Admit, Admitted, LaneState, Manage, Managed, Refusal};
use std::sync::Arc;

/// How the engine decides and how far it goes.
#[derive(Debug, Clone)]
pub struct EngineSettings {
    /// Attempts in flight in the hub (C5.5).
    pub slots: u32,
    /// Jobs of one parallel lane taken in one commit.
    pub claim_batch: u32,
    /// Crashes a job may be claimed in before it is dead as poison (C5.6).
    pub poison_threshold: u8,
    /// When breakers open and for how long (C7).
    pub breaker: BreakerPolicy,
    /// When subscriptions that keep failing are switched off (C8, C9.10).
    pub autodisable: AutoDisablePolicy,
    /// Steps for subscriptions that give none (C6.1).
    pub schedule: Schedule,
    /// Waiting jobs that are kept in memory; a little more where there are very many lanes. What is beyond waits in the store.
    pub pending_max: usize,
    /// Bytes of poison records before only their headers, then only their count is kept (C2.7).
    pub poison_max_bytes: u64,
    /// How long poison records are kept, in milliseconds (C2.7).
    pub poison_retention_ms: u64,
    /// The one tenant of a single-tenant hub; events of others are stored and counted, and can never be delivered (C2.8).
    pub only_tenant: Option<Box<str>>,
    /// Memory for bodies of events just stored, so that their first attempt need not read them again.
    pub recent_bytes: usize,
    /// How far replays and other bulk work go at a time (C6.6).
    pub replay: ReplayPace,
    /// Bugs planted by the simulator to show that it would see them.
    #[cfg(feature = "planted-bugs")]
    pub planted: Option<PlantedBug>,
}

/// How far bulk work goes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayPace {
    /// Jobs made, or dead letters ended, in one commit.
    pub jobs: usize,
    /// Events or dead letters looked at in one commit.
    pub rows: usize,
    /// Jobs of one subscription that bulk work made and that were not attempted: beyond it waits.
    pub ahead: usize,
}

impl Default for ReplayPace {
    fn default() -> Self {
        Self { jobs: REPLAY_JOBS_PER_COMMIT, rows: REPLAY_ROWS_PER_COMMIT, ahead: REPLAY_JOBS_AHEAD }
    }
}

/// A bug planted on purpose.
#[cfg(feature = "planted-bugs")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// The position is committed before its records.
    PositionFirst,
    /// Duplicates are stored.
    NoDedup,
    /// A claim is not written down and is taken again.
    NoClaim,
    /// More is claimed than there are slots.
    ClaimsBeyondCapacity,
    /// Jobs that were not claimed are blamed for a crash.
    UnclaimedBlamed,
    /// A change is not obeyed by claims not yet begun. The driver of the pool has it: it shows the generation of the claim.
    GenerationIgnored,
    /// Claims are handed out before their commit.
    AttemptBeforeCommit,
    /// Lanes are refilled from a snapshot that is some commits old, and what it says of their ends is believed.
    RefillBelieved,
    /// Failure spans are kept in memory only.
    SpanNotStored,
    /// A clock that is far ahead at a start is believed.
    ClockBelieved,
    /// How far a replay came is not written down with the jobs it made.
    ReplayForgetsItsPlace,
    /// A replay or redrive makes a job anew where one is unfinished.
    ReplayMakesAnew,
}

/// Commands to apply in one transaction.
#[derive(Debug, Default)]
pub struct Batch {
    /// Applied first: a pause is obeyed by the claims of its own batch.
    pub manages: Vec<Manage>,
    /// Applied second. They stay here when the commit fails, to be applied again: they are idempotent.
    pub settles: Vec<Settle>,
    /// Applied last.
    pub admits: Vec<Admit>,
}

impl Batch {
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.manages.is_empty() && self.settles.is_empty() && self.admits.is_empty()
    }
}

/// What a batch led to, all of it durable.
#[derive(Debug, Default)]
pub struct Applied {
    /// One for each of [`Batch::manages`].
    pub manages: Vec<Result<Managed, Refusal>>,
    /// One for each of [`Batch::admits`].
    pub admits: Vec<Result<Admitted, Refusal>>,
    /// Jobs to attempt now.
    pub claims: Vec<Claim>,
    /// What happened, for the metrics.
    pub counts: Counts,
    /// Bulk work is left: apply again, even with an empty batch.
    pub more: bool,
    /// Apply again then, even with an empty batch.
    pub wake_at: Option<HubTime>,
}

/// What happened in a batch, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events stored.
    pub accepted: u64,
    /// Records known already (C3.2).
    pub duplicates: u64,
    /// Of these, with another body.
    pub dedup_conflicts: u64,
    /// System events.
    pub dropped: u64,
    /// Records quarantined, by reason.
    pub quarantined: Vec<(Reason, u64)>,
    /// Gaps recorded.
    pub gaps: u64,
    /// Jobs made.
    pub jobs: u64,
    /// Jobs that replays and redrives made or made due.
    pub sent_again: u64,
    /// Jobs delivered.
    pub delivered: u64,
    /// Jobs dead, by reason.
    pub dead: Vec<(crate::model::job::DeadReason, u64)>,
    /// Settles for claims that were gone.
    pub stale_settles: u64,
    /// How long each event waited for the claim of its first attempt, from its storing and the first step of its schedule on.
    pub first_waits_ms: Vec<u64>,
    /// Breakers that opened.
    pub breakers_opened: u64,
    /// Jobs passed over by breakers, at their opening and at each failed probe (C7.1).
    pub shed: u64,
    /// Events of other tenants than the one of a single-tenant hub (C2.8).
    pub of_other_tenants: u64,
    /// Notices that were raised.
    pub notices: Vec<Notice>,
}

/// The store and everything the writer knows.
pub struct Engine {
    store: Store,
    board: Arc<Board>,
    core: core::Core,
}

impl Engine {
    /// Takes up the work where the former process left it: its claims are free, their jobs are suspects (C5.6).
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(
        store: Store,
        board: Arc<Board>,
        settings: EngineSettings,
        entropy: Entropy,
        now: HubTime,
    ) -> Result<Self, StoreError> {
        let hub = store.hub_row()?;
        let mut engine = Self { store, board, core: core::Core::new(settings, entropy, hub) };
        engine.load(now, load::Before::AnotherProcess)?;
        Ok(engine)
    }

    /// After an error of [`Engine::apply`]: opens the store again and reads everything anew. Claims that were handed out stay with
    /// whoever has them (C5.1); the settles of the failed batch are to be applied again.
    ///
    /// # Errors
    /// When the store is still not to be had; call it again later.
    pub fn reopen(&mut self, now: HubTime) -> Result<(), StoreError> {
        self.store.reopen()?;
        self.load(now, load::Before::ThisProcess).inspect_err(|_| self.store.only_read())
    }

    /// Applies a batch in one transaction and commits it.
    ///
    /// # Errors
    /// The store failed, and whether the batch is stored is not known: [`Engine::reopen`] before anything else.
    pub fn apply(&mut self, now: HubTime, wall: Timestamp, batch: &mut Batch) -> Result<Applied, StoreError> {
        #[cfg(feature = "planted-bugs")]
        self.position_first(batch)?;
        let core = &mut self.core;
        let mut effects = core::Effects::default();
        let applied = self.store.write(|txn| core.apply(txn, now, wall, batch, &mut effects))?;
        core.open.committed();
        core.health.committed();
        effects.show_on(&self.board);
        batch.settles.clear();
        Ok(applied)
    }

    /// Binds the store to the KEK with that check value, the first time; whether it is the one that it is bound to. With another one
    /// nothing sealed here could ever be opened, so the hub must not start.
    ///
    /// # Errors
    /// When the store fails.
    pub fn bind_kek(&mut self, check: [u8; 16]) -> Result<bool, StoreError> {
        if let Some(bound) = self.core.hub.kek_check {
            return Ok(bound == check);
        }
        self.core.hub.kek_check = Some(check);
        let hub = &self.core.hub;
        self.store.write(|txn| txn.put_hub_row(hub))?;
        Ok(true)
    }

    /// Whether events of other tenants than the one of a single-tenant hub are stored (C2.8).
    pub fn has_events_of_other_tenants(&self) -> bool {
        self.core.settings.only_tenant.as_deref().is_some_and(|only| self.core.tenants.has_events_of_others(only))
    }

    /// Subscriptions of other tenants than the one of a single-tenant hub: they stand still (C2.8).
    pub fn subscriptions_of_other_tenants(&self) -> usize {
        self.core.subs.values().filter(|subscription| !self.core.serves(&subscription.tenant)).count()
    }

    /// How many jobs the former process had claimed when it ended without closing the store (C5.6).
    pub fn inherited_claims(&self) -> usize {
        self.core.inherited
    }

    /// What keys the delivery ids (C9.3).
    pub fn delivery_key(&self) -> [u8; 32] {
        self.core.hub.delivery_key
    }

    /// A handle for readers of the store.
    pub fn reader(&self) -> crate::store::view::Reader {
        self.store.reader()
    }

    /// Allocated bytes of the store.
    pub fn store_bytes(&self) -> u64 {
        self.store.allocated_bytes()
    }

    /// Whether no lane of these settles has a job waiting: then nobody waits for their commit.
    pub fn is_nobody_waiting_behind(&self, settles: &[Settle]) -> bool {
        settles.iter().all(|settle| self.core.is_idle_behind(settle.key.sub))
    }

    /// Gives up every claim without blame, after the pool has ended its attempts: a clean stop counts nothing (C5.6).
    ///
    /// # Errors
    /// When the store fails; the next start then takes the claims for those of a crash.
    pub fn release_claims(&mut self, now: HubTime, wall: Timestamp) -> Result<(), StoreError> {
        let settles = self.core.open_claims();
        self.core.stop_claiming();
        self.apply(now, wall, &mut Batch { settles, ..Batch::default() }).map(drop)
    }

    /// Claims nothing from now on (C13.2).
    pub fn stop_claiming(&mut self) {
        self.core.stop_claiming();
    }

    /// What the disk allows from now on (C13.4): while it is nearly full, records and changes are refused; outcomes are stored, and
    /// what is waiting is claimed. Whether bulk work that waited for room goes on: apply again then, even with an empty batch.
    pub fn set_room(&mut self, room: Room) -> bool {
        let waited = !self.core.room.takes_new();
        self.core.room = room;
        waited && room.takes_new()
    }

    /// The state of a lane as it is in memory, while the store is suspended: to be shown, not to be decided upon. None where it is not
    /// known.
    pub fn lane_glance(&self, sub: SubNo, now: HubTime) -> Option<LaneState> {
        self.core.seen(sub, now)
    }

    /// Closes the store.
    pub fn close(&self) {
        self.store.close();
    }

    /// [`PlantedBug::PositionFirst`]: a position in a commit of its own, before its records.
    #[cfg(feature = "planted-bugs")]
    fn position_first(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        if !self.core.planted(PlantedBug::PositionFirst) {
            return Ok(());
        }
        let core = &mut self.core;
        // One of a batch is enough to be seen, and a second step of its partition would be told that the position has moved.
        self.store.write(|txn| batch.admits.first_mut().map_or(Ok(()), |admit| core.position_first(txn, admit)))
    }

    fn load(&mut self, now: HubTime, before: load::Before) -> Result<(), StoreError> {
        let hub = self.store.hub_row()?;
        let core = &mut self.core;
        let mut effects = core::Effects::default();
        self.store.write(|txn| {
            core.load(txn, now, hub, before, &mut effects)?;
            match before {
                load::Before::AnotherProcess => Ok(()),
                // A store that failed is well again only when it takes a write: else the next commit would fail as the last one did.
                load::Before::ThisProcess => txn.put_hub_row(&core.hub),
            }
        })?;
        self.board.clear();
        effects.show_on(&self.board);
        Ok(())
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("store", &self.store).finish_non_exhaustive()
    }
}
