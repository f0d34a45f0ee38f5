//! How a hub stops (C13.2): what is in flight, what readiness says, and the second signal.

use crate::api::{Api, Echo};
use crate::command::{Run, serve};
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

    hangs.store(false, Ordering::SeqCst);
    let running = open(folder.path(), &receiver).until_logged("the hub is ready");
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
