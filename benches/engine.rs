//! What the writer can do on this machine's disk: admit in batches of 1, 16, 256 and 1024 into an empty store and into one with
//! events stored already, jobs from match to settle, and a backlog that is delivered, in memory or mostly not.
//!
//! `cargo bench --bench engine` prints one line a measurement. `BENCH_STORED=2000000` sets how many events the full store holds
//! (default 200,000), `BENCH_FOLDER` where the store lies (default: the build folder).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench measures time, may fail loudly and prints its figures"
)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use streaming_hub::engine::board::Board;
use streaming_hub::engine::command::*;
use streaming_hub::engine::{Batch, Engine, EngineSettings, ReplayPace};
use streaming_hub::entropy::Entropy;
use streaming_hub::model::attempt::AttemptRecord;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, EventId, SubscriptionId};
use streaming_hub::model::job::{Claim, Outcome, Settle};
use streaming_hub::model::subscription::*;
use streaming_hub::rules::autodisable::AutoDisablePolicy;
use streaming_hub::rules::backoff::Schedule;
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::store::disk::FileDisk;
use streaming_hub::store::{Birth, Store, StoreSettings};
use streaming_hub::time::{HubTime, Timestamp};

const TENANTS: u64 = 1000;
const BODY: usize = 600;

struct World {
    engine: Engine,
    folder: PathBuf,
    now: u64,
    made: u64,
    next: i64,
    entropy: Entropy,
}

impl World {
    fn new(name: &str, pending_max: usize) -> Self {
        let base = std::env::var_os("BENCH_FOLDER").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let folder = base.join(format!("bench-engine-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        let disk = Arc::new(FileDisk::take(&folder).unwrap());
        let settings = StoreSettings { cache_bytes: 128 << 20, quick_repair_above: 256 << 20 };
        let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
        let store = Store::open(disk, settings, &birth).unwrap();
        let settings = EngineSettings {
            slots: 1024,
            claim_batch: 16,
            poison_threshold: 5,
            breaker: BreakerPolicy { failures: 5, cooling_ms: 30_000, cooling_max_ms: 600_000 },
            autodisable: AutoDisablePolicy::default(),
            schedule: Schedule::default_curve(),
            pending_max,
            poison_max_bytes: 1 << 28,
            poison_retention_ms: 1 << 40,
            only_tenant: None,
            recent_bytes: 16 << 20,
            replay: ReplayPace::default(),
            planted: None,
        };
        let now = 1_700_000_000_000;
        let board = Arc::new(Board::default());
        let engine = Engine::open(store, board, settings, Entropy::from_seed(1), HubTime(now)).unwrap();
        Self { engine, folder, now, made: 0, next: 0, entropy: Entropy::from_seed(2) }
    }

    fn events(&mut self, count: usize) -> Admit {
        let mut records = Vec::with_capacity(count);
        for _ in 0..count {
            self.made += 1;
            let tenant = format!("tenant-{:04}", self.made.wrapping_mul(2_654_435_761) % TENANTS);
            records.push(Judged::Event(Box::new(Event {
                id: EventId(self.entropy.uuid_v7(Timestamp(self.now + self.made / 20))),
                tenant: tenant.into(),
                source: "lender".into(),
                resource: "loan_application".into(),
                event: "approved".into(),
                time: "2026-11-30T12:00:00.123456789Z".into(),
                schema_version: "1.0.0".into(),
                schema_major: 1,
                subject: Some("loan-123456".into()),
                content_type: "application/json".into(),
                data_schema: None,
                traceparent: None,
                tracestate: None,
                extensions: Vec::new(),
                body: vec![b'x'; BODY].into(),
            })));
        }
        let from = (self.next > 0).then_some(self.next);
        self.next += count as i64;
        let topic = "lerian.streaming.lender".into();
        let step = PartitionStep {
            topic,
            topic_id: [0; 16],
            partition: 0,
            from,
            next: self.next,
            leader_epoch: 0,
            gaps: vec![],
        };
        Admit { from: AdmitFrom::Partition(step), records }
    }

    fn apply(&mut self, mut batch: Batch) -> Vec<Claim> {
        self.now += 1;
        let applied = self.engine.apply(HubTime(self.now), Timestamp(self.now), &mut batch).unwrap();
        for answer in applied.admits {
            answer.unwrap();
        }
        for answer in applied.manages {
            answer.unwrap();
        }
        applied.claims
    }

    fn subscribe(&mut self) {
        for tenant in 0..TENANTS {
            let id = SubscriptionId(self.entropy.uuid_v7(Timestamp(self.now)));
            let tenant: Arc<str> = format!("tenant-{tenant:04}").into();
            let sink = Sink::Webhook(WebhookSink {
                url: format!("https://example.com/{tenant}"),
                headers: vec![],
                timeout_ms: None,
                signature_format: SignatureFormat::Lerian,
                client_certificate: None,
            });
            let spec = Spec {
                name: String::new(),
                description: None,
                event_types: vec![EventPattern::All],
                origin: None,
                schema_major: None,
                sink: sink.clone(),
                start_from: StartFrom::Now,
                retry_schedule: None,
                verification_echo: true,
                delivery_order: DeliveryOrder::Fifo,
                max_in_flight: 1,
                rate_limit: None,
                metadata: Default::default(),
            };
            let at = Timestamp(self.now);
            let new = NewSubscription { id, tenant: tenant.clone(), spec, secret: Sealed(vec![0; 80]), at };
            let change = Change::Verified { sink: Box::new(sink), at };
            let create = Action::CreateSubscription(Box::new(new));
            let verify = Action::ChangeSubscription { tenant, id, if_revision: None, change };
            let manages = [create, verify].map(|action| Manage { action, idempotency: None });
            self.apply(Batch { manages: manages.into(), ..Batch::default() });
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn admits(name: &str, world: &mut World) {
    for size in [1usize, 16, 256, 1024] {
        let began = Instant::now();
        let cpu = cpu_seconds();
        let mut done = 0;
        while began.elapsed() < Duration::from_secs(4) {
            let admit = world.events(size);
            world.apply(Batch { admits: vec![admit], ..Batch::default() });
            done += size;
        }
        let took = began.elapsed().as_secs_f64();
        let cpu = (cpu_seconds() - cpu) * 1e6 / done as f64;
        println!(
            "admit {name} batch {size}: {:.0} events/s, {cpu:.1} us CPU an event, {:.2} ms a commit",
            done as f64 / took,
            took * 1000.0 * size as f64 / done as f64
        );
    }
}

/// All of a backlog is there before the first outcome.
fn drain(name: &str, world: &mut World) {
    world.subscribe();
    let events: usize = 200_000;
    let mut claims: Vec<Claim> = Vec::new();
    for _ in 0..events / 500 {
        let admits = vec![world.events(500)];
        claims.extend(world.apply(Batch { admits, ..Batch::default() }));
    }
    let began = Instant::now();
    let cpu = cpu_seconds();
    let (mut delivered, mut commits) = (0, 0);
    while delivered < events {
        let settles = delivered_all(world, &mut claims);
        delivered += settles.len();
        claims = world.apply(Batch { settles, ..Batch::default() });
        commits += 1;
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = (cpu_seconds() - cpu) * 1e6 / delivered as f64;
    println!("backlog {name}: {:.0} jobs/s, {cpu:.1} us CPU a job, {commits} commits", delivered as f64 / took);
}

fn delivered_all(world: &World, claims: &mut Vec<Claim>) -> Vec<Settle> {
    let settle = |claim: Claim| Settle {
        claim: claim.no,
        key: claim.job.key,
        generation: claim.generation,
        outcome: Outcome::Delivered(AttemptRecord {
            delivery: DeliveryId([0; 16]),
            at: Timestamp(world.now),
            duration_ms: 3,
            status: Some(200),
            error: None,
            answer: Vec::new(),
        }),
    };
    claims.drain(..).map(settle).collect()
}

fn settle_all(world: &mut World) {
    world.subscribe();
    let events: usize = 200_000;
    let began = Instant::now();
    let cpu = cpu_seconds();
    let mut claims: Vec<Claim> = Vec::new();
    let (mut admitted, mut delivered, mut commits) = (0, 0, 0);
    while delivered < events {
        let settles = delivered_all(world, &mut claims);
        delivered += settles.len();
        let admits = if admitted < events { vec![world.events(512)] } else { Vec::new() };
        admitted += admits.iter().map(|admit| admit.records.len()).sum::<usize>();
        claims = world.apply(Batch { settles, admits, ..Batch::default() });
        commits += 1;
    }
    let took = began.elapsed().as_secs_f64();
    let cpu = (cpu_seconds() - cpu) * 1e6 / delivered as f64;
    println!(
        "admit+claim+settle, {TENANTS} fifo lanes: {:.0} jobs/s, {cpu:.1} us CPU a job, {commits} commits",
        delivered as f64 / took
    );
    println!("store: {:.0} bytes an event", world.engine.store_bytes() as f64 / admitted as f64);
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn main() {
    const MANY: usize = 4_000_000;
    admits("empty", &mut World::new("empty", MANY));
    settle_all(&mut World::new("jobs", MANY));
    drain("in memory", &mut World::new("backlog", MANY));
    drain("of which a tenth is in memory", &mut World::new("backlog-long", 20_000));
    let stored: usize = std::env::var("BENCH_STORED").ok().map_or(200_000, |text| text.parse().unwrap());
    let mut world = World::new("stored", MANY);
    let began = Instant::now();
    for _ in 0..stored / 1024 {
        let admit = world.events(1024);
        world.apply(Batch { admits: vec![admit], ..Batch::default() });
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "filled {stored} events at {:.0}/s, {:.0} bytes an event",
        stored as f64 / took,
        world.engine.store_bytes() as f64 / stored as f64
    );
    admits("stored", &mut world);
}
