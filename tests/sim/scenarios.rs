//! Single stories, step by step: the smallest form of what the seeds have found, and every operation of one commit failing in turn.

use crate::chance::Chance;
use crate::disk::{Effect, Fuse, SimDisk};
use crate::dump::Dump;
use crate::hub::{Hub, Shown, batch};
use crate::model::{Ask, AskAdmit, AskChange, Asked, Record};
use crate::options::{Faults, Options};
use crate::receiver::outcome;
use crate::world::Clocks;
use std::collections::BTreeMap;
use std::sync::Arc;
use streaming_hub::dispatch::pool::Step;
use streaming_hub::engine::Applied;
use streaming_hub::engine::command::PartitionStep;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{ClaimNo, EventId, SubscriptionId};
use streaming_hub::model::job::{Claim, Outcome, Settle};
use streaming_hub::model::subscription::{
    DeliveryOrder, EventPattern, SignatureFormat, Sink, Spec, StartFrom, WebhookSink,
};
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::rules::outcome::Told;
use streaming_hub::store::StoreError;
use streaming_hub::time::Timestamp;

/// A hub whose every step is written down in the test.
struct Bench {
    options: Options,
    disk: SimDisk,
    clocks: Clocks,
    hub: Hub,
    offset: i64,
}

fn options() -> Options {
    Options {
        tenants: 1,
        partitions: 1,
        subscriptions: 1,
        records: 0,
        acting_ms: 0,
        slots: 8,
        claim_batch: 8,
        recent_bytes: 1 << 20,
        pending_max: 1_000,
        loads: 1,
        body_bytes: 1 << 20,
        lease_ms: 70_000,
        pool_delay_ms: 0,
        breaker: BreakerPolicy { failures: 5, cooling_ms: 1_000, cooling_max_ms: 8_000 },
        schedule: vec![0, 100, 100],
        cache_bytes: 1 << 20,
        quick_repair_above: u64::MAX,
        faults: Faults::default(),
        planted: None,
    }
}

impl Bench {
    fn new(options: Options) -> Self {
        let disk = SimDisk::new(1);
        let clocks = Clocks { now: 1, wall_ahead: 0 };
        let hub = Hub::start(&disk, &options, &mut Chance::of(1), &clocks).unwrap();
        Self { options, disk, clocks, hub, offset: 0 }
    }

    fn start_again(&mut self) {
        self.hub = Hub::start(&self.disk, &self.options, &mut Chance::of(2), &self.clocks).unwrap();
    }

    fn turn(&mut self, asked: &Asked) -> Result<Applied, StoreError> {
        self.clocks.now += 1;
        let now = self.hub.clock.now(&self.clocks);
        let wall = Timestamp(now.0);
        self.hub.engine.apply(now, wall, &mut batch(asked, wall))
    }

    fn manage(&mut self, ask: Ask) -> Applied {
        self.turn(&Asked { manages: vec![ask], ..Asked::default() }).unwrap()
    }

    fn settle(&mut self, claim: &Claim, outcome: Outcome) -> Applied {
        let settles = vec![settle(claim, outcome)];
        self.turn(&Asked { settles, ..Asked::default() }).unwrap()
    }

    fn nothing(&mut self) -> Applied {
        self.turn(&Asked::default()).unwrap()
    }

    /// Makes and proves a subscription; what is claimed at once.
    fn subscribe(&mut self, number: u8, spec: Spec) -> Applied {
        let url = crate::model::manage::url(&spec.sink);
        self.manage(Ask::Create { id: sub_id(number), tenant: tenant_of(number), spec: Box::new(spec) });
        self.change(number, AskChange::Verified { url })
    }

    fn change(&mut self, number: u8, change: AskChange) -> Applied {
        self.manage(Ask::Change { id: sub_id(number), tenant: tenant_of(number), if_revision: None, change })
    }

    /// So many more records of the one partition.
    fn records(&mut self, resource: &str, count: i64) -> AskAdmit {
        let from = (self.offset > 0).then_some(self.offset);
        let records = (0..count).map(|n| Record::Event(event(resource, self.offset + n))).collect();
        self.offset += count;
        let step = PartitionStep {
            topic: "lerian.streaming.ledger".into(),
            topic_id: [1; 16],
            partition: 0,
            from,
            next: self.offset,
            leader_epoch: 1,
            gaps: Vec::new(),
        };
        AskAdmit { from: Some(step), records }
    }

    fn admit(&mut self, resource: &str, count: i64) -> Applied {
        let admits = vec![self.records(resource, count)];
        self.turn(&Asked { admits, ..Asked::default() }).unwrap()
    }

    /// Seqs of the jobs that are left.
    fn left(&self) -> Vec<u64> {
        Dump::of(&self.disk).unwrap().jobs.values().map(|job| job.seq.0).collect()
    }
}

/// Resource type of the events of a second tenant.
const SLOW: &str = "slow";

/// Subscription 9 is the second tenant's.
fn tenant_of(number: u8) -> String {
    if number == 9 { SLOW } else { "t" }.to_owned()
}

fn sub_id(number: u8) -> SubscriptionId {
    SubscriptionId([number; 16])
}

fn event(resource: &str, number: i64) -> Arc<Event> {
    Arc::new(Event {
        id: EventId(uuid_of(number)),
        tenant: if resource == SLOW { "slow" } else { "t" }.into(),
        source: "ledger".into(),
        resource: resource.into(),
        event: "paid".into(),
        time: "2026-11-30T12:00:00Z".into(),
        schema_version: "1".into(),
        schema_major: 1,
        subject: None,
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: None,
        tracestate: None,
        extensions: Vec::new(),
        body: "{}".into(),
    })
}

fn uuid_of(number: i64) -> [u8; 16] {
    let mut id = [7; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    id
}

fn spec(url: &str, order: DeliveryOrder, max_in_flight: u16) -> Spec {
    Spec {
        name: "s".to_owned(),
        description: None,
        event_types: vec![EventPattern::All],
        origin: None,
        schema_major: None,
        sink: Sink::Webhook(WebhookSink {
            url: url.to_owned(),
            headers: Vec::new(),
            timeout_ms: None,
            signature_format: SignatureFormat::Lerian,
            client_certificate: None,
        }),
        start_from: StartFrom::Now,
        retry_schedule: None,
        verification_echo: true,
        delivery_order: order,
        max_in_flight,
        rate_limit: None,
        metadata: BTreeMap::new(),
    }
}

fn fifo(url: &str) -> Spec {
    spec(url, DeliveryOrder::Fifo, 1)
}

fn parallel(url: &str) -> Spec {
    spec(url, DeliveryOrder::Parallel, 256)
}

fn settle(claim: &Claim, outcome: Outcome) -> Settle {
    Settle { claim: claim.no, key: claim.job.key, generation: claim.generation, outcome }
}

fn answer(status: u16, duration_ms: u64) -> Outcome {
    let told = Told { status: Some(status), error: None, retry_after: None };
    outcome(&told, Timestamp(0), duration_ms)
}

fn delivered() -> Outcome {
    answer(200, 5)
}

fn blocked() -> Outcome {
    let told = Told { status: None, error: Some(ErrorClass::DestinationBlocked), retry_after: None };
    outcome(&told, Timestamp(0), 5)
}

fn seqs(applied: &Applied) -> Vec<u64> {
    applied.claims.iter().map(|claim| claim.job.seq.0).collect()
}

// Invariants 2, 12, 18: whatever operation of a commit fails or is the last before the power goes, nothing is lost, an outcome that was
// received counts, and only a crash repeats anything.
#[test]
fn every_operation_of_a_commit_may_be_the_one_that_fails() {
    for quick_repair_above in [0, u64::MAX] {
        for effect in [Effect::Fail { more: 0 }, Effect::Fail { more: 2 }, Effect::CutBefore, Effect::CutAfter] {
            let mut after = 0;
            while meets_fault(quick_repair_above, Fuse { after, effect }) {
                after += 1;
            }
            assert!(after > 5, "a commit has more than {after} operations: {effect:?}");
        }
    }
}

/// Two lanes, an outcome of one, the next claim of it, and new events, all in a commit that meets the fault. Whether it did.
fn meets_fault(quick_repair_above: u64, fuse: Fuse) -> bool {
    let mut bench = Bench::new(Options { quick_repair_above, ..options() });
    bench.subscribe(1, fifo("https://a.example/"));
    bench.subscribe(2, parallel("https://b.example/"));
    let mut attempts: BTreeMap<(u32, u64), u32> = BTreeMap::new();
    let mut in_flight: BTreeMap<ClaimNo, Claim> = BTreeMap::new();
    let mut begin = |applied: Applied, in_flight: &mut BTreeMap<ClaimNo, Claim>| {
        for claim in applied.claims {
            *attempts.entry((claim.job.key.sub.0, claim.job.seq.0)).or_default() += 1;
            in_flight.insert(claim.no, claim);
        }
    };
    begin(bench.admit("loan", 2), &mut in_flight);
    let ended: Vec<Claim> = in_flight.values().filter(|claim| claim.job.seq.0 == 1).cloned().collect();
    let mut settles: Vec<Settle> = ended.iter().map(|claim| settle(claim, delivered())).collect();
    let admits = vec![bench.records("loan", 2)];
    bench.disk.light(fuse);
    let failed = bench.turn(&Asked { settles: settles.clone(), admits: admits.clone(), ..Asked::default() });
    let mut crashed = 0;
    match failed {
        Ok(applied) => {
            for claim in ended {
                in_flight.remove(&claim.no);
            }
            settles.clear();
            begin(applied, &mut in_flight);
        }
        Err(_) if bench.disk.is_cut() => {
            bench.disk.power_cycle();
            bench.start_again();
            settles.clear();
            in_flight.clear();
            crashed = 1;
        }
        Err(_) => while bench.hub.engine.reopen(bench.hub.clock.now(&bench.clocks)).is_err() {},
    }
    let met = bench.offset > 0 && (crashed > 0 || !settles.is_empty());
    bench.disk.heal();
    // The outcomes that were kept, the records read again from the position, and everything that is claimed is delivered.
    let position = bench.hub.engine.reader().view().unwrap().positions().unwrap()[0].next;
    let again = if position == 2 { admits } else { Vec::new() };
    for claim in settles.iter().map(|settle| settle.claim) {
        in_flight.remove(&claim);
    }
    begin(bench.turn(&Asked { settles, admits: again, ..Asked::default() }).unwrap(), &mut in_flight);
    while let Some((_, claim)) = in_flight.pop_first() {
        begin(bench.settle(&claim, delivered()), &mut in_flight);
    }
    assert_eq!(bench.left(), Vec::<u64>::new(), "{fuse:?}: jobs are left with nobody at work on them");
    let expected: Vec<(u32, u64)> = (1..=2).flat_map(|sub| (1..=4).map(move |seq| (sub, seq))).collect();
    assert_eq!(attempts.keys().copied().collect::<Vec<_>>(), expected, "{fuse:?}");
    for (job, count) in &attempts {
        assert!(*count <= 1 + crashed, "{fuse:?}: {job:?} was attempted {count} times after {crashed} crashes");
    }
    met
}

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
