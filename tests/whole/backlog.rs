//! More waiting than may be in memory: what the hub does with it while its receivers are away, over kills, and when they are back.

use crate::harness::ledger::judge;
use crate::harness::receiver::Meets;
use crate::harness::scene::Scene;
use crate::harness::{alone, until_true};
use std::time::Duration;

const EVENTS: u64 = 12_000;
const TENANTS: u32 = 8;
const PARTITIONS: u32 = 4;
/// `PENDING_IN_MEMORY_MAX`.
const IN_MEMORY: u32 = 1_000;

// C5.3 C5.4 C5.5
#[test]
fn a_backlog_too_long_for_memory_comes_through_kills_in_order() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], PARTITIONS, &[("PENDING_IN_MEMORY_MAX", &IN_MEMORY.to_string())]);
    let load = scene.load(EVENTS, TENANTS, PARTITIONS);
    let tenants = load.tenant_names();
    scene.subscribe(&tenants);
    scene.receiver.meet_all(Meets::NotNow);
    let manifest = load.run(scene.folder());
    let waiting = |scene: &Scene| scene.hub.api().metric("streaming_hub_unfinished_jobs") as u64;
    let all_wait = || waiting(&scene) == EVENTS;
    until_true("ingest goes on above the ceiling", Duration::from_secs(120), all_wait);
    scene.kill();
    scene.hub.start();
    assert_eq!(waiting(&scene), EVENTS);
    let in_memory = scene.hub.api().metric("streaming_hub_jobs_in_memory") as u32;
    assert!(in_memory <= IN_MEMORY + IN_MEMORY / 8, "{in_memory} jobs are in memory after a restart");
    for tenant in &tenants {
        scene.receiver.forget(tenant);
    }
    scene.receiver.meet_all(Meets::Thanks);
    let api = scene.hub.api();
    for tenant in &tenants {
        let all = api.done("GET", "/v1/subscriptions", Some(tenant), None);
        let id = all["items"][0]["id"].as_str().unwrap();
        // It lifts the hold.
        api.done("POST", &format!("/v1/subscriptions/{id}/verify"), Some(tenant), None);
    }
    let mut crashes = Vec::new();
    for moment in [EVENTS / 4, EVENTS / 2] {
        scene.delivered(usize::try_from(moment).unwrap());
        crashes.push(scene.kill());
        scene.hub.start();
    }
    scene.delivered(manifest.committed.len());
    scene.settled();
    judge(&manifest, &scene.receiver, &crashes).0.none("with a backlog in the store");
    scene.nothing_was_lost();
}
