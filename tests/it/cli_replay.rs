//! A real hub is killed in the middle of a replay: it goes on where it was, and every event arrives (C6.6, C13.3).

use crate::api::Api;
use crate::command::{Run, hub, serve};
use crate::receivers::https::Receiver;
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// More than a replay makes ahead of its lane, so that it is under way when the hub is killed.
const EVENTS: usize = 1_500;
/// Attempts in flight.
const AT_ONCE: usize = 32;

fn open(folder: &Path, receiver: &Receiver) -> Run {
    serve(folder)
        .env("STREAMING_HUB_HTTP_INGEST_ENABLED", "true")
        .env("STREAMING_HUB_TENANT_ID", "t-abc")
        .env("STREAMING_HUB_SINK_ALLOW", &format!("{}+plain", receiver.address))
}

/// So many records like the first of the given ones, each with its own id.
fn records() -> String {
    let cases = format!("{}/tests/cases/records.jsonl", env!("CARGO_MANIFEST_DIR"));
    let cases = std::fs::read_to_string(cases).unwrap();
    let first = cases.lines().next().unwrap();
    let id = "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01";
    assert!(first.contains(id));
    (0..EVENTS).map(|number| first.replace(id, &format!("0198b0c2-7c1e-7d3a-9f10-{number:012x}")) + "\n").collect()
}

// C6.6, C13.3
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_goes_on_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut receiver = Receiver::start(None, |_| Some(http::Response::default())).await;
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    let body = json!({
        "event_types": ["*"],
        "sink": {"kind": "webhook", "url": format!("http://{}/hook", receiver.address)},
        "verification_echo": false, "delivery_order": "parallel", "max_in_flight": AT_ONCE,
    });
    let id = api.post("/v1/subscriptions", &body).await["id"].as_str().unwrap().to_owned();
    assert_eq!(api.verify(&id).await["verification_state"], "active");
    receiver.next().await;
    let (url, key, records) = (running.url(), api.ingest_key().to_owned(), records());
    let sending =
        tokio::task::spawn_blocking(move || hub(&["send", "--url", &url, "--key", &key]).input(&records).end());
    for _ in 0..EVENTS {
        receiver.next().await;
    }
    let sent = sending.await.unwrap();
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);

    let path = format!("/v1/subscriptions/{id}");
    let begun = api.post(&format!("{path}/replay"), &json!({"from_seq": 1})).await;
    assert_eq!(begun["count"], EVENTS, "{begun}");
    let mut arrived: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..100 {
        let got = receiver.next().await;
        assert_eq!(got.one("x-lerian-redelivery"), "replay");
        *arrived.entry(got.one("x-lerian-event-id").to_owned()).or_default() += 1;
    }
    running.signal(Signal::KILL);
    tokio::task::spawn_blocking(|| running.wait()).await.unwrap();

    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    while arrived.len() < EVENTS {
        let got = receiver.next().await;
        assert_eq!(got.one("x-lerian-redelivery"), "replay");
        *arrived.entry(got.one("x-lerian-event-id").to_owned()).or_default() += 1;
    }
    let repeats: usize = arrived.values().map(|times| times - 1).sum();
    assert!(repeats <= AT_ONCE, "{repeats} arrived once more than they should, {AT_ONCE} were on their way");
    let newest = api.get(&format!("{path}/replays")).await.1["items"][0].clone();
    assert_eq!((&newest["state"], &newest["done"]), (&"done".into(), &EVENTS.into()), "{newest}");
    running.signal(Signal::TERM);
    tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
}
