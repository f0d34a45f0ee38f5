//! What operators and tenants see of health over the API: notices, breakers, auto-disable and the way back.

use super::http_hub::{Answered, Hub, attempt, settings};
use serde_json::{Value, json};
use streaming_hub::engine::command::{Action, Manage};
use streaming_hub::http::Tenancy;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::job::Outcome;
use streaming_hub::model::notice::{Notice, NoticeKind};
use streaming_hub::time::HubTime;

fn failed(status: u16, error: ErrorClass) -> Outcome {
    Outcome::Failed { attempt: attempt(Some(status), Some(error)), not_before_ms: None }
}

impl Hub {
    async fn get(&self, path: &str) -> Answered {
        let answer = self.call("GET", path, &self.operator, None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer
    }

    /// Asks until the answer is as wanted.
    async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let answer = self.get(path).await.body;
            if wanted(&answer) {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn raise(&self, notice: Notice) {
        let action = Action::Notice(Box::new(notice));
        self.writer.manage(Manage { action, idempotency: None }).await.unwrap();
    }

    /// Lets the next claimed job fail, for the so manieth time; so many hours later.
    async fn fail_next(&self, status: u16, error: ErrorClass, times: u64, then_hours: u64) {
        let claim = self.next_claim().await;
        self.settle(&claim, failed(status, error));
        let span = |page: &Value| page["items"][0]["health"]["failure_span"]["failures"] == times;
        self.until("/admin/subscriptions", span).await;
        self.clock.jump(then_hours * 3600);
        // The writer slept for as long as it was to wait before the jump.
        self.get("/admin/subscriptions").await;
    }
}

fn codes(page: &Value, field: &str) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

// A1.6: newest first, page by page, by kind; every field says what an operator needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notices_are_listed_newest_first() {
    let hub = Hub::multi().await;
    for n in 0..3 {
        let at = hub.get("/admin/notices").await.body["items"].as_array().unwrap().len();
        assert_eq!(at, n);
        let subject = format!("lerian.streaming.s{n}");
        hub.raise(Notice::about(NoticeKind::TopicWithoutTenant, subject, HubTime(1_700_000_000_000), "told")).await;
    }
    let mut foreign = Notice::about(NoticeKind::ForeignTenant, "other tenants", HubTime(5), "an event of \"b\"");
    foreign.last_error = Some("none".to_owned());
    hub.raise(foreign.clone()).await;
    hub.raise(foreign).await;
    let all = hub.get("/admin/notices").await;
    let subjects = ["other tenants", "lerian.streaming.s2", "lerian.streaming.s1", "lerian.streaming.s0"];
    assert_eq!(codes(&all.body, "subject"), subjects, "once in its window: {}", all.text);
    let newest = &all.body["items"][0];
    assert_eq!((&newest["kind"], &newest["urgency"]), (&json!("foreign_tenant"), &json!("act")));
    assert_eq!((&newest["tenant_id"], &newest["last_error"]), (&Value::Null, &json!("none")));
    assert_eq!(newest["detail"], "an event of \"b\"");
    for field in ["time", "since", "action"] {
        assert!(newest[field].as_str().is_some_and(|text| text.len() > 20), "{field}: {newest}");
    }

    let page = hub.get("/admin/notices?limit=2").await.body;
    let rest = hub.get(&format!("/admin/notices?limit=2&cursor={}", page["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!([codes(&page, "subject"), codes(&rest, "subject")].concat(), subjects);
    assert_eq!(rest["next_cursor"], Value::Null);
    let page = hub.get("/admin/notices?limit=2&kind=topic_without_tenant").await.body;
    assert_eq!(codes(&page, "subject"), subjects[1..3]);
    let next = page["next_cursor"].as_str().unwrap();
    let rest = hub.get(&format!("/admin/notices?limit=2&kind=topic_without_tenant&cursor={next}")).await;
    assert_eq!(codes(&rest.body, "subject"), subjects[3..]);
    hub.call("GET", "/admin/notices?kind=x", &hub.operator, None).await.is_problem(422, "invalid");
}

// C2.8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_other_tenants_make_one_notice_in_a_single_tenant_hub() {
    let hub = Hub::start_for(settings(Tenancy::Single("default".into())), Some("default")).await;
    hub.store("default", "{}").await;
    assert_eq!(hub.get("/admin/notices").await.body["items"], json!([]));
    for tenant in ["a", "b", "a"] {
        hub.store(tenant, "{}").await;
    }
    let notices = hub.get("/admin/notices").await.body;
    assert_eq!(codes(&notices, "kind"), ["foreign_tenant"]);
    assert!(notices["items"][0]["detail"].as_str().unwrap().contains("\"a\""), "{notices}");
}

// C7.3: state, since when, shed counts, next probe; and a notice with the last error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_breakers_are_listed() {
    let hub = Hub::multi().await;
    for (tenant, host) in [("a", "erp"), ("b", "crm"), ("c", "well")] {
        let key = hub.tenant(tenant).await;
        hub.subscribe_active(&key, host).await;
    }
    for tenant in ["a", "b"] {
        for _ in 0..2 {
            hub.store(tenant, "{}").await;
        }
        let claim = hub.next_claim().await;
        hub.settle(&claim, failed(0, ErrorClass::DestinationBlocked));
    }
    let page = hub.until("/admin/breakers", |page| page["items"].as_array().unwrap().len() == 2).await;
    assert_eq!(codes(&page, "tenant_id"), ["a", "b"]);
    let first = &page["items"][0];
    assert_eq!(first["destination"], "https://erp.example.com/hook");
    assert_eq!((&first["state"], &first["shed"], &first["waiting"]), (&json!("open"), &json!(1), &json!(1)));
    assert_eq!(first["subscriptions"], 1);
    assert!(first["since"].is_string() && first["next_probe"].is_string(), "{first}");
    let page = hub.get("/admin/breakers?limit=1").await.body;
    let rest = hub.get(&format!("/admin/breakers?limit=1&cursor={}", page["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!([codes(&page, "tenant_id"), codes(&rest, "tenant_id")].concat(), ["a", "b"]);
    assert_eq!(rest["next_cursor"], Value::Null);

    hub.clock.jump(31);
    hub.get("/admin/breakers").await;
    let probe = hub.next_claim().await;
    let page = hub.until("/admin/breakers", |page| codes(page, "state").contains(&"probing".to_owned())).await;
    let probing = page["items"].as_array().unwrap().iter().find(|item| item["state"] == "probing").unwrap();
    assert_eq!(probing["next_probe"], Value::Null, "{probing}");
    hub.settle(&probe, Outcome::Delivered(attempt(Some(200), None)));
    hub.until("/admin/breakers", |page| page["items"].as_array().unwrap().len() == 1).await;

    let notices = hub.get("/admin/notices?kind=breaker_opened").await.body;
    assert_eq!(codes(&notices, "last_error"), ["destination_blocked", "destination_blocked"]);
    assert_eq!(codes(&notices, "subject"), ["https://crm.example.com/hook", "https://erp.example.com/hook"]);
}

// Unhealthy first, then the others, each newest first; through pages of every size, each once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unhealthy_subscriptions_of_all_tenants_come_first() {
    let hub = Hub::multi().await;
    for (tenant, host) in [("a", "one"), ("b", "two"), ("a", "three"), ("c", "four")] {
        let key = hub.tenant(tenant).await;
        hub.subscribe_active(&key, host).await;
    }
    hub.store("b", "{}").await;
    let claim = hub.next_claim().await;
    hub.settle(&claim, failed(0, ErrorClass::DestinationBlocked));
    let page = hub.until("/admin/subscriptions", |page| page["items"][0]["healthy"] == false).await;
    let names = ["to two", "to four", "to three", "to one"];
    assert_eq!(codes(&page, "name"), names);
    assert_eq!(codes(&page, "tenant_id"), ["b", "c", "a", "a"]);
    assert_eq!(page["items"][0]["health"]["breaker"]["state"], "open");
    for limit in 1..=5 {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = hub.get(&format!("/admin/subscriptions?limit={limit}{cursor}")).await.body;
            seen.extend(codes(&page, "name"));
            let Some(next) = page["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(seen, names, "pages of {limit}");
    }
    for (query, expected) in [
        ("health=unhealthy", &names[..1]),
        ("health=healthy", &names[1..]),
        ("tenant_id=a", &names[2..]),
        ("tenant_id=a&health=unhealthy", &[]),
        ("tenant_id=nobody", &[]),
    ] {
        assert_eq!(codes(&hub.get(&format!("/admin/subscriptions?{query}")).await.body, "name"), expected, "{query}");
    }
}

// C8.1 C8.2 C8.4 C8.5: the whole way down and back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_fails_for_days_is_switched_off_and_verified_back() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let path = |rest: &str| format!("/v1/subscriptions/{id}{rest}");
    hub.store("a", "{}").await;
    hub.fail_next(500, ErrorClass::ServerError, 1, 13).await;
    let health = hub.call("GET", &path(""), &key, None).await.body["health"].clone();
    let span = &health["failure_span"];
    assert_eq!((&span["failures"], &span["last_error"]), (&json!(1), &json!("server_error")), "{health}");
    assert_eq!(health["last_failure"], span["to"]);
    assert_eq!(health["counts"], json!({"delivered": 0, "failed_attempts": 1, "dead_letters": 0}));
    hub.fail_next(503, ErrorClass::ServerError, 2, 108).await;

    let off = hub.until("/admin/subscriptions", |page| page["items"][0]["enabled"] == false).await["items"][0].clone();
    assert_eq!((&off["disabled_reason"], &off["verification_state"]), (&json!("auto_disabled"), &json!("active")));
    assert_eq!((&off["healthy"], &off["health"]["verdict"]["acted"]), (&json!(false), &json!(true)), "{off}");
    assert!(off["health"]["disabled_since"].is_string());
    let unhealthy = hub.call("GET", "/v1/subscriptions?health=unhealthy&enabled=false", &key, None).await;
    assert_eq!(unhealthy.body["items"][0]["id"], json!(id), "{}", unhealthy.text);
    let notice = hub.get("/admin/notices").await.body["items"][0].clone();
    assert_eq!((&notice["kind"], &notice["subscription_id"]), (&json!("auto_disabled"), &json!(id)));
    assert_eq!((&notice["subject"], &notice["tenant_id"]), (&json!("https://erp.example.com/hook"), &json!("a")));
    assert_eq!(notice["last_error"], "server_error");

    hub.store("a", "{}").await;
    hub.call("POST", &path("/resume"), &key, None).await.is_problem(409, "verify_required");
    let patch = hub.call("PATCH", &path(""), &key, Some(&json!({"enabled": true}))).await;
    assert_eq!(patch.faults()["/enabled"], "read_only");
    *hub.prober.passes.lock().unwrap() = false;
    let failed = hub.call("POST", &path("/verify"), &key, None).await;
    assert_eq!((&failed.body["enabled"], &failed.body["skipped"]), (&json!(false), &Value::Null));
    *hub.prober.passes.lock().unwrap() = true;
    let back = hub.call("POST", &path("/verify"), &key, None).await;
    assert_eq!((&back.body["enabled"], &back.body["disabled_reason"]), (&json!(true), &Value::Null), "{}", back.text);
    assert_eq!(back.body["skipped"], json!({"from_seq": 2, "to_seq": 2}));
    let claim = hub.next_claim().await;
    assert_eq!(claim.job.seq.0, 1, "what was queued goes on");
    let health = hub.call("GET", &path(""), &key, None).await.body["health"].clone();
    assert_eq!((&health["failure_span"], &health["verdict"]), (&Value::Null, &Value::Null));
    hub.settle(&claim, Outcome::Delivered(attempt(Some(200), None)));
    let well = |health: &Value| health["items"][0]["health"]["backlog"] == json!({"waiting": 0, "in_flight": 0});
    hub.until("/admin/subscriptions", well).await;
    let health = hub.call("GET", &path(""), &key, None).await.body["health"].clone();
    assert!(health["last_success"].is_string(), "{health}");
    assert_eq!(health["counts"]["delivered"], 1);
}

// C8.5: PATCH tells what was skipped as well, when it makes the subscription matched again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_to_a_proven_destination_tells_what_was_skipped() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe_active(&key, "erp").await;
    let path = format!("/v1/subscriptions/{id}");
    let moved = |host: &str, verify: bool| json!({"sink": {"url": format!("https://{host}.example.com/hook")}, "verify": verify});
    let pending = hub.call("PATCH", &path, &key, Some(&moved("new", false))).await;
    assert_eq!(pending.body["verification_state"], "pending", "{}", pending.text);
    hub.store("a", "{}").await;
    hub.store("a", "{}").await;
    let proven = hub.call("PATCH", &path, &key, Some(&moved("newer", true))).await;
    assert_eq!(proven.body["verification_state"], "active", "{}", proven.text);
    assert_eq!(proven.body["skipped"], json!({"from_seq": 1, "to_seq": 2}), "{}", proven.text);
    let gapless = hub.call("PATCH", &path, &key, Some(&moved("newest", true))).await;
    assert_eq!((gapless.status, &gapless.body["skipped"]), (200, &Value::Null), "{}", gapless.text);
}
