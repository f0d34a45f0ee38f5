//! The smallest form of what the seeds have found, each named by what it guards.

use super::{Bench, SLOW, answer, blocked, delivered, fifo, options, parallel, seqs, spec, sub_id};
use crate::dump::Dump;
use crate::hub::Shown;
use crate::model::{Ask, AskChange, Asked};
use crate::options::Options;
use streaming_hub::dispatch::pool::Step;
use streaming_hub::model::subscription::{DeliveryOrder, EventPattern, Spec, StartFrom};

// C13.2
#[test]
fn a_writer_that_claims_no_more_is_not_woken_for_claims() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://a.example/"));
    let applied = bench.admit("loan", 1);
    let applied = bench.settle(&applied.claims[0], answer(500, 5));
    assert!(applied.wake_at.is_some(), "the retry has its time");
    bench.hub.engine.stop_claiming();
    assert_eq!(bench.nothing().wake_at, None);
}

// C5.1
#[test]
fn a_parallel_lane_goes_on_after_its_part_of_a_commit() {
    let mut bench = Bench::new(Options { claim_batch: 2, slots: 64, ..options() });
    bench.subscribe(1, parallel("https://a.example/"));
    let applied = bench.admit("loan", 5);
    assert_eq!((seqs(&applied), applied.more), (vec![1, 2], true));
    let applied = bench.nothing();
    assert_eq!((seqs(&applied), applied.more), (vec![3, 4], true));
    let applied = bench.nothing();
    assert_eq!((seqs(&applied), applied.more), (vec![5], false));
}

// C5.5
#[test]
fn a_lane_that_recovered_does_not_wait_among_the_slow() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, parallel("https://a.example/"));
    bench.subscribe(9, parallel("https://b.example/"));
    for resource in ["loan", SLOW] {
        let claims = bench.admit(resource, 1).claims;
        bench.settle(&claims[0], answer(200, 5_000));
    }
    // Both lanes are slow. One attempt of the first, and the second takes what is left of the share of the slow, for long.
    let first = bench.admit("loan", 1).claims;
    assert_eq!((first.len(), bench.admit(SLOW, 6).claims.len()), (1, 3));
    assert!(bench.admit("loan", 2).claims.is_empty(), "slow lanes have their share");
    // It answers quickly again: then it is among the slow no more.
    let next = bench.settle(&first[0], delivered()).claims;
    let of_first: Vec<u64> =
        next.iter().filter(|claim| claim.job.key.sub.0 == 1).map(|claim| claim.job.seq.0).collect();
    assert_eq!(of_first, [3, 4]);
}

// C5.4
#[test]
fn a_breaker_that_opens_sends_back_what_has_not_begun() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, parallel("https://a.example/"));
    let claims = bench.admit("loan", 3).claims;
    assert_eq!(claims.len(), 3);
    for claim in &claims[1..] {
        bench.hub.pool.take(claim.clone());
    }
    bench.settle(&claims[0], blocked());
    let mut steps = Vec::new();
    bench.hub.pool.step(
        bench.hub.clock.now(&bench.clocks),
        &Shown { board: &bench.hub.board, planted: None },
        &mut steps,
    );
    let begun = steps.iter().any(|step| matches!(step, Step::Begin(..)));
    assert!(!begun && steps.len() == 2, "{steps:?}");
}

// C9.6, C5.5
#[test]
fn a_429_of_the_old_destination_does_not_hold_the_new_one() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://old.example/"));
    let claims = bench.admit("loan", 1).claims;
    bench.change(1, AskChange::Spec { spec: Box::new(fifo("https://new.example/")), proven: true });
    let applied = bench.settle(&claims[0], answer(429, 5));
    assert_eq!(seqs(&applied), [1], "it goes to the new destination at once");
}

// C4.8
#[test]
fn start_from_fills_by_the_filter_of_its_moment() {
    let mut bench = Bench::new(options());
    bench.admit("loan", 2);
    let from_earliest = |url| Spec { start_from: StartFrom::Earliest, ..fifo(url) };
    // One fill is worked on in a commit: the second one waits.
    for number in [1, 2] {
        let spec = from_earliest("https://a.example/");
        bench.manage(Ask::Create { id: sub_id(number), tenant: "t".to_owned(), spec: Box::new(spec) });
    }
    let verify = |number| {
        let change = AskChange::Verified { url: "https://a.example/".to_owned() };
        Ask::Change { id: sub_id(number), tenant: "t".to_owned(), if_revision: None, change }
    };
    bench.turn(&Asked { manages: vec![verify(1), verify(2)], ..Asked::default() }).unwrap();
    let narrower =
        Spec { event_types: vec![EventPattern::Resource("account".to_owned())], ..from_earliest("https://a.example/") };
    bench.change(2, AskChange::Spec { spec: Box::new(narrower), proven: true });
    bench.nothing();
    assert_eq!(bench.left().len(), 4, "both subscriptions have both events");
}

// C4.8, C13: no hot loop
#[test]
fn a_fill_at_the_ceiling_gets_on_and_does_not_turn_in_circles() {
    let mut bench = Bench::new(Options { pending_max: 3, slots: 1, ..options() });
    bench.admit("loan", 100);
    bench.subscribe(1, fifo("https://a.example/"));
    let mut applied = bench.admit("loan", 5);
    let mut next = std::mem::take(&mut applied.claims);
    let filling = bench.subscribe(2, Spec { start_from: StartFrom::Earliest, ..fifo("https://b.example/") });
    assert!(!filling.more, "there is no room for more until its lane has worked off what it was given");
    let mut delivered_jobs = 0;
    while let Some(claim) = next.pop() {
        let applied = bench.settle(&claim, delivered());
        next.extend(applied.claims);
        delivered_jobs += 1;
        let mut more = applied.more;
        while more {
            let applied = bench.nothing();
            next.extend(applied.claims);
            more = applied.more;
        }
    }
    assert_eq!((delivered_jobs, bench.left()), (5 + 105, Vec::new()));
}

// C5.5
#[test]
fn attempts_of_a_deleted_subscription_keep_their_slots() {
    let mut bench = Bench::new(Options { slots: 1, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.subscribe(2, fifo("https://b.example/"));
    let claims = bench.admit("loan", 1).claims;
    assert_eq!(claims.len(), 1);
    let sub = claims[0].job.key.sub.0;
    let deleted = bench.manage(Ask::Delete { id: sub_id(u8::try_from(sub).unwrap()), tenant: "t".to_owned() });
    assert!(deleted.claims.is_empty(), "the one slot is taken until the attempt has ended");
    assert_eq!(bench.settle(&claims[0], delivered()).claims.len(), 1);
}

// C5.1: one tenant's backlog does not starve another
#[test]
fn tenants_take_turns() {
    let mut bench = Bench::new(Options { slots: 1, ..options() });
    bench.subscribe(1, parallel("https://a.example/"));
    bench.subscribe(9, parallel("https://b.example/"));
    let mut next = bench.admit("loan", 8).claims;
    bench.admit(SLOW, 4);
    let mut order = Vec::new();
    while let Some(claim) = next.pop() {
        order.push(claim.job.key.sub.0);
        next = bench.settle(&claim, delivered()).claims;
    }
    assert_eq!(order, [1, 2, 1, 2, 1, 2, 1, 2, 1, 1, 1, 1]);
}

// C5.4: what failed before the lane became strict holds it too
#[test]
fn a_lane_that_becomes_strict_is_held_by_what_failed_before() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://a.example/"));
    let claims = bench.admit("loan", 1).claims;
    bench.settle(&claims[0], answer(500, 5));
    let strict = spec("https://a.example/", DeliveryOrder::Strict, 1);
    bench.change(1, AskChange::Spec { spec: Box::new(strict), proven: true });
    assert!(bench.admit("loan", 1).claims.is_empty(), "the first one is not done");
    bench.clocks.now += 200;
    let claims = bench.nothing().claims;
    assert_eq!(claims[0].job.seq.0, 1);
    assert_eq!(seqs(&bench.settle(&claims[0], delivered())), [2]);
}

// C7: every table has an end
#[test]
fn a_breaker_ends_with_the_last_subscription_of_its_destination() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://old.example/"));
    let claims = bench.admit("loan", 1).claims;
    bench.settle(&claims[0], blocked());
    assert_eq!(Dump::of(&bench.disk).unwrap().breakers.len(), 1);
    bench.change(1, AskChange::Spec { spec: Box::new(fifo("https://new.example/")), proven: true });
    assert!(Dump::of(&bench.disk).unwrap().breakers.is_empty());
}

// C5.5
#[test]
fn a_failure_of_the_old_destination_is_not_the_new_ones_after_the_store_was_opened_again() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://old.example/"));
    let claims = bench.admit("loan", 1).claims;
    bench.change(1, AskChange::Spec { spec: Box::new(fifo("https://new.example/")), proven: true });
    let now = bench.hub.clock.now(&bench.clocks);
    bench.hub.engine.reopen(now).unwrap();
    let applied = bench.settle(&claims[0], answer(500, 5));
    assert_eq!(seqs(&applied), [1], "it goes to the new destination at once");
    assert_eq!(applied.claims[0].job.steps_used, 0);
}
