//! New records, as C3 and C4 tell it.

use super::{AskAdmit, EventModel, Fill, Job, Model, Record, State, Sub};
use std::sync::Arc;
use streaming_hub::engine::command::{AdmitResult, Refusal};
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{Seq, SubNo};
use streaming_hub::model::job::Cause;
use streaming_hub::model::subscription::{EventPattern, Spec};
use streaming_hub::time::HubTime;

impl Model {
    pub(super) fn admit(&mut self, now: HubTime, admit: &AskAdmit) -> Result<Vec<AdmitResult>, Refusal> {
        if let Some(step) = &admit.from {
            let key = (step.topic.clone(), step.topic_id, step.partition);
            let stored = self.positions.get(&key).copied();
            if stored != step.from {
                return Err(Refusal::PositionMoved { stored });
            }
            if stored.is_some_and(|stored| step.next < stored) {
                self.set_back.insert((key.0.to_string(), key.1, key.2));
            }
            self.positions.insert(key, step.next);
            self.gaps += step.gaps.len();
        }
        let results = admit.records.iter().map(|record| match record {
            Record::Event(event) => self.admit_event(now, event),
            Record::Dropped => AdmitResult::Dropped,
            Record::Poison { .. } => {
                self.poison += 1;
                AdmitResult::Quarantined
            }
        });
        Ok(results.collect())
    }

    fn admit_event(&mut self, now: HubTime, event: &Arc<Event>) -> AdmitResult {
        let tenant = event.tenant.to_string();
        let id = (tenant.clone(), event.id);
        if let Some(seq) = self.ids.get(&id) {
            self.totals.duplicates += 1;
            let stored = &self.tenants[&tenant][seq.0 as usize - 1];
            return AdmitResult::Duplicate { seq: Some(*seq), conflict: stored.event.body != event.body };
        }
        let seq = Seq(self.last_seq(&tenant) + 1);
        self.ids.insert(id, seq);
        let wants = |(_, sub): &(&SubNo, &Sub)| sub.is_live() && sub.tenant == tenant && wants(&sub.spec, event);
        let matched: Vec<SubNo> = self.subs.iter().filter(wants).map(|(no, _)| *no).collect();
        for no in &matched {
            let delay = self.schedule(*no)[0];
            let due = now.plus_ms(delay);
            self.jobs.insert((*no, seq), Job::new(Cause::Match, due));
        }
        self.totals.events += 1;
        self.totals.jobs += matched.len() as u64;
        let jobs = u32::try_from(matched.len()).unwrap();
        let events = self.tenants.entry(tenant).or_default();
        events.push(EventModel { event: event.clone(), stored_at: now, matched: matched.into_iter().collect() });
        AdmitResult::Stored { seq, jobs }
    }

    /// One chunk of one `start_from` a commit: of the one with the lowest number; at the ceiling of waiting jobs, of one that has worked off
    /// what it was given.
    pub(super) fn fill_one(&mut self, now: HubTime) {
        let full = self.waiting() >= self.rules.pending_max;
        let may = |no: SubNo, to: u64| {
            !full || !self.lane(no).any(|(seq, job)| job.state == State::Waiting && job.fresh && seq.0 <= to)
        };
        let filling = self.subs.iter().filter(|(_, sub)| !sub.deleted);
        let mut filling = filling.filter_map(|(no, sub)| Some((*no, sub.tenant.clone(), sub.fill.clone()?)));
        let Some((no, tenant, fill)) = filling.find(|(no, _, fill)| may(*no, fill.to)) else { return };
        let last = fill.to.min(fill.next + if full { 63 } else { 1023 });
        for seq in (fill.next..=last).map(Seq) {
            let event = &mut self.tenants.get_mut(&tenant).unwrap()[seq.0 as usize - 1];
            let before = self.jobs.get(&(no, seq));
            // A replay may have been there before.
            if !wants(&fill.spec, &event.event) || before.is_some_and(|job| job.is_unfinished() || job.letter.is_some())
            {
                continue;
            }
            event.matched.insert(no);
            let job = before.map_or_else(|| Job::new(Cause::Match, now), |job| job.anew(Cause::Match, now));
            self.jobs.insert((no, seq), job);
            self.totals.jobs += 1;
        }
        let left = (last < fill.to).then(|| Fill { next: last + 1, ..fill });
        self.subs.get_mut(&no).unwrap().fill = left;
    }

    /// A subscription's steps (C6.2).
    pub fn schedule(&self, sub: SubNo) -> Vec<u64> {
        let own = self.subs.get(&sub).and_then(|sub| sub.spec.retry_schedule.clone());
        own.unwrap_or_else(|| self.rules.schedule.clone())
    }
}

impl Job {
    /// A job that was not attempted yet.
    pub fn new(cause: Cause, due: HubTime) -> Self {
        Self {
            state: State::Waiting,
            cause,
            due: (due, due),
            steps: 0,
            reclaims: 0,
            first_attempt: None,
            fresh: cause == Cause::Match,
            first_begun: false,
            begun: 0,
            lost: 0,
            again: 0,
            letter: None,
        }
    }

    /// Waiting or claimed.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Waiting | State::Claimed(_))
    }

    /// The same event for the same subscription once more.
    pub fn anew(&self, cause: Cause, now: HubTime) -> Self {
        Self {
            begun: self.begun,
            lost: self.lost,
            again: self.again + u32::from(self.state == State::Delivered),
            letter: self.letter,
            first_begun: cause != Cause::Match,
            ..Self::new(cause, now)
        }
    }
}

/// C4.1, in other words than the product's.
pub(super) fn wants(spec: &Spec, event: &Event) -> bool {
    let event_type = format!("{}.{}", event.resource, event.event);
    let by_type = spec.event_types.iter().any(|pattern| match pattern {
        EventPattern::Exact(resource, of) => format!("{resource}.{of}") == event_type,
        EventPattern::Resource(resource) => event_type.starts_with(&format!("{resource}.")),
        EventPattern::Event(of) => event_type.ends_with(&format!(".{of}")),
        EventPattern::All => true,
    });
    let by_origin = match &spec.origin {
        Some(origin) => **origin == *event.source,
        None => true,
    };
    let by_major = match spec.schema_major {
        Some(major) => major == event.schema_major,
        None => true,
    };
    by_type && by_origin && by_major
}
