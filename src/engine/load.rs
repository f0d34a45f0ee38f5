//! Reading everything in again: at start, and after a commit whose outcome is not known.
//!
//! Invariant: no decision rests on memory that a failed commit may have made wrong; all of it is rebuilt here from what is stored.

use super::core::{Core, Doomed, Effects, OpenJob, Tenants};
use super::lane::{Bucket, Lane};
use super::lanes::Lanes;
use super::notices::Notices;
use crate::model::ids::{ClaimNo, Generation, LogNo, SubNo};
use crate::model::job::{Cause, DeadReason, Job, JobKey};
use crate::model::limits::{HOLD_MAX_MS, RETRY_STEP_MAX_MS};
use crate::model::subscription::{DeliveryOrder, Sink, Subscription};
use crate::rules::autodisable::FAR_AHEAD_MS;
use crate::rules::breaker::Breaker;
use crate::store::StoreError;
use crate::store::rows::{ClaimRow, HubRow};
use crate::store::txn::Txn;
use crate::time::HubTime;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Who held the claims that are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A former process, which ended without releasing them: their jobs are suspects (C5.6).
    AnotherProcess,
    /// This one: claims that were handed out are with the pool (C5.1).
    ThisProcess,
}

impl Core {
    pub(super) fn load(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        hub: HubRow,
        before: Before,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        self.open.roll_back();
        let next_row = hub.next_row;
        self.hub = hub;
        self.tenants = Tenants::load(txn.tenants()?)?;
        self.recent.clear();
        self.load_subscriptions(txn, now, effects)?;
        self.load_health(txn, now, before)?;
        self.load_blocks(txn, now)?;
        self.load_claims(txn, now, before)?;
        self.load_jobs(txn, now)?;
        for (_, key) in txn.api_keys()? {
            effects.keys.push(key.clone());
            self.keys.insert(key.id, key);
        }
        // In the order of their numbers, so that the same store gives the same turns.
        let subs: BTreeSet<SubNo> = self.subs.keys().copied().collect();
        for sub in subs {
            self.lanes.look(sub, now);
        }
        if self.hub.next_row != next_row {
            // A notice was raised: its number is taken.
            txn.put_hub_row(&self.hub)?;
        }
        Ok(())
    }

    /// Spans as stored. A wall clock that is far ahead of the store at a start is doubted: hub time has jumped with it (C13.8).
    fn load_health(&mut self, txn: &mut Txn<'_>, now: HubTime, before: Before) -> Result<(), StoreError> {
        self.notices = Notices::load(txn.notices()?, now);
        self.health.load(txn.health()?);
        let last = self.hub.hub_time;
        if before == Before::AnotherProcess && last > HubTime(0) && now.since_ms(last) > FAR_AHEAD_MS {
            self.doubt_spans(txn)?;
        }
        Ok(())
    }

    fn load_subscriptions(&mut self, txn: &mut Txn<'_>, now: HubTime, effects: &mut Effects) -> Result<(), StoreError> {
        let generations: HashMap<SubNo, Generation> =
            self.lanes.iter().map(|(sub, lane)| (sub, lane.generation)).collect();
        // Before anything is forgotten: were this reading to fail, the next one must find the generations.
        let rows = txn.subscriptions()?;
        self.lanes = Lanes::new(self.settings.pending_max);
        self.matcher.clear();
        self.subs.clear();
        self.sub_numbers.clear();
        self.keys.clear();
        for (no, mut subscription) in rows {
            // A hold may have raised it in memory only; claims under the older one must stay refused.
            let raised = generations.get(&no).copied().unwrap_or_default();
            subscription.generation = subscription.generation.max(raised);
            let subscription = Arc::new(subscription);
            self.open_lane(&subscription, now);
            effects.show.push(subscription);
        }
        self.fills = txn.fills()?.into_iter().collect::<BTreeMap<_, _>>();
        for sub in self.fills.keys() {
            if let Some(lane) = self.lanes.get_mut(*sub) {
                lane.fill.get_or_insert_default();
            }
        }
        let running = txn.replays_running()?.into_iter().filter(|replay| self.subs.contains_key(&replay.sub));
        self.replays = running.map(|replay| ((replay.sub, replay.id), replay)).collect();
        self.doomed =
            txn.tombstones()?.into_iter().map(|(sub, ())| Doomed { sub, logs: Vec::new(), from: None }).collect();
        Ok(())
    }

    /// Takes a subscription in: its lane, and its place among those that are matched.
    pub(super) fn open_lane(&mut self, subscription: &Arc<Subscription>, now: HubTime) {
        let dest = self.lanes.dest_no(subscription.tenant_no, &subscription.spec.sink.destination());
        let lane = Lane::new(subscription.tenant_no, dest);
        self.lanes.add(subscription.no, lane);
        self.sub_numbers.insert(subscription.id, subscription.no);
        self.set_lane(subscription, now);
    }

    /// Makes a lane what its subscription says now.
    pub(super) fn set_lane(&mut self, subscription: &Arc<Subscription>, now: HubTime) {
        let live = subscription.is_live() && self.serves(&subscription.tenant);
        if let Some(lane) = self.lanes.get_mut(subscription.no) {
            lane.order = subscription.spec.delivery_order;
            lane.in_flight_max = match subscription.spec.delivery_order {
                DeliveryOrder::Fifo | DeliveryOrder::Strict => 1,
                DeliveryOrder::Parallel => u32::from(subscription.spec.max_in_flight.max(1)),
            };
            lane.generation = subscription.generation;
            lane.place = place_of(&subscription.spec.sink);
            lane.live = live;
            let limit = subscription.spec.rate_limit;
            let same = match (&lane.bucket, limit) {
                (Some(bucket), Some(limit)) => bucket.per_second == limit.per_second && bucket.burst == limit.burst,
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !same {
                lane.bucket = limit.map(|limit| Bucket::full(limit.per_second, limit.burst, now));
            }
        }
        if live {
            self.matcher.add(subscription);
        } else {
            self.matcher.remove(subscription.tenant_no, subscription.no);
        }
        self.subs.insert(subscription.no, subscription.clone());
    }

    fn load_blocks(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        for (sub, until) in txn.holds()? {
            if let Some(lane) = self.lanes.get_mut(sub) {
                // Clamped: a clock that was wrong when it was stored must not hold it for years (C13.8).
                lane.hold_until = until.min(now.plus_ms(HOLD_MAX_MS));
            }
        }
        for ((tenant, name), stored) in txn.breakers::<Breaker>()? {
            let no = self.lanes.dest_no(tenant, &name);
            self.lanes.dest_mut(no).breaker = stored.loaded(&self.settings.breaker, now);
        }
        Ok(())
    }

    fn load_claims(&mut self, txn: &mut Txn<'_>, now: HubTime, before: Before) -> Result<(), StoreError> {
        self.lanes.alone = None;
        let mut still_open = Vec::new();
        for (no, row) in txn.claims()? {
            match (before, self.open.get(no).copied()) {
                (Before::ThisProcess, Some(open)) => {
                    self.lanes.count_open(row.key.sub);
                    if open.alone {
                        self.lanes.alone = Some(open.key);
                    }
                    if open.probes {
                        self.lanes.begin_probe(row.key.sub, no);
                    }
                    still_open.push((no, open));
                }
                // Stored, but never handed out: the commit that made it was thought to have failed. Nobody began it.
                (Before::ThisProcess, None) => txn.remove_claim(no)?,
                (Before::AnotherProcess, _) => {
                    self.inherited += 1;
                    self.suspect(txn, now, row)?;
                    txn.remove_claim(no)?;
                }
            }
        }
        if before == Before::ThisProcess {
            let stored: HashSet<ClaimNo> = still_open.iter().map(|(no, _)| *no).collect();
            for (no, open) in self.open.iter().filter(|(no, _)| !stored.contains(no)) {
                // Settled by the commit that seemed to have failed, or deleted: whoever has it will still say so.
                self.lanes.count_gone();
                still_open.push((no, OpenJob { gone: true, ..*open }));
            }
        }
        // Only now: were this reading to fail, the next one must find what was handed out.
        self.open = still_open.into_iter().collect();
        #[cfg(feature = "planted-bugs")]
        if before == Before::AnotherProcess && self.planted(super::PlantedBug::UnclaimedBlamed) {
            self.blame_everyone(txn)?;
        }
        Ok(())
    }

    /// A job that was claimed when the former process died (C5.6): the count goes up before it runs again.
    fn suspect(&mut self, txn: &mut Txn<'_>, now: HubTime, row: ClaimRow) -> Result<(), StoreError> {
        let Some(mut job) = txn.job(row.key)? else { return Ok(()) };
        // The first two crashes may be anybody's; from then on only one that it met while it ran alone is its own.
        if job.reclaims < 2 || row.alone {
            job.reclaims = job.reclaims.saturating_add(1);
        }
        if job.reclaims >= self.settings.poison_threshold {
            self.die(txn, now, row.key, job, DeadReason::Poison, &mut super::Counts::default())
        } else {
            txn.put_job(row.key, &job)
        }
    }

    fn load_jobs(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        let claimed = self.open.keys();
        // Of each the first number only: they may be too many for memory.
        let mut orphans: BTreeMap<SubNo, LogNo> = BTreeMap::new();
        let (lanes, fills) = (&mut self.lanes, &self.fills);
        txn.each_job(|key, job| {
            if job.cause != Cause::Match
                && job.steps_used == 0
                && let Some(lane) = lanes.get_mut(key.sub)
            {
                lane.untried.insert(key.log);
            }
            if lanes.get(key.sub).is_none() {
                orphans.entry(key.sub).or_insert(key.log);
            } else if !claimed.contains(&key) {
                let filled = fills.get(&key.sub).is_some_and(|fill| key.log < fill.before_log);
                place(lanes, key, &job, now, filled);
            }
        })?;
        for (sub, first) in orphans {
            let from = Some(first);
            match self.doomed.iter_mut().find(|doomed| doomed.sub == sub) {
                Some(doomed) => doomed.from = from,
                None => self.doomed.push_back(Doomed { sub, logs: Vec::new(), from }),
            }
        }
        Ok(())
    }

    #[cfg(feature = "planted-bugs")]
    fn blame_everyone(&mut self, txn: &mut Txn<'_>) -> Result<(), StoreError> {
        let mut all = Vec::new();
        txn.each_job(|key, job| all.push((key, job)))?;
        for (key, mut job) in all {
            job.reclaims += 1;
            txn.put_job(key, &job)?;
        }
        Ok(())
    }
}

/// A number that stands for the place; in memory only.
fn place_of(sink: &Sink) -> u64 {
    let Sink::Webhook(webhook) = sink;
    let mut hasher = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(&webhook.url, &mut hasher);
    std::hash::Hasher::finish(&hasher)
}

/// Whether a job stands among those of its lane that were never attempted.
pub(super) fn is_fresh(job: &Job) -> bool {
    job.steps_used == 0 && job.cause == Cause::Match && job.reclaims < 2
}

/// Puts a job into the part of its lane where it belongs.
fn place(lanes: &mut Lanes, key: JobKey, job: &Job, now: HubTime, filled: bool) {
    let JobKey { log, sub } = key;
    if is_fresh(job) {
        if filled {
            lanes.push_filled(sub, log);
        } else {
            lanes.push_new(sub, log);
        }
        return;
    }
    // Clamped to the longest step: a clock that was wrong must not put it off for years (C13.8). A suspect was due when it was claimed.
    let due = if job.reclaims >= 2 { now } else { job.due.min(now.plus_ms(RETRY_STEP_MAX_MS)) };
    lanes.push_retry(sub, log, due, job.cause);
    if job.reclaims >= 2 {
        lanes.suspect(sub, log);
    }
}
