//! From fetched bytes to judged records, a piece at a time: what goes into one admit.
//!
//! Invariant: a cut's position is the one after its last record, or after the batch where a batch ends there; what is not in it
//! comes with the next cut.

use crate::engine::command::Judged;
use crate::kafka::decode::{Batches, Content, Fetched, Next, Record, Unreadable};
use crate::kafka::settings::KafkaSettings;
use crate::model::limits::{ADMIT_BODY_BYTES, ADMIT_EVENTS_PER_COMMIT};
use crate::model::record::{Origin, RawRecord, Reason, Verdict};
use crate::rules::classify::{Policy, classify, poison, topic_source};
use bytes::Bytes;
use std::sync::Arc;

/// Judges the records of one fetch.
pub(super) struct Cutter {
    batches: Batches,
    judge: Judge,
    next: i64,
}

/// Judges records of one partition.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    policy: Policy,
    topic: Arc<str>,
    /// Who may speak there (C2.5).
    source: Option<Arc<str>>,
    partition: i32,
}

/// Judged records that stand next to each other.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) records: Vec<Judged>,
    /// The offset after them.
    pub(super) next: i64,
    /// Whether that lies between two batches.
    pub(super) between_batches: bool,
    /// Of the last batch that was looked at; -1 for none.
    pub(super) leader_epoch: i32,
    /// Timestamp of the newest batch, in milliseconds; none without one.
    pub(super) newest: Option<u64>,
    /// What comes after it.
    pub(super) then: Then,
}

/// What comes after a cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Perhaps more in the same bytes.
    More,
    /// Nothing more in these bytes; the size of a batch that was cut off, or 0.
    End(usize),
    /// A batch that cannot be read.
    Unreadable(Unreadable),
}

impl Cutter {
    /// Begins at `position` in what was fetched.
    pub(super) fn new(fetched: Fetched, position: i64, judge: Judge) -> Self {
        Self { batches: Batches::new(fetched, position), judge, next: position }
    }

    /// The next piece.
    pub(super) fn cut(&mut self) -> Cut {
        let mut records = Vec::new();
        let mut body_bytes = 0;
        let mut between_batches = false;
        let then = loop {
            if records.len() >= ADMIT_EVENTS_PER_COMMIT || body_bytes >= ADMIT_BODY_BYTES {
                break Then::More;
            }
            match self.batches.step() {
                Ok(Next::Record(record)) => {
                    self.next = record.offset.saturating_add(1);
                    between_batches = false;
                    let judged = self.judge.record(record);
                    body_bytes += size(&judged);
                    records.push(judged);
                }
                Ok(Next::BatchEnd { next }) => (self.next, between_batches) = (next, true),
                Ok(Next::End { half }) => break Then::End(half),
                Err(unreadable) => break Then::Unreadable(unreadable),
            }
        };
        let (leader_epoch, newest) = (self.batches.leader_epoch(), self.batches.newest());
        Cut { records, next: self.next, between_batches, leader_epoch, newest, then }
    }
}

impl Judge {
    pub(super) fn new(settings: &KafkaSettings, topic: Arc<str>, partition: i32) -> Self {
        let source = topic_source(&settings.topic_prefix, &topic).map(Arc::from);
        Self { policy: settings.classify, topic, source, partition }
    }

    fn record(&self, record: Record) -> Judged {
        match record.content {
            Content::Record(raw) => match classify(&self.policy, self.source.as_deref(), &raw) {
                Verdict::Accept(event) => Judged::Event(event),
                Verdict::Drop => Judged::Dropped,
                Verdict::Quarantine(reason) => self.quarantine(reason, &raw, record.offset),
            },
            Content::TooManyHeaders(body) => self.unreadable(body, record.offset),
        }
    }

    /// What cannot be taken apart, as a poison record.
    pub(super) fn unreadable(&self, body: Bytes, offset: i64) -> Judged {
        self.quarantine(Reason::UnreadableBatch, &RawRecord { headers: Vec::new(), body }, offset)
    }

    fn quarantine(&self, reason: Reason, raw: &RawRecord, offset: i64) -> Judged {
        let origin = Origin::Kafka { topic: (*self.topic).into(), partition: self.partition, offset };
        Judged::Poison(Box::new(poison(reason, raw, origin)))
    }
}

fn size(judged: &Judged) -> usize {
    match judged {
        Judged::Event(event) => event.body.len(),
        Judged::Poison(poison) => poison.body.len(),
        Judged::Dropped => 0,
    }
}
