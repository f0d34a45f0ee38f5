//! The three orders of delivery while receivers fail and the hub is killed, and what a client was told before a kill.

use crate::harness::kafka::Manifest;
use crate::harness::receiver::{Arrival, Meets};
use crate::harness::scene::Scene;
use crate::harness::{Chance, alone};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

const TENANTS: u32 = 20;
const PARTITIONS: u32 = 4;
const EVENTS: u64 = 2_000;
const KILLS: u64 = 4;
/// Every step is over within a second, and one in ten fails: nothing dies.
const STEPS: [&str; 8] = ["0s", "1s", "1s", "1s", "1s", "1s", "1s", "1s"];

/// What came through, by lane, each with the crashes before it.
struct Came {
    manifest: Manifest,
    lanes: BTreeMap<u32, Vec<(usize, Arrival)>>,
}

/// Delivers a load to receivers that fail now and then, with the hub killed in between.
fn through_trouble(order: &Value) -> Came {
    let mut scene = Scene::new(&["lender"], PARTITIONS, &[("BREAKER_FAILURES", "20")]);
    let load = scene.load(EVENTS, TENANTS, PARTITIONS);
    let mut asked = json!({ "retry_schedule": STEPS });
    for (name, value) in order.as_object().unwrap() {
        asked[name] = value.clone();
    }
    scene.subscribe_as(&load.tenant_names(), &asked);
    scene.receiver.meet_all(Meets::FailureOneIn(10));
    let loading = load.start(scene.folder());
    let mut chance = Chance::new(7);
    let mut moments: Vec<u64> = (0..KILLS).map(|_| chance.below(EVENTS * 9 / 10)).collect();
    moments.sort_unstable();
    let mut crashes = Vec::new();
    for moment in moments {
        scene.delivered(usize::try_from(moment).unwrap());
        crashes.push(scene.kill());
        scene.hub.start();
    }
    let manifest = loading.finish();
    scene.delivered(manifest.committed.len());
    scene.settled();
    scene.nothing_was_lost();
    let numbers: HashMap<u128, u64> = manifest.committed.iter().map(|row| (row.event, row.n)).collect();
    let mut lanes: BTreeMap<u32, Vec<(usize, Arrival)>> = BTreeMap::new();
    for (at, arrival) in scene.receiver.arrivals().into_iter().enumerate() {
        assert!(arrival.is_own && numbers.get(&arrival.event) == Some(&arrival.n), "{arrival:?}");
        lanes.entry(arrival.tenant).or_default().push((crashes.partition_point(|crash| *crash <= at), arrival));
    }
    let failed = lanes.values().flatten().filter(|(_, arrival)| arrival.attempt > 1).count();
    assert!(failed > 50, "only {failed} retries: the receivers did not fail");
    Came { manifest, lanes }
}

fn events_of(lane: &[(usize, Arrival)]) -> u64 {
    lane.iter().map(|(_, arrival)| arrival.n).max().unwrap()
}

fn rising(numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut all: Vec<u64> = numbers.collect();
    all.dedup();
    all
}

// C5.4: 1 2 2 3
#[test]
fn a_strict_lane_holds_its_order_through_failures_and_kills() {
    let _alone = alone();
    let Came { lanes, .. } = through_trouble(&json!({ "delivery_order": "strict" }));
    for lane in lanes.values() {
        let came = rising(lane.iter().map(|(_, arrival)| arrival.n));
        assert_eq!(came, Vec::from_iter(1..=events_of(lane)), "each in its turn, again only directly after itself");
    }
}

// C5.4: first attempts in seq order, later events go on
#[test]
fn a_fifo_lane_keeps_the_order_of_first_attempts() {
    let _alone = alone();
    let Came { lanes, .. } = through_trouble(&json!({ "delivery_order": "fifo" }));
    let mut overtaken = 0;
    for lane in lanes.values() {
        let firsts = rising(lane.iter().filter(|(_, arrival)| arrival.attempt == 1).map(|(_, arrival)| arrival.n));
        assert_eq!(firsts, Vec::from_iter(1..=events_of(lane)));
        overtaken += lane.windows(2).filter(|two| two[1].1.n < two[0].1.n).count();
    }
    assert!(overtaken > 0, "no failed event was overtaken: that is the strict order");
}

// C5.4, C5.3: a crash repeats at most what was in flight
#[test]
fn a_parallel_lane_repeats_at_most_what_was_in_flight() {
    const IN_FLIGHT: usize = 8;
    let _alone = alone();
    let Came { manifest, lanes } =
        through_trouble(&json!({ "delivery_order": "parallel", "max_in_flight": IN_FLIGHT }));
    let mut events = 0;
    for lane in lanes.values() {
        // Of the same attempt number: what a crash made happen again. A retry has the next number.
        let mut seen: HashMap<(u128, u32), usize> = HashMap::new();
        let mut repeats: BTreeMap<usize, usize> = BTreeMap::new();
        for (crash, arrival) in lane {
            let Some(before) = seen.insert((arrival.event, arrival.attempt), *crash) else { continue };
            assert!(before < *crash, "again without a crash: {arrival:?}");
            *repeats.entry(*crash).or_default() += 1;
        }
        assert!(repeats.values().all(|many| *many <= IN_FLIGHT), "{repeats:?}");
        let mut came: Vec<u128> = lane.iter().map(|(_, arrival)| arrival.event).collect();
        came.sort_unstable();
        came.dedup();
        events += came.len();
    }
    assert_eq!(events, manifest.committed.len(), "each at least once");
}

// C13.3, and invariant 20: what was answered stands
#[test]
fn answered_changes_survive_a_kill() {
    let _alone = alone();
    let mut scene = Scene::new(&["lender"], 1, &[]);
    let mut kept: Vec<(String, String, String)> = Vec::new();
    for round in 0..5 {
        let tenant = format!("tenant-{round}");
        let api = scene.hub.api();
        let [kept_id, gone] = [0, 1].map(|_| api.subscribe(&tenant, &scene.receiver.url(&tenant), &json!({})).id);
        api.done("POST", &format!("/v1/subscriptions/{kept_id}/pause"), Some(&tenant), None);
        api.done("DELETE", &format!("/v1/subscriptions/{gone}"), Some(&tenant), None);
        scene.hub.kill();
        kept.push((tenant, kept_id, gone));
        scene.hub.start();
    }
    let api = scene.hub.api();
    for (tenant, kept, gone) in kept {
        let shown = api.done("GET", &format!("/v1/subscriptions/{kept}"), Some(&tenant), None);
        assert_eq!((&shown["enabled"], &shown["disabled_reason"]), (&json!(false), &json!("paused")));
        assert_eq!(api.call("GET", &format!("/v1/subscriptions/{gone}"), Some(&tenant), None).0, 404);
    }
}
