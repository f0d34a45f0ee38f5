//! Changes of subscriptions, as C4, C6.5 and C8.5 tell it.

use super::breaker::BreakerModel;
use super::health::HealthModel;
use super::{Answer, Ask, AskChange, Fill, Job, Model, State, Sub};
use streaming_hub::engine::command::{LetterEnd, Refusal};
use streaming_hub::model::ids::{Seq, SubNo, SubscriptionId};
use streaming_hub::model::subscription::{Sink, StartFrom};
use streaming_hub::time::{HubTime, Timestamp};

impl Model {
    pub(super) fn manage(&mut self, now: HubTime, wall: Timestamp, ask: &Ask) -> Result<Answer, Refusal> {
        match ask {
            Ask::Create { id, tenant, spec } => {
                let no = SubNo(self.next_sub);
                self.next_sub += 1;
                self.tenants.entry(tenant.clone()).or_default();
                let sub = Sub {
                    id: *id,
                    tenant: tenant.clone(),
                    spec: (**spec).clone(),
                    enabled: true,
                    off: None,
                    health: HealthModel::default(),
                    active: false,
                    started: false,
                    deleted: false,
                    revision: 1,
                    unmatched_from: None,
                    old_secret_until: None,
                    changes: 0,
                    hold_until: HubTime(0),
                    slow: None,
                    fill: None,
                    skipped: Vec::new(),
                    first_begun: Seq(0),
                    last_begun: Seq(0),
                    ordered_after: Seq(0),
                    passed_over: 0,
                    taken: (0, now),
                };
                self.subs.insert(no, sub);
                Ok(Answer::Subscription { revision: 1, live: false, skipped: None })
            }
            Ask::Change { id, tenant, if_revision, change } => {
                let no = self.find_of(tenant, *id)?;
                if if_revision.is_some_and(|revision| revision != self.subs[&no].revision) {
                    return Err(Refusal::Stale);
                }
                self.change(now, wall, no, change)
            }
            Ask::Delete { id, tenant } => {
                let no = self.find_of(tenant, *id)?;
                self.delete(now, no);
                Ok(Answer::Deleted)
            }
            // As many as may be in memory wait for another attempt already.
            Ask::Redrive(_) if self.retrying() >= self.rules.pending_max => Err(Refusal::BacklogFull),
            Ask::Redrive(which) => {
                Ok(Answer::Redriven(self.redrive(now, which.iter().map(|(no, _, seq)| (*no, *seq)))))
            }
            Ask::Letter { end: LetterEnd::Redrive, .. } if self.retrying() >= self.rules.pending_max => {
                Err(Refusal::BacklogFull)
            }
            Ask::Letter { sub, seq, end, .. } => self.end_letter(now, (*sub, *seq), *end),
            Ask::Replay { id, tenant, replay, through, only } => {
                let no = self.find_of(tenant, *id)?;
                Ok(self.start_replay(now, no, *replay, through, only))
            }
            Ask::Cancel { id, tenant, replay } => {
                let no = self.find_of(tenant, *id)?;
                self.cancel_replay((no, *replay))
            }
            Ask::Key(id) => {
                self.keys.insert(*id);
                Ok(Answer::Other)
            }
            Ask::Inspect(no) if self.subs.get(no).is_some_and(|sub| !sub.deleted) => Ok(self.inspect(now, *no)),
            Ask::Inspect(_) => Err(Refusal::NotFound),
            Ask::InspectHub => Ok(Answer::Hub {
                unfinished: (self.waiting() + self.claims.len() + self.gone.len()) as u64,
                in_flight: (self.claims.len() + self.gone.len()) as u64,
                subscriptions: self.subs.values().filter(|sub| !sub.deleted).count() as u64,
                breakers_open: self.breakers.values().filter(|breaker| breaker.is_open()).count() as u64,
            }),
        }
    }

    fn inspect(&self, now: HubTime, no: SubNo) -> Answer {
        let count = |is: fn(&Job) -> bool| self.lane(no).filter(|(_, job)| is(job)).count();
        let sub = &self.subs[&no];
        Answer::Lane {
            waiting: count(|job| job.state == State::Waiting) as u64,
            in_flight: u32::try_from(count(|job| matches!(job.state, State::Claimed(_)))).unwrap(),
            held: sub.hold_until > now,
            breaker_open: self.breakers.get(&sub.destination()).is_some_and(|breaker| breaker.is_open()),
            failures: sub.health.failures.len() as u64,
            probing: matches!(self.breakers.get(&sub.destination()), Some(BreakerModel::Probing { .. })),
        }
    }

    fn find_of(&self, tenant: &str, id: SubscriptionId) -> Result<SubNo, Refusal> {
        let no = self.find(id).ok_or(Refusal::NotFound)?;
        if self.subs[&no].tenant == tenant { Ok(no) } else { Err(Refusal::NotFound) }
    }

    fn change(&mut self, now: HubTime, wall: Timestamp, no: SubNo, change: &AskChange) -> Result<Answer, Refusal> {
        let before = self.subs[&no].clone();
        let mut after = before.clone();
        let mut moved = false;
        let mut lifted = false;
        match change {
            AskChange::Spec { spec, proven } => {
                moved = url(&spec.sink) != url(&before.spec.sink);
                after.active = before.active && (!moved || *proven);
                after.spec = (**spec).clone();
                if after.spec.delivery_order != before.spec.delivery_order {
                    let newest = self.lane(no).last().map_or(Seq(0), |(seq, _)| seq);
                    after.ordered_after = after.ordered_after.max(newest);
                }
                if after.spec.rate_limit != before.spec.rate_limit {
                    after.taken = (0, now);
                }
            }
            AskChange::Pause if !before.enabled => return Ok(unchanged(&before)),
            AskChange::Pause => after.enabled = false,
            AskChange::Resume if before.enabled => return Ok(unchanged(&before)),
            AskChange::Resume if before.off.is_some() => return Err(Refusal::VerifyRequired),
            AskChange::Resume => after.enabled = true,
            AskChange::Verified { url: probed } if *probed != url(&before.spec.sink) => return Err(Refusal::Stale),
            AskChange::Verified { .. } => {
                after.active = true;
                after.enabled |= after.off.take().is_some();
                // A paused one is only probed (C8.4).
                if after.enabled {
                    after.health = HealthModel::default();
                }
                lifted = true;
            }
            AskChange::Rotate { old_until: Some(_) } if before.old_secret_until.is_some_and(|until| until > wall) => {
                return Err(Refusal::RotationInProgress);
            }
            AskChange::Rotate { old_until } => after.old_secret_until = *old_until,
        }
        after.revision += 1;
        after.changes += 1;
        let next = self.last_seq(&before.tenant) + 1;
        let mut skipped = None;
        let mut starts = false;
        match (before.is_live(), after.is_live()) {
            (true, false) => after.unmatched_from = Some(next),
            (false, true) if !before.started => starts = true,
            (false, true) => {
                skipped = after.unmatched_from.take().filter(|from| *from < next).map(|from| (from, next - 1));
                after.skipped.extend(skipped);
                after.skipped.sort_unstable();
            }
            (true, true) | (false, false) => {}
        }
        after.started |= starts;
        if moved {
            after.health.succeeded();
            self.end_probes_of(no, now);
        }
        if lifted {
            after.hold_until = HubTime(0);
            self.breakers.insert(after.destination(), BreakerModel::Closed { failures: 0 });
        }
        if starts {
            after.fill = self.older_events(&after);
        }
        let answer = Answer::Subscription { revision: after.revision, live: after.is_live(), skipped };
        self.subs.insert(no, after);
        self.forget_destinations();
        Ok(answer)
    }

    /// C4.8: the events stored before, by the filter of this moment.
    fn older_events(&self, sub: &Sub) -> Option<Fill> {
        let events = self.tenants.get(&sub.tenant)?;
        let to = events.len() as u64;
        let next = match sub.spec.start_from {
            StartFrom::Now => return None,
            StartFrom::Earliest => 1,
            StartFrom::Seq(seq) => seq.max(1),
            StartFrom::Time(at) => events.iter().take_while(|event| event.stored_at.0 < at.0).count() as u64 + 1,
        };
        (next <= to).then(|| Fill { next, to, spec: sub.spec.clone() })
    }

    fn delete(&mut self, now: HubTime, no: SubNo) {
        self.end_probes_of(no, now);
        let of_it = self.claims.iter().filter(|(_, claim)| claim.sub == no && claim.handed_out);
        self.gone.extend(of_it.map(|(claim, _)| *claim));
        self.claims.retain(|_, claim| claim.sub != no);
        if let Some(sub) = self.subs.get_mut(&no) {
            sub.deleted = true;
            sub.health = HealthModel::default();
            sub.changes += 1;
            sub.fill = None;
        }
        self.replays.retain(|(of, _), _| *of != no);
        self.forget_destinations();
        for ((_, _), job) in self.jobs.range_mut((no, Seq(0))..=(no, Seq(u64::MAX))) {
            if job.state != State::Purged {
                job.state = State::Removed;
            }
            job.letter = None;
        }
    }

    /// A destination that no subscription has any more has no breaker either.
    fn forget_destinations(&mut self) {
        let used: Vec<_> = self.subs.values().filter(|sub| !sub.deleted).map(Sub::destination).collect();
        self.breakers.retain(|destination, _| used.contains(destination));
    }

    fn end_probes_of(&mut self, no: SubNo, now: HubTime) {
        let destination = self.subs[&no].destination();
        for claim in self.claims.values_mut().filter(|claim| claim.sub == no && claim.probes) {
            claim.probes = false;
            if let Some(breaker) = self.breakers.get_mut(&destination) {
                *breaker = breaker.probe_ended(now);
            }
        }
    }
}

fn unchanged(sub: &Sub) -> Answer {
    Answer::Subscription { revision: sub.revision, live: sub.is_live(), skipped: None }
}

/// The URL of a webhook.
pub fn url(sink: &Sink) -> String {
    match sink {
        Sink::Webhook(webhook) => webhook.url.clone(),
    }
}
