//! What ends: rows of deleted subscriptions, remembered answers, old poison records and notices, a bounded number a commit.

use super::core::{Core, Doomed, OpenJob};
use super::lanes::DestNo;
use crate::model::ids::{ClaimNo, SubNo};
use crate::model::job::JobKey;
use crate::model::limits::BULK_ROWS_PER_COMMIT;
use crate::rules::breaker::Breaker;
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::HubTime;

/// How often the ends of tables are looked at.
const SWEEP_EVERY_MS: u64 = 60_000;

impl Core {
    /// Takes a subscription's lane away; its rows go in chunks from here on.
    pub(super) fn bury(&mut self, txn: &mut Txn<'_>, sub: SubNo, now: HubTime) -> Result<(), StoreError> {
        txn.bury_subscription(sub)?;
        self.health.forget(sub);
        self.fills.remove(&sub);
        self.replays.retain(|(of, _), _| *of != sub);
        self.end_probes_of(sub, now);
        let (mut logs, mut from) = (Vec::new(), None);
        let claimed: Vec<_> =
            self.open.iter().filter(|(_, open)| open.key.sub == sub).map(|(no, open)| (no, *open)).collect();
        for (no, open) in claimed {
            // Its attempt may still be on its way: it keeps its slot until it is settled, which changes nothing else.
            self.open.insert(no, OpenJob { gone: true, ..open });
            txn.remove_claim(no)?;
            logs.push(open.key.log);
            self.end_alone(open.key, now);
        }
        if let Some(lane) = self.lanes.take(sub) {
            self.lanes.uncount(&lane);
            self.forget_dest(txn, lane.dest)?;
            logs.extend(lane.fill.iter().flatten());
            logs.extend(&lane.queue);
            logs.extend(&lane.due);
            logs.extend(&lane.again);
            logs.extend(lane.retries.iter().map(|(_, log)| *log));
            from = lane.rest.map(|rest| rest.from);
        }
        self.doomed.push_back(Doomed { sub, logs, from });
        Ok(())
    }

    /// A destination that no subscription has any more has no breaker either.
    pub(super) fn forget_dest(&mut self, txn: &mut Txn<'_>, dest: DestNo) -> Result<(), StoreError> {
        match self.lanes.forget_dest(dest) {
            Some((tenant, name)) => txn.set_breaker::<Breaker>(tenant, &name, None),
            None => Ok(()),
        }
    }

    /// A probe of this subscription's destination says nothing any more: another lane may probe it (C7.2).
    pub(super) fn end_probes_of(&mut self, sub: SubNo, now: HubTime) {
        let Some(dest_no) = self.lanes.get(sub).map(|lane| lane.dest) else { return };
        let probes = |(_, open): &(ClaimNo, &OpenJob)| open.key.sub == sub && open.probes;
        let probing: Vec<_> = self.open.iter().filter(probes).map(|(no, open)| (no, *open)).collect();
        for (no, open) in probing {
            self.open.insert(no, OpenJob { probes: false, ..open });
            let dest = self.lanes.dest_mut(dest_no);
            dest.breaker = dest.breaker.probe_ended_without_outcome(now);
        }
        self.lanes.look_at_dest(dest_no, now);
    }

    /// A chunk of the rows of deleted subscriptions.
    pub(super) fn bury_some(&mut self, txn: &mut Txn<'_>) -> Result<(), StoreError> {
        let Some(doomed) = self.doomed.front_mut() else { return Ok(()) };
        let sub = doomed.sub;
        let keep = doomed.logs.len().saturating_sub(BULK_ROWS_PER_COMMIT);
        for log in doomed.logs.drain(keep..) {
            txn.remove_job(JobKey { log, sub })?;
        }
        if keep > 0 {
            return Ok(());
        }
        if let Some(from) = doomed.from {
            let mut of_it = Vec::new();
            doomed.from = txn.jobs_from(from, BULK_ROWS_PER_COMMIT, |key, _| {
                if key.sub == sub {
                    of_it.push(key);
                }
            })?;
            for key in of_it {
                txn.remove_job(key)?;
            }
        }
        if doomed.from.is_none() && txn.remove_dead_of(sub, BULK_ROWS_PER_COMMIT)? < BULK_ROWS_PER_COMMIT {
            txn.remove_replays_of(sub)?;
            txn.remove_tombstone(sub)?;
            self.doomed.pop_front();
        }
        Ok(())
    }

    /// Ends of tables by age, now and then.
    pub(super) fn sweep(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        if now < self.next_sweep {
            return Ok(());
        }
        self.next_sweep = now.plus_ms(SWEEP_EVERY_MS);
        txn.remove_idempotency_before(now, BULK_ROWS_PER_COMMIT)?;
        let end = HubTime(now.0.saturating_sub(self.settings.poison_retention_ms));
        let freed = txn.remove_poison_before(end, BULK_ROWS_PER_COMMIT)?;
        self.hub.poison_bytes = self.hub.poison_bytes.saturating_sub(freed);
        self.end_old_notices(txn, now)
    }
}
