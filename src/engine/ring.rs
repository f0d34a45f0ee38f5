//! Who stands in line: tenants in a ring, each with a ring of its ready lanes, so that a pick costs the same however many there are (C5.1).
//!
//! Invariant: a tenant stands in the ring once, as long as a lane of it does.

use crate::model::ids::{SubNo, TenantNo};
use std::collections::{HashMap, VecDeque};

/// Tenants with ready lanes, each with its ready lanes.
#[derive(Debug, Default)]
pub(super) struct Ring {
    tenants: VecDeque<TenantNo>,
    lanes: HashMap<TenantNo, VecDeque<SubNo>>,
}

impl Ring {
    /// Puts a lane at the end of its tenant's turn.
    pub(super) fn push(&mut self, tenant: TenantNo, sub: SubNo) {
        let lanes = self.lanes.entry(tenant).or_default();
        if lanes.is_empty() {
            self.tenants.push_back(tenant);
        }
        lanes.push_back(sub);
    }

    /// Takes a lane out before its turn.
    pub(super) fn remove(&mut self, tenant: TenantNo, sub: SubNo) {
        let Some(lanes) = self.lanes.get_mut(&tenant) else { return };
        lanes.retain(|other| *other != sub);
        if lanes.is_empty() {
            self.lanes.remove(&tenant);
            self.tenants.retain(|other| *other != tenant);
        }
    }

    /// The next tenant's next lane; the tenant goes to the end of the ring.
    pub(super) fn pop(&mut self) -> Option<(TenantNo, SubNo)> {
        let tenant = self.tenants.pop_front()?;
        let lanes = self.lanes.get_mut(&tenant)?;
        let sub = lanes.pop_front()?;
        if lanes.is_empty() {
            self.lanes.remove(&tenant);
        } else {
            self.tenants.push_back(tenant);
        }
        Some((tenant, sub))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(ring: &mut Ring) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| ring.pop()).map(|(tenant, sub)| (tenant.0, sub.0)).collect()
    }

    // C5.1
    #[test]
    fn tenants_take_turns_and_so_do_their_lanes() {
        let mut ring = Ring::default();
        for (tenant, sub) in [(1, 11), (1, 12), (1, 13), (2, 21), (3, 31)] {
            ring.push(TenantNo(tenant), SubNo(sub));
        }
        ring.remove(TenantNo(1), SubNo(12));
        ring.remove(TenantNo(3), SubNo(31));
        ring.remove(TenantNo(3), SubNo(31));
        assert_eq!(drained(&mut ring), [(1, 11), (2, 21), (1, 13)]);
    }
}
