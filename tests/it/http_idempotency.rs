//! `Idempotency-Key`: the first answer again, and never a second action.

use super::http_hub::{Answered, Hub, new_subscription};
use serde_json::{Value, json};
use streaming_hub::model::api_key::Role;

async fn with_key(hub: &Hub, path: &str, caller: &str, key: &str, body: Option<&Value>) -> Answered {
    hub.call_with("POST", path, caller, body, &[("idempotency-key", key)]).await
}

async fn subscriptions(hub: &Hub, caller: &str) -> usize {
    hub.call("GET", "/v1/subscriptions", caller, None).await.body["items"].as_array().unwrap().len()
}

// A1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_create_is_answered_again_and_makes_nothing() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let body = new_subscription("erp");
    let first = with_key(&hub, "/v1/subscriptions", &key, "k-1", Some(&body)).await;
    let again = with_key(&hub, "/v1/subscriptions", &key, "k-1", Some(&body)).await;
    assert_eq!((first.status, again.status), (201, 201), "{}", again.text);
    assert_eq!(first.text, again.text, "the secret is in it, for the one who made it");
    for name in ["etag", "location", "content-type"] {
        assert_eq!(first.header(name), again.header(name), "{name}");
    }
    assert_eq!((first.header("idempotent-replayed"), again.header("idempotent-replayed")), ("", "true"));
    assert_ne!(first.header("x-request-id"), again.header("x-request-id"));
    assert_eq!(subscriptions(&hub, &key).await, 1);

    let other = with_key(&hub, "/v1/subscriptions", &key, "k-1", Some(&new_subscription("other"))).await;
    other.is_problem(409, "idempotency_conflict");
    let id = first.body["id"].as_str().unwrap();
    let elsewhere = with_key(&hub, &format!("/v1/subscriptions/{id}/pause"), &key, "k-1", Some(&body)).await;
    elsewhere.is_problem(409, "idempotency_conflict");
    assert_eq!(with_key(&hub, "/v1/subscriptions", &key, "k-2", Some(&body)).await.status, 201);
    assert_eq!(subscriptions(&hub, &key).await, 2);
}

// A1.7: another API key has keys of its own, of the same tenant too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_others_are_others() {
    let hub = Hub::multi().await;
    let (a, second, b) = (hub.tenant("a").await, hub.tenant("a").await, hub.tenant("b").await);
    let body = new_subscription("erp");
    let mut ids = Vec::new();
    for caller in [&a, &second, &b] {
        let made = with_key(&hub, "/v1/subscriptions", caller, "same", Some(&body)).await;
        assert_eq!(made.status, 201, "{}", made.text);
        ids.push(made.body["id"].clone());
    }
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let mut of_tenants = Vec::new();
    for tenant in ["a", "b"] {
        let headers = [("idempotency-key", "op"), ("x-tenant-id", tenant)];
        let made = hub.call_with("POST", "/v1/subscriptions", &hub.operator, Some(&body), &headers).await;
        of_tenants.push(made.status);
    }
    assert_eq!(of_tenants, [201, 409], "the same operator's key for another tenant is another request");
}

// A1.7: rotations, switches and keys are remembered too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acting_call_is_remembered() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    for rest in ["verify", "rotate-secret", "pause", "resume", "test"] {
        let path = format!("/v1/subscriptions/{id}/{rest}");
        let first = with_key(&hub, &path, &key, rest, None).await;
        let again = with_key(&hub, &path, &key, rest, None).await;
        assert_eq!((first.status, again.status), (200, 200), "{rest}: {} {}", first.text, again.text);
        assert_eq!(first.text, again.text, "{rest}");
        assert_eq!(again.header("idempotent-replayed"), "true", "{rest}");
    }
    assert_eq!(hub.prober.probed.lock().unwrap().len(), 1, "a repeated verify probes once");
    let body = json!({"name": "k", "role": "viewer"});
    let first = with_key(&hub, "/admin/api-keys", &hub.operator, "k", Some(&body)).await;
    let again = with_key(&hub, "/admin/api-keys", &hub.operator, "k", Some(&body)).await;
    assert_eq!((first.status, &first.text), (201, &again.text));
}

// A1.7: what has changed nothing is not remembered, so a mended request goes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_not_remembered() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    with_key(&hub, "/v1/subscriptions", &key, "k", Some(&json!({}))).await.is_problem(422, "invalid");
    assert_eq!(with_key(&hub, "/v1/subscriptions", &key, "k", Some(&new_subscription("erp"))).await.status, 201);
    for bad in ["", &"x".repeat(256)] {
        with_key(&hub, "/v1/subscriptions", &key, bad, Some(&new_subscription("erp")))
            .await
            .is_problem(400, "bad_request");
    }
}

// A1.7: while the first is worked on, the second is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_at_once_run_once() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/subscriptions/{id}/verify");
    let closed = hub.prober.gate.lock().await;
    let first = with_key(&hub, &path, &key, "k", None);
    let second = async {
        hub.probes_begun(1).await;
        let answer = with_key(&hub, &path, &key, "k", None).await;
        drop(closed);
        answer
    };
    let (first, second) = tokio::join!(first, second);
    second.is_problem(409, "idempotency_in_progress");
    assert_eq!(first.status, 200, "{}", first.text);
    assert_eq!(hub.prober.probed.lock().unwrap().len(), 1);
}

// A1.7: a client that leaves has its call done once, and may ask what came of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_finds_its_answer() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/subscriptions/{id}/verify");
    let closed = hub.prober.gate.lock().await;
    let request = hub.request("POST", &path).bearer_auth(&key).header("idempotency-key", "k");
    tokio::select! {
        answered = request.send() => panic!("the probe waits: {answered:?}"),
        () = hub.probes_begun(1) => {}
    }
    with_key(&hub, &path, &key, "k", None).await.is_problem(409, "idempotency_in_progress");
    drop(closed);
    let answer = loop {
        let answer = with_key(&hub, &path, &key, "k", None).await;
        if answer.status != 409 {
            break answer;
        }
    };
    assert_eq!((answer.status, answer.header("idempotent-replayed")), (200, "true"), "{}", answer.text);
    assert_eq!(answer.body["verification_state"], "active");
    assert_eq!(hub.prober.probed.lock().unwrap().len(), 1);
}

// A1.7: not at ingest, whose events have ids of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ingest_knows_no_idempotency_key() {
    let hub = Hub::multi().await;
    let key = hub.key(Role::Ingest { tenants: Vec::new(), sources: Vec::new() }).await;
    for _ in 0..2 {
        let answer = with_key(&hub, "/ingest/events", &key, "k", None).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (422, ""), "{}", answer.text);
    }
}
