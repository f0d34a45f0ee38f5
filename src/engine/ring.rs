//! Who stands in line: tenants in a ring, each with a ring of its ready lanes, so that a pick costs the same however many there are (C5.1).
//!
//! Lanes stand in the ring of their [`Pace`], so that leaving some aside costs nothing: those that are slow, and those of which nothing is
//! known yet, never have all slots, however many they are (C5.5).
//! Invariants: a tenant stands in a ring once, as long as a lane of it does; the attempts in flight of each pace are the sums over its lanes.

use crate::model::ids::{SubNo, TenantNo};
use std::collections::{HashMap, VecDeque};

/// How the attempts of a lane go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// None has ended since the store was read in: it may be one of a thousand that hang.
    Unknown,
    /// The last one ended well, and within a second.
    Quick,
    /// The last one failed, or took longer.
    Slow,
}

const PACES: [Pace; 3] = [Pace::Unknown, Pace::Quick, Pace::Slow];

/// All who stand in line, and what is in flight.
#[derive(Debug, Default)]
pub(super) struct Line {
    rings: [Ring; PACES.len()],
    open: [u32; PACES.len()],
    turn: usize,
}

impl Line {
    /// Puts a lane at the end of its tenant's turn.
    pub(super) fn push(&mut self, pace: Pace, tenant: TenantNo, sub: SubNo) {
        self.rings[pace as usize].push(tenant, sub);
    }

    /// So many attempts more of a lane of that pace are in flight.
    pub(super) fn count(&mut self, pace: Pace, attempts: u32) {
        self.open[pace as usize] += attempts;
    }

    /// So many fewer.
    pub(super) fn uncount(&mut self, pace: Pace, attempts: u32) {
        self.open[pace as usize] -= attempts;
    }

    /// A lane that stands in line has another pace now.
    pub(super) fn change(&mut self, from: Pace, to: Pace, tenant: TenantNo, sub: SubNo) {
        self.rings[from as usize].remove(tenant, sub);
        self.push(to, tenant, sub);
    }

    /// The next lane, of each pace in turn: slow ones while they have less than half of the slots, and these together with the unknown
    /// ones while they have less than three quarters.
    pub(super) fn pop(&mut self, slots: u32) -> Option<(TenantNo, SubNo)> {
        let (unknown, slow) = (self.open[Pace::Unknown as usize], self.open[Pace::Slow as usize]);
        let may_be_doubtful = unknown + slow < (slots.saturating_mul(3) / 4).max(1);
        let may = |pace: &Pace| match pace {
            Pace::Quick => true,
            Pace::Unknown => may_be_doubtful,
            Pace::Slow => may_be_doubtful && slow < (slots / 2).max(1),
        };
        self.turn = (self.turn + 1) % PACES.len();
        let in_turn = PACES.iter().cycle().skip(self.turn).take(PACES.len());
        in_turn.copied().filter(may).find_map(|pace| self.rings[pace as usize].pop())
    }
}

/// Tenants with ready lanes, each with its ready lanes.
#[derive(Debug, Default)]
struct Ring {
    tenants: VecDeque<TenantNo>,
    lanes: HashMap<TenantNo, VecDeque<SubNo>>,
}

impl Ring {
    /// Puts a lane at the end of its tenant's turn.
    fn push(&mut self, tenant: TenantNo, sub: SubNo) {
        let lanes = self.lanes.entry(tenant).or_default();
        if lanes.is_empty() {
            self.tenants.push_back(tenant);
        }
        lanes.push_back(sub);
    }

    /// Takes a lane out before its turn.
    fn remove(&mut self, tenant: TenantNo, sub: SubNo) {
        let Some(lanes) = self.lanes.get_mut(&tenant) else { return };
        lanes.retain(|other| *other != sub);
        if lanes.is_empty() {
            self.lanes.remove(&tenant);
            self.tenants.retain(|other| *other != tenant);
        }
    }

    /// The next tenant's next lane; the tenant goes to the end of the ring.
    fn pop(&mut self) -> Option<(TenantNo, SubNo)> {
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

    // C5.5
    #[test]
    fn slow_and_unknown_lanes_never_have_all_slots() {
        for (slots, slow_at_most, doubtful_at_most) in [(1, 1, 1), (2, 1, 1), (4, 2, 3), (8, 4, 6), (1023, 511, 767)] {
            for (paces, most) in [
                (&[Pace::Slow][..], slow_at_most),
                (&[Pace::Unknown], doubtful_at_most),
                (&[Pace::Slow, Pace::Unknown], doubtful_at_most),
                (&PACES, slots),
            ] {
                let mut line = Line::default();
                for sub in 0..3 * slots {
                    line.push(paces[sub as usize % paces.len()], TenantNo(sub), SubNo(sub));
                }
                let mut open = 0;
                while open < slots
                    && let Some((_, sub)) = line.pop(slots)
                {
                    line.count(paces[sub.0 as usize % paces.len()], 1);
                    open += 1;
                }
                assert_eq!(open, most, "{slots} slots, {paces:?}");
            }
        }
    }
}
