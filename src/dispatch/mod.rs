//! From claim to outcome: the driver that loads, begins and ends attempts as [`pool::Pool`] decides.
//!
//! Invariant: an attempt's task always ends with a word to the pool, be it an answer, a panic or a cancel: a guard sends it.

pub mod attempt;
pub mod pool;

use crate::engine::board::Board;
use crate::model::event::Event;
use crate::model::ids::{ClaimNo, Generation, SubNo};
use crate::model::job::{Claim, Outcome};
use crate::sink::Sinks;
use crate::store::StoreError;
use crate::store::view::{Reader, StoredEvent};
use crate::time::{Clock, HubClock, millis};
use crate::writer::Writer;
use pool::{Generations, Pool, PoolSettings, Step};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// How often leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Between two rounds of the driver, which ticks more often: the process stood still.
const STOOD_STILL: Duration = Duration::from_secs(5);
/// Events that one worker reads in one go (C5.1).
pub const LOADED_TOGETHER: usize = 32;

/// Who is told of each attempt; the metrics and the log.
pub trait Watching: Send + Sync {
    /// An attempt ended.
    fn attempted(&self, outcome: &Outcome, took: Duration);
    /// So many attempts are in flight now.
    fn in_flight(&self, count: usize);
}

/// All that dispatch works with.
pub struct Dispatch {
    /// Where outcomes go.
    pub writer: Writer,
    /// Subscriptions as they are now.
    pub board: Arc<Board>,
    /// Stored events.
    pub reader: Reader,
    /// Where attempts are made.
    pub sinks: Arc<Sinks>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The hub's time.
    pub hub_clock: HubClock,
    /// Keys the delivery ids.
    pub delivery_key: Arc<ring::hmac::Key>,
    /// Limit of an attempt for subscriptions that give none.
    pub default_timeout: Duration,
    /// Who is told.
    pub watching: Arc<dyn Watching>,
}

enum Told {
    Loaded(Vec<(Read, Claim)>),
    Ended(ClaimNo, Outcome),
}

struct ByBoard<'a>(&'a Board);

impl Generations for ByBoard<'_> {
    fn generation(&self, sub: SubNo) -> Option<Generation> {
        self.0.subscription(sub).filter(|subscription| subscription.is_live()).map(|live| live.generation)
    }
}

impl Dispatch {
    /// Attempts what is claimed until `stop`, then ends what is in flight, for `drain` at most; what is left after that is cancelled
    /// and given back; how many attempts that were.
    pub async fn run(
        self: Arc<Self>,
        settings: PoolSettings,
        mut claims: mpsc::UnboundedReceiver<Claim>,
        stop: CancellationToken,
        drain: Duration,
    ) -> usize {
        // Bounded by the slots: each claim has one word under way at most.
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut pool = Pool::new(settings);
        let mut tasks: HashMap<ClaimNo, AbortHandle> = HashMap::new();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut deadline = None;
        let mut steps = Vec::new();
        let mut last_round = self.clock.monotonic();
        loop {
            let over = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = over => break,
                Some(word) = told.recv() => hear(&mut pool, &mut tasks, word, &mut steps),
                Some(claim) = claims.recv() => pool.take(claim),
                () = stop.cancelled(), if deadline.is_none() => {
                    pool.drain();
                    deadline = Some(tokio::time::Instant::now() + drain);
                }
                _ = tick.tick() => {}
            }
            let round = self.clock.monotonic();
            let since_last = round.saturating_sub(std::mem::replace(&mut last_round, round));
            if since_last > STOOD_STILL {
                pool.stood_still(millis(since_last));
            }
            while let Ok(word) = told.try_recv() {
                hear(&mut pool, &mut tasks, word, &mut steps);
            }
            while let Ok(claim) = claims.try_recv() {
                pool.take(claim);
            }
            pool.step(self.hub_clock.now(&*self.clock), &ByBoard(&self.board), &mut steps);
            self.carry_out(&mut steps, &mut tasks, &tell);
            self.watching.in_flight(pool.in_flight());
            if deadline.is_some() && pool.is_empty() {
                break;
            }
        }
        let cut_off = tasks.len();
        for task in tasks.into_values() {
            // What is cut off here stays claimed; the writer releases it without blame when it ends.
            task.abort();
        }
        cut_off
    }

    fn carry_out(
        self: &Arc<Self>,
        steps: &mut Vec<Step>,
        tasks: &mut HashMap<ClaimNo, AbortHandle>,
        tell: &mpsc::UnboundedSender<Told>,
    ) {
        let mut to_load = Vec::new();
        for step in steps.drain(..) {
            match step {
                Step::Settle(settle) => self.writer.settle(settle),
                Step::Load(claim) => to_load.push(claim),
                Step::Begin(claim, event) => {
                    let no = claim.no;
                    let task = tokio::spawn(attempt::run(self.clone(), claim, event, Word::new(no, tell.clone())));
                    tasks.insert(no, task.abort_handle());
                }
                Step::Abandon(no) => {
                    if let Some(task) = tasks.remove(&no) {
                        task.abort();
                    }
                }
            }
        }
        while !to_load.is_empty() {
            let rest = to_load.split_off(to_load.len().min(LOADED_TOGETHER));
            self.load(std::mem::replace(&mut to_load, rest), tell.clone());
        }
    }

    /// Reads events of one snapshot, on a thread that may block. Together, since handing over to that thread costs more than a read.
    fn load(&self, claims: Vec<Claim>, tell: mpsc::UnboundedSender<Told>) {
        let reader = self.reader.clone();
        tokio::task::spawn_blocking(move || {
            let view = guarded(|| reader.view());
            let read = |claim: &Claim| match &view {
                Some(Ok(view)) => guarded(|| view.event_at(claim.job.key.log)).map_or(Read::Crashed, found),
                Some(Err(error)) => unreadable(error),
                None => Read::Crashed,
            };
            let all = claims.into_iter().map(|claim| (read(&claim), claim)).collect();
            let _ = tell.send(Told::Loaded(all));
        });
    }
}

/// What came of reading a claim's event.
enum Read {
    Event(Arc<Event>),
    /// Not stored any more, or not to be had now: it goes back unattempted.
    Nothing,
    /// The worker panicked over it.
    Crashed,
}

/// A panic over one event ends here: every claim of the batch still gets its word (C5.6).
fn guarded<T>(read: impl FnOnce() -> T) -> Option<T> {
    // Nothing that a panic could leave half changed is used again: a snapshot is only read.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).ok()
}

fn found(stored: Result<Option<StoredEvent>, StoreError>) -> Read {
    match stored {
        Ok(Some(stored)) => Read::Event(Arc::new(stored.event)),
        Ok(None) => Read::Nothing,
        Err(error) => unreadable(&error),
    }
}

/// It goes back unattempted and is claimed again; the writer says what is wrong with the store.
fn unreadable(error: &StoreError) -> Read {
    tracing::debug!(%error, "an event could not be loaded for its attempt");
    Read::Nothing
}

fn hear(pool: &mut Pool, tasks: &mut HashMap<ClaimNo, AbortHandle>, word: Told, steps: &mut Vec<Step>) {
    match word {
        Told::Loaded(all) => {
            for (read, claim) in all {
                match read {
                    Read::Event(event) => pool.loaded(claim, Some(event), steps),
                    Read::Nothing => pool.loaded(claim, None, steps),
                    Read::Crashed => pool.load_crashed(&claim, steps),
                }
            }
        }
        Told::Ended(no, outcome) => {
            tasks.remove(&no);
            pool.ended(no, outcome, steps);
        }
    }
}

/// The promise that the pool hears of an attempt's end: what is dropped unsaid says that the worker crashed.
pub(crate) struct Word {
    claim: ClaimNo,
    tell: Option<mpsc::UnboundedSender<Told>>,
}

impl Word {
    fn new(claim: ClaimNo, tell: mpsc::UnboundedSender<Told>) -> Self {
        Self { claim, tell: Some(tell) }
    }

    /// Says how the attempt ended.
    pub(crate) fn say(mut self, outcome: Outcome) {
        if let Some(tell) = self.tell.take() {
            // A pool that is gone was drained; the writer releases the claim.
            let _ = tell.send(Told::Ended(self.claim, outcome));
        }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(Told::Ended(self.claim, Outcome::Crashed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C5.6
    #[test]
    fn a_panic_over_one_event_is_that_event_s_own() {
        let reads: Vec<_> = (0..3).map(|no| guarded(|| if no == 1 { panic!("planted") } else { no })).collect();
        assert_eq!(reads, [Some(0), None, Some(2)]);
        assert!(matches!(guarded(|| Err(StoreError::Closed)).map_or(Read::Crashed, found), Read::Nothing));
    }
}
