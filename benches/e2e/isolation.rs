//! What tenants in trouble do to all others: the time from produce to delivery of some calm tenants, alone, and beside each kind of
//! trouble (C5.5). The aim is a p99 within twice that of being alone.

use crate::harness::kafka::Load;
use crate::harness::receiver::Meets;
use crate::harness::scene::Scene;
use crate::harness::until_true;
use crate::machine::DiskMeanwhile;
use crate::measure::{latencies, rounded};
use crate::scenarios::number;
use serde_json::{Value, json};
use std::time::Duration;

const TOPICS: [&str; 3] = ["lender", "midaz", "consignado"];
const PARTITIONS: u32 = 4;
/// Whose deliveries are measured: so many tenants, at that many events a second in all.
const CALM: u32 = 20;
const RATE: u32 = 100;
const LONG: Duration = Duration::from_secs(1800);

/// Alone; beside destinations that never answer; beside one that answers after 9 s each time; beside a backlog that is too long for
/// memory, while it waits and while it is delivered as fast as it goes.
pub(crate) fn isolation() -> Value {
    let long = number("E2E_LONG", 200_000);
    let scene = Scene::new(&TOPICS, PARTITIONS, &[("PENDING_IN_MEMORY_MAX", &(long / 10).max(1_000).to_string())]);
    scene.receiver.look_at_one_in(100);
    let mut figures = json!({});
    let calm = Calm::over(&scene);
    // A broker that has just started still compiles its own code, and the first events open connections.
    calm.run(10, "warm");
    figures["alone"] = calm.run(number("E2E_SECONDS", 20), "alone");
    let mut beside = |name: &str| figures[name] = calm.run(number("E2E_SECONDS", 20), name);

    let slow = trouble(&scene, "slow-", 1, 2_000, &json!({ "delivery_order": "parallel", "max_in_flight": 256 }));
    meet(&scene, &slow, Meets::ThanksAfter(Duration::from_secs(9)));
    slow.run(scene.folder());
    beside("one_that_answers_after_9_s");
    meet(&scene, &slow, Meets::Thanks);

    let hanging = u32::try_from(number("E2E_HANGING", 1_000)).unwrap();
    let silent = trouble(&scene, "hang-", hanging, u64::from(hanging) * 4, &json!({}));
    meet(&scene, &silent, Meets::Silence);
    silent.run(scene.folder());
    beside("many_that_hang");
    meet(&scene, &silent, Meets::Thanks);

    let api = scene.hub.api();
    let backlog = trouble(&scene, "long-", 1, long, &json!({ "delivery_order": "parallel", "max_in_flight": 256 }));
    meet(&scene, &backlog, Meets::NotNow);
    let accepted = api.metric("streaming_hub_events_accepted_total");
    backlog.run(scene.folder());
    let stored = || api.metric("streaming_hub_events_accepted_total") - accepted >= long as f64;
    until_true("the backlog is stored", LONG, stored);
    beside("a_backlog_that_waits");
    meet(&scene, &backlog, Meets::Thanks);
    let tenant = &backlog.tenant_names()[0];
    let subscriptions = api.done("GET", "/v1/subscriptions", Some(tenant), None);
    let id = subscriptions["items"][0]["id"].as_str().expect("the backlog has a subscription").to_owned();
    api.done("POST", &format!("/v1/subscriptions/{id}/verify"), Some(tenant), None);
    beside("a_backlog_that_is_delivered");
    let alone = figures["alone"]["p99"].as_f64().unwrap();
    for trouble in figures.as_object_mut().unwrap().values_mut() {
        trouble["p99_to_alone"] = json!(rounded(trouble["p99"].as_f64().unwrap() / alone.max(0.001)));
    }
    figures
}

/// Tenants with a load and a subscription each.
fn trouble(scene: &Scene, prefix: &'static str, tenants: u32, events: u64, more: &Value) -> Load {
    let mut load = scene.load(events, tenants, PARTITIONS);
    load.prefix = prefix;
    let probes = scene.receiver.probes();
    let api = scene.hub.api();
    for tenant in load.tenant_names() {
        let made = api.subscribe(&tenant, &scene.receiver.url(&tenant), more);
        scene.receiver.learn(&tenant, &made.secret);
    }
    assert_eq!(scene.receiver.probes(), probes + tenants as usize);
    load
}

fn meet(scene: &Scene, load: &Load, meets: Meets) {
    for tenant in load.tenant_names() {
        scene.receiver.meet(&tenant, meets.clone());
    }
}

/// The tenants that are measured.
struct Calm<'a> {
    scene: &'a Scene,
    load: Load,
}

impl<'a> Calm<'a> {
    fn over(scene: &'a Scene) -> Self {
        let mut load = trouble(scene, "calm-", CALM, 1, &json!({}));
        (load.rate, load.linger_ms) = (RATE, 0);
        Self { scene, load }
    }

    /// Their latencies over so many seconds.
    fn run(&self, seconds: u64, name: &str) -> Value {
        eprintln!("  {name} ...");
        let mut load = self.load.clone();
        load.events = u64::from(RATE) * seconds;
        let first = self.scene.receiver.count();
        let disk = DiskMeanwhile::watch(self.scene.folder());
        let manifest = load.run(self.scene.folder());
        let calm = || {
            let numbers = self.scene.receiver.tenants();
            let of_calm = |tenant: &String| numbers.get(tenant).copied();
            let calm: Vec<u32> = load.tenant_names().iter().filter_map(of_calm).collect();
            let mut arrivals = self.scene.receiver.arrivals_from(first);
            arrivals.retain(|arrival| calm.contains(&arrival.tenant));
            arrivals
        };
        until_true("what is measured has arrived", LONG, || calm().len() >= manifest.committed.len());
        let mut figures = latencies(&calm()).json();
        figures["fsync_ms_meanwhile"] = disk.end();
        figures["unfinished_jobs"] = json!(self.scene.hub.api().metric("streaming_hub_unfinished_jobs"));
        figures
    }
}
