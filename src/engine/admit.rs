//! New records: dedup, seq, inbox, matching, jobs and position, all in the batch's one transaction (C3.1).

use super::Counts;
use super::command::{Admit, AdmitFrom, AdmitResult, Admitted, Judged, PartitionStep, Refusal};
use super::core::Core;
use crate::model::event::Event;
use crate::model::ids::{LogNo, Seq, TenantNo};
use crate::model::job::{Cause, Job, JobKey};
use crate::model::notice::{Notice, NoticeKind};
use crate::model::record::PoisonRecord;
use crate::store::StoreError;
use crate::store::rows::PositionValue;
use crate::store::txn::{EventPlace, Txn};
use crate::time::{HubTime, Timestamp};
use bytes::Bytes;
use std::sync::Arc;

impl Core {
    pub(super) fn admit(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        admit: Admit,
        counts: &mut Counts,
    ) -> Result<Result<Admitted, Refusal>, StoreError> {
        // The position stays as well: what was not stored is read again.
        if !self.room.takes_new() {
            return Ok(Err(Refusal::DiskLow));
        }
        let step = match &admit.from {
            AdmitFrom::Partition(step) => Some(step),
            AdmitFrom::Http => None,
        };
        if let Some(step) = step {
            let stored = txn.position(&step.topic, &step.topic_id, step.partition)?.map(|position| position.next);
            if stored != step.from {
                return Ok(Err(Refusal::PositionMoved { stored }));
            }
            self.move_position(txn, step, counts)?;
        }
        let mut results = vec![AdmitResult::Dropped; admit.records.len()];
        let mut events = Vec::new();
        for (at, record) in admit.records.into_iter().enumerate() {
            match record {
                Judged::Event(event) => events.push((at, event)),
                Judged::Dropped => counts.dropped += 1,
                Judged::Poison(record) => {
                    counts.quarantine(record.reason);
                    self.keep_poison(txn, now, wall, *record)?;
                    results[at] = AdmitResult::Quarantined;
                }
            }
        }
        // Stable: within a tenant the order of arrival stays (C3.3). A tenant's rows side by side make reading its pages cheap.
        events.sort_by(|(_, a), (_, b)| a.tenant.cmp(&b.tenant));
        for (at, event) in events {
            results[at] = self.admit_event(txn, now, event, counts)?;
        }
        Ok(Ok(Admitted { results }))
    }

    fn move_position(
        &mut self,
        txn: &mut Txn<'_>,
        step: &PartitionStep,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        for gap in &step.gaps {
            txn.put_gap(self.hub.next_row, gap)?;
            self.hub.next_row += 1;
            counts.gaps += 1;
        }
        let value = PositionValue { next: step.next, leader_epoch: step.leader_epoch };
        txn.put_position(&step.topic, &step.topic_id, step.partition, value)
    }

    #[cfg(feature = "planted-bugs")]
    pub(super) fn position_first(&mut self, txn: &mut Txn<'_>, admit: &mut Admit) -> Result<(), StoreError> {
        let AdmitFrom::Partition(step) = &mut admit.from else { return Ok(()) };
        let stored = txn.position(&step.topic, &step.topic_id, step.partition)?.map(|position| position.next);
        if stored != step.from {
            return Ok(());
        }
        let value = PositionValue { next: step.next, leader_epoch: step.leader_epoch };
        step.from = Some(step.next);
        txn.put_position(&step.topic, &step.topic_id, step.partition, value)
    }

    fn admit_event(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        event: Box<Event>,
        counts: &mut Counts,
    ) -> Result<AdmitResult, StoreError> {
        let tenant = self.tenants.number(&event.tenant);
        if let Some(duplicate) = self.duplicate(txn, tenant, &event, counts)? {
            return Ok(duplicate);
        }
        // The seq is taken before matching: a subscription created later must not see this event.
        let seq = self.tenants.take_seq(tenant);
        let log = self.hub.next_log;
        self.hub.next_log = LogNo(log.0 + 1);
        let matched = self.matcher.matching(tenant, &event);
        let numbers = matched.iter().map(|sub| sub.no).collect();
        txn.put_event(&event, EventPlace { log, tenant, seq }, now, numbers)?;
        for sub in &matched {
            let delay =
                crate::rules::backoff::Schedule::of(&sub.spec.retry_schedule, &self.settings.schedule).first_delay_ms();
            let job = new_job(seq, now.plus_ms(delay), Cause::Match);
            txn.put_job(JobKey { log, sub: sub.no }, &job)?;
            self.lanes.push_new(sub.no, log);
            self.lanes.look(sub.no, now);
        }
        counts.accepted += 1;
        if self.settings.only_tenant.as_ref().is_some_and(|only| *only != event.tenant) {
            counts.of_other_tenants += 1;
            self.tell_of_foreigner(txn, now, &event.tenant)?;
        }
        counts.jobs += matched.len() as u64;
        let jobs = u32::try_from(matched.len()).unwrap_or(u32::MAX);
        if jobs > 0 {
            self.recent.put(log, Arc::from(event));
        }
        Ok(AdmitResult::Stored { seq, jobs })
    }

    /// Once for the hub, not for each tenant: a producer that makes tenants up must not drown what else is told (C2.8).
    fn tell_of_foreigner(&mut self, txn: &mut Txn<'_>, now: HubTime, tenant: &str) -> Result<(), StoreError> {
        let detail = format!(
            "an event of tenant {tenant:?} was stored in a single-tenant hub; there may be more, of others too"
        );
        self.raise(txn, now, Notice::about(NoticeKind::ForeignTenant, "other tenants", now, detail)).map(drop)
    }

    fn duplicate(
        &mut self,
        txn: &mut Txn<'_>,
        tenant: TenantNo,
        event: &Event,
        counts: &mut Counts,
    ) -> Result<Option<AdmitResult>, StoreError> {
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::NoDedup) {
            return Ok(None);
        }
        let Some(mark) = txn.mark(tenant, event.id)? else { return Ok(None) };
        let stored: Option<(Seq, bool)> = txn.compare_stored(mark.log, &event.body)?;
        let conflict = stored.is_some_and(|(_, same)| !same);
        counts.duplicates += 1;
        counts.dedup_conflicts += u64::from(conflict);
        Ok(Some(AdmitResult::Duplicate { seq: stored.map(|(seq, _)| seq), conflict }))
    }

    /// Keeps a poison record in whole, then without its body, then only its count, as the ceiling allows (C2.7).
    fn keep_poison(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        mut record: PoisonRecord,
    ) -> Result<(), StoreError> {
        let room = self.settings.poison_max_bytes.saturating_sub(self.hub.poison_bytes);
        let headers: usize = record.headers.iter().map(|(k, v)| k.len() + v.as_ref().map_or(0, Bytes::len) + 8).sum();
        const ROW: u64 = 128;
        if ROW + headers as u64 + record.body.len() as u64 > room {
            record.body = Bytes::new();
        }
        if ROW + headers as u64 > room {
            record.headers.clear();
        }
        if ROW > room {
            self.hub.poison_counted += 1;
            return Ok(());
        }
        self.hub.poison_bytes += txn.put_poison(self.hub.next_row, &record, wall, now)?;
        self.hub.next_row += 1;
        Ok(())
    }
}

/// A job that was not attempted yet.
pub(super) fn new_job(seq: Seq, due: HubTime, cause: Cause) -> Job {
    Job { seq, due, steps_used: 0, first_attempt: None, reclaims: 0, cause, attempts: Vec::new() }
}
