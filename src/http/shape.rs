//! A subscription as the API shows it (A2). What is written here is what a client may send back: a merge patch is laid over this
//! very form.

use crate::http::json::show_duration;
use crate::http::outside::ProbeSeen;
use crate::model::ids::{Seq, SubscriptionId};
use crate::model::subscription::{
    DeliveryOrder, DisabledReason, Enabled, SignatureFormat, Sink, Skipped, Spec, StartFrom, Subscription,
    Verification, WebhookSink,
};
use crate::rules::matching::pattern_text;
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Subscription)]
pub(crate) struct SubscriptionShown {
    /// Its id.
    #[schema(example = "sub_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01")]
    id: String,
    /// A name for people; without one, the destination.
    name: String,
    /// A longer text for people.
    description: Option<String>,
    /// `<resource>.<event>`, `<resource>.*`, `*.<event>` or `*`.
    #[schema(example = json!(["loan_application.approved", "repayment.*"]))]
    event_types: Vec<String>,
    /// Only from this producer, else from any.
    origin: Option<String>,
    /// Only this schema major, else any.
    schema_major: Option<u32>,
    /// Where events go.
    sink: WebhookShown,
    /// From where it starts: `now`, `earliest`, a seq, or a time.
    start_from: StartFromShown,
    /// Its own steps, 1 to 12 of at most 10h; null: the hub's.
    #[schema(example = json!(["0s", "5s", "5m"]))]
    retry_schedule: Option<Vec<String>>,
    /// Whether a probe's answer must repeat the challenge.
    verification_echo: bool,
    /// Order of deliveries.
    #[schema(value_type = DeliveryOrderSchema)]
    delivery_order: &'static str,
    /// Attempts in flight at once, 1 to 256; above 1 only with `parallel`.
    max_in_flight: u16,
    /// At most so many deliveries.
    rate_limit: Option<RateLimitShown>,
    /// Switched by pause and resume, by lasting failure and by 410.
    enabled: bool,
    /// Why it is off.
    #[schema(value_type = Option<DisabledReasonSchema>)]
    disabled_reason: Option<&'static str>,
    /// Whether the destination was proven.
    #[schema(value_type = VerificationSchema)]
    verification_state: &'static str,
    /// The tenant's own labels.
    metadata: BTreeMap<String, String>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last changed.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// A webhook destination.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookSink)]
pub(crate) struct WebhookShown {
    /// `webhook`.
    kind: &'static str,
    /// Where the events are posted.
    #[schema(example = "https://erp.example.com/hook")]
    url: String,
    /// Fixed extra headers.
    headers: BTreeMap<String, String>,
    /// The whole attempt's limit, 1s to 60s; null: the hub's.
    #[schema(example = "10s")]
    timeout: Option<String>,
    /// Which signature headers are sent.
    #[schema(value_type = SignatureFormatSchema)]
    signature_format: &'static str,
    /// The client certificate, whose key is never shown. To set one, send `certificate_pem` and `private_key_pem`.
    client_certificate: Option<CertificateShown>,
}

/// That there is a client certificate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ClientCertificate)]
pub(crate) struct CertificateShown {
    /// Always true.
    set: bool,
    /// When it was set.
    #[schema(value_type = String, format = DateTime)]
    updated_at: Timestamp,
}

/// `now`, `earliest`, a seq, or a time.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StartFrom)]
#[serde(untagged)]
pub(crate) enum StartFromShown {
    /// `now`, `earliest` or a time.
    Text(String),
    /// That seq and later.
    Seq(u64),
}

/// A token bucket.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RateLimit)]
pub(crate) struct RateLimitShown {
    /// Deliveries a second.
    per_second: u32,
    /// Deliveries at once.
    burst: u32,
}

/// Seqs that were stored while the subscription was not matched.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Skipped)]
pub(crate) struct SkippedShown {
    /// The first of them.
    from_seq: u64,
    /// The last of them.
    to_seq: u64,
}

/// A subscription after a change that may have made it matched again.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChangedSubscription)]
pub(crate) struct Changed {
    #[serde(flatten)]
    subscription: SubscriptionShown,
    /// What was stored while it was not matched, when this change made it matched again.
    skipped: Option<SkippedShown>,
}

/// What a probe saw.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Probe)]
pub(crate) struct ProbeShown {
    /// Whether the destination proved itself.
    passed: bool,
    /// HTTP status, where an answer's head came.
    status: Option<u16>,
    /// How long it took.
    duration_ms: u32,
    /// TLS version, where the connection got so far.
    tls: Option<String>,
    /// Class of the error; null when it passed.
    #[schema(example = "connect_timeout")]
    error_class: Option<&'static str>,
}

impl SubscriptionShown {
    pub(crate) fn of(subscription: &Subscription) -> Self {
        let Spec {
            name,
            description,
            event_types,
            origin,
            schema_major,
            sink,
            start_from,
            retry_schedule,
            verification_echo,
            delivery_order,
            max_in_flight,
            rate_limit,
            metadata,
        } = subscription.spec.clone();
        let Sink::Webhook(webhook) = sink;
        let (enabled, disabled_reason) = match subscription.enabled {
            Enabled::Yes => (true, None),
            Enabled::Disabled { reason, .. } => (false, Some(disabled_reason_name(reason))),
        };
        Self {
            id: subscription.id.to_string(),
            name,
            description,
            event_types: event_types.iter().map(pattern_text).collect(),
            origin,
            schema_major,
            sink: WebhookShown::of(webhook),
            start_from: match start_from {
                StartFrom::Now => StartFromShown::Text("now".to_owned()),
                StartFrom::Earliest => StartFromShown::Text("earliest".to_owned()),
                StartFrom::Seq(seq) => StartFromShown::Seq(seq),
                StartFrom::Time(time) => StartFromShown::Text(time.to_string()),
            },
            retry_schedule: retry_schedule.map(|steps| steps.into_iter().map(show_duration).collect()),
            verification_echo,
            delivery_order: name_of(&DELIVERY_ORDERS, delivery_order),
            max_in_flight,
            rate_limit: rate_limit.map(|limit| RateLimitShown { per_second: limit.per_second, burst: limit.burst }),
            enabled,
            disabled_reason,
            verification_state: verification_name(subscription.verification),
            metadata,
            created_at: subscription.created_at,
            updated_at: subscription.updated_at,
        }
    }
}

impl WebhookShown {
    fn of(webhook: WebhookSink) -> Self {
        Self {
            kind: "webhook",
            url: webhook.url,
            headers: webhook.headers.into_iter().collect(),
            timeout: webhook.timeout_ms.map(|ms| show_duration(u64::from(ms))),
            signature_format: name_of(&SIGNATURE_FORMATS, webhook.signature_format),
            client_certificate: webhook
                .client_certificate
                .map(|certificate| CertificateShown { set: true, updated_at: certificate.updated_at }),
        }
    }
}

impl Changed {
    pub(crate) fn of(subscription: &Subscription, skipped: Option<Skipped>) -> Self {
        Self { subscription: SubscriptionShown::of(subscription), skipped: skipped.map(SkippedShown::of) }
    }
}

impl SkippedShown {
    pub(crate) fn of(skipped: Skipped) -> Self {
        let Skipped { from: Seq(from_seq), to: Seq(to_seq) } = skipped;
        Self { from_seq, to_seq }
    }
}

impl ProbeShown {
    pub(crate) fn of(seen: &ProbeSeen) -> Self {
        Self {
            passed: seen.passed,
            status: seen.status,
            duration_ms: seen.duration_ms,
            tls: seen.tls.clone(),
            error_class: seen.error.map(|class| class.code()),
        }
    }
}

/// The orders of delivery by name.
pub(crate) const DELIVERY_ORDERS: [(&str, DeliveryOrder); 3] =
    [("fifo", DeliveryOrder::Fifo), ("strict", DeliveryOrder::Strict), ("parallel", DeliveryOrder::Parallel)];

/// The signature formats by name.
pub(crate) const SIGNATURE_FORMATS: [(&str, SignatureFormat); 3] =
    [("lerian", SignatureFormat::Lerian), ("standard", SignatureFormat::Standard), ("both", SignatureFormat::Both)];

/// The verification states by name.
pub(crate) const VERIFICATIONS: [(&str, Verification); 2] =
    [("pending", Verification::Pending), ("active", Verification::Active)];

/// What an id is in the paths of `Location`.
pub(crate) fn location(id: SubscriptionId) -> String {
    format!("/v1/subscriptions/{id}")
}

fn verification_name(state: Verification) -> &'static str {
    name_of(&VERIFICATIONS, state)
}

pub(crate) fn disabled_reason_name(reason: DisabledReason) -> &'static str {
    match reason {
        DisabledReason::Paused => "paused",
        DisabledReason::AutoDisabled => "auto_disabled",
        DisabledReason::Gone => "gone",
    }
}

fn name_of<T: PartialEq, const N: usize>(names: &[(&'static str, T); N], value: T) -> &'static str {
    names.iter().find(|(_, known)| *known == value).map_or("", |(name, _)| name)
}

/// The closed lists, for the OpenAPI document.
macro_rules! closed_list {
    ($($(#[$doc:meta])* $name:ident as $shown:ident { $($variant:ident $text:literal),* })*) => {$(
        $(#[$doc])*
        #[derive(ToSchema)]
        #[schema(as = $shown)]
        #[expect(dead_code, reason = "only its schema is used")]
        pub(crate) enum $name { $(#[schema(rename = $text)] $variant),* }
    )*};
}

closed_list! {
    /// Order of deliveries.
    DeliveryOrderSchema as DeliveryOrder { Fifo "fifo", Strict "strict", Parallel "parallel" }
    /// Which signature headers are sent.
    SignatureFormatSchema as SignatureFormat { Lerian "lerian", Standard "standard", Both "both" }
    /// Whether the destination was proven.
    VerificationSchema as VerificationState { Pending "pending", Active "active" }
    /// Why a subscription is off.
    DisabledReasonSchema as DisabledReason { Paused "paused", AutoDisabled "auto_disabled", Gone "gone" }
}
