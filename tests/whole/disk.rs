//! What the disk does to the hub: it fills up, refuses, hangs, comes back; and store files that are no stores.

use crate::harness::fault::{Fault, SmallDisk};
use crate::harness::fed::{Fed, HEALED, Offer};
use crate::harness::hub::Usage;
use crate::harness::scene::Scene;
use crate::harness::{Chance, alone, until_true};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

fn refused(code: &str) -> Offer {
    Offer::Refused(503, code.to_owned())
}

/// State and detail of a check of `/readyz`, with the status of the whole.
fn check(fed: &Fed, name: &str) -> (u16, String, String) {
    let (status, answer) = fed.hub.api().readyz().expect("it answers");
    let check = &answer["checks"][name];
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (status, text("status"), text("detail"))
}

fn count(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}

/// Whatever takes no writes: who is alive says so, and what is stored can be read.
fn reads_go_on(fed: &Fed) {
    let api = fed.hub.api();
    assert!(api.is_alive());
    let listed = api.done("GET", "/v1/subscriptions", Some(&fed.tenants()[0]), None);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(api.list("/admin/gaps"), [Value::Null; 0]);
    assert_eq!(api.list("/admin/dead-letters"), [Value::Null; 0]);
    let subscription = listed["items"][0]["id"].as_str().unwrap().to_owned();
    api.done("GET", &format!("/v1/subscriptions/{subscription}"), Some(&fed.tenants()[0]), None);
}

// C13.4, C13.1
#[test]
fn a_disk_that_fills_up_stops_ingest_then_everything_and_heals() {
    let _alone = alone();
    let disk = SmallDisk::of(24 * MIB);
    let mut fed = Fed::stopped(4, &[("STORE_RESERVE_BYTES", "6MiB")]);
    fed.hub.set("DATA_DIR", &disk.path().join("data").display().to_string());
    fed.hub.start();
    fed.set_up(&json!({ "retry_schedule": ["0s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s"] }));
    let api = fed.hub.api();
    fed.feed(100);
    fed.all_is_well(&[], "with room");

    // Less than the reserve: nothing new, and deliveries go on.
    fed.receiver.meet_all(crate::harness::receiver::Meets::ThanksAfter(Duration::from_secs(3)));
    fed.feed(4);
    disk.fill_to(4 * MIB);
    let event = fed.next();
    until_true("ingest stops", HEALED, || fed.offer(&event) == refused("disk_low"));
    assert_eq!(check(&fed, "disk").0, 503);
    assert_eq!(check(&fed, "disk").1, "failed");
    assert!(check(&fed, "disk").2.contains("STORE_RESERVE_BYTES"), "{:?}", check(&fed, "disk"));
    assert_eq!(check(&fed, "store").1, "ok");
    assert_eq!((api.metric("streaming_hub_disk_low"), api.metric("streaming_hub_store_suspended")), (1.0, 0.0));
    let tenant = fed.tenants()[0].clone();
    let (status, answer) = api.call(
        "POST",
        "/v1/subscriptions",
        Some(&tenant),
        Some(&json!({
            "name": "more", "event_types": ["*"], "sink": { "kind": "webhook", "url": fed.receiver.url(&tenant) },
        })),
    );
    assert_eq!((status, &answer["code"]), (503, &json!("disk_low")));
    reads_go_on(&fed);
    until_true("deliveries go on", HEALED, || api.metric("streaming_hub_unfinished_jobs") == 0.0);
    fed.receiver.meet_all(crate::harness::receiver::Meets::Thanks);
    disk.give_back();
    until_true("ingest goes on", HEALED, || fed.offer(&event) == Offer::Accepted);
    assert_eq!(check(&fed, "disk"), (200, "ok".to_owned(), String::new()));
    fed.all_is_well(&[], "after the disk was nearly full");

    // Nothing is left at all, while events come in faster than the hub looks.
    let mut pending = Vec::new();
    until_true("the store is suspended", Duration::from_secs(60), || {
        disk.fill_to(0);
        let event = fed.next();
        let offer = fed.offer(&event);
        if offer != Offer::Accepted {
            pending.push(event);
        }
        // What it frees in its own file it may use again; what it is given is taken away.
        offer == refused("store_suspended") || is_suspended(&fed)
    });
    let began = Instant::now();
    assert_eq!(
        check(&fed, "store"),
        (503, "failed".to_owned(), "the store takes no writes now: the disk is full".to_owned())
    );
    assert_eq!(api.metric("streaming_hub_store_suspended"), 1.0);
    reads_go_on(&fed);
    let used = Usage::of(fed.hub.pid()).cpu;
    until_true("a while", HEALED, || began.elapsed() > Duration::from_secs(4));
    assert!(is_suspended(&fed), "nothing has changed");
    let used = Usage::of(fed.hub.pid()).cpu - used;
    assert!(used < 1.0, "{used} s of CPU time in 4 s of waiting");
    reads_go_on(&fed);
    disk.give_back();
    let event = fed.next();
    until_true("it goes on", HEALED, || fed.offer(&event) == Offer::Accepted);
    pending.iter().for_each(|event| fed.insist(event));
    until_true("it is ready", HEALED, || fed.hub.api().readyz().is_some_and(|(status, _)| status == 200));
    fed.all_is_well(&[], "after the disk was full");
    let log = fed.hub.log();
    assert_eq!(count(&log, "the store failed; writes are suspended"), 1, "one line when it begins: {log}");
    assert_eq!(count(&log, "the store is open again"), 1, "and one when it ends: {log}");
    assert_eq!(count(&log, "the disk is nearly full"), 2, "{log}");
    assert_eq!(count(&log, "there is room on the disk again"), 2, "{log}");
}

fn is_suspended(fed: &Fed) -> bool {
    check(fed, "store").1 == "failed"
}

// C13.4: Kafka positions stay, and nothing is lost or doubled
#[test]
fn kafka_waits_while_the_disk_is_nearly_full() {
    let _alone = alone();
    let disk = SmallDisk::of(64 * MIB);
    let mut scene = Scene::stopped(&["lender"], 2, &[("STORE_RESERVE_BYTES", "16MiB")]);
    scene.hub.set("DATA_DIR", &disk.path().join("data").display().to_string());
    scene.hub.start();
    let load = scene.load(300, 6, 2);
    scene.subscribe(&load.tenant_names());
    let api = scene.hub.api();
    disk.fill_to(8 * MIB);
    until_true("it is low", HEALED, || api.metric("streaming_hub_disk_low") == 1.0);
    let manifest = load.run(scene.folder());
    let positions = || {
        let ingest = api.done("GET", "/admin/ingest", None, None);
        let of = |partition: &Value| (partition["state"] == "waiting", partition["position"].as_i64().unwrap_or(0));
        ingest["partitions"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    until_true("the partitions wait where they were", Duration::from_secs(20), || {
        positions() == [(true, 0), (true, 0)]
    });
    assert_eq!(scene.receiver.count(), 0);
    disk.give_back();
    until_true("it reads on", HEALED, || scene.receiver.count() > 0);
    scene.delivered(manifest.committed.len());
    scene.settled();
    scene.each_once(&manifest, "after the disk was nearly full");
    scene.nothing_was_lost();
}

// C13.4, C3.1: at a write or a sync, once or for a while; each time it goes on by itself
#[test]
fn every_refused_write_and_sync_is_survived() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[]);
    let mut chance = Chance::new(7);
    for call in ["pwrite64", "fdatasync"] {
        for error in ["EIO", "ENOSPC", "EROFS"] {
            for times in [1, 4] {
                let first = 1 + chance.below(if call == "pwrite64" { 60 } else { 10 });
                let rule = format!("{call}:error={error}:when={first}..{}", first + times - 1);
                let fault = Fault::on(fed.hub.pid(), &[&rule]);
                for _ in 0..12 {
                    let event = fed.next();
                    fed.insist(&event);
                }
                drop(fault);
                let event = fed.next();
                until_true(&format!("{rule}: it goes on"), HEALED, || fed.offer(&event) == Offer::Accepted);
                // The store may have failed behind an attempt, never before it was claimed: nothing comes twice.
                fed.all_is_well(&[], &rule);
            }
        }
    }
    let log = fed.hub.log();
    let (began, ended) = (count(&log, "writes are suspended"), count(&log, "the store is open again"));
    assert!(began == ended && (8..=40).contains(&began), "{began} times suspended, {ended} times open again");
}

// C13.4, C13.1
#[test]
fn a_disk_that_refuses_for_long_is_told_once_and_read_on() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[]);
    fed.feed(50);
    fed.all_is_well(&[], "before");
    let fault = Fault::on(fed.hub.pid(), &["fdatasync:error=EIO"]);
    let event = fed.next();
    until_true("the store is suspended", HEALED, || fed.offer(&event) == refused("store_suspended"));
    let began = Instant::now();
    assert_eq!(check(&fed, "store").2, "the store takes no writes now: the disk refuses");
    until_true("a while", HEALED, || {
        reads_go_on(&fed);
        assert_eq!(fed.offer(&event), refused("store_suspended"));
        began.elapsed() > Duration::from_secs(7)
    });
    drop(fault);
    until_true("it goes on", HEALED, || fed.offer(&event) == Offer::Accepted);
    fed.all_is_well(&[], "after seven seconds of EIO");
    let log = fed.hub.log();
    assert_eq!((count(&log, "writes are suspended"), count(&log, "the store is open again")), (1, 1), "{log}");
}

// C13.4, C13.1: a sync that takes long holds up whoever waits for it, and nobody else
#[test]
fn a_slow_sync_holds_up_writes_and_nothing_else() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[]);
    fed.feed(20);
    fed.all_is_well(&[], "before");
    let slow = Duration::from_secs(12);
    let fault = Fault::on(fed.hub.pid(), &[&format!("fdatasync:delay_enter={}:when=1", slow.as_micros())]);
    let began = Instant::now();
    let event = fed.next();
    std::thread::scope(|scope| {
        let offering = scope.spawn(|| fed.offer(&event));
        let api = fed.hub.api();
        until_true("it hangs", HEALED, || began.elapsed() > Duration::from_secs(1));
        let mut said = 0;
        while began.elapsed() < slow - Duration::from_secs(1) {
            let asked = Instant::now();
            assert!(api.is_alive());
            let (_, answer) = api.readyz().expect("it answers");
            said += usize::from(answer["checks"]["store"]["detail"].as_str().is_some_and(|told| told.contains("slow")));
            api.metric("streaming_hub_unfinished_jobs");
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(4), "health took {took:?} while the disk was slow");
        }
        assert!(said > 0, "nobody said that the disk is slow");
        assert_eq!(offering.join().unwrap(), Offer::Accepted, "it was only slow");
    });
    assert!(began.elapsed() >= slow, "the sync was not slow");
    drop(fault);
    until_true("it is ready", HEALED, || check(&fed, "store").0 == 200);
    fed.all_is_well(&[], "after a slow sync");
    assert_eq!(count(&fed.hub.log(), "writes are suspended"), 0);
}

// C13.4: what cannot be written at the start is told
#[test]
fn a_read_only_disk_is_refused_at_the_start_and_works_again_when_it_is_writable() {
    let _alone = alone();
    let disk = SmallDisk::of(24 * MIB);
    let mut fed = Fed::stopped(2, &[]);
    fed.hub.set("DATA_DIR", &disk.path().join("data").display().to_string());
    fed.hub.start();
    fed.set_up(&json!({}));
    fed.feed(10);
    fed.all_is_well(&[], "before");
    fed.hub.kill();
    let crash = fed.crashed();
    let before = std::fs::read(store(&fed)).unwrap();
    disk.read_only(true);
    let (code, said) = refused_start(&fed);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Read-only file system") && said.contains("data"), "{said}");
    disk.read_only(false);
    assert_eq!(std::fs::read(store(&fed)).unwrap(), before);
    fed.hub.start();
    fed.feed(10);
    fed.all_is_well(&[crash], "after a read-only disk");
}

fn store(fed: &Fed) -> std::path::PathBuf {
    fed.hub.data().join("hub.redb")
}

/// A start that must fail: its exit code, and what it said.
fn refused_start(fed: &Fed) -> (Option<i32>, String) {
    let ended = fed.hub.run(&["serve"], &[]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned() + &String::from_utf8_lossy(&ended.stdout);
    (ended.status.code(), said)
}

/// A store with events, closed cleanly or killed, and its bytes.
fn made(clean: bool) -> (Fed, Vec<u8>) {
    let mut fed = Fed::new(3, &[]);
    fed.feed(60);
    fed.all_is_well(&[], "before");
    if clean {
        fed.hub.terminate();
        assert_eq!(fed.hub.ended(Duration::from_secs(40)).code(), Some(0));
    } else {
        fed.hub.kill();
    }
    let bytes = std::fs::read(store(&fed)).unwrap();
    (fed, bytes)
}

/// It is refused with a message, and what lies there is left as it is.
fn is_refused(fed: &Fed, what: &str, bytes: &[u8]) {
    std::fs::write(store(fed), bytes).unwrap();
    let (code, said) = refused_start(fed);
    assert_eq!(code, Some(1), "{what}: {said}");
    assert!(said.contains("damaged") && said.contains("left as it is"), "{what}: {said}");
    assert!(std::fs::read(store(fed)).unwrap() == bytes, "{what}: the file was changed");
}

// C13.4, C13.3: never opened empty, never changed
#[test]
fn files_that_are_no_store_are_refused_and_left_alone() {
    let _alone = alone();
    for clean in [true, false] {
        let (mut fed, good) = made(clean);
        let crash = fed.receiver.count();
        for keep in [1, 9, 300, 4095, 4096, 5000, good.len() / 2, good.len() - 4096, good.len() - 1] {
            // What is cut off may be room that nothing uses: then it opens, and all is there.
            if !is_all_there_or_refused(&mut fed, &format!("cut to {keep}"), &good[..keep], keep < 4096) {
                continue;
            }
        }
        is_refused(&fed, "no bytes", &[]);
        is_refused(&fed, "zeros", &vec![0; good.len()]);
        is_refused(
            &fed,
            "text",
            b"PRAGMA user_version = 1; and more of the like, as somebody may put it here by mistake\n",
        );
        is_refused(&fed, "of another program", &foreign(fed.hub.folder()));
        std::fs::remove_file(store(&fed)).unwrap();
        std::fs::create_dir(store(&fed)).unwrap();
        let (code, said) = refused_start(&fed);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("hub.redb is not a file"), "{said}");
        std::fs::remove_dir(store(&fed)).unwrap();
        std::fs::write(store(&fed), &good).unwrap();
        fed.hub.start();
        fed.feed(3);
        fed.all_is_well(&if clean { vec![] } else { vec![crash] }, "with the right file again");
    }
}

/// The program refuses that file and leaves it alone, or everything is in it. Whether it was refused.
fn is_all_there_or_refused(fed: &mut Fed, what: &str, bytes: &[u8], must_refuse: bool) -> bool {
    std::fs::write(store(fed), bytes).unwrap();
    fed.hub.spawn();
    let mut ready = false;
    until_true(&format!("{what}: it is ready or ends"), Duration::from_secs(30), || {
        ready = fed.hub.api().readyz().is_some_and(|(status, _)| status == 200);
        ready || fed.hub.has_ended()
    });
    if ready {
        assert!(!must_refuse, "{what}: it was opened");
        let api = fed.hub.api();
        for tenant in fed.tenants() {
            let listed = api.done("GET", "/v1/subscriptions", Some(tenant), None);
            assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{what}: {listed}");
        }
        for event in fed.offered() {
            let (status, found) = api.call("GET", &format!("/v1/events/{}", event.id()), Some(event.tenant()), None);
            assert_eq!((status, &found["payload"]["n"]), (200, &json!(event.n())), "{what}: {found}");
        }
        fed.hub.kill();
        return false;
    }
    assert!(std::fs::read(store(fed)).unwrap() == bytes, "{what}: the file was changed");
    let log = fed.hub.log_tail();
    let last = log.lines().last().unwrap_or_default().to_owned();
    assert!(log.contains("damaged") && log.contains("left as it is"), "{what}: {last}");
    true
}

// C13.4: a bit that is not what was written
#[test]
fn flipped_bits_are_refused_or_lie_where_nothing_is() {
    let _alone = alone();
    let mut chance = Chance::new(11);
    for clean in [true, false] {
        let (mut fed, good) = made(clean);
        let mut found = 0;
        for round in 0..30u64 {
            // Half of them in the first pages, where the file says what it is; not among zeros, where mostly nothing is.
            let end = if round % 2 == 0 { 8192 } else { good.len() as u64 };
            let at = (0..).map(|_| usize::try_from(chance.below(end)).unwrap()).find(|at| good[*at] != 0).unwrap();
            let mut bytes = good.clone();
            bytes[at] ^= 1 << chance.below(8);
            let what = format!("a bit at {at}, clean {clean}");
            found += usize::from(is_all_there_or_refused(&mut fed, &what, &bytes, false));
        }
        eprintln!("{found} of 30 flipped bits were found, clean {clean}");
        // In a body, wherever it lies: pages that are in use no more hold former copies.
        for event in fed.offered().iter().step_by(9) {
            let begin = format!("{{\"tenant\":\"{}\",\"n\":{},", event.tenant(), event.n());
            let places: Vec<usize> = good
                .windows(begin.len())
                .enumerate()
                .filter(|(_, bytes)| *bytes == begin.as_bytes())
                .map(|(at, _)| at)
                .collect();
            let mut bytes = good.clone();
            places.iter().for_each(|at| bytes[at + begin.len() + 60] ^= 4);
            assert!(!places.is_empty());
            is_all_there_or_refused(&mut fed, &format!("a bit of {begin}, clean {clean}"), &bytes, true);
        }
        std::fs::write(store(&fed), &good).unwrap();
        fed.hub.start();
    }
}

/// A store of redb that another program made.
fn foreign(folder: &Path) -> Vec<u8> {
    let path = folder.join("foreign");
    let table: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("things");
    let database = redb::Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(table).unwrap().insert("one", 1).unwrap();
    write.commit().unwrap();
    drop(database);
    std::fs::read(path).unwrap()
}
