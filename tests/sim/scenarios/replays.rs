//! Replays, redrives and purges, step by step (C5.4, C6.5, C6.6, C8.5).

use super::{Bench, SLOW, answer, delivered, fifo, options, parallel, seqs, spec, sub_id, tenant_of};
use crate::disk::{Effect, Fuse};
use crate::dump::Dump;
use crate::model::{Ask, AskChange};
use crate::options::Options;
use std::collections::BTreeMap;
use streaming_hub::engine::command::{DeadEnd, Managed, Refusal, Through};
use streaming_hub::engine::{Applied, ReplayPace};
use streaming_hub::model::ids::{ReplayId, Seq};
use streaming_hub::model::job::{Cause, Claim, DeadReason, Outcome};
use streaming_hub::model::replay::{DeadFilter, Replay};
use streaming_hub::model::space::Room;
use streaming_hub::model::subscription::{DeliveryOrder, EventPattern, Spec};

const SLOWLY: ReplayPace = ReplayPace { jobs: 2, rows: 4, ahead: 4 };

fn ask(number: u8, replay: u8, through: Through) -> Ask {
    let (id, tenant) = (sub_id(number), tenant_of(number));
    Ask::Replay { id, tenant, replay: ReplayId([replay; 16]), through, only: Vec::new() }
}

fn range(from: u64, to: u64) -> Through {
    Through::Events { from: Seq(from), to: Seq(to) }
}

fn letters(end: DeadEnd) -> Through {
    Through::DeadLetters { end, which: DeadFilter::default() }
}

fn hopeless() -> Outcome {
    match answer(500, 5) {
        Outcome::Failed { attempt, .. } => Outcome::Hopeless { attempt, reason: DeadReason::TooLarge },
        other => other,
    }
}

impl Bench {
    /// Lets every claim end like this, and what is claimed then; the seqs in the order of their attempts.
    fn end_all(&mut self, claims: Vec<Claim>, outcome: &dyn Fn() -> Outcome) -> Vec<u64> {
        let mut next: std::collections::VecDeque<Claim> = claims.into();
        let mut order = Vec::new();
        loop {
            while let Some(claim) = next.pop_front() {
                order.push(claim.job.seq.0);
                next.extend(self.settle(&claim, outcome()).claims);
            }
            let applied = self.nothing();
            let more = applied.more;
            next.extend(applied.claims);
            if next.is_empty() && !more {
                return order;
            }
        }
    }

    /// So many events of the first subscription, all of them ended like this.
    fn events(&mut self, count: i64, outcome: &dyn Fn() -> Outcome) {
        let claims = self.admit("loan", count).claims;
        assert_eq!(self.end_all(claims, outcome).len(), usize::try_from(count).unwrap());
    }

    fn dead(&self) -> usize {
        Dump::of(&self.disk).unwrap().dead.len()
    }
}

fn begun(applied: &Applied) -> &Replay {
    match &applied.manages[0] {
        Ok(Managed::Replay(replay)) => replay,
        other => panic!("{other:?}"),
    }
}

// C5.4: a replay holds no strict lane, and a long one does not keep the retry waiting that does
#[test]
fn head_retries_and_replays_take_turns() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, spec("https://a.example/", DeliveryOrder::Strict, 1));
    bench.events(6, &delivered);
    let first = bench.manage(ask(1, 1, range(1, 6)));
    assert_eq!(seqs(&first), [1]);
    assert!(bench.admit("loan", 2).claims.is_empty(), "one in flight in all");
    let head = bench.settle(&first.claims[0], delivered());
    assert_eq!(seqs(&head), [7]);
    let replayed = bench.settle(&head.claims[0], answer(500, 5));
    assert_eq!(seqs(&replayed), [2], "the failed one holds the lane, and not the replay");
    bench.clocks.now += 200;
    let retry = bench.settle(&replayed.claims[0], delivered());
    assert_eq!(seqs(&retry), [7], "it is due, and has its turn before older events that are replayed");
    let order = bench.end_all(retry.claims, &delivered);
    assert_eq!(order, [7, 3, 8, 4, 5, 6]);
}

// C6.6
#[test]
fn an_unfinished_job_is_due_now_and_gets_no_second() {
    let mut bench = Bench::new(Options { schedule: vec![0, 3_600_000, 3_600_000], ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    let claims = bench.admit("loan", 1).claims;
    assert!(bench.settle(&claims[0], answer(500, 5)).claims.is_empty(), "its retry is hours away");
    let again = bench.manage(ask(1, 1, range(1, 1)));
    let job = &again.claims[0].job;
    assert_eq!((job.seq, job.steps_used, job.cause), (Seq(1), 1, Cause::Match), "the same job, on its curve");
    bench.settle(&again.claims[0], delivered());
    assert_eq!(bench.left(), [0u64; 0]);
    // The first step of a schedule is what a head waits for.
    let slow = Spec { retry_schedule: Some(vec![3_600_000]), ..fifo("https://a.example/") };
    bench.change(1, AskChange::Spec { spec: Box::new(slow), proven: true });
    assert!(bench.admit("loan", 1).claims.is_empty());
    assert_eq!(seqs(&bench.manage(ask(1, 2, range(2, 2)))), [2]);
}

// C6.6: memory stays bounded, and bulk work goes on as its lane does
#[test]
fn a_replay_runs_no_further_than_a_little_ahead_of_its_lane() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, parallel("https://a.example/"));
    bench.events(40, &delivered);
    bench.change(1, AskChange::Pause);
    let mut applied = bench.manage(ask(1, 1, range(1, 40)));
    while applied.more {
        applied = bench.nothing();
    }
    assert_eq!(bench.left(), [1, 2, 3, 4], "it waits while the subscription is off");
    let claims = bench.change(1, AskChange::Resume).claims;
    let order = bench.end_all(claims, &delivered);
    assert_eq!(order, (1..=40).collect::<Vec<_>>());
}

// C6.6
#[test]
fn replays_take_no_more_memory_than_they_leave_to_others() {
    let mut bench = Bench::new(Options { pending_max: 20, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(8, &delivered);
    bench.change(1, AskChange::Pause);
    bench.subscribe(2, fifo("https://b.example/"));
    bench.change(2, AskChange::Pause);
    // One chunk may pass the mark; none is begun behind it.
    for replay in 1..=4 {
        let mut applied = bench.manage(ask(1, replay, range(1, 8)));
        bench.manage(ask(2, replay, range(1, 8)));
        while applied.more {
            applied = bench.nothing();
        }
    }
    assert_eq!(bench.left().len(), 16);
}

// C6.6, C5.5: what another tenant's failures take of the memory holds up no replay
#[test]
fn a_replay_goes_on_beside_failures_that_fill_the_memory() {
    let mut bench = Bench::new(Options { pending_max: 4, schedule: vec![0, 3_600_000, 3_600_000], ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(6, &delivered);
    bench.subscribe(9, parallel("https://b.example/"));
    let mut next = bench.admit(SLOW, 4).claims;
    while let Some(claim) = next.pop() {
        next.extend(bench.settle(&claim, answer(500, 5)).claims);
    }
    bench.admit(SLOW, 4);
    let claims = bench.manage(ask(1, 1, range(1, 6))).claims;
    assert_eq!(bench.end_all(claims, &delivered), (1..=6).collect::<Vec<_>>());
}

// C13.4: jobs are new rows; a purge only gives room
#[test]
fn while_the_disk_is_nearly_full_only_a_purge_goes_on() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(9, &hopeless);
    bench.clocks.now += 5;
    let claims = bench.manage(ask(1, 1, range(1, 9))).claims;
    bench.manage(ask(1, 2, letters(DeadEnd::Purge)));
    assert!(!bench.hub.engine.set_room(Room::Low));
    let order = bench.end_all(claims, &delivered);
    assert!(order.len() < 9 && bench.dead() == 0, "{order:?} were made before");
    assert!(bench.hub.engine.set_room(Room::Enough), "the writer is to go on");
    let applied = bench.nothing();
    assert_eq!(bench.end_all(applied.claims, &delivered).len() + order.len(), 9);
}

// C6.6
#[test]
fn success_of_a_replay_removes_the_dead_letter_and_failure_renews_it() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(3, &hopeless);
    let claims = bench.manage(ask(1, 1, letters(DeadEnd::Replay))).claims;
    assert_eq!(bench.dead(), 3, "they stay until it succeeds");
    let next = bench.settle(&claims[0], delivered()).claims;
    let next = bench.settle(&next[0], hopeless()).claims;
    bench.settle(&next[0], delivered());
    let left: Vec<u64> = Dump::of(&bench.disk).unwrap().dead.values().map(|letter| letter.seq.0).collect();
    assert_eq!(left, [2]);
}

// C6.5: in bulk, each once, with a new curve; what dies again at once is not met again
#[test]
fn a_bulk_redrive_meets_each_letter_once() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(9, &hopeless);
    bench.clocks.now += 5;
    let claims = bench.manage(ask(1, 1, letters(DeadEnd::Redrive))).claims;
    assert_eq!((claims[0].job.cause, claims[0].job.steps_used), (Cause::Redrive, 0));
    assert_eq!(bench.end_all(claims, &hopeless), (1..=9).collect::<Vec<_>>());
    assert_eq!(bench.dead(), 9);
}

// C6.5: a purge makes no jobs, and waits for nobody
#[test]
fn a_purge_goes_on_while_its_subscription_is_off() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(9, &hopeless);
    bench.change(1, AskChange::Pause);
    bench.clocks.now += 5;
    let mut applied = bench.manage(ask(1, 1, letters(DeadEnd::Purge)));
    while applied.more {
        applied = bench.nothing();
    }
    let dump = Dump::of(&bench.disk).unwrap();
    assert_eq!((dump.dead.len(), dump.replays.len(), bench.left().len()), (0, 0, 0));
    let matched = dump.events.values().filter(|stored| !stored.0.matched.is_empty()).count();
    assert_eq!(matched, 0, "nothing says that they were delivered");
}

// C8.5
#[test]
fn what_was_skipped_is_sent_once_and_a_cancelled_rest_stays_skipped() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(1, &delivered);
    for _ in 0..2 {
        bench.change(1, AskChange::Pause);
        bench.admit("loan", 5);
        bench.change(1, AskChange::Resume);
        bench.events(1, &delivered);
    }
    bench.change(1, AskChange::Pause);
    bench.admit("loan", 1);
    // Seqs 2 to 6, 8 to 12, and 14, which is still being skipped.
    let skipped = || Through::Skipped { upto: Seq(u64::MAX) };
    let only = vec![EventPattern::Resource("account".to_owned())];
    let narrow =
        Ask::Replay { id: sub_id(1), tenant: tenant_of(1), replay: ReplayId([9; 16]), through: skipped(), only };
    let mut applied = bench.manage(narrow);
    while applied.more {
        applied = bench.nothing();
    }
    let begun_now = bench.manage(ask(1, 1, skipped()));
    assert_eq!(begun(&begun_now).turn, 1);
    let nothing = bench.manage(ask(1, 2, skipped()));
    assert!(begun(&nothing).ended_at.is_some(), "the first one has taken it up");
    let mut applied = nothing;
    while applied.more {
        applied = bench.nothing();
    }
    assert_eq!(bench.left(), [2, 3, 4, 5]);
    bench.manage(Ask::Cancel { id: sub_id(1), tenant: tenant_of(1), replay: ReplayId([1; 16]) });
    let rest: Vec<(u64, u64)> =
        Dump::of(&bench.disk).unwrap().skipped.values().flatten().map(|s| (s.from.0, s.to.0)).collect();
    assert_eq!(rest, [(6, 6), (8, 12), (14, 14)]);
    let claims = bench.change(1, AskChange::Resume).claims;
    assert_eq!(bench.end_all(claims, &delivered), [2, 3, 4, 5], "what it has queued is still sent");
    let claims = bench.manage(ask(1, 3, skipped())).claims;
    assert_eq!(bench.end_all(claims, &delivered), [6, 8, 9, 10, 11, 12, 14]);
}

// C6.6: the filter of now, of those named only, and another tenant's is none
#[test]
fn a_replay_sends_what_the_subscription_wants_now() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(2, &delivered);
    let claims = bench.admit("account", 2).claims;
    bench.end_all(claims, &delivered);
    let loans = Spec { event_types: vec![EventPattern::Resource("loan".to_owned())], ..fifo("https://a.example/") };
    bench.change(1, AskChange::Spec { spec: Box::new(loans), proven: true });
    let claims = bench.manage(ask(1, 1, range(1, 4))).claims;
    assert_eq!(bench.end_all(claims, &delivered), [1, 2]);
    let only = vec![EventPattern::Resource("account".to_owned())];
    let none =
        Ask::Replay { id: sub_id(1), tenant: tenant_of(1), replay: ReplayId([2; 16]), through: range(1, 4), only };
    assert!(bench.manage(none).claims.is_empty());
    let stranger = Ask::Replay {
        id: sub_id(1),
        tenant: "stranger".to_owned(),
        replay: ReplayId([3; 16]),
        through: range(1, 4),
        only: Vec::new(),
    };
    assert_eq!(bench.manage(stranger).manages[0].as_ref().unwrap_err(), &Refusal::NotFound);
}

// C6.6
#[test]
fn a_replay_ends_with_its_subscription() {
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(20, &delivered);
    let claims = bench.manage(ask(1, 1, range(1, 20))).claims;
    bench.manage(Ask::Delete { id: sub_id(1), tenant: tenant_of(1) });
    bench.settle(&claims[0], delivered());
    while bench.nothing().more {}
    let dump = Dump::of(&bench.disk).unwrap();
    assert_eq!((dump.jobs.len(), dump.replays.len(), dump.tombstones.len()), (0, 0, 0));
}

// C6.6: replays of two subscriptions take turns, whatever the first one's length
#[test]
fn replays_take_turns() {
    let mut bench = Bench::new(Options { replay: ReplayPace { ahead: 1_000, ..SLOWLY }, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.events(20, &delivered);
    bench.subscribe(2, fifo("https://b.example/"));
    for number in [1, 2] {
        bench.change(number, AskChange::Pause);
    }
    bench.manage(ask(1, 1, range(1, 20)));
    bench.manage(ask(2, 2, range(1, 4)));
    for _ in 0..3 {
        bench.nothing();
    }
    let dump = Dump::of(&bench.disk).unwrap();
    let second = dump.jobs.keys().filter(|key| key.sub.0 == 2).count();
    assert_eq!((second, dump.replays.len()), (4, 1), "the short one is done while the long one goes on");
}

// C6.5, C6.6, C13.3: whichever operation of whichever commit is the last or the one that fails
#[test]
fn bulk_work_survives_a_fault_at_every_operation() {
    for through in [range(1, 6), letters(DeadEnd::Redrive), letters(DeadEnd::Purge)] {
        for effect in [Effect::Fail { more: 0 }, Effect::CutBefore, Effect::CutAfter] {
            let mut after = 0;
            while meets_a_fault(&through, Fuse { after, effect }) {
                after += 1;
            }
            assert!(after > 20, "there were {after} operations: {through:?}");
        }
    }
}

/// Whether the fault was met. Six events, whose bulk work goes in chunks of two.
fn meets_a_fault(through: &Through, fuse: Fuse) -> bool {
    let what = format!("{through:?} {fuse:?}");
    let mut bench = Bench::new(Options { replay: SLOWLY, ..options() });
    bench.subscribe(1, parallel("https://a.example/"));
    let outcome: &dyn Fn() -> Outcome = if matches!(through, Through::Events { .. }) { &delivered } else { &hopeless };
    bench.events(6, outcome);
    bench.clocks.now += 5;
    let mut attempts: BTreeMap<u64, u32> = BTreeMap::new();
    let (mut next, mut crashes, mut kept) = (bench.manage(ask(1, 1, through.clone())).claims, 0, Vec::new());
    bench.disk.light(fuse);
    loop {
        for claim in next.drain(..) {
            *attempts.entry(claim.job.seq.0).or_default() += 1;
            kept.push(super::settle(&claim, delivered()));
        }
        let settles = kept.clone();
        let idle = settles.is_empty();
        let turn = bench.turn(&crate::model::Asked { settles, ..Default::default() });
        if bench.disk.is_cut() {
            bench.disk.power_cycle();
            bench.disk.heal();
            kept.clear();
            crashes += 1;
            bench.start_again().unwrap();
            continue;
        }
        match turn {
            Ok(applied) => {
                kept.clear();
                let ends = applied.claims.is_empty() && idle && !applied.more;
                next = applied.claims;
                if ends {
                    break;
                }
            }
            Err(_) => {
                bench.disk.heal();
                let now = bench.hub.clock.now(&bench.clocks);
                bench.hub.engine.reopen(now).unwrap();
            }
        }
    }
    let met = !bench.disk.is_armed();
    let dump = Dump::of(&bench.disk).unwrap();
    assert_eq!((dump.jobs.len(), dump.dead.len(), dump.replays.len()), (0, 0, 0), "{what}");
    let purged = matches!(through, Through::DeadLetters { end: DeadEnd::Purge, .. });
    let expected: Vec<u64> = if purged { Vec::new() } else { (1..=6).collect() };
    assert_eq!(attempts.keys().copied().collect::<Vec<_>>(), expected, "{what}");
    let most = attempts.values().max().copied().unwrap_or(0);
    assert!(most <= 1 + crashes, "{what}: {attempts:?} with {crashes} crashes");
    met
}
