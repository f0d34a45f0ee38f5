//! Whose turn it is: lanes in a ring within their tenant, tenants in a ring within the hub.
//!
//! All of it is in memory and can be rebuilt from the store by one pass over the jobs; only the writer touches it.
//! Invariants: a lane stands in line at most once, with those of its pace; the counts of what is in flight (hub, tenant, destination, pace)
//! and of what waits are the sums over the lanes.

mod rest;

pub(super) use rest::Rest;

use super::lane::{Lane, NEVER, Readiness, Taken};
use super::ring::{Line, Pace};
use crate::engine::command::BreakerState;
use crate::model::ids::{ClaimNo, LogNo, SubNo, TenantNo};
use crate::model::job::{Cause, JobKey};
use crate::rules::breaker::Breaker;
use crate::time::HubTime;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};

/// Number of a destination of a tenant, in memory only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct DestNo(pub(super) u32);

/// A destination of a tenant: its breaker, and how many attempts are on their way there.
#[derive(Debug)]
pub(super) struct Dest {
    pub(super) tenant: TenantNo,
    pub(super) name: String,
    pub(super) breaker: Breaker,
    pub(super) open: u32,
    pub(super) lanes: BTreeSet<SubNo>,
}

impl Dest {
    /// The breaker as it is shown (C7.3).
    pub(super) fn state(&self) -> BreakerState {
        match &self.breaker {
            Breaker::Closed { .. } => BreakerState::Closed,
            Breaker::Open { until, .. } => BreakerState::Open { until: *until },
            Breaker::Probing { .. } => BreakerState::Probing,
        }
    }

    /// When the breaker lets the next job through; the end of time while its probe is on its way.
    fn blocked_until(&self) -> HubTime {
        match &self.breaker {
            Breaker::Closed { .. } => HubTime(0),
            Breaker::Open { until, .. } => *until,
            Breaker::Probing { .. } => NEVER,
        }
    }
}

/// All lanes, and whose turn it is.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<SubNo, Lane>,
    dests: Vec<Dest>,
    /// Numbers of destinations that nobody has any more.
    dests_free: Vec<DestNo>,
    dest_numbers: HashMap<(TenantNo, String), DestNo>,
    in_flight_of: HashMap<TenantNo, u32>,
    line: Line,
    timers: BinaryHeap<Reverse<(HubTime, SubNo)>>,
    /// Jobs that may wait in memory, about.
    max: usize,
    /// Jobs in memory that were never attempted.
    queued: usize,
    /// Jobs in memory that wait for another attempt.
    retrying: usize,
    /// Jobs that wait in the store only.
    resting: usize,
    with_rest: BTreeSet<SubNo>,
    /// Of these, those whose head runs short.
    short: BTreeSet<SubNo>,
    open: u32,
    /// The suspect that runs alone now (C5.6).
    pub(super) alone: Option<JobKey>,
    with_suspects: BTreeSet<SubNo>,
}

impl Lanes {
    /// None yet, over a memory for so many waiting jobs.
    pub(super) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// The lane of a subscription.
    pub(super) fn get(&self, sub: SubNo) -> Option<&Lane> {
        self.lanes.get(&sub)
    }

    /// The lane of a subscription, to change; [`Lanes::look`] at it afterwards.
    pub(super) fn get_mut(&mut self, sub: SubNo) -> Option<&mut Lane> {
        self.lanes.get_mut(&sub)
    }

    /// Every lane.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SubNo, &Lane)> {
        self.lanes.iter().map(|(sub, lane)| (*sub, lane))
    }

    /// Adds a lane.
    pub(super) fn add(&mut self, sub: SubNo, lane: Lane) {
        self.dests[lane.dest.0 as usize].lanes.insert(sub);
        self.lanes.insert(sub, lane);
    }

    /// Takes a lane away.
    pub(super) fn take(&mut self, sub: SubNo) -> Option<Lane> {
        let lane = self.lanes.remove(&sub)?;
        self.dests[lane.dest.0 as usize].lanes.remove(&sub);
        self.queued -= lane.queue.len() + lane.fill.as_ref().map_or(0, VecDeque::len);
        self.retrying -= lane.timed();
        self.resting -= lane.rest.map_or(0, |rest| rest.jobs);
        self.with_rest.remove(&sub);
        self.short.remove(&sub);
        self.with_suspects.remove(&sub);
        Some(lane)
    }

    /// Jobs waiting in all lanes, in memory or not.
    pub(super) fn pending(&self) -> usize {
        self.in_memory() + self.resting
    }

    /// Jobs waiting in memory.
    pub(super) fn in_memory(&self) -> usize {
        self.queued + self.retrying
    }

    /// Whether there is no room for more jobs that wait for another attempt.
    pub(super) fn is_full_of_retries(&self) -> bool {
        self.retrying >= self.max
    }

    /// Whether bulk work may make more jobs for a subscription: few of those it made wait for their first attempt, and all that wait take
    /// no more memory than they leave to all others, whatever those others do.
    pub(super) fn takes_more_again(&self, sub: SubNo, ahead: usize) -> bool {
        let share = self.share(self.retrying);
        self.lanes.get(&sub).is_some_and(|lane| lane.untried.len() < ahead && lane.sent_again() < share)
    }

    /// Jobs claimed.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// The destination's number, given out on first sight.
    pub(super) fn dest_no(&mut self, tenant: TenantNo, name: &str) -> DestNo {
        if let Some(no) = self.dest_numbers.get(&(tenant, name.to_owned())) {
            return *no;
        }
        let dest = Dest {
            tenant,
            name: name.to_owned(),
            breaker: Breaker::Closed { failures: 0 },
            open: 0,
            lanes: BTreeSet::new(),
        };
        let no = self.dests_free.pop().unwrap_or(DestNo(u32::try_from(self.dests.len()).unwrap_or(u32::MAX)));
        match self.dests.get_mut(no.0 as usize) {
            Some(free) => *free = dest,
            None => self.dests.push(dest),
        }
        self.dest_numbers.insert((tenant, name.to_owned()), no);
        no
    }

    /// Forgets a destination that no subscription has any more; its tenant and name, if so.
    pub(super) fn forget_dest(&mut self, no: DestNo) -> Option<(TenantNo, String)> {
        let dest = self.dests.get_mut(no.0 as usize).filter(|dest| dest.lanes.is_empty())?;
        dest.breaker = Breaker::Closed { failures: 0 };
        let key = (dest.tenant, std::mem::take(&mut dest.name));
        self.dest_numbers.remove(&key)?;
        self.dests_free.push(no);
        Some(key)
    }

    /// A destination.
    pub(super) fn dest(&self, no: DestNo) -> &Dest {
        &self.dests[no.0 as usize]
    }

    /// A destination, to change.
    pub(super) fn dest_mut(&mut self, no: DestNo) -> &mut Dest {
        &mut self.dests[no.0 as usize]
    }

    /// Moves a lane to another destination.
    pub(super) fn move_lane(&mut self, sub: SubNo, to: DestNo) {
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        let open = lane.open;
        let from = std::mem::replace(&mut lane.dest, to);
        self.dests[from.0 as usize].lanes.remove(&sub);
        self.dests[to.0 as usize].lanes.insert(sub);
        // What is in flight to the old place is counted at the new one from here on, so that the counts end at nought.
        self.dests[from.0 as usize].open -= open;
        self.dests[to.0 as usize].open += open;
    }

    /// Appends a job of an event older than those in the queue, while `start_from` fills.
    pub(super) fn push_filled(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.fill.get_or_insert_default().push_back(log);
            self.queued += 1;
        }
    }

    /// Puts a job where it waits for its time.
    pub(super) fn push_retry(&mut self, sub: SubNo, log: LogNo, due: HubTime, cause: Cause) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.push_retry(log, due, cause);
            self.retrying += 1;
        }
    }

    /// Puts a redriven or replayed job among those whose time has come.
    pub(super) fn push_again(&mut self, sub: SubNo, log: LogNo, cause: Cause) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.push_due(log, cause);
            lane.untried.insert(log);
            self.retrying += 1;
        }
    }

    /// A job failed or ended: bulk work no longer waits for it.
    pub(super) fn tried(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.untried.remove(&log);
        }
    }

    /// Puts back a head whose time has not come.
    pub(super) fn put_back_until(&mut self, sub: SubNo, log: LogNo, due: HubTime) {
        self.put_back(sub, log, Taken::Head, Cause::Match);
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.not_before = due;
            if let Some(bucket) = lane.bucket.as_mut() {
                bucket.give_back();
            }
        }
    }

    /// Makes a claim its breaker's probe (C7.2).
    pub(super) fn begin_probe(&mut self, sub: SubNo, claim: ClaimNo) {
        let Some(lane) = self.lanes.get(&sub) else { return };
        let dest = &mut self.dests[lane.dest.0 as usize];
        dest.breaker = dest.breaker.begin_probe(claim);
    }

    /// A lane that took its part of this commit: if it is ready for more, after the commit.
    pub(super) fn pass(&mut self, sub: SubNo, now: HubTime, passed: &mut Vec<(TenantNo, SubNo)>) {
        let readiness = self.readiness(sub, now);
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        if lane.in_ring || readiness != Readiness::Ready {
            self.look(sub, now);
        } else {
            lane.in_ring = true;
            passed.push((lane.tenant, sub));
        }
    }

    /// Whether a job of the lane may be claimed now, or when to look again.
    fn readiness(&mut self, sub: SubNo, now: HubTime) -> Readiness {
        let share = self.share(self.retrying);
        let Some(lane) = self.lanes.get_mut(&sub) else { return Readiness::Blocked };
        lane.crowded = lane.failed() >= share;
        lane.readiness(now, self.dests[lane.dest.0 as usize].blocked_until(), self.alone.is_some())
    }

    /// Breakers that are not closed.
    pub(super) fn breakers_open(&self) -> u64 {
        self.dests.iter().filter(|dest| !matches!(dest.breaker, Breaker::Closed { .. })).count() as u64
    }

    /// When the breaker that is longest open first opened.
    pub(super) fn breaker_open_since(&self) -> Option<HubTime> {
        self.dests.iter().filter_map(|dest| dest.breaker.open_since()).min()
    }

    /// A destination that somebody has.
    pub(super) fn find_dest(&self, tenant: TenantNo, name: &str) -> Option<DestNo> {
        self.dest_numbers.get(&(tenant, name.to_owned())).copied()
    }

    /// Due jobs of a destination, passed over while its breaker is open (C7.1).
    pub(super) fn due_at(&self, no: DestNo) -> u64 {
        let lanes = self.dests[no.0 as usize].lanes.iter().filter_map(|sub| self.lanes.get(sub));
        lanes.map(|lane| (lane.waiting() - lane.retries.len()) as u64).sum()
    }

    /// Marks a waiting job as a suspect that must run alone.
    pub(super) fn suspect(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.suspects.insert(log);
            self.with_suspects.insert(sub);
        }
    }

    /// Counts a claimed job as in flight.
    pub(super) fn count_open(&mut self, sub: SubNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.open += 1;
            self.open += 1;
            self.line.count(lane.pace, 1);
            self.dests[lane.dest.0 as usize].open += 1;
            *self.in_flight_of.entry(lane.tenant).or_default() += 1;
        }
    }

    /// Counts a claimed job as ended; the caller then looks at the lane.
    pub(super) fn count_closed(&mut self, sub: SubNo, pace: Option<Pace>) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            self.line.uncount(lane.pace, 1);
            lane.open -= 1;
            if let Some(pace) = pace
                && pace != lane.pace
            {
                // The lane's other attempts change sides with it.
                self.line.uncount(lane.pace, lane.open);
                self.line.count(pace, lane.open);
                if lane.in_ring {
                    self.line.change(lane.pace, pace, lane.tenant, sub);
                }
                lane.pace = pace;
            }
            self.open -= 1;
            self.dests[lane.dest.0 as usize].open -= 1;
            let tenant = lane.tenant;
            self.uncount_tenant(tenant, 1);
        }
    }

    /// Counts an attempt that is still on its way although its claim is gone: its slot is taken.
    pub(super) fn count_gone(&mut self) {
        self.open += 1;
    }

    /// Such an attempt has ended.
    pub(super) fn count_gone_closed(&mut self) {
        self.open -= 1;
    }

    /// Takes back the counts of a lane that was taken away with jobs in flight, but for their slots.
    pub(super) fn uncount(&mut self, lane: &Lane) {
        self.line.uncount(lane.pace, lane.open);
        self.dests[lane.dest.0 as usize].open -= lane.open;
        self.uncount_tenant(lane.tenant, lane.open);
    }

    fn uncount_tenant(&mut self, tenant: TenantNo, open: u32) {
        if let Some(count) = self.in_flight_of.get_mut(&tenant) {
            *count -= open;
            if *count == 0 {
                self.in_flight_of.remove(&tenant);
            }
        }
    }

    /// Looks at a lane after a change: into the ring when it is ready, else a timer for when it may be.
    pub(super) fn look(&mut self, sub: SubNo, now: HubTime) {
        if self.lanes.get(&sub).is_none_or(|lane| lane.in_ring) {
            return;
        }
        let readiness = self.readiness(sub, now);
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        match readiness {
            Readiness::Ready => {
                lane.in_ring = true;
                self.line.push(lane.pace, lane.tenant, sub);
            }
            Readiness::NotBefore(at) => {
                if lane.timer.is_none_or(|set| at < set) {
                    lane.timer = Some(at);
                    self.timers.push(Reverse((at, sub)));
                }
            }
            Readiness::Blocked => {}
        }
    }

    /// Looks at every lane of a destination, after its breaker moved.
    pub(super) fn look_at_dest(&mut self, no: DestNo, now: HubTime) {
        for sub in self.dests[no.0 as usize].lanes.clone() {
            self.look(sub, now);
        }
    }

    /// Looks at the lanes that have suspects, after the one that ran alone ended.
    pub(super) fn look_at_suspects(&mut self, now: HubTime) {
        for sub in self.with_suspects.clone() {
            self.look(sub, now);
        }
    }

    /// Looks at the lanes whose time has come.
    pub(super) fn wake(&mut self, now: HubTime) {
        while let Some(&Reverse((at, sub))) = self.timers.peek() {
            if at > now {
                break;
            }
            self.timers.pop();
            if let Some(lane) = self.lanes.get_mut(&sub) {
                if lane.timer == Some(at) {
                    lane.timer = None;
                }
                self.look(sub, now);
            }
        }
    }

    /// When to wake next.
    pub(super) fn next_timer(&self) -> Option<HubTime> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The next job in turn, as long as slots are free; it is counted in flight. Lanes whose tenant or destination has its share
    /// already are collected in `passed`, for [`Lanes::restore`].
    pub(super) fn next(&mut self, now: HubTime, slots: u32, passed: &mut Vec<(TenantNo, SubNo)>) -> Option<Next> {
        loop {
            let free = slots.saturating_sub(self.open);
            if free == 0 {
                return None;
            }
            let (tenant, sub) = self.line.pop(slots)?;
            // No tenant, and no destination, has more in flight than is free for all others (C5.5).
            let of_tenant = self.in_flight_of.get(&tenant).copied().unwrap_or(0);
            let of_dest = self.lanes.get(&sub).map_or(0, |lane| self.dests[lane.dest.0 as usize].open);
            if of_tenant >= free || of_dest >= free {
                passed.push((tenant, sub));
                continue;
            }
            if let Some(next) = self.take_from(sub, now) {
                return Some(next);
            }
        }
    }

    /// Gives lanes that were passed over their place in the ring back.
    pub(super) fn restore(&mut self, passed: Vec<(TenantNo, SubNo)>) {
        for (tenant, sub) in passed {
            if let Some(lane) = self.lanes.get(&sub) {
                self.line.push(lane.pace, tenant, sub);
            }
        }
    }

    fn take_from(&mut self, sub: SubNo, now: HubTime) -> Option<Next> {
        self.lanes.get_mut(&sub)?.in_ring = false;
        // It may have been blocked since it came into the ring.
        if self.readiness(sub, now) != Readiness::Ready {
            self.look(sub, now);
            return None;
        }
        let lane = self.lanes.get_mut(&sub)?;
        let probes = !matches!(self.dests[lane.dest.0 as usize].breaker, Breaker::Closed { .. });
        let (log, from, alone) = lane.pick()?;
        if alone {
            self.alone = Some(JobKey { log, sub });
            if lane.suspects.is_empty() {
                self.with_suspects.remove(&sub);
            }
        }
        if let Some(bucket) = lane.bucket.as_mut() {
            bucket.take();
        }
        match from {
            Taken::Head => self.queued -= 1,
            Taken::Due => self.retrying -= 1,
        }
        self.note_short(sub);
        self.count_open(sub);
        Some(Next { sub, log, from, probes, alone })
    }
}

/// The job whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) sub: SubNo,
    pub(super) log: LogNo,
    pub(super) from: Taken,
    /// It is its breaker's probe.
    pub(super) probes: bool,
    /// It is a suspect that runs alone.
    pub(super) alone: bool,
}
