//! A webhook's request as its receiver sees it: header lines, signatures, bytes (C9.1 to C9.4, C9.7, C9.9).

use crate::kafka_support::service;
use crate::receivers::https::{Got, Receiver};
use crate::receivers::hub::{Hub, NOW, OLD_SECRET, SECRET, Setup, event, webhook};
use crate::receivers::script::Scripted;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::hmac;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::event::Event;
use streaming_hub::model::job::Cause;
use streaming_hub::model::subscription::{PreviousSecret, SIGNING_SECRET_FIELD, SignatureFormat, Subscription};
use streaming_hub::sink::{Delivery, TenantVisibility};
use streaming_hub::time::{Clock as _, SystemClock, Timestamp};

/// What reaches an honest receiver when the subscription, the event and the delivery are changed like that.
async fn got_of(
    hub: &Hub,
    subscription: impl FnOnce(&mut Subscription),
    event: impl FnOnce(&mut Event),
    delivery: impl FnOnce(&mut Delivery),
) -> Got {
    let mut receiver = Receiver::ok(None).await;
    let mut to = hub.subscription(&format!("http://127.0.0.1:{}/hook?a=1", receiver.address.port()));
    subscription(&mut to);
    let mut made = hub.delivery(to);
    event(Arc::make_mut(&mut made.event));
    delivery(&mut made);
    let met = hub.sinks.deliver(&made).await;
    assert_eq!((met.status, met.error), (Some(200), None));
    let got = receiver.next().await;
    assert_eq!(receiver.waiting(), 0);
    got
}

fn same<T>(_: &mut T) {}

fn lines(got: &Got) -> Vec<String> {
    let mut lines: Vec<_> =
        got.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

// C9.1, C9.3
#[tokio::test]
async fn a_delivery_carries_these_lines_and_no_others() {
    let hub = Hub::new(Setup::default());
    let got = got_of(
        &hub,
        |to| webhook(to).headers = vec![("X-Env".to_owned(), "prod".to_owned())],
        |event| {
            event.subject = Some("loans/42 à vista".into());
            event.data_schema = Some("https://schemas.test/loan?v=\"1\"".into());
            event.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into());
            event.tracestate = Some("vendor=a b".into());
            event.extensions = vec![("channel".into(), "app 100%".into()), ("branch".into(), "São Paulo".into())];
        },
        |made| (made.attempt, made.cause) = (3, Cause::Match),
    )
    .await;
    let host = format!("host: {}", got.headers["host"].to_str().unwrap());
    let signature = format!("x-webhook-signature: {}", got.one("x-webhook-signature"));
    assert_eq!(
        lines(&got),
        [
            "content-length: 16",
            "content-type: application/json",
            host.as_str(),
            "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate: vendor=a b",
            concat!("user-agent: streaming-hub/", env!("CARGO_PKG_VERSION")),
            "x-env: prod",
            "x-lerian-attempt: 3",
            "x-lerian-delivery-id: dlv_09090909-0909-0909-0909-090909090909",
            "x-lerian-event-id: 0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01",
            "x-lerian-event-time: 2025-08-01T12:00:00.5-03:00",
            "x-lerian-event-type: loan_application.approved",
            "x-lerian-ext-branch: S%C3%A3o%20Paulo",
            "x-lerian-ext-channel: app%20100%25",
            "x-lerian-redelivery: retry",
            "x-lerian-schema-version: v1.2.0",
            "x-lerian-schema: https://schemas.test/loan?v=%221%22",
            "x-lerian-seq: 41",
            "x-lerian-subject: loans/42%20%C3%A0%20vista",
            "x-lerian-subscription-id: sub_07070707-0707-0707-0707-070707070707",
            "x-lerian-tenant-id: acme",
            signature.as_str(),
            "x-webhook-timestamp: 1700000000",
        ]
    );
    assert_eq!((got.method.as_str(), got.uri.to_string().as_str()), ("POST", "/hook?a=1"));
    assert_eq!(host, format!("host: 127.0.0.1:{}", got.headers["host"].to_str().unwrap().rsplit_once(':').unwrap().1));
}

// C9.3
#[tokio::test]
async fn redelivery_says_why() {
    let hub = Hub::new(Setup::default());
    for (cause, attempt, says) in [
        (Cause::Match, 1, None),
        (Cause::Match, 2, Some("retry")),
        (Cause::Redrive, 1, Some("redrive")),
        (Cause::Replay, 1, Some("replay")),
        (Cause::Replay, 4, Some("replay")),
    ] {
        let got = got_of(&hub, same, same, |made| (made.cause, made.attempt) = (cause, attempt)).await;
        assert_eq!(got.headers.get("x-lerian-redelivery").map(|value| value.to_str().unwrap()), says);
        assert_eq!(got.one("x-lerian-attempt"), attempt.to_string());
    }
}

// C9.1: the given vectors, verified on the bytes that came over the wire.
#[tokio::test]
async fn signatures_on_the_wire_are_those_of_the_vectors() {
    #[derive(serde::Deserialize)]
    struct Vectors {
        vectors: Vec<Vector>,
    }
    #[derive(serde::Deserialize)]
    struct Vector {
        secret: String,
        timestamp: u64,
        body_base64: String,
        signature: String,
    }
    let hub = Hub::new(Setup::default());
    let given: Vectors = serde_json::from_str(include_str!("../cases/signature-vectors.json")).unwrap();
    assert!(given.vectors.len() >= 5);
    for vector in given.vectors {
        hub.clock.set(Timestamp(vector.timestamp * 1000 + 999));
        let body = STANDARD.decode(vector.body_base64).unwrap();
        let sent = Bytes::from(body.clone());
        let got = got_of(
            &hub,
            |to| to.secrets.current = hub.seal(to.id, SIGNING_SECRET_FIELD, &vector.secret),
            |event| event.body = sent,
            same,
        )
        .await;
        assert_eq!(got.one("x-webhook-signature"), vector.signature);
        assert_eq!(got.one("x-webhook-timestamp"), vector.timestamp.to_string());
        assert_eq!(got.body, body);
        assert_eq!(got.one("content-length"), body.len().to_string());
    }
}

fn lerian(secret: &str, got: &Got) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [b"v1:", got.one("x-webhook-timestamp").as_bytes(), b".", &got.body].concat();
    let tag = hmac::sign(&key, &signed);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("v1,sha256={hex}")
}

fn standard(secret: &str, got: &Got) -> String {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let head = format!("{}.{}.", got.one("webhook-id"), got.one("webhook-timestamp"));
    format!("v1,{}", STANDARD.encode(hmac::sign(&key, &[head.as_bytes(), &got.body].concat())))
}

// C9.2, C9.7
#[tokio::test]
async fn in_the_overlap_both_secrets_sign_and_the_new_one_first() {
    let hub = Hub::new(Setup::default());
    let later = Timestamp(NOW.0 + 1);
    for (until, format, secrets) in [
        (Some(later), SignatureFormat::Lerian, &[SECRET, OLD_SECRET][..]),
        (Some(later), SignatureFormat::Standard, &[SECRET, OLD_SECRET]),
        (Some(later), SignatureFormat::Both, &[SECRET, OLD_SECRET]),
        (Some(NOW), SignatureFormat::Both, &[SECRET]),
        (None, SignatureFormat::Lerian, &[SECRET]),
        (None, SignatureFormat::Standard, &[SECRET]),
    ] {
        let previous = |to: &Subscription, until| PreviousSecret {
            secret: hub.seal(to.id, SIGNING_SECRET_FIELD, OLD_SECRET),
            until,
        };
        let change = |to: &mut Subscription| {
            to.secrets.previous = until.map(|until| previous(to, until));
            webhook(to).signature_format = format;
        };
        let got = got_of(&hub, change, same, same).await;
        let lerian: Vec<_> = match format {
            SignatureFormat::Standard => vec![],
            SignatureFormat::Lerian | SignatureFormat::Both => {
                secrets.iter().map(|secret| lerian(secret, &got)).collect()
            }
        };
        assert_eq!(got.all("x-webhook-signature"), lerian);
        match format {
            SignatureFormat::Lerian => {
                assert!(!got.headers.keys().any(|name| name.as_str().starts_with("webhook-")));
            }
            SignatureFormat::Standard | SignatureFormat::Both => {
                let signatures: Vec<_> = secrets.iter().map(|secret| standard(secret, &got)).collect();
                assert_eq!(got.one("webhook-signature"), signatures.join(" "));
                assert_eq!(got.one("webhook-id"), event().id.to_string());
                assert_eq!(got.one("webhook-timestamp"), "1700000000");
            }
        }
    }
}

// C9.7: verified by the libraries that receivers use. `tests/run` installs them and says where they are.
#[tokio::test]
async fn standard_signatures_satisfy_the_npm_packages() {
    let modules = service("HUB_TEST_NODE_MODULES");
    let hub = Hub::new(Setup::default());
    // The packages compare with their own clock.
    hub.clock.set(SystemClock::new().wall());
    for overlap in [false, true] {
        let change = |to: &mut Subscription| {
            webhook(to).signature_format = SignatureFormat::Standard;
            if overlap {
                let until = Timestamp(u64::MAX);
                let old = to.secrets.current.clone();
                to.secrets.current = hub.seal(to.id, SIGNING_SECRET_FIELD, OLD_SECRET);
                to.secrets.previous = Some(PreviousSecret { secret: old, until });
            }
        };
        let got = got_of(&hub, change, |event| event.body = Bytes::from("{\"nome\":\"João\"}"), same).await;
        let headers: serde_json::Map<_, _> = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .map(|name| (name.to_owned(), got.one(name).into()))
            .into_iter()
            .collect();
        let recorded = serde_json::json!({
            "secret": SECRET, "headers": headers, "body_base64": STANDARD.encode(&got.body),
        });
        let (modules, recorded) = (modules.clone(), recorded.to_string());
        let output = tokio::task::spawn_blocking(move || {
            let mut node = std::process::Command::new("node")
                .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/services/verify.mjs"))
                .env("HUB_TEST_NODE_MODULES", modules)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            node.stdin.take().unwrap().write_all(recorded.as_bytes()).unwrap();
            node.wait_with_output().unwrap()
        });
        let output = output.await.unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "standardwebhooks ok\nsvix ok\n");
    }
}

// C9.4
#[tokio::test]
async fn a_single_tenant_hub_says_no_tenant_anywhere() {
    let hub = Hub::new(Setup { visibility: TenantVisibility::Hidden, ..Setup::default() });
    let mut receiver = Scripted::start(
        "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n | hold",
        &Arc::new(crate::receivers::https::Authority::new()),
    )
    .await;
    let mut made = hub.delivery(hub.subscription(&format!("http://receiver.test:{}/", receiver.address.port())));
    let event = Arc::make_mut(&mut made.event);
    event.extensions = vec![
        ("tenantid".into(), "acme".into()),
        ("tenant_id".into(), "other".into()),
        ("partitionkey".into(), "acme".into()),
        ("channel".into(), "app".into()),
    ];
    assert_eq!(hub.sinks.deliver(&made).await.status, Some(200));
    let text = receiver.next().await.to_lowercase();
    assert!(text.contains("x-lerian-ext-channel: app") && text.contains("x-lerian-seq: 41"), "{text}");
    for word in ["tenant", "acme", "partitionkey", "other"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

// C9.9: what was stored under other rules is not sent.
#[tokio::test]
async fn stored_extra_headers_never_replace_ours() {
    let hub = Hub::new(Setup::default());
    let headers = [
        ("X-Lerian-Event-Id", "forged"),
        ("x-webhook-signature", "forged"),
        ("Host", "forged"),
        ("Content-Length", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Metadata-Flavor", "Google"),
        ("User-Agent", "forged"),
        ("Authorization", "Bearer kept"),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let got = got_of(&hub, |to| webhook(to).headers = headers, same, same).await;
    assert_eq!(got.one("authorization"), "Bearer kept");
    assert!(!lines(&got).iter().any(|line| line.contains("forged") || line.contains("Google")), "{:?}", lines(&got));
    assert_eq!(got.body, event().body);
}

// C9.3: header lines are spelled as documented, for receivers that compare with case.
#[tokio::test]
async fn over_http1_names_are_spelled_as_documented() {
    let hub = Hub::new(Setup::default());
    let answer = "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n | hold";
    let mut receiver = Scripted::start(answer, &Arc::new(crate::receivers::https::Authority::new())).await;
    assert_eq!(hub.deliver(&format!("http://127.0.0.1:{}/", receiver.address.port())).await.status, Some(200));
    let text = receiver.next().await;
    assert!(text.starts_with("POST / HTTP/1.1\r\nHost: 127.0.0.1:"), "{text}");
    for name in ["X-Webhook-Timestamp", "X-Webhook-Signature", "X-Lerian-Event-Id", "X-Lerian-Delivery-Id"] {
        assert!(text.contains(&format!("\r\n{name}: ")), "{name} in {text}");
    }
}

// C5.2
#[tokio::test]
async fn a_secret_that_cannot_be_opened_sends_nothing() {
    let hub = Hub::new(Setup::default());
    let mut receiver = Receiver::ok(None).await;
    let mut to = hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port()));
    to.secrets.current = hub.seal(to.id, "another_field", SECRET);
    let mut made = hub.delivery(to);
    made.timeout = Duration::from_secs(5);
    assert_eq!(hub.sinks.deliver(&made).await.error, Some(ErrorClass::SecretUnreadable));
    assert!(receiver.requests.try_recv().is_err());
}
