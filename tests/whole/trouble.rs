//! What goes wrong around the hub, and what it makes of it: brokers that are away, records that are no events, offsets that are gone,
//! and receivers that never answer.

use crate::harness::kafka::{produce, service, services};
use crate::harness::ledger::judge;
use crate::harness::receiver::Meets;
use crate::harness::scene::Scene;
use crate::harness::{alone, until, until_true};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const BROKERS: [&str; 3] = ["1", "2", "3"];

// C1.7, C13.1
#[test]
fn kafka_down_then_up() {
    let _alone = alone();
    let scene = Scene::new(&["lender"], 2, &[]);
    let load = scene.load(500, 10, 2);
    scene.subscribe(&load.tenant_names());
    let first = load.run(scene.folder());
    scene.delivered(first.committed.len());
    let api = scene.hub.api();
    let ready =
        || api.readyz().map(|(status, checks)| (status, checks["status"].as_str().unwrap_or_default().to_owned()));
    assert_eq!(ready(), Some((200, "ready".to_owned())));
    // They hold their connections and say nothing: worse than gone.
    for broker in BROKERS {
        services(&["broker-freeze", broker]);
    }
    let degraded = || ready() == Some((200, "degraded".to_owned()));
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until_true("it says that Kafka is down", Duration::from_secs(90), degraded);
        assert_eq!(api.readyz().unwrap().1["checks"]["kafka"]["status"], "degraded");
        // All else works.
        api.done("GET", "/v1/subscriptions", Some("tenant-000"), None);
    }));
    for broker in BROKERS {
        services(&["broker-thaw", broker]);
    }
    told.unwrap_or_else(|why| std::panic::resume_unwind(why));
    let mut load = load;
    load.seed = 2;
    // Numbered from 1 again: judged by itself.
    let before = scene.receiver.count();
    let second = load.run(scene.folder());
    scene.delivered(before + second.committed.len());
    until_true("it is ready again", Duration::from_secs(60), || ready() == Some((200, "ready".to_owned())));
    scene.settled();
    let arrived: Vec<u128> = scene.receiver.arrivals().iter().map(|arrival| arrival.event).collect();
    let mut produced: Vec<u128> = first.committed.iter().chain(&second.committed).map(|row| row.event).collect();
    assert_eq!(sorted(arrived), sorted(std::mem::take(&mut produced)), "each once");
    scene.nothing_was_lost();
}

// C1.7, C13.1
#[test]
fn wrong_credentials_are_told_and_right_ones_are_enough() {
    let _alone = alone();
    let mut scene = Scene::stopped(&["lender"], 1, &[]);
    let user = format!("late-{}", std::process::id());
    for (name, value) in [
        ("KAFKA_BROKERS", service("HUB_TEST_KAFKA_SASL")),
        ("KAFKA_TLS_ENABLED", "true".to_owned()),
        ("KAFKA_CA_CERT", std::fs::read_to_string(service("HUB_TEST_KAFKA_CA")).unwrap()),
        ("KAFKA_SCRAM_MECHANISM", "SCRAM-SHA-512".to_owned()),
        ("KAFKA_SCRAM_USERNAME", user.clone()),
        ("KAFKA_SCRAM_PASSWORD", "right-canary".to_owned()),
    ] {
        scene.hub.set(name, &value);
    }
    scene.hub.start();
    let api = scene.hub.api();
    let load = scene.load(50, 5, 1);
    scene.subscribe(&load.tenant_names());
    let manifest = load.run(scene.folder());
    let detail = || api.readyz().unwrap().1["checks"]["kafka"]["detail"].as_str().unwrap_or_default().to_owned();
    let refused = || detail().starts_with("the brokers refuse us: authentication");
    until_true("it says why", Duration::from_secs(30), refused);
    assert_eq!(api.done("GET", "/admin/ingest", None, None)["source"], "refused");
    let notice = until("a notice", Duration::from_secs(30), || api.list("/admin/notices").pop());
    assert_eq!((&notice["kind"], &notice["subject"]), (&json!("kafka_refused"), &json!("brokers")), "{notice}");
    assert!(!format!("{notice}{}", detail()).contains("canary"));
    produce(&["scram-user", &user, "right-canary", "--bits", "512"], "");
    // Its sessions end after three seconds each.
    until_true("it reads", Duration::from_secs(10), || scene.receiver.count() == manifest.committed.len());
    until_true("it is ready", Duration::from_secs(10), || api.readyz().unwrap().1["status"] == "ready");
    scene.settled();
    scene.each_once(&manifest, "once the credentials are right");
    scene.nothing_was_lost();
}

// C1.6, C1.7
#[test]
fn a_broker_dies_and_comes_back() {
    let _alone = alone();
    let scene = Scene::replicated(&["lender"], 6, 3, &[]);
    let mut load = scene.load(20_000, 40, 6);
    // For longer than it takes to notice that a broker is gone, and to move its partitions.
    (load.rate, load.transaction, load.abort_every, load.compression) = (1_000, 20, 9, "mixed");
    scene.subscribe(&load.tenant_names());
    let loading = load.start(scene.folder());
    scene.delivered(2_000);
    services(&["broker-kill", "2"]);
    let back = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.delivered(10_000)));
    services(&["broker-start", "2"]);
    back.unwrap_or_else(|why| std::panic::resume_unwind(why));
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    produce(&["wait-isr", &scene.topics[0]], "");
    scene.settled();
    scene.each_once(&manifest, "with a broker killed and back");
    scene.nothing_was_lost();
}

// C1.6, C13.1
#[test]
fn a_hanging_transaction_is_told() {
    let _alone = alone();
    let scene = Scene::new(&["lender"], 1, &[]);
    let mut load = scene.load(20, 5, 1);
    scene.subscribe(&load.tenant_names());
    let first = load.run(scene.folder());
    scene.delivered(first.committed.len());
    let (topic, id) = (&scene.topics[0], format!("{}hanging", scene.prefix));
    let transaction = |how: &str, lines: &str| {
        let options = ["--transaction", how, "--transactional-id", &id, "--transaction-timeout-ms", "600000"];
        produce(&[&["records", "-"][..], &options].concat(), lines);
    };
    transaction("hang", &format!("{}\n", json!({ "topic": topic, "value": "left open" })));
    let api = scene.hub.api();
    until_true("the open transaction is seen", Duration::from_secs(30), || {
        let shown = api.done("GET", "/admin/ingest", None, None);
        let partition = &shown["partitions"][0];
        partition["high_watermark"].as_i64() > partition["last_stable_offset"].as_i64()
    });
    load.seed = 2;
    let second = load.run(scene.folder());
    let state = || api.done("GET", "/admin/ingest", None, None)["partitions"][0]["state"].clone();
    until_true("it is named", Duration::from_secs(90), || state() == "hanging_transaction");
    let (status, ready) = api.readyz().unwrap();
    let check = &ready["checks"]["kafka"];
    assert_eq!((status, &ready["status"], &check["status"]), (200, &json!("degraded"), &json!("degraded")), "{ready}");
    assert!(check["detail"].as_str().unwrap().starts_with(&format!("{topic}/0: hanging_transaction at 20")), "{ready}");
    let hanging = || api.metric("streaming_hub_kafka_hanging_transactions");
    until_true("the metric counts it", Duration::from_secs(10), || hanging() == 1.0);
    let notice = until("a notice", Duration::from_secs(30), || api.list("/admin/notices").pop());
    assert_eq!((&notice["kind"], &notice["subject"]), (&json!("hanging_transaction"), &json!(format!("{topic}/0"))));
    transaction("abort", "");
    scene.delivered(first.committed.len() + second.committed.len());
    until_true("it is over", Duration::from_secs(10), || hanging() == 0.0 && state() == "reading");
    assert_eq!(api.readyz().unwrap().1["status"], "ready");
    assert_eq!(scene.receiver.count(), 40);
    scene.settled();
    scene.nothing_was_lost();
}

// C5.5, C6.1, C7.2
#[test]
fn a_receiver_goes_away_and_comes_back() {
    let _alone = alone();
    let settings = [("BREAKER_COOLING", "1s"), ("BREAKER_COOLING_MAX", "2s")];
    let mut scene = Scene::new(&["lender"], 2, &settings);
    let mut load = scene.load(2_000, 20, 2);
    load.rate = 400;
    let steps = json!({ "delivery_order": "strict", "retry_schedule": ["0s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s"] });
    scene.subscribe_as(&load.tenant_names(), &steps);
    let loading = load.start(scene.folder());
    scene.delivered(500);
    scene.receiver.go_away();
    let away = scene.receiver.count();
    let api = scene.hub.api();
    let open = || api.metric("streaming_hub_breakers_open") >= 10.0;
    until_true("the breakers open", Duration::from_secs(60), open);
    scene.receiver.come_back();
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    scene.settled();
    // One of a lane may have been received with its answer cut off.
    judge(&manifest, &scene.receiver, &[away]).0.none("with a receiver that was away");
    scene.nothing_was_lost();
    assert_eq!(api.metric("streaming_hub_breakers_open"), 0.0);
}

fn sorted(mut events: Vec<u128>) -> Vec<u128> {
    events.sort_unstable();
    events
}

// C2.8
#[test]
fn a_topic_whose_records_name_no_tenant_makes_a_notice() {
    let _alone = alone();
    let scene = Scene::new(&["lender", "midaz"], 1, &[]);
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/records.jsonl")).unwrap();
    let mut lines = String::new();
    for mut case in text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        if case["reason"] == "missing_tenant" {
            case["topic"] = json!(scene.topics[0]);
            lines += &format!("{case}\n");
        }
    }
    assert!(!lines.is_empty());
    produce(&["records", "-"], &lines);
    let api = scene.hub.api();
    let notices = || api.list("/admin/notices");
    until_true("a notice of it", Duration::from_secs(60), || !notices().is_empty());
    let [notice] = notices().try_into().unwrap();
    assert_eq!((&notice["kind"], &notice["subject"]), (&json!("topic_without_tenant"), &json!(scene.topics[0])));
    assert_eq!(api.metric("streaming_hub_notices_total") as u64, 1);
}

// C2.7
#[test]
fn malformed_records_are_visible_in_poison() {
    let _alone = alone();
    let scene = Scene::new(&["lender", "midaz"], 1, &[]);
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/records.jsonl")).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut lines = String::new();
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    let mut produced = 0;
    for mut case in cases {
        let topic = case["topic"].as_str().unwrap().to_owned();
        let source = topic.rsplit_once('.').unwrap().1;
        // Those of other topics are about settings of the source; those about huge bodies say so instead of holding one.
        let topic = format!("{}{source}", scene.prefix);
        if !scene.topics.contains(&topic) || case.get("value").is_none() && case.get("value_base64").is_none() {
            continue;
        }
        case["topic"] = json!(topic);
        if case["verdict"] == "quarantine" {
            *wanted.entry(case["reason"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        produced += 1;
        lines += &format!("{case}\n");
    }
    assert!(wanted.len() >= 10, "{wanted:?} of {produced}");
    produce(&["records", "-"], &lines);
    let api = scene.hub.api();
    let counted = || api.metric("streaming_hub_records_total") as usize == produced;
    until_true("every record has its verdict", Duration::from_secs(30), counted);
    scene.settled();
    let poison = api.list("/admin/poison");
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for record in &poison {
        *found.entry(record["reason"].as_str().unwrap().to_owned()).or_default() += 1;
        let topic = record["topic"].as_str().unwrap().to_owned();
        assert!(scene.topics.contains(&topic) && record["offset"].is_u64() && record["origin"] == "kafka", "{record}");
    }
    assert_eq!(found, wanted);
    // By reason in the metrics as well, and nothing of it was delivered.
    assert_eq!(api.metric("streaming_hub_quarantined_records_total") as usize, poison.len());
    assert_eq!(scene.receiver.count(), 0);
}

// C1.5
#[test]
fn gap_visible() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], 1, &[]);
    let load = scene.load(50, 5, 1);
    scene.subscribe(&load.tenant_names());
    let first = load.run(scene.folder());
    scene.delivered(first.committed.len());
    scene.settled();
    scene.hub.terminate();
    assert_eq!(scene.hub.ended(Duration::from_secs(40)).code(), Some(0));
    let mut load = load;
    load.seed = 2;
    load.run(scene.folder());
    produce(&["delete-records", &scene.topics[0], "0", "80"], "");
    scene.hub.start();
    let api = scene.hub.api();
    let gaps =
        until("the gap", Duration::from_secs(30), || Some(api.list("/admin/gaps")).filter(|gaps| !gaps.is_empty()));
    let told: Vec<_> =
        gaps.iter().map(|gap| (&gap["topic"], &gap["partition"], &gap["from"], &gap["to"], &gap["reason"])).collect();
    let topic = json!(scene.topics[0]);
    assert_eq!(told, [(&topic, &json!(0), &json!(50), &json!(80), &json!("below_start"))]);
    assert_eq!(api.metric("streaming_hub_gaps_total"), 1.0);
    // And it goes on where the log begins.
    scene.delivered(first.committed.len() + 20);
    scene.settled();
    assert_eq!(scene.receiver.count(), 70);
}

// C5.5
#[test]
fn a_hanging_tenant_delays_nobody_else() {
    let _alone = alone();
    let scene = Scene::new(&["lender"], 2, &[]);
    let load = scene.load(2_000, 20, 2);
    let names = load.tenant_names();
    scene.subscribe(&names);
    let hanging = &names[0];
    scene.receiver.meet(hanging, Meets::Silence);
    let manifest = load.run(scene.folder());
    let of_others = manifest.committed.iter().filter(|row| row.tenant != *hanging).count();
    let of_hanging = || {
        let number = scene.receiver.tenant(hanging);
        scene.receiver.arrivals().iter().filter(|arrival| Some(arrival.tenant) == number).count()
    };
    // The hanging one's attempts take ten seconds each: its hundred would take a quarter of an hour.
    until_true("all of the others", Duration::from_secs(60), || scene.receiver.count() - of_hanging() == of_others);
    assert!(of_hanging() < 12, "{} attempts at one that hangs", of_hanging());
    let arrivals = scene.receiver.arrivals();
    let (first, last) = (arrivals.iter().map(|arrival| arrival.received_us).min(), arrivals.last());
    eprintln!("{of_others} deliveries beside a hanging one in {:?} us", last.unwrap().received_us - first.unwrap());
    // The missing ones are the hanging tenant's, and nobody else's.
    let others: Vec<_> = manifest.committed.into_iter().filter(|row| row.tenant != *hanging).collect();
    let others = crate::harness::kafka::Manifest { committed: others, aborted: manifest.aborted, told: manifest.told };
    judge_without(&others, &scene, hanging);
}

fn judge_without(manifest: &crate::harness::kafka::Manifest, scene: &Scene, hanging: &str) {
    scene.receiver.forget(hanging);
    judge(manifest, &scene.receiver, &[]).0.none("beside a hanging tenant");
}
