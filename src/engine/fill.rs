//! `start_from`: older events are matched in chunks after a subscription first became active (C4.8).
//!
//! Invariant: while a fill is under way the lane's newer events wait, so that the older ones are attempted first; the row says how far it
//! came, in the same commit as the jobs it made. A fill always gets on: at the ceiling of jobs in memory it makes a few whenever its lane
//! has worked off those it made before, since a lane that waited for room that only itself can make would wait for ever.

use super::admit::new_job;
use super::core::Core;
use super::lane::Lane;
use super::wanted;
use crate::model::ids::{Seq, SubNo};
use crate::model::job::{Cause, JobKey};
use crate::model::limits::BULK_ROWS_PER_COMMIT;
use crate::model::replay::Filter;
use crate::model::subscription::{StartFrom, Subscription};
use crate::rules::matching;
use crate::store::StoreError;
use crate::store::rows::{FillRow, IndexRow};
use crate::store::txn::Txn;
use crate::time::{HubTime, Timestamp};

/// Events looked at in one commit.
const CHUNK: usize = BULK_ROWS_PER_COMMIT / 4;
/// The same while as many jobs as allowed are in memory.
const CHUNK_AT_THE_CEILING: usize = 64;

impl Core {
    /// Resolves `start_from` in the transaction that first makes the subscription active.
    pub(super) fn start(&mut self, txn: &mut Txn<'_>, subscription: &Subscription) -> Result<(), StoreError> {
        let tenant = subscription.tenant_no;
        let last = self.tenants.last_seq(tenant);
        let first = match subscription.spec.start_from {
            StartFrom::Now => None,
            StartFrom::Earliest => txn.first_seq(tenant)?,
            StartFrom::Seq(seq) => Some(Seq(seq.max(1))),
            StartFrom::Time(at) => self.first_stored_at(txn, subscription, at)?,
        };
        let Some(next) = first.filter(|first| *first <= last) else { return Ok(()) };
        let filter = Filter::of(&subscription.spec);
        let row = FillRow { next, to: last, before_log: self.hub.next_log, filter };
        txn.set_fill(subscription.no, Some(&row))?;
        self.fills.insert(subscription.no, row);
        if let Some(lane) = self.lanes.get_mut(subscription.no) {
            lane.fill.get_or_insert_default();
        }
        Ok(())
    }

    /// Halves the tenant's seqs until the first event stored at that time or later is found.
    fn first_stored_at(
        &self,
        txn: &mut Txn<'_>,
        subscription: &Subscription,
        at: Timestamp,
    ) -> Result<Option<Seq>, StoreError> {
        let tenant = subscription.tenant_no;
        let Some(first) = txn.first_seq(tenant)? else { return Ok(None) };
        let (mut low, mut high) = (first.0, self.tenants.last_seq(tenant).0 + 1);
        while low < high {
            let middle = low + (high - low) / 2;
            let row = txn.index_rows(tenant, Seq(middle), Seq(u64::MAX), 1)?;
            let stored_at = match row.first() {
                Some((_, row)) => txn.stored_at(row.log)?,
                None => None,
            };
            match stored_at {
                Some(stored) if stored.0 < at.0 => low = middle + 1,
                Some(_) | None => high = middle,
            }
        }
        Ok(Some(Seq(low)))
    }

    /// One chunk of one fill.
    pub(super) fn fill_some(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        let Some((sub, chunk)) = self.next_fill() else { return Ok(()) };
        let Some(row) = self.fills.get(&sub).cloned() else { return Ok(()) };
        let Some(tenant) = self.lanes.get(sub).map(|lane| lane.tenant) else {
            self.fills.remove(&sub);
            return Ok(());
        };
        let rows = txn.index_rows(tenant, row.next, row.to, chunk)?;
        for (seq, index) in &rows {
            self.fill_event(txn, now, sub, &row.filter, *seq, *index)?;
        }
        match rows.last() {
            Some((seq, _)) if *seq < row.to => {
                let further = FillRow { next: Seq(seq.0 + 1), ..row };
                txn.set_fill(sub, Some(&further))?;
                self.fills.insert(sub, further);
            }
            Some(_) | None => self.end_fill(txn, sub)?,
        }
        self.lanes.look(sub, now);
        Ok(())
    }

    /// Whose turn it is, and how many events it may look at; none where every fill has to wait for its lane.
    pub(super) fn next_fill(&self) -> Option<(SubNo, usize)> {
        if self.lanes.pending() < self.settings.pending_max {
            return self.fills.keys().next().map(|sub| (*sub, CHUNK));
        }
        let worked_off = |sub: &SubNo| self.lanes.get(*sub).is_none_or(Lane::has_worked_off_its_fill);
        self.fills.keys().copied().find(worked_off).map(|sub| (sub, CHUNK_AT_THE_CEILING))
    }

    fn fill_event(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        sub: SubNo,
        filter: &Filter,
        seq: Seq,
        index: IndexRow,
    ) -> Result<(), StoreError> {
        let key = JobKey { log: index.log, sub };
        // A replay may have been there before: an event that is under way, or has died of it, is not begun once more.
        if !wanted::may_be(filter, &index) || txn.job(key)?.is_some() || txn.dead(sub, index.log)?.is_some() {
            return Ok(());
        }
        // The hashes only suggest it; the words decide.
        let Some([source, resource, event]) = txn.event_words(index.log)? else { return Ok(()) };
        let from = filter.origin.as_ref().is_none_or(|origin| *origin == source);
        let wanted = filter.event_types.iter().any(|p| matching::pattern_matches(p, &resource, &event));
        if from && wanted {
            txn.put_job(key, &new_job(seq, now, Cause::Match))?;
            txn.add_matched(index.log, sub)?;
            self.lanes.push_filled(sub, index.log);
        }
        Ok(())
    }

    fn end_fill(&mut self, txn: &mut Txn<'_>, sub: SubNo) -> Result<(), StoreError> {
        txn.set_fill(sub, None)?;
        self.fills.remove(&sub);
        if let Some(lane) = self.lanes.get_mut(sub)
            && let Some(mut filled) = lane.fill.take()
        {
            filled.append(&mut lane.queue);
            lane.queue = filled;
        }
        Ok(())
    }
}
