//! Whether somebody waits who should not: the other half of every rule about who may be claimed.

use super::breaker::BreakerModel;
use super::{Job, Model, State};
use streaming_hub::model::ids::{Seq, SubNo};
use streaming_hub::model::job::Cause;
use streaming_hub::model::subscription::DeliveryOrder;
use streaming_hub::time::HubTime;

impl Model {
    /// A job that is due and may be claimed by every rule, when nobody is at work on it (invariants 10 and 14).
    pub fn forgotten(&self, now: HubTime) -> Option<String> {
        self.subs.keys().find_map(|no| {
            let (seq, job) = self.claimable(*no, now)?;
            Some(format!("job {no}/{seq} waits for nothing at {}: {job:?} {:?}", now.0, self.subs[no]))
        })
    }

    /// A job of it may be claimed by every rule but those about slots, and all of these are taken.
    pub(super) fn waits_only_for_a_slot(&self, no: SubNo, now: HubTime) -> bool {
        let room = self.room(no);
        room.free == 0 && self.has_its_share(no) && self.waiting_for_nothing_else(no, now).is_some()
    }

    fn claimable(&self, no: SubNo, now: HubTime) -> Option<(Seq, &Job)> {
        self.waiting_for_nothing_else(no, now).filter(|_| self.has_free_slot(no))
    }

    /// The job of it whose turn it is, if slots were no matter.
    fn waiting_for_nothing_else(&self, no: SubNo, now: HubTime) -> Option<(Seq, &Job)> {
        let sub = &self.subs[&no];
        let open = self.claims.values().filter(|claim| claim.sub == no).count();
        let breaker = self.breakers.get(&sub.destination());
        let blocked = !sub.is_live()
            || open >= sub.in_flight_max()
            || sub.hold_until > now
            || breaker.is_some_and(|breaker: &BreakerModel| !breaker.lets_through(now))
            // Tokens are not modelled.
            || sub.spec.rate_limit.is_some();
        if blocked {
            return None;
        }
        let waiting = || self.lane(no).filter(|(_, job)| job.state == State::Waiting);
        if waiting().any(|(_, job)| job.reclaims >= 2) && self.claims.values().any(|claim| claim.alone) {
            return None;
        }
        let is_due = |job: &Job| job.due.1 <= now;
        let strict = sub.spec.delivery_order == DeliveryOrder::Strict;
        let newest = sub.fill.as_ref().map_or(u64::MAX, |fill| fill.to);
        let head = waiting().find(|(_, job)| job.fresh && job.cause == Cause::Match).filter(|(seq, _)| seq.0 <= newest);
        let failed = waiting().filter(|(_, job)| !job.fresh && job.cause == Cause::Match).count();
        // At the ceiling a lane with many failed jobs makes no first attempts.
        let stuck = (strict && failed > 0) || failed >= self.head();
        let retry = waiting().find(|(_, job)| !job.fresh && is_due(job));
        retry.or(head.filter(|(_, job)| !stuck && is_due(job)))
    }

    fn has_free_slot(&self, no: SubNo) -> bool {
        let room = self.room(no);
        room.free > 0 && room.of_tenant < room.free && room.of_destination < room.free && self.has_its_share(no)
    }
}
