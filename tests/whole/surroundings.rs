//! What the machine does to the hub: limits of files and memory, a clock that is set, a process that stands still for long, a log that
//! cannot be written, and a stop at every moment.

use crate::harness::fault::{Fault, from_start};
use crate::harness::fed::{Fed, HEALED, Offer};
use crate::harness::hub::is_release;
use crate::harness::receiver::Meets;
use crate::harness::{Chance, alone, until_true};
use serde_json::json;
use std::time::{Duration, Instant};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

// C5.5: connections that cannot be opened are never taken for receivers that fail
#[test]
fn few_open_files_are_enough() {
    let _alone = alone();
    let mut fed = Fed::stopped(60, &[]);
    fed.hub.start();
    fed.set_up(&json!({ "delivery_order": "parallel", "max_in_flight": 8 }));
    fed.hub.terminate();
    assert_eq!(fed.hub.ended(Duration::from_secs(40)).code(), Some(0));
    fed.hub.under(&words("prlimit --nofile=64:64 --"));
    fed.hub.start();
    assert!(fed.hub.log().contains("too low for DISPATCH_SLOTS"), "{}", fed.hub.log_tail());
    // Each attempt holds its connection for a while, and so do clients of the API.
    fed.receiver.meet_all(Meets::ThanksAfter(Duration::from_millis(50)));
    let clients: Vec<_> = (0..80).map(|_| std::net::TcpStream::connect(("127.0.0.1", fed.hub.port()))).collect();
    let event = fed.next();
    let offer = fed.offer_within(&event, Duration::from_secs(1));
    eprintln!("with all files open: {offer:?}");
    drop(clients);
    until_true("it answers again", HEALED, || fed.offer(&event) == Offer::Accepted);
    fed.feed(600);
    fed.all_were_delivered("with few open files");
    assert_eq!(fed.receiver.arrivals().iter().filter(|arrival| arrival.attempt > 1).count(), 0, "an attempt failed");
    let told = fed.hub.log().lines().filter(|line| line.contains("cannot be accepted")).count();
    assert!(told <= 2, "{told} lines");
}

// C13.3: without memory it ends, as by a crash, or goes on; nothing is lost
#[test]
fn too_little_memory_loses_nothing() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[("STORE_CACHE_BYTES", "16MiB")]);
    fed.feed(40);
    fed.all_is_well(&[], "before");
    let mut crashes = Vec::new();
    for mebibytes in [24, 32, 40, 80, 160] {
        fed.hub.kill();
        crashes.push(fed.crashed());
        fed.hub.under(&words(&format!("prlimit --as={} --", mebibytes << 20)));
        fed.hub.spawn();
        let mut ready = false;
        until_true("it is ready or ends", Duration::from_secs(60), || {
            ready = fed.hub.api().readyz().is_some_and(|(status, _)| status == 200);
            ready || fed.hub.has_ended()
        });
        let mut unknown = Vec::new();
        for _ in 0..if ready { 40 } else { 0 } {
            let event = fed.next();
            if fed.offer(&event) != Offer::Accepted {
                unknown.push(event);
            }
        }
        eprintln!("with {mebibytes} MiB of addresses: ready {ready}, {} of 40 without an answer", unknown.len());
        if !fed.hub.has_ended() {
            fed.hub.kill();
        }
        crashes.push(fed.crashed());
        fed.hub.under(&[]);
        fed.hub.start();
        unknown.iter().for_each(|event| fed.insist(event));
        fed.all_is_well(&crashes, &format!("after {mebibytes} MiB"));
    }
}

/// Puts the program under a clock that a file sets; the monotonic one is the machine's.
struct SetClock {
    file: std::path::PathBuf,
}

impl SetClock {
    fn on(fed: &mut Fed) -> Self {
        let library = [
            "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
            "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1",
        ];
        let library =
            library.into_iter().find(|path| std::path::Path::new(path).exists()).expect("faketime is installed");
        let clock = Self { file: fed.hub.folder().join("clock") };
        clock.set(0);
        fed.hub.around("LD_PRELOAD", library);
        fed.hub.around("FAKETIME_TIMESTAMP_FILE", clock.file.to_str().unwrap());
        fed.hub.around("FAKETIME_NO_CACHE", "1");
        fed.hub.around("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        fed.hub.around("DONT_FAKE_MONOTONIC", "1");
        clock
    }

    /// It is so many seconds ahead from now on.
    fn set(&self, ahead: i64) {
        let text = format!("{}{ahead}s\n", if ahead < 0 { "" } else { "+" });
        let draft = self.file.with_extension("new");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, &self.file).unwrap();
    }
}

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

// C13.8, C9.1: while it runs and at its start, an hour and a year, both ways
#[test]
fn a_clock_that_is_set_loses_and_repeats_nothing() {
    let _alone = alone();
    let mut fed =
        Fed::stopped(4, &[("BREAKER_COOLING", "1s"), ("BREAKER_COOLING_MAX", "2s"), ("BREAKER_FAILURES", "50")]);
    let clock = SetClock::on(&mut fed);
    fed.hub.start();
    fed.set_up(&json!({ "retry_schedule": ["0s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s", "1s"] }));
    fed.feed(8);
    fed.all_is_well(&[], "before");
    for ahead in [HOUR, -HOUR, YEAR, -YEAR, 0] {
        // While it runs: a retry that waits is neither lost nor made at once, and the next events go out signed with the time of now.
        clock.set(ahead);
        fed.receiver.clock_is_ahead(ahead);
        let before = fed.receiver.count();
        fed.feed(8);
        let began = Instant::now();
        fed.all_is_well(&[], &format!("set by {ahead} s while it runs"));
        assert!(began.elapsed() < Duration::from_secs(20), "{ahead}: the deliveries took {:?}", began.elapsed());
        let of_now = fed.receiver.arrivals_from(before);
        assert!(of_now.iter().all(|arrival| arrival.attempt == 1), "{ahead}");
        // At its start.
        fed.hub.terminate();
        assert_eq!(fed.hub.ended(Duration::from_secs(40)).code(), Some(0));
        fed.hub.start();
        fed.feed(8);
        let began = Instant::now();
        fed.all_is_well(&[], &format!("started when it is {ahead} s ahead"));
        assert!(began.elapsed() < Duration::from_secs(20), "{ahead}: the deliveries took {:?}", began.elapsed());
    }
    // Of 64 at a clock that was set.
    assert!(fed.receiver.signed_by_the_machine() <= 8, "{} signatures", fed.receiver.signed_by_the_machine());
    let log = fed.hub.log();
    assert!(log.contains("the wall clock is behind the store's last time"), "{log}");
    assert!(log.contains("the wall clock is far ahead of the store's last time"), "{log}");
}

// C13.8, C6.1: a retry is due by hub time, whatever the wall clock says
#[test]
fn a_retry_is_due_when_it_was_due_whatever_the_clock_says() {
    let _alone = alone();
    let mut fed = Fed::stopped(1, &[]);
    let clock = SetClock::on(&mut fed);
    fed.hub.start();
    // Only the second attempt may be made in the time of this test.
    fed.set_up(&json!({ "retry_schedule": ["0s", "2s", "10h"] }));
    fed.receiver.meet_all(Meets::Status(500));
    fed.feed(1);
    until_true("the first attempt", HEALED, || fed.receiver.count() == 1);
    for ahead in [YEAR, -YEAR] {
        clock.set(ahead);
        fed.receiver.clock_is_ahead(ahead);
        until_true("the second attempt", HEALED, || fed.receiver.count() >= 2);
    }
    clock.set(HOUR);
    fed.receiver.clock_is_ahead(HOUR);
    // The third is due after up to ten hours: none of the jumps may have made it due.
    let began = Instant::now();
    until_true("a while", HEALED, || began.elapsed() > Duration::from_secs(3));
    assert!(fed.receiver.count() <= 3, "{:?}", fed.receiver.arrivals());
    assert_eq!(fed.hub.api().metric("streaming_hub_unfinished_jobs"), 1.0);
}

// C5.6: longer than a lease; others may run meanwhile, since it stands still
#[test]
fn a_process_that_stood_still_longer_than_its_leases_repeats_nothing() {
    let mut fed;
    let answered;
    {
        let _alone = alone();
        fed = Fed::new(8, &[("LEASE", "70s"), ("ATTEMPT_TIMEOUT", "60s")]);
        fed.receiver.meet_all(Meets::ThanksAfter(Duration::from_millis(300)));
        fed.feed(16);
        until_true("attempts are in flight", HEALED, || fed.receiver.count() > 0);
        answered = fed.receiver.count();
        fed.hub.stand_still();
    }
    // Nothing is measured here, and nothing of this test runs.
    let seconds = std::env::var("HUB_TEST_FREEZE_SECONDS").map_or(75, |text| text.parse().unwrap());
    std::thread::sleep(Duration::from_secs(seconds));
    let _alone = alone();
    fed.hub.go_on();
    fed.receiver.meet_all(Meets::Thanks);
    fed.feed(16);
    fed.all_is_well(&[], "after it stood still for longer than a lease");
    assert!(answered < 16 && fed.receiver.arrivals().iter().all(|arrival| arrival.attempt == 1), "an attempt failed");
}

// C13.1: where the log cannot be written, everything else goes on
#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let _alone = alone();
    let mut fed = Fed::stopped(4, &[("LOG_LEVEL", "debug")]);
    fed.hub.log_to("/dev/full");
    fed.hub.start();
    fed.set_up(&json!({}));
    let fault = Fault::on(fed.hub.pid(), &["fdatasync:error=EIO:when=3..9"]);
    fed.feed(40);
    drop(fault);
    fed.all_is_well(&[], "without a log");
}

/// Ends by itself within the time that is promised: how.
fn ended(fed: &mut Fed, when: &str, most: Duration) -> Option<i32> {
    let began = Instant::now();
    let status = fed.hub.ended(Duration::from_secs(45));
    assert!(began.elapsed() <= most, "{when}: it took {:?}", began.elapsed());
    status.code()
}

const DRAIN: Duration = Duration::from_secs(40);

// C13.2: at every moment of a start, of which nothing is left that the next one would stumble over
#[test]
fn told_to_stop_at_any_moment_of_a_start() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[]);
    let mut chance = Chance::new(9);
    let all_of_it = if is_release() { 60 } else { 400 };
    for round in 0..25 {
        fed.feed(4);
        // Some starts after a crash, some after a clean stop.
        if round % 2 == 0 {
            fed.all_is_well(&[], "before a kill");
            fed.hub.kill();
        } else {
            fed.hub.terminate();
            assert_eq!(ended(&mut fed, "running", DRAIN), Some(0));
        }
        fed.hub.spawn();
        std::thread::sleep(Duration::from_millis(chance.below(all_of_it)));
        fed.hub.terminate();
        let code = ended(&mut fed, "starting", DRAIN);
        // Before it listens for signals, one ends it as it ends any process.
        assert!(matches!(code, Some(0) | None), "{code:?}");
        fed.hub.start();
    }
    fed.all_is_well(&[], "stopped while starting");
}

// C13.2: while events come in, with attempts in flight, and twice
#[test]
fn told_to_stop_while_it_works() {
    let _alone = alone();
    let mut fed = Fed::new(8, &[]);
    for round in 0..6u64 {
        fed.receiver.meet_all(Meets::ThanksAfter(Duration::from_millis(100 * round)));
        let mut events: Vec<_> = (0..24).map(|_| fed.next()).collect();
        let rest = events.split_off(8);
        events.iter().for_each(|event| fed.insist(event));
        let api = fed.hub.api();
        fed.hub.terminate();
        let mut unknown = Vec::new();
        for event in rest {
            if fed.offer(&event) != Offer::Accepted {
                unknown.push(event);
            }
        }
        assert_eq!(ended(&mut fed, &format!("round {round}"), DRAIN), Some(0), "{}", fed.hub.log_tail());
        assert!(!api.is_alive());
        fed.hub.start();
        unknown.iter().for_each(|event| fed.insist(event));
        fed.all_is_well(&[], &format!("round {round}"));
    }
    // While it drains, once more.
    fed.receiver.meet_all(Meets::ThanksAfter(Duration::from_secs(5)));
    fed.feed(8);
    until_true("all are in flight", HEALED, || fed.hub.api().metric("streaming_hub_jobs_in_flight") == 8.0);
    fed.hub.terminate();
    until_true("it drains", HEALED, || fed.hub.api().readyz().is_none_or(|(status, _)| status == 503));
    fed.hub.terminate();
    assert_eq!(ended(&mut fed, "twice", Duration::from_secs(3)), Some(1));
    let crash = fed.crashed();
    fed.receiver.meet_all(Meets::Thanks);
    fed.hub.start();
    fed.all_is_well(&[crash], "told twice");
}

// C13.2, C13.4: while the store is suspended, with outcomes that could not be stored
#[test]
fn told_to_stop_while_the_store_is_suspended() {
    let _alone = alone();
    for heals in [true, false] {
        let mut fed = Fed::new(4, &[]);
        fed.receiver.meet_all(Meets::ThanksAfter(Duration::from_secs(2)));
        fed.feed(4);
        until_true("all are in flight", HEALED, || fed.receiver.count() == 4);
        let fault = Fault::on(fed.hub.pid(), &["fdatasync:error=EIO"]);
        let event = fed.next();
        until_true("the store is suspended", HEALED, || {
            fed.offer(&event) == Offer::Refused(503, "store_suspended".to_owned())
        });
        fed.hub.terminate();
        until_true("it drains", HEALED, || fed.hub.log().contains("draining"));
        if heals {
            drop(fault);
            assert_eq!(ended(&mut fed, "suspended", DRAIN), Some(0));
        } else {
            assert_eq!(ended(&mut fed, "suspended for ever", DRAIN), Some(0));
            drop(fault);
        }
        let crash = fed.crashed();
        fed.receiver.meet_all(Meets::Thanks);
        fed.hub.start();
        fed.insist(&event);
        // Their outcomes were stored where the disk was well again; else they are attempted again.
        let repeats = fed.all_is_well(&if heals { vec![] } else { vec![crash] }, "stopped while suspended");
        assert_eq!(repeats, if heals { 0 } else { 4 });
    }
}

// C13.2: a disk that does not answer keeps the hub for no longer than is promised
#[test]
fn told_to_stop_while_the_disk_hangs() {
    let _alone = alone();
    let mut fed = Fed::new(4, &[("SHUTDOWN_TIMEOUT", "2s")]);
    fed.feed(8);
    fed.all_is_well(&[], "before");
    let minute = Duration::from_secs(60).as_micros();
    let fault = Fault::on(fed.hub.pid(), &[&format!("fdatasync:delay_enter={minute}")]);
    let event = fed.next();
    std::thread::scope(|scope| {
        let offering = scope.spawn(|| fed.offer(&event));
        until_true("the disk hangs", Duration::from_secs(20), || {
            fed.hub.api().readyz().is_some_and(|(_, answer)| answer["checks"]["store"]["status"] == "degraded")
        });
        fed.hub.terminate();
        let _ = offering.join();
    });
    let told = || fed.hub.log().contains("the store's disk may hang");
    until_true("it says that it ends without the disk", Duration::from_secs(15), told);
    fault.forget();
    let code = ended(&mut fed, "with a disk that hangs", Duration::from_secs(5));
    assert_eq!(code, Some(1), "{}", fed.hub.log_tail());
    let crash = fed.crashed();
    fed.hub.start();
    fed.insist(&event);
    fed.all_is_well(&[crash], "after a disk that hung");
}

// C13.2: the same at the start, where the store is being opened
#[test]
fn told_to_stop_while_opening_hangs() {
    let _alone = alone();
    let mut fed = Fed::new(2, &[]);
    fed.feed(4);
    fed.all_is_well(&[], "before");
    fed.hub.kill();
    let told = fed.hub.folder().join("calls");
    fed.hub.under(&from_start(&["fdatasync:delay_enter=15000000".to_owned()], &told));
    fed.hub.spawn();
    let began = Instant::now();
    until_true("it opens", HEALED, || began.elapsed() > Duration::from_secs(1));
    fed.hub.terminate_inner();
    until_true("it ends", Duration::from_secs(5), || fed.hub.is_over_inside());
    fed.hub.kill();
    fed.hub.under(&[]);
    fed.hub.start();
    fed.feed(4);
    fed.all_is_well(&[fed.receiver.count() - 4], "after a start that hung");
}
