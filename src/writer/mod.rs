//! The door to the one writer thread: bounded queues in, answers out after the commit.

use crate::engine::command::{Admit, Admitted, Manage, Managed, Refusal};
use crate::model::job::Settle;
use std::sync::Arc;
use std::sync::OnceLock;
use std::thread::Thread;
use tokio::sync::{mpsc, oneshot};

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
    thread: Arc<OnceLock<Thread>>,
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
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}
