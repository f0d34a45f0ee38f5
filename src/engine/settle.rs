//! Outcomes: the claim is checked, the rules decide, the job's row is removed, moved to its next time, or moved to the dead.

use super::Counts;
use super::core::{Core, Effects, OpenJob};
use super::health::Happened;
use super::lane::Taken;
use super::lanes::DestNo;
use super::ring::Pace;
use crate::model::attempt::{AttemptRecord, ErrorClass};
use crate::model::ids::{Generation, SubNo};
use crate::model::job::{Cause, DeadLetter, DeadReason, Job, JobKey, Outcome, Settle};
use crate::model::limits::{ANSWER_KEPT_BYTES, HOLD_MAX_MS, JOB_ATTEMPTS_KEPT};
use crate::model::notice::{Notice, NoticeKind};
use crate::rules::backoff::{self, Next, Schedule};
use crate::rules::breaker::{self, Breaker};
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::HubTime;

/// An attempt above this makes its lane a slow one (C5.5).
const SLOW_MS: u32 = 1000;

/// A job that only ever meets 429 lives at least so long after its first attempt (C9.6).
const HELD_LIFE_MS: u64 = 28 * 3600 * 1000;

impl Core {
    pub(super) fn settle(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        settle: &Settle,
        effects: &mut Effects,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let known = self.open.get(settle.claim).is_some_and(|open| open.key == settle.key);
        let Some(open) = known.then(|| self.open.remove(settle.claim)).flatten() else {
            counts.stale_settles += 1;
            return Ok(());
        };
        if open.gone {
            self.lanes.count_gone_closed();
            counts.stale_settles += 1;
            return Ok(());
        }
        txn.remove_claim(settle.claim)?;
        let sub = settle.key.sub;
        let pace = match &settle.outcome {
            Outcome::Delivered(attempt) if attempt.duration_ms > SLOW_MS => Some(Pace::Slow),
            Outcome::Delivered(_) => Some(Pace::Quick),
            Outcome::Failed { .. } | Outcome::Crashed => Some(Pace::Slow),
            Outcome::Held { .. } | Outcome::Hopeless { .. } | Outcome::Released => None,
        };
        self.lanes.count_closed(sub, pace);
        if let Some(job) = txn.job(settle.key)? {
            self.settle_job(txn, now, settle, job, open, effects, counts)?;
        }
        // What the old URL said is not about the new one, success or not.
        if !self.is_of_an_older_destination(sub, open) {
            self.note_outcome(txn, now, settle)?;
        }
        self.move_breaker(txn, now, settle, open, effects, counts)?;
        self.end_alone(settle.key, now);
        self.lanes.look(sub, now);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one settle in all its parts; a struct would only rename them")]
    fn settle_job(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        settle: &Settle,
        mut job: Job,
        open: OpenJob,
        effects: &mut Effects,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let JobKey { log, sub } = settle.key;
        match &settle.outcome {
            Outcome::Delivered(_) => {
                txn.remove_job(settle.key)?;
                if job.cause == Cause::Replay {
                    txn.remove_dead(sub, log)?;
                }
                self.lanes.tried(sub, log);
                counts.delivered += 1;
            }
            Outcome::Failed { .. } | Outcome::Held { .. } if self.is_of_an_older_destination(sub, open) => {
                // What the old URL said is not about the new one: no step, no wait. That the worker lives is (C5.6).
                if job.reclaims > 0 {
                    job.reclaims = 0;
                    txn.put_job(settle.key, &job)?;
                }
                self.lanes.put_back(sub, log, open.from, job.cause);
            }
            Outcome::Failed { attempt, not_before_ms } => {
                note_attempt(&mut job, attempt, now);
                job.steps_used = job.steps_used.saturating_add(1);
                self.lanes.tried(sub, log);
                match backoff::next(&self.schedule_of(sub), job.steps_used, self.entropy.next_u64()) {
                    Next::Wait { ms } => {
                        job.due = now.plus_ms(ms.max(not_before_ms.unwrap_or(0).min(HOLD_MAX_MS)));
                        self.wait_for_retry(txn, settle.key, &job)?;
                    }
                    Next::Exhausted => self.die(txn, now, settle.key, job, DeadReason::Exhausted, counts)?,
                }
            }
            Outcome::Held { attempt, hold_ms } => {
                note_attempt(&mut job, attempt, now);
                let life = HELD_LIFE_MS.max(self.schedule_of(sub).total_ms());
                if job.first_attempt.is_some_and(|first| now.since_ms(first) > life) {
                    self.die(txn, now, settle.key, job, DeadReason::Exhausted, counts)?;
                } else {
                    txn.put_job(settle.key, &job)?;
                    self.lanes.put_back(sub, log, open.from, job.cause);
                }
                self.hold(txn, sub, now.plus_ms((*hold_ms).min(HOLD_MAX_MS)), effects)?;
            }
            Outcome::Hopeless { attempt, reason } => {
                note_attempt(&mut job, attempt, now);
                self.die(txn, now, settle.key, job, *reason, counts)?;
            }
            Outcome::Released => {
                self.lanes.put_back(sub, log, open.from, job.cause);
                if job.reclaims >= 2 {
                    self.lanes.suspect(sub, log);
                }
            }
            Outcome::Crashed => {
                job.reclaims = job.reclaims.saturating_add(1);
                if job.reclaims >= self.settings.poison_threshold {
                    self.die(txn, now, settle.key, job, DeadReason::Poison, counts)?;
                } else {
                    txn.put_job(settle.key, &job)?;
                    // As a due one, so that a head that keeps crashing does not keep later ones waiting.
                    self.lanes.put_back(sub, log, Taken::Due, job.cause);
                    if job.reclaims >= 2 {
                        self.lanes.suspect(sub, log);
                    }
                }
            }
        }
        Ok(())
    }

    fn wait_for_retry(&mut self, txn: &mut Txn<'_>, key: JobKey, job: &Job) -> Result<(), StoreError> {
        txn.put_job(key, job)?;
        self.lanes.push_retry(key.sub, key.log, job.due, job.cause);
        Ok(())
    }

    /// Moves a job to the dead letters (C6.3).
    pub(super) fn die(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        key: JobKey,
        job: Job,
        reason: DeadReason,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        txn.remove_job(key)?;
        self.lanes.tried(key.sub, key.log);
        let Job { seq, steps_used, attempts, .. } = job;
        txn.put_dead(key.sub, key.log, &DeadLetter { seq, reason, died_at: now, steps_used, attempts })?;
        counts.die(reason);
        self.health.count(key.sub, Happened::Died, now);
        if reason == DeadReason::Poison {
            self.tell_of_poison(txn, now, key.sub, seq)?;
        }
        Ok(())
    }

    /// Holds a whole subscription (C9.6); claims not yet begun go back, by the generation.
    fn hold(&mut self, txn: &mut Txn<'_>, sub: SubNo, until: HubTime, effects: &mut Effects) -> Result<(), StoreError> {
        let Some(lane) = self.lanes.get_mut(sub) else { return Ok(()) };
        lane.hold_until = lane.hold_until.max(until);
        txn.set_hold(sub, Some(lane.hold_until))?;
        self.raise_generation(sub, effects);
        Ok(())
    }

    /// Makes claims not yet begun go back, without a change of the subscription itself.
    pub(super) fn raise_generation(&mut self, sub: SubNo, effects: &mut Effects) {
        let (Some(shown), Some(lane)) = (self.subs.get_mut(&sub), self.lanes.get_mut(sub)) else { return };
        lane.generation = Generation(lane.generation.0 + 1);
        let mut raised = (**shown).clone();
        raised.generation = lane.generation;
        *shown = raised.into();
        effects.show.push(shown.clone());
    }

    fn move_breaker(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        settle: &Settle,
        open: OpenJob,
        effects: &mut Effects,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let Some(lane) = self.lanes.get(settle.key.sub) else { return Ok(()) };
        let no = lane.dest;
        if open.place != lane.place && !open.probes {
            return Ok(());
        }
        let policy = self.settings.breaker;
        let due = self.lanes.due_at(no);
        let dest = self.lanes.dest_mut(no);
        let before = dest.breaker;
        let (was_closed, was_open) = (matches!(before, Breaker::Closed { .. }), matches!(before, Breaker::Open { .. }));
        let after = match &settle.outcome {
            Outcome::Delivered(_) => before.on_success(),
            Outcome::Held { .. } => before.on_held(),
            Outcome::Failed { attempt, .. } => match attempt.error {
                Some(ErrorClass::DestinationBlocked) => before.on_blocked(&policy, now),
                Some(class) if breaker::counts(&class) => before.on_failure(&policy, now),
                Some(_) | None => before,
            },
            Outcome::Hopeless { .. } | Outcome::Released | Outcome::Crashed if open.probes => {
                before.probe_ended_without_outcome(now)
            }
            Outcome::Hopeless { .. } | Outcome::Released | Outcome::Crashed => before,
        };
        let opened = !was_open && matches!(after, Breaker::Open { .. });
        dest.breaker = if opened { after.having_shed(due) } else { after };
        counts.shed += if opened { due } else { 0 };
        let is_closed = matches!(dest.breaker, Breaker::Closed { .. });
        // A breaker that stays closed, or an open one that hears of another old attempt, writes nothing.
        if (is_closed && was_closed) || (was_open && !is_closed) {
            return Ok(());
        }
        let (tenant, name) = (dest.tenant, dest.name.clone());
        let row = (!is_closed).then_some(dest.breaker);
        txn.set_breaker(tenant, &name, row.as_ref())?;
        counts.breakers_opened += u64::from(was_closed);
        if opened && was_closed {
            self.tell_of_breaker(txn, now, no, settle)?;
            // Claims not yet begun go back (C5.4).
            for sub in self.lanes.dest(no).lanes.clone() {
                self.raise_generation(sub, effects);
            }
        }
        self.lanes.look_at_dest(no, now);
        Ok(())
    }

    /// Once for a destination and window (C7).
    fn tell_of_breaker(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        no: DestNo,
        settle: &Settle,
    ) -> Result<(), StoreError> {
        let dest = self.lanes.dest(no);
        let id = self.subs.get(&settle.key.sub).map(|subscription| subscription.id.to_string()).unwrap_or_default();
        let others = dest.lanes.len().saturating_sub(1);
        let detail = format!(
            "deliveries to {} wait: attempts failed, the last one for {id}, and {others} other subscriptions go there",
            dest.name
        );
        let notice = Notice {
            tenant: self.tenants.name(dest.tenant).map(str::to_owned),
            last_error: settle.outcome.error_class().map(|class| class.code().to_owned()),
            ..Notice::about(NoticeKind::BreakerOpened, dest.name.clone(), now, detail)
        };
        self.raise(txn, now, notice).map(drop)
    }

    fn schedule_of(&self, sub: SubNo) -> Schedule {
        let own = self.subs.get(&sub).map(|subscription| &subscription.spec.retry_schedule);
        own.map_or_else(|| self.settings.schedule.clone(), |own| Schedule::of(own, &self.settings.schedule))
    }

    fn is_of_an_older_destination(&self, sub: SubNo, open: OpenJob) -> bool {
        self.lanes.get(sub).is_some_and(|lane| lane.place != open.place)
    }
}

/// Keeps a failed attempt with its job: the newest in full, the ones before without their answers. Any outcome clears the crash count (C5.6).
fn note_attempt(job: &mut Job, attempt: &AttemptRecord, now: HubTime) {
    job.reclaims = 0;
    job.first_attempt.get_or_insert(now);
    for earlier in &mut job.attempts {
        earlier.answer.clear();
    }
    let mut kept = attempt.clone();
    kept.answer.truncate(ANSWER_KEPT_BYTES);
    job.attempts.push(kept);
    let excess = job.attempts.len().saturating_sub(JOB_ATTEMPTS_KEPT);
    job.attempts.drain(..excess);
}
