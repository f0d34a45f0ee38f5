//! Reading: short snapshots of what was last committed. One a page, never held across an answer.

use crate::model::event::Event;
use crate::model::gap::Gap;
use crate::model::ids::{EventId, KeyId, LogNo, Seq, SubNo};
use crate::model::job::{DeadLetter, Job};
use crate::model::record::PoisonRecord;
use crate::model::subscription::Sealed;
use crate::time::{HubTime, Timestamp};

/// Why the store could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the store cannot be read: {0}")]
pub struct ReadError(pub String);

/// The store, for readers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {}

/// One snapshot.
#[derive(Debug)]
pub struct View {}

/// A stored event.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// Log number.
    pub log: LogNo,
    /// Seq in its tenant.
    pub seq: Seq,
    /// When it was stored (wall time of the commit's batch).
    pub stored_at: HubTime,
    /// Subscriptions that matched it when it was stored (C4.5).
    pub matched: Vec<SubNo>,
    /// The event.
    pub event: Event,
}

/// Where a job of an event stands.
#[derive(Debug, Clone)]
pub enum JobState {
    /// Unfinished.
    Waiting(Job),
    /// Ended undelivered.
    Dead(DeadLetter),
    /// No row is left: delivered, or removed with its subscription.
    Done,
}

/// A dead letter with its key.
#[derive(Debug, Clone)]
pub struct DeadRow {
    /// Whose.
    pub sub: SubNo,
    /// Which event.
    pub log: LogNo,
    /// The dead letter.
    pub letter: DeadLetter,
}

/// A stored poison record.
#[derive(Debug, Clone)]
pub struct PoisonRow {
    /// Rising number.
    pub no: u64,
    /// When it was stored (wall).
    pub at: Timestamp,
    /// The record.
    pub record: PoisonRecord,
}

/// A partition's stored position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionRow {
    /// Topic name.
    pub topic: String,
    /// Topic UUID.
    pub topic_id: [u8; 16],
    /// Partition.
    pub partition: i32,
    /// The next offset to read.
    pub next: i64,
    /// Leader epoch of the last record read; -1 unknown.
    pub leader_epoch: i32,
}

impl Reader {
    /// A snapshot of the last commit. Blocking: call from a blocking thread, drop soon.
    ///
    /// # Errors
    /// While the store is being reopened after a fault.
    pub fn view(&self) -> Result<View, ReadError> {
        Ok(View {})
    }
}

#[allow(unused_variables, clippy::missing_errors_doc)]
impl View {
    /// A tenant's event by its `ce-id`.
    pub fn event(&self, tenant: &str, id: EventId) -> Result<Option<StoredEvent>, ReadError> {
        Ok(None)
    }
    /// The event of a log number.
    pub fn event_at(&self, log: LogNo) -> Result<Option<StoredEvent>, ReadError> {
        Ok(None)
    }
    /// Where the job of an event for a subscription stands.
    pub fn job_state(&self, log: LogNo, sub: SubNo) -> Result<JobState, ReadError> {
        Ok(JobState::Done)
    }
    /// Poison records, newest first, older than number `before`.
    pub fn poison(&self, before: Option<u64>, limit: usize) -> Result<Vec<PoisonRow>, ReadError> {
        Ok(Vec::new())
    }
    /// Gaps, newest first, older than number `before`.
    pub fn gaps(&self, before: Option<u64>, limit: usize) -> Result<Vec<(u64, Gap)>, ReadError> {
        Ok(Vec::new())
    }
    /// Dead letters of one subscription, newest event first, older than `before`.
    pub fn dead_letters_of(&self, sub: SubNo, before: Option<LogNo>, limit: usize) -> Result<Vec<DeadRow>, ReadError> {
        Ok(Vec::new())
    }
    /// Dead letters of all, subscription by subscription, after that key.
    pub fn dead_letters(&self, after: Option<(SubNo, LogNo)>, limit: usize) -> Result<Vec<DeadRow>, ReadError> {
        Ok(Vec::new())
    }
    /// Every stored position.
    pub fn positions(&self) -> Result<Vec<PositionRow>, ReadError> {
        Ok(Vec::new())
    }
    /// What is remembered under an `Idempotency-Key` of an API key (A1.7): hash of the request, sealed answer, expiry.
    pub fn idempotency(&self, key: KeyId, client_key: &str) -> Result<Option<([u8; 32], Sealed, HubTime)>, ReadError> {
        Ok(None)
    }
}
