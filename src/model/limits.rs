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

/// Asked of one partition in one fetch.
pub const FETCH_PARTITION_BYTES: usize = 1 << 20;
/// Asked of one broker in one fetch.
pub const FETCH_BYTES: usize = 8 << 20;
/// Fetched and not yet admitted, of one partition; beyond it the partition is left out of the next fetch.
pub const FETCHED_PARTITION_BYTES: usize = 2 << 20;
/// Fetched and not yet admitted, of all partitions; beyond it nothing is fetched.
pub const FETCHED_BYTES: usize = 16 << 20;
/// One answer of a broker as it is taken at first; a larger one raises it, up to [`BROKER_ANSWER_BYTES_MAX`].
pub const BROKER_ANSWER_BYTES: usize = 40 << 20;
/// The largest answer of a broker that is taken at all.
pub const BROKER_ANSWER_BYTES_MAX: usize = 256 << 20;
/// A record batch when it is expanded; a larger one is unreadable.
pub const BATCH_EXPANDED_BYTES: usize = 32 << 20;
/// Partitions whose batches are decoded at a time: each may hold [`BATCH_EXPANDED_BYTES`].
pub const PARTITIONS_DECODED: usize = 8;
/// Headers of one record; one with more is quarantined.
pub const RECORD_HEADERS: usize = 4096;
/// Bodies in one admit of a partition; a single larger body goes alone.
pub const ADMIT_BODY_BYTES: usize = 4 << 20;

/// Events admitted in one commit while settles wait.
pub const ADMIT_EVENTS_PER_COMMIT: usize = 1024;
/// Commands of one class waiting for the writer; beyond it the sender waits.
pub const COMMANDS_WAITING: usize = 4096;
/// Rows deleted or moved by bulk work in one commit.
pub const BULK_ROWS_PER_COMMIT: usize = 4096;

/// Jobs that bulk work (replay, redrive, purge) makes or ends in one commit, between other work.
pub const REPLAY_JOBS_PER_COMMIT: usize = 256;
/// Events or dead letters that bulk work looks at in one commit.
pub const REPLAY_ROWS_PER_COMMIT: usize = 4096;
/// Jobs of replays and redrives that one subscription may have before any of their attempts: beyond it bulk work waits for its lane,
/// so that a replay of millions costs no memory and a cancelled one ends soon.
pub const REPLAY_JOBS_AHEAD: usize = 1000;
/// Bulk work under way for one tenant.
pub const REPLAYS_PER_TENANT: usize = 50;
/// Ended bulk work that is still listed, of one subscription; the oldest goes.
pub const REPLAYS_KEPT: usize = 50;
/// Up to here the answer to a replay counts exactly (A2); beyond it says "at least".
pub const REPLAY_COUNTED: u64 = 100_000;
/// Rows that are looked at for that count; beyond it the answer says "at least" too.
pub const REPLAY_ROWS_COUNTED: usize = 1_000_000;
/// Stretches of skipped seqs that are remembered of one subscription; the two oldest become one.
pub const SKIPPED_STRETCHES: usize = 100;

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
/// Waiting jobs in memory, unless `PENDING_IN_MEMORY_MAX` says otherwise; what is beyond them waits in the store.
pub const PENDING_IN_MEMORY_DEFAULT: usize = 4_000_000;
/// Waiting jobs that every lane may have in memory, however many others have; fewer where there are many lanes.
pub const LANE_HEAD_JOBS: usize = 1024;
/// Body bytes of events just stored that are kept at hand for their first attempt.
pub const RECENT_BODY_BYTES: usize = 16 << 20;
/// Body bytes of attempts in flight in the whole hub.
pub const IN_FLIGHT_BODY_BYTES: usize = 64 << 20;

/// Connections to receivers that rest open for the next attempt; the one that rested longest is closed.
pub const IDLE_CONNECTIONS: usize = 2048;
/// The same, to one place of one tenant.
pub const IDLE_CONNECTIONS_PER_PLACE: usize = MAX_IN_FLIGHT as usize;

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

/// A subscription's or an API key's name.
pub const NAME_BYTES: usize = 200;
/// A subscription's description.
pub const DESCRIPTION_BYTES: usize = 2000;
/// Labels in a subscription's `metadata`.
pub const METADATA_ENTRIES: usize = 50;
/// Key of a label.
pub const METADATA_KEY_BYTES: usize = 64;
/// Value of a label.
pub const METADATA_VALUE_BYTES: usize = 512;
/// Tokens a second, and tokens at most, of a subscription's rate limit.
pub const RATE_LIMIT_MAX: u32 = 1_000_000;
/// PEM of a client certificate chain, or of its key.
pub const PEM_BYTES: usize = 32 << 10;
/// API keys, the revoked ones included, that one hub keeps.
pub const API_KEYS: usize = 10_000;
/// Tenants, or sources, named by one ingest key.
pub const INGEST_KEY_NAMES: usize = 200;

/// Body of a request to the API (A1.9).
pub const REQUEST_BODY_BYTES: usize = 256 << 10;
/// Bytes of a refused body that are read and thrown away, so that the client gets to read why.
pub const REFUSED_BODY_BYTES: usize = 32 << 20;
/// Headers of a request to the API (A1.9).
pub const REQUEST_HEADERS_BYTES: usize = 32 << 10;
/// Headers of a request, in number.
pub const REQUEST_HEADERS: usize = 128;
/// Path and query of a request.
pub const REQUEST_TARGET_BYTES: usize = 8 << 10;
/// A request must have arrived whole after that many milliseconds (A1.9).
pub const REQUEST_ARRIVAL_MS: u64 = 30_000;
/// A connection on which nothing happens is closed after that many milliseconds (A1.9).
pub const CONNECTION_IDLE_MS: u64 = 75_000;
/// Connections of the API at once (A1.9).
pub const CONNECTIONS: usize = 1024;
/// Connections of the command socket at once.
pub const SOCKET_CONNECTIONS: usize = 64;
/// Requests at once on one HTTP/2 connection.
pub const STREAMS_PER_CONNECTION: u32 = 64;
/// Probes and test deliveries at once; further ones wait.
pub const PROBES: usize = 64;
/// Nesting of a JSON body.
pub const JSON_DEPTH: usize = 32;
/// Items of a page (A1.6).
pub const PAGE_ITEMS: usize = 200;
/// Bytes of stored bodies on one page of poison records; a page that reaches it ends there.
pub const PAGE_BYTES: usize = 4 << 20;
/// Items of a page when the client names no number.
pub const PAGE_ITEMS_DEFAULT: usize = 50;
/// Rows looked at for one page of a filtered list, so that no list ever scans the whole store (A1.6).
pub const PAGE_ROWS_EXAMINED: usize = 2000;
/// Subscriptions looked at, in memory, for one page of those of all tenants.
pub const PAGE_SUBSCRIPTIONS_EXAMINED: usize = 100_000;
/// An `Idempotency-Key` (A1.7).
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// A client's `X-Request-Id`; a longer one is replaced (A1.5).
pub const REQUEST_ID_BYTES: usize = 64;
/// Dead letters sent again by one request (C6.5); the answer says when there are more.
pub const REDRIVE_PER_REQUEST: usize = 100_000;
/// Dead letters sent again in one commit.
pub const REDRIVE_PER_COMMIT: usize = 1000;
/// Subscriptions listed with one event.
pub const DELIVERIES_SHOWN: usize = 1000;

/// Within so many milliseconds there is one notice of a kind about one thing: a day.
pub const NOTICE_WINDOW_MS: u64 = 24 * 3600 * 1000;
/// Notices that are kept of each urgency; beyond it the oldest go. So breakers that flap do not drive out what a person must mend.
pub const NOTICES_KEPT: usize = 5_000;
/// How long notices are kept, in milliseconds: 90 days.
pub const NOTICE_KEPT_MS: u64 = 90 * 24 * 3600 * 1000;
/// Each text of a notice.
pub const NOTICE_TEXT_BYTES: usize = 2048;
/// Subscriptions judged in one commit by the hourly look; the rest is judged in the next ones.
pub const JUDGED_PER_COMMIT: usize = 1000;

/// Times that a job may be claimed in a crash before it is dead as poison (C5.6).
pub const RECLAIMS_DEFAULT: u8 = 5;

const _: () = assert!(POISON_BODY_BYTES <= BODY_BYTES_MAX);
const _: () = assert!(ANSWER_KEPT_BYTES <= ANSWER_READ_BYTES);
const _: () = assert!(IN_FLIGHT_BODY_BYTES >= 2 * BODY_BYTES_MAX);
const _: () = assert!(REDRIVE_PER_COMMIT <= BULK_ROWS_PER_COMMIT);
const _: () = assert!(REPLAY_JOBS_PER_COMMIT <= REPLAY_JOBS_AHEAD && REPLAY_ROWS_PER_COMMIT <= BULK_ROWS_PER_COMMIT);
const _: () = assert!(PAGE_ITEMS_DEFAULT <= PAGE_ITEMS && PAGE_ITEMS <= PAGE_ROWS_EXAMINED);
const _: () = assert!(REQUEST_TARGET_BYTES < REQUEST_HEADERS_BYTES);
const _: () = assert!(ADMIT_EVENTS_PER_COMMIT <= COMMANDS_WAITING);
const _: () = assert!(FETCH_PARTITION_BYTES <= FETCHED_PARTITION_BYTES && FETCHED_PARTITION_BYTES <= FETCHED_BYTES);
const _: () = assert!(FETCH_BYTES < BROKER_ANSWER_BYTES && BROKER_ANSWER_BYTES <= BROKER_ANSWER_BYTES_MAX);
const _: () = assert!(BODY_BYTES_MAX <= BATCH_EXPANDED_BYTES);
const _: () = assert!(URL_BYTES <= NOTICE_TEXT_BYTES && TENANT_BYTES <= NOTICE_TEXT_BYTES);
const _: () = assert!(NOTICE_WINDOW_MS < NOTICE_KEPT_MS);
