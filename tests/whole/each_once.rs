//! The main promise under load: everything that was committed to Kafka is delivered, to its own tenant, once, in order, signed; and
//! the same while the hub is killed again and again.

use crate::harness::hub::is_release;
use crate::harness::ledger::judge;
use crate::harness::scene::Scene;
use crate::harness::{Chance, alone};
use std::time::Duration;

const TENANTS: u32 = 200;
const TOPICS: [&str; 3] = ["lender", "midaz", "consignado"];
/// Of each topic: 12 in all.
const PARTITIONS: u32 = 4;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

fn events() -> u64 {
    number("HUB_TEST_EVENTS", if is_release() { 100_000 } else { 20_000 })
}

// C1.6, C3.1, C3.3, C3.4, C5.4, C9.1, C9.3
#[test]
fn hundred_thousand_events_each_once_in_order() {
    let _alone = alone();
    let scene = Scene::new(&TOPICS, PARTITIONS, &[]);
    let mut load = scene.load(events(), TENANTS, PARTITIONS);
    (load.transaction, load.abort_every, load.compression) = (50, 7, "mixed");
    scene.subscribe(&load.tenant_names());
    let manifest = load.run(scene.folder());
    assert_eq!(manifest.committed.len() as u64, load.events);
    assert!(manifest.aborted.len() as u64 > load.events / 20, "too few were aborted: {}", manifest.told);
    scene.delivered(manifest.committed.len());
    scene.settled();
    scene.each_once(&manifest, "without a crash");
    scene.nothing_was_lost();
    assert!(scene.receiver.arrivals().iter().all(|arrival| arrival.attempt == 1), "an attempt failed");
}

/// Hundreds of kills of a busy hub meet some event again and again: after the fifth it is called poison (C5.6).
/// Whoever died like that was delivered all the same, or the judge would miss it. How many those were; nothing else may be lost.
fn blamed(scene: &Scene) -> usize {
    let api = scene.hub.api();
    assert_eq!((api.list("/admin/poison"), api.list("/admin/gaps")), (vec![], vec![]));
    let dead = api.list("/admin/dead-letters");
    assert!(dead.iter().all(|letter| letter["reason"] == "poison"), "{dead:?}");
    dead.len()
}

// C5.3, C5.6, C13.3
#[test]
fn killed_twenty_times() {
    let _alone = alone();
    let kills = number("HUB_TEST_KILLS", 20);
    let mut chance = Chance::new(number("HUB_TEST_SEED", 1));
    let mut scene = Scene::new(&TOPICS, PARTITIONS, &[]);
    let mut load = scene.load(events(), TENANTS, PARTITIONS);
    (load.transaction, load.abort_every, load.compression) = (50, 7, "mixed");
    scene.subscribe(&load.tenant_names());
    // Kills are spread over the deliveries, so that each of them hits a hub under load.
    let mut moments: Vec<u64> = (0..kills).map(|_| chance.below(load.events * 95 / 100)).collect();
    moments.sort_unstable();
    let loading = load.start(scene.folder());
    let mut crashes = Vec::new();
    for (kill, moment) in moments.into_iter().enumerate() {
        scene.delivered(usize::try_from(moment).unwrap());
        crashes.push(scene.kill());
        // Every third time once more while it starts, wherever it has come to by then.
        if kill % 3 == 2 {
            scene.hub.spawn();
            std::thread::sleep(Duration::from_millis(chance.below(if is_release() { 60 } else { 300 })));
            crashes.push(scene.kill());
        }
        scene.hub.start();
    }
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    scene.settled();
    let (faults, repeats) = judge(&manifest, &scene.receiver, &crashes);
    let blamed = blamed(&scene);
    eprintln!("{} crashes, {repeats} repeats in {TENANTS} lanes, {blamed} blamed", crashes.len());
    faults.none("killed again and again");
    assert!(blamed * 5 <= crashes.len(), "{blamed} events blamed by {} crashes", crashes.len());
    assert!(kills > 20 || blamed == 0, "{blamed} events blamed by {kills} kills");
    assert!(scene.receiver.arrivals().iter().all(|arrival| arrival.attempt == 1), "an attempt failed");
}
