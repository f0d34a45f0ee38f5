//! Replays, redrives and purges, as C6.5, C6.6 and C8.5 tell it: one at a time, a chunk a commit, in turns.

use super::admit::wants;
use super::{Answer, Job, Model, State};
use streaming_hub::engine::command::{DeadEnd, LetterEnd, Refusal, Through};
use streaming_hub::model::ids::{ReplayId, Seq, SubNo};
use streaming_hub::model::job::{Cause, DeadReason};
use streaming_hub::model::replay::DeadFilter;
use streaming_hub::model::subscription::{EventPattern, Spec};
use streaming_hub::time::HubTime;

/// A dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    pub reason: DeadReason,
    pub steps: u8,
    pub died_at: HubTime,
}

/// Bulk work under way.
#[derive(Debug, Clone)]
pub struct ReplayModel {
    pub path: Path,
    pub only: Vec<EventPattern>,
    /// The subscription as it was: its filter counts.
    pub spec: Spec,
    pub asked_at: HubTime,
    pub done: u64,
    pub turn: u64,
}

/// What it goes through, and how far it came.
#[derive(Debug, Clone)]
pub enum Path {
    Events { stretches: Vec<(u64, u64)>, next: u64, skipped: bool },
    Letters { end: DeadEnd, which: DeadFilter, after: u64 },
}

impl Model {
    pub(super) fn start_replay(
        &mut self,
        now: HubTime,
        no: SubNo,
        id: ReplayId,
        through: &Through,
        only: &[EventPattern],
    ) -> Answer {
        let last = self.last_seq(&self.subs[&no].tenant);
        let sub = self.subs.get_mut(&no).unwrap();
        let path = match *through {
            Through::Events { from, to } => {
                let to = to.0.min(last);
                let stretches = if from.0 <= to { vec![(from.0, to)] } else { Vec::new() };
                Path::Events { stretches, next: from.0, skipped: false }
            }
            Through::Skipped { upto } => {
                // All that was skipped up to there; what comes later is skipped still.
                let upto = upto.0.min(last);
                let mut all = sub.skipped.clone();
                all.extend(sub.unmatched_from.map(|from| (from, last)));
                let taken = all.iter().map(|(from, to)| (*from, (*to).min(upto))).filter(|(from, to)| from <= to);
                let stretches = taken.collect();
                // One of some event types leaves the others where they are.
                if only.is_empty() {
                    sub.skipped.retain(|(_, to)| *to > upto);
                    for (from, _) in &mut sub.skipped {
                        *from = (*from).max(upto + 1);
                    }
                    sub.unmatched_from = sub.unmatched_from.map(|from| from.max(upto + 1));
                }
                Path::Events { stretches, next: 0, skipped: true }
            }
            Through::DeadLetters { end, which } => Path::Letters { end, which, after: 0 },
        };
        let spec = sub.spec.clone();
        self.totals.replays += 1;
        if let Path::Events { stretches, .. } = &path
            && stretches.is_empty()
        {
            self.replays_ended.insert((no, id), 0);
            return Answer::Replay { done: 0, running: false };
        }
        let turn = self.last_turn() + 1;
        let only = only.to_vec();
        self.replays.insert((no, id), ReplayModel { path, only, spec, asked_at: now, done: 0, turn });
        Answer::Replay { done: 0, running: true }
    }

    pub(super) fn cancel_replay(&mut self, key: (SubNo, ReplayId)) -> Result<Answer, Refusal> {
        let Some(replay) = self.replays.remove(&key) else {
            let done = *self.replays_ended.get(&key).ok_or(Refusal::NotFound)?;
            return Ok(Answer::Replay { done, running: false });
        };
        if let Path::Events { stretches, next, skipped: true } = replay.path
            && replay.only.is_empty()
        {
            let sub = self.subs.get_mut(&key.0).unwrap();
            let rest = stretches.into_iter().filter(|(_, to)| *to >= next).map(|(from, to)| (from.max(next), to));
            sub.skipped.extend(rest);
            sub.skipped.sort_unstable();
        }
        self.totals.cancelled += 1;
        self.replays_ended.insert(key, replay.done);
        Ok(Answer::Replay { done: replay.done, running: false })
    }

    /// A chunk of the one whose turn it is; whether there was one.
    pub(super) fn replay_one(&mut self, now: HubTime) -> bool {
        let may = |key: &(SubNo, ReplayId), replay: &ReplayModel| replay.is_purge() || self.takes_more_again(key.0);
        let ready = self.replays.iter().filter(|(key, replay)| may(key, replay));
        let Some(key) = ready.min_by_key(|(_, replay)| replay.turn).map(|(key, _)| *key) else { return false };
        let mut replay = self.replays[&key].clone();
        let is_last = match replay.path.clone() {
            Path::Events { stretches, next, skipped } => {
                let next = self.replay_events(now, key.0, &mut replay, &stretches, next);
                replay.path = Path::Events { stretches: stretches.clone(), next, skipped };
                stretches.iter().all(|(_, to)| *to < next)
            }
            Path::Letters { end, which, after } => {
                let (after, is_last) = self.end_letters(now, key.0, &mut replay, end, which, after);
                replay.path = Path::Letters { end, which, after };
                is_last
            }
        };
        replay.turn = self.last_turn() + 1;
        if is_last {
            self.replays.remove(&key);
            self.replays_ended.insert(key, replay.done);
        } else {
            self.replays.insert(key, replay);
        }
        true
    }

    /// Few of its jobs wait for a first attempt, and all that wait take no more room than they leave, or than every lane may take.
    fn takes_more_again(&self, no: SubNo) -> bool {
        let again = || self.lane(no).filter(|(_, job)| job.is_unfinished() && job.cause != Cause::Match);
        let untried = again().filter(|(_, job)| job.steps == 0).count();
        let waiting = again().filter(|(_, job)| job.state == State::Waiting).count();
        let share = self.rules.pending_max.saturating_sub(self.retrying()).max(self.head());
        untried < self.rules.replay.ahead && waiting < share
    }

    fn last_turn(&self) -> u64 {
        self.replays.values().map(|replay| replay.turn).max().unwrap_or(0)
    }

    fn replay_events(
        &mut self,
        now: HubTime,
        no: SubNo,
        replay: &mut ReplayModel,
        stretches: &[(u64, u64)],
        mut next: u64,
    ) -> u64 {
        let tenant = self.subs[&no].tenant.clone();
        let (mut looked_at, mut made) = (0, 0);
        while looked_at < self.rules.replay.rows && made < self.rules.replay.jobs {
            let Some((from, _)) = stretches.iter().find(|(_, to)| *to >= next) else { break };
            let seq = next.max(*from);
            next = seq + 1;
            looked_at += 1;
            let event = &mut self.tenants.get_mut(&tenant).unwrap()[seq as usize - 1];
            if replay.wants(&event.event) {
                event.matched.insert(no);
                self.send_again(now, (no, Seq(seq)), Cause::Replay);
                replay.done += 1;
                made += 1;
                self.totals.replayed += 1;
            }
        }
        next
    }

    fn end_letters(
        &mut self,
        now: HubTime,
        no: SubNo,
        replay: &mut ReplayModel,
        end: DeadEnd,
        which: DeadFilter,
        after: u64,
    ) -> (u64, bool) {
        let letters = self.lane(no).filter(|(seq, _)| seq.0 > after);
        let letters: Vec<(Seq, Letter)> = letters.filter_map(|(seq, job)| Some((seq, job.letter?))).collect();
        let (mut after, mut made) = (after, 0);
        for (seq, letter) in letters.iter().take(self.rules.replay.rows) {
            after = seq.0;
            let tenant = &self.subs[&no].tenant;
            let event = self.tenants[tenant][seq.0 as usize - 1].event.clone();
            let in_time = which.died_from.is_none_or(|from| letter.died_at >= from)
                && which.died_to.is_none_or(|to| letter.died_at <= to)
                && letter.died_at <= replay.asked_at;
            let of_type = replay.is_of_type(&event) && (end != DeadEnd::Replay || wants(&replay.spec, &event));
            if !in_time || !of_type || which.reason.is_some_and(|reason| reason != letter.reason) {
                continue;
            }
            let key = (no, *seq);
            match end {
                DeadEnd::Replay => self.send_again(now, key, Cause::Replay),
                DeadEnd::Redrive => self.redrive_letter(now, key),
                DeadEnd::Purge => self.purge_letter(key),
            }
            replay.done += 1;
            made += 1;
            if made == self.rules.replay.jobs {
                return (after, false);
            }
        }
        (after, letters.len() < self.rules.replay.rows)
    }

    pub(super) fn end_letter(&mut self, now: HubTime, key: (SubNo, Seq), end: LetterEnd) -> Result<Answer, Refusal> {
        if self.jobs.get(&key).is_none_or(|job| job.letter.is_none()) {
            return Err(Refusal::NotFound);
        }
        match end {
            LetterEnd::Redrive => self.redrive_letter(now, key),
            LetterEnd::Purge => self.purge_letter(key),
        }
        Ok(Answer::Other)
    }

    pub(super) fn redrive(&mut self, now: HubTime, which: impl Iterator<Item = (SubNo, Seq)>) -> u64 {
        let mut redriven = 0;
        for key in which {
            if self.jobs.get(&key).is_some_and(|job| job.letter.is_some()) {
                self.redrive_letter(now, key);
                redriven += 1;
            }
        }
        redriven
    }

    fn redrive_letter(&mut self, now: HubTime, key: (SubNo, Seq)) {
        self.jobs.get_mut(&key).unwrap().letter = None;
        self.totals.redriven += 1;
        self.send_again(now, key, Cause::Redrive);
    }

    fn purge_letter(&mut self, key: (SubNo, Seq)) {
        let job = self.jobs.get_mut(&key).unwrap();
        job.letter = None;
        self.totals.purged += 1;
        // A replay of it may be under way, and goes on.
        if let State::Dead(_) = job.state {
            job.state = State::Purged;
            let tenant = &self.subs[&key.0].tenant;
            self.tenants.get_mut(tenant).unwrap()[key.1.0 as usize - 1].matched.remove(&key.0);
        }
    }

    /// C6.6: an unfinished one gets no second; it is due now.
    fn send_again(&mut self, now: HubTime, key: (SubNo, Seq), cause: Cause) {
        match self.jobs.get_mut(&key) {
            Some(job) if job.is_unfinished() => job.due = (job.due.0.min(now), job.due.1.min(now)),
            Some(job) => *job = job.anew(cause, now),
            None => {
                self.jobs.insert(key, Job { first_begun: true, ..Job::new(cause, now) });
            }
        }
    }
}

impl ReplayModel {
    pub fn is_purge(&self) -> bool {
        matches!(self.path, Path::Letters { end: DeadEnd::Purge, .. })
    }

    fn is_of_type(&self, event: &streaming_hub::model::event::Event) -> bool {
        let any = Spec { event_types: self.only.clone(), origin: None, schema_major: None, ..self.spec.clone() };
        self.only.is_empty() || wants(&any, event)
    }

    fn wants(&self, event: &streaming_hub::model::event::Event) -> bool {
        self.is_of_type(event) && wants(&self.spec, event)
    }
}
