//! One subscription's waiting jobs, in order, and what keeps them waiting.
//!
//! Invariant: a job that is waiting stands in exactly one of `queue`, `rest`, `fill`, `retries`, `due` and `again`; a claimed one in none of
//! them.

use super::lanes::{DestNo, Rest};
use super::ring::Pace;
use crate::model::ids::{Generation, LogNo, TenantNo};
use crate::model::job::Cause;
use crate::model::limits::LANE_HEAD_JOBS;
use crate::model::subscription::DeliveryOrder;
use crate::time::HubTime;
use std::collections::{BTreeSet, VecDeque};

/// The end of time: what comes then never comes.
pub(super) const NEVER: HubTime = HubTime(u64::MAX);

/// One subscription's waiting jobs.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) tenant: TenantNo,
    pub(super) dest: DestNo,
    pub(super) order: DeliveryOrder,
    pub(super) in_flight_max: u32,
    pub(super) generation: Generation,
    /// Stands for the place its events go to now: an attempt under way to another one says nothing about this one.
    pub(super) place: u64,
    /// Enabled and active.
    pub(super) live: bool,
    /// Jobs never attempted, oldest first.
    pub(super) queue: VecDeque<LogNo>,
    /// Those that follow on them and are not in memory.
    pub(super) rest: Option<Rest>,
    /// Jobs that wait for their time.
    pub(super) retries: BTreeSet<(HubTime, LogNo)>,
    /// Matched jobs whose time has come; the lower seq first.
    pub(super) due: BTreeSet<LogNo>,
    /// Redriven and replayed jobs whose time has come: they hold no strict lane, and no long replay of older events keeps the retries of
    /// newer ones waiting (C5.4).
    pub(super) again: BTreeSet<LogNo>,
    /// Waiting suspects that run alone, and before all else of the lane (C5.6). They stand in `due` or `again` too.
    pub(super) suspects: BTreeSet<LogNo>,
    /// Those in `retries` that were redriven or replayed.
    pub(super) redriven: BTreeSet<LogNo>,
    /// Redriven and replayed jobs that have not failed yet, claimed ones included: bulk work waits while there are many.
    pub(super) untried: BTreeSet<LogNo>,
    /// Older events are still being filled in (C4.8): these come first, and the queue waits until there are no more.
    pub(super) fill: Option<VecDeque<LogNo>>,
    /// It has more failed jobs than its share of the memory: no first attempts until it has fewer.
    pub(super) crowded: bool,
    pub(super) open: u32,
    pub(super) hold_until: HubTime,
    /// The head is not due before this (first step of the schedule, rate limit).
    pub(super) not_before: HubTime,
    pub(super) bucket: Option<Bucket>,
    /// How its attempts go (C5.5).
    pub(super) pace: Pace,
    /// Whose turn it was last (C5.4).
    pub(super) last: Turn,
    /// Stands in a ring.
    pub(super) in_ring: bool,
    /// The earliest timer that is set for it.
    pub(super) timer: Option<HubTime>,
}

/// Tokens of a rate limit (C4.9), in thousandths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub(super) per_second: u32,
    pub(super) burst: u32,
    pub(super) milli_tokens: u64,
    pub(super) at: HubTime,
}

impl Bucket {
    pub(super) fn full(per_second: u32, burst: u32, now: HubTime) -> Self {
        Self { per_second, burst, milli_tokens: u64::from(burst) * 1000, at: now }
    }

    /// Adds what time gave; when a whole token is there, `None`, else when it will be.
    pub(super) fn wait(&mut self, now: HubTime) -> Option<HubTime> {
        let gained = now.since_ms(self.at).saturating_mul(u64::from(self.per_second));
        self.milli_tokens = self.milli_tokens.saturating_add(gained).min(u64::from(self.burst) * 1000);
        self.at = self.at.max(now);
        let missing = 1000u64.saturating_sub(self.milli_tokens);
        (missing > 0).then(|| now.plus_ms(missing.div_ceil(u64::from(self.per_second.max(1)))))
    }

    /// Takes back what [`Bucket::take`] spent.
    pub(super) fn give_back(&mut self) {
        self.milli_tokens = self.milli_tokens.saturating_add(1000).min(u64::from(self.burst) * 1000);
    }

    /// Spends one.
    pub(super) fn take(&mut self) {
        self.milli_tokens = self.milli_tokens.saturating_sub(1000);
    }
}

/// What keeps a lane from being claimed for, or when to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    NotBefore(HubTime),
    Blocked,
}

impl Lane {
    /// A lane with nothing in it.
    pub(super) fn new(tenant: TenantNo, dest: DestNo) -> Self {
        Self {
            tenant,
            dest,
            order: DeliveryOrder::Fifo,
            in_flight_max: 1,
            generation: Generation(0),
            place: 0,
            live: false,
            queue: VecDeque::new(),
            rest: None,
            retries: BTreeSet::new(),
            due: BTreeSet::new(),
            again: BTreeSet::new(),
            suspects: BTreeSet::new(),
            redriven: BTreeSet::new(),
            untried: BTreeSet::new(),
            fill: None,
            crowded: false,
            open: 0,
            hold_until: HubTime(0),
            not_before: HubTime(0),
            bucket: None,
            pace: Pace::Unknown,
            last: Turn::Again,
            in_ring: false,
            timer: None,
        }
    }

    /// Jobs waiting.
    pub(super) fn waiting(&self) -> usize {
        let filled = self.fill.as_ref().map_or(0, VecDeque::len);
        let rest = self.rest.map_or(0, |rest| rest.jobs);
        self.queue.len() + rest + self.timed() + filled
    }

    /// Of these, those that wait for another attempt, or were sent again.
    pub(super) fn timed(&self) -> usize {
        self.retries.len() + self.due.len() + self.again.len()
    }

    /// Of these, those that were redriven or replayed.
    pub(super) fn sent_again(&self) -> usize {
        self.again.len() + self.redriven.len()
    }

    /// Its oldest waiting job, by log number; of one that is not in memory, a number that is not above it. What was redriven or replayed
    /// is left out: its event's age is no delay.
    pub(super) fn oldest(&self) -> Option<LogNo> {
        let filled = self.fill.as_ref().and_then(|fill| fill.front()).copied();
        let retry = self.retries.iter().map(|(_, log)| *log).filter(|log| !self.redriven.contains(log)).min();
        let rest = self.rest.map(|rest| rest.from);
        [self.queue.front().copied(), rest, self.due.first().copied(), retry, filled].into_iter().flatten().min()
    }

    /// The jobs never attempted whose turn it is: the filled ones as long as older events are filled in.
    pub(super) fn heads(&mut self) -> &mut VecDeque<LogNo> {
        self.fill.as_mut().unwrap_or(&mut self.queue)
    }

    fn has_head(&self) -> bool {
        let held = self.order == DeliveryOrder::Strict && self.has_failed_ones();
        !held && !self.crowded && !self.fill.as_ref().unwrap_or(&self.queue).is_empty()
    }

    /// Whether a matched job waits for another attempt: it holds a strict lane until it is delivered or dead (C5.4).
    fn has_failed_ones(&self) -> bool {
        self.failed() > 0
    }

    /// Matched jobs that wait for another attempt.
    pub(super) fn failed(&self) -> usize {
        self.retries.len() - self.redriven.len() + self.due.len()
    }

    /// Puts a job among those whose time has come.
    pub(super) fn push_due(&mut self, log: LogNo, cause: Cause) {
        match cause {
            Cause::Match => self.due.insert(log),
            Cause::Redrive | Cause::Replay => self.again.insert(log),
        };
    }

    /// Puts a job where it waits for its time.
    pub(super) fn push_retry(&mut self, log: LogNo, due: HubTime, cause: Cause) {
        self.retries.insert((due, log));
        match cause {
            Cause::Match => {}
            Cause::Redrive | Cause::Replay => {
                self.redriven.insert(log);
            }
        }
    }

    /// Lets a job that waits for its time wait no longer.
    pub(super) fn hurry(&mut self, log: LogNo, due: HubTime) {
        // One that was put off too far was brought nearer when it was read in (C13.8): it stands elsewhere.
        let stands = Some((due, log)).filter(|at| self.retries.contains(at));
        if let Some(at) = stands.or_else(|| self.retries.iter().find(|(_, other)| *other == log).copied()) {
            self.retries.remove(&at);
            self.come(log);
        }
    }

    fn come(&mut self, log: LogNo) {
        if self.redriven.remove(&log) {
            self.again.insert(log);
        } else {
            self.due.insert(log);
        }
    }

    /// Nothing is waiting of what was filled in so far.
    pub(super) fn has_worked_off_its_fill(&self) -> bool {
        self.fill.as_ref().is_none_or(VecDeque::is_empty)
    }

    /// Whether a job of it may be claimed now, or when to look again.
    pub(super) fn readiness(&mut self, now: HubTime, breaker_until: HubTime, suspect_runs: bool) -> Readiness {
        while let Some(&(at, log)) = self.retries.first()
            && at <= now
        {
            self.retries.pop_first();
            self.come(log);
        }
        if !self.live || self.open >= self.in_flight_max {
            return Readiness::Blocked;
        }
        if !self.suspects.is_empty() && suspect_runs {
            return Readiness::Blocked;
        }
        let head = if self.has_head() { self.not_before } else { NEVER };
        let none_due = self.due.is_empty() && self.again.is_empty();
        let retry = if none_due { self.retries.first().map_or(NEVER, |(at, _)| *at) } else { HubTime(0) };
        let at = head.min(retry).max(self.hold_until).max(breaker_until);
        if at == NEVER {
            return Readiness::Blocked;
        }
        if at > now {
            return Readiness::NotBefore(at);
        }
        match self.bucket.as_mut().and_then(|bucket| bucket.wait(now)) {
            Some(at) => Readiness::NotBefore(at),
            None => Readiness::Ready,
        }
    }
}

impl Lane {
    /// The job whose turn it is, taken out; with whether it is a suspect that runs alone.
    pub(super) fn pick(&mut self) -> Option<(LogNo, Taken, bool)> {
        if let Some(log) = self.suspects.pop_first() {
            self.due.remove(&log);
            self.again.remove(&log);
            return Some((log, Taken::Due, true));
        }
        let (turn, (log, from)) =
            self.last.others_first().into_iter().find_map(|turn| Some((turn, self.take(turn)?)))?;
        self.last = turn;
        Some((log, from, false))
    }

    fn take(&mut self, turn: Turn) -> Option<(LogNo, Taken)> {
        match turn {
            Turn::Head if self.has_head() => {
                let heads = self.heads();
                let log = heads.pop_front()?;
                if heads.is_empty() {
                    // A backlog that has ended gives its memory back.
                    heads.shrink_to(LANE_HEAD_JOBS);
                }
                Some((log, Taken::Head))
            }
            Turn::Head => None,
            Turn::Retry => self.due.pop_first().map(|log| (log, Taken::Due)),
            Turn::Again => self.again.pop_first().map(|log| (log, Taken::Due)),
        }
    }
}

/// Who takes turns in a lane (C5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The lane's head.
    Head,
    /// A due retry.
    Retry,
    /// A redriven or replayed job.
    Again,
}

impl Turn {
    fn others_first(self) -> [Turn; 3] {
        match self {
            Turn::Head => [Turn::Retry, Turn::Again, Turn::Head],
            Turn::Retry => [Turn::Again, Turn::Head, Turn::Retry],
            Turn::Again => [Turn::Head, Turn::Retry, Turn::Again],
        }
    }
}

/// Out of which part of its lane a job was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Head,
    Due,
}
