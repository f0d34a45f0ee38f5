//! What the writer knows, and the order in which a batch is applied.

use super::command::{HubState, LaneState};
use super::health::HealthBook;
use super::lanes::Lanes;
use super::matcher::Matcher;
use super::notices::Notices;
use super::open::OpenClaims;
use super::{Applied, Batch, Counts, EngineSettings};
use crate::engine::board::Board;
use crate::entropy::Entropy;
use crate::model::api_key::ApiKey;
use crate::model::event::Event;
use crate::model::ids::{ClaimNo, Generation, LogNo, ReplayId, Seq, SubNo, SubscriptionId, TenantNo};
use crate::model::job::{JobKey, Outcome, Settle};
use crate::model::replay::Replay;
use crate::model::space::Room;
use crate::model::subscription::{DeliveryOrder, Subscription};
use crate::store::StoreError;
use crate::store::rows::{FillRow, HubRow, TenantRow};
use crate::store::txn::Txn;
use crate::time::{HubTime, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Everything in memory. Rebuilt by `load`; never believed over the store.
pub(super) struct Core {
    pub(super) settings: EngineSettings,
    pub(super) entropy: Entropy,
    pub(super) hub: HubRow,
    pub(super) tenants: Tenants,
    pub(super) subs: HashMap<SubNo, Arc<Subscription>>,
    pub(super) sub_numbers: HashMap<SubscriptionId, SubNo>,
    pub(super) keys: BTreeMap<crate::model::ids::KeyId, ApiKey>,
    pub(super) matcher: Matcher,
    pub(super) lanes: Lanes,
    /// Claims whose attempts are with the pool.
    pub(super) open: OpenClaims,
    pub(super) fills: BTreeMap<SubNo, FillRow>,
    /// Replays and other bulk work under way.
    pub(super) replays: BTreeMap<(SubNo, ReplayId), Replay>,
    pub(super) doomed: VecDeque<Doomed>,
    pub(super) recent: Recent,
    pub(super) health: HealthBook,
    pub(super) notices: Notices,
    pub(super) next_sweep: HubTime,
    /// Claims of the former process that were found (C5.6).
    pub(super) inherited: usize,
    claiming: bool,
    pub(super) room: Room,
    #[cfg(feature = "planted-bugs")]
    pub(super) unwritten_claims: Vec<(ClaimNo, crate::store::rows::ClaimRow)>,
    #[cfg(feature = "planted-bugs")]
    pub(super) ends: super::planted::Ends,
}

/// A claimed job.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenJob {
    pub(super) key: JobKey,
    pub(super) from: super::lane::Taken,
    pub(super) alone: bool,
    pub(super) probes: bool,
    pub(super) generation: Generation,
    /// Stands for the place of its attempt.
    pub(super) place: u64,
    /// Its row is no more, and it only holds its slot until the pool is done with it.
    pub(super) gone: bool,
}

/// A deleted subscription whose rows are still there.
#[derive(Debug)]
pub(super) struct Doomed {
    pub(super) sub: SubNo,
    /// Its jobs that were in memory.
    pub(super) logs: Vec<LogNo>,
    /// From here on there may be more of its jobs.
    pub(super) from: Option<LogNo>,
}

/// What is shown to readers once the commit stands.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) show: Vec<Arc<Subscription>>,
    pub(super) hide: Vec<Arc<Subscription>>,
    pub(super) keys: Vec<ApiKey>,
}

impl Effects {
    pub(super) fn show_on(self, board: &Board) {
        for subscription in &self.show {
            board.show(subscription);
        }
        for subscription in &self.hide {
            board.hide(subscription);
        }
        for key in self.keys {
            board.show_key(key);
        }
    }
}

impl Core {
    pub(super) fn new(settings: EngineSettings, entropy: Entropy, hub: HubRow) -> Self {
        let recent = Recent::new(settings.recent_bytes);
        let lanes = Lanes::new(settings.pending_max);
        Self {
            settings,
            entropy,
            hub,
            tenants: Tenants::default(),
            subs: HashMap::new(),
            sub_numbers: HashMap::new(),
            keys: BTreeMap::new(),
            matcher: Matcher::default(),
            lanes,
            open: OpenClaims::default(),
            fills: BTreeMap::new(),
            replays: BTreeMap::new(),
            doomed: VecDeque::new(),
            recent,
            health: HealthBook::default(),
            notices: Notices::default(),
            next_sweep: HubTime(0),
            inherited: 0,
            claiming: true,
            room: Room::Enough,
            #[cfg(feature = "planted-bugs")]
            unwritten_claims: Vec::new(),
            #[cfg(feature = "planted-bugs")]
            ends: super::planted::Ends::default(),
        }
    }

    /// Whether the hub is there for that tenant: in a single-tenant hub only for its own. A subscription that it had for another one
    /// before it was made single-tenant could be seen and stopped by nobody, so it stands still (A1.2, C2.8).
    pub(super) fn serves(&self, tenant: &str) -> bool {
        self.settings.only_tenant.as_deref().is_none_or(|only| only == tenant)
    }

    /// Control first, so that a pause is obeyed by the claims of its own batch; then outcomes, then new events, then claims for
    /// whatever is ready after all of that: an event and its first claim are one commit, a settle and the lane's next claim too.
    pub(super) fn apply(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        batch: &mut Batch,
        effects: &mut Effects,
    ) -> Result<Applied, StoreError> {
        let mut applied = Applied::default();
        #[cfg(feature = "planted-bugs")]
        self.write_late_claims(txn)?;
        for manage in std::mem::take(&mut batch.manages) {
            applied.manages.push(self.manage(txn, now, manage, effects)?);
        }
        for settle in &batch.settles {
            self.settle(txn, now, settle, effects, &mut applied.counts)?;
        }
        // Before the claims and the new events of this batch: what is switched off gets neither (C4.2).
        self.judge_failed(txn, now, wall, effects)?;
        let more_to_judge = self.look_at_health(txn, now, wall, effects)?;
        for admit in std::mem::take(&mut batch.admits) {
            applied.admits.push(self.admit(txn, now, wall, admit, &mut applied.counts)?);
        }
        applied.more = self.bulk(txn, now, &mut applied.counts)? || more_to_judge;
        if self.claiming {
            applied.more |= self.claim(txn, now, &mut applied.claims, &mut applied.counts)?;
            applied.more |= self.lanes.refill_from().is_some();
        }
        self.tenants.flush(txn)?;
        if txn.changed() {
            self.hub.hub_time = now;
            txn.put_hub_row(&self.hub)?;
        }
        #[cfg(feature = "planted-bugs")]
        self.ends.committed(self.hub.next_log);
        applied.counts.notices = self.notices.take_told();
        // Timers are for claims: who claims nothing any more would be woken for nothing, again and again.
        let timers = [self.lanes.next_timer(), self.health.next_look()].into_iter().flatten();
        applied.wake_at = if self.claiming { timers.min() } else { None };
        Ok(applied)
    }

    fn bulk(&mut self, txn: &mut Txn<'_>, now: HubTime, counts: &mut Counts) -> Result<bool, StoreError> {
        self.fill_some(txn, now)?;
        self.replay_some(txn, now, counts)?;
        if self.claiming {
            self.refill_some(txn, now)?;
        }
        self.bury_some(txn)?;
        self.sweep(txn, now)?;
        // What has to wait is looked at with whatever is settled: asking for another turn would only turn in circles.
        Ok(self.next_fill().is_some() || self.next_replay().is_some() || !self.doomed.is_empty())
    }

    pub(super) fn stop_claiming(&mut self) {
        self.claiming = false;
    }

    /// Whether nothing would be claimed after an outcome of this lane, and its order does not hang on it.
    pub(super) fn is_idle_behind(&self, sub: SubNo) -> bool {
        self.lanes.get(sub).is_none_or(|lane| lane.waiting() == 0 && lane.order != DeliveryOrder::Strict)
            && self.lanes.open() < self.settings.slots
    }

    /// A release for every open claim.
    pub(super) fn open_claims(&self) -> Vec<Settle> {
        let release = |(claim, open): (ClaimNo, &OpenJob)| Settle {
            claim,
            key: open.key,
            generation: open.generation,
            outcome: Outcome::Released,
        };
        self.open.iter().map(release).collect()
    }

    pub(super) fn lane_state(
        &self,
        txn: &mut Txn<'_>,
        sub: SubNo,
        now: HubTime,
    ) -> Result<Option<LaneState>, StoreError> {
        let Some(seen) = self.seen(sub, now) else { return Ok(None) };
        let oldest_waiting = match self.lanes.get(sub).and_then(super::lane::Lane::oldest) {
            Some(log) => txn.stored_at(log)?,
            None => None,
        };
        Ok(Some(LaneState { oldest_waiting, ..seen }))
    }

    /// A lane's state, but for the age of its oldest event.
    pub(super) fn seen(&self, sub: SubNo, now: HubTime) -> Option<LaneState> {
        let lane = self.lanes.get(sub)?;
        Some(LaneState {
            waiting: lane.waiting() as u64,
            in_flight: lane.open,
            oldest_waiting: None,
            hold_until: (lane.hold_until > now).then_some(lane.hold_until),
            breaker: self.lanes.dest(lane.dest).state(),
            breaker_since: self.lanes.dest(lane.dest).breaker.open_since(),
            breaker_shed: self.lanes.dest(lane.dest).breaker.shed(),
            health: self.health.of(sub).cloned().unwrap_or_default(),
            tally: self.health.tally(sub),
            now,
        })
    }

    pub(super) fn hub_state(&self, txn: &mut Txn<'_>, now: HubTime) -> Result<HubState, StoreError> {
        let (mut waiting, mut unfinished) = (None, None);
        for (_, lane) in self.lanes.iter() {
            let Some(log) = lane.oldest() else { continue };
            unfinished = Some(unfinished.map_or(log, |oldest: LogNo| oldest.min(log)));
            if lane.live && lane.hold_until <= now {
                waiting = Some(waiting.map_or(log, |oldest: LogNo| oldest.min(log)));
            }
        }
        let mut stored_at = |log: Option<LogNo>| log.map_or(Ok(None), |log| txn.stored_at(log));
        let (oldest_waiting, oldest_unfinished) = (stored_at(waiting)?, stored_at(unfinished)?);
        Ok(HubState {
            unfinished: self.lanes.pending() as u64 + u64::from(self.lanes.open()),
            in_flight: u64::from(self.lanes.open()),
            in_memory: self.lanes.in_memory() as u64,
            subscriptions: self.subs.len() as u64,
            breakers_open: self.lanes.breakers_open(),
            breaker_open_since: self.lanes.breaker_open_since(),
            switched_off: self.health.switched_off(),
            oldest_waiting,
            oldest_unfinished,
            now,
            store_bytes: 0,
        })
    }

    #[cfg(feature = "planted-bugs")]
    pub(super) fn planted(&self, bug: super::PlantedBug) -> bool {
        self.settings.planted == Some(bug)
    }
}

impl Counts {
    pub(super) fn quarantine(&mut self, reason: crate::model::record::Reason) {
        add(&mut self.quarantined, reason);
    }

    pub(super) fn die(&mut self, reason: crate::model::job::DeadReason) {
        add(&mut self.dead, reason);
    }
}

fn add<K: PartialEq>(counts: &mut Vec<(K, u64)>, key: K) {
    match counts.iter_mut().find(|(counted, _)| *counted == key) {
        Some((_, count)) => *count += 1,
        None => counts.push((key, 1)),
    }
}

/// Tenants, by name and by number, with the seq each has reached.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    numbers: HashMap<Box<str>, TenantNo>,
    rows: Vec<TenantRow>,
    changed: BTreeSet<TenantNo>,
}

impl Tenants {
    pub(super) fn load(rows: Vec<(TenantNo, TenantRow)>) -> Result<Self, StoreError> {
        let mut tenants = Self::default();
        for (no, row) in rows {
            if no.0 as usize != tenants.rows.len() {
                return Err(StoreError::Damaged(format!("tenant number {no} does not follow the one before")));
            }
            tenants.numbers.insert(row.name.as_str().into(), no);
            tenants.rows.push(row);
        }
        Ok(tenants)
    }

    pub(super) fn name(&self, no: TenantNo) -> Option<&str> {
        self.rows.get(no.0 as usize).map(|row| row.name.as_str())
    }

    pub(super) fn find(&self, name: &str) -> Option<TenantNo> {
        self.numbers.get(name).copied()
    }

    /// Whether another tenant than that one has events.
    pub(super) fn has_events_of_others(&self, only: &str) -> bool {
        self.rows.iter().any(|row| row.name != only && row.last_seq > Seq(0))
    }

    /// Its number, given out on first sight.
    pub(super) fn number(&mut self, name: &str) -> TenantNo {
        if let Some(no) = self.find(name) {
            return no;
        }
        let no = TenantNo(u32::try_from(self.rows.len()).unwrap_or(u32::MAX));
        self.numbers.insert(name.into(), no);
        self.rows.push(TenantRow { name: name.to_owned(), last_seq: Seq(0) });
        self.changed.insert(no);
        no
    }

    pub(super) fn last_seq(&self, no: TenantNo) -> Seq {
        self.rows.get(no.0 as usize).map_or(Seq(0), |row| row.last_seq)
    }

    /// The next seq of a tenant, taken (C3.3).
    pub(super) fn take_seq(&mut self, no: TenantNo) -> Seq {
        let Some(row) = self.rows.get_mut(no.0 as usize) else { return Seq(0) };
        row.last_seq = Seq(row.last_seq.0 + 1);
        self.changed.insert(no);
        row.last_seq
    }

    fn flush(&mut self, txn: &mut Txn<'_>) -> Result<(), StoreError> {
        for no in std::mem::take(&mut self.changed) {
            if let Some(row) = self.rows.get(no.0 as usize) {
                txn.put_tenant(no, row)?;
            }
        }
        Ok(())
    }
}

/// Events just stored, so that their first attempt need not read them again. Bounded by bytes; the oldest go first.
#[derive(Debug)]
pub(super) struct Recent {
    events: HashMap<LogNo, Arc<Event>>,
    order: VecDeque<(LogNo, usize)>,
    bytes: usize,
    bytes_max: usize,
}

impl Recent {
    fn new(bytes_max: usize) -> Self {
        Self { events: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(super) fn put(&mut self, log: LogNo, event: Arc<Event>) {
        // Beside the body: the attributes and what the maps hold, roughly.
        let size = event.body.len() + 512;
        self.bytes += size;
        self.order.push_back((log, size));
        self.events.insert(log, event);
        while self.bytes > self.bytes_max
            && let Some((log, size)) = self.order.pop_front()
        {
            self.bytes -= size;
            self.events.remove(&log);
        }
    }

    pub(super) fn get(&self, log: LogNo) -> Option<Arc<Event>> {
        self.events.get(&log).cloned()
    }

    pub(super) fn clear(&mut self) {
        self.events.clear();
        self.order.clear();
        self.bytes = 0;
    }
}
