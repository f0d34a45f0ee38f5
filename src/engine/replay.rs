//! Replays and bulk work on dead letters: a row that says how far it came, and a chunk a commit between other work (C6.5, C6.6).
//!
//! Invariants: the row is written in the commit of the jobs it made, so that a crash makes none twice and forgets none; an event that has
//! an unfinished job gets no second one. Nothing runs ahead of its lane: while so many of the jobs it made were not attempted, or those
//! that wait take more memory than they leave to all others, it waits; what other subscriptions do holds nobody up. While the disk is nearly full (C13.4) it waits as well. A purge makes no jobs and never waits.

use super::Counts;
use super::command::{DeadEnd, Managed, NewReplay, Refusal, Through};
use super::core::{Core, Effects};
use super::manage::Answer;
use super::{dead, skip, wanted};
use crate::model::ids::{LogNo, ReplayId, Seq, SubNo, TenantNo};
use crate::model::job::{Cause, DeadLetter, JobKey};
use crate::model::limits::{REPLAYS_KEPT, REPLAYS_PER_TENANT};
use crate::model::replay::{DeadAction, DeadFilter, Filter, Replay, ReplayState, Work};
use crate::model::subscription::{EventPattern, Skipped, Subscription};
use crate::store::StoreError;
use crate::store::rows::IndexRow;
use crate::store::txn::Txn;
use crate::time::HubTime;
use std::sync::Arc;

/// Rows read at a time: most chunks end by the jobs they made, and what was read beyond is read again.
const STEP: usize = 256;

impl Core {
    /// Begins bulk work; one that has nothing to go through has ended at once.
    pub(super) fn start_replay(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        subscription: &Arc<Subscription>,
        new: NewReplay,
        effects: &mut Effects,
    ) -> Answer {
        let of_tenant = |sub: &SubNo| self.lanes.get(*sub).is_some_and(|lane| lane.tenant == subscription.tenant_no);
        if self.replays.keys().filter(|(sub, _)| of_tenant(sub)).count() >= REPLAYS_PER_TENANT {
            let told = "the tenant has as many replays under way as are allowed; wait for one to end, or cancel one";
            return Ok(Err(Refusal::LimitReached(told)));
        }
        let filter = Filter::of(&subscription.spec);
        let work = match new.through {
            Through::Events { from, to } => {
                let to = to.min(self.tenants.last_seq(subscription.tenant_no));
                let stretches = if from <= to { vec![Skipped { from, to }] } else { Vec::new() };
                Work::Events { stretches, next: from, skipped: false, filter }
            }
            Through::Skipped { upto } => {
                let upto = upto.min(self.tenants.last_seq(subscription.tenant_no));
                // One of some event types only leaves the others behind: all of it stays skipped.
                let stretches = if new.only.is_empty() {
                    self.take_skipped(txn, subscription, upto, effects)?
                } else {
                    skip::stretches(subscription, txn.skipped(subscription.no)?, upto)
                };
                Work::Events { stretches, next: Seq(0), skipped: true, filter }
            }
            Through::DeadLetters { end, which } => {
                let action = match end {
                    DeadEnd::Replay => DeadAction::Replay(filter),
                    DeadEnd::Redrive => DeadAction::Redrive,
                    DeadEnd::Purge => DeadAction::Purge,
                };
                Work::DeadLetters { action, which, after: None }
            }
        };
        let NewReplay { id, only, count, at_least, .. } = new;
        let (sub, turn) = (subscription.no, self.last_turn() + 1);
        let state = ReplayState::Running;
        let mut replay =
            Replay { id, sub, work, only, count, at_least, done: 0, state, turn, asked_at: now, ended_at: None };
        if has_ended(&replay.work) {
            self.end_replay(txn, now, &mut replay, ReplayState::Done)?;
        } else {
            txn.put_replay(&replay)?;
            self.replays.insert((sub, id), replay.clone());
        }
        Ok(Ok(Managed::Replay(Box::new(replay))))
    }

    /// Ends bulk work before its end. What was skipped and is not sent now stays skipped.
    pub(super) fn cancel_replay(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        subscription: &Subscription,
        id: ReplayId,
    ) -> Answer {
        let Some(mut replay) = self.replays.get(&(subscription.no, id)).cloned() else {
            let ended = txn.ended_replay(subscription.no, id)?;
            return Ok(ended.map(|replay| Managed::Replay(Box::new(replay))).ok_or(Refusal::NotFound));
        };
        if let Work::Events { stretches, next, skipped: true, .. } = &replay.work
            && replay.only.is_empty()
        {
            skip::put_back(txn, subscription, skip::from(stretches, *next))?;
        }
        self.end_replay(txn, now, &mut replay, ReplayState::Cancelled)?;
        Ok(Ok(Managed::Replay(Box::new(replay))))
    }

    /// A chunk of the bulk work whose turn it is.
    pub(super) fn replay_some(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        counts: &mut Counts,
    ) -> Result<(), StoreError> {
        let Some(key) = self.next_replay() else { return Ok(()) };
        let Some(mut replay) = self.replays.get(&key).cloned() else { return Ok(()) };
        let Some(tenant) = self.lanes.get(key.0).map(|lane| lane.tenant) else {
            self.replays.remove(&key);
            return Ok(());
        };
        let chunk = match &mut replay.work {
            Work::Events { stretches, next, filter, .. } => {
                let wanted = Wanted { filter, only: &replay.only };
                self.replay_events(txn, now, Lane { sub: key.0, tenant }, stretches, next, wanted)?
            }
            Work::DeadLetters { action, which, after } => {
                let letters = Letters { action, which, died_until: replay.asked_at, only: &replay.only };
                self.end_letters(txn, now, key.0, &letters, after)?
            }
        };
        replay.done += chunk.done;
        replay.turn = self.last_turn() + 1;
        if !matches!(replay.work, Work::DeadLetters { action: DeadAction::Purge, .. }) {
            counts.sent_again += chunk.done;
        }
        if chunk.is_last {
            return self.end_replay(txn, now, &mut replay, ReplayState::Done);
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::ReplayForgetsItsPlace) {
            self.replays.insert(key, replay);
            return Ok(());
        }
        txn.put_replay(&replay)?;
        self.replays.insert(key, replay);
        Ok(())
    }

    /// Whose turn it is; none where all have to wait for their lanes.
    pub(super) fn next_replay(&self) -> Option<(SubNo, ReplayId)> {
        let may = |replay: &&Replay| match replay.work {
            Work::DeadLetters { action: DeadAction::Purge, .. } => true,
            Work::Events { .. } | Work::DeadLetters { .. } => {
                self.room.takes_new() && self.lanes.takes_more_again(replay.sub, self.settings.replay.ahead)
            }
        };
        let next = self.replays.values().filter(may).min_by_key(|replay| (replay.turn, replay.sub, replay.id));
        next.map(|replay| (replay.sub, replay.id))
    }

    fn last_turn(&self) -> u64 {
        self.replays.values().map(|replay| replay.turn).max().unwrap_or(0)
    }

    fn end_replay(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        replay: &mut Replay,
        state: ReplayState,
    ) -> Result<(), StoreError> {
        replay.state = state;
        replay.ended_at = Some(now);
        txn.put_replay(replay)?;
        self.replays.remove(&(replay.sub, replay.id));
        let ended = txn.replays_ended(replay.sub)?;
        for old in &ended[..ended.len().saturating_sub(REPLAYS_KEPT)] {
            txn.remove_ended_replay(old.sub, old.id)?;
        }
        Ok(())
    }

    fn take_skipped(
        &mut self,
        txn: &mut Txn<'_>,
        subscription: &Arc<Subscription>,
        upto: Seq,
        effects: &mut Effects,
    ) -> Result<Vec<Skipped>, StoreError> {
        let mut after = (**subscription).clone();
        let taken = skip::take(txn, &mut after, upto)?;
        if after != **subscription {
            // What it skips from now on begins behind what was taken; it is not live, so nothing is matched for it.
            let after = Arc::new(after);
            txn.put_subscription(&after)?;
            self.subs.insert(after.no, after.clone());
            effects.show.push(after);
        }
        Ok(taken)
    }

    fn replay_events(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        lane: Lane,
        stretches: &[Skipped],
        next: &mut Seq,
        wanted: Wanted<'_>,
    ) -> Result<Chunk, StoreError> {
        let pace = self.settings.replay;
        let (mut examined, mut done) = (0, 0);
        while let Some(stretch) = stretches.iter().find(|stretch| stretch.to >= *next) {
            let from = stretch.from.max(*next);
            let limit = STEP.min(pace.rows - examined);
            let rows = txn.index_rows(lane.tenant, from, stretch.to, limit)?;
            examined += rows.len();
            let is_whole = rows.len() < limit;
            for (seq, index) in rows {
                *next = Seq(seq.0 + 1);
                done += u64::from(self.replay_event(txn, now, lane.sub, wanted, seq, index)?);
                if done >= pace.jobs as u64 {
                    return Ok(Chunk { done, is_last: stretches.iter().all(|stretch| stretch.to < *next) });
                }
            }
            if is_whole {
                *next = (*next).max(Seq(stretch.to.0 + 1));
            } else if examined >= pace.rows {
                break;
            }
        }
        Ok(Chunk { done, is_last: stretches.iter().all(|stretch| stretch.to < *next) })
    }

    fn replay_event(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        sub: SubNo,
        wanted: Wanted<'_>,
        seq: Seq,
        index: IndexRow,
    ) -> Result<bool, StoreError> {
        if !wanted::may_be(wanted.filter, &index) || !wanted::may_be_one_of(wanted.only, &index) {
            return Ok(false);
        }
        let Some(event) = txn.event_facts(index.log)? else { return Ok(false) };
        if !wanted::is(wanted.filter, &event) || !wanted::is_one_of(wanted.only, &event) {
            return Ok(false);
        }
        if !event.matched.contains(&sub) {
            txn.add_matched(index.log, sub)?;
        }
        self.send_again(txn, now, JobKey { log: index.log, sub }, seq, Cause::Replay)?;
        Ok(true)
    }

    fn end_letters(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        sub: SubNo,
        letters: &Letters<'_>,
        after: &mut Option<LogNo>,
    ) -> Result<Chunk, StoreError> {
        let pace = self.settings.replay;
        let (mut examined, mut done) = (0, 0);
        while examined < pace.rows {
            let limit = STEP.min(pace.rows - examined);
            let rows = txn.dead_after(sub, *after, limit)?;
            examined += rows.len();
            let is_whole = rows.len() < limit;
            for (log, letter) in rows {
                *after = Some(log);
                done += u64::from(self.end_one_of(txn, now, JobKey { log, sub }, &letter, letters)?);
                if done >= pace.jobs as u64 {
                    return Ok(Chunk { done, is_last: false });
                }
            }
            if is_whole {
                return Ok(Chunk { done, is_last: true });
            }
        }
        Ok(Chunk { done, is_last: false })
    }

    fn end_one_of(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        key: JobKey,
        letter: &DeadLetter,
        letters: &Letters<'_>,
    ) -> Result<bool, StoreError> {
        // What has died since, perhaps of this very redrive, was not meant.
        if letter.died_at > letters.died_until || !letters.which.is_met_by(letter) {
            return Ok(false);
        }
        let filter = match letters.action {
            DeadAction::Replay(filter) => Some(filter),
            DeadAction::Redrive | DeadAction::Purge => None,
        };
        if filter.is_some() || !letters.only.is_empty() {
            let Some(event) = txn.event_facts(key.log)? else { return Ok(false) };
            if filter.is_some_and(|filter| !wanted::is(filter, &event)) || !wanted::is_one_of(letters.only, &event) {
                return Ok(false);
            }
        }
        match letters.action {
            DeadAction::Purge => dead::purge_letter(txn, key),
            DeadAction::Redrive => self.redrive_letter(txn, now, key),
            DeadAction::Replay(_) => {
                self.send_again(txn, now, key, letter.seq, Cause::Replay)?;
                Ok(true)
            }
        }
    }
}

/// What one chunk came to.
struct Chunk {
    done: u64,
    is_last: bool,
}

#[derive(Clone, Copy)]
struct Lane {
    sub: SubNo,
    tenant: TenantNo,
}

#[derive(Clone, Copy)]
struct Wanted<'a> {
    filter: &'a Filter,
    only: &'a [EventPattern],
}

struct Letters<'a> {
    action: &'a DeadAction,
    which: &'a DeadFilter,
    died_until: HubTime,
    only: &'a [EventPattern],
}

fn has_ended(work: &Work) -> bool {
    match work {
        Work::Events { stretches, .. } => stretches.is_empty(),
        Work::DeadLetters { .. } => false,
    }
}
