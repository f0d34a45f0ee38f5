//! A turn of the writer: a batch, one commit, its answers against the model's.

use super::{Happening, InDoubt, World};
use crate::hold;
use crate::hub::{Asker, batch};
use crate::model::claim::Claimed;
use crate::model::{Answer, Answers, Asked, Held};
use streaming_hub::engine::Applied;
use streaming_hub::engine::command::{AdmitResult, BreakerState, Managed, Refusal};
use streaming_hub::model::job::Cause;
use streaming_hub::model::replay::ReplayState;
use streaming_hub::time::HubTime;

/// Turns in a row in which nothing was asked, nothing was claimed, and more was wanted: beyond it, and beyond those in which a refill reads
/// all rows there are, somebody runs in circles.
const IDLE_TURNS: usize = 25;

impl World {
    /// The writer is to have a turn within that time.
    pub(super) fn want_turn(&mut self, after_ms: u64) {
        let at = self.clocks.now + after_ms;
        let Some(hub) = &mut self.hub else { return };
        if hub.next_turn.is_none_or(|next| at < next) {
            hub.next_turn = Some(at);
            self.schedule(after_ms, Happening::Turn);
        }
    }

    pub(super) fn turn(&mut self, at: u64) -> Held {
        let Some(hub) = &mut self.hub else { return Ok(()) };
        if hub.next_turn != Some(at) || hub.suspended {
            return Ok(());
        }
        hub.next_turn = None;
        // A commit that may fail has its own hub time: by it a batch is recognised whose outcome was not known.
        // A failure may be swallowed by one commit and be met by the next, when the disk is well again: so in every world with such faults.
        let may_fail = self.options.faults.cuts + self.options.faults.disk > 0;
        while may_fail && hub.clock.now(&self.clocks) <= self.model.committed {
            self.clocks.now += 1;
        }
        let now = self.hub_now();
        let wall = self.wall();
        let Some(hub) = &mut self.hub else { return Ok(()) };
        let (asked, askers) = hub.drain(&mut self.chance);
        let timer = hub.wake_at.is_some_and(|at| at <= now);
        let mut applied_batch = batch(&asked, wall);
        let result = hub.engine.apply(now, wall, &mut applied_batch);
        self.report.turns += 1;
        self.note(|| format!("turn at {}: {} {}", now.0, describe(&asked), if timer { "(timer)" } else { "" }));
        if self.disk.is_cut() {
            self.in_doubt = Some(InDoubt { now, wall, asked });
            return self.power_is_gone();
        }
        match result {
            Ok(applied) => {
                if let Some(hub) = &mut self.hub {
                    hub.settles.clear();
                }
                self.answered(now, &asked, &askers, applied)
            }
            Err(error) => {
                self.note(|| format!("the store failed: {error}"));
                self.in_doubt = Some(InDoubt { now, wall, asked });
                self.suspend(&askers);
                Ok(())
            }
        }
    }

    fn answered(&mut self, now: HubTime, asked: &Asked, askers: &[Asker], applied: Applied) -> Held {
        let wall = self.wall();
        let before = self.model.totals.clone();
        let expected = self.model.apply(now, wall, asked);
        compare(&expected, &applied)?;
        self.memory_is_bounded(&applied)?;
        let counted = (self.model.totals.events - before.events, self.model.totals.duplicates - before.duplicates);
        hold!(
            (applied.counts.accepted, applied.counts.duplicates) == counted,
            "C3.2: counted {:?}, expected {counted:?}",
            applied.counts
        );
        let taken = applied.claims.len();
        let mut of_lane = std::collections::BTreeMap::new();
        for claim in &applied.claims {
            let count = of_lane.entry(claim.job.key.sub).or_insert(0);
            *count += 1;
            hold!(*count <= self.model.rules.claim_batch, "bounded work: {count} claims of one lane in one commit");
        }
        for claim in applied.claims {
            let claimed = Claimed { no: claim.no, sub: claim.job.key.sub, seq: claim.job.seq };
            self.note(|| format!("claim {} of {}/{}", claim.no, claimed.sub, claimed.seq));
            self.model.claimed(now, claimed)?;
            if let Some(hub) = &mut self.hub {
                hub.claimed_under.insert(claimed.sub, claim.generation);
                hub.pool.take(claim);
            }
        }
        self.model.nobody_starves(now, &of_lane)?;
        if taken > 0 || !asked.manages.is_empty() {
            let after = self.chance.within(0, self.options.pool_delay_ms);
            self.want_pool_step(after);
        }
        for (asker, answer) in askers.iter().zip(&expected.admits) {
            self.tell(*asker, answer.is_ok());
        }
        let nothing = taken == 0
            && !expected.worked
            && asked.manages.is_empty()
            && asked.settles.is_empty()
            && asked.admits.is_empty();
        let Some(hub) = &mut self.hub else { return Ok(()) };
        hub.idle_turns = if nothing && applied.more { hub.idle_turns + 1 } else { 0 };
        hold!(
            hub.idle_turns < IDLE_TURNS + self.model.jobs.len() / self.options.pending_max,
            "bounded work: {} turns in a row had more to do and did nothing",
            hub.idle_turns
        );
        hub.more = applied.more;
        hub.wake_at = applied.wake_at;
        let behind = !hub.manages.is_empty() || !hub.admits.is_empty();
        if let Some(at) = applied.wake_at {
            hold!(
                at > now,
                "bounded work: the writer is to wake at {}, and it is {}: it would never sleep",
                at.0,
                now.0
            );
            self.want_turn(at.since_ms(now));
        }
        if applied.more || behind {
            self.want_turn(1);
        }
        Ok(())
    }

    /// Invariant 22: what may be in memory, twice (jobs never attempted, and failed ones), with a head for every lane, what was in flight,
    /// and what is there on somebody's demand.
    fn memory_is_bounded(&mut self, applied: &Applied) -> Held {
        let (most, slots) = (self.options.pending_max, self.options.slots as usize);
        let lanes = self.model.subs.len();
        let on_demand = self.model.jobs.values().filter(|job| job.cause != Cause::Match).count();
        let filled: usize =
            self.model.subs.values().filter_map(|sub| self.model.tenants.get(&sub.tenant)).map(Vec::len).sum();
        let bound = 2 * (most + lanes.max(most / 8) + slots) + on_demand + filled;
        for hub in applied.manages.iter().filter_map(|answer| match answer {
            Ok(Managed::Hub(hub)) => Some(hub),
            Ok(_) | Err(_) => None,
        }) {
            self.report.beyond_memory += u64::from(hub.in_memory < hub.unfinished - hub.in_flight);
            hold!(hub.in_memory <= bound as u64, "invariant 22: {} jobs are in memory, of {bound}", hub.in_memory);
        }
        Ok(())
    }

    /// The store failed: everybody who waits is refused, outcomes are kept, and it is opened again.
    fn suspend(&mut self, askers: &[Asker]) {
        let Some(hub) = &mut self.hub else { return };
        hub.suspended = true;
        hub.next_turn = None;
        hub.manages.clear();
        let waiting: Vec<Asker> = hub.admits.drain(..).map(|(asker, _)| asker).collect();
        for asker in askers.iter().copied().chain(waiting) {
            self.tell(asker, false);
        }
        self.schedule(100, Happening::Reopen);
    }

    /// Somebody gets an answer.
    pub(super) fn tell(&mut self, asker: Asker, stored: bool) {
        match asker {
            Asker::Source(number) => self.sources[number].answered(stored),
            Asker::Http => {}
        }
    }
}

/// C3, C4: every answer is the one that the model gives.
fn compare(expected: &Answers, applied: &Applied) -> Held {
    let manages: Vec<_> =
        applied.manages.iter().map(|answer| answer.as_ref().map(shown).map_err(Clone::clone)).collect();
    hold!(manages == expected.manages, "C4: answered {manages:?}, expected {:?}", expected.manages);
    let admits: Vec<Result<Vec<AdmitResult>, Refusal>> = applied
        .admits
        .iter()
        .map(|answer| answer.as_ref().map(|admitted| admitted.results.clone()).map_err(Clone::clone))
        .collect();
    hold!(admits == expected.admits, "C3: answered {admits:?}, expected {:?}", expected.admits);
    let dead: u64 = applied.counts.dead.iter().map(|(_, count)| count).sum();
    let counted = (applied.counts.delivered, dead, applied.counts.stale_settles);
    let right = (expected.delivered, expected.dead, expected.stale);
    hold!(counted == right, "C6.3: counted {counted:?} delivered, dead and stale, expected {right:?}");
    Ok(())
}

fn shown(managed: &Managed) -> Answer {
    match managed {
        Managed::Subscription { subscription, skipped } => Answer::Subscription {
            revision: subscription.revision,
            live: subscription.is_live(),
            skipped: skipped.map(|skipped| (skipped.from.0, skipped.to.0)),
        },
        Managed::Deleted => Answer::Deleted,
        Managed::Redriven(count) => Answer::Redriven(*count),
        Managed::Replay(replay) => Answer::Replay { done: replay.done, running: replay.state == ReplayState::Running },
        Managed::Lane(lane) => Answer::Lane {
            waiting: lane.waiting,
            in_flight: lane.in_flight,
            held: lane.hold_until.is_some(),
            breaker_open: lane.breaker != BreakerState::Closed,
            failures: lane.health.span.as_ref().map_or(0, |span| span.failures),
            probing: lane.breaker == BreakerState::Probing,
        },
        Managed::Hub(hub) => Answer::Hub {
            unfinished: hub.unfinished,
            in_flight: hub.in_flight,
            subscriptions: hub.subscriptions,
            breakers_open: hub.breakers_open,
        },
        Managed::ApiKey(_) | Managed::Done | Managed::Breakers(_) | Managed::Healths { .. } => Answer::Other,
    }
}

fn describe(asked: &Asked) -> String {
    let manages: Vec<String> = asked.manages.iter().map(|ask| format!("{ask:?}").chars().take(160).collect()).collect();
    let settles: Vec<String> =
        asked.settles.iter().map(|s| format!("{} {:.12}", s.claim, format!("{:?}", s.outcome))).collect();
    let admits: Vec<String> = asked
        .admits
        .iter()
        .map(|admit| {
            let from = admit.from.as_ref().map(|step| (step.partition, step.from, step.next));
            format!("{from:?}x{}", admit.records.len())
        })
        .collect();
    format!("manages {manages:?} settles {settles:?} admits {admits:?}")
}
