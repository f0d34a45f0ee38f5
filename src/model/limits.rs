//! Every ceiling of the hub in one place, and what must hold between them.
//!
//! Each says where it acts. What happens there is told at the place that acts: nothing is ever cut or refused in silence.

/// Tenant identity, in bytes (C2.3).
pub const TENANT_BYTES: usize = 256;
/// Resource type and event type, each (C2.3).
pub const TYPE_PART_BYTES: usize = 128;
/// Schema version (C2.3).
pub const SCHEMA_VERSION_BYTES: usize = 64;
/// Subject (C2.3).
pub const SUBJECT_BYTES: usize = 1024;
/// Content type (C2.3).
pub const CONTENT_TYPE_BYTES: usize = 256;
/// Data schema (C2.3).
pub const DATA_SCHEMA_BYTES: usize = 2048;
/// Source, so that every derived topic name fits Kafka's 249 (C1.2).
pub const SOURCE_BYTES: usize = 223;
/// Extensions carried through (C2.6).
pub const EXTENSIONS: usize = 16;
/// Name of an extension; longer ones are not carried.
pub const EXTENSION_NAME_BYTES: usize = 64;
/// Value of an extension; a larger one makes the record `invalid_attribute`.
pub const EXTENSION_VALUE_BYTES: usize = 1024;
/// `traceparent` and `tracestate`; a longer one is not carried.
pub const TRACE_BYTES: usize = 512;
/// Body of an event, unless `MAX_BODY_BYTES` says otherwise (C2.3).
pub const BODY_BYTES_DEFAULT: usize = 1 << 20;
/// What `MAX_BODY_BYTES` may be at most.
pub const BODY_BYTES_MAX: usize = 16 << 20;

/// Body kept of a poison record (C2.7).
pub const POISON_BODY_BYTES: usize = 64 << 10;
/// Headers kept of a poison record.
pub const POISON_HEADERS_BYTES: usize = 32 << 10;

/// Events admitted in one commit while settles wait.
pub const ADMIT_EVENTS_PER_COMMIT: usize = 1024;
/// Commands of one class waiting for the writer; beyond it the sender waits.
pub const COMMANDS_WAITING: usize = 4096;
/// Rows deleted or moved by bulk work in one commit.
pub const BULK_ROWS_PER_COMMIT: usize = 4096;

/// Failed attempts kept with a job and its dead letter.
pub const JOB_ATTEMPTS_KEPT: usize = 3;
/// Bytes of a failed attempt's answer that are kept.
pub const ANSWER_KEPT_BYTES: usize = 1024;
/// Bytes of an answer that are read at most (C9.5).
pub const ANSWER_READ_BYTES: usize = 64 << 10;
/// Head of an answer (C9.5).
pub const ANSWER_HEAD_BYTES: usize = 32 << 10;
/// Header lines of an answer.
pub const ANSWER_HEADERS: usize = 100;
/// Longest attempt that a subscription may ask for, in milliseconds (C9.5).
pub const ATTEMPT_TIMEOUT_MAX_MS: u64 = 60_000;
/// Steps of a retry schedule (C6.2).
pub const RETRY_STEPS: usize = 12;
/// Longest step of a retry schedule, in milliseconds (C6.2).
pub const RETRY_STEP_MAX_MS: u64 = 10 * 3600 * 1000;
/// Longest hold of a 429, in milliseconds (C9.6).
pub const HOLD_MAX_MS: u64 = 3_600_000;
/// In flight of a parallel subscription (C5.4).
pub const MAX_IN_FLIGHT: u16 = 256;
/// Jobs in memory before ingest stops, unless `PENDING_IN_MEMORY_MAX` says otherwise.
pub const PENDING_IN_MEMORY_DEFAULT: usize = 4_000_000;
/// Body bytes of events just stored that are kept at hand for their first attempt.
pub const RECENT_BODY_BYTES: usize = 32 << 20;
/// Body bytes of attempts in flight in the whole hub.
pub const IN_FLIGHT_BODY_BYTES: usize = 64 << 20;

/// Connections to receivers that rest open for the next attempt; the one that rested longest is closed.
pub const IDLE_CONNECTIONS: usize = 2048;
/// The same, to one place of one tenant.
pub const IDLE_CONNECTIONS_PER_PLACE: usize = 64;

/// Subscriptions of one tenant.
pub const SUBSCRIPTIONS_PER_TENANT: usize = 10_000;
/// Event types of one subscription.
pub const EVENT_TYPES_PER_SUBSCRIPTION: usize = 200;
/// Extra headers of a webhook (C9.9).
pub const EXTRA_HEADERS: usize = 20;
/// Value of an extra header.
pub const EXTRA_HEADER_VALUE_BYTES: usize = 4096;
/// A destination URL.
pub const URL_BYTES: usize = 2048;
/// Different event types numbered for one tenant; later ones are stored by name only.
pub const EVENT_KEYS_PER_TENANT: usize = 4096;

/// Times that a job may be claimed in a crash before it is dead as poison (C5.6).
pub const RECLAIMS_DEFAULT: u8 = 5;

const _: () = assert!(POISON_BODY_BYTES <= BODY_BYTES_MAX);
const _: () = assert!(ANSWER_KEPT_BYTES <= ANSWER_READ_BYTES);
const _: () = assert!(IN_FLIGHT_BODY_BYTES >= 2 * BODY_BYTES_MAX);
const _: () = assert!(ADMIT_EVENTS_PER_COMMIT <= COMMANDS_WAITING);
