//! What operators look at: breakers, and subscriptions by their health. Reads of memory, a bounded number at a time; nothing is written.

use super::command::{BreakerSeen, LaneState, Wanted};
use super::core::Core;
use crate::model::ids::{SubNo, TenantNo};
use crate::time::HubTime;

impl Core {
    /// These breakers as they are now; the closed ones, and those that nobody has any more, are left out (C7.3).
    pub(super) fn breakers_seen(&self, which: &[(TenantNo, String)]) -> Vec<BreakerSeen> {
        which.iter().filter_map(|(tenant, destination)| self.breaker_seen(*tenant, destination)).collect()
    }

    fn breaker_seen(&self, tenant: TenantNo, destination: &str) -> Option<BreakerSeen> {
        let no = self.lanes.find_dest(tenant, destination)?;
        let dest = self.lanes.dest(no);
        let spans = dest.lanes.iter().filter_map(|sub| self.health.of(*sub)?.span.as_ref());
        Some(BreakerSeen {
            tenant,
            destination: destination.to_owned(),
            state: dest.state(),
            since: dest.breaker.open_since()?,
            shed: dest.breaker.shed(),
            waiting: self.lanes.due_at(no),
            subscriptions: dest.lanes.len() as u64,
            last_error: spans.max_by_key(|span| span.last).map(|span| span.error),
        })
    }

    /// Subscriptions of that health below a number, newest first; and below which number to go on.
    pub(super) fn of_health(
        &self,
        now: HubTime,
        wanted: Wanted,
        below: Option<SubNo>,
        limit: usize,
        examine: u32,
    ) -> (Vec<(SubNo, LaneState)>, Option<SubNo>) {
        // Numbers are given out one after the other, so going down them is going from the newest to the oldest.
        let mut no = below.unwrap_or(self.hub.next_sub).0.min(self.hub.next_sub.0);
        let last = no.saturating_sub(examine);
        let mut seen = Vec::new();
        while no > last && seen.len() < limit {
            no -= 1;
            let sub = SubNo(no);
            let (Some(subscription), Some(lane)) = (self.subs.get(&sub), self.seen(sub, now)) else { continue };
            if lane.is_unhealthy(subscription) == (wanted == Wanted::Unhealthy) {
                seen.push((sub, lane));
            }
        }
        (seen, (no > 0).then_some(SubNo(no)))
    }
}
