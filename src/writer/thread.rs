//! The writer thread: drains its queues, reads the clock once, applies all, commits once, answers all.
//!
//! Invariant: nobody is answered before the commit that made the answer true. After a store fault nothing is decided from memory:
//! the store is opened again and everything re-read; outcomes that came in meanwhile are kept and applied then.

use super::{Asked, Telling};
use crate::engine::command::{Admit, Admitted, Manage, Managed, Refusal};
use crate::engine::{Applied, Batch, Engine};
use crate::model::job::{Claim, Settle};
use crate::model::limits::ADMIT_EVENTS_PER_COMMIT;
use crate::store::StoreError;
use crate::time::{Clock, HubClock, HubTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Settles alone may wait so long for company: their lanes have nothing more to claim, so nobody waits for them.
const COMPANY: Duration = Duration::from_millis(20);
/// Manage commands in one commit.
const MANAGES_PER_COMMIT: usize = 256;
/// Between attempts to open the store again.
const REOPEN_FIRST: Duration = Duration::from_millis(100);
const REOPEN_MOST: Duration = Duration::from_secs(5);

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
}

/// What the daemon tells the thread on its way down.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Claim nothing more (C13.2).
    pub(super) stop_claiming: AtomicBool,
    /// Release what is claimed, commit, close and end.
    pub(super) end: AtomicBool,
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
        let applied = self.engine.apply(now, self.clock.wall(), &mut waiting.batch)?;
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

    /// The store failed: everybody who waits is told, and it is opened again until that works. Outcomes are kept.
    fn suspend(&mut self, waiting: &mut Waiting, error: &StoreError) {
        let mut pause = REOPEN_FIRST;
        let mut why = error.to_string();
        self.telling.suspended(&why);
        loop {
            self.drain(waiting);
            refuse(waiting, &why);
            match self.engine.reopen(self.now()) {
                Ok(()) => {
                    self.telling.resumed();
                    return;
                }
                Err(error) => why = error.to_string(),
            }
            if self.orders.end.load(Ordering::Acquire) {
                return;
            }
            let until = self.clock.monotonic() + pause;
            while self.clock.monotonic() < until && !self.orders.end.load(Ordering::Acquire) {
                // Woken by whoever asks: they are refused at once instead of waiting for the disk.
                std::thread::park_timeout(until.saturating_sub(self.clock.monotonic()));
                self.drain(waiting);
                refuse(waiting, &why);
            }
            pause = (pause * 2).min(REOPEN_MOST);
        }
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
            self.telling.suspended(&error.to_string());
        }
        self.engine.close();
    }
}

fn refuse(waiting: &mut Waiting, why: &str) {
    refuse_with(waiting, &Refusal::Suspended(why.to_owned()));
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
