//! Dead letters sent again or removed, one at a time (C6.5); bulk work goes through here too.

use super::admit::new_job;
use super::command::{LetterEnd, Managed, Refusal};
use super::core::Core;
use super::load::is_fresh;
use super::manage::Answer;
use crate::model::ids::{LogNo, Seq, SubNo};
use crate::model::job::{Cause, Job, JobKey};
use crate::model::limits::BULK_ROWS_PER_COMMIT;
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::HubTime;

impl Core {
    /// Some dead letters at once; those that are gone are passed over.
    pub(super) fn redrive(&mut self, txn: &mut Txn<'_>, now: HubTime, which: &[(SubNo, LogNo)]) -> Answer {
        if which.len() > BULK_ROWS_PER_COMMIT {
            return Ok(Err(Refusal::LimitReached("too many dead letters in one command")));
        }
        if self.lanes.is_full_of_retries() {
            return Ok(Err(Refusal::BacklogFull));
        }
        let mut redriven = 0;
        for &(sub, log) in which {
            redriven += u64::from(self.redrive_letter(txn, now, JobKey { log, sub })?);
        }
        Ok(Ok(Managed::Redriven(redriven)))
    }

    /// One dead letter.
    pub(super) fn end_letter(&mut self, txn: &mut Txn<'_>, now: HubTime, key: JobKey, end: LetterEnd) -> Answer {
        let ended = match end {
            LetterEnd::Redrive if self.lanes.is_full_of_retries() => return Ok(Err(Refusal::BacklogFull)),
            LetterEnd::Redrive => self.redrive_letter(txn, now, key)?,
            LetterEnd::Purge => self.lanes.get(key.sub).is_some() && purge_letter(txn, key)?,
        };
        Ok(if ended { Ok(Managed::Done) } else { Err(Refusal::NotFound) })
    }

    /// Makes a job of a dead letter; whether there was one, of an event that is still stored.
    pub(super) fn redrive_letter(&mut self, txn: &mut Txn<'_>, now: HubTime, key: JobKey) -> Result<bool, StoreError> {
        if self.lanes.get(key.sub).is_none() || txn.stored_at(key.log)?.is_none() {
            return Ok(false);
        }
        let Some(letter) = txn.dead(key.sub, key.log)? else { return Ok(false) };
        txn.remove_dead(key.sub, key.log)?;
        self.send_again(txn, now, key, letter.seq, Cause::Redrive)?;
        Ok(true)
    }

    /// Sends an event to a subscription again: a new job, or the one that is unfinished becomes due now (C6.6).
    pub(super) fn send_again(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        key: JobKey,
        seq: Seq,
        cause: Cause,
    ) -> Result<(), StoreError> {
        let unfinished = txn.job(key)?;
        #[cfg(feature = "planted-bugs")]
        if let Some(job) = unfinished.as_ref().filter(|_| self.planted(super::PlantedBug::ReplayMakesAnew)) {
            return txn.put_job(key, &new_job(job.seq, now, cause));
        }
        match unfinished {
            Some(job) => self.hurry(txn, now, key, job)?,
            None => {
                txn.put_job(key, &new_job(seq, now, cause))?;
                self.lanes.push_again(key.sub, key.log, cause);
            }
        }
        self.lanes.look(key.sub, now);
        Ok(())
    }

    fn hurry(&mut self, txn: &mut Txn<'_>, now: HubTime, key: JobKey, mut job: Job) -> Result<(), StoreError> {
        // What is claimed has been due.
        if job.due <= now {
            return Ok(());
        }
        let due = std::mem::replace(&mut job.due, now);
        txn.put_job(key, &job)?;
        let Some(lane) = self.lanes.get_mut(key.sub) else { return Ok(()) };
        if is_fresh(&job) {
            // It stands in its order; the first step of its schedule is what the head waits for.
            lane.not_before = HubTime(0);
        } else {
            lane.hurry(key.log, due);
        }
        Ok(())
    }
}

/// Removes a dead letter; whether there was one. With no job left the event has nothing to tell of the subscription.
pub(super) fn purge_letter(txn: &mut Txn<'_>, key: JobKey) -> Result<bool, StoreError> {
    if !txn.remove_dead(key.sub, key.log)? {
        return Ok(false);
    }
    if txn.job(key)?.is_none() {
        txn.remove_matched(key.log, key.sub)?;
    }
    Ok(true)
}
