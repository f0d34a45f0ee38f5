//! Claims, attempts, and what a crash does to them, as C5 tells it.

use super::breaker::BreakerModel;
use super::manage::url;
use super::{Answers, ClaimModel, Held, Model, State, Violation};
use crate::hold;
use streaming_hub::model::ids::{ClaimNo, Seq, SubNo};
use streaming_hub::model::job::{Cause, DeadReason};
use streaming_hub::model::subscription::DeliveryOrder;
use streaming_hub::time::HubTime;

/// A claim as it was answered or found.
#[derive(Debug, Clone, Copy)]
pub struct Claimed {
    pub no: ClaimNo,
    pub sub: SubNo,
    pub seq: Seq,
}

impl Model {
    /// A claim was handed out: whether it may be, by every rule.
    pub fn claimed(&mut self, now: HubTime, claimed: Claimed) -> Held {
        self.may_claim(now, claimed)?;
        self.take(claimed, true);
        Ok(())
    }

    /// A claim was found of a batch whose outcome was not known; nobody was given it.
    pub fn found(&mut self, claimed: Claimed) -> Held {
        let Claimed { no, sub, seq } = claimed;
        let job = self.jobs.get(&(sub, seq));
        hold!(
            job.is_some_and(|job| job.state == State::Waiting),
            "invariant 12: claim {no} is stored for a job that is not waiting: {sub}/{seq} {job:?}"
        );
        self.take(claimed, false);
        Ok(())
    }

    fn take(&mut self, claimed: Claimed, handed_out: bool) {
        let Claimed { no, sub, seq } = claimed;
        let job = self.jobs.get_mut(&(sub, seq)).unwrap();
        job.state = State::Claimed(no);
        let alone = job.reclaims >= 2;
        let destination = self.subs[&sub].destination();
        let breaker = self.breakers.entry(destination).or_insert(BreakerModel::Closed { failures: 0 });
        let probes = !matches!(breaker, BreakerModel::Closed { .. });
        if let BreakerModel::Open { cooling, .. } = *breaker {
            *breaker = BreakerModel::Probing { claim: no, cooling };
        }
        let changes = self.subs[&sub].changes;
        let url = url(&self.subs[&sub].spec.sink);
        self.subs.get_mut(&sub).unwrap().taken.0 += 1;
        self.claims.insert(no, ClaimModel { sub, seq, changes, url, alone, probes, handed_out, begun: false });
        self.next_claim = self.next_claim.max(no.0 + 1);
    }

    fn may_claim(&self, now: HubTime, claimed: Claimed) -> Held {
        let Claimed { no, sub: sub_no, seq } = claimed;
        let what = format!("claim {no} of {sub_no}/{seq} at {}", now.0);
        hold!(no.0 >= self.next_claim, "{what}: its number is not new");
        let Some(sub) = self.subs.get(&sub_no) else { return Err(Violation(format!("{what}: no such subscription"))) };
        let Some(job) = self.jobs.get(&(sub_no, seq)) else {
            return Err(Violation(format!("C4.1 C4.4: {what}: it was never matched")));
        };
        hold!(job.state == State::Waiting, "invariant 12: {what}: the job is {:?}", job.state);
        hold!(sub.is_live(), "C5.4: {what}: the subscription is not live");
        if let Some(fill) = &sub.fill {
            hold!(!job.fresh || seq.0 <= fill.to, "C4.8: {what}: older events are still being matched");
        }
        hold!(job.due.0 <= now, "invariant 10: {what}: it is not due before {}", job.due.0.0);
        hold!(sub.hold_until <= now, "C9.6: {what}: held until {}", sub.hold_until.0);
        let breaker = self.breakers.get(&sub.destination()).copied();
        hold!(breaker.is_none_or(|breaker| breaker.lets_through(now)), "C7.1: {what}: the breaker is {breaker:?}");
        let open = self.claims.values().filter(|claim| claim.sub == sub_no).count();
        hold!(open < sub.in_flight_max(), "C5.4: {what}: {open} are in flight already");
        self.has_its_turn(now, sub_no, seq, &what)?;
        self.has_room(sub_no, &what)
    }

    /// Order within the lane (C5.4), and suspects one at a time (C5.6).
    fn has_its_turn(&self, now: HubTime, sub_no: SubNo, seq: Seq, what: &str) -> Held {
        let sub = &self.subs[&sub_no];
        let job = &self.jobs[&(sub_no, seq)];
        let waiting = || self.lane(sub_no).filter(|(_, job)| job.state == State::Waiting);
        if job.reclaims >= 2 {
            let other = self.claims.values().find(|claim| claim.alone);
            hold!(other.is_none(), "C5.6: {what}: another suspect runs: {other:?}");
        } else {
            let suspect = waiting().find(|(_, job)| job.reclaims >= 2).map(|(seq, _)| seq);
            hold!(suspect.is_none(), "C5.6: {what}: the suspect {suspect:?} comes first in its lane");
        }
        if job.fresh {
            let first = waiting().find(|(_, job)| job.fresh).map(|(seq, _)| seq);
            hold!(first == Some(seq), "invariant 9: {what}: the head is {first:?}");
        }
        if sub.spec.delivery_order == DeliveryOrder::Strict && job.fresh {
            let failed = waiting().find(|(_, job)| job.cause == Cause::Match && !job.fresh).map(|(seq, _)| seq);
            hold!(failed.is_none(), "invariant 9: {what}: strict, and {failed:?} is not done");
        }
        if let Some(limit) = sub.spec.rate_limit {
            let (taken, since) = sub.taken;
            let most = u64::from(limit.burst) + now.since_ms(since) * u64::from(limit.per_second) / 1000;
            hold!(taken < most, "C4.9: {what}: {taken} were claimed since {}, {most} at most may be", since.0);
        }
        Ok(())
    }

    /// Free slots, and the shares of tenant, destination and slow lanes (C5.5).
    fn has_room(&self, sub_no: SubNo, what: &str) -> Held {
        let room = self.room(sub_no);
        hold!(room.free > 0, "C5.5: {what}: all {} slots are taken", self.rules.slots);
        hold!(room.of_tenant < room.free, "C5.5: {what}: its tenant has {} of {} free", room.of_tenant, room.free);
        hold!(
            room.of_destination < room.free,
            "C5.5: {what}: its destination has {} of {} free",
            room.of_destination,
            room.free
        );
        let slow = self.subs[&sub_no].slow;
        hold!(self.has_its_share(sub_no), "C5.5: {what}: lanes of its kind ({slow:?}) have their share: {room:?}");
        Ok(())
    }

    /// Slow lanes have half of the slots, and with those of which nothing is known three quarters.
    pub(crate) fn has_its_share(&self, sub_no: SubNo) -> bool {
        let (room, slots) = (self.room(sub_no), self.rules.slots);
        let less_than = |count: u32, share: u32| count < share.max(1);
        match self.subs[&sub_no].slow {
            Some(false) => true,
            None => less_than(room.slow + room.unknown, slots * 3 / 4),
            Some(true) => less_than(room.slow + room.unknown, slots * 3 / 4) && less_than(room.slow, slots / 2),
        }
    }

    pub(crate) fn room(&self, sub_no: SubNo) -> Room {
        let sub = &self.subs[&sub_no];
        let count = |has: &dyn Fn(&super::Sub) -> bool| {
            u32::try_from(self.claims.values().filter(|claim| has(&self.subs[&claim.sub])).count()).unwrap()
        };
        let taken = count(&|_| true) + u32::try_from(self.gone.len()).unwrap();
        Room {
            free: self.rules.slots.saturating_sub(taken),
            of_tenant: count(&|other| other.tenant == sub.tenant),
            of_destination: count(&|other| other.destination() == sub.destination()),
            slow: count(&|other| other.slow == Some(true)),
            unknown: count(&|other| other.slow.is_none()),
        }
    }

    /// An attempt begins: whether it may (invariants 9 and 12).
    pub fn begins(&mut self, no: ClaimNo) -> Result<(SubNo, Seq), Violation> {
        let Some(claim) = self.claims.get_mut(&no) else {
            return Err(Violation(format!("invariant 12: an attempt begins for claim {no}, which is gone")));
        };
        let key = (claim.sub, claim.seq);
        let what = format!("the attempt of {}/{} (claim {no})", key.0, key.1);
        hold!(!claim.begun, "invariant 12: {what} begins twice");
        claim.begun = true;
        let changes = claim.changes;
        let sub = self.subs.get_mut(&key.0).unwrap();
        hold!(changes == sub.changes, "C5.5: {what} begins under a state that changed before");
        let job = self.jobs.get_mut(&key).unwrap();
        job.begun += 1;
        if job.cause == Cause::Match {
            let ordered = sub.spec.delivery_order != DeliveryOrder::Parallel && key.1 > sub.ordered_after;
            if !job.first_begun {
                hold!(
                    !ordered || key.1 > sub.first_begun,
                    "invariant 9: {what} is the first, after {}",
                    sub.first_begun
                );
                sub.first_begun = sub.first_begun.max(key.1);
            }
            if sub.spec.delivery_order == DeliveryOrder::Strict && ordered {
                hold!(key.1 >= sub.last_begun, "invariant 9: {what}: strict, and {} was sent", sub.last_begun);
            }
            sub.last_begun = key.1;
        }
        job.first_begun = true;
        Ok(key)
    }

    /// The process died and another one has read the store: claimed jobs are suspects, nothing else is (C5.6).
    pub fn restarted(&mut self, now: HubTime) {
        let mut dead = Answers::default();
        self.gone.clear();
        for (_, claim) in std::mem::take(&mut self.claims) {
            let key = (claim.sub, claim.seq);
            let job = self.jobs.get_mut(&key).unwrap();
            job.state = State::Waiting;
            job.lost += u32::from(claim.begun);
            if job.reclaims < 2 || claim.alone {
                job.reclaims += 1;
            }
            if job.reclaims >= self.rules.poison_threshold {
                self.die(now, key, DeadReason::Poison, &mut dead);
                self.tell_of_poison(key.0, now.max(self.committed));
            }
        }
        self.read_again(now);
    }

    /// The same process has read the store again: what it handed out goes on.
    pub fn reopened(&mut self, now: HubTime) {
        let never: Vec<ClaimNo> =
            self.claims.iter().filter(|(_, claim)| !claim.handed_out).map(|(no, _)| *no).collect();
        for no in never {
            if let Some(claim) = self.claims.remove(&no) {
                self.jobs.get_mut(&(claim.sub, claim.seq)).unwrap().state = State::Waiting;
            }
        }
        self.read_again(now);
    }

    /// What is in memory only is forgotten.
    fn read_again(&mut self, now: HubTime) {
        self.next_look = HubTime(0);
        let probing: Vec<ClaimNo> = self.claims.iter().filter(|(_, claim)| claim.probes).map(|(no, _)| *no).collect();
        for breaker in self.breakers.values_mut() {
            *breaker = match *breaker {
                BreakerModel::Closed { .. } => BreakerModel::Closed { failures: 0 },
                BreakerModel::Probing { claim, cooling } if !probing.contains(&claim) => {
                    BreakerModel::Open { until: HubTime(0), cooling }
                }
                BreakerModel::Open { .. } | BreakerModel::Probing { .. } => *breaker,
            };
        }
        for sub in self.subs.values_mut() {
            sub.slow = None;
            sub.taken = (0, now);
        }
        for job in self.jobs.values_mut() {
            job.fresh = job.steps == 0 && job.cause == Cause::Match && job.reclaims < 2;
        }
    }
}

/// What is taken of the slots.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub free: u32,
    pub of_tenant: u32,
    pub of_destination: u32,
    pub slow: u32,
    pub unknown: u32,
}
