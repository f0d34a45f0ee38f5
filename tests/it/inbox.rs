//! The inbox and matching, on the real engine over a real file: what is stored once, what is matched, and when.

use std::sync::Arc;
use streaming_hub::engine::command::{
    Action, Admit, AdmitFrom, AdmitResult, Change, Judged, Manage, Managed, NewSubscription, PartitionStep, Refusal,
};
use streaming_hub::engine::{Applied, Batch, Engine, EngineSettings, ReplayPace};
use streaming_hub::entropy::Entropy;
use streaming_hub::model::attempt::AttemptRecord;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, EventId, Seq, SubscriptionId};
use streaming_hub::model::job::{Claim, Outcome, Settle};
use streaming_hub::model::space::Room;
use streaming_hub::model::subscription::{
    DeliveryOrder, EventPattern, RateLimit, Sealed, SignatureFormat, Sink, Spec, StartFrom, WebhookSink,
};
use streaming_hub::rules::autodisable::AutoDisablePolicy;
use streaming_hub::rules::backoff::Schedule;
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::store::disk::FileDisk;
use streaming_hub::store::{Birth, Store, StoreSettings};
use streaming_hub::time::{HubTime, Timestamp};

struct World {
    engine: Engine,
    now: u64,
    positions: std::collections::HashMap<(&'static str, i32), i64>,
    subscriptions: u8,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self::over(tempfile::tempdir().unwrap(), None)
    }

    /// The same store in a process that is started with that tenant.
    fn restarted(self, only_tenant: Option<&str>) -> Self {
        drop(self.engine);
        let again = Self::over(self._folder, only_tenant);
        Self { positions: self.positions, subscriptions: self.subscriptions, ..again }
    }

    fn over(folder: tempfile::TempDir, only_tenant: Option<&str>) -> Self {
        let disk = Arc::new(FileDisk::take(folder.path()).unwrap());
        let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: 1 << 30 };
        let store = Store::open(disk, settings, &Birth { store_id: [1; 16], delivery_key: [2; 32] }).unwrap();
        let settings = EngineSettings { only_tenant: only_tenant.map(Into::into), ..engine_settings() };
        let now = 1_700_000_000_000;
        let chance = Entropy::from_seed(1);
        let engine = Engine::open(store, Arc::default(), settings, chance, HubTime(now)).unwrap();
        let positions = std::collections::HashMap::new();
        Self { engine, now, positions, subscriptions: 0, _folder: folder }
    }

    fn apply(&mut self, mut batch: Batch) -> Applied {
        self.engine.apply(HubTime(self.now), Timestamp(self.now), &mut batch).unwrap()
    }

    /// Stores events of a partition; what became of each, and what was claimed at once.
    fn store(&mut self, topic: &'static str, partition: i32, events: Vec<Event>) -> (Vec<AdmitResult>, Vec<Claim>) {
        let from = self.positions.get(&(topic, partition)).copied();
        let next = from.unwrap_or(0) + i64::try_from(events.len()).unwrap();
        let step = PartitionStep {
            topic: topic.into(),
            topic_id: [0; 16],
            partition,
            from,
            next,
            leader_epoch: 0,
            gaps: Vec::new(),
        };
        self.positions.insert((topic, partition), next);
        let records = events.into_iter().map(|event| Judged::Event(Box::new(event))).collect();
        let admits = vec![Admit { from: AdmitFrom::Partition(step), records }];
        let mut applied = self.apply(Batch { admits, ..Batch::default() });
        (applied.admits.remove(0).unwrap().results, applied.claims)
    }

    fn manage(&mut self, action: Action) -> Result<Managed, Refusal> {
        let manages = vec![Manage { action, idempotency: None }];
        self.apply(Batch { manages, ..Batch::default() }).manages.remove(0)
    }

    fn create(&mut self, tenant: &str, spec: Spec) -> SubscriptionId {
        self.subscriptions += 1;
        let id = SubscriptionId([self.subscriptions; 16]);
        let new = NewSubscription { id, tenant: tenant.into(), spec, secret: Sealed(vec![]), at: Timestamp(self.now) };
        self.manage(Action::CreateSubscription(Box::new(new))).unwrap();
        id
    }

    fn change(&mut self, tenant: &str, id: SubscriptionId, change: Change) {
        let action = Action::ChangeSubscription { tenant: tenant.into(), id, if_revision: None, change };
        self.manage(action).unwrap();
    }

    fn subscribe(&mut self, tenant: &str, spec: Spec) -> SubscriptionId {
        let sink = Box::new(spec.sink.clone());
        let id = self.create(tenant, spec);
        self.change(tenant, id, Change::Verified { sink, at: Timestamp(self.now) });
        id
    }

    fn deliver(&mut self, claims: &[Claim]) -> Vec<Claim> {
        let settles = claims.iter().map(|claim| Settle {
            claim: claim.no,
            key: claim.job.key,
            generation: claim.generation,
            outcome: Outcome::Delivered(AttemptRecord {
                delivery: DeliveryId([0; 16]),
                at: Timestamp(self.now),
                duration_ms: 1,
                status: Some(200),
                error: None,
                answer: Vec::new(),
            }),
        });
        let settles = settles.collect();
        self.apply(Batch { settles, ..Batch::default() }).claims
    }
}

pub(crate) fn engine_settings() -> EngineSettings {
    EngineSettings {
        slots: 16,
        claim_batch: 16,
        poison_threshold: 5,
        breaker: BreakerPolicy { failures: 5, cooling_ms: 30_000, cooling_max_ms: 600_000 },
        autodisable: AutoDisablePolicy::default(),
        schedule: Schedule::default_curve(),
        pending_max: 1000,
        poison_max_bytes: 1 << 20,
        poison_retention_ms: 1 << 40,
        only_tenant: None,
        recent_bytes: 1 << 20,
        replay: ReplayPace::default(),
        planted: None,
    }
}

pub(crate) fn spec(event_types: Vec<EventPattern>) -> Spec {
    Spec {
        name: "test".to_owned(),
        description: None,
        event_types,
        origin: None,
        schema_major: None,
        sink: Sink::Webhook(WebhookSink {
            url: "https://example.com/hook".to_owned(),
            headers: Vec::new(),
            timeout_ms: None,
            signature_format: SignatureFormat::Lerian,
            client_certificate: None,
        }),
        start_from: StartFrom::Now,
        retry_schedule: None,
        verification_echo: true,
        delivery_order: DeliveryOrder::Fifo,
        max_in_flight: 1,
        rate_limit: None,
        metadata: std::collections::BTreeMap::new(),
    }
}

pub(crate) fn event(id: u8, tenant: &str, body: &'static str) -> Event {
    Event {
        id: EventId([id; 16]),
        tenant: tenant.into(),
        source: "lender".into(),
        resource: "loan".into(),
        event: "paid".into(),
        time: "2026-11-30T12:00:00Z".into(),
        schema_version: "1.0.0".into(),
        schema_major: 1,
        subject: None,
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: None,
        tracestate: None,
        extensions: Vec::new(),
        body: body.into(),
    }
}

fn stored(seq: u64, jobs: u32) -> AdmitResult {
    AdmitResult::Stored { seq: Seq(seq), jobs }
}

// C3.2, C3.3: whatever the topic and partition; another tenant's is another event
#[test]
fn an_id_is_stored_once_in_its_tenant() {
    let mut world = World::new();
    let (results, _) = world.store("lerian.streaming.lender", 0, vec![event(1, "a", "{}"), event(1, "a", "{}")]);
    let duplicate = |conflict| AdmitResult::Duplicate { seq: Some(Seq(1)), conflict };
    assert_eq!(results, [stored(1, 0), duplicate(false)]);
    let events = vec![event(1, "a", "{}"), event(1, "a", "[]"), event(1, "b", "{}"), event(2, "a", "{}")];
    let (results, _) = world.store("lerian.streaming.midaz", 3, events);
    assert_eq!(results, [duplicate(false), duplicate(true), stored(1, 0), stored(2, 0)], "no seq went to a duplicate");
}

// C3.1: a reader that is behind what is stored is told so, and nothing of its step is written
#[test]
fn a_step_from_another_position_is_refused_whole() {
    let mut world = World::new();
    world.store("lerian.streaming.lender", 0, vec![event(1, "a", "{}")]);
    world.positions.clear();
    let step = PartitionStep {
        topic: "lerian.streaming.lender".into(),
        topic_id: [0; 16],
        partition: 0,
        from: None,
        next: 9,
        leader_epoch: 0,
        gaps: Vec::new(),
    };
    let records = vec![Judged::Event(Box::new(event(2, "a", "{}")))];
    let admits = vec![Admit { from: AdmitFrom::Partition(step), records }];
    let applied = world.apply(Batch { admits, ..Batch::default() });
    assert_eq!(applied.admits[0].as_ref().unwrap_err(), &Refusal::PositionMoved { stored: Some(1) });
    assert_eq!(applied.counts.accepted, 0);
}

// C4.2, C4.3, C4.4, C4.5
#[test]
fn only_live_subscriptions_of_the_tenant_are_matched_and_only_then() {
    let mut world = World::new();
    let pending = world.create("a", spec(vec![EventPattern::All]));
    world.subscribe("b", spec(vec![EventPattern::All]));
    world.subscribe("a", spec(vec![EventPattern::Resource("card".to_owned())]));
    let (results, claims) = world.store("lerian.streaming.lender", 0, vec![event(1, "a", "{}")]);
    assert_eq!((results, claims.len()), (vec![stored(1, 0)], 0), "nobody live of this tenant wants it");

    let sink = Box::new(spec(vec![]).sink);
    world.change("a", pending, Change::Verified { sink, at: Timestamp(world.now) });
    let (results, claims) = world.store("lerian.streaming.lender", 0, vec![event(2, "a", "{}")]);
    assert_eq!((results, claims.len()), (vec![stored(2, 1)], 1), "matched and claimed in one commit");

    world.change("a", pending, Change::Pause { at: Timestamp(world.now) });
    let (results, _) = world.store("lerian.streaming.lender", 0, vec![event(3, "a", "{}")]);
    assert_eq!(results, [stored(3, 0)]);
    world.change("a", pending, Change::Resume { at: Timestamp(world.now) });
    assert_eq!(world.deliver(&claims).len(), 0, "what was stored while it was paused is no job of it");
}

// C2.8, A1.2: nobody could see or stop it
#[test]
fn a_subscription_of_another_tenant_stands_still_in_a_single_tenant_hub() {
    let mut world = World::new();
    world.subscribe("former", spec(vec![EventPattern::All]));
    let (_, claims) =
        world.store("lerian.streaming.lender", 0, vec![event(1, "former", "{}"), event(2, "former", "{}")]);
    assert_eq!(claims.len(), 1, "one in flight, one waits");
    assert!(world.deliver(&claims).len() == 1);

    let mut world = world.restarted(Some("now"));
    assert_eq!(world.engine.subscriptions_of_other_tenants(), 1);
    let (results, claims) = world.store("lerian.streaming.lender", 0, vec![event(3, "former", "{}")]);
    assert_eq!(
        (results, claims.len()),
        (vec![stored(3, 0)], 0),
        "what waits is not attempted, what comes is not matched"
    );

    let mut world = world.restarted(Some("former"));
    assert_eq!(world.engine.subscriptions_of_other_tenants(), 0);
    let (results, claims) = world.store("lerian.streaming.lender", 0, vec![event(4, "former", "{}")]);
    assert_eq!((results, claims.len()), (vec![stored(4, 1)], 1), "what waited comes first");
    assert_eq!(claims[0].job.seq, Seq(2));
}

// C4.9
#[test]
fn a_rate_limit_delays_and_uses_no_step() {
    let mut world = World::new();
    let limited = Spec { rate_limit: Some(RateLimit { per_second: 2, burst: 1 }), ..spec(vec![EventPattern::All]) };
    world.subscribe("a", limited);
    let (_, first) = world.store("lerian.streaming.lender", 0, vec![event(1, "a", "1"), event(2, "a", "2")]);
    assert_eq!(first.len(), 1, "one token, one attempt");
    assert_eq!(world.deliver(&first).len(), 0, "the next token comes after half a second");
    world.now += 499;
    assert_eq!(world.apply(Batch::default()).claims.len(), 0);
    world.now += 1;
    let applied = world.apply(Batch::default());
    assert_eq!(applied.counts.first_waits_ms, [500], "what it waited is what is measured");
    let second = applied.claims;
    assert_eq!(second.iter().map(|claim| (claim.job.seq, claim.job.steps_used)).collect::<Vec<_>>(), [(Seq(2), 0)]);
}

// C13.4: nothing new is taken and nothing is changed, the position stays; what is waiting is delivered
#[test]
fn a_disk_that_is_nearly_full_takes_nothing_new_and_deliveries_go_on() {
    let mut world = World::new();
    world.subscribe("a", spec(vec![EventPattern::All]));
    let topic = "lerian.streaming.lender";
    let (_, first) = world.store(topic, 0, vec![event(1, "a", "1"), event(2, "a", "2")]);
    assert_eq!(first.len(), 1);
    for room in [Room::Low, Room::Full] {
        world.engine.set_room(room);
        let step = PartitionStep {
            topic: topic.into(),
            topic_id: [0; 16],
            partition: 0,
            from: Some(2),
            next: 3,
            leader_epoch: 0,
            gaps: Vec::new(),
        };
        let records = vec![Judged::Event(Box::new(event(3, "a", "3")))];
        let admits = vec![Admit { from: AdmitFrom::Partition(step), records }];
        let applied = world.apply(Batch { admits, ..Batch::default() });
        assert_eq!(applied.admits[0].as_ref().unwrap_err(), &Refusal::DiskLow);
        let id = SubscriptionId([1; 16]);
        let pause = Change::Pause { at: Timestamp(world.now) };
        let pause = Action::ChangeSubscription { tenant: "a".into(), id, if_revision: None, change: pause };
        assert_eq!(world.manage(pause).unwrap_err(), Refusal::DiskLow);
        assert!(matches!(world.manage(Action::InspectHub), Ok(Managed::Hub(hub)) if hub.unfinished == 2));
    }
    let second = world.deliver(&first);
    assert_eq!(second.len(), 1, "an outcome is stored, and the next one is claimed");
    world.engine.set_room(Room::Enough);
    let (results, _) = world.store(topic, 0, vec![event(3, "a", "3")]);
    assert_eq!(results, [stored(3, 1)], "from the same position");
}

// C2.1: a body that is no JSON, and no text, is stored and claimed as any other
#[test]
fn bodies_are_bytes() {
    let mut world = World::new();
    world.subscribe("a", spec(vec![EventPattern::Exact("loan".to_owned(), "paid".to_owned())]));
    let odd = Event { body: bytes::Bytes::from_static(b"\x00\xff{"), ..event(1, "a", "") };
    let (_, claims) = world.store("lerian.streaming.lender", 0, vec![odd.clone()]);
    assert_eq!(claims[0].job.event.as_deref(), Some(&odd));
}
