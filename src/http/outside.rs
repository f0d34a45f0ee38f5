//! What the API needs of parts that it must not know: probes and tests of destinations, and the facts of the running hub. The
//! daemon implements these over `dispatch` and `kafka`.

use crate::model::attempt::{AttemptRecord, ErrorClass};
use crate::model::ids::EventId;
use crate::model::subscription::Subscription;
use crate::time::Timestamp;
use std::pin::Pin;
use std::sync::Arc;

/// What an async method of these traits answers with.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Tries destinations for the API, with the same dial, signature and limits as a delivery.
pub trait Prober: Send + Sync {
    /// Makes one probe (C4.7). Uses no step, touches no breaker, changes no state.
    fn probe(&self, subscription: Arc<Subscription>) -> Answering<'_, ProbeSeen>;
    /// Sends one marked test event.
    fn test(&self, subscription: Arc<Subscription>) -> Answering<'_, TestSeen>;
}

/// What a probe saw (C8.4).
#[derive(Debug, Clone)]
pub struct ProbeSeen {
    /// Whether the destination proved itself.
    pub passed: bool,
    /// HTTP status, where an answer's head came.
    pub status: Option<u16>,
    /// How long it took.
    pub duration_ms: u32,
    /// TLS version, where the connection got so far.
    pub tls: Option<String>,
    /// What went wrong; none when it passed.
    pub error: Option<ErrorClass>,
}

/// What a test delivery met.
#[derive(Debug, Clone)]
pub struct TestSeen {
    /// The `ce-id` of the test event.
    pub event_id: EventId,
    /// The attempt.
    pub attempt: AttemptRecord,
}

/// The facts of the running hub that `/readyz` and `/admin/ingest` show.
pub trait Facts: Send + Sync {
    /// Every check of readiness (C13.1), the same names every time.
    fn checks(&self) -> Vec<Check>;
    /// Every partition that is followed.
    fn partitions(&self) -> Vec<PartitionFacts>;
    /// The source as a whole, in one word: `off`, `connecting`, `connected`, `refused`, …
    fn source(&self) -> &'static str;
}

/// One check of readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name: `store`, `workers`, `kafka`, `draining`, …
    pub name: &'static str,
    /// Its state.
    pub state: CheckState,
    /// What an operator should know, without secrets or addresses.
    pub detail: Option<String>,
}

/// State of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// Something does not work, and the hub does its work all the same.
    Degraded,
    /// The hub cannot do its work.
    Failed,
}

/// A partition as `/admin/ingest` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionFacts {
    /// Topic name.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// In one word: `reading`, `waiting`, `hanging_transaction`, `error`, …
    pub state: &'static str,
    /// The next offset to read.
    pub position: Option<i64>,
    /// End of the log, where it is known.
    pub high_watermark: Option<i64>,
    /// End of what is decided by transactions, where it is known.
    pub last_stable: Option<i64>,
    /// When the last fetch was answered (wall time).
    pub last_fetch: Option<Timestamp>,
    /// Time of the last record that was read, as its producer set it.
    pub last_record: Option<Timestamp>,
    /// The last error, in words for the operator.
    pub last_error: Option<String>,
}
