//! The API's clients: they create, prove, change, pause, delete and redrive, with what the hub shows them.

use crate::chance::Chance;
use crate::model::{Ask, AskChange};
use std::sync::Arc;
use streaming_hub::engine::board::Board;
use streaming_hub::engine::command::{DeadEnd, LetterEnd, Through};
use streaming_hub::model::ids::{KeyId, ReplayId, Seq, SubscriptionId};
use streaming_hub::model::job::DeadReason;
use streaming_hub::model::replay::DeadFilter;
use streaming_hub::model::subscription::{
    DeliveryOrder, EventPattern, RateLimit, SignatureFormat, Sink, Spec, StartFrom, Subscription, WebhookSink,
};
use streaming_hub::store::view::Reader;
use streaming_hub::time::{HubTime, Timestamp};

/// All clients.
pub struct Clients {
    chance: Chance,
    tenants: Vec<String>,
    wanted: usize,
}

impl Clients {
    /// They want so many subscriptions in all.
    pub fn new(chance: Chance, tenants: Vec<String>, wanted: usize) -> Self {
        Self { chance, tenants, wanted }
    }

    /// Every destination there is.
    pub fn urls(&self) -> Vec<String> {
        let of = |tenant: &String| (0..3).map(|n| url(tenant, n)).collect::<Vec<_>>();
        self.tenants.iter().flat_map(of).collect()
    }

    /// The first subscription: made and proven at the start.
    pub fn create(&mut self, wall: u64) -> Ask {
        let tenant = self.chance.pick(&self.tenants);
        Ask::Create { id: SubscriptionId(self.chance.uuid(wall)), spec: Box::new(self.spec(&tenant, wall)), tenant }
    }

    /// Proves one that is not.
    pub fn verify(&self, board: &Board) -> Vec<Ask> {
        let pending = self.all(board).into_iter().filter(|sub| !sub.is_live());
        pending.map(|sub| change(&sub, None, AskChange::Verified { url: sub_url(&sub) })).collect()
    }

    /// Lifts every pause.
    pub fn resume(&self, board: &Board) -> Vec<Ask> {
        self.all(board).iter().map(|sub| change(sub, None, AskChange::Resume)).collect()
    }

    /// What a client does now.
    pub fn act(&mut self, board: &Board, reader: &Reader, wall: u64) -> Vec<Ask> {
        let all = self.all(board);
        if all.len() < self.wanted && (all.is_empty() || self.chance.permille(500)) {
            return vec![self.create(wall)];
        }
        if all.is_empty() {
            return Vec::new();
        }
        let sub = self.chance.pick(&all);
        let revision = self.chance.permille(300).then_some(sub.revision - u64::from(self.chance.permille(300)));
        match self.chance.below(29) {
            0..=5 => self.verify(board),
            6 | 7 => vec![change(&sub, revision, AskChange::Pause)],
            8..=10 => vec![change(&sub, revision, AskChange::Resume)],
            11..=14 => vec![change(&sub, revision, self.patch(&sub, wall))],
            15 if self.chance.permille(500) => vec![Ask::Delete { id: sub.id, tenant: sub.tenant.clone() }],
            // Another tenant's is as if it did not exist (A1.3).
            15 => vec![Ask::Delete { id: sub.id, tenant: "stranger".to_owned() }],
            16 => vec![Ask::Key(KeyId(self.chance.uuid(wall)))],
            17 => vec![Ask::Inspect(sub.no), Ask::InspectHub],
            18 => vec![change(&sub, revision, self.rotate(wall))],
            19 | 20 => self.redrive(reader),
            21 => self.letter(reader),
            22 | 23 => vec![self.cancel(&sub, reader)],
            _ => vec![self.replay(&sub, wall)],
        }
    }

    /// Any kind of bulk work, over any range.
    fn replay(&mut self, sub: &Subscription, wall: u64) -> Ask {
        let chance = &mut self.chance;
        let from = chance.within(1, 60);
        let which = DeadFilter {
            reason: chance.permille(200).then_some(DeadReason::Exhausted),
            died_from: chance.permille(100).then_some(HubTime(wall.saturating_sub(10_000))),
            died_to: chance.permille(100).then_some(HubTime(wall.saturating_sub(1_000))),
        };
        let through = match chance.below(8) {
            0..=2 => Through::Events { from: Seq(from), to: Seq(from + chance.within(0, 60)) },
            3 => Through::Skipped { upto: Seq(u64::MAX) },
            4 => Through::Skipped { upto: Seq(from) },
            5 => Through::DeadLetters { end: DeadEnd::Replay, which },
            6 => Through::DeadLetters { end: DeadEnd::Redrive, which },
            _ => Through::DeadLetters { end: DeadEnd::Purge, which },
        };
        let only = if chance.permille(250) { vec![EventPattern::Resource("loan".to_owned())] } else { Vec::new() };
        let replay = ReplayId(chance.uuid(wall));
        Ask::Replay { id: sub.id, tenant: sub.tenant.clone(), replay, through, only }
    }

    /// One that the hub shows, or one that never was.
    fn cancel(&mut self, sub: &Subscription, reader: &Reader) -> Ask {
        let shown = reader.view().and_then(|view| view.replays_of(sub.no, None, 5)).unwrap_or_default();
        let ids: Vec<ReplayId> = shown.iter().map(|replay| replay.id).chain([ReplayId([0; 16])]).collect();
        Ask::Cancel { id: sub.id, tenant: sub.tenant.clone(), replay: self.chance.pick(&ids) }
    }

    fn letter(&mut self, reader: &Reader) -> Vec<Ask> {
        let Ok(dead) = reader.view().and_then(|view| view.dead_letters(None, 8)) else { return Vec::new() };
        let letters: Vec<_> = dead.into_iter().map(|row| (row.sub, row.log, row.letter.seq)).collect();
        if letters.is_empty() {
            return Vec::new();
        }
        let (sub, log, seq) = self.chance.pick(&letters);
        let end = self.chance.pick(&[LetterEnd::Redrive, LetterEnd::Purge]);
        vec![Ask::Letter { sub, log, seq, end }]
    }

    fn redrive(&mut self, reader: &Reader) -> Vec<Ask> {
        let Ok(dead) = reader.view().and_then(|view| view.dead_letters(None, 8)) else { return Vec::new() };
        let which: Vec<_> = dead.into_iter().map(|row| (row.sub, row.log, row.letter.seq)).collect();
        if which.is_empty() { Vec::new() } else { vec![Ask::Redrive(which)] }
    }

    fn patch(&mut self, sub: &Subscription, wall: u64) -> AskChange {
        let mut spec = sub.spec.clone();
        let fresh = self.spec(&sub.tenant, wall);
        match self.chance.below(5) {
            0 => spec.event_types = fresh.event_types,
            1 => spec.sink = fresh.sink,
            2 => spec.retry_schedule = fresh.retry_schedule,
            3 => spec.rate_limit = fresh.rate_limit,
            _ => {
                spec.delivery_order = fresh.delivery_order;
                spec.max_in_flight = fresh.max_in_flight;
            }
        }
        AskChange::Spec { spec: Box::new(spec), proven: self.chance.permille(500) }
    }

    fn rotate(&mut self, wall: u64) -> AskChange {
        AskChange::Rotate { old_until: self.chance.permille(600).then_some(Timestamp(wall + 20_000)) }
    }

    fn spec(&mut self, tenant: &str, wall: u64) -> Spec {
        let chance = &mut self.chance;
        let order =
            chance.pick(&[DeliveryOrder::Fifo, DeliveryOrder::Fifo, DeliveryOrder::Strict, DeliveryOrder::Parallel]);
        let parallel = order == DeliveryOrder::Parallel;
        let exact = |resource: &str, event: &str| EventPattern::Exact(resource.to_owned(), event.to_owned());
        let patterns = [
            vec![EventPattern::All],
            vec![EventPattern::All],
            vec![exact("loan", "paid"), exact("account", "opened")],
            vec![EventPattern::Resource("loan".to_owned())],
            vec![EventPattern::Event("closed".to_owned()), exact("loan", "closed")],
        ];
        Spec {
            name: "sim".to_owned(),
            description: None,
            event_types: chance.pick(&patterns),
            origin: chance.permille(150).then(|| "ledger".to_owned()),
            schema_major: chance.permille(150).then_some(1),
            sink: Sink::Webhook(WebhookSink {
                url: url(tenant, chance.below(3)),
                headers: Vec::new(),
                timeout_ms: None,
                signature_format: SignatureFormat::Lerian,
                client_certificate: None,
            }),
            start_from: match chance.below(6) {
                0 => StartFrom::Earliest,
                1 => StartFrom::Seq(chance.within(0, 20)),
                2 => StartFrom::Time(Timestamp(wall.saturating_sub(5_000))),
                _ => StartFrom::Now,
            },
            retry_schedule: match chance.below(4) {
                0 => Some(vec![0, 100, 3_000]),
                1 => Some(vec![700, 700]),
                _ => None,
            },
            verification_echo: true,
            delivery_order: order,
            max_in_flight: if parallel { chance.pick(&[1, 2, 5, 256]) } else { 1 },
            rate_limit: chance.permille(100).then_some(RateLimit { per_second: 5, burst: 3 }),
            metadata: std::collections::BTreeMap::new(),
        }
    }

    fn all(&self, board: &Board) -> Vec<Arc<Subscription>> {
        self.tenants.iter().flat_map(|tenant| board.subscriptions_of(tenant, None, usize::MAX)).collect()
    }
}

/// The URL of a subscription's webhook.
pub fn sub_url(sub: &Subscription) -> String {
    crate::model::manage::url(&sub.spec.sink)
}

fn change(sub: &Subscription, if_revision: Option<u64>, change: AskChange) -> Ask {
    Ask::Change { id: sub.id, tenant: sub.tenant.clone(), if_revision, change }
}

/// A destination of a tenant; the first one is another path of a host that tenants share.
fn url(tenant: &str, number: usize) -> String {
    match number {
        0 => "https://shared.example/hooks".to_owned(),
        _ => format!("https://{tenant}.example/hook{number}"),
    }
}
