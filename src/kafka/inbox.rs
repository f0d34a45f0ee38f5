//! Where records go: the writer and the store behind one small door, so that the source can be tested without them.
//!
//! Invariant: an answer of [`Inbox::admit`] is given after the commit that made it true (C3.1).

use crate::engine::command::{Admit, Admitted, Refusal};
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
    first_start: bool,
}

impl WriterInbox {
    /// Looks whether any position is stored yet. Blocking: call it at start, before anything is read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn new(writer: Writer, reader: Reader) -> Result<Self, StoreError> {
        let first_start = reader.view()?.positions()?.is_empty();
        Ok(Self { writer, reader, first_start })
    }
}

impl Inbox for WriterInbox {
    fn stored(&self, topic: Arc<str>, partition: i32) -> Answering<'_, Result<Stored, StoreError>> {
        let (reader, first_start) = (self.reader.clone(), self.first_start);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(move || {
                let rows = reader.view()?.positions_of(&topic, partition)?;
                Ok(Stored { rows, first_start })
            });
            read.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn admit(&self, admit: Admit) -> Answering<'_, Result<Admitted, Refusal>> {
        Box::pin(self.writer.admit(admit))
    }
}
