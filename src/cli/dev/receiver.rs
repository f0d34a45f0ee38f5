//! The small receiver of `streaming-hub dev`: an ordinary webhook endpoint that verifies every signature, and whose paths behave well or
//! badly on purpose. Each delivery is one line.
//!
//! A probe (C4.7) is answered on every path, so that a subscription to a bad path can be proven and then suffer from it.

use super::tally::{Arrival, Signature, Tally};
use crate::rules::signature::verify_lerian;
use crate::time::Clock;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Its paths, and what they do with a delivery.
pub(super) const PATHS: &str = "/ok /fail /flaky /slow /limit /gone /redirect";
/// Largest body that it takes: the largest event, and room.
const BODY_BYTES: usize = crate::model::limits::BODY_BYTES_MAX + (1 << 16);
/// How long `/slow` takes.
const SLOW: Duration = Duration::from_millis(1500);
/// How many deliveries `/limit` takes of one subscription before it says 429 again.
const LIMIT_TAKES: u32 = 10;

/// The receiver.
pub(super) struct Receiver {
    tally: Arc<Tally>,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<String, Known>>,
    say: Box<dyn Fn(String) + Send + Sync>,
}

/// A subscription whose secret the receiver was given.
struct Known {
    secret: String,
    taken_since_limit: u32,
}

/// What is answered to one request.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    status: u16,
    header: Option<(&'static str, &'static str)>,
    body: String,
    after: Duration,
}

impl Reply {
    fn plain(status: u16, body: impl Into<String>) -> Self {
        Self { status, header: None, body: body.into(), after: Duration::ZERO }
    }
}

impl Receiver {
    /// One that counts in `tally` and hands each delivery's line to `say`.
    pub(super) fn new(tally: Arc<Tally>, clock: Arc<dyn Clock>, say: Box<dyn Fn(String) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self { tally, clock, known: Mutex::default(), say })
    }

    /// Gives it the secret of a subscription.
    pub(super) fn learn(&self, subscription: &str, secret: &str) {
        let known = Known { secret: secret.to_owned(), taken_since_limit: LIMIT_TAKES };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(subscription.to_owned(), known);
    }

    /// Serves until told to stop; connections end with it.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            // Out of file descriptors: the next one may have better luck, a little later.
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (receiver, stop) = (self.clone(), stop.clone());
            connections.spawn(async move {
                let service = hyper::service::service_fn(move |request| receiver.clone().handle(request));
                let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let connection = builder.serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    () = stop.cancelled() => {}
                    // The hub closed it, or broke it; its attempt knows.
                    _ = connection => {}
                }
            });
        }
        connections.close();
        connections.wait().await;
    }

    async fn handle(self: Arc<Self>, request: http::Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let reply = match Limited::new(body, BODY_BYTES).collect().await {
            Ok(body) => self.judge(&head, &body.to_bytes()),
            Err(_) => Reply::plain(413, "too large, or broken off"),
        };
        tokio::time::sleep(reply.after).await;
        let mut response = Response::new(Full::new(Bytes::from(reply.body)));
        *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Some((name, value)) = reply.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        Ok(response)
    }

    fn judge(&self, head: &Parts, body: &[u8]) -> Reply {
        if head.method != Method::POST {
            return Reply::plain(405, format!("POST deliveries to one of {PATHS}\n"));
        }
        let probe = Probe::read(body);
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
        let subscription =
            probe.as_ref().map(|probe| probe.subscription.as_str()).or(header("x-lerian-subscription-id"));
        let subscription = subscription.unwrap_or_default();
        let signature = self.verify(subscription, &head.headers, body);
        let reply = match (&probe, signature) {
            (_, Signature::Wrong) => Reply::plain(401, "the signature is wrong, stale or absent"),
            (Some(probe), Signature::Right | Signature::Unknown) => {
                Reply::plain(200, serde_json::json!({ "challenge": probe.challenge }).to_string())
            }
            (None, Signature::Right | Signature::Unknown) => self.behave(head, subscription),
        };
        let (attempt, seq) = (header("x-lerian-attempt").unwrap_or("-"), header("x-lerian-seq"));
        if probe.is_none() {
            self.tally.arrived(&Arrival {
                subscription,
                event: header("x-lerian-event-id").unwrap_or_default(),
                seq: seq.and_then(|seq| seq.parse().ok()),
                first_attempt: attempt == "1" && !matches!(header("x-lerian-redelivery"), Some("redrive" | "replay")),
                signature,
                status: reply.status,
            });
        }
        let what = if probe.is_some() { "(probe)" } else { header("x-lerian-event-type").unwrap_or("(no event type)") };
        (self.say)(format!(
            "{} {:<9} {:<18} seq {:<5} {:<32} attempt {:<2} signature {:<8} {}",
            reply.status,
            head.uri.path(),
            header("x-lerian-tenant-id").unwrap_or("-"),
            seq.unwrap_or("-"),
            what,
            attempt,
            match signature {
                Signature::Right => "verified",
                Signature::Wrong => "WRONG",
                Signature::Unknown => "unknown",
            },
            header("x-lerian-event-id").unwrap_or("-"),
        ));
        reply
    }

    fn verify(&self, subscription: &str, headers: &HeaderMap, body: &[u8]) -> Signature {
        let texts = |name| headers.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        let timestamp = texts("x-webhook-timestamp").next().unwrap_or_default();
        let now = self.clock.wall().unix_seconds();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let verified = match known.get(subscription) {
            Some(known) => verify_lerian(&known.secret, texts("x-webhook-signature"), timestamp, now, body),
            // A subscription that somebody else made: its secret was shown to them only. What is unsigned is still refused.
            None if texts("x-webhook-signature").next().is_some() => return Signature::Unknown,
            None => return Signature::Wrong,
        };
        if verified.is_ok() { Signature::Right } else { Signature::Wrong }
    }

    fn behave(&self, head: &Parts, subscription: &str) -> Reply {
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match head.uri.path() {
            "/ok" => Reply::plain(200, "thanks"),
            "/fail" => Reply::plain(500, "this path always fails"),
            // One event in three, at its first attempt: every event comes through in the end.
            "/flaky" if header("x-lerian-attempt") == "1" && one_in_three(header("x-lerian-event-id")) => {
                Reply::plain(503, "this path fails now and then")
            }
            "/flaky" => Reply::plain(200, "thanks"),
            "/slow" => Reply { after: SLOW, ..Reply::plain(200, "thanks, at last") },
            "/limit" if self.takes_one_more(subscription) => Reply::plain(200, "thanks"),
            "/limit" => Reply { header: Some(("retry-after", "1")), ..Reply::plain(429, "not so fast") },
            "/gone" => Reply::plain(410, "nobody lives here any more"),
            "/redirect" => Reply { header: Some(("location", "/ok")), ..Reply::plain(302, "over there") },
            _ => Reply::plain(404, format!("POST deliveries to one of {PATHS}\n")),
        }
    }

    // The first of a subscription is refused, then ten are taken, and so on: every event comes through in the end.
    fn takes_one_more(&self, subscription: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = known.get_mut(subscription) else { return false };
        known.taken_since_limit = if known.taken_since_limit >= LIMIT_TAKES { 0 } else { known.taken_since_limit + 1 };
        known.taken_since_limit != 0
    }
}

fn one_in_three(event: &str) -> bool {
    event.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))).is_multiple_of(3)
}

/// A probe's body (C4.7).
struct Probe {
    challenge: String,
    subscription: String,
}

impl Probe {
    fn read(body: &[u8]) -> Option<Self> {
        let json: serde_json::Value = serde_json::from_slice(body).ok()?;
        let text = |name: &str| json.get(name)?.as_str().map(str::to_owned);
        (text("type")? == "subscription.verification")
            .then(|| Some(Self { challenge: text("challenge")?, subscription: text("subscription_id")? }))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::signature::lerian;
    use crate::time::Timestamp;

    const NOW: u64 = 1_800_000_000;

    struct Fixed;
    impl Clock for Fixed {
        fn wall(&self) -> Timestamp {
            Timestamp(NOW * 1000)
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn receiver() -> Arc<Receiver> {
        let receiver = Receiver::new(Arc::default(), Arc::new(Fixed), Box::new(|_| {}));
        receiver.learn("sub_ours", "whsec_ours");
        receiver
    }

    fn post(path: &str, subscription: &str, signature: Option<String>, at: u64, attempt: u32) -> Parts {
        let mut request = http::Request::post(path)
            .header("x-lerian-subscription-id", subscription)
            .header("x-lerian-attempt", attempt.to_string())
            .header("x-lerian-event-id", "e1")
            .header("x-webhook-timestamp", at.to_string());
        if let Some(signature) = signature {
            request = request.header("x-webhook-signature", signature);
        }
        request.body(()).unwrap().into_parts().0
    }

    // C9.1
    #[test]
    fn only_what_is_signed_right_and_fresh_is_taken() {
        let sign = |secret, at| Some(lerian(secret, at, b"{}"));
        for (subscription, signature, at, status) in [
            ("sub_ours", sign("whsec_ours", NOW), NOW, 200),
            ("sub_ours", sign("whsec_ours", NOW - 299), NOW - 299, 200),
            ("sub_ours", sign("whsec_ours", NOW - 301), NOW - 301, 401),
            ("sub_ours", sign("whsec_ours", NOW + 301), NOW + 301, 401),
            ("sub_ours", sign("whsec_other", NOW), NOW, 401),
            ("sub_ours", None, NOW, 401),
            ("sub_elses", sign("whsec_elses", NOW), NOW, 200),
            ("sub_elses", None, NOW, 401),
        ] {
            let head = post("/ok", subscription, signature.clone(), at, 1);
            assert_eq!(receiver().judge(&head, b"{}").status, status, "{subscription} {signature:?} {at}");
        }
    }

    #[test]
    fn paths_behave_as_they_are_called() {
        let signed = |path, attempt| post(path, "sub_ours", Some(lerian("whsec_ours", NOW, b"{}")), NOW, attempt);
        let receiver = receiver();
        for (path, statuses) in [
            ("/ok", vec![200, 200]),
            ("/fail", vec![500, 500]),
            ("/gone", vec![410, 410]),
            ("/redirect", vec![302, 302]),
            ("/slow", vec![200]),
            ("/nowhere", vec![404]),
            ("/limit", vec![429, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 429, 200]),
        ] {
            let met: Vec<u16> = statuses.iter().map(|_| receiver.judge(&signed(path, 1), b"{}").status).collect();
            assert_eq!(met, statuses, "{path}");
        }
        let flaky: Vec<u16> = (1..=2).map(|attempt| receiver.judge(&signed("/flaky", attempt), b"{}").status).collect();
        assert_eq!(flaky, [503, 200]);
        assert_eq!(receiver.judge(&http::Request::get("/ok").body(()).unwrap().into_parts().0, b"").status, 405);
    }

    // C4.7
    #[test]
    fn a_probe_is_answered_on_every_path_with_its_challenge() {
        let body = br#"{"type":"subscription.verification","challenge":"c-1","subscription_id":"sub_ours"}"#;
        let head = post("/fail", "-", Some(lerian("whsec_ours", NOW, body)), NOW, 1);
        assert_eq!(receiver().judge(&head, body), Reply::plain(200, r#"{"challenge":"c-1"}"#));
        let head = post("/fail", "-", Some(lerian("whsec_other", NOW, body)), NOW, 1);
        assert_eq!(receiver().judge(&head, body).status, 401);
    }
}
