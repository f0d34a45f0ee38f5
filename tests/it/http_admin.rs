//! What operators see and do: keys, quarantined records, gaps, partitions, dead letters; and events, ingest and readiness.

use super::http_hub::{Answered, Hub, new_subscription, read, settings};
use serde_json::{Value, json};
use streaming_hub::engine::command::{Admit, AdmitFrom, PartitionStep};
use streaming_hub::http::{Check, CheckState, Ingest, PartitionFacts, Settings, Tenancy};
use streaming_hub::model::api_key::Role;
use streaming_hub::model::gap::{Gap, GapReason};
use streaming_hub::model::job::Outcome;
use streaming_hub::model::space::Room;
use streaming_hub::time::Timestamp;

const ID: &str = "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01";

fn ce_headers() -> Vec<(&'static str, String)> {
    [
        ("ce-specversion", "1.0"),
        ("ce-id", ID),
        ("ce-source", "lender"),
        ("ce-type", "studio.lerian.lender.loan_application.approved"),
        ("ce-time", "2026-11-30T12:00:00Z"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-resourcetype", "loan_application"),
        ("ce-eventtype", "approved"),
        ("ce-tenantid", "a"),
        ("content-type", "application/json"),
    ]
    .map(|(name, value)| (name, value.to_owned()))
    .to_vec()
}

/// Ingests with some of the headers set otherwise; an empty value leaves one out.
async fn ingest(hub: &Hub, key: &str, other: &[(&'static str, &str)], body: &str) -> Answered {
    let mut headers = ce_headers();
    for (name, value) in other {
        headers.retain(|(known, _)| known != name);
        headers.push((name, (*value).to_owned()));
    }
    let mut request = hub.request("POST", "/ingest/events").bearer_auth(key).body(body.to_owned());
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(*name, value);
    }
    read(request).await
}

// C3.6: the same verdicts, after the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_in_over_http() {
    let hub = Hub::multi().await;
    let key = hub.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await;
    let tenant = hub.tenant("a").await;
    let body = r#"{"amount":10.50, "n":12345678901234567890.10}"#;
    let stored = ingest(&hub, &key, &[("ce-subject", "Euro%20%E2%82%AC"), ("ce-region", "\"br%25\"")], body).await;
    assert_eq!((stored.status, &stored.body), (202, &json!({"verdict": "accept", "seq": 1, "duplicate": false})));
    let again = ingest(&hub, &key, &[], "other").await;
    assert_eq!((again.status, &again.body), (202, &json!({"verdict": "accept", "seq": 1, "duplicate": true})));
    let system = ingest(&hub, &key, &[("ce-systemevent", "true")], "{}").await;
    assert_eq!((system.status, &system.body), (202, &json!({"verdict": "drop", "seq": null, "duplicate": false})));

    // C3.4
    let shown = hub.call("GET", &format!("/v1/events/{ID}"), &tenant, None).await;
    assert!(shown.text.contains(&format!("\"payload\":{body}")), "{}", shown.text);
    assert_eq!((&shown.body["subject"], &shown.body["extensions"]), (&json!("Euro €"), &json!({"region": "br%"})));
    let upper = hub.call("GET", &format!("/v1/events/{}", ID.to_uppercase()), &tenant, None).await;
    assert_eq!(upper.body["ceId"], ID);
}

// C3.6, C2.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_malformed_is_quarantined_and_seen() {
    let hub = Hub::multi().await;
    let key = hub.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await;
    for (header, code) in [
        (("ce-tenantid", ""), "missing_tenant"),
        (("ce-id", "x"), "invalid_id"),
        (("ce-specversion", "0.3"), "unsupported_specversion"),
        (("ce-subject", "%ff"), "header_not_utf8"),
    ] {
        ingest(&hub, &key, &[header], "{\"a\":1}").await.is_problem(422, code);
    }
    let page = hub.call("GET", "/admin/poison?limit=3", &hub.operator, None).await;
    let items = page.body["items"].as_array().unwrap();
    let reasons: Vec<&str> = items.iter().map(|item| item["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["header_not_utf8", "unsupported_specversion", "invalid_id"]);
    assert_eq!((&items[0]["origin"], &items[0]["body"]), (&json!("http"), &json!("{\"a\":1}")));
    let odd = items[0]["headers"].as_array().unwrap().iter().find(|header| header["name"] == "ce-subject").unwrap();
    assert_eq!((&odd["value"], &odd["value_base64"]), (&Value::Null, &json!("/w==")));
    assert!(!page.text.contains("shk_"), "no credential is kept");
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let rest = hub.call("GET", &format!("/admin/poison?limit=3&cursor={cursor}"), &hub.operator, None).await;
    assert_eq!(rest.body["items"][0]["reason"], "missing_tenant", "{}", rest.text);
    assert_eq!((rest.body["items"].as_array().unwrap().len(), &rest.body["next_cursor"]), (1, &Value::Null));
}

// A1.9: the key's tenants and sources.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ingest_key_writes_only_what_it_names() {
    let hub = Hub::multi().await;
    let role = Role::Ingest { tenants: vec!["a".to_owned()], sources: vec!["lender".to_owned(), "midaz".to_owned()] };
    let key = hub.key(role).await;
    assert_eq!(ingest(&hub, &key, &[], "{}").await.status, 202);
    let source = [("ce-source", "matcher"), ("ce-type", "studio.lerian.matcher.loan_application.approved")];
    ingest(&hub, &key, &source, "{}").await.is_problem(403, "source_not_allowed");
    ingest(&hub, &key, &[("ce-tenantid", "b")], "{}").await.is_problem(403, "source_not_allowed");
    ingest(&hub, &key, &[("ce-tenantid", "b"), ("ce-id", "x")], "{}").await.is_problem(403, "source_not_allowed");
    ingest(&hub, &key, &[("ce-source", "")], "{}").await.is_problem(422, "missing_header");
    let poison = hub.call("GET", "/admin/poison", &hub.operator, None).await;
    assert_eq!(poison.body["items"].as_array().unwrap().len(), 1, "what was forbidden left nothing: {}", poison.text);
}

// C3.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ingest_has_its_limits() {
    let hub = Hub::multi().await;
    let key = hub.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await;
    let kinds = ["application/cloudevents-batch+json", "application/cloudevents+json; charset=utf-8"];
    for kind in kinds {
        ingest(&hub, &key, &[("content-type", kind)], "[]").await.is_problem(415, "unsupported_media_type");
    }
    let large = "x".repeat((1 << 20) + 1);
    ingest(&hub, &key, &[], &large).await.is_problem(413, "payload_too_large");
    assert_eq!(ingest(&hub, &key, &[("content-type", "text/plain")], &large[1..]).await.status, 202);
    let off = Hub::start(Settings { ingest: Ingest::Off, ..settings(Tenancy::Multi) }).await;
    let key = off.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await;
    ingest(&off, &key, &[], "{}").await.is_problem(404, "not_found");
}

// A1.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_keys_are_made_listed_and_revoked() {
    let hub = Hub::multi().await;
    let operator = hub.operator.clone();
    let make = async |body: Value| hub.call("POST", "/admin/api-keys", &operator, Some(&body)).await;
    let made = make(json!({"name": "erp", "role": "tenant", "tenant_id": "a"})).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (id, key) = (made.body["id"].as_str().unwrap(), made.body["key"].as_str().unwrap());
    assert_eq!(hub.call("GET", "/v1/subscriptions", key, None).await.status, 200);
    let listed = hub.call("GET", "/admin/api-keys?limit=1", &operator, None).await;
    let mut shown = made.body.clone();
    shown.as_object_mut().unwrap().remove("key");
    assert_eq!(listed.body["items"], json!([shown]));
    assert!(!listed.text.contains("shk_"));
    let cursor = listed.body["next_cursor"].as_str().unwrap();
    let rest = hub.call("GET", &format!("/admin/api-keys?limit=1&cursor={cursor}"), &operator, None).await;
    assert_eq!((&rest.body["items"][0]["role"], &rest.body["next_cursor"]), (&json!("operator"), &Value::Null));

    for _ in 0..2 {
        assert_eq!(hub.call("DELETE", &format!("/admin/api-keys/{id}"), &operator, None).await.status, 204);
        hub.call("GET", "/v1/subscriptions", key, None).await.is_problem(401, "unauthorized");
    }
    hub.call("DELETE", &format!("/admin/api-keys/key_{ID}"), &operator, None).await.is_problem(404, "not_found");

    let sources = json!({"name": "x", "role": "ingest", "sources": ["lender"], "tenants": ["a"]});
    let made = make(sources).await;
    assert_eq!((&made.body["sources"], &made.body["tenants"]), (&json!(["lender"]), &json!(["a"])), "{}", made.text);
    for (body, pointer, code) in [
        (json!({"role": "viewer"}), "/name", "required"),
        (json!({"name": "x"}), "/role", "required"),
        (json!({"name": "x", "role": "root"}), "/role", "invalid_value"),
        (json!({"name": "x", "role": "tenant"}), "/tenant_id", "required"),
        (json!({"name": "x", "role": "viewer", "tenant_id": "a"}), "/tenant_id", "conflict"),
        (json!({"name": "x", "role": "ingest", "sources": ["Lender"]}), "/sources/0", "invalid_value"),
        (json!({"name": "x", "role": "viewer", "expires_at": "2020-01-01T00:00:00Z"}), "/expires_at", "out_of_range"),
        (json!({"name": "x", "role": "viewer", "expires_at": "soon"}), "/expires_at", "invalid_value"),
        (json!({"name": "x", "role": "viewer", "key": "mine"}), "/key", "unknown_field"),
    ] {
        let answer = make(body).await;
        answer.is_problem(422, "invalid");
        assert_eq!(answer.faults().get(pointer).map(String::as_str), Some(code), "{}", answer.text);
    }
}

// C6.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_and_sent_again() {
    let hub = Hub::multi().await;
    let (a, b) = (hub.tenant("a").await, hub.tenant("b").await);
    let (of_a, of_b) = (hub.subscribe_active(&a, "a").await, hub.subscribe_active(&b, "b").await);
    for tenant in ["a", "a", "a", "b"] {
        hub.store(tenant, "{}").await;
        hub.let_die().await;
    }
    let own = format!("/v1/subscriptions/{of_a}/dead-letters");
    let letters = wait_for(&hub, &own, &a, 3).await;
    let seqs: Vec<u64> = letters.iter().map(|letter| letter["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [3, 2, 1], "newest first");
    assert_eq!((&letters[0]["reason"], &letters[0]["steps_used"]), (&json!("too_large"), &json!(0)));
    assert_eq!(letters[0]["attempts"][0]["error_class"], "too_large");
    assert!(letters[0].get("tenant_id").is_none());

    let all = wait_for(&hub, "/admin/dead-letters", &hub.operator, 4).await;
    assert_eq!((&all[0]["tenant_id"], &all[0]["eventType"]), (&json!("a"), &json!("loan_application.approved")));
    for (query, count) in [
        ("tenant_id=b", 1),
        ("tenant_id=c", 0),
        ("reason=too_large", 4),
        ("reason=exhausted", 0),
        (&*format!("subscription_id={of_b}"), 1),
    ] {
        let page = hub.call("GET", &format!("/admin/dead-letters?{query}"), &hub.operator, None).await;
        assert_eq!(page.body["items"].as_array().unwrap().len(), count, "{query}: {}", page.text);
    }
    let page = hub.call("GET", "/admin/dead-letters?limit=3", &hub.operator, None).await;
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let rest = hub.call("GET", &format!("/admin/dead-letters?limit=3&cursor={cursor}"), &hub.operator, None).await;
    assert_eq!((&rest.body["items"][0]["tenant_id"], &rest.body["next_cursor"]), (&json!("b"), &Value::Null));

    let redrive = async |body: Value| hub.call("POST", "/admin/dead-letters/redrive", &hub.operator, Some(&body)).await;
    redrive(json!({})).await.is_problem(422, "invalid");
    redrive(json!({"seq": 1})).await.is_problem(422, "invalid");
    redrive(json!({"subscription_id": of_a, "seq": 9})).await.is_problem(404, "not_found");
    redrive(json!({"subscription_id": of_a, "tenant_id": "b"})).await.is_problem(404, "not_found");
    let one = redrive(json!({"subscription_id": of_a, "seq": 2})).await;
    assert_eq!((one.status, &one.body), (200, &json!({"redriven": 1, "more": false})), "{}", one.text);
    let rest = redrive(json!({"tenant_id": "a"})).await;
    assert_eq!(rest.body, json!({"redriven": 2, "more": false}));
    assert_eq!(redrive(json!({"all": true})).await.body["redriven"], 1);
    assert!(wait_for(&hub, "/admin/dead-letters", &hub.operator, 0).await.is_empty());
}

async fn wait_for(hub: &Hub, path: &str, key: &str, count: usize) -> Vec<Value> {
    loop {
        let page = hub.call("GET", path, key, None).await;
        assert_eq!(page.status, 200, "{}", page.text);
        let items = page.body["items"].as_array().unwrap();
        if items.len() == count {
            return items.clone();
        }
    }
}

// The event, and where it went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_shows_where_it_went() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let (event, _) = hub.store("a", "not json").await;
    let path = format!("/v1/events/{event}");
    let claim = hub.next_claim().await;
    let waiting = hub.call("GET", &path, &key, None).await;
    assert_eq!(waiting.body["payload_base64"], "bm90IGpzb24=", "{}", waiting.text);
    let delivery = &waiting.body["deliveries"][0];
    assert_eq!((&delivery["subscription_id"], &delivery["state"]), (&json!(id), &json!("waiting")));
    hub.settle(&claim, Outcome::Delivered(super::http_hub::attempt(Some(200), None)));
    loop {
        let shown = hub.call("GET", &path, &key, None).await;
        if shown.body["deliveries"][0]["state"] == "delivered" {
            break;
        }
    }
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_and_partitions_are_seen() {
    let hub = Hub::multi().await;
    let topic = "lerian.streaming.lender";
    let gap = |from| Gap {
        topic: topic.to_owned(),
        partition: 3,
        from,
        to: from + 5,
        at: Timestamp(1_700_000_000_000),
        why: GapReason::BelowStart,
    };
    let step = PartitionStep {
        topic: topic.into(),
        topic_id: [4; 16],
        partition: 3,
        from: None,
        next: 105,
        leader_epoch: 0,
        gaps: vec![gap(10), gap(100)],
    };
    hub.writer.admit(Admit { from: AdmitFrom::Partition(step), records: Vec::new() }).await.unwrap();
    let gaps = hub.call("GET", "/admin/gaps", &hub.operator, None).await;
    let shown = json!({"topic": topic, "partition": 3, "from": 100, "to": 105, "time": "2023-11-14T22:13:20.000Z",
        "reason": "below_start"});
    assert_eq!(gaps.body["items"][0], shown, "{}", gaps.text);
    assert_eq!((gaps.body["items"].as_array().unwrap().len(), &gaps.body["next_cursor"]), (2, &Value::Null));

    *hub.facts.partitions.lock().unwrap() = vec![PartitionFacts {
        topic: topic.to_owned(),
        partition: 0,
        state: "reading",
        position: Some(40),
        high_watermark: Some(42),
        last_stable: Some(42),
        last_fetch: Some(Timestamp(1_700_000_000_000)),
        last_record: None,
        last_error: None,
    }];
    let ingest = hub.call("GET", "/admin/ingest", &hub.operator, None).await;
    assert_eq!(ingest.body["source"], "connected");
    let partitions = ingest.body["partitions"].as_array().unwrap();
    assert_eq!((&partitions[0]["lag"], &partitions[0]["state"]), (&json!(2), &json!("reading")), "{}", ingest.text);
    assert_eq!((&partitions[1]["position"], &partitions[1]["state"]), (&json!(105), &json!("stored")));
}

// C13.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_nearly_full_has_a_code_of_its_own() {
    let hub = Hub::start(Settings { ingest: Ingest::On, ..settings(Tenancy::Multi) }).await;
    let (tenant, ingest_key) =
        (hub.tenant("a").await, hub.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await);
    let id = hub.subscribe_active(&tenant, "erp").await;
    let subscription = format!("/v1/subscriptions/{id}");
    for room in [Room::Low, Room::Full] {
        hub.gate.set(room);
        for refused in [
            ingest(&hub, &ingest_key, &[], "{}").await,
            hub.call("POST", "/v1/subscriptions", &tenant, Some(&new_subscription("bank"))).await,
            hub.call("POST", &format!("{subscription}/pause"), &tenant, None).await,
            hub.call("DELETE", &subscription, &tenant, None).await,
        ] {
            refused.is_problem(503, "disk_low");
            assert_eq!(refused.header("retry-after"), "5");
        }
        assert_eq!(hub.call("GET", &subscription, &tenant, None).await.status, 200);
    }
    hub.gate.set(Room::Enough);
    assert_eq!(ingest(&hub, &ingest_key, &[], "{}").await.status, 202);
    assert_eq!(hub.call("POST", &format!("{subscription}/pause"), &tenant, None).await.status, 200);
}

// C13.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_names_each_check() {
    let hub = Hub::multi().await;
    let check = |name, state| Check { name, state, detail: None };
    let ready = hub.call("GET", "/readyz", "", None).await;
    assert_eq!((ready.status, &ready.body["status"]), (200, &json!("ready")));
    *hub.facts.checks.lock().unwrap() = vec![check("store", CheckState::Ok), check("kafka", CheckState::Degraded)];
    let degraded = hub.call("GET", "/readyz", "", None).await;
    let shown = json!({"status": "degraded", "checks": {"store": {"status": "ok"}, "kafka": {"status": "degraded"}}});
    assert_eq!((degraded.status, &degraded.body), (200, &shown));
    hub.facts.checks.lock().unwrap().push(check("draining", CheckState::Failed));
    let failed = hub.call("GET", "/readyz", "", None).await;
    failed.is_problem(503, "not_ready");
    assert_eq!(failed.body["checks"]["draining"]["status"], "failed");
    let alive = hub.call("GET", "/healthz", "", None).await;
    assert_eq!((alive.status, &alive.body), (200, &json!({"status": "alive"})), "alive while it drains");
}
