//! The door to the one writer thread: bounded queues in, answers out after the commit.

mod thread;

use crate::engine::command::{Admit, Admitted, Manage, Managed, Refusal};
use crate::engine::{Counts, Engine};
use crate::model::job::{Claim, Settle};
use crate::model::limits::COMMANDS_WAITING;
use crate::model::space::Room;
use crate::store::StoreError;
use crate::time::{Clock, HubClock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use thread::Orders;
use tokio::sync::{mpsc, oneshot};

/// Who is told what the writer did; the metrics and the log.
pub trait Telling: Send + Sync {
    /// A batch of so many commands is durable, after that time.
    fn committed(&self, counts: &Counts, size: usize, took: Duration);
    /// The store failed; writes are suspended from now on.
    fn suspended(&self, why: &StoreError);
    /// The store is open again.
    fn resumed(&self);
    /// The thread ends, and what was left to be stored could not be.
    fn ended_unstored(&self, why: &StoreError);
}

/// The running writer thread.
#[derive(Debug)]
pub struct Running {
    thread: JoinHandle<()>,
    orders: Arc<Orders>,
}

impl Running {
    /// Claims nothing more; outcomes, commands and records are still taken (C13.2).
    pub fn stop_claiming(&self) {
        self.orders.stop_claiming.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// Where the thread is told what the disk allows.
    pub fn gate(&self) -> Gate {
        Gate(self.orders.clone())
    }

    /// Applies what is queued, releases the claims that are left, closes the store and ends. Blocking.
    pub fn end(self) {
        self.orders.end.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // A panic of the writer was told when it happened; here only its end counts.
        let _ = self.thread.join();
    }

    /// Whether the thread has ended, which it only does when told to, or by a broken invariant.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Tells the writer thread what the disk allows, and how it is with its commit (C13.4). Cheap to clone.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Orders>);

impl Gate {
    /// That is what it allows from now on.
    pub fn set(&self, room: Room) {
        self.0.set_room(room);
    }

    /// For how long the commit under way has not ended, at that monotonic time; zero where none is.
    pub fn committing_for(&self, now: Duration) -> Duration {
        self.0.committing_for(now)
    }
}

/// Starts the writer thread over an engine. Claims come out of the receiver; their number is bounded by the slots.
///
/// # Errors
/// When the operating system gives no thread.
pub fn start(
    engine: Engine,
    clock: Arc<dyn Clock>,
    hub_clock: HubClock,
    telling: Arc<dyn Telling>,
) -> std::io::Result<(Writer, Running, mpsc::UnboundedReceiver<Claim>)> {
    let (admits, admits_in) = mpsc::channel(COMMANDS_WAITING);
    let (manages, manages_in) = mpsc::channel(COMMANDS_WAITING);
    let (settles, settles_in) = mpsc::unbounded_channel();
    let (claims, claims_out) = mpsc::unbounded_channel();
    let orders = Arc::new(Orders::default());
    let thread = thread::Thread {
        engine,
        clock,
        hub_clock,
        admits: admits_in,
        manages: manages_in,
        settles: settles_in,
        claims,
        telling,
        orders: orders.clone(),
        again: 0,
        opened_at: None,
    };
    let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || thread.run())?;
    let writer = Writer { admits, manages, settles, thread: thread.thread().clone() };
    Ok((writer, Running { thread, orders }, claims_out))
}

/// A command with the place where its answer goes.
#[derive(Debug)]
pub struct Asked<C, A> {
    /// What is asked.
    pub command: C,
    /// Where the answer goes; a caller who left is no fault.
    pub reply: oneshot::Sender<Result<A, Refusal>>,
}

/// A handle to the writer thread; cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    admits: mpsc::Sender<Asked<Admit, Admitted>>,
    manages: mpsc::Sender<Asked<Manage, Managed>>,
    settles: mpsc::UnboundedSender<Settle>,
    thread: std::thread::Thread,
}

impl Writer {
    /// Stores records and moves their partition's position, in one commit (C3.1). Waits while the queue is full.
    ///
    /// # Errors
    /// See [`Refusal`]. After [`Refusal::Suspended`] it is not known whether the records were stored: read the position again.
    pub async fn admit(&self, admit: Admit) -> Result<Admitted, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.admits.send(Asked { command: admit, reply }).await.map_err(|_| Refusal::Stopping)?;
        self.wake();
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// Changes, or inspects, the hub's own objects. Waits while the queue is full.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub async fn manage(&self, manage: Manage) -> Result<Managed, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.manages.send(Asked { command: manage, reply }).await.map_err(|_| Refusal::Stopping)?;
        self.wake();
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// Hands in the outcome of a claimed job. Never waits: the queue is bounded by the slots, since each claimed job is settled once.
    pub fn settle(&self, settle: Settle) {
        // A closed queue means that the process is ending; the claim is freed at the next start.
        let _ = self.settles.send(settle);
        self.wake();
    }

    fn wake(&self) {
        self.thread.unpark();
    }
}
