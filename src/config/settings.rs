//! Settings as meant: plain typed values, already judged. Whoever holds a [`Settings`] need not check again.

use crate::engine::EngineSettings;
use crate::kafka::KafkaSettings;
use crate::model::limits;
use crate::rules::address::AddressPolicy;
use crate::rules::classify::Policy;
use crate::rules::room::Reserve;
use crate::store::StoreSettings;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// All settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the hub runs.
    pub env: Env,
    /// What is logged, and how.
    pub log: LogSettings,
    /// Directory of the store, `hub.redb`.
    pub data_dir: PathBuf,
    /// Whose events it serves.
    pub tenancy: Tenancy,
    /// The API.
    pub http: HttpSettings,
    /// The Kafka source, where there is one.
    pub kafka: Option<KafkaSettings>,
    /// How records are judged.
    pub records: Policy,
    /// What the names of followed topics start with (C1.2).
    pub topic_prefix: String,
    /// Where deliveries may go.
    pub sinks: SinkSettings,
    /// Where the key-encryption key is.
    pub kek: KekFrom,
    /// The pool of workers.
    pub dispatch: DispatchSettings,
    /// How the engine decides and how far it goes.
    pub engine: EngineSettings,
    /// How the store's file is kept.
    pub store: StoreSettings,
    /// What must stay free on the store's disk (C13.4).
    pub reserve: Reserve,
    /// How long a rotated secret still signs (C9.2).
    pub secret_overlap: Duration,
    /// How the hub stops.
    pub stop: StopSettings,
}

/// Where the hub runs (`ENV`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Env {
    /// A developer's machine.
    Local,
    /// Before production.
    Staging,
    /// In earnest: no `ALLOW_*`, a KEK, no plain API outside loopback.
    Production,
}

impl Env {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Env::Local => "local",
            Env::Staging => "staging",
            Env::Production => "production",
        }
    }
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// A level, or directives as in `RUST_LOG`.
    pub filter: String,
    /// Form of a line; none: text on a terminal, else JSON.
    pub format: Option<LogFormat>,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Whose events a hub serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenancy {
    /// One tenant's; deliveries then say nothing of it (C9.4).
    Single(String),
    /// Many tenants'.
    Multi,
}

/// The API.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// TLS, where it is on.
    pub tls: Option<TlsFiles>,
    /// A proxy ends TLS before it.
    pub behind_proxy: bool,
    /// `POST /ingest/events` is on (C3.6).
    pub ingest: bool,
    /// How long answers to an `Idempotency-Key` are repeated (A1.7).
    pub idempotency_ttl: Duration,
    /// `/metrics` is served.
    pub metrics: bool,
    /// `/metrics` needs no key anywhere.
    pub metrics_public: bool,
    /// `/readyz` says 503 while Kafka is down (C13.1).
    pub ready_requires_kafka: bool,
}

/// Files of the API's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM of the chain, leaf first.
    pub cert: PathBuf,
    /// PEM of the private key.
    pub key: PathBuf,
}

/// Where deliveries may go (C9.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkSettings {
    /// What is open. The hub's own listeners are for the daemon to add.
    pub policy: AddressPolicy,
    /// More trusted roots, PEM.
    pub ca_pem: Option<String>,
    /// Limit of one attempt for subscriptions that give none.
    pub attempt_timeout: Duration,
}

/// Where the key-encryption key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KekFrom {
    /// In the environment variable of that name.
    Variable(String),
    /// In that file; systemd credentials are files too.
    File(PathBuf),
    /// In that file, which is made together with a new store (only in `local`).
    MadeWithStore(PathBuf),
}

/// The pool of workers (C5.1, C5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchSettings {
    /// Workers that start attempts.
    pub workers: usize,
    /// Attempts in flight in the hub.
    pub slots: usize,
    /// Backstop for claims: longer than the longest attempt.
    pub lease: Duration,
}

/// How the hub stops (C13.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopSettings {
    /// How long attempts in flight may finish.
    pub drain: Duration,
    /// How long it says not ready before it stops taking requests.
    pub pre_stop: Duration,
}

/// Longest attempt that any subscription may ask for; the lease must outlast it.
pub(super) const LONGEST_ATTEMPT: Duration = Duration::from_millis(limits::ATTEMPT_TIMEOUT_MAX_MS);
/// What a lease must be longer than that by: for the wait in the queue and the commit of the outcome.
pub(super) const LEASE_MARGIN: Duration = Duration::from_secs(10);
