//! A subscription: what it wants, where it goes, and its two independent states (C4).

use crate::model::ids::{Generation, Seq, SubNo, SubscriptionId, TenantNo};
use crate::time::Timestamp;
use bincode::{Decode, Encode};
use std::collections::BTreeMap;

/// One subscription as the store keeps it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Subscription {
    /// The store's number of it, never used again.
    pub no: SubNo,
    /// Public id.
    pub id: SubscriptionId,
    /// The store's number of its tenant.
    pub tenant_no: TenantNo,
    /// Its tenant.
    pub tenant: String,
    /// Counts the writes of this object from 1; the `ETag` (A1.8).
    pub revision: u64,
    /// Raised by whatever must be obeyed by attempts not yet begun (C5.5).
    pub generation: Generation,
    /// What the tenant asked for.
    pub spec: Spec,
    /// Switched by pause and resume, auto-disable and 410 (C4.6).
    pub enabled: Enabled,
    /// Whether the destination was proven (C4.6).
    pub verification: Verification,
    /// Whether `start_from` has been resolved: done once, when it first became active (C4.8).
    pub started: bool,
    /// First seq of its tenant that was not matched because the subscription was not live; none while it is (C8.5).
    pub unmatched_from: Option<Seq>,
    /// The last stretch of seqs that was stored while it was not matched (C8.5).
    pub skipped: Option<Skipped>,
    /// Signing secrets, sealed.
    pub secrets: SigningSecrets,
    /// Wall time of creation.
    pub created_at: Timestamp,
    /// Wall time of the last write.
    pub updated_at: Timestamp,
}

impl Subscription {
    /// Whether events are matched for it and its jobs are attempted (C4.2).
    pub fn is_live(&self) -> bool {
        matches!((&self.enabled, &self.verification), (Enabled::Yes, Verification::Active))
    }
}

/// Seqs that were stored while a subscription was not matched (C8.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Skipped {
    /// The first of them.
    pub from: Seq,
    /// The last of them.
    pub to: Seq,
}

/// What a tenant may say about a subscription.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct Spec {
    /// A name for people.
    pub name: String,
    /// A longer text for people.
    pub description: Option<String>,
    /// What it matches; at least one.
    pub event_types: Vec<EventPattern>,
    /// Only from this producer, else from any (C4.1).
    pub origin: Option<String>,
    /// Only this schema major, else any.
    pub schema_major: Option<u32>,
    /// Where events go.
    pub sink: Sink,
    /// From where it starts (C4.8).
    pub start_from: StartFrom,
    /// Its own steps in milliseconds (C6.2); none: the hub's.
    pub retry_schedule: Option<Vec<u64>>,
    /// Whether the probe's answer must repeat the challenge (C4.7).
    pub verification_echo: bool,
    /// Order of deliveries (C5.4).
    pub delivery_order: DeliveryOrder,
    /// Attempts in flight at once; above 1 only with [`DeliveryOrder::Parallel`].
    pub max_in_flight: u16,
    /// Delays, and uses no step (C4.9).
    pub rate_limit: Option<RateLimit>,
    /// The tenant's own labels.
    pub metadata: BTreeMap<String, String>,
}

/// One entry of a subscription's event-type list (C4.1).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum EventPattern {
    /// `<resource>.<event>`
    Exact(String, String),
    /// `<resource>.*`
    Resource(String),
    /// `*.<event>`
    Event(String),
    /// `*`
    All,
}

/// From where a new subscription starts (C4.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum StartFrom {
    /// Events stored after it became active.
    Now,
    /// Everything still stored.
    Earliest,
    /// That seq and later.
    Seq(u64),
    /// Events stored at that time and later.
    Time(Timestamp),
}

/// Order in which one subscription's events are delivered (C5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DeliveryOrder {
    /// First attempts in seq order, one in flight; a failed event steps aside to its retry.
    Fifo,
    /// A failed event holds the lane until it is delivered or dead.
    Strict,
    /// Up to `max_in_flight` at once, no order.
    Parallel,
}

/// A token bucket (C4.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RateLimit {
    /// Tokens a second.
    pub per_second: u32,
    /// Tokens at most.
    pub burst: u32,
}

/// The switch, with why it is off (C4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Enabled {
    /// On.
    Yes,
    /// Off.
    Disabled {
        /// By whom or what.
        reason: DisabledReason,
        /// Since when (wall time).
        since: Timestamp,
    },
}

/// What switched a subscription off (C4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DisabledReason {
    /// By `pause`.
    Paused,
    /// By the auto-disable rule (C8).
    AutoDisabled,
    /// By 410 Gone (C9.10).
    Gone,
}

/// Whether the destination answered its probe (C4.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum Verification {
    /// Created or moved, not proven.
    Pending,
    /// Probe passed.
    Active,
}

/// The kinds of destination.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum Sink {
    /// A signed POST (C9).
    Webhook(WebhookSink),
}

impl Sink {
    /// The kind's name in the API and in metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Sink::Webhook(_) => "webhook",
        }
    }

    /// The limit of an attempt that it gives, in milliseconds (C9.5).
    pub fn timeout_ms(&self) -> Option<u32> {
        match self {
            Sink::Webhook(webhook) => webhook.timeout_ms,
        }
    }

    /// The concrete place (the glossary's *destination*), on which breakers and shares hang: without a query, a header or a secret.
    pub fn destination(&self) -> String {
        match self {
            Sink::Webhook(webhook) => {
                let end = webhook.url.find(['?', '#']).unwrap_or(webhook.url.len());
                webhook.url[..end].to_owned()
            }
        }
    }
}

impl Sink {
    /// Whether a probe of this one proves the other as well: they lead to the same place (C4.6).
    pub fn is_proven_by(&self, other: &Sink) -> bool {
        match (self, other) {
            (Sink::Webhook(one), Sink::Webhook(other)) => one.url == other.url,
        }
    }
}

/// A webhook destination (C9).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct WebhookSink {
    /// The URL in its one canonical spelling, as `rules::address::parse_webhook_url` gives it.
    pub url: String,
    /// Fixed extra headers (C9.9), names as given.
    pub headers: Vec<(String, String)>,
    /// The whole attempt's limit in milliseconds, 1 to 60 s; none: the hub's (C9.5).
    pub timeout_ms: Option<u32>,
    /// Which signature headers are sent (C9.7).
    pub signature_format: SignatureFormat,
    /// Certificate chain for client authentication (PEM), its private key sealed (C9.9).
    pub client_certificate: Option<ClientCertificate>,
}

/// A client certificate of a subscription.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct ClientCertificate {
    /// PEM of the chain, leaf first.
    pub chain_pem: String,
    /// PEM of the private key, sealed under [`CLIENT_KEY_FIELD`].
    pub key: Sealed,
    /// When it was set (wall time).
    pub updated_at: Timestamp,
}

/// Which signature headers a webhook carries (C9.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SignatureFormat {
    /// `X-Webhook-*` (C9.1).
    Lerian,
    /// Standard Webhooks.
    Standard,
    /// Both.
    Both,
}

/// Under which field name signing secrets are sealed, their owner being the subscription's id.
pub const SIGNING_SECRET_FIELD: &str = "signing_secret";
/// Under which field name the key of a client certificate is sealed, its owner being the subscription's id.
pub const CLIENT_KEY_FIELD: &str = "client_key";

/// Signing secrets of a subscription, sealed (C9.1, C9.2).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct SigningSecrets {
    /// What signs.
    pub current: Sealed,
    /// The one before, while its overlap lasts.
    pub previous: Option<PreviousSecret>,
}

/// A rotated-out secret that still signs for a while (C9.2).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub struct PreviousSecret {
    /// The secret.
    pub secret: Sealed,
    /// Until when it signs too (wall time).
    pub until: Timestamp,
}

/// Bytes sealed by `secrets::Envelope`: nonce, ciphertext and tag behind a format byte. Safe to store; not shown.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
pub struct Sealed(pub Vec<u8>);

impl std::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sealed({} bytes)", self.0.len())
    }
}
