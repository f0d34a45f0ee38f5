//! Who may call what: every row of the table of calls against every kind of caller.

use super::http_hub::{Answered, Hub, new_subscription, settings};
use serde_json::json;
use std::collections::BTreeSet;
use streaming_hub::http::routes::ROUTES;
use streaming_hub::http::{MetricsAccess, Tenancy};
use streaming_hub::model::api_key::Role;
use streaming_hub::time::Timestamp;

/// No key, a wrong one, an expired one, another tenant's, a viewer's, an ingest key.
type Statuses = [u16; 6];

const OPEN: Statuses = [200; 6];
const OBJECT: Statuses = [401, 401, 401, 404, 403, 403];
const ADMIN: Statuses = [401, 401, 401, 403, 200, 403];
const OPERATOR: Statuses = [401, 401, 401, 403, 403, 403];

/// What each call answers to each of them. `{id}` is an object of tenant `a`; bodies are `{}`.
const TABLE: &[(&str, &str, Statuses)] = &[
    ("GET", "/healthz", OPEN),
    ("GET", "/readyz", OPEN),
    ("GET", "/metrics", OPEN),
    ("GET", "/openapi.json", OPEN),
    ("POST", "/v1/subscriptions", [401, 401, 401, 422, 403, 403]),
    ("GET", "/v1/subscriptions", [401, 401, 401, 200, 403, 403]),
    ("GET", "/v1/subscriptions/{id}", OBJECT),
    ("PATCH", "/v1/subscriptions/{id}", OBJECT),
    ("DELETE", "/v1/subscriptions/{id}", OBJECT),
    ("POST", "/v1/subscriptions/{id}/verify", OBJECT),
    ("POST", "/v1/subscriptions/{id}/rotate-secret", OBJECT),
    ("POST", "/v1/subscriptions/{id}/pause", OBJECT),
    ("POST", "/v1/subscriptions/{id}/resume", OBJECT),
    ("POST", "/v1/subscriptions/{id}/test", OBJECT),
    ("GET", "/v1/subscriptions/{id}/dead-letters", OBJECT),
    ("GET", "/v1/subscriptions/{id}/dead-letters/{seq}", OBJECT),
    ("DELETE", "/v1/subscriptions/{id}/dead-letters/{seq}", OBJECT),
    ("POST", "/v1/subscriptions/{id}/dead-letters/{seq}/redrive", OBJECT),
    ("POST", "/v1/subscriptions/{id}/dead-letters/redrive", OBJECT),
    ("POST", "/v1/subscriptions/{id}/dead-letters/purge", OBJECT),
    ("POST", "/v1/subscriptions/{id}/replay", OBJECT),
    ("GET", "/v1/subscriptions/{id}/replays", OBJECT),
    ("DELETE", "/v1/subscriptions/{id}/replays/{replay}", OBJECT),
    ("GET", "/v1/events/{ceId}", OBJECT),
    ("GET", "/admin/poison", ADMIN),
    ("GET", "/admin/gaps", ADMIN),
    ("GET", "/admin/ingest", ADMIN),
    ("GET", "/admin/dead-letters", ADMIN),
    ("POST", "/admin/dead-letters/redrive", OPERATOR),
    ("GET", "/admin/notices", ADMIN),
    ("GET", "/admin/breakers", ADMIN),
    ("GET", "/admin/subscriptions", ADMIN),
    ("GET", "/admin/api-keys", ADMIN),
    ("POST", "/admin/api-keys", OPERATOR),
    ("DELETE", "/admin/api-keys/{id}", OPERATOR),
    ("POST", "/ingest/events", [401, 401, 401, 403, 403, 422]),
];

// A1.1, A1.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_against_every_caller() {
    let named: BTreeSet<_> = TABLE.iter().map(|(method, path, _)| (*method, *path)).collect();
    let routed: BTreeSet<_> = ROUTES.iter().map(|route| (route.verb.name(), route.path)).collect();
    assert_eq!(named, routed, "a call is missing from this table, or is no more");

    let hub = Hub::multi().await;
    let own = hub.tenant("a").await;
    let (expired, _) = hub.key_until(Role::Operator, Some(Timestamp(1))).await;
    let (_, key_id) = hub.key_until(Role::Viewer, None).await;
    let ingest = Role::Ingest { tenants: Vec::new(), sources: Vec::new() };
    let wrong = format!("shk_{}_{}", "0".repeat(32), "a".repeat(43));
    let callers =
        [String::new(), wrong, expired, hub.tenant("b").await, hub.key(Role::Viewer).await, hub.key(ingest).await];
    let subscription = hub.subscribe(&own, "erp").await["id"].as_str().unwrap().to_owned();
    let (event, _) = hub.store("a", "{}").await;

    for (method, path, statuses) in TABLE {
        let id = if path.contains("api-keys") { key_id.to_string() } else { subscription.clone() };
        let path = path.replace("{id}", &id).replace("{ceId}", &event.to_string()).replace("{seq}", "1");
        let body = (*method != "GET").then(|| json!({}));
        let unauthorized: Vec<Answered> = {
            let mut seen = Vec::new();
            for (caller, status) in callers.iter().zip(statuses) {
                let answer = hub.call(method, &path, caller, body.as_ref()).await;
                assert_eq!(answer.status, *status, "{method} {path}: {}", answer.text);
                if answer.status == 401 {
                    seen.push(answer);
                }
            }
            seen
        };
        for answer in unauthorized {
            answer.is_problem(401, "unauthorized");
            assert!(answer.header("www-authenticate").starts_with("Bearer"));
            assert_eq!(answer.body["detail"], "a valid API key is needed, as Authorization: Bearer or X-API-Key");
        }
    }
    let still = hub.call("GET", &format!("/v1/subscriptions/{subscription}"), &own, None).await;
    assert_eq!((still.status, &still.body["enabled"]), (200, &json!(true)), "nobody has changed it: {}", still.text);
}

// A1.3: what is another's is answered like what is not there, to the byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_object_is_like_none() {
    let hub = Hub::multi().await;
    let (a, b) = (hub.tenant("a").await, hub.tenant("b").await);
    let id = hub.subscribe(&a, "erp").await["id"].as_str().unwrap().to_owned();
    let (event, _) = hub.store("a", "{}").await;
    let none = "sub_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01";
    let no_event = "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01";
    let same_request_id = [("x-request-id", "same")];
    for route in ROUTES.iter().filter(|route| route.path.starts_with("/v1") && route.path.contains('{')) {
        let body = (route.verb.name() != "GET").then(|| json!({}));
        let mut answers = Vec::new();
        for (id, event) in [(id.as_str(), event.to_string()), (none, no_event.to_owned())] {
            let path = route.path.replace("{id}", id).replace("{ceId}", &event).replace("{seq}", "1");
            let answer = hub.call_with(route.verb.name(), &path, &b, body.as_ref(), &same_request_id).await;
            answer.is_problem(404, "not_found");
            answers.push((answer.text, answer.headers.len()));
        }
        assert_eq!(answers[0], answers[1], "{}", route.path);
    }
}

// A1.3: ids that are none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_id_is_not_found() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let long = "a".repeat(4000);
    let upper = id.to_uppercase();
    for odd in ["x", "..%2f..", "%2e%2e", "%00", "sub_", &long, &upper, &id[4..], &format!("{id}x")] {
        let answer = hub.call("GET", &format!("/v1/subscriptions/{odd}"), &key, None).await;
        answer.is_problem(404, "not_found");
    }
    assert_eq!(hub.call("GET", &format!("/v1/subscriptions/{id}"), &key, None).await.status, 200);
}

// A1.2, A1.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_hold_only_the_tenants_own() {
    let hub = Hub::multi().await;
    let (a, b) = (hub.tenant("a").await, hub.tenant("b").await);
    let mut mine = BTreeSet::new();
    for host in ["one", "two"] {
        mine.insert(hub.subscribe(&a, host).await["id"].as_str().unwrap().to_owned());
    }
    hub.subscribe(&b, "three").await;
    let as_operator = |tenant: &'static str| {
        let hub = &hub;
        async move {
            let headers = [("x-tenant-id", tenant)];
            hub.call_with("GET", "/v1/subscriptions", &hub.operator, None, &headers).await
        }
    };
    for answer in [hub.call("GET", "/v1/subscriptions", &a, None).await, as_operator("a").await] {
        let ids = answer.body["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned());
        assert_eq!(ids.collect::<BTreeSet<_>>(), mine);
    }
    assert_eq!(as_operator("nobody").await.body["items"], json!([]));
    hub.call("GET", "/v1/subscriptions", &hub.operator, None).await.is_problem(400, "tenant_required");
    let mismatch = hub.call_with("GET", "/v1/subscriptions", &a, None, &[("x-tenant-id", "b")]).await;
    mismatch.is_problem(400, "tenant_mismatch");
}

// A1.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_tenant_hub_has_one_tenant() {
    let hub = Hub::single().await;
    let stranger = hub.tenant("stranger").await;
    assert_eq!(hub.call("GET", "/v1/subscriptions", &hub.operator, None).await.status, 200);
    hub.call("GET", "/v1/subscriptions", &stranger, None).await.is_problem(404, "not_found");
    for (tenant, status) in [("default", 201), ("other", 404)] {
        let body = new_subscription("erp");
        let headers = [("x-tenant-id", tenant)];
        let answer = hub.call_with("POST", "/v1/subscriptions", &hub.operator, Some(&body), &headers).await;
        assert_eq!(answer.status, status, "{tenant}: {}", answer.text);
    }
}

// A1.1: the same user, or root, at the command socket is the operator (C13.5).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_socket_needs_no_key() {
    use std::os::unix::fs::PermissionsExt as _;
    let hub = Hub::multi().await;
    let mode = std::fs::metadata(&hub.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = reqwest::Client::builder().no_proxy().unix_socket(hub.socket.clone()).build().unwrap();
    for (path, status) in
        [("/admin/api-keys", 200), ("/v1/subscriptions", 400), ("/metrics", 200), ("/ingest/events", 405)]
    {
        assert_eq!(client.get(format!("http://hub{path}")).send().await.unwrap().status().as_u16(), status, "{path}");
    }
}

// A1.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_are_guarded_as_the_setting_says() {
    for (access, without, viewer, tenant) in [
        (MetricsAccess::LoopbackOrKey, 200, 200, 200),
        (MetricsAccess::Public, 200, 200, 200),
        (MetricsAccess::Key, 401, 200, 403),
        (MetricsAccess::Off, 404, 404, 404),
    ] {
        let hub = Hub::start(streaming_hub::http::Settings { metrics: access, ..settings(Tenancy::Multi) }).await;
        let keys = [String::new(), hub.key(Role::Viewer).await, hub.tenant("a").await];
        for (key, status) in keys.iter().zip([without, viewer, tenant]) {
            let answer = hub.call("GET", "/metrics", key, None).await;
            assert_eq!(answer.status, status, "{access:?}: {}", answer.text);
            if status == 200 {
                assert!(answer.header("content-type").starts_with("application/openmetrics-text"));
                assert!(answer.text.contains("streaming_hub_unfinished_jobs 0"), "{}", answer.text);
                assert!(answer.text.ends_with("# EOF\n"));
            }
        }
    }
}
