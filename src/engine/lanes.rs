//! Whose turn it is: lanes in a ring within their tenant, tenants in a ring within the hub.
//!
//! All of it is in memory and can be rebuilt from the store by one pass over the jobs; only the writer touches it. Lanes whose last
//! attempts failed or were slow stand in a ring of their own, so that leaving them aside costs nothing (C5.5).
//! Invariants: a lane stands in one ring at most once, a slow one in that of the slow; a tenant stands in a ring as long as a lane of it
//! does; the counts of what is in flight (hub, tenant, destination, slow lanes) are the sums over the lanes.

use super::lane::{Lane, NEVER, Readiness, Taken};
use super::ring::Ring;
use crate::engine::command::BreakerState;
use crate::model::ids::{ClaimNo, LogNo, SubNo, TenantNo};
use crate::model::job::{Cause, JobKey};
use crate::rules::breaker::Breaker;
use crate::time::HubTime;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

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
    ring: Ring,
    slow_ring: Ring,
    slow_turn: bool,
    timers: BinaryHeap<Reverse<(HubTime, SubNo)>>,
    pending: usize,
    open: u32,
    slow_open: u32,
    /// The suspect that runs alone now (C5.6).
    pub(super) alone: Option<JobKey>,
    with_suspects: BTreeSet<SubNo>,
}

impl Lanes {
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
        self.pending -= lane.waiting();
        self.with_suspects.remove(&sub);
        Some(lane)
    }

    /// Jobs waiting in all lanes.
    pub(super) fn pending(&self) -> usize {
        self.pending
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

    /// Appends a job that was never attempted.
    pub(super) fn push_new(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.queue.push_back(log);
            self.pending += 1;
        }
    }

    /// Appends a job of an event older than those in the queue, while `start_from` fills.
    pub(super) fn push_filled(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.fill.get_or_insert_default().push_back(log);
            self.pending += 1;
        }
    }

    /// Puts a job where it waits for its time.
    pub(super) fn push_retry(&mut self, sub: SubNo, log: LogNo, due: HubTime, cause: Cause) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.push_retry(log, due, cause);
            self.pending += 1;
        }
    }

    /// Puts a redriven or replayed job among those whose time has come.
    pub(super) fn push_again(&mut self, sub: SubNo, log: LogNo, cause: Cause) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.push_due(log, cause);
            lane.untried.insert(log);
            self.pending += 1;
        }
    }

    /// A job failed or ended: bulk work no longer waits for it.
    pub(super) fn tried(&mut self, sub: SubNo, log: LogNo) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.untried.remove(&log);
        }
    }

    /// Puts back a job that was claimed and not attempted.
    pub(super) fn put_back(&mut self, sub: SubNo, log: LogNo, from: Taken, cause: Cause) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            match from {
                Taken::Head => {
                    // Several may come back of a parallel lane, in any order.
                    let heads = lane.heads();
                    let at = heads.partition_point(|other| *other < log);
                    heads.insert(at, log);
                }
                Taken::Due => lane.push_due(log, cause),
            }
            self.pending += 1;
        }
    }

    /// Puts back a head whose time has not come.
    pub(super) fn put_back_until(&mut self, sub: SubNo, log: LogNo, due: HubTime) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            lane.not_before = due;
            if let Some(bucket) = lane.bucket.as_mut() {
                bucket.give_back();
            }
        }
        self.put_back(sub, log, Taken::Head, Cause::Match);
    }

    /// Makes a claim its breaker's probe (C7.2).
    pub(super) fn begin_probe(&mut self, sub: SubNo, claim: ClaimNo) {
        let Some(lane) = self.lanes.get(&sub) else { return };
        let dest = &mut self.dests[lane.dest.0 as usize];
        dest.breaker = dest.breaker.begin_probe(claim);
    }

    /// A lane that took its part of this commit: if it is ready for more, after the commit.
    pub(super) fn pass(&mut self, sub: SubNo, now: HubTime, passed: &mut Vec<(TenantNo, SubNo)>) {
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        let until = self.dests[lane.dest.0 as usize].blocked_until();
        if lane.in_ring || lane.readiness(now, until, self.alone.is_some()) != Readiness::Ready {
            self.look(sub, now);
        } else {
            lane.in_ring = true;
            passed.push((lane.tenant, sub));
        }
    }

    /// Breakers that are not closed.
    pub(super) fn breakers_open(&self) -> u64 {
        self.dests.iter().filter(|dest| !matches!(dest.breaker, Breaker::Closed { .. })).count() as u64
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
            self.slow_open += u32::from(lane.slow);
            self.dests[lane.dest.0 as usize].open += 1;
            *self.in_flight_of.entry(lane.tenant).or_default() += 1;
        }
    }

    /// Counts a claimed job as ended; the caller then looks at the lane.
    pub(super) fn count_closed(&mut self, sub: SubNo, slow_now: Option<bool>) {
        if let Some(lane) = self.lanes.get_mut(&sub) {
            self.slow_open -= u32::from(lane.slow);
            lane.open -= 1;
            if let Some(slow) = slow_now
                && slow != lane.slow
            {
                // The lane's other attempts change sides with it.
                if slow {
                    self.slow_open += lane.open
                } else {
                    self.slow_open -= lane.open
                }
                lane.slow = slow;
                if lane.in_ring {
                    let (from, to) = match slow {
                        true => (&mut self.ring, &mut self.slow_ring),
                        false => (&mut self.slow_ring, &mut self.ring),
                    };
                    from.remove(lane.tenant, sub);
                    to.push(lane.tenant, sub);
                }
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
        self.slow_open -= if lane.slow { lane.open } else { 0 };
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
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        if lane.in_ring {
            return;
        }
        match lane.readiness(now, self.dests[lane.dest.0 as usize].blocked_until(), self.alone.is_some()) {
            Readiness::Ready => {
                lane.in_ring = true;
                let ring = if lane.slow { &mut self.slow_ring } else { &mut self.ring };
                ring.push(lane.tenant, sub);
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
            let (tenant, sub) = self.pop(slots)?;
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
                let ring = if lane.slow { &mut self.slow_ring } else { &mut self.ring };
                ring.push(tenant, sub);
            }
        }
    }

    // The two rings take turns, while the slow one has less than half of the slots.
    fn pop(&mut self, slots: u32) -> Option<(TenantNo, SubNo)> {
        let slow_may = self.slow_open < (slots / 2).max(1);
        self.slow_turn = !self.slow_turn;
        let first = if self.slow_turn && slow_may { self.slow_ring.pop() } else { None };
        first.or_else(|| self.ring.pop()).or_else(|| if slow_may { self.slow_ring.pop() } else { None })
    }

    fn take_from(&mut self, sub: SubNo, now: HubTime) -> Option<Next> {
        let lane = self.lanes.get_mut(&sub)?;
        lane.in_ring = false;
        let dest = &self.dests[lane.dest.0 as usize];
        // It may have been blocked since it came into the ring.
        if lane.readiness(now, dest.blocked_until(), self.alone.is_some()) != Readiness::Ready {
            self.look(sub, now);
            return None;
        }
        let probes = !matches!(dest.breaker, Breaker::Closed { .. });
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
        self.pending -= 1;
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
