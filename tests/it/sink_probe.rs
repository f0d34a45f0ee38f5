//! Probes (C4.7).

use crate::receivers::https::{Authority, Receiver, server_tls};
use crate::receivers::hub::{Hub, Setup, webhook};
use crate::receivers::script::Scripted;
use bytes::Bytes;
use http_body_util::Full;
use std::sync::Arc;
use std::time::Duration;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::subscription::SignatureFormat;
use streaming_hub::sink::TenantVisibility;

const CHALLENGE: &str = "c0ffee-challenge";

fn answer(status: u16, body: &str) -> Option<http::Response<Full<Bytes>>> {
    let body = Full::new(Bytes::copy_from_slice(body.as_bytes()));
    Some(http::Response::builder().status(status).header("location", "/ok").body(body).unwrap())
}

// C4.7
#[tokio::test]
async fn a_probe_passes_when_the_challenge_comes_back_or_need_not() {
    let hub = Hub::new(Setup::default());
    let long = format!("{{\"challenge\":\"{CHALLENGE}\",\"pad\":\"{}\"}}", "x".repeat(10_000));
    let json = format!("{{\"challenge\":\"{CHALLENGE}\"}}");
    for (status, body, echo, passed, error) in [
        (200, json.as_str(), true, true, None),
        (202, CHALLENGE, true, true, None),
        (200, &long, true, true, None),
        (200, "ok", true, false, Some(ErrorClass::Challenge)),
        (204, "", true, false, Some(ErrorClass::Challenge)),
        (204, "", false, true, None),
        (200, "ok", false, true, None),
        (500, &json, true, false, None),
        (301, &json, false, false, None),
        (404, "", false, false, None),
    ] {
        let text = body.to_owned();
        let receiver = Receiver::start(None, move |_| answer(status, &text)).await;
        let mut to = hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port()));
        to.spec.verification_echo = echo;
        let probe = hub.sinks.probe(&to, CHALLENGE).await;
        let seen = (probe.passed, probe.met.status, probe.met.error);
        assert_eq!(seen, (passed, Some(status), error), "{status} {body} {echo}");
        assert!(probe.met.answer.len() <= 1024);
        assert!(body.as_bytes().starts_with(&probe.met.answer));
    }
}

// C4.7, C9.1, C9.4
#[tokio::test]
async fn a_probe_is_signed_and_says_no_tenant() {
    for visibility in [TenantVisibility::Shown, TenantVisibility::Hidden] {
        let hub = Hub::new(Setup { visibility, ..Setup::default() });
        let script = "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 16\\r\\n\\r\\nc0ffee-challenge | hold";
        let mut receiver = Scripted::start(script, &Arc::new(Authority::new())).await;
        let mut to = hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port()));
        webhook(&mut to).signature_format = SignatureFormat::Both;
        assert!(hub.sinks.probe(&to, CHALLENGE).await.passed);
        let request = receiver.next().await;
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let said: serde_json::Value = serde_json::from_str(body).unwrap();
        let expected = serde_json::json!({
            "type": "subscription.verification",
            "challenge": CHALLENGE,
            "subscription_id": to.id.to_string(),
        });
        assert_eq!(said, expected);
        let value = |name: &str| {
            let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: ")));
            line.unwrap().split_once(": ").unwrap().1
        };
        let signature = streaming_hub::rules::signature::lerian(
            crate::receivers::hub::SECRET,
            value("x-webhook-timestamp").parse().unwrap(),
            body.as_bytes(),
        );
        assert_eq!(value("x-webhook-signature"), signature);
        assert_eq!(value("webhook-id"), CHALLENGE);
        assert!(!request.to_lowercase().contains("tenant") && !request.contains("acme"), "{request}");
    }
}

// C4.7, A2
#[tokio::test]
async fn a_probe_tells_what_it_saw() {
    let authority = Authority::new();
    let hub = Hub::new(Setup { ca_pem: Some(&authority.pem()), ..Setup::default() });
    for alpn in ["http/1.1", "h2"] {
        let tls = server_tls(&authority.certificate(&["receiver.test"]), &[alpn], None);
        let receiver = Receiver::start(Some(tls), |_| answer(200, CHALLENGE)).await;
        let to = hub.subscription(&format!("https://receiver.test:{}/", receiver.address.port()));
        let probe = hub.sinks.probe(&to, CHALLENGE).await;
        assert_eq!((probe.passed, probe.tls), (true, Some("1.3")), "{alpn}");
        assert_eq!(probe.met.answer, CHALLENGE.as_bytes());
        assert!(probe.duration > Duration::ZERO);
    }
    let untrusted = Receiver::ok(Some(server_tls(&Authority::new().certificate(&["receiver.test"]), &[], None))).await;
    let probe =
        hub.sinks.probe(&hub.subscription(&format!("https://receiver.test:{}/", untrusted.address.port())), "c").await;
    assert_eq!((probe.passed, probe.met.error, probe.tls), (false, Some(ErrorClass::Certificate), None));

    let silent = Scripted::start("read | hold", &Arc::new(authority)).await;
    let mut to = hub.subscription(&format!("http://127.0.0.1:{}/", silent.address.port()));
    webhook(&mut to).timeout_ms = Some(200);
    let probe = hub.sinks.probe(&to, "c").await;
    assert_eq!((probe.passed, probe.met.error), (false, Some(ErrorClass::Timeout)));
}
