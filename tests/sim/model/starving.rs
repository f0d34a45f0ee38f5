//! Whether somebody is passed over again and again while others are served (invariant 13).

use super::{Held, Model};
use crate::hold;
use std::collections::BTreeMap;
use streaming_hub::model::ids::SubNo;
use streaming_hub::time::HubTime;

impl Model {
    /// Counts, for each lane that waits for nothing but a slot, what others were given meanwhile. Turns go round, so that cannot be more than
    /// a few for each of the others.
    pub fn nobody_starves(&mut self, now: HubTime, given: &BTreeMap<SubNo, u32>) -> Held {
        let all: u32 = given.values().sum();
        if all == 0 {
            return Ok(());
        }
        let numbers: Vec<SubNo> = self.subs.keys().copied().collect();
        let most = 4 * numbers.len() * numbers.len() + 4 * self.rules.slots as usize;
        for no in numbers {
            let waits = !given.contains_key(&no) && self.waits_only_for_a_slot(no, now);
            let sub = self.subs.get_mut(&no).unwrap();
            sub.passed_over = if waits { sub.passed_over + all as usize } else { 0 };
            hold!(
                sub.passed_over <= most,
                "invariant 13: {no} could be claimed for at {}, and others were {} times: {sub:?}",
                now.0,
                sub.passed_over
            );
        }
        Ok(())
    }
}
