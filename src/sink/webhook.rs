//! The webhook sink: one signed POST (C9).
//!
//! A delivery reads from the top: find the route, take a resting connection or dial, sign, send, read the answer. One deadline runs
//! over all of it. What was met is handed back unjudged: `rules::outcome` judges.
//!
//! It stands on hyper's connections and not on a ready-made client, for four reasons: the one dial that judges every address (C9.8),
//! one deadline over every stage, hard ceilings on what a receiver may send, and the one thing that is sent twice within an attempt:
//! a request that met a reset on a reused connection before any byte of an answer (C9.9). No redirect is followed, nothing is
//! decompressed, no proxy is taken from the environment, and no body is copied.

use crate::model::attempt::ErrorClass;
use crate::model::limits::ANSWER_KEPT_BYTES;
use crate::model::subscription::{CLIENT_KEY_FIELD, ClientCertificate, Subscription, WebhookSink};
use crate::net::Deadline;
use crate::net::dial::{Dialler, Place, Security};
use crate::net::tls::{Alpn, ClientIdentity};
use crate::secrets::{Envelope, Scope};
use crate::sink::exchange::{Answer, Body, Broken, Http1, Http2, Keep};
use crate::sink::headers::{self, Signing};
use crate::sink::pool::{Lease, Pool};
use crate::sink::route::{Route, Routes};
use crate::sink::{Delivery, Met, Probe, Settings, TenantVisibility};
use crate::time::Clock;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Everything a webhook needs.
pub(super) struct Webhook {
    envelope: Arc<Envelope>,
    dialler: Arc<Dialler>,
    clock: Arc<dyn Clock>,
    visibility: TenantVisibility,
    timeout: Duration,
    user_agent: HeaderValue,
    routes: Routes,
    pool: Pool,
}

/// What is sent.
#[derive(Clone, Copy)]
enum Message<'a> {
    Event(&'a Delivery),
    Probe { subscription: &'a Subscription, challenge: &'a str, body: &'a Bytes },
}

/// One message on its way to one destination.
struct Call<'a> {
    route: &'a Route,
    webhook: &'a WebhookSink,
    message: Message<'a>,
    keep: Keep,
    deadline: Deadline,
}

impl Webhook {
    pub(super) fn new(
        envelope: Arc<Envelope>,
        dialler: Arc<Dialler>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Result<Self, http::header::InvalidHeaderValue> {
        let user_agent = HeaderValue::from_str(&settings.user_agent)?;
        let (visibility, timeout) = (settings.visibility, settings.timeout);
        let (routes, pool) = (Routes::default(), Pool::new(settings.resting_max));
        Ok(Self { envelope, dialler, clock, visibility, timeout, user_agent, routes, pool })
    }

    /// One attempt.
    pub(super) async fn deliver(&self, delivery: &Delivery, webhook: &WebhookSink) -> Met {
        let deadline = Deadline::after(delivery.timeout);
        let met = async {
            let route = &*self.routes.of(&delivery.subscription, webhook)?;
            let message = Message::Event(delivery);
            self.attempt(&Call { route, webhook, message, keep: Keep::OfFailures, deadline }).await
        };
        met.await.map_or_else(Met::failed, Met::from)
    }

    /// A probe, always over a connection of its own: what it proves is that the destination can be reached now (C4.7).
    pub(super) async fn probe(&self, subscription: &Subscription, webhook: &WebhookSink, challenge: &str) -> Probe {
        let began = self.clock.monotonic();
        let own = webhook.timeout_ms.map(|ms| Duration::from_millis(ms.into()));
        let deadline = Deadline::after(own.unwrap_or(self.timeout));
        let mut tls = None;
        let answer = async {
            let route = &Route::read(&subscription.tenant, webhook)?;
            let body = &probe_body(subscription, challenge);
            let message = Message::Probe { subscription, challenge, body };
            let call = Call { route, webhook, message, keep: Keep::All, deadline };
            let lease = self.dial(&call).await?;
            tls = lease.tls();
            self.exchange(lease, &call).await.map_err(|broken| broken.class)
        };
        let answer = answer.await;
        let echoed = answer.as_ref().is_ok_and(|answer| echoes(&answer.body, challenge));
        let mut met = answer.map_or_else(Met::failed, Met::from);
        met.answer.truncate(ANSWER_KEPT_BYTES);
        let accepted = met.error.is_none() && met.status.is_some_and(|status| (200..300).contains(&status));
        let passed = accepted && (echoed || !subscription.spec.verification_echo);
        if accepted && !passed {
            met.error = Some(ErrorClass::Challenge);
        }
        Probe { passed, met, tls, duration: self.clock.monotonic().saturating_sub(began) }
    }

    /// Closes connections that rested too long or were closed by their peers.
    pub(super) fn sweep(&self) {
        self.pool.sweep(Instant::now());
    }

    async fn attempt(&self, call: &Call<'_>) -> Result<Answer, ErrorClass> {
        if let Some(lease) = self.pool.take(&call.route.key, Instant::now()) {
            match self.exchange(lease, call).await {
                // The receiver closed a resting connection while we took it: once more, on a new one (C9.9).
                Err(broken) if broken.unanswered => {}
                done => return done.map_err(|broken| broken.class),
            }
        }
        let lease = self.connect(call).await?;
        self.exchange(lease, call).await.map_err(|broken| broken.class)
    }

    /// A new connection, or an HTTP/2 one that another attempt has just made.
    async fn connect(&self, call: &Call<'_>) -> Result<Lease, ErrorClass> {
        let key = &call.route.key;
        let Some(gate) = self.pool.gate(key) else { return self.dial(call).await };
        let _dialling = call.deadline.bound(gate.lock()).await.ok_or(ErrorClass::ConnectTimeout)?;
        match self.pool.take(key, Instant::now()) {
            Some(lease) => Ok(lease),
            None => self.dial(call).await,
        }
    }

    async fn dial(&self, call: &Call<'_>) -> Result<Lease, ErrorClass> {
        let Call { route, webhook, message, deadline, .. } = call;
        let identity = match &webhook.client_certificate {
            Some(certificate) => Some(self.identity(message.subscription(), certificate)?),
            None => None,
        };
        let security = if route.target.https {
            Security::Tls { alpn: Alpn::Http, identity: identity.as_ref() }
        } else {
            Security::Plain
        };
        let place = Place { host: &route.target.host, port: route.target.port, security };
        let dialled = self.dialler.dial(&route.key.tenant, place, *deadline).await;
        let conn = dialled.map_err(|error| {
            tracing::debug!(subscription = %message.subscription().id, %error, "dial failed");
            error.class()
        })?;
        let opened = if conn.speaks_http2() {
            Http2::open(conn, *deadline).await.map(|shared| {
                let shared = Arc::new(shared);
                self.pool.share(&route.key, &shared, Instant::now());
                Lease::Http2(shared)
            })
        } else {
            Http1::open(conn).await.map(|own| Lease::Http1(Box::new(own)))
        };
        opened.map_err(|broken| broken.class)
    }

    /// Opens the tenant's client key for one handshake.
    fn identity(&self, of: &Subscription, certificate: &ClientCertificate) -> Result<ClientIdentity, ErrorClass> {
        let owner = of.id.to_string();
        let scope = Scope { tenant: &of.tenant, owner: &owner, field: CLIENT_KEY_FIELD };
        let key = self.envelope.open(scope, &certificate.key).map_err(|_| ErrorClass::SecretUnreadable)?;
        ClientIdentity::from_pem(certificate.chain_pem.as_bytes(), &key).map_err(|_| ErrorClass::SecretUnreadable)
    }

    async fn exchange(&self, lease: Lease, call: &Call<'_>) -> Result<Answer, Broken> {
        match lease {
            Lease::Http1(mut own) => {
                let request = self.request(call, Version::HTTP_11)?;
                let answer = own.exchange(request, call.keep, call.deadline).await;
                self.pool.rest(&call.route.key, own, Instant::now());
                answer
            }
            Lease::Http2(shared) => {
                let request = self.request(call, Version::HTTP_2)?;
                shared.exchange(request, call.keep, call.deadline).await
            }
        }
    }

    /// The request, signed now.
    fn request(&self, call: &Call<'_>, version: Version) -> Result<Request<Body>, Broken> {
        let Call { route, webhook, message, .. } = call;
        let mut lines = HeaderMap::with_capacity(headers::LINES);
        let uri = if version == Version::HTTP_2 {
            route.whole.clone()
        } else {
            lines.insert(HOST, route.host.clone());
            route.path.clone()
        };
        lines.insert(USER_AGENT, self.user_agent.clone());
        let mut id = uuid::Uuid::encode_buffer();
        let (id, body): (&str, &Bytes) = match message {
            Message::Event(delivery) => {
                headers::write_event(&mut lines, delivery, self.visibility);
                let event = &delivery.event;
                (uuid::Uuid::from_bytes(event.id.0).hyphenated().encode_lower(&mut id), &event.body)
            }
            Message::Probe { subscription, challenge, body } => {
                headers::write_probe(&mut lines, subscription);
                (challenge, body)
            }
        };
        let signing = Signing {
            envelope: &self.envelope,
            subscription: message.subscription(),
            format: webhook.signature_format,
            id,
            at: self.clock.wall(),
            body,
        };
        // Said also of an empty body: some servers refuse a POST that does not tell its length.
        lines.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        signing.sign(&mut lines).map_err(|class| Broken { class, unanswered: false })?;
        headers::add_extra(&mut lines, &route.extra);
        let mut request = Request::new(Body::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.version_mut() = version;
        *request.headers_mut() = lines;
        Ok(request)
    }
}

impl<'a> Message<'a> {
    fn subscription(self) -> &'a Subscription {
        match self {
            Message::Event(delivery) => &delivery.subscription,
            Message::Probe { subscription, .. } => subscription,
        }
    }
}

impl Met {
    fn failed(class: ErrorClass) -> Self {
        Self { error: Some(class), ..Self::default() }
    }
}

impl From<Answer> for Met {
    fn from(answer: Answer) -> Self {
        Self {
            status: Some(answer.status.as_u16()),
            error: (answer.status == StatusCode::SWITCHING_PROTOCOLS).then_some(ErrorClass::UnexpectedUpgrade),
            retry_after: answer.retry_after,
            answer: answer.body,
        }
    }
}

/// What a probe says (C4.7). No tenant in it.
fn probe_body(subscription: &Subscription, challenge: &str) -> Bytes {
    let body = serde_json::json!({
        "type": "subscription.verification",
        "challenge": challenge,
        "subscription_id": subscription.id.to_string(),
    });
    Bytes::from(body.to_string())
}

/// Whether an answer repeats the challenge: as `{"challenge": …}`, or as the bare text (C4.7).
fn echoes(answer: &[u8], challenge: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Echo {
        challenge: String,
    }
    answer.trim_ascii() == challenge.as_bytes()
        || serde_json::from_slice::<Echo>(answer).is_ok_and(|echo| echo.challenge == challenge)
}

#[cfg(test)]
mod tests {
    use super::*;

    // C4.7
    #[test]
    fn a_probe_is_echoed_as_json_or_as_bare_text() {
        for (answer, good) in [
            (r#"{"challenge":"abc"}"#, true),
            (r#" {"challenge": "abc", "more": [1]} "#, true),
            ("abc", true),
            (" abc\r\n", true),
            (r#"{"challenge":"abcd"}"#, false),
            (r#"{"challenge":1}"#, false),
            ("xabc", false),
            ("", false),
        ] {
            assert_eq!(echoes(answer.as_bytes(), "abc"), good, "{answer}");
        }
    }
}
