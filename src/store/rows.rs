//! Rows that exist only in the store: shapes of values that are no words of the product.

use crate::model::event::Event;
use crate::model::ids::{ClaimNo, EventId, LogNo, Seq, SubNo, TenantNo};
use crate::model::job::JobKey;
use crate::model::record::{Origin, PoisonRecord, Reason};
use crate::model::replay::Filter;
use crate::time::{HubTime, Timestamp};
use bincode::{BorrowDecode, Decode, Encode};
use bytes::Bytes;

/// The one row of the meta table: identity, and the writer's counters as of the last commit.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct HubRow {
    /// Store format (C13.6).
    pub format: u32,
    /// Tells this store from every other.
    pub store_id: [u8; 16],
    /// Keys the delivery ids (C9.3).
    pub delivery_key: [u8; 32],
    /// Check value of the KEK that seals here; none before the first seal.
    pub kek_check: Option<[u8; 16]>,
    /// Hub time of the last commit (C13.8).
    pub hub_time: HubTime,
    /// Next event.
    pub next_log: LogNo,
    /// Next claim.
    pub next_claim: ClaimNo,
    /// Next subscription.
    pub next_sub: SubNo,
    /// Next row of the poison and gap tables.
    pub next_row: u64,
    /// Bytes held by poison records (C2.7).
    pub poison_bytes: u64,
    /// Poison records that were counted only, being beyond the ceiling.
    pub poison_counted: u64,
}

/// Body of a log row.
#[derive(Debug, Clone, PartialEq, Encode, BorrowDecode)]
pub(super) enum BodyRow<'a> {
    /// In the row.
    Here(&'a [u8]),
    /// In the blob table, that many bytes.
    Blob(u64),
}

/// One event of the log.
#[derive(Debug, Clone, PartialEq, Encode, BorrowDecode)]
pub(super) struct LogRow<'a> {
    pub(super) tenant: TenantNo,
    pub(super) seq: Seq,
    pub(super) stored_at: HubTime,
    pub(super) matched: Vec<SubNo>,
    pub(super) id: [u8; 16],
    pub(super) source: &'a str,
    pub(super) resource: &'a str,
    pub(super) event: &'a str,
    pub(super) time: &'a str,
    pub(super) schema_version: &'a str,
    pub(super) schema_major: u32,
    pub(super) subject: Option<&'a str>,
    pub(super) content_type: &'a str,
    pub(super) data_schema: Option<&'a str>,
    pub(super) traceparent: Option<&'a str>,
    pub(super) tracestate: Option<&'a str>,
    pub(super) extensions: Vec<(&'a str, &'a str)>,
    pub(super) body: BodyRow<'a>,
}

impl<'a> LogRow<'a> {
    /// The row of an event, its body in place.
    pub(super) fn of(event: &'a Event, tenant: TenantNo, seq: Seq, stored_at: HubTime, matched: Vec<SubNo>) -> Self {
        Self {
            tenant,
            seq,
            stored_at,
            matched,
            id: event.id.0,
            source: &event.source,
            resource: &event.resource,
            event: &event.event,
            time: &event.time,
            schema_version: &event.schema_version,
            schema_major: event.schema_major,
            subject: event.subject.as_deref(),
            content_type: &event.content_type,
            data_schema: event.data_schema.as_deref(),
            traceparent: event.traceparent.as_deref(),
            tracestate: event.tracestate.as_deref(),
            extensions: event.extensions.iter().map(|(name, value)| (&**name, &**value)).collect(),
            body: BodyRow::Here(&event.body),
        }
    }

    /// The event again, given its tenant's name and its body.
    pub(super) fn event(&self, tenant: &str, body: Bytes) -> Event {
        Event {
            id: EventId(self.id),
            tenant: tenant.into(),
            source: self.source.into(),
            resource: self.resource.into(),
            event: self.event.into(),
            time: self.time.into(),
            schema_version: self.schema_version.into(),
            schema_major: self.schema_major,
            subject: self.subject.map(Into::into),
            content_type: self.content_type.into(),
            data_schema: self.data_schema.map(Into::into),
            traceparent: self.traceparent.map(Into::into),
            tracestate: self.tracestate.map(Into::into),
            extensions: self.extensions.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            body,
        }
    }
}

/// What the index holds of an event, so that filters need not read the log: hashes, which a reader of the log confirms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IndexRow {
    /// The event.
    pub log: LogNo,
    /// Hash of the producer.
    pub source: u32,
    /// Hash of the resource type.
    pub resource: u32,
    /// Hash of the event type.
    pub event: u32,
    /// Schema major.
    pub schema_major: u32,
}

impl IndexRow {
    /// The index row of an event.
    pub fn of(event: &Event, log: LogNo) -> Self {
        Self {
            log,
            source: hash(&event.source),
            resource: hash(&event.resource),
            event: hash(&event.event),
            schema_major: event.schema_major,
        }
    }
}

/// FNV-1a: part of the format, so it is written out here and never changes.
pub fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// What a filter asks of a stored event, and who matched it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventFacts {
    /// Producer.
    pub source: String,
    /// Resource type.
    pub resource: String,
    /// Event type.
    pub event: String,
    /// Schema major.
    pub schema_major: u32,
    /// Subscriptions that matched it.
    pub matched: Vec<SubNo>,
}

/// A dedup mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct MarkRow {
    /// The event.
    pub log: LogNo,
    /// When it was stored: marks end by this, not by the id's own time (C3.2).
    pub stored_at: HubTime,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TenantRow {
    /// Its name.
    pub name: String,
    /// The seq of its newest event.
    pub last_seq: Seq,
}

/// A partition's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PositionValue {
    /// Next offset.
    pub next: i64,
    /// Leader epoch of the last record; -1 unknown.
    pub leader_epoch: i32,
}

/// One claimed job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ClaimRow {
    /// Which.
    pub key: JobKey,
    /// It is a suspect running alone: a crash now counts on (C5.6).
    pub alone: bool,
}

/// How far a subscription's `start_from` has been filled (C4.8).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FillRow {
    /// Next seq to look at.
    pub next: Seq,
    /// Last seq to look at: the tenant's newest when the subscription became active.
    pub to: Seq,
    /// Log numbers from here on were stored after that.
    pub before_log: LogNo,
    /// What was wanted at that moment: a later change of the filter does not reach back.
    pub filter: Filter,
}

/// A poison record.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub(super) struct PoisonStored {
    pub(super) at: Timestamp,
    pub(super) hub_at: HubTime,
    pub(super) reason: u8,
    pub(super) kafka: Option<(String, i32, i64)>,
    pub(super) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) body: Vec<u8>,
    pub(super) body_bytes: u64,
}

impl PoisonStored {
    pub(super) fn of(record: &PoisonRecord, at: Timestamp, hub_at: HubTime) -> Self {
        let kafka = match &record.origin {
            Origin::Kafka { topic, partition, offset } => Some((topic.to_string(), *partition, *offset)),
            Origin::Http => None,
        };
        let headers = record.headers.iter().map(|(k, v)| (k.to_vec(), v.as_ref().map(|v| v.to_vec()))).collect();
        Self {
            at,
            hub_at,
            reason: record.reason.number(),
            kafka,
            headers,
            body: record.body.to_vec(),
            body_bytes: record.body_bytes,
        }
    }

    pub(super) fn record(self) -> Option<PoisonRecord> {
        let origin = match self.kafka {
            Some((topic, partition, offset)) => Origin::Kafka { topic: topic.into(), partition, offset },
            None => Origin::Http,
        };
        Some(PoisonRecord {
            origin,
            reason: Reason::from_number(self.reason)?,
            headers: self.headers.into_iter().map(|(k, v)| (k.into(), v.map(Into::into))).collect(),
            body: self.body.into(),
            body_bytes: self.body_bytes,
        })
    }
}
