//! Single stories, step by step, on a bench: a hub whose every step is written down in the test.

mod backlog;
mod health;
mod replays;
mod stories;
mod sweep;

use crate::chance::Chance;
use crate::disk::SimDisk;
use crate::dump::Dump;
use crate::hub::{Hub, batch};
use crate::model::{Ask, AskAdmit, AskChange, Asked, Record};
use crate::options::{Faults, Options};
use crate::receiver::outcome;
use crate::world::Clocks;
use std::collections::BTreeMap;
use std::sync::Arc;
use streaming_hub::engine::command::{Managed, PartitionStep};
use streaming_hub::engine::{Applied, ReplayPace};
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{EventId, SubscriptionId};
use streaming_hub::model::job::{Claim, Outcome, Settle};
use streaming_hub::model::subscription::{
    DeliveryOrder, EventPattern, SignatureFormat, Sink, Spec, StartFrom, WebhookSink,
};
use streaming_hub::rules::autodisable::AutoDisablePolicy;
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
        replay: ReplayPace::default(),
        loads: 1,
        body_bytes: 1 << 20,
        lease_ms: 70_000,
        pool_delay_ms: 0,
        breaker: BreakerPolicy { failures: 5, cooling_ms: 1_000, cooling_max_ms: 8_000 },
        autodisable: AutoDisablePolicy::default(),
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

    /// The process is killed and started again. (Two that are open at once would write over each other; in the daemon a lock keeps the
    /// second one out.)
    fn start_again(&mut self) -> Result<(), StoreError> {
        self.disk.kill();
        self.hub = Hub::start(&self.disk, &self.options, &mut Chance::of(2), &self.clocks)?;
        Ok(())
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

    /// Turns until nothing more wants to be done; what was claimed.
    fn until_still(&mut self, mut applied: Applied) -> Vec<Claim> {
        let mut claims = std::mem::take(&mut applied.claims);
        while applied.more {
            applied = self.nothing();
            claims.append(&mut applied.claims);
        }
        claims
    }

    /// What waits, and what of it is in memory.
    fn waiting(&mut self) -> (u64, u64) {
        let applied = self.manage(Ask::InspectHub);
        match &applied.manages[0] {
            Ok(Managed::Hub(hub)) => (hub.unfinished - hub.in_flight, hub.in_memory),
            other => panic!("{other:?}"),
        }
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
