//! A real hub with short windows: a subscription that keeps failing is switched off, says so, survives `kill -9`, and is verified back.

use crate::api::{Api, Echo};
use crate::command::{Run, Serving, serve};
use crate::receivers::https::Receiver;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(folder: &Path, receiver: &Receiver) -> Run {
    serve(folder)
        .env("STREAMING_HUB_HTTP_INGEST_ENABLED", "true")
        .env("STREAMING_HUB_TENANT_ID", "t-abc")
        .env("STREAMING_HUB_SINK_ALLOW", &format!("{}+plain", receiver.address))
        .env("STREAMING_HUB_RETRY_SCHEDULE", "0s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s,1s")
        .env("STREAMING_HUB_BREAKER_FAILURES", "1000")
        .env("STREAMING_HUB_AUTODISABLE_FAILURE_WINDOW", "1s")
        .env("STREAMING_HUB_AUTODISABLE_FAILURE_SPREAD", "500ms")
}

async fn ended(running: Serving) -> Vec<Value> {
    let (_, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

// C8.1 C8.2 C8.4 C8.5
#[tokio::test(flavor = "multi_thread")]
async fn what_fails_for_too_long_is_switched_off_until_it_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = broken.clone();
    let mut receiver = Receiver::start(None, move |_| {
        let mut answer = http::Response::default();
        if is_broken.load(Ordering::SeqCst) {
            *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        }
        Some(answer)
    })
    .await;
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    let (id, _) = api.subscribe(&format!("http://{}/hook", receiver.address), Echo::Waived).await;
    let path = format!("/v1/subscriptions/{id}");
    assert_eq!(api.verify(&id).await["verification_state"], "active");
    receiver.next().await;
    broken.store(true, Ordering::SeqCst);
    api.send_one();
    while api.get(&path).await.1["enabled"] == true {
        tokio::task::yield_now().await;
    }
    running.signal(Signal::KILL);
    let log = ended(running).await;
    let notice = log.iter().find(|line| line["kind"] == "auto_disabled").unwrap_or_else(|| panic!("{log:#?}"));
    assert_eq!((&notice["level"], &notice["subscription"]), (&"ERROR".into(), &id.as_str().into()), "{notice}");
    assert_eq!(notice["last_error"], "server_error");
    while receiver.waiting() > 0 {
        receiver.next().await;
    }

    broken.store(false, Ordering::SeqCst);
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    let off = api.get(&path).await.1;
    assert_eq!((&off["disabled_reason"], &off["verification_state"]), (&"auto_disabled".into(), &"active".into()));
    assert_eq!(off["health"]["backlog"]["waiting"], 1, "{off}");
    let back = api.verify(&id).await;
    assert_eq!(back["enabled"], true, "{back}");
    receiver.next().await;
    let delivered = receiver.next().await;
    assert!(delivered.one("x-lerian-attempt").parse::<u32>().unwrap() > 1, "the job that waited");
    running.signal(Signal::TERM);
    ended(running).await;
}
