//! Subscriptions over the API: made, read, changed, proven, switched, deleted.

use super::http_hub::{Hub, new_subscription};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::job::Outcome;

fn path(id: &str, rest: &str) -> String {
    format!("/v1/subscriptions/{id}{rest}")
}

// A1.10: the form of a subscription, with every default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_subscription_has_the_form_and_the_defaults() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let body = json!({"event_types": ["loan_application.approved", "repayment.*"],
        "sink": {"kind": "webhook", "url": "https://erp.example.com/hook"}});
    let made = hub.call("POST", "/v1/subscriptions", &key, Some(&body)).await;
    assert_eq!((made.status, made.header("etag")), (201, "\"1\""), "{}", made.text);
    let id = made.body["id"].as_str().unwrap().to_owned();
    assert_eq!(made.header("location"), path(&id, ""));
    let secret = made.body["signing_secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50, "{secret}");
    let mut rest = made.body.clone();
    let rest = rest.as_object_mut().unwrap();
    for name in ["id", "signing_secret", "created_at", "updated_at"] {
        assert!(rest.remove(name).unwrap().is_string(), "{name}");
    }
    let expected = json!({
        "name": "https://erp.example.com/hook", "description": null,
        "event_types": ["loan_application.approved", "repayment.*"], "origin": null, "schema_major": null,
        "sink": {"kind": "webhook", "url": "https://erp.example.com/hook", "headers": {}, "timeout": null,
                 "signature_format": "lerian", "client_certificate": null},
        "start_from": "now", "retry_schedule": null, "verification_echo": true, "delivery_order": "fifo",
        "max_in_flight": 1, "rate_limit": null, "enabled": true, "disabled_reason": null,
        "verification_state": "pending", "metadata": {},
    });
    assert_eq!(Value::Object(rest.clone()), expected);

    let read = hub.call("GET", &path(&id, ""), &key, None).await;
    assert_eq!((read.status, read.header("etag")), (200, "\"1\""));
    assert!(!read.text.contains("whsec_"), "the secret is shown once");
    let health = json!({"breaker": {"state": "closed", "since": null, "until": null, "shed": 0}, "failure_span": null, "verdict": null, "hold": null,
        "counts": {"delivered": 0, "failed_attempts": 0, "dead_letters": 0},
        "backlog": {"waiting": 0, "in_flight": 0}, "oldest_pending_age": null, "last_success": null,
        "last_failure": null, "disabled_since": null, "former_secret_until": null});
    assert_eq!(read.body["health"], health);
    let mut shown = read.body.clone();
    shown.as_object_mut().unwrap().remove("health");
    let mut created = made.body;
    created.as_object_mut().unwrap().remove("signing_secret");
    assert_eq!(shown, created, "what is read is what was answered");
}

// A1.10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_field_comes_back_as_it_was_set() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let given = json!({
        "name": "loans to the ERP", "description": "two\nlines", "event_types": ["*.approved"], "origin": "lender",
        "schema_major": 2,
        "sink": {"kind": "webhook", "url": "https://erp.example.com:8443/hook?x=1", "headers": {"X-Env": "prod"},
                 "timeout": "60s", "signature_format": "both", "client_certificate": null},
        "start_from": 41, "retry_schedule": ["0s", "250ms", "5m", "10h"], "verification_echo": false,
        "delivery_order": "parallel", "max_in_flight": 256, "rate_limit": {"per_second": 10, "burst": 20},
        "metadata": {"owner": "team-erp"},
    });
    let made = hub.call("POST", "/v1/subscriptions", &key, Some(&given)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    for (name, value) in given.as_object().unwrap() {
        let shown = if name == "sink" { with_timeout(value, "1m") } else { value.clone() };
        assert_eq!(made.body[name], shown, "{name}");
    }
    for (start_from, shown) in [
        (json!("earliest"), json!("earliest")),
        (json!("2026-01-31T12:00:00+01:00"), json!("2026-01-31T11:00:00.000Z")),
    ] {
        let mut body = new_subscription("erp");
        body["start_from"] = start_from;
        let made = hub.call("POST", "/v1/subscriptions", &key, Some(&body)).await;
        assert_eq!(made.body["start_from"], shown, "{}", made.text);
    }
}

fn with_timeout(sink: &Value, timeout: &str) -> Value {
    let mut sink = sink.clone();
    sink["timeout"] = json!(timeout);
    sink
}

// A1.4, A1.9: every wrong field, by its pointer, all of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_fields_are_all_named() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let good = || new_subscription("erp");
    let with = |name: &str, value: Value| {
        let mut body = good();
        body[name] = value;
        body
    };
    let sink = |name: &str, value: Value| {
        let mut body = good();
        body["sink"][name] = value;
        body
    };
    let many: Vec<String> = (0..201).map(|n| format!("a.b{n}")).collect();
    let labels: BTreeMap<String, &str> = (0..51).map(|n| (format!("l{n}"), "x")).collect();
    for (body, faults) in [
        (json!({}), vec![("/event_types", "required"), ("/sink", "required")]),
        (with("nme", json!("x")), vec![("/nme", "unknown_field")]),
        (with("enabled", json!(true)), vec![("/enabled", "read_only")]),
        (with("id", json!("x")), vec![("/id", "read_only")]),
        (with("name", json!("")), vec![("/name", "empty")]),
        (with("name", json!("a\r\nb")), vec![("/name", "invalid_value")]),
        (with("name", json!(" ")), vec![("/name", "invalid_value")]),
        (with("name", json!("erp \u{202e}gpj.")), vec![("/name", "invalid_value")]),
        (with("event_types", json!([])), vec![("/event_types", "empty")]),
        (with("event_types", json!(many)), vec![("/event_types", "too_long")]),
        (
            with("event_types", json!(["a.b", "a", "a*.b", 1, "a.b"])),
            vec![
                ("/event_types/1", "invalid_value"),
                ("/event_types/2", "invalid_value"),
                ("/event_types/3", "wrong_type"),
                ("/event_types/4", "duplicate"),
            ],
        ),
        (with("origin", json!("Lender")), vec![("/origin", "invalid_value")]),
        (with("schema_major", json!(4_294_967_296u64)), vec![("/schema_major", "out_of_range")]),
        (with("start_from", json!("yesterday")), vec![("/start_from", "invalid_value")]),
        (with("start_from", json!(0)), vec![("/start_from", "invalid_value")]),
        (with("retry_schedule", json!([])), vec![("/retry_schedule", "empty")]),
        (
            with("retry_schedule", json!(["0s", "11h", "x", 5])),
            vec![
                ("/retry_schedule/1", "out_of_range"),
                ("/retry_schedule/2", "invalid_value"),
                ("/retry_schedule/3", "wrong_type"),
            ],
        ),
        (with("retry_schedule", json!(vec!["0s"; 13])), vec![("/retry_schedule", "too_long")]),
        (with("delivery_order", json!("random")), vec![("/delivery_order", "invalid_value")]),
        (with("max_in_flight", json!(2)), vec![("/max_in_flight", "conflict")]),
        (with("max_in_flight", json!(257)), vec![("/max_in_flight", "out_of_range")]),
        (
            with("rate_limit", json!({"per_second": 0, "brust": 1})),
            vec![("/rate_limit/per_second", "out_of_range"), ("/rate_limit/brust", "unknown_field")],
        ),
        (
            with("metadata", json!({"a": 1, "b": "x\u{0}"})),
            vec![("/metadata/a", "wrong_type"), ("/metadata/b", "invalid_value")],
        ),
        (with("metadata", json!(labels)), vec![("/metadata", "too_long")]),
        (with("sink", json!("x")), vec![("/sink", "wrong_type")]),
        (with("sink", json!({})), vec![("/sink/kind", "required")]),
        (sink("kind", json!("sqs")), vec![("/sink/kind", "unsupported_sink_kind")]),
        (sink("url", json!("ftp://erp.example.com/")), vec![("/sink/url", "scheme")]),
        (sink("url", json!("http://erp.example.com:443/")), vec![("/sink/url", "plain")]),
        (sink("url", json!("https://erp.example.com:22/")), vec![("/sink/url", "port")]),
        (sink("url", json!("https://169.254.169.254/")), vec![("/sink/url", "link_local")]),
        (sink("url", json!("https://user:pw@erp.example.com/")), vec![("/sink/url", "userinfo")]),
        (sink("timeout", json!("61s")), vec![("/sink/timeout", "out_of_range")]),
        (sink("signature_format", json!("v2")), vec![("/sink/signature_format", "invalid_value")]),
        (
            sink("headers", json!({"Host": "x", "X-A": 1, "X-B": "1", "x-b": "2"})),
            vec![
                ("/sink/headers/Host", "header_not_allowed"),
                ("/sink/headers/X-A", "wrong_type"),
                ("/sink/headers/x-b", "duplicate"),
            ],
        ),
        (
            sink("client_certificate", json!({"certificate_pem": "x"})),
            vec![("/sink/client_certificate/private_key_pem", "required")],
        ),
        (
            sink("client_certificate", json!({"certificate_pem": "x", "private_key_pem": "y"})),
            vec![("/sink/client_certificate/certificate_pem", "invalid_value")],
        ),
        (with("verify", json!("yes")), vec![("/verify", "wrong_type")]),
    ] {
        let answer = hub.call("POST", "/v1/subscriptions", &key, Some(&body)).await;
        answer.is_problem(422, "invalid");
        let expected: BTreeMap<String, String> =
            faults.into_iter().map(|(pointer, code)| (pointer.to_owned(), code.to_owned())).collect();
        assert_eq!(answer.faults(), expected, "{body}");
    }
    let none = hub.call("GET", "/v1/subscriptions", &key, None).await;
    assert_eq!(none.body["items"], json!([]), "a refused one has made nothing");
    hub.call("POST", "/v1/subscriptions", &key, Some(&json!([]))).await.is_problem(422, "invalid");
}

// A1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_go_page_by_page_newest_first() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let mut made = Vec::new();
    for n in 0..7 {
        made.push(hub.subscribe(&key, &format!("h{n}")).await["id"].as_str().unwrap().to_owned());
    }
    made.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = hub.call("GET", &format!("/v1/subscriptions?limit=3{cursor}"), &key, None).await;
        assert_eq!(page.status, 200, "{}", page.text);
        seen.extend(page.body["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        // A write between two pages moves nothing.
        hub.subscribe(&key, "later").await;
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    for (query, status) in
        [("limit=0", 422), ("limit=201", 422), ("cursor=x", 400), ("what=1", 422), ("limit=1&limit=2", 422)]
    {
        let answer = hub.call("GET", &format!("/v1/subscriptions?{query}"), &key, None).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
    }
}

// A1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_narrowed_by_their_filters() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let pending = hub.subscribe(&key, "pending").await["id"].as_str().unwrap().to_owned();
    let active = hub.subscribe_active(&key, "active").await;
    let paused = hub.subscribe_active(&key, "paused").await;
    hub.call("POST", &path(&paused, "/pause"), &key, None).await;
    for (query, expected) in [
        ("", vec![&paused, &active, &pending]),
        ("enabled=true", vec![&active, &pending]),
        ("enabled=false", vec![&paused]),
        ("verification_state=pending", vec![&pending]),
        ("verification_state=active&enabled=true", vec![&active]),
        ("sink=webhook", vec![&paused, &active, &pending]),
        ("health=healthy", vec![&paused, &active, &pending]),
        ("health=unhealthy", vec![]),
    ] {
        let page = hub.call("GET", &format!("/v1/subscriptions?{query}"), &key, None).await;
        let ids: Vec<&str> =
            page.body["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    hub.call("GET", "/v1/subscriptions?enabled=yes", &key, None).await.is_problem(422, "invalid");
}

// A1.8, A1.9, C4.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_changes_what_it_names() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let patch = async |body: Value| hub.call("PATCH", &path(&id, ""), &key, Some(&body)).await;

    let named = patch(json!({"name": "new", "metadata": {"a": "1"}, "sink": {"headers": {"X-A": "1"}}})).await;
    assert_eq!((named.status, named.header("etag")), (200, "\"3\""), "{}", named.text);
    assert_eq!(named.body["name"], "new");
    assert_eq!(named.body["sink"]["url"], "https://erp.example.com/hook");
    assert_eq!(named.body["sink"]["headers"], json!({"X-A": "1"}));
    assert_eq!((&named.body["verification_state"], &named.body["skipped"]), (&json!("active"), &Value::Null));
    let more = patch(json!({"metadata": {"b": "2", "a": null}, "name": null})).await;
    assert_eq!(
        (&more.body["metadata"], &more.body["name"]),
        (&json!({"b": "2"}), &json!("https://erp.example.com/hook"))
    );

    for (body, pointer, code) in [
        (json!({"enabled": false}), "/enabled", "read_only"),
        (json!({"nme": 1}), "/nme", "unknown_field"),
        (json!({"sink": {"kind": "pull"}}), "/sink/kind", "unsupported_sink_kind"),
        (json!({"sink": null}), "/sink", "required"),
        (json!({"start_from": "earliest"}), "/start_from", "read_only"),
        (json!({"max_in_flight": 3}), "/max_in_flight", "conflict"),
    ] {
        let answer = patch(body).await;
        answer.is_problem(422, "invalid");
        assert_eq!(answer.faults().get(pointer).map(String::as_str), Some(code), "{}", answer.text);
    }
    let moved = patch(json!({"sink": {"url": "https://other.example.com/hook"}})).await;
    assert_eq!(moved.body["verification_state"], "pending", "a new destination is not proven: {}", moved.text);
    hub.call("PATCH", &path(&id, ""), &key, Some(&json!(["x"]))).await.is_problem(422, "invalid");
}

// C4.6: proven first, switched in one step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_may_prove_the_new_destination_first() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "old").await;
    let body = json!({"sink": {"url": "https://new.example.com/hook"}, "verify": true});
    *hub.prober.passes.lock().unwrap() = false;
    let refused = hub.call("PATCH", &path(&id, ""), &key, Some(&body)).await;
    refused.is_problem(422, "invalid");
    assert_eq!(refused.faults()["/sink/url"], "probe_failed");
    let unmoved = hub.call("GET", &path(&id, ""), &key, None).await;
    assert_eq!(unmoved.body["sink"]["url"], "https://old.example.com/hook");
    assert_eq!(unmoved.body["verification_state"], "active");

    *hub.prober.passes.lock().unwrap() = true;
    let moved = hub.call("PATCH", &path(&id, ""), &key, Some(&body)).await;
    assert_eq!((moved.status, &moved.body["verification_state"]), (200, &json!("active")), "{}", moved.text);
    assert_eq!(moved.body["probe"]["passed"], true);
    assert_eq!(moved.body["sink"]["url"], "https://new.example.com/hook");
    assert_eq!(hub.prober.probed.lock().unwrap().last().unwrap(), "https://new.example.com/hook");
}

// A1.8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_update_is_refused() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let name = json!({"name": "x"});
    for (tag, status) in
        [("\"1\"", 200), ("\"1\"", 412), ("W/\"2\"", 412), ("\"7\", \"2\"", 200), ("*", 200), ("garbage", 412)]
    {
        let answer = hub.call_with("PATCH", &path(&id, ""), &key, Some(&name), &[("if-match", tag)]).await;
        assert_eq!(answer.status, status, "{tag}: {}", answer.text);
    }
    for (method, rest) in [("POST", "/pause"), ("POST", "/rotate-secret"), ("DELETE", "")] {
        let answer = hub.call_with(method, &path(&id, rest), &key, None, &[("if-match", "\"1\"")]).await;
        answer.is_problem(412, "precondition_failed");
    }
}

// C4.7, C8.4: what the probe saw is told; a failed one changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_tells_what_the_probe_saw() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    *hub.prober.passes.lock().unwrap() = false;
    let failed = hub.call("POST", &path(&id, "/verify"), &key, None).await;
    let seen =
        json!({"passed": false, "status": 503, "duration_ms": 7, "tls": "TLSv1.3", "error_class": "server_error"});
    assert_eq!((failed.status, &failed.body["probe"]), (200, &seen), "{}", failed.text);
    assert_eq!((&failed.body["verification_state"], failed.header("etag")), (&json!("pending"), "\"1\""));

    *hub.prober.passes.lock().unwrap() = true;
    let passed = hub.call("POST", &path(&id, "/verify"), &key, Some(&json!({}))).await;
    assert_eq!((&passed.body["probe"]["passed"], &passed.body["verification_state"]), (&json!(true), &json!("active")));

    let mut body = new_subscription("at-once");
    body["verify"] = json!(true);
    let made = hub.call("POST", "/v1/subscriptions", &key, Some(&body)).await;
    assert_eq!((made.status, &made.body["verification_state"]), (201, &json!("active")), "{}", made.text);
    assert!(made.body["signing_secret"].is_string() && made.body["probe"]["passed"] == true);
    hub.call("POST", &path(&id, "/verify"), &key, Some(&json!({"x": 1}))).await.is_problem(422, "invalid");
}

// C4.6, C8.5: what was stored meanwhile is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resume_tells_what_was_skipped() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let paused = hub.call("POST", &path(&id, "/pause"), &key, None).await;
    assert_eq!(paused.body["enabled"], false, "{}", paused.text);
    assert_eq!((&paused.body["disabled_reason"], &paused.body["skipped"]), (&json!("paused"), &Value::Null));
    hub.store("a", "{}").await;
    hub.store("a", "{}").await;
    let resumed = hub.call("POST", &path(&id, "/resume"), &key, None).await;
    assert_eq!(resumed.body["skipped"], json!({"from_seq": 1, "to_seq": 2}), "{}", resumed.text);
    assert_eq!((&resumed.body["enabled"], &resumed.body["disabled_reason"]), (&json!(true), &Value::Null));
    let again = hub.call("POST", &path(&id, "/resume"), &key, None).await;
    assert_eq!((again.status, &again.body["skipped"]), (200, &Value::Null));
}

// C9.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_rotated_with_an_overlap() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let made = hub.subscribe(&key, "erp").await;
    let id = made["id"].as_str().unwrap();
    let rotated = hub.call("POST", &path(id, "/rotate-secret"), &key, None).await;
    assert_eq!(rotated.status, 200, "{}", rotated.text);
    assert_ne!(rotated.body["signing_secret"], made["signing_secret"]);
    let until = rotated.body["former_secret_until"].clone();
    assert!(until.is_string());
    let read = hub.call("GET", &path(id, ""), &key, None).await;
    assert_eq!(read.body["health"]["former_secret_until"], until);
    hub.call("POST", &path(id, "/rotate-secret"), &key, None).await.is_problem(409, "rotation_in_progress");
    let now = hub.call("POST", &path(id, "/rotate-secret"), &key, Some(&json!({"expire_old_now": true}))).await;
    assert_eq!((now.status, &now.body["former_secret_until"]), (200, &Value::Null), "{}", now.text);
    let read = hub.call("GET", &path(id, ""), &key, None).await;
    assert_eq!(read.body["health"]["former_secret_until"], Value::Null);
    assert!(!read.text.contains("whsec_"));
}

// C9.9: the key of a client certificate is written only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_kept_and_not_shown() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let pair = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["hub".to_owned()]).unwrap().self_signed(&pair).unwrap();
    let mut body = new_subscription("erp");
    body["sink"]["client_certificate"] =
        json!({"certificate_pem": certificate.pem(), "private_key_pem": pair.serialize_pem()});
    let made = hub.call("POST", "/v1/subscriptions", &key, Some(&body)).await;
    assert_eq!(made.status, 201, "{}", made.text);
    assert!(!made.text.contains("PRIVATE KEY"));
    let shown = &made.body["sink"]["client_certificate"];
    assert_eq!(shown["set"], true);
    let id = made.body["id"].as_str().unwrap();
    let kept = hub.call("PATCH", &path(id, ""), &key, Some(&json!({"name": "other"}))).await;
    assert_eq!(kept.body["sink"]["client_certificate"], *shown, "{}", kept.text);
    let gone = hub.call("PATCH", &path(id, ""), &key, Some(&json!({"sink": {"client_certificate": null}}))).await;
    assert_eq!(gone.body["sink"]["client_certificate"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_subscription_is_gone() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let (event, _) = hub.store("a", "{}").await;
    let gone = hub.call("DELETE", &path(&id, ""), &key, None).await;
    assert_eq!((gone.status, gone.text.as_str()), (204, ""));
    for (method, rest) in [("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("GET", "/dead-letters")] {
        hub.call(method, &path(&id, rest), &key, None).await.is_problem(404, "not_found");
    }
    let shown = hub.call("GET", &format!("/v1/events/{event}"), &key, None).await;
    assert_eq!(shown.body["deliveries"][0]["state"], "removed", "{}", shown.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_delivery_shows_its_attempt() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let tested = hub.call("POST", &path(&id, "/test"), &key, None).await;
    assert_eq!(tested.status, 200, "{}", tested.text);
    let attempt = &tested.body["attempt"];
    assert_eq!((&attempt["status"], &attempt["error_class"]), (&json!(503), &json!("server_error")));
    assert_eq!((&attempt["answer"], &attempt["time"]), (&json!("no"), &json!("2023-11-14T22:13:20.000Z")));
}

// C7.3: breaker and backlog are seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_shows_backlog_hold_and_breaker() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    for _ in 0..3 {
        hub.store("a", "{}").await;
    }
    let claim = hub.next_claim().await;
    let busy = hub.call("GET", &path(&id, ""), &key, None).await.body["health"].clone();
    assert_eq!(busy["backlog"]["in_flight"], 1, "{busy}");
    assert!(busy["oldest_pending_age"].is_string(), "{busy}");
    let attempt = super::http_hub::attempt(Some(429), Some(ErrorClass::RateLimited));
    hub.settle(&claim, Outcome::Held { attempt, hold_ms: 60_000 });
    let held = loop {
        let health = hub.call("GET", &path(&id, ""), &key, None).await.body["health"].clone();
        if health["hold"] != Value::Null {
            break health;
        }
    };
    assert!(held["hold"]["until"].is_string(), "{held}");
    assert_eq!(held["backlog"], json!({"waiting": 3, "in_flight": 0}), "{held}");
    let page = hub.call("GET", "/v1/subscriptions?health=unhealthy", &key, None).await;
    assert_eq!(page.body["items"][0]["id"], json!(id), "{}", page.text);
}
