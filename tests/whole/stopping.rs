//! How the hub ends and begins again: killed, told to stop, told twice, and started beside itself.

use crate::harness::hub::is_release;
use crate::harness::ledger::judge;
use crate::harness::receiver::Meets;
use crate::harness::scene::Scene;
use crate::harness::{alone, until_true};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const TENANTS: u32 = 50;
const PARTITIONS: u32 = 4;

/// C13.3 says seconds; what is promised of a release build is two. Others have room.
fn restart_time() -> Duration {
    Duration::from_secs(if is_release() { 2 } else { 15 })
}

// C13.3, C5.6
#[test]
fn restart_is_quick() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], PARTITIONS, &[]);
    let load = scene.load(if is_release() { 50_000 } else { 10_000 }, TENANTS, PARTITIONS);
    scene.subscribe(&load.tenant_names());
    // The first of every tenant is in flight, and all others wait behind them.
    scene.receiver.meet_all(Meets::Silence);
    let manifest = load.run(scene.folder());
    scene.delivered(load.tenants as usize);
    let api = scene.hub.api();
    let stored = || api.metric("streaming_hub_jobs_made_total") as u64 == load.events;
    until_true("all is stored", Duration::from_secs(120), stored);
    let in_flight: HashSet<u128> = scene.receiver.arrivals().iter().map(|arrival| arrival.event).collect();
    let crash = scene.kill();
    scene.receiver.meet_all(Meets::Thanks);
    let began = Instant::now();
    scene.hub.start();
    let serving = began.elapsed();
    until_true("what was in flight is attempted again", Duration::from_secs(60), || {
        let again = scene.receiver.arrivals_from(crash);
        let again: HashSet<u128> = again.iter().map(|arrival| arrival.event).collect();
        in_flight.is_subset(&again)
    });
    let attempted = began.elapsed();
    eprintln!("serving again after {serving:?}, in flight again after {attempted:?}");
    assert!(serving < restart_time(), "serving again after {serving:?}");
    assert!(attempted < restart_time(), "what was in flight was attempted again after {attempted:?}");
    scene.delivered(manifest.committed.len() + in_flight.len());
    scene.settled();
    judge(&manifest, &scene.receiver, &[crash]).0.none("after one kill");
}

// C13.2, C13.1
#[test]
fn sigterm_drains() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], PARTITIONS, &[("PRE_STOP_DRAIN_TIMEOUT", "1s")]);
    let mut load = scene.load(10_000, TENANTS, PARTITIONS);
    load.transaction = 50;
    scene.subscribe(&load.tenant_names());
    // Some answers are on their way when the hub is told to stop.
    for tenant in load.tenant_names().iter().take(10) {
        scene.receiver.meet(tenant, Meets::ThanksAfter(Duration::from_millis(700)));
    }
    let loading = load.start(scene.folder());
    scene.delivered(2_000);
    let api = scene.hub.api();
    scene.hub.terminate();
    let began = Instant::now();
    // Still answering, and already not ready.
    let is_not_ready = || api.readyz().is_some_and(|(status, _)| status == 503);
    until_true("not ready any more", Duration::from_secs(1), is_not_ready);
    let status = scene.hub.ended(Duration::from_secs(40));
    assert_eq!(status.code(), Some(0), "{}", scene.hub.log_tail());
    eprintln!("drained in {:?}", began.elapsed());
    scene.receiver.meet_all(Meets::Thanks);
    scene.hub.start();
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    scene.settled();
    scene.each_once(&manifest, "after a clean stop");
    scene.nothing_was_lost();
}

// C13.2
#[test]
fn two_signals_stop_at_once() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], PARTITIONS, &[]);
    let load = scene.load(1_000, TENANTS, PARTITIONS);
    scene.subscribe(&load.tenant_names());
    scene.receiver.meet_all(Meets::Silence);
    let manifest = load.run(scene.folder());
    scene.delivered(load.tenants as usize);
    let api = scene.hub.api();
    scene.hub.terminate();
    let is_draining = || api.readyz().is_none_or(|(status, _)| status == 503);
    until_true("draining", Duration::from_secs(5), is_draining);
    // The attempts in flight would take ten seconds more.
    scene.hub.terminate();
    let began = Instant::now();
    scene.hub.ended(Duration::from_secs(30));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(3), "after a second signal it went on for {took:?}");
    until_true("closed", Duration::from_secs(5), || scene.receiver.connections() == 0);
    let stopped = scene.receiver.count();
    scene.receiver.meet_all(Meets::Thanks);
    scene.hub.start();
    scene.delivered(manifest.committed.len() + stopped);
    scene.settled();
    judge(&manifest, &scene.receiver, &[stopped]).0.none("after two signals");
    scene.nothing_was_lost();
}

// C5.6, C9.5: what was answered while the hub stood still was answered, though every deadline has passed meanwhile
#[test]
fn a_frozen_process_repeats_nothing() {
    let _alone = alone();
    let scene = Scene::new(&["lender"], PARTITIONS, &[("ATTEMPT_TIMEOUT", "1s")]);
    let mut load = scene.load(10_000, TENANTS, PARTITIONS);
    load.transaction = 50;
    scene.subscribe(&load.tenant_names());
    let loading = load.start(scene.folder());
    for reached in [1_000, 4_000, 7_000] {
        scene.delivered(reached);
        scene.hub.freeze(Duration::from_secs(3));
    }
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    scene.settled();
    scene.each_once(&manifest, "frozen three times");
    scene.nothing_was_lost();
}

// C13.5
#[test]
fn second_process_is_refused() {
    let _alone = alone();
    let scene = Scene::new(&["lender"], 1, &[]);
    let load = scene.load(100, 5, 1);
    scene.subscribe(&load.tenant_names());
    let port = crate::harness::free_port();
    let second = scene.hub.run(&["serve"], &[("HTTP_LISTEN_ADDR", &format!("127.0.0.1:{port}"))]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned() + &String::from_utf8_lossy(&second.stdout);
    assert_eq!(second.status.code(), Some(1), "{said}");
    let store = scene.hub.data().display().to_string();
    let is_clear = said.contains("in use by another process") && said.contains(&store);
    assert!(is_clear, "it does not say that another process has {store}: {said}");
    // The first goes on.
    let manifest = load.run(scene.folder());
    scene.delivered(manifest.committed.len());
    scene.each_once(&manifest, "beside a refused process");
}
