//! A record as it came in, before any verdict, and what the verdict may be.

use crate::model::event::Event;
use bytes::Bytes;

/// A Kafka record's (or an HTTP ingest request's) headers and body, undecided.
#[derive(Debug, Clone)]
pub struct RawRecord {
    /// Header names and values in their order; a null value is `None`.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// The record value; a null value is empty.
    pub body: Bytes,
}

/// What becomes of a record (C2.7): exactly one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Stored in the inbox.
    Accept(Box<Event>),
    /// A system event: counted, skipped.
    Drop,
    /// Recorded as a poison record, never retried.
    Quarantine(Reason),
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        /// Why a record was quarantined, in the order in which it is checked (C2.7).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Reason { $($(#[$doc])* $name = $number,)* }

        impl Reason {
            /// Every reason, in the order checked.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The stable code, as it stands in the API, in metrics and in logs.
            pub fn code(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }

            /// The number under which the store keeps it.
            pub fn number(self) -> u8 {
                self as u8
            }

            /// The reason the store keeps under that number.
            pub fn from_number(number: u8) -> Option<Reason> {
                match number { $($number => Some(Reason::$name),)* _ => None }
            }
        }
    };
}

reasons! {
    /// A header we read is not UTF-8.
    HeaderNotUtf8 = 1 "header_not_utf8",
    /// `ce-specversion` is there and is not `1.0`.
    UnsupportedSpecversion = 2 "unsupported_specversion",
    /// A required header is absent.
    MissingHeader = 3 "missing_header",
    /// No `ce-tenantid`, or an empty one.
    MissingTenant = 4 "missing_tenant",
    /// A tenant that is too long or holds control characters.
    InvalidTenant = 5 "invalid_tenant",
    /// `ce-id` is no hyphenated UUIDv7.
    InvalidId = 6 "invalid_id",
    /// `ce-source` breaks the grammar of C1.1.
    InvalidSource = 7 "invalid_source",
    /// The topic's source and `ce-source` differ (C2.5).
    SourceMismatch = 8 "source_mismatch",
    /// Too long, dotted, empty or with control characters.
    InvalidResourcetype = 9 "invalid_resourcetype",
    /// Too long, dotted, empty or with control characters.
    InvalidEventtype = 10 "invalid_eventtype",
    /// `ce-type` is not built from the other headers.
    TypeMismatch = 11 "type_mismatch",
    /// `ce-time` is not RFC 3339.
    InvalidTime = 12 "invalid_time",
    /// `ce-schemaversion` breaks C2.4.
    InvalidSchemaversion = 13 "invalid_schemaversion",
    /// An optional attribute is too long or holds control characters.
    InvalidAttribute = 14 "invalid_attribute",
    /// The body is larger than `MAX_BODY_BYTES`.
    BodyTooLarge = 15 "body_too_large",
    /// The batch could not be read at all.
    UnreadableBatch = 16 "unreadable_batch",
}

/// A quarantined record with all that is kept of it.
#[derive(Debug, Clone)]
pub struct PoisonRecord {
    /// Where it came from.
    pub origin: Origin,
    /// Why.
    pub reason: Reason,
    /// Its headers, cut to [`crate::model::limits::POISON_HEADERS_BYTES`].
    pub headers: Vec<(Bytes, Option<Bytes>)>,
    /// The first [`crate::model::limits::POISON_BODY_BYTES`] of its body.
    pub body: Bytes,
    /// How long the body was in whole.
    pub body_bytes: u64,
}

/// Where a record came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A Kafka partition.
    Kafka {
        /// Topic name.
        topic: Box<str>,
        /// Partition.
        partition: i32,
        /// Offset of the record (of the batch, where the batch was unreadable).
        offset: i64,
    },
    /// `POST /ingest/events`.
    Http,
}
