//! Taking jobs for attempts: up to the free slots, in turn, each claim durable before its attempt begins.

use super::Counts;
use super::core::{Core, OpenJob};
use super::lane::Taken;
use super::lanes::Next;
use crate::model::ids::{ClaimNo, SubNo};
use crate::model::job::{Claim, ClaimedJob, JobKey};
use crate::store::StoreError;
use crate::store::rows::ClaimRow;
use crate::store::txn::Txn;
use crate::time::HubTime;
use std::collections::HashMap;

impl Core {
    /// Whether a lane had to stop at its part of this commit although slots are free: it goes on in the next.
    pub(super) fn claim(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        claims: &mut Vec<Claim>,
        counts: &mut Counts,
    ) -> Result<bool, StoreError> {
        self.lanes.wake(now);
        let mut passed = Vec::new();
        let mut taken: HashMap<SubNo, u32> = HashMap::new();
        let slots = self.claim_slots();
        let mut cut_short = false;
        while let Some(next) = self.lanes.next(now, slots, &mut passed) {
            let key = JobKey { log: next.log, sub: next.sub };
            let Some(job) = txn.job(key)? else {
                // The row went with something that did not know of this lane; nothing is left to attempt.
                self.lanes.count_closed(next.sub, None);
                self.lanes.tried(next.sub, next.log);
                self.end_alone(key, now);
                self.lanes.look(next.sub, now);
                continue;
            };
            // Only a head can be early (the first step of a schedule, C6.1); retries are in the order of their times.
            if next.from == Taken::Head && job.due > now {
                self.lanes.count_closed(next.sub, None);
                self.end_alone(key, now);
                self.lanes.put_back_until(next.sub, next.log, job.due);
                self.lanes.look(next.sub, now);
                continue;
            }
            if next.from == Taken::Head {
                counts.first_waits_ms.push(now.since_ms(job.due));
            }
            let no = self.hub.next_claim;
            self.hub.next_claim = ClaimNo(no.0 + 1);
            self.write_claim(txn, no, ClaimRow { key, alone: next.alone })?;
            let lane = self.lanes.get(next.sub);
            let (generation, place) = lane.map(|lane| (lane.generation, lane.place)).unwrap_or_default();
            if next.probes {
                self.lanes.begin_probe(next.sub, no);
            }
            let Next { from, alone, probes, .. } = next;
            self.open.insert(no, OpenJob { key, from, alone, probes, generation, place, gone: false });
            claims.push(Claim {
                no,
                generation,
                job: ClaimedJob {
                    key,
                    seq: job.seq,
                    steps_used: job.steps_used,
                    cause: job.cause,
                    event: self.recent.get(next.log),
                },
            });
            let of_lane = taken.entry(next.sub).or_default();
            *of_lane += 1;
            if *of_lane >= self.settings.claim_batch {
                cut_short = true;
                self.lanes.pass(next.sub, now, &mut passed);
            } else {
                self.lanes.look(next.sub, now);
            }
        }
        self.lanes.restore(passed);
        Ok(cut_short && self.lanes.open() < slots)
    }

    /// The suspect that ran alone has ended: others may (C5.6).
    pub(super) fn end_alone(&mut self, key: JobKey, now: HubTime) {
        if self.lanes.alone == Some(key) {
            self.lanes.alone = None;
            self.lanes.look_at_suspects(now);
        }
    }

    fn claim_slots(&self) -> u32 {
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::ClaimsBeyondCapacity) {
            return self.settings.slots * 2 + 1;
        }
        self.settings.slots
    }

    /// [`super::PlantedBug::AttemptBeforeCommit`]: the claims of the commit before, whose attempts have begun long since.
    #[cfg(feature = "planted-bugs")]
    pub(super) fn write_late_claims(&mut self, txn: &mut Txn<'_>) -> Result<(), StoreError> {
        for (no, row) in std::mem::take(&mut self.unwritten_claims) {
            if self.open.get(no).is_some() {
                txn.put_claim(no, &row)?;
            }
        }
        Ok(())
    }

    fn write_claim(&mut self, txn: &mut Txn<'_>, no: ClaimNo, row: ClaimRow) -> Result<(), StoreError> {
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::NoClaim) {
            return Ok(());
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::AttemptBeforeCommit) {
            self.unwritten_claims.push((no, row));
            return Ok(());
        }
        txn.put_claim(no, &row)
    }
}
