//! The table of settings: name, kind, default, and one line of help for each. Flags, environment names, `--help` and
//! `streaming-hub config` are all made from it, so that they cannot disagree.
//!
//! Invariant: every row is read by [`super::meant`]; a setting that nothing reads stands in [`LATER`] instead.

use std::sync::LazyLock;

/// What every environment name starts with.
pub(super) const PREFIX: &str = "STREAMING_HUB_";

/// One setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// Its name: the environment variable without [`PREFIX`].
    pub(super) name: &'static str,
    /// How it is given.
    pub(super) kind: Kind,
    /// What holds when nobody says otherwise; empty: nothing.
    pub(super) default: &'static str,
    /// One line for `--help`.
    pub(super) help: &'static str,
}

/// How a setting is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A plain value.
    Plain,
    /// On or off; the bare flag means on.
    Switch,
    /// A certificate; also read from the file that `<NAME>_FILE` names.
    Pem,
    /// Never shown; also read from the file that `<NAME>_FILE` names, and from a systemd credential.
    Secret,
}

/// Settings of one heading of `--help`.
#[derive(Debug)]
pub(super) struct Group {
    /// The heading.
    pub(super) heading: &'static str,
    /// Its settings.
    pub(super) settings: &'static [Setting],
}

const fn plain(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Plain, default, help }
}

const fn switch(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Switch, default, help }
}

const fn pem(name: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Pem, default: "", help }
}

const fn secret(name: &'static str, help: &'static str) -> Setting {
    Setting { name, kind: Kind::Secret, default: "", help }
}

/// Every setting that something reads.
pub(super) const GROUPS: &[Group] = &[
    Group {
        heading: "The hub",
        settings: &[
            plain("ENV", "local", "local, staging or production; production refuses every ALLOW_* and needs a KEK"),
            plain(
                "LOG_LEVEL",
                "info",
                "error, warn, info, debug, trace, or directives as in RUST_LOG, which is read where this is not given",
            ),
            plain("LOG_FORMAT", "", "text or json; by default text on a terminal, else json"),
            plain("DATA_DIR", "./data", "Directory of the store, hub.redb"),
            plain("TENANT_ID", "default", "The tenant of a single-tenant hub"),
            switch("MULTI_TENANT_ENABLED", "false", "Serve many tenants (also read without the prefix)"),
            plain("SHUTDOWN_TIMEOUT", "30s", "How long attempts in flight may finish when the hub stops"),
            plain(
                "PRE_STOP_DRAIN_TIMEOUT",
                "0s",
                "How long the hub says that it is not ready before it stops taking requests",
            ),
        ],
    },
    Group {
        heading: "HTTP",
        settings: &[
            plain("HTTP_LISTEN_ADDR", "127.0.0.1:8080", "Address and port of the API; :8080 means every address"),
            plain("HTTP_TLS_CERT", "", "File with the certificate chain (PEM) of the API"),
            plain("HTTP_TLS_KEY", "", "File with its private key (PEM)"),
            switch("HTTP_BEHIND_PROXY", "false", "A proxy in front of the hub ends TLS"),
            switch("HTTP_INGEST_ENABLED", "false", "Accept events at POST /ingest/events"),
            plain("IDEMPOTENCY_TTL", "24h", "How long the answer to an Idempotency-Key is repeated"),
            switch("METRICS_ENABLED", "true", "Serve /metrics"),
            switch("METRICS_PUBLIC", "false", "Serve /metrics without a key also outside loopback"),
        ],
    },
    Group {
        heading: "Kafka",
        settings: &[
            plain("KAFKA_BROKERS", "", "Brokers as host:port, comma separated; none: no Kafka source"),
            switch("KAFKA_TLS_ENABLED", "false", "TLS to the brokers"),
            pem(
                "KAFKA_CA_CERT",
                "CA certificates for the brokers: PEM, base64 of PEM, or a file of PEM; none: the system's",
            ),
            plain("KAFKA_SCRAM_MECHANISM", "", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512; none: no authentication"),
            plain("KAFKA_SCRAM_USERNAME", "", "User name at the brokers"),
            secret(
                "KAFKA_SCRAM_PASSWORD",
                "Password at the brokers; better in KAFKA_SCRAM_PASSWORD_FILE than in a flag",
            ),
            plain("KAFKA_GROUP", "streaming-hub", "Group under which positions are shown to ordinary tools"),
            plain(
                "KAFKA_START",
                "earliest",
                "earliest or latest, for partitions that exist at the store's first start",
            ),
            switch(
                "ALLOW_INSECURE_KAFKA",
                "false",
                "Allow plaintext to brokers that are not on loopback, outside local",
            ),
            switch("READY_REQUIRES_KAFKA", "false", "Not ready while Kafka is down, instead of degraded"),
            plain("TOPIC_PREFIX", "lerian.streaming.", "What the names of followed topics start with"),
            plain("TOPIC_DISCOVERY_INTERVAL", "10s", "How often new topics and partitions are looked for"),
        ],
    },
    Group {
        heading: "Records",
        settings: &[
            switch("ACCEPT_CE_UNDERSCORE", "false", "Also take header names that start with ce_ instead of ce-"),
            plain("MAX_BODY_BYTES", "1MiB", "Largest body of an event; larger ones are quarantined"),
            plain("POISON_RETENTION", "720h", "How long quarantined records are kept"),
            plain("POISON_MAX_BYTES", "256MiB", "Space for quarantined records; beyond it they are only counted"),
        ],
    },
    Group {
        heading: "Destinations",
        settings: &[
            switch("ALLOW_PRIVATE_SINKS", "false", "Allow destinations in private networks (for development)"),
            switch("ALLOW_HTTP_SINKS", "false", "Allow destinations without TLS (for development)"),
            plain(
                "SINK_ALLOW",
                "",
                "Private destinations to allow, as in 10.20.0.0/16:443,8443; erp.local:8080+plain; 192.168.1.7/32:5671@tenant-a",
            ),
            pem("SINK_CA_CERT", "More trusted roots for destinations: PEM, base64 of PEM, or a file of PEM"),
            plain(
                "SINK_PORTS",
                "",
                "Ports of destinations, or ranges of them, comma separated; by default 443,8443,5671, with ALLOW_HTTP_SINKS also 80,8080,5672",
            ),
            plain("ATTEMPT_TIMEOUT", "10s", "Limit of one attempt, for subscriptions that give none"),
            plain(
                "RETRY_SCHEDULE",
                "0s,5s,5m,30m,2h,5h,10h,10h",
                "Steps between attempts, for subscriptions that give none",
            ),
            plain("BREAKER_FAILURES", "5", "Failures in a row that open a destination's breaker"),
            plain("BREAKER_COOLING", "30s", "How long an opened breaker waits for its first probe"),
            plain("BREAKER_COOLING_MAX", "10m", "How long it waits at most, doubling from probe to probe"),
            switch(
                "AUTODISABLE_ENABLED",
                "true",
                "Switch a subscription off that fails for too long, or whose destination says 410; false only records it",
            ),
            plain("AUTODISABLE_FAILURE_WINDOW", "120h", "How long ago its first failure since a success must be"),
            plain("AUTODISABLE_FAILURE_SPREAD", "12h", "How far apart its first and last failure must be"),
        ],
    },
    Group {
        heading: "Secrets",
        settings: &[
            plain("KEK_SOURCE", "env", "Where the key-encryption key is: env, file or credential (systemd)"),
            plain(
                "KEK_REF",
                "",
                "Name of the variable, path of the file, or name of the credential; local without one makes DATA_DIR/kek",
            ),
            plain("SECRET_OVERLAP", "24h", "How long a rotated signing secret still signs too"),
        ],
    },
    Group {
        heading: "Dispatch",
        settings: &[
            plain("DISPATCH_WORKERS", "8", "Workers that start attempts"),
            plain("DISPATCH_SLOTS", "1024", "Attempts in flight in the whole hub"),
            plain("DISPATCH_CLAIM_BATCH", "16", "Events taken in one claim"),
            plain("LEASE", "75s", "Backstop for a claim; longer than the longest attempt"),
            plain("POISON_THRESHOLD", "5", "Crashes after which a job is given up as poison"),
            plain(
                "PENDING_IN_MEMORY_MAX",
                "4000000",
                "Waiting jobs kept in memory (8 bytes each); the ends of longer lanes wait in the store",
            ),
        ],
    },
    Group {
        heading: "Store",
        settings: &[
            plain(
                "STORE_RESERVE_BYTES",
                "5%",
                "Free space under which no events and no changes are taken: a size, a part of the disk like 5%, or 0",
            ),
            plain("STORE_CACHE_BYTES", "128MiB", "Memory for pages of the store"),
            plain(
                "STORE_QUICK_REPAIR_ABOVE",
                "256MiB",
                "Size from which every commit also saves what a quick repair needs",
            ),
        ],
    },
];

/// Settings that operators of the hosted hub know, or that are described, and that nothing reads yet.
pub(super) const LATER: &[&str] = &[
    "ATTEMPTS_MAX_BYTES",
    "ATTEMPT_RETENTION",
    "AUDIT_RETENTION",
    "AWS_ENDPOINTS",
    "AWS_MACHINE_CREDENTIALS",
    "DEAD_LETTER_RETENTION",
    "DEDUP_RETENTION",
    "DLQ_RETENTION",
    "EVENTBRIDGE_MAX_BYTES",
    "JWT_AUDIENCE",
    "JWT_ISSUER",
    "JWT_JWKS",
    "JWT_ROLE_CLAIM",
    "JWT_TENANT_CLAIM",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "PENDING_MAX_AGE",
    "PULL_BURST",
    "PULL_RATE",
    "RETENTION",
    "RETENTION_DROPS_PENDING",
    "STORE_MAX_BYTES",
];

/// Every setting, in the order of the table.
pub(super) fn settings() -> impl Iterator<Item = &'static Setting> {
    GROUPS.iter().flat_map(|group| group.settings)
}

/// The flag and the environment variable of every setting, in the order of [`settings`].
pub(super) static SPELLINGS: LazyLock<Vec<Spelling>> = LazyLock::new(|| {
    settings()
        .map(|s| Spelling { flag: s.name.to_lowercase().replace('_', "-"), env: format!("{PREFIX}{}", s.name) })
        .collect()
});

/// How a setting is written.
pub(super) struct Spelling {
    /// Without the dashes in front.
    pub(super) flag: String,
    /// With the prefix.
    pub(super) env: String,
}
