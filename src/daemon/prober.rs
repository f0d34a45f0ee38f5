//! Probes and test deliveries for the API, through the same sinks as every delivery (C4.7).

use crate::dispatch::attempt::{outcome_of, timeout_of};
use crate::entropy::{Entropy, os_bytes};
use crate::http::{Answering, ProbeSeen, Prober, TestSeen};
use crate::model::attempt::{AttemptRecord, ErrorClass};
use crate::model::event::Event;
use crate::model::ids::{DeliveryId, EventId, Seq};
use crate::model::job::{Cause, Outcome};
use crate::model::subscription::Subscription;
use crate::rules::outcome;
use crate::sink::{Delivery, Met, Sinks};
use crate::time::{Clock, Timestamp, millis};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// Tries destinations.
pub(super) struct SinkProber {
    sinks: Arc<Sinks>,
    clock: Arc<dyn Clock>,
    default_timeout: Duration,
}

impl SinkProber {
    pub(super) fn new(sinks: Arc<Sinks>, clock: Arc<dyn Clock>, default_timeout: Duration) -> Self {
        Self { sinks, clock, default_timeout }
    }

    async fn probe_once(&self, subscription: &Subscription) -> ProbeSeen {
        let mut random = [0; 24];
        if os_bytes(&mut random).is_err() {
            // A challenge that can be guessed proves nothing.
            tracing::error!("the operating system gives no random bytes: nothing can be probed");
            return ProbeSeen {
                passed: false,
                status: None,
                duration_ms: 0,
                tls: None,
                error: Some(ErrorClass::Crashed),
            };
        }
        let probe = self.sinks.probe(subscription, &URL_SAFE_NO_PAD.encode(random)).await;
        ProbeSeen {
            passed: probe.passed,
            status: probe.met.status,
            duration_ms: u32::try_from(millis(probe.duration)).unwrap_or(u32::MAX),
            tls: probe.tls.map(str::to_owned),
            error: if probe.passed { None } else { why(&probe.met) },
        }
    }

    async fn test_once(&self, subscription: Arc<Subscription>) -> TestSeen {
        let at = self.clock.wall();
        let Ok(mut entropy) = Entropy::from_os() else {
            let event_id = EventId([0; 16]);
            return TestSeen { event_id, attempt: not_sent(at) };
        };
        let event_id = EventId(entropy.uuid_v7(at));
        let delivery = Delivery {
            timeout: timeout_of(&subscription, self.default_timeout),
            event: Arc::new(test_event(&subscription, event_id, at)),
            subscription,
            seq: Seq(0),
            delivery: DeliveryId(random_v8(&mut entropy)),
            attempt: 1,
            cause: Cause::Match,
        };
        let began = self.clock.monotonic();
        let met: Met = self.sinks.deliver(&delivery).await;
        let took = self.clock.monotonic().saturating_sub(began);
        let attempt = match outcome_of(met, delivery.delivery, at, took, self.clock.wall()) {
            Outcome::Delivered(attempt)
            | Outcome::Failed { attempt, .. }
            | Outcome::Held { attempt, .. }
            | Outcome::Hopeless { attempt, .. } => attempt,
            Outcome::Released | Outcome::Crashed => not_sent(at),
        };
        TestSeen { event_id, attempt }
    }
}

/// What a probe that did not pass met, in the words of a delivery (C9.5). What would have been a delivery lacks the challenge.
fn why(met: &Met) -> Option<ErrorClass> {
    outcome::class(met.status, met.error).or(Some(ErrorClass::Challenge))
}

impl Prober for SinkProber {
    fn probe(&self, subscription: Arc<Subscription>) -> Answering<'_, ProbeSeen> {
        Box::pin(async move { self.probe_once(&subscription).await })
    }

    fn test(&self, subscription: Arc<Subscription>) -> Answering<'_, TestSeen> {
        Box::pin(self.test_once(subscription))
    }
}

/// The event of a test: stored nowhere, marked by its type and by an extension, so that no receiver takes it for business.
fn test_event(subscription: &Subscription, id: EventId, at: Timestamp) -> Event {
    let body = serde_json::json!({ "test": true, "subscription_id": subscription.id.to_string(), "sent_at": at });
    Event {
        id,
        tenant: subscription.tenant.as_str().into(),
        source: subscription.spec.origin.as_deref().unwrap_or("streaming-hub").into(),
        resource: "subscription".into(),
        event: "test".into(),
        time: at.to_string().into(),
        schema_version: "1.0.0".into(),
        schema_major: 1,
        subject: None,
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: None,
        tracestate: None,
        extensions: vec![("test".into(), "true".into())],
        body: Bytes::from(body.to_string()),
    }
}

fn random_v8(entropy: &mut Entropy) -> [u8; 16] {
    let bytes = (u128::from(entropy.next_u64()) << 64) | u128::from(entropy.next_u64());
    uuid::Builder::from_custom_bytes(bytes.to_be_bytes()).into_uuid().into_bytes()
}

fn not_sent(at: Timestamp) -> AttemptRecord {
    let error = Some(ErrorClass::Crashed);
    AttemptRecord { delivery: DeliveryId([0; 16]), at, duration_ms: 0, status: None, error, answer: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C8.4, C9.5
    #[test]
    fn a_probe_says_what_a_delivery_would() {
        use ErrorClass as E;
        for (status, error, said) in [
            (Some(404), None, E::ClientError),
            (Some(410), None, E::Gone),
            (Some(429), None, E::RateLimited),
            (Some(301), None, E::Redirect),
            (Some(500), None, E::ServerError),
            (Some(503), None, E::ServerError),
            (Some(101), Some(E::UnexpectedUpgrade), E::UnexpectedUpgrade),
            (Some(500), Some(E::Reset), E::ServerError),
            (None, Some(E::ConnectTimeout), E::ConnectTimeout),
            (None, Some(E::DestinationBlocked), E::DestinationBlocked),
            (Some(200), Some(E::Challenge), E::Challenge),
            (Some(200), None, E::Challenge),
            (None, None, E::Protocol),
        ] {
            assert_eq!(why(&Met { status, error, ..Met::default() }), Some(said), "{status:?} {error:?}");
        }
    }
}
