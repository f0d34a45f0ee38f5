//! The simulator: the real engine and the real pool on the real redb code, over a disk that fails and loses power inside a commit, among
//! scripted readers, clients and receivers, against a reference model with one explicit job for every match.
//!
//! Seeded, without threads, sockets or real time in a world. A seed that fails prints what broke, the end of its history, and how to run
//! it again: `SIM_SEEDS=17 cargo test --release --test sim`; `SIM_SEEDS=0..200` runs a range.

#![allow(unreachable_pub, reason = "nothing is reachable from outside a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "a test, all of it")]

mod api;
mod chance;
mod check;
mod disk;
mod dump;
mod hub;
mod model;
mod options;
mod planted;
mod receiver;
mod scenarios;
mod source;
mod world;

use std::ops::Range;
use std::sync::Mutex;
use world::{Broken, Report};

/// Seeds that are run where nobody says which.
const SEEDS: Range<u64> = 0..60;

// C3.1 C3.2 C3.3 C4.5 C5.3 C5.4 C5.6 C6.1 C7.1 C7.2 C8.1 C8.2 C8.3 C8.4 C8.5 C9.10 C13.3 C13.8
#[test]
fn every_seed_keeps_every_invariant() {
    let seeds = wanted();
    let reports = Mutex::new(Vec::new());
    let broken: Mutex<Vec<(u64, Box<Broken>)>> = Mutex::new(Vec::new());
    let next = Mutex::new(seeds.clone());
    let clock = streaming_hub::time::SystemClock::new();
    let began = streaming_hub::time::Clock::monotonic(&clock);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = { next.lock().unwrap().next() } {
                    match world::run(seed, None) {
                        Ok(report) => reports.lock().unwrap().push(report),
                        Err(what) => broken.lock().unwrap().push((seed, what)),
                    }
                    if broken.lock().unwrap().len() >= 3 {
                        break;
                    }
                }
            });
        }
    });
    let took = streaming_hub::time::Clock::monotonic(&clock).saturating_sub(began);
    let reports = reports.into_inner().unwrap();
    eprintln!("{} seeds in {took:?}", reports.len());
    let sum = sum(&reports);
    eprintln!("{sum:?}");
    assert!(sum.beyond_memory > 0 || reports.len() < 20, "no lane was too long for memory in {seeds:?}");
    let mut broken = broken.into_inner().unwrap();
    broken.sort_by_key(|(seed, _)| *seed);
    assert!(broken.is_empty(), "{}", broken.iter().map(|(seed, broken)| told(*seed, broken)).collect::<String>());
}

fn sum(reports: &[Report]) -> Report {
    let mut sum = Report::default();
    for report in reports {
        sum.totals.events += report.totals.events;
        sum.totals.duplicates += report.totals.duplicates;
        sum.totals.jobs += report.totals.jobs;
        sum.totals.delivered += report.totals.delivered;
        sum.totals.dead += report.totals.dead;
        sum.totals.poisoned_jobs += report.totals.poisoned_jobs;
        sum.totals.redriven += report.totals.redriven;
        sum.totals.replayed += report.totals.replayed;
        sum.totals.purged += report.totals.purged;
        sum.totals.replays += report.totals.replays;
        sum.totals.cancelled += report.totals.cancelled;
        sum.totals.stale += report.totals.stale;
        sum.totals.switched_off += report.totals.switched_off;
        sum.totals.notices += report.totals.notices;
        sum.totals.doubts += report.totals.doubts;
        sum.crashes += report.crashes;
        sum.double_crashes += report.double_crashes;
        sum.reopenings += report.reopenings;
        sum.clean_stops += report.clean_stops;
        sum.in_doubt_landed += report.in_doubt_landed;
        sum.in_doubt_gone += report.in_doubt_gone;
        sum.turns += report.turns;
        sum.repeats += report.repeats;
        sum.beyond_memory += report.beyond_memory;
    }
    sum
}

fn told(seed: u64, broken: &Broken) -> String {
    let trace = broken.trace.join("\n  ");
    let Broken { what, options, .. } = broken;
    format!(
        "\nseed {seed}: {}\n{options:?}\n  {trace}\nseed {seed}: {}\nagain: SIM_SEEDS={seed} cargo test --release --test sim every_seed\n",
        what.0, what.0
    )
}

/// `SIM_SEEDS`: one seed, or a range.
fn wanted() -> Range<u64> {
    let Ok(text) = std::env::var("SIM_SEEDS") else { return SEEDS };
    let number = |text: &str| text.parse::<u64>().expect("SIM_SEEDS is a seed, or a range a..b");
    match text.split_once("..") {
        Some((low, high)) => number(low)..number(high),
        None => number(&text)..number(&text) + 1,
    }
}
