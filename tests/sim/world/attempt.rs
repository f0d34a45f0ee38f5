//! Between claim and outcome: the pool's steps, reading events, attempts.

use super::{Happening, World};
use crate::hold;
use crate::hub::Shown;
use crate::model::{Held, State, Violation};
use crate::receiver::outcome;
use std::sync::Arc;
use streaming_hub::dispatch::pool::Step;
use streaming_hub::engine::PlantedBug;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{ClaimNo, Seq, SubNo};
use streaming_hub::model::job::{Claim, Outcome};

impl World {
    /// The pool is to look within that time.
    pub(super) fn want_pool_step(&mut self, after_ms: u64) {
        let at = self.clocks.now + after_ms;
        let Some(hub) = &mut self.hub else { return };
        if hub.next_pool_step.is_none_or(|next| at < next) {
            hub.next_pool_step = Some(at);
            self.schedule(after_ms, Happening::PoolStep);
        }
    }

    pub(super) fn pool_step(&mut self, at: u64) -> Held {
        let now = self.hub_now();
        let Some(hub) = &mut self.hub else { return Ok(()) };
        if hub.next_pool_step == Some(at) {
            hub.next_pool_step = None;
        }
        let mut steps = Vec::new();
        let ignored = self.options.planted == Some(PlantedBug::GenerationIgnored);
        let shown = Shown { board: &hub.board, planted: ignored.then_some(&hub.claimed_under) };
        hub.pool.step(now, &shown, &mut steps);
        hold!(
            hub.pool.in_flight() <= self.options.slots as usize,
            "C5.5: {} attempts are in flight",
            hub.pool.in_flight()
        );
        self.take_steps(steps)
    }

    pub(super) fn take_steps(&mut self, steps: Vec<Step>) -> Held {
        for step in steps {
            match step {
                Step::Load(claim) => {
                    let after = self.chance.within(0, 2 * self.options.pool_delay_ms);
                    self.schedule(after, Happening::Loaded(claim));
                }
                Step::Begin(claim, event) => self.begin(&claim, &event)?,
                Step::Abandon(claim) => self.note(|| format!("the lease of claim {claim} ran out")),
                Step::Settle(settle) => {
                    self.note(|| format!("settle {} {:.12}", settle.claim, format!("{:?}", settle.outcome)));
                    if let Some(hub) = &mut self.hub {
                        hub.settles.push(settle);
                        let suspended = hub.suspended;
                        let after = self.chance.within(0, 4);
                        if !suspended {
                            self.want_turn(after);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn loaded(&mut self, claim: Claim) -> Held {
        let Some(hub) = &mut self.hub else { return Ok(()) };
        let stored = hub.engine.reader().view().and_then(|view| view.event_at(claim.job.key.log));
        if let Ok(None) = stored {
            return Err(Violation(format!("invariant 16: the event of {claim:?} is not stored")));
        }
        let event = stored.ok().flatten().map(|stored| Arc::new(stored.event));
        let mut steps = Vec::new();
        hub.pool.loaded(claim, event, &mut steps);
        self.want_pool_step(0);
        self.take_steps(steps)
    }

    /// Exactly one attempt (C5.2).
    fn begin(&mut self, claim: &Claim, event: &Arc<Event>) -> Held {
        let (sub, seq) = self.model.begins(claim.no)?;
        self.is_the_right_event(sub, seq, claim, event)?;
        let Some(hub) = &self.hub else { return Ok(()) };
        let Some(subscription) = hub.board.subscription(sub) else {
            return Err(Violation(format!(
                "C5.5: an attempt of {sub}/{seq} begins, and the subscription is not shown"
            )));
        };
        let url = crate::api::sub_url(&subscription);
        hold!(
            url == crate::model::manage::url(&self.model.subs[&sub].spec.sink),
            "C5.5: {sub}/{seq} goes to {url}, which is not the destination now"
        );
        let lease = self.options.lease_ms;
        self.want_pool_step_at_lease(lease + 1);
        if self.producer.killing.contains(&event.id) {
            self.note(|| format!("attempt of {sub}/{seq} (claim {}) will kill the process", claim.no));
            let after = self.chance.within(1, 30);
            self.schedule(after, Happening::Killed);
            return Ok(());
        }
        if self.producer.crashing.contains(&event.id) {
            self.note(|| format!("attempt of {sub}/{seq} (claim {}) will crash", claim.no));
            let after = self.chance.within(1, 30);
            self.schedule(after, Happening::Ended(claim.no, Outcome::Crashed));
            return Ok(());
        }
        let reply = self.receivers.reply(&url, sub, event.id);
        self.note(|| format!("attempt of {sub}/{seq} (claim {}) at {url}: {:?}", claim.no, reply.told));
        if let Some(after) = reply.after_ms {
            let outcome = outcome(&reply.told, self.wall(), after);
            self.schedule(after, Happening::Ended(claim.no, outcome));
        }
        Ok(())
    }

    fn want_pool_step_at_lease(&mut self, after_ms: u64) {
        self.schedule(after_ms, Happening::PoolStep);
    }

    fn is_the_right_event(&self, sub: SubNo, seq: Seq, claim: &Claim, event: &Event) -> Held {
        let model = &self.model.subs[&sub];
        let expected = &self.model.tenants[&model.tenant][seq.0 as usize - 1];
        hold!(*event == *expected.event, "invariant 6: {sub}/{seq} sends {event:?}, not {:?}", expected.event);
        let job = &self.model.jobs[&(sub, seq)];
        hold!(job.state == State::Claimed(claim.no), "invariant 12: {sub}/{seq} is {:?}", job.state);
        hold!(
            (claim.job.steps_used, claim.job.cause) == (job.steps, job.cause),
            "C9.3: {sub}/{seq} says {:?}, and it is {job:?}",
            claim.job
        );
        Ok(())
    }

    pub(super) fn ended(&mut self, claim: ClaimNo, outcome: Outcome) {
        let Some(hub) = &mut self.hub else { return };
        let mut steps = Vec::new();
        hub.pool.ended(claim, outcome, &mut steps);
        // Settles only: nothing to refuse.
        let _ = self.take_steps(steps);
        self.want_pool_step(0);
    }
}
