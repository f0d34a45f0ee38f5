//! `kill -9` at the writes of the store: at each of them in turn, at those of the first start, and again while what is left is read in.
//!
//! `HUB_TEST_STORAGE_KILLS` says how many of the writes of a run are tried (100 by default; `all`: every one).

use crate::harness::fault::{STORAGE_CALLS, from_start};
use crate::harness::fed::{Event, Fed, Offer};
use crate::harness::{Chance, alone, until_true};
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;

/// Events of one run.
const EVENTS: usize = 50;
const TENANTS: u32 = 5;

/// How a start under a tracer went.
#[derive(Debug, PartialEq, Eq)]
enum Came {
    Ready,
    Killed,
}

/// Starts it with a kill at that call; whether it came to be ready.
fn start_to_be_killed(fed: &mut Fed, rule: Option<&str>) -> Came {
    let rules: Vec<String> = rule.map(str::to_owned).into_iter().collect();
    let told = fed.hub.folder().join("calls");
    fed.hub.under(&from_start(&rules, &told));
    fed.hub.spawn();
    let mut came = Came::Killed;
    until_true("it is ready or killed", Duration::from_secs(60), || {
        if fed.hub.has_ended() {
            return true;
        }
        let is_ready = fed.hub.api().readyz().is_some_and(|(status, _)| status == 200);
        came = if is_ready { Came::Ready } else { Came::Killed };
        is_ready
    });
    came
}

/// Starts it without any tracer.
fn start(fed: &mut Fed) {
    fed.hub.under(&[]);
    fed.hub.start();
}

/// Feeds a run of events until the hub is gone; those of which nobody knows whether they are in.
fn feed_until_killed(fed: &mut Fed) -> Vec<Event> {
    let mut unknown = Vec::new();
    for _ in 0..EVENTS {
        let event = fed.next();
        match fed.offer(&event) {
            Offer::Accepted => {}
            Offer::NoAnswer(_) => {
                unknown.push(event);
                until_true("the hub is gone", Duration::from_secs(20), || fed.hub.has_ended());
                return unknown;
            }
            Offer::Refused(status, code) => panic!("{status} {code}"),
        }
    }
    unknown
}

/// How often each call is made by the thread that makes it most, in a run of that many events.
fn counted(fed: &mut Fed) -> HashMap<String, u64> {
    assert_eq!(start_to_be_killed(fed, None), Came::Ready);
    assert!(feed_until_killed(fed).is_empty());
    fed.all_is_well(&[], "counting");
    fed.hub.kill();
    let text = std::fs::read_to_string(fed.hub.folder().join("calls")).unwrap();
    let mut by_thread: HashMap<(&str, &str), u64> = HashMap::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(thread), Some(call)) = (words.next(), words.next()) else { continue };
        if let Some((name, _)) = call.split_once('(') {
            *by_thread.entry((thread, name)).or_default() += 1;
        }
    }
    let mut most: HashMap<String, u64> = HashMap::new();
    for ((_, name), count) in by_thread {
        let known = most.entry(name.to_owned()).or_default();
        *known = count.max(*known);
    }
    most
}

fn wanted() -> Option<u64> {
    match std::env::var("HUB_TEST_STORAGE_KILLS").as_deref() {
        Ok("all") => None,
        Ok(number) => Some(number.parse().expect("HUB_TEST_STORAGE_KILLS is a number or all")),
        Err(_) => Some(100),
    }
}

// C13.3, C3.1, C5.3, C5.6
#[test]
fn killed_at_the_writes_of_the_store() {
    let _alone = alone();
    let mut fed = Fed::new(TENANTS, &[]);
    fed.hub.terminate();
    assert_eq!(fed.hub.ended(Duration::from_secs(40)).code(), Some(0));
    let counts = counted(&mut fed);
    let mut crashes = vec![fed.crashed()];
    let mut moments: Vec<String> = Vec::new();
    for (call, count) in &counts {
        moments.extend((1..=*count).map(|when| format!("{call}:signal=KILL:when={when}")));
    }
    moments.sort();
    let all = moments.len();
    let mut chance = Chance::new(3);
    if let Some(wanted) = wanted() {
        while moments.len() as u64 > wanted {
            moments.swap_remove(usize::try_from(chance.below(moments.len() as u64)).unwrap());
        }
    }
    assert!(counts["pwrite64"] > 50 && counts["fdatasync"] > 20, "{counts:?}");
    let (mut killed, tried) = (0, moments.len());
    for (number, moment) in moments.iter().enumerate() {
        let unknown = match start_to_be_killed(&mut fed, Some(moment)) {
            Came::Ready => feed_until_killed(&mut fed),
            Came::Killed => vec![],
        };
        // With other batches than in the run that was counted there may have been fewer calls.
        if fed.hub.has_ended() {
            killed += 1;
        } else {
            fed.hub.kill();
        }
        crashes.push(fed.crashed());
        start(&mut fed);
        unknown.iter().for_each(|event| fed.insist(event));
        if number % 10 == 9 || number + 1 == tried {
            fed.all_is_well(&crashes, &format!("killed at {moment}, the {}th of {tried}", number + 1));
        }
        fed.hub.kill();
        crashes.push(fed.crashed());
    }
    eprintln!("killed at {killed} of {tried} writes out of {all}: {counts:?}");
    assert!(killed * 10 >= tried * 7, "killed only {killed} of {tried} times");
}

// C13.3: nothing that a first start leaves behind keeps the next one from starting
#[test]
fn killed_at_the_writes_of_the_first_start() {
    let _alone = alone();
    let mut killed = 0;
    for call in STORAGE_CALLS.split(',') {
        for when in 1.. {
            let mut fed = Fed::stopped(2, &[]);
            if start_to_be_killed(&mut fed, Some(&format!("{call}:signal=KILL:when={when}"))) == Came::Ready {
                break;
            }
            killed += 1;
            // Every third time again at the first write of the next start.
            if when % 3 == 0 {
                start_to_be_killed(&mut fed, Some("pwrite64:signal=KILL:when=1"));
                assert!(fed.hub.has_ended());
            }
            start(&mut fed);
            fed.set_up(&json!({}));
            fed.feed(4);
            fed.all_is_well(&[], &format!("killed at the first start's {call} {when}"));
        }
    }
    eprintln!("killed at {killed} writes of a first start");
    assert!(killed >= 6, "killed only {killed} times");
}

// C13.3, C5.6: a crash while what the last one left is read in, three deep, at the first writes of each start
#[test]
fn killed_again_and_again_while_it_starts() {
    let _alone = alone();
    let mut fed = Fed::new(TENANTS, &[]);
    let mut chance = Chance::new(5);
    let mut crashes = Vec::new();
    for round in 0..6 {
        fed.hub.kill();
        crashes.push(fed.crashed());
        let moment = format!("pwrite64:signal=KILL:when={}", 20 + chance.below(200));
        let mut unknown = vec![];
        if start_to_be_killed(&mut fed, Some(&moment)) == Came::Ready {
            unknown = feed_until_killed(&mut fed);
        }
        if !fed.hub.has_ended() {
            fed.hub.kill();
        }
        crashes.push(fed.crashed());
        for depth in 1..=3 {
            let call = ["pwrite64", "fdatasync"][chance.below(2) as usize];
            start_to_be_killed(&mut fed, Some(&format!("{call}:signal=KILL:when={depth}")));
            if !fed.hub.has_ended() {
                fed.hub.kill();
            }
            crashes.push(fed.crashed());
        }
        start(&mut fed);
        unknown.iter().for_each(|event| fed.insist(event));
        fed.all_is_well(&crashes, &format!("round {round}"));
    }
}
