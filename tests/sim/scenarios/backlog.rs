//! Lanes that are too long for memory: what is beyond the ceiling waits in the store, in order, and nobody else's lane notices.

use super::{Bench, SLOW, answer, blocked, delivered, fifo, options, parallel, seqs, sub_id};
use crate::model::{Ask, AskChange};
use crate::options::Options;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use streaming_hub::model::job::{Claim, Outcome};
use streaming_hub::rules::breaker::BreakerPolicy;

/// Jobs that are waiting for a destination that is not there.
const LONG: i64 = 300;

/// A hub that may have 16 waiting jobs in memory, one lane of which has many more.
fn with_a_long_lane() -> Bench {
    let mut bench = Bench::new(Options { pending_max: 16, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.subscribe(9, fifo("https://b.example/"));
    let dead = bench.admit("loan", 1).claims;
    bench.settle(&dead[0], blocked());
    for _ in 0..LONG / 10 {
        bench.admit("loan", 10);
    }
    bench
}

/// Delivers everything that is claimed from here on; the seqs, in order.
fn deliver_all(bench: &mut Bench, first: Vec<Claim>) -> Vec<u64> {
    let (mut next, mut done) = (VecDeque::from(first), Vec::new());
    while let Some(claim) = next.pop_front() {
        done.push(claim.job.seq.0);
        let applied = bench.settle(&claim, delivered());
        next.extend(bench.until_still(applied));
    }
    done
}

/// Its destination is well again: what is claimed at once.
fn heal(bench: &mut Bench) -> Vec<Claim> {
    let applied = bench.change(1, AskChange::Verified { url: "https://a.example/".to_owned() });
    bench.until_still(applied)
}

// C5.5: ingest goes on above the ceiling, and memory stays bounded
#[test]
fn a_long_lane_waits_in_the_store_and_delays_nobody() {
    let mut bench = with_a_long_lane();
    let (waiting, in_memory) = bench.waiting();
    assert_eq!(waiting, 1 + LONG as u64);
    assert!(in_memory <= 16 + 3, "{in_memory} jobs are in memory");
    for _ in 0..20 {
        let applied = bench.admit(SLOW, 1);
        assert_eq!(applied.claims.len(), 1, "another tenant's event is claimed in the commit that stores it");
        bench.settle(&applied.claims[0], delivered());
    }
}

// C5.4
#[test]
fn what_waited_in_the_store_is_delivered_once_and_in_order() {
    let mut bench = with_a_long_lane();
    let mut done = Vec::new();
    let mut next = VecDeque::from(heal(&mut bench));
    while let Some(claim) = next.pop_front() {
        done.push(claim.job.seq.0);
        let applied = bench.settle(&claim, delivered());
        next.extend(bench.until_still(applied));
        // More comes meanwhile.
        if done.len().is_multiple_of(100) && done.len() <= 300 {
            let applied = bench.admit("loan", 10);
            next.extend(bench.until_still(applied));
        }
    }
    // The one that had failed comes when its time has come.
    bench.clocks.now += 1_000;
    let last = bench.nothing();
    done.extend(deliver_all(&mut bench, last.claims));
    done.sort_by_key(|seq| *seq == 1);
    assert_eq!(done, (2..=331).chain([1]).collect::<Vec<_>>());
    assert_eq!((bench.left(), bench.waiting()), (Vec::new(), (0, 0)));
}

// C5.3
#[test]
fn a_start_over_a_long_lane_takes_no_more_into_memory_than_it_may() {
    let mut bench = with_a_long_lane();
    for _ in 0..2 {
        bench.start_again().unwrap();
        let (waiting, in_memory) = bench.waiting();
        assert_eq!(waiting, 1 + LONG as u64);
        assert!(in_memory <= 16 + 3, "{in_memory} jobs are in memory");
    }
    let now = bench.hub.clock.now(&bench.clocks);
    bench.hub.engine.reopen(now).unwrap();
    let first = heal(&mut bench);
    let mut done = deliver_all(&mut bench, first);
    bench.clocks.now += 1_000;
    let last = bench.nothing();
    done.extend(deliver_all(&mut bench, last.claims));
    done.sort_unstable();
    assert_eq!(done, (1..=301).collect::<Vec<_>>());
}

// C5.1: what was claimed when the store was read in again comes back once
#[test]
fn a_claim_that_is_given_back_after_reading_in_again_is_there_once() {
    let mut bench = Bench::new(Options { pending_max: 16, slots: 100, claim_batch: 100, ..options() });
    bench.subscribe(1, parallel("https://a.example/"));
    let applied = bench.admit("loan", 40);
    let claims = bench.until_still(applied);
    assert_eq!(claims.len(), 40);
    bench.change(1, AskChange::Pause);
    let settle = |bench: &mut Bench, seqs: RangeInclusive<u64>, outcome: &Outcome| {
        for claim in claims.iter().filter(|claim| seqs.contains(&claim.job.seq.0)) {
            bench.settle(claim, outcome.clone());
        }
    };
    // What is in memory after reading in again ends before 10, and all but these are in flight still.
    for seqs in [1..=8, 10..=10, 31..=40] {
        settle(&mut bench, seqs, &Outcome::Released);
    }
    let now = bench.hub.clock.now(&bench.clocks);
    bench.hub.engine.reopen(now).unwrap();
    settle(&mut bench, 11..=20, &Outcome::Crashed);
    settle(&mut bench, 9..=9, &Outcome::Released);
    settle(&mut bench, 21..=30, &Outcome::Released);
    assert_eq!(bench.waiting().0, 40);
    // One by one, so that some that crashed are still waiting when the rest is read past them.
    let one_by_one = AskChange::Spec { spec: Box::new(fifo("https://a.example/")), proven: true };
    bench.change(1, one_by_one);
    let applied = bench.change(1, AskChange::Resume);
    let first = bench.until_still(applied);
    let done = deliver_all(&mut bench, first);
    let (again, in_order): (Vec<u64>, Vec<u64>) = done.iter().partition(|seq| (11..=20).contains(*seq));
    assert_eq!(again, (11..=20).collect::<Vec<_>>());
    assert_eq!(in_order, (1..=10).chain(21..=40).collect::<Vec<_>>());
    assert_eq!(bench.waiting(), (0, 0));
}

// C5.1: nothing of a deleted subscription stays
#[test]
fn a_long_lane_is_deleted_to_its_last_row() {
    for start_again in [false, true] {
        let mut bench = with_a_long_lane();
        let applied = bench.manage(Ask::Delete { id: sub_id(1), tenant: "t".to_owned() });
        if start_again {
            bench.start_again().unwrap();
        }
        bench.until_still(applied);
        assert_eq!(bench.left(), Vec::<u64>::new());
    }
}

// C5.5: one lane's failed jobs do not fill the memory either
#[test]
fn a_lane_that_fails_on_and_on_waits_with_its_new_events() {
    let mut bench = Bench::new(Options {
        pending_max: 16,
        slots: 100,
        schedule: vec![0, 100_000],
        breaker: BreakerPolicy { failures: 1_000, cooling_ms: 1, cooling_max_ms: 1 },
        ..options()
    });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.subscribe(9, fifo("https://b.example/"));
    let mut next = bench.admit("loan", 50).claims;
    let mut failed = 0;
    while let Some(claim) = next.pop() {
        failed += 1;
        let applied = bench.settle(&claim, answer(500, 5));
        next.extend(bench.until_still(applied));
    }
    assert!((4..16).contains(&failed), "{failed} were attempted");
    let applied = bench.admit(SLOW, 1);
    assert_eq!(seqs(&applied), [1], "another lane goes on");
}
