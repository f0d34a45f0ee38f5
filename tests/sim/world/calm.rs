//! The liveness pass: faults stop, receivers are well, everything is resumed; then everything that is pending has to be settled within a
//! bound, and nothing may be left of the work: no claim, no probe under way, no job in a lane.

use super::World;
use crate::check;
use crate::hold;
use crate::model::breaker::BreakerModel;
use crate::model::{Ask, Held, State};
use std::collections::BTreeSet;
use streaming_hub::model::job::DeadReason;

/// Happenings that a world takes at most to become quiet.
const QUIET_WITHIN: u64 = 60_000;
/// Beside the waits that the rules allow, so long for all the work itself.
const WORK_MS: u64 = 3_600_000;
/// The longest hold of a 429 (C9.6).
const HOLD_MS: u64 = 3_600_000;

impl World {
    /// Faults stop, receivers are well, everything is resumed: then all must become quiet, soon.
    pub(super) fn calm_down(&mut self) -> Held {
        self.note(|| "--- faults stop".to_owned());
        self.acting = false;
        self.disk.heal();
        self.receivers.heal();
        let until = self.clocks.now + self.longest_wait() + WORK_MS;
        let mut steps = 0;
        loop {
            while let Some(at) = self.next_at()
                && (at <= self.clocks.now + 1_000 || !self.is_quiet())
            {
                self.happen()?;
                steps += 1;
                hold!(steps < QUIET_WITHIN, "liveness: not quiet after {steps} events: {}", self.what_is_left());
                hold!(self.clocks.now < until, "liveness: not quiet in time: {}", self.what_is_left());
            }
            if self.is_quiet() {
                return Ok(());
            }
            hold!(self.next_at().is_some(), "liveness: nothing will happen any more, and {}", self.what_is_left());
        }
    }

    /// The longest that any one thing may have to wait: for its next step, for the end of a hold, for a probe, for leases.
    fn longest_wait(&self) -> u64 {
        let schedules = self.model.subs.keys().map(|no| self.model.schedule(*no));
        let step = schedules.flatten().max().unwrap_or(0);
        step.max(HOLD_MS) + HOLD_MS + self.options.breaker.cooling_max_ms + 4 * self.options.lease_ms
    }

    fn is_quiet(&self) -> bool {
        let Some(hub) = &self.hub else { return false };
        let unfinished = self.model.jobs.iter().any(|((sub, _), job)| {
            matches!(job.state, State::Waiting | State::Claimed(_)) && self.model.subs[sub].is_live()
        });
        let unread = (0..self.sources.len()).any(|number| self.is_unread(number));
        let asleep = self.model.subs.values().any(|sub| !sub.deleted && !sub.is_live());
        !unfinished
            && !unread
            && !asleep
            && self.model.replays.is_empty()
            && hub.is_idle(self.hub_now())
            && hub.pool.is_empty()
            && hub.stopping.is_none()
    }

    pub(super) fn is_unread(&self, number: usize) -> bool {
        let source = &self.sources[number];
        let key = (source.topic.clone(), source.topic_id, source.partition);
        !source.is_read(self.model.positions.get(&key).copied()) || source.asked > 0
    }

    fn what_is_left(&self) -> String {
        let jobs: Vec<_> =
            self.model.jobs.iter().filter(|(_, job)| matches!(job.state, State::Waiting | State::Claimed(_))).collect();
        let hub = self.hub.as_ref().map(|hub| (hub.wake_at, hub.more, hub.suspended, hub.stopping, hub.next_turn));
        format!(
            "{} jobs, first {:?}; {} claims; {} replays, first {:?}; {hub:?} at {:?}",
            jobs.len(),
            jobs.first(),
            self.model.claims.len(),
            self.model.replays.len(),
            self.model.replays.first_key_value(),
            self.hub_now()
        )
    }

    /// The last look: a kill, a start, nothing left over, and every receiver has what it had to get.
    pub(super) fn end(&mut self) -> Held {
        self.says_that_nothing_is_left()?;
        self.rest()?;
        let dump = self.dump()?;
        check::nothing_is_left_over(&self.model, &dump)?;
        self.kill()?;
        self.start()?;
        self.rest()?;
        self.every_receiver_got_its_events()?;
        self.every_partition_is_stored()?;
        self.only_crashing_events_are_poison()?;
        self.report.totals = self.model.totals.clone();
        Ok(())
    }

    /// Invariants 12 and 14 by what the hub shows; its answers are compared with the model's, in which nothing may be left either.
    fn says_that_nothing_is_left(&mut self) -> Held {
        let lanes = self.model.subs.iter().filter(|(_, sub)| !sub.deleted).map(|(no, _)| Ask::Inspect(*no));
        let asks: Vec<Ask> = lanes.chain([Ask::InspectHub]).collect();
        if let Some(hub) = &mut self.hub {
            hub.manages.extend(asks);
        }
        self.want_turn(0);
        while self.hub.as_ref().is_some_and(|hub| !hub.manages.is_empty()) {
            self.happen()?;
        }
        let waiting = self.model.waiting();
        hold!(waiting == 0, "liveness: {waiting} jobs are left");
        hold!(self.model.claims.is_empty(), "liveness: claims are left: {:?}", self.model.claims);
        let probing = |breaker: &&BreakerModel| matches!(breaker, BreakerModel::Probing { .. });
        let probing = self.model.breakers.values().find(probing);
        hold!(probing.is_none(), "invariant 14: a breaker probes for ever: {probing:?}");
        Ok(())
    }

    /// Invariant 23: where nothing else brings a worker or the process down, only what crashes its worker is given up for it.
    fn only_crashing_events_are_poison(&self) -> Held {
        let crate::options::Faults { cuts, disk, kills, receivers, killers, .. } = self.options.faults;
        if cuts + disk + kills + receivers + killers > 0 {
            return Ok(());
        }
        for ((no, seq), job) in &self.model.jobs {
            let event = &self.model.tenants[&self.model.subs[no].tenant][seq.0 as usize - 1].event;
            let crashes = self.producer.crashing.contains(&event.id);
            let is_poison = job.state == State::Dead(DeadReason::Poison);
            hold!(crashes || !is_poison, "invariant 23: {no}/{seq} is poison, and crashes nobody");
            hold!(!crashes || job.state != State::Delivered, "invariant 23: {no}/{seq} crashes, and is delivered");
        }
        Ok(())
    }

    /// Invariants 1, 7 and 8, by what arrived outside.
    fn every_receiver_got_its_events(&mut self) -> Held {
        for ((no, seq), job) in &self.model.jobs {
            let sub = &self.model.subs[no];
            let event = &self.model.tenants[&sub.tenant][seq.0 as usize - 1].event;
            let received = self.receivers.received.get(&(*no, event.id)).copied().unwrap_or_default();
            let most = 1 + received.unanswered + job.lost + job.again;
            self.report.repeats += u64::from(received.taken.saturating_sub(1 + job.again));
            hold!(
                received.taken <= most,
                "invariant 8: {no}/{seq} arrived {} times, {most} at most were right: {job:?}",
                received.taken
            );
            hold!(
                job.state != State::Delivered || received.taken > 0,
                "invariant 7: {no}/{seq} is delivered and never arrived"
            );
        }
        let known: BTreeSet<_> = self.model.jobs.keys().copied().collect();
        for (no, id) in self.receivers.received.keys() {
            let sub = &self.model.subs[no];
            let seq = self.model.ids.get(&(sub.tenant.clone(), *id));
            let matched = seq.is_some_and(|seq| known.contains(&(*no, *seq)));
            hold!(matched, "invariant 6: {id} arrived at {no} of {}, which did not match it", sub.tenant);
        }
        Ok(())
    }

    /// Invariants 1 and 2, by what the broker held.
    fn every_partition_is_stored(&self) -> Held {
        for source in &self.sources {
            let key = (source.topic.clone(), source.topic_id, source.partition);
            let position = self.model.positions.get(&key).copied().unwrap_or(0);
            for event in source.brought_below(position) {
                let stored = self.model.ids.contains_key(&(event.tenant.to_string(), event.id));
                hold!(stored, "invariant 1: {} of partition {} was passed and not stored", event.id, source.partition);
            }
        }
        Ok(())
    }
}
