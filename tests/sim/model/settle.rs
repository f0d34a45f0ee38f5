//! Outcomes, as C5 to C7 and C9.6 tell it.

use super::breaker::BreakerModel;
use super::health::NoticeModel;
use super::manage::url;
use super::replay::Letter;
use super::{Answers, ClaimModel, Model, State};
use std::collections::BTreeSet;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::ids::{Seq, SubNo};
use streaming_hub::model::job::{Cause, DeadReason, Outcome, Settle};
use streaming_hub::model::notice::NoticeKind;
use streaming_hub::time::HubTime;

const HOUR_MS: u64 = 3_600_000;

impl Model {
    pub(super) fn settle(
        &mut self,
        now: HubTime,
        settle: &Settle,
        answers: &mut Answers,
        failed: &mut BTreeSet<SubNo>,
    ) {
        let Some(claim) = self.claims.remove(&settle.claim) else {
            answers.stale += 1;
            self.gone.remove(&settle.claim);
            self.totals.stale += 1;
            return;
        };
        let key = (claim.sub, claim.seq);
        let (moved, old) = {
            let sub = &self.subs[&claim.sub];
            (sub.destination(), claim.url != url(&sub.spec.sink))
        };
        if let Some(slow) = slow(&settle.outcome) {
            self.subs.get_mut(&claim.sub).unwrap().slow = Some(slow);
        }
        if let Some(job) = self.jobs.get_mut(&key) {
            job.state = State::Waiting;
        }
        match &settle.outcome {
            Outcome::Delivered(_) => {
                self.end(key, State::Delivered);
                let job = self.jobs.get_mut(&key).unwrap();
                if job.cause == Cause::Replay {
                    job.letter = None;
                }
                self.totals.delivered += 1;
                answers.delivered += 1;
            }
            // An old URL's failure says nothing about the new one.
            Outcome::Failed { .. } | Outcome::Held { .. } if old => self.jobs.get_mut(&key).unwrap().reclaims = 0,
            Outcome::Failed { not_before_ms, .. } => {
                let schedule = self.schedule(claim.sub);
                let job = self.jobs.get_mut(&key).unwrap();
                job.note(now);
                job.steps += 1;
                match schedule.get(usize::from(job.steps)) {
                    Some(step) => {
                        let least = not_before_ms.unwrap_or(0).min(HOUR_MS);
                        job.due = (now.plus_ms(least), now.plus_ms(least.max(*step)));
                        job.fresh = false;
                    }
                    None => self.die(now, key, DeadReason::Exhausted, answers),
                }
            }
            Outcome::Held { hold_ms, .. } => {
                let life = (28 * HOUR_MS).max(self.schedule(claim.sub).iter().sum());
                let job = self.jobs.get_mut(&key).unwrap();
                job.note(now);
                let first = job.first_attempt.unwrap();
                if now.since_ms(first) > life {
                    self.die(now, key, DeadReason::Exhausted, answers);
                }
                let sub = self.subs.get_mut(&claim.sub).unwrap();
                sub.hold_until = sub.hold_until.max(now.plus_ms((*hold_ms).min(HOUR_MS)));
                sub.changes += 1;
            }
            Outcome::Hopeless { reason, .. } => self.die(now, key, *reason, answers),
            Outcome::Released => {}
            Outcome::Crashed => {
                let threshold = self.rules.poison_threshold;
                let job = self.jobs.get_mut(&key).unwrap();
                job.reclaims += 1;
                job.lost += 1;
                job.fresh = false;
                if job.reclaims >= threshold {
                    self.die(now, key, DeadReason::Poison, answers);
                    self.tell_of_poison(key.0, now);
                }
            }
        }
        if !old {
            self.note_health(now, key, &settle.outcome, failed);
        }
        if !old || claim.probes {
            self.move_breaker(now, &moved, &claim, &settle.outcome);
        }
    }

    /// C8.2: at the place where events go now.
    fn note_health(&mut self, now: HubTime, key: (SubNo, Seq), outcome: &Outcome, failed: &mut BTreeSet<SubNo>) {
        let health = &mut self.subs.get_mut(&key.0).unwrap().health;
        match outcome {
            Outcome::Delivered(_) => health.succeeded(),
            Outcome::Failed { attempt, .. } => {
                if let Some(error) = attempt.error.filter(|error| super::health::counts(*error)) {
                    health.failed(now, error, key.1);
                    failed.insert(key.0);
                }
            }
            Outcome::Held { .. } | Outcome::Hopeless { .. } | Outcome::Released | Outcome::Crashed => {}
        }
    }

    fn end(&mut self, key: (SubNo, Seq), state: State) {
        self.jobs.get_mut(&key).unwrap().state = state;
    }

    pub(super) fn die(&mut self, now: HubTime, key: (SubNo, Seq), reason: DeadReason, answers: &mut Answers) {
        self.end(key, State::Dead(reason));
        let job = self.jobs.get_mut(&key).unwrap();
        job.letter = Some(Letter { reason, steps: job.steps, died_at: now });
        answers.dead += 1;
        self.totals.dead += 1;
        self.totals.poisoned_jobs += u64::from(reason == DeadReason::Poison);
    }

    fn move_breaker(&mut self, now: HubTime, at: &(String, String), claim: &ClaimModel, outcome: &Outcome) {
        let before = self.breakers.get(at).copied().unwrap_or(BreakerModel::Closed { failures: 0 });
        let policy = &self.rules.breaker;
        let after = match outcome {
            Outcome::Delivered(_) => BreakerModel::Closed { failures: 0 },
            Outcome::Held { .. } => match before {
                BreakerModel::Probing { .. } => BreakerModel::Closed { failures: 0 },
                BreakerModel::Closed { .. } | BreakerModel::Open { .. } => before,
            },
            Outcome::Failed { attempt, .. } => match attempt.error {
                Some(ErrorClass::DestinationBlocked) => before.failed(policy, now, true),
                Some(_) | None => before.failed(policy, now, false),
            },
            Outcome::Hopeless { .. } | Outcome::Released | Outcome::Crashed if claim.probes => before.probe_ended(now),
            Outcome::Hopeless { .. } | Outcome::Released | Outcome::Crashed => before,
        };
        // Claims not yet begun go back when the breaker opens (C5.4).
        if let (BreakerModel::Closed { .. }, BreakerModel::Open { .. }) = (before, after) {
            for sub in self.subs.values_mut().filter(|sub| sub.destination() == *at) {
                sub.changes += 1;
            }
            let (tenant, subject) = at.clone();
            self.tell(NoticeModel { kind: NoticeKind::BreakerOpened, tenant, subject, subscription: None, at: now });
        }
        self.breakers.insert(at.clone(), after);
    }
}

impl super::Job {
    /// Any outcome clears the crash count (C5.6).
    fn note(&mut self, now: HubTime) {
        self.reclaims = 0;
        self.first_attempt.get_or_insert(now);
    }
}

/// Whether the outcome makes its lane a slow one (C5.5); none leaves it.
fn slow(outcome: &Outcome) -> Option<bool> {
    match outcome {
        Outcome::Delivered(attempt) => Some(attempt.duration_ms > 1000),
        Outcome::Failed { .. } | Outcome::Crashed => Some(true),
        Outcome::Held { .. } | Outcome::Hopeless { .. } | Outcome::Released => None,
    }
}
