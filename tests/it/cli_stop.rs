//! How a hub stops (C13.2): what is in flight, what readiness says, and the second signal.

use crate::api::{Api, Echo};
use crate::command::{Run, json_line, serve};
use crate::receivers::https::Receiver;
use rustix::process::Signal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(folder: &Path, receiver: &Receiver) -> Run {
    serve(folder)
        .env("STREAMING_HUB_HTTP_INGEST_ENABLED", "true")
        .env("STREAMING_HUB_TENANT_ID", "t-abc")
        .env("STREAMING_HUB_SINK_ALLOW", &format!("{}+plain", receiver.address))
        .env("STREAMING_HUB_SHUTDOWN_TIMEOUT", "300ms")
}

// C13.2, C5.6
#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_hangs_is_cut_off_without_blame_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = Arc::new(AtomicBool::new(false));
    let answers = hangs.clone();
    let mut receiver =
        Receiver::start(None, move |_| (!answers.load(Ordering::SeqCst)).then(http::Response::default)).await;
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    let (id, _) = api.subscribe(&format!("http://{}/hook", receiver.address), Echo::Waived).await;
    let proven = api.verify(&id).await;
    assert_eq!(proven["verification_state"], "active", "{proven}");
    receiver.next().await;
    hangs.store(true, Ordering::SeqCst);
    api.send_one();
    let first = receiver.next().await;
    running.signal(Signal::TERM);
    let (status, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    let waited = json_line(&said, "waiting for the attempts in flight");
    assert_eq!(waited["in_flight"], 1, "{said}");
    let cut_off = json_line(&said, "attempts were cut off; they are made again after the start");
    assert_eq!(cut_off["cut_off"], 1, "{said}");

    hangs.store(false, Ordering::SeqCst);
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    assert!(!running.seen().contains("without closing the store"), "{}", running.seen());
    let again = receiver.next().await;
    for name in ["x-lerian-event-id", "x-lerian-seq", "x-lerian-attempt"] {
        assert_eq!(first.one(name), again.one(name), "{name}");
    }
    assert_ne!(first.one("x-lerian-delivery-id"), again.one("x-lerian-delivery-id"));
    running.signal(Signal::TERM);
    let (status, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!((status.code(), receiver.waiting()), (Some(0), 0), "{said}");
}

// C13.1, C13.2
#[tokio::test(flavor = "multi_thread")]
async fn the_first_signal_makes_it_not_ready_and_the_second_ends_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let running =
        serve(folder.path()).env("STREAMING_HUB_PRE_STOP_DRAIN_TIMEOUT", "5m").until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    assert_eq!(api.get("/readyz").await.0, 200);
    running.signal(Signal::TERM);
    while api.get("/readyz").await.0 != 503 {
        tokio::task::yield_now().await;
    }
    let (_, problem) = api.get("/readyz").await;
    assert!(problem.to_string().contains("draining"), "{problem}");
    assert_eq!(api.get("/healthz").await.0, 200, "alive, also while it drains");
    running.signal(Signal::TERM);
    let (status, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("stopped at once"), "{said}");
}

// C13.2: what is there can be read while attempts are waited for, and nothing new is taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_draining_hub_takes_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = Arc::new(AtomicBool::new(false));
    let answers = hangs.clone();
    let mut receiver =
        Receiver::start(None, move |_| (!answers.load(Ordering::SeqCst)).then(http::Response::default)).await;
    let running =
        open(folder.path(), &receiver).env("STREAMING_HUB_SHUTDOWN_TIMEOUT", "5m").until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    let (id, _) = api.subscribe(&format!("http://{}/hook", receiver.address), Echo::Waived).await;
    assert_eq!(api.verify(&id).await["verification_state"], "active");
    receiver.next().await;
    hangs.store(true, Ordering::SeqCst);
    api.send_one();
    receiver.next().await;
    running.signal(Signal::TERM);
    let pause = format!("/v1/subscriptions/{id}/pause");
    let refused = loop {
        let answer = api.post(&pause, &serde_json::json!({})).await;
        if answer["status"] == 503 {
            break answer;
        }
    };
    assert_eq!(refused["code"], "stopping", "{refused}");
    assert_eq!(api.ingest(&serde_json::json!({})).await["code"], "stopping");
    assert_eq!(api.get(&format!("/v1/subscriptions/{id}")).await.0, 200);
    assert_eq!((api.get("/healthz").await.0, api.get("/readyz").await.0), (200, 503));
    running.signal(Signal::TERM);
    let (status, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
}

// C13.2: a service is not ended by a signal that asks others to read their settings again.
#[tokio::test(flavor = "multi_thread")]
async fn a_hang_up_is_no_end() {
    let folder = tempfile::tempdir().unwrap();
    let running = serve(folder.path()).until_logged("the hub is ready");
    let api = Api::of(&running, folder.path());
    running.signal(Signal::HUP);
    assert_eq!(api.get("/healthz").await.0, 200);
    running.signal(Signal::TERM);
    let (status, said) = tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(said.contains("SIGHUP changes nothing"), "{said}");
}

// C5.6, C13.3
#[tokio::test(flavor = "multi_thread")]
async fn a_start_says_that_the_last_process_did_not_end_well() {
    let folder = tempfile::tempdir().unwrap();
    let hangs = Arc::new(AtomicBool::new(false));
    let answers = hangs.clone();
    let mut receiver =
        Receiver::start(None, move |_| (!answers.load(Ordering::SeqCst)).then(http::Response::default)).await;
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    assert!(!running.seen().contains("without closing the store"), "{}", running.seen());
    let api = Api::of(&running, folder.path());
    let (id, _) = api.subscribe(&format!("http://{}/hook", receiver.address), Echo::Waived).await;
    assert_eq!(api.verify(&id).await["verification_state"], "active");
    receiver.next().await;
    hangs.store(true, Ordering::SeqCst);
    api.send_one();
    receiver.next().await;
    running.signal(Signal::KILL);
    tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
    let said = json_line(
        running.seen(),
        "the last process ended without closing the store; the jobs that it had claimed are attempted again",
    );
    assert_eq!(said["jobs"], 1, "{said}");
}
