//! The writer thread: drains its queues, reads the clock once, applies all, commits once, answers all.
//!
//! Invariant: nobody is answered before the commit that made the answer true. After a store fault nothing is decided from memory:
//! the store is opened again and everything re-read; outcomes that came in meanwhile are kept and applied then.

use super::{Asked, Telling};
use crate::engine::command::{Action, Admit, Admitted, Manage, Managed, Refusal};
use crate::engine::{Applied, Batch, Engine};
use crate::model::job::{Claim, Settle};
use crate::model::limits::ADMIT_EVENTS_PER_COMMIT;
use crate::model::space::Room;
use crate::store::StoreError;
use crate::time::{Clock, HubClock, HubTime, millis};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Settles alone may wait so long for company: their lanes have nothing more to claim, so nobody waits for them.
const COMPANY: Duration = Duration::from_millis(20);
/// Manage commands in one commit.
const MANAGES_PER_COMMIT: usize = 256;
/// Between attempts to open the store again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);
const REOPEN_MOST: Duration = Duration::from_secs(5);
/// A store that has been open for so long is believed to be well.
const SETTLED_AFTER: Duration = Duration::from_secs(10);
/// Before the first attempt of one that was not.
const AGAIN_MOST: Duration = Duration::from_secs(2);

/// What the thread owns.
pub(super) struct Thread {
    pub(super) engine: Engine,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hub_clock: HubClock,
    pub(super) admits: mpsc::Receiver<Asked<Admit, Admitted>>,
    pub(super) manages: mpsc::Receiver<Asked<Manage, Managed>>,
    pub(super) settles: mpsc::UnboundedReceiver<Settle>,
    pub(super) claims: mpsc::UnboundedSender<Claim>,
    pub(super) telling: Arc<dyn Telling>,
    pub(super) orders: Arc<Orders>,
    /// How often in a row the store failed soon after it was opened again.
    pub(super) again: u32,
    /// When it was opened again last.
    pub(super) opened_at: Option<Duration>,
}

/// What the daemon tells the thread on its way down.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Claim nothing more (C13.2).
    pub(super) stop_claiming: AtomicBool,
    /// Release what is claimed, commit, close and end.
    pub(super) end: AtomicBool,
    room: AtomicU8,
    /// When the commit under way began, in monotonic milliseconds plus one; 0: none is.
    commit_began: AtomicU64,
}

impl Orders {
    /// For how long the commit under way has not ended.
    pub(super) fn committing_for(&self, now: Duration) -> Duration {
        match self.commit_began.load(Ordering::Acquire) {
            0 => Duration::ZERO,
            began => now.saturating_sub(Duration::from_millis(began - 1)),
        }
    }

    /// What the disk allows (C13.4).
    pub(super) fn set_room(&self, room: Room) {
        let code = match room {
            Room::Enough => 0,
            Room::Low => 1,
            Room::Full => 2,
        };
        self.room.store(code, Ordering::Release);
    }

    fn room(&self) -> Room {
        match self.room.load(Ordering::Acquire) {
            0 => Room::Enough,
            1 => Room::Low,
            _ => Room::Full,
        }
    }
}

#[derive(Default)]
struct Waiting {
    batch: Batch,
    manages: Vec<oneshot::Sender<Result<Managed, Refusal>>>,
    admits: Vec<oneshot::Sender<Result<Admitted, Refusal>>>,
    admit_events: usize,
}

impl Thread {
    /// Runs until it is told to end.
    pub(super) fn run(mut self) {
        let mut waiting = Waiting::default();
        let mut wake_at = Some(self.now());
        let mut more = false;
        loop {
            let ending = self.orders.end.load(Ordering::Acquire);
            if self.orders.stop_claiming.load(Ordering::Acquire) {
                self.engine.stop_claiming();
            }
            more |= self.engine.set_room(self.orders.room());
            self.drain(&mut waiting);
            let timer_due = wake_at.is_some_and(|at| at <= self.now());
            if waiting.batch.is_empty() && !more && !timer_due {
                if ending {
                    break;
                }
                self.park(wake_at);
                continue;
            }
            if self.settles_may_wait(&waiting, more, timer_due, ending) {
                std::thread::park_timeout(COMPANY);
                self.drain(&mut waiting);
            }
            match self.apply(&mut waiting) {
                Ok(applied) => (more, wake_at) = (applied.0, applied.1),
                Err(error) => {
                    self.suspend(&mut waiting, &error);
                    (more, wake_at) = (true, None);
                    if self.orders.end.load(Ordering::Acquire) {
                        break;
                    }
                }
            }
        }
        self.finish(waiting);
    }

    fn now(&self) -> HubTime {
        self.hub_clock.now(&*self.clock)
    }

    fn drain(&mut self, waiting: &mut Waiting) {
        while waiting.manages.len() < MANAGES_PER_COMMIT
            && let Ok(asked) = self.manages.try_recv()
        {
            waiting.batch.manages.push(asked.command);
            waiting.manages.push(asked.reply);
        }
        while let Ok(settle) = self.settles.try_recv() {
            waiting.batch.settles.push(settle);
        }
        while waiting.admit_events < ADMIT_EVENTS_PER_COMMIT
            && let Ok(asked) = self.admits.try_recv()
        {
            waiting.admit_events += asked.command.records.len().max(1);
            waiting.batch.admits.push(asked.command);
            waiting.admits.push(asked.reply);
        }
    }

    /// Only outcomes are there, and no lane of theirs waits for the next claim: a commit of its own would be a sync for nobody.
    fn settles_may_wait(&self, waiting: &Waiting, more: bool, timer_due: bool, ending: bool) -> bool {
        let only_settles = waiting.batch.manages.is_empty() && waiting.batch.admits.is_empty();
        only_settles && !more && !timer_due && !ending && self.engine.is_nobody_waiting_behind(&waiting.batch.settles)
    }

    fn park(&self, wake_at: Option<HubTime>) {
        match wake_at {
            Some(at) => std::thread::park_timeout(Duration::from_millis(at.since_ms(self.now()).clamp(1, 60_000))),
            // Sweeps look at their own time, so the thread looks up now and then.
            None => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }

    fn apply(&mut self, waiting: &mut Waiting) -> Result<(bool, Option<HubTime>), StoreError> {
        let began = self.clock.monotonic();
        let size = waiting.batch.manages.len() + waiting.batch.settles.len() + waiting.admit_events;
        let now = self.now();
        self.orders.commit_began.store(millis(began).saturating_add(1), Ordering::Release);
        let applied = self.engine.apply(now, self.clock.wall(), &mut waiting.batch);
        self.orders.commit_began.store(0, Ordering::Release);
        let applied = applied?;
        self.telling.committed(&applied.counts, size, self.clock.monotonic().saturating_sub(began));
        Ok(self.answer(waiting, applied))
    }

    fn answer(&self, waiting: &mut Waiting, applied: Applied) -> (bool, Option<HubTime>) {
        let Applied { manages, admits, claims, counts: _, more, wake_at } = applied;
        for claim in claims {
            // A pool that is gone means that the process ends; the claim is released by `finish` or at the next start.
            let _ = self.claims.send(claim);
        }
        // A caller that left does not want its answer.
        for (reply, answer) in waiting.manages.drain(..).zip(manages) {
            let _ = reply.send(with_bytes(answer, &self.engine));
        }
        for (reply, answer) in waiting.admits.drain(..).zip(admits) {
            let _ = reply.send(answer);
        }
        waiting.admit_events = 0;
        (more, wake_at)
    }

    /// The store failed: everybody who waits is told, and it is opened again until that works, or the thread is to end. Outcomes are
    /// kept.
    fn suspend(&mut self, waiting: &mut Waiting, error: &StoreError) {
        self.telling.suspended(error);
        self.note_room(error);
        let mut why = error.to_string();
        // One that failed again soon after it was opened is not tried at once: that would be opening and failing in circles.
        let soon = |at: Duration| self.clock.monotonic().saturating_sub(at) < SETTLED_AFTER;
        self.again = if self.opened_at.is_some_and(soon) { self.again.saturating_add(1) } else { 0 };
        let mut wait = match self.again {
            0 => Duration::ZERO,
            again => REOPEN_FIRST.saturating_mul(1 << again.min(16)).min(AGAIN_MOST),
        };
        let mut pause = REOPEN_FIRST;
        loop {
            self.refuse_for(waiting, &why, wait);
            let ending = self.orders.end.load(Ordering::Acquire);
            // On a disk without room the next commit would fail as the last one did.
            if self.orders.room() == Room::Full && !ending {
                wait = REOPEN_FIRST;
                continue;
            }
            wait = pause;
            pause = (pause * 2).min(REOPEN_MOST);
            match self.engine.reopen(self.now()) {
                Ok(()) => {
                    self.opened_at = Some(self.clock.monotonic());
                    self.telling.resumed();
                    return;
                }
                Err(error) => {
                    self.note_room(&error);
                    why = error.to_string();
                }
            }
            if ending {
                return;
            }
        }
    }

    /// The disk itself said that it is full: so it is until somebody has looked again, however little the next write might need.
    fn note_room(&self, error: &StoreError) {
        if let StoreError::Full(_) = error {
            self.orders.set_room(Room::Full);
        }
    }

    /// Refuses whoever asks, at once instead of when the disk is back, for so long or until the thread is to end.
    fn refuse_for(&mut self, waiting: &mut Waiting, why: &str, time: Duration) {
        let until = self.clock.monotonic() + time;
        loop {
            self.drain(waiting);
            self.answer_suspended(waiting, why);
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() || self.orders.end.load(Ordering::Acquire) {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Whoever wants something written is refused; what is known of a lane can be told without the store (C13.4).
    fn answer_suspended(&self, waiting: &mut Waiting, why: &str) {
        let suspended = Refusal::Suspended(why.to_owned());
        // Those of a commit that failed are not among the commands any more.
        let of_failed = waiting.manages.len() - waiting.batch.manages.len();
        for reply in waiting.manages.drain(..of_failed) {
            let _ = reply.send(Err(suspended.clone()));
        }
        for (reply, manage) in waiting.manages.drain(..).zip(waiting.batch.manages.drain(..)) {
            let known = if let Action::InspectLane(sub) = manage.action {
                self.engine.lane_glance(sub, self.now()).map(Managed::Lane)
            } else {
                None
            };
            let _ = reply.send(known.ok_or_else(|| suspended.clone()));
        }
        refuse_with(waiting, &suspended);
    }

    /// Outcomes that a failed commit left waiting are applied with those that are still queued; everybody else is refused.
    fn finish(&mut self, mut waiting: Waiting) {
        self.manages.close();
        self.admits.close();
        self.drain(&mut waiting);
        refuse_with(&mut waiting, &Refusal::Stopping);
        let mut last = Batch { settles: std::mem::take(&mut waiting.batch.settles), ..Batch::default() };
        let now = self.now();
        let wall = self.clock.wall();
        self.engine.stop_claiming();
        let done = self.engine.apply(now, wall, &mut last).and_then(|_| self.engine.release_claims(now, wall));
        if let Err(error) = done {
            self.telling.ended_unstored(&error);
        }
        self.engine.close();
    }
}

fn refuse_with(waiting: &mut Waiting, refusal: &Refusal) {
    for reply in waiting.manages.drain(..) {
        let _ = reply.send(Err(refusal.clone()));
    }
    for reply in waiting.admits.drain(..) {
        let _ = reply.send(Err(refusal.clone()));
    }
    waiting.batch.manages.clear();
    waiting.batch.admits.clear();
    waiting.admit_events = 0;
}

fn with_bytes(answer: Result<Managed, Refusal>, engine: &Engine) -> Result<Managed, Refusal> {
    match answer {
        Ok(Managed::Hub(mut hub)) => {
            hub.store_bytes = engine.store_bytes();
            Ok(Managed::Hub(hub))
        }
        other => other,
    }
}
