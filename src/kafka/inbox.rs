//! Where records go: the writer and the store behind one small door, so that the source can be tested without them.
//!
//! Invariant: an answer of [`Inbox::admit`] is given after the commit that made it true (C3.1).

use crate::engine::command::{Admit, AdmitFrom, Admitted, Judged, Refusal};
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::view::{PositionRow, Reader};
use crate::writer::Writer;
use std::pin::Pin;
use std::sync::Arc;

/// What an async method of [`Inbox`] answers with.
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where records go, and where positions come from.
pub trait Inbox: Send + Sync {
    /// What is stored for a partition of that name, of whatever topic id.
    fn stored(&self, topic: Arc<str>, partition: i32) -> Answering<'_, Result<Stored, StoreError>>;
    /// Stores records with the position they carry.
    fn admit(&self, admit: Admit) -> Answering<'_, Result<Admitted, Refusal>>;
}

/// What is stored for a partition.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// One row for each topic id that was ever read under that name.
    pub rows: Vec<PositionRow>,
    /// No position at all had been stored when the hub started (C1.4).
    pub first_start: bool,
}

/// The hub's own inbox.
#[derive(Debug)]
pub struct WriterInbox {
    writer: Writer,
    reader: Reader,
    metrics: Arc<Metrics>,
    first_start: bool,
}

impl WriterInbox {
    /// Looks whether any position is stored yet. Blocking: call it at start, before anything is read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(writer: Writer, reader: Reader, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let first_start = reader.view()?.positions()?.is_empty();
        Ok(Self { writer, reader, metrics, first_start })
    }
}

impl Inbox for WriterInbox {
    fn stored(&self, topic: Arc<str>, partition: i32) -> Answering<'_, Result<Stored, StoreError>> {
        let (reader, first_start) = (self.reader.clone(), self.first_start);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || {
                let mut rows = reader.view()?.positions()?;
                rows.retain(|row| row.partition == partition && *row.topic == *topic);
                Ok(Stored { rows, first_start })
            });
            read.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn admit(&self, admit: Admit) -> Answering<'_, Result<Admitted, Refusal>> {
        Box::pin(async move {
            let reasons: Vec<_> = admit.records.iter().filter_map(reason).collect();
            let gaps: Vec<_> = match &admit.from {
                AdmitFrom::Partition(step) => step.gaps.iter().map(|gap| gap.why).collect(),
                AdmitFrom::Http => Vec::new(),
            };
            let admitted = self.writer.admit(admit).await?;
            self.metrics.admitted(&admitted);
            reasons.into_iter().for_each(|reason| self.metrics.quarantined(reason));
            gaps.into_iter().for_each(|why| self.metrics.gap(why));
            Ok(admitted)
        })
    }
}

fn reason(judged: &Judged) -> Option<crate::model::record::Reason> {
    match judged {
        Judged::Poison(poison) => Some(poison.reason),
        Judged::Event(_) | Judged::Dropped => None,
    }
}
