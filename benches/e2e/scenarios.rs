//! What is measured, one function a scenario.

use crate::harness::hub::Usage;
use crate::harness::receiver::Meets;
use crate::harness::scene::Scene;
use crate::harness::{until, until_true};
use crate::machine::{DiskMeanwhile, write_back};
use crate::measure::{Rising, allocated, latencies, megabytes, rounded, used};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::time::{Duration, Instant};

const TOPICS: [&str; 3] = ["lender", "midaz", "consignado"];
/// Of each topic: 12 in all.
const PARTITIONS: u32 = 4;
const TENANTS: u32 = 200;
/// What the hub itself tells of where the time goes.
const HISTOGRAMS: [&str; 3] = ["commit_duration", "accept_to_first_attempt", "attempt_duration"];
const LONG: Duration = Duration::from_secs(1800);

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// Everything is in Kafka before the hub starts, so that the loader takes none of its time.
pub(crate) fn accept() -> Value {
    let mut scene = Scene::stopped(&TOPICS, PARTITIONS, &[]);
    let events = number("E2E_EVENTS", 200_000);
    scene.load(events, TENANTS, PARTITIONS).run(scene.folder());
    scene.hub.start();
    let before = Usage::of(scene.hub.pid());
    let rising = accepted(&scene, events);
    let after = Usage::of(scene.hub.pid());
    let mut figures = used(before, after, events);
    figures["events"] = json!(events);
    figures["accepted_per_second"] = json!(rising.rate());
    figures["disk_bytes_per_event"] = json!(allocated(&scene.hub.data().join("hub.redb")) / events);
    figures["commits"] = json!(scene.hub.api().metric("streaming_hub_commit_duration_seconds_count"));
    figures
}

fn accepted(scene: &Scene, events: u64) -> Rising {
    let (api, began) = (scene.hub.api(), Instant::now());
    let mut rising = Rising::default();
    let mut next = Duration::ZERO;
    until_true("all is accepted", LONG, || {
        // Each look is a command of the hub: few enough not to be measured.
        if began.elapsed() < next {
            return false;
        }
        next = began.elapsed() + Duration::from_millis(50);
        let count = api.metric("streaming_hub_events_accepted_total");
        rising.0.push((count, began.elapsed().as_secs_f64()));
        count as u64 >= events
    });
    rising
}

/// Everything is in Kafka before the hub starts; it takes, stores and delivers at once.
pub(crate) fn deliver() -> Value {
    let mut scene = subscribed(&[]);
    stop(&mut scene);
    let events = number("E2E_EVENTS", 200_000);
    scene.receiver.look_at_one_in(100);
    let load = scene.load(events, TENANTS, PARTITIONS);
    let manifest = load.run(scene.folder());
    let began = Instant::now();
    scene.hub.start();
    let before = Usage::of(scene.hub.pid());
    scene.delivered(manifest.committed.len());
    let seconds = began.elapsed().as_secs_f64();
    scene.settled();
    let after = Usage::of(scene.hub.pid());
    scene.each_once(&manifest, "at saturation");
    let mut figures = used(before, after, events);
    figures["events"] = json!(events);
    figures["deliveries_per_second"] = json!(Rising::of_arrivals(&scene.receiver.arrivals()).rate());
    figures["seconds_from_start_to_last"] = json!(rounded(seconds));
    figures["connections"] = json!(scene.receiver.connections());
    let api = scene.hub.api();
    figures["commits"] = json!(api.metric("streaming_hub_commit_duration_seconds_count"));
    figures["commit_ms_mean"] = json!(rounded(
        1000.0 * api.metric("streaming_hub_commit_duration_seconds_sum")
            / api.metric("streaming_hub_commit_duration_seconds_count")
    ));
    figures
}

/// The loader writes into each body when it was produced.
pub(crate) fn latency() -> Value {
    let scene = subscribed(&[]);
    scene.receiver.look_at_one_in(100);
    // A broker that has just started still compiles its own code: milliseconds that are not the hub's.
    let warm = scene.load(number("E2E_WARM", 200_000), TENANTS, PARTITIONS).run(scene.folder());
    scene.delivered(warm.committed.len());
    write_back();
    let rates = std::env::var("E2E_RATES").unwrap_or("50,2000,4000".to_owned());
    let mut figures = json!({});
    for rate in rates.split(',').map(|rate| rate.parse::<u32>().unwrap()) {
        figures[format!("at_{rate}_per_second")] = latency_at(&scene, rate);
    }
    figures
}

fn latency_at(scene: &Scene, rate: u32) -> Value {
    let mut load = scene.load(u64::from(rate) * number("E2E_SECONDS", 20), TENANTS, PARTITIONS);
    // At a low rate a producer that waits for company would be most of the figure; at a high one its library's own wait of 5 ms is what
    // producers do, and spares the broker a request a record.
    let linger_ms = if rate <= 100 { 0 } else { 5 };
    (load.rate, load.linger_ms, load.seed) = (rate, linger_ms, u64::from(rate));
    let first = scene.receiver.count();
    let told = HISTOGRAMS.map(|what| up_to(scene, what));
    let disk = DiskMeanwhile::watch(scene.folder());
    let before = Usage::of(scene.hub.pid());
    let manifest = load.run(scene.folder());
    scene.delivered(first + manifest.committed.len());
    let after = Usage::of(scene.hub.pid());
    let disk = disk.end();
    let arrivals = scene.receiver.arrivals_from(first);
    // The first second opens connections.
    let mut figures = used(before, after, load.events);
    figures["latency_ms"] = latencies(&arrivals[rate as usize..]).json();
    figures["fsync_ms_meanwhile"] = disk;
    for (what, before) in HISTOGRAMS.iter().zip(&told) {
        figures[format!("{what}_up_to_seconds")] = added(before, &up_to(scene, what));
    }
    figures["load"] = manifest.told;
    figures
}

/// A histogram of the hub's: how many took at most so many seconds, for each bound.
fn up_to(scene: &Scene, what: &str) -> Vec<(String, f64)> {
    let text = scene.hub.api().metrics();
    let of_line = |line: &str| {
        let rest = line.strip_prefix("streaming_hub_")?.strip_prefix(what)?;
        let (bound, count) = rest.strip_prefix("_seconds_bucket{le=\"")?.split_once("\"} ")?;
        Some((bound.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(of_line).collect()
}

/// What a histogram gained, bucket by bucket.
fn added(before: &[(String, f64)], after: &[(String, f64)]) -> Value {
    let gained = before.iter().zip(after).map(|((bound, had), (_, has))| (bound.clone(), json!(has - had)));
    Value::Object(gained.collect())
}

/// As fast as deliveries go: so many events are on their way at any time, each next one is produced when one has arrived. With more the
/// rate stays and each waits longer.
pub(crate) fn saturation() -> Value {
    let scene = subscribed(&[]);
    scene.receiver.look_at_one_in(100);
    let mut load = scene.load(number("E2E_EVENTS", 200_000), TENANTS, PARTITIONS);
    (load.window, load.linger_ms) = (u32::try_from(number("E2E_WINDOW", 2_000)).unwrap(), 1);
    let first = scene.receiver.count();
    let before = Usage::of(scene.hub.pid());
    let mut loading = load.start(scene.folder());
    let events = usize::try_from(load.events).unwrap();
    until_true("everything is delivered", LONG, || {
        let arrived = scene.receiver.count() - first;
        // At its end it listens no more.
        loading.arrived(arrived);
        arrived >= events
    });
    let manifest = loading.finish();
    let after = Usage::of(scene.hub.pid());
    scene.settled();
    scene.each_once(&manifest, "at saturation");
    let arrivals = scene.receiver.arrivals_from(first);
    let mut figures = used(before, after, load.events);
    figures["events"] = json!(load.events);
    figures["on_their_way"] = json!(load.window);
    figures["deliveries_per_second"] = json!(Rising::of_arrivals(&arrivals).rate());
    // The first tenth opens connections.
    figures["latency_ms"] = latencies(&arrivals[events / 10..]).json();
    figures
}

/// Every subscription is told to wait for an hour, and a million events come.
pub(crate) fn backlog() -> Value {
    let mut scene = subscribed(&[]);
    scene.receiver.meet_all(Meets::NotNow);
    let events = number("E2E_BACKLOG", 1_000_000);
    let idle = Usage::of(scene.hub.pid());
    let loading = scene.load(events, TENANTS, PARTITIONS).start(scene.folder());
    let rising = accepted(&scene, events);
    loading.finish();
    let full = Usage::of(scene.hub.pid());
    let mut figures = used(idle, full, events);
    let waiting = scene.hub.api().metric("streaming_hub_unfinished_jobs");
    figures["jobs_waiting"] = json!(waiting);
    figures["accepted_per_second"] = json!(rising.rate());
    figures["rss_mb_before"] = json!(megabytes(idle.rss));
    figures["rss_mb"] = json!(megabytes(full.rss));
    figures["disk_bytes_per_event"] = json!(allocated(&scene.hub.data().join("hub.redb")) / events);
    scene.hub.kill();
    figures["ready_again_seconds"] = json!(rounded(scene.hub.start().as_secs_f64()));
    let api = scene.hub.api();
    until_true("all jobs are known again", LONG, || api.metric("streaming_hub_unfinished_jobs") == waiting);
    let again = Usage::of(scene.hub.pid());
    figures["rss_mb_after_restart"] = json!(megabytes(again.rss));
    figures["rss_peak_mb_after_restart"] = json!(megabytes(again.rss_peak));
    figures
}

/// A store of that size, most of it delivered or never wanted, killed while attempts are in flight.
pub(crate) fn reopen() -> Value {
    let mut scene = Scene::new(&TOPICS, PARTITIONS, &[("ATTEMPT_TIMEOUT", "60s")]);
    let store = scene.hub.data().join("hub.redb");
    let wanted = number("E2E_STORE_MB", 2_000) * 1_000_000;
    let mut events = 0;
    while allocated(&store) < wanted {
        let mut load = scene.load(200_000, TENANTS, PARTITIONS);
        load.seed = events;
        load.run(scene.folder());
        events += 200_000;
        accepted(&scene, events);
    }
    let load = scene.load(4_000, TENANTS, PARTITIONS);
    scene.subscribe(&load.tenant_names());
    let mut figures = json!({ "store_mb": megabytes(allocated(&store)), "events": events });
    write_back();
    figures["latency_at_50_per_second"] = latency_at(&scene, 50);
    scene.receiver.meet_all(Meets::Silence);
    let first = scene.receiver.count();
    load.run(scene.folder());
    scene.delivered(first + TENANTS as usize);
    let in_flight: HashSet<u128> = scene.receiver.arrivals_from(first).iter().map(|arrival| arrival.event).collect();
    let crash = scene.kill();
    scene.receiver.meet_all(Meets::Thanks);
    let began = Instant::now();
    let ready = scene.hub.start();
    let again = until("what was in flight comes again", LONG, || {
        let arrivals = scene.receiver.arrivals_from(crash);
        let events: HashSet<u128> = arrivals.iter().map(|arrival| arrival.event).collect();
        in_flight.is_subset(&events).then(|| began.elapsed())
    });
    figures["in_flight"] = json!(in_flight.len());
    figures["ready_again_seconds"] = json!(rounded(ready.as_secs_f64()));
    figures["in_flight_again_seconds"] = json!(rounded(again.as_secs_f64()));
    figures
}

/// A hub that runs, with one fifo subscription for each tenant.
fn subscribed(settings: &[(&str, &str)]) -> Scene {
    let scene = Scene::new(&TOPICS, PARTITIONS, settings);
    let names = scene.load(1, TENANTS, PARTITIONS).tenant_names();
    scene.subscribe(&names);
    scene
}

fn stop(scene: &mut Scene) {
    scene.hub.terminate();
    assert_eq!(scene.hub.ended(Duration::from_secs(60)).code(), Some(0), "{}", scene.hub.log_tail());
}
