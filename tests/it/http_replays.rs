//! Replays, and dead letters redriven and purged, as a tenant asks for them (C6.5, C6.6, C8.5).

use super::http_hub::{Answered, Hub, attempt};
use serde_json::{Value, json};
use streaming_hub::model::ids::Seq;
use streaming_hub::model::job::{Cause, Claim, Outcome};

struct Tenant {
    hub: Hub,
    key: String,
    path: String,
}

impl Tenant {
    /// A tenant with an active subscription to everything.
    async fn new() -> Self {
        let hub = Hub::multi().await;
        let key = hub.tenant("a").await;
        let id = hub.subscribe_active(&key, "erp").await;
        Self { hub, key, path: format!("/v1/subscriptions/{id}") }
    }

    async fn get(&self, rest: &str) -> Answered {
        self.hub.call("GET", &format!("{}{rest}", self.path), &self.key, None).await
    }

    async fn post(&self, rest: &str, body: Value) -> Answered {
        self.hub.call("POST", &format!("{}{rest}", self.path), &self.key, Some(&body)).await
    }

    async fn delete(&self, rest: &str) -> u16 {
        self.hub.call("DELETE", &format!("{}{rest}", self.path), &self.key, None).await.status
    }

    /// So many events, each delivered.
    async fn delivered(&self, count: usize) {
        for _ in 0..count {
            self.hub.store("a", "{}").await;
            self.deliver().await;
        }
    }

    /// So many events, each dead.
    async fn dead(&self, count: usize) {
        for _ in 0..count {
            self.hub.store("a", "{}").await;
            self.hub.let_die().await;
        }
        self.letters(count).await;
    }

    async fn deliver(&self) -> Claim {
        let claim = self.hub.next_claim().await;
        self.hub.settle(&claim, Outcome::Delivered(attempt(Some(200), None)));
        claim
    }

    /// Waits until there are so many dead letters; their seqs.
    async fn letters(&self, count: usize) -> Vec<u64> {
        loop {
            let page = self.get("/dead-letters?limit=200").await;
            let items = page.body["items"].as_array().unwrap();
            if items.len() == count {
                return items.iter().map(|item| item["seq"].as_u64().unwrap()).collect();
            }
        }
    }

    /// Waits until the newest bulk work has come to that state.
    async fn newest(&self, state: &str) -> Value {
        loop {
            let page = self.get("/replays?limit=1").await;
            let newest = page.body["items"][0].clone();
            if newest["state"] == state {
                return newest;
            }
        }
    }
}

// C6.6, A2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_range_is_counted_sent_again_and_listed() {
    let tenant = Tenant::new().await;
    tenant.delivered(4).await;
    let dry = tenant.post("/replay", json!({"from_seq": 2, "to_seq": 3, "dry_run": true})).await;
    let shown = json!({"id": null, "kind": "range", "dry_run": true, "count": 2, "at_least": false});
    assert_eq!((dry.status, &dry.body), (202, &shown), "{}", dry.text);
    assert_eq!(tenant.get("/replays").await.body["items"], json!([]), "a dry run leaves nothing");

    let begun = tenant.post("/replay", json!({"from_seq": 2, "to_seq": 3})).await;
    assert_eq!((begun.status, &begun.body["count"]), (202, &json!(2)), "{}", begun.text);
    for seq in [2, 3] {
        let claim = tenant.deliver().await;
        assert_eq!((claim.job.seq, claim.job.cause, claim.job.steps_used), (Seq(seq), Cause::Replay, 0));
    }
    let done = tenant.newest("done").await;
    assert_eq!((&done["id"], &done["done"], &done["next_seq"]), (&begun.body["id"], &json!(2), &Value::Null));
    assert_eq!((&done["from_seq"], &done["to_seq"], &done["kind"]), (&json!(2), &json!(3), &json!("range")));
    assert!(done["ended_at"].as_str() >= done["created_at"].as_str(), "{done}");

    // Without its end it goes up to the newest; by time it goes by when events were stored.
    for (body, count) in [
        (json!({"from_seq": 3}), 2),
        (json!({"since": "2020-01-01T00:00:00Z"}), 4),
        (json!({"since": "2020-01-01T00:00:00Z", "until": "2020-01-02T00:00:00.000Z"}), 0),
        (json!({"from_seq": 1, "event_types": ["loan_application.*"]}), 4),
        (json!({"from_seq": 1, "event_types": ["repayment.*", "*.paid"]}), 0),
        (json!({"dead_letters": true}), 0),
        (json!({"skipped": true}), 0),
    ] {
        let mut body = body;
        body["dry_run"] = json!(true);
        let answer = tenant.post("/replay", body.clone()).await;
        assert_eq!((answer.status, &answer.body["count"]), (202, &json!(count)), "{body}: {}", answer.text);
    }
}

// C6.6, A1.4, A1.9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_ranges_are_refused_by_name() {
    let tenant = Tenant::new().await;
    tenant.delivered(3).await;
    for (body, pointer, code) in [
        (json!({}), "", "required"),
        (json!({"dead_letters": false}), "", "required"),
        (json!({"to_seq": 2}), "/from_seq", "required"),
        (json!({"until": "2026-01-01T00:00:00Z"}), "/since", "required"),
        (json!({"from_seq": 3, "to_seq": 2}), "/to_seq", "conflict"),
        (json!({"from_seq": 0}), "/from_seq", "out_of_range"),
        (json!({"from_seq": -1, "to_seq": 2}), "/from_seq", "out_of_range"),
        (json!({"from_seq": "1"}), "/from_seq", "wrong_type"),
        (json!({"from_seq": 1.5}), "/from_seq", "wrong_type"),
        (json!({"from_seq": 1, "to_seq": 4}), "/to_seq", "out_of_range"),
        (json!({"from_seq": 4}), "/from_seq", "out_of_range"),
        (json!({"from_seq": 1, "since": "2026-01-01T00:00:00Z"}), "/since", "conflict"),
        (json!({"from_seq": 1, "dead_letters": true}), "/dead_letters", "conflict"),
        (json!({"dead_letters": true, "skipped": true}), "/skipped", "conflict"),
        (json!({"dead_letters": "yes"}), "/dead_letters", "wrong_type"),
        (json!({"since": "yesterday"}), "/since", "invalid_value"),
        (json!({"since": 5}), "/since", "wrong_type"),
        (json!({"since": "2999-01-01T00:00:00Z"}), "/since", "out_of_range"),
        (json!({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}), "/until", "conflict"),
        (json!({"from_seq": 1, "event_types": []}), "/event_types", "empty"),
        (json!({"from_seq": 1, "event_types": ["paid"]}), "/event_types/0", "invalid_value"),
        (json!({"from_seq": 1, "dry_run": 1}), "/dry_run", "wrong_type"),
        (json!({"from_seq": 1, "to": 2}), "/to", "unknown_field"),
    ] {
        let answer = tenant.post("/replay", body.clone()).await;
        answer.is_problem(422, "invalid");
        assert_eq!(answer.faults().get(pointer).map(String::as_str), Some(code), "{body}: {}", answer.text);
    }
    assert_eq!(tenant.get("/replays").await.body["items"], json!([]));
}

// C6.6: cancelled ones stay listed; jobs of a paused subscription wait (C8.5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replays_are_listed_page_by_page_and_cancelled() {
    let tenant = Tenant::new().await;
    tenant.delivered(2).await;
    tenant.post("/pause", json!({})).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let begun = tenant.post("/replay", json!({"from_seq": 1})).await;
        ids.push(begun.body["id"].as_str().unwrap().to_owned());
        tenant.newest("done").await;
    }
    ids.reverse();
    let first = tenant.get("/replays?limit=2").await;
    let cursor = first.body["next_cursor"].as_str().unwrap().to_owned();
    let second = tenant.get(&format!("/replays?limit=2&cursor={cursor}")).await;
    let all = first.body["items"].as_array().unwrap().iter().chain(second.body["items"].as_array().unwrap());
    assert_eq!(all.map(|item| item["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>(), ids);
    assert_eq!(second.body["next_cursor"], Value::Null);

    // One that has ended stays as it is; what is no id, or nobody's, is nothing.
    assert_eq!(tenant.delete(&format!("/replays/{}", ids[0])).await, 204);
    assert_eq!(tenant.newest("done").await["id"], json!(ids[0]));
    for odd in ["x", "rpl_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01", &ids[0].to_uppercase()] {
        assert_eq!(tenant.delete(&format!("/replays/{odd}")).await, 404, "{odd}");
    }
    // Its two events wait, once each, and go on with the subscription.
    tenant.post("/resume", json!({})).await;
    for seq in [1, 2] {
        assert_eq!(tenant.deliver().await.job.seq, Seq(seq));
    }
    let health = tenant.get("").await.body["health"]["backlog"]["waiting"].clone();
    assert_eq!(health, 0);
}

// C6.5, C6.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_looked_at_sent_again_and_removed_one_by_one() {
    let tenant = Tenant::new().await;
    tenant.dead(3).await;
    let one = tenant.get("/dead-letters/2").await;
    assert_eq!((one.status, &one.body["seq"]), (200, &json!(2)), "{}", one.text);
    assert_eq!(one.body["attempts"][0]["error_class"], "too_large", "with its last attempts");
    for nothing in ["/dead-letters/9", "/dead-letters/0", "/dead-letters/-1", "/dead-letters/x"] {
        tenant.get(nothing).await.is_problem(404, "not_found");
    }

    let again = tenant.post("/dead-letters/2/redrive", json!({})).await;
    assert_eq!((again.status, &again.body["redriven"]), (200, &json!(1)), "{}", again.text);
    let claim = tenant.deliver().await;
    assert_eq!((claim.job.seq, claim.job.cause, claim.job.steps_used), (Seq(2), Cause::Redrive, 0));
    tenant.post("/dead-letters/2/redrive", json!({})).await.is_problem(404, "not_found");
    tenant.post("/dead-letters/1/redrive", json!({"all": true})).await.is_problem(422, "invalid");

    assert_eq!(tenant.delete("/dead-letters/1").await, 204);
    assert_eq!(tenant.delete("/dead-letters/1").await, 404);
    assert_eq!(tenant.letters(1).await, [3]);
    // Sent as a replay it stays until it is delivered.
    let begun = tenant.post("/replay", json!({"dead_letters": true})).await;
    assert_eq!((&begun.body["kind"], &begun.body["count"]), (&json!("dead_letters"), &json!(1)), "{}", begun.text);
    let claim = tenant.hub.next_claim().await;
    assert_eq!(tenant.letters(1).await, [3]);
    tenant.hub.settle(&claim, Outcome::Delivered(attempt(Some(200), None)));
    assert!(tenant.letters(0).await.is_empty());
}

// C6.5: in bulk, by a filter
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_dead_letters_are_sent_again_or_removed_by_a_filter() {
    let tenant = Tenant::new().await;
    tenant.dead(4).await;
    tenant.post("/dead-letters/purge", json!({})).await.is_problem(422, "invalid");
    let both = tenant.post("/dead-letters/purge", json!({"all": true, "reason": "poison"})).await;
    assert_eq!(both.faults().get("/all").map(String::as_str), Some("conflict"));
    for (body, count) in [
        (json!({"reason": "exhausted"}), 0),
        (json!({"reason": "too_large"}), 4),
        (json!({"event_types": ["loan_application.approved"]}), 4),
        (json!({"event_types": ["loan_application.refused"]}), 0),
        (json!({"since": "2020-01-01T00:00:00Z"}), 4),
        (json!({"until": "2020-01-01T00:00:00Z"}), 0),
        (json!({"all": true}), 4),
    ] {
        let mut dry = body.clone();
        dry["dry_run"] = json!(true);
        for call in ["/dead-letters/purge", "/dead-letters/redrive"] {
            let answer = tenant.post(call, dry.clone()).await;
            assert_eq!((answer.status, &answer.body["count"]), (202, &json!(count)), "{call} {body}: {}", answer.text);
        }
    }
    let none = tenant.post("/dead-letters/redrive", json!({"reason": "exhausted"})).await;
    assert_eq!(none.status, 202);
    assert_eq!(tenant.newest("done").await["done"], 0);

    // No body stands for all of them.
    let path = format!("{}/dead-letters/redrive", tenant.path);
    let begun = tenant.hub.call("POST", &path, &tenant.key, None).await;
    assert_eq!((begun.status, &begun.body["kind"]), (202, &json!("redrive")), "{}", begun.text);
    for seq in [1, 2] {
        assert_eq!(tenant.deliver().await.job.seq, Seq(seq));
    }
    for _ in [3, 4] {
        tenant.hub.let_die().await;
    }
    assert_eq!(tenant.letters(2).await, [4, 3], "they have died again");
    let purge = tenant.post("/dead-letters/purge", json!({"reason": "too_large"})).await;
    assert_eq!((&purge.body["kind"], &purge.body["count"]), (&json!("purge"), &json!(2)), "{}", purge.text);
    assert!(tenant.letters(0).await.is_empty());
    let done = tenant.newest("done").await;
    assert_eq!((&done["reason"], &done["done"], &done["from_seq"]), (&json!("too_large"), &json!(2), &Value::Null));
}

// C8.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_skipped_is_replayed() {
    let tenant = Tenant::new().await;
    tenant.delivered(1).await;
    tenant.post("/pause", json!({})).await;
    for _ in 0..2 {
        tenant.hub.store("a", "{}").await;
    }
    let while_off = tenant.post("/replay", json!({"skipped": true, "dry_run": true})).await;
    assert_eq!(while_off.body["count"], 2, "what is being skipped counts: {}", while_off.text);
    let resumed = tenant.post("/resume", json!({})).await;
    assert_eq!(resumed.body["skipped"], json!({"from_seq": 2, "to_seq": 3}), "{}", resumed.text);
    let begun = tenant.post("/replay", json!({"skipped": true})).await;
    assert_eq!((&begun.body["kind"], &begun.body["count"]), (&json!("skipped"), &json!(2)));
    for seq in [2, 3] {
        assert_eq!(tenant.deliver().await.job.seq, Seq(seq));
    }
    tenant.newest("done").await;
    let again = tenant.post("/replay", json!({"skipped": true})).await;
    assert_eq!(again.body["count"], 0, "it is skipped no more: {}", again.text);
}

// A1.7, A1.8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_call_begins_nothing_twice_and_a_stale_one_nothing() {
    let tenant = Tenant::new().await;
    tenant.dead(2).await;
    let call = async |rest: &str, body: Value, headers: &[(&str, &str)]| {
        let path = format!("{}{rest}", tenant.path);
        tenant.hub.call_with("POST", &path, &tenant.key, Some(&body), headers).await
    };
    for (key, rest, body) in [
        ("k-1", "/replay", json!({"from_seq": 1})),
        ("k-2", "/dead-letters/redrive", json!({"reason": "poison"})),
        ("k-3", "/dead-letters/purge", json!({"reason": "poison"})),
        ("k-4", "/dead-letters/1/redrive", json!({})),
    ] {
        let first = call(rest, body.clone(), &[("idempotency-key", key)]).await;
        let again = call(rest, body, &[("idempotency-key", key)]).await;
        assert_eq!((first.status, &first.text), (again.status, &again.text), "{rest}");
        assert_eq!(again.header("idempotent-replayed"), "true", "{rest}");
        call("/replay", json!({"from_seq": 2}), &[("idempotency-key", key)])
            .await
            .is_problem(409, "idempotency_conflict");
    }
    assert_eq!(tenant.get("/replays").await.body["items"].as_array().unwrap().len(), 3);

    let etag = tenant.get("").await.header("etag").to_owned();
    assert_eq!(call("/replay", json!({"from_seq": 1}), &[("if-match", &etag)]).await.status, 202);
    tenant.post("/pause", json!({})).await;
    for (rest, body) in [
        ("/replay", json!({"from_seq": 1})),
        ("/dead-letters/redrive", json!({})),
        ("/dead-letters/purge", json!({"all": true})),
    ] {
        call(rest, body, &[("if-match", &etag)]).await.is_problem(412, "precondition_failed");
    }
}

// A1.3: another tenant's subscription and replay are like none
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anothers_replay_is_like_none() {
    let tenant = Tenant::new().await;
    tenant.delivered(1).await;
    let begun = tenant.post("/replay", json!({"from_seq": 1})).await;
    let id = begun.body["id"].as_str().unwrap();
    let other = tenant.hub.tenant("b").await;
    let own = tenant.hub.subscribe_active(&other, "erp").await;
    for path in [format!("{}/replays/{id}", tenant.path), format!("/v1/subscriptions/{own}/replays/{id}")] {
        tenant.hub.call("DELETE", &path, &other, None).await.is_problem(404, "not_found");
    }
    let list = tenant.hub.call("GET", &format!("/v1/subscriptions/{own}/replays"), &other, None).await;
    assert_eq!(list.body["items"], json!([]));
}
