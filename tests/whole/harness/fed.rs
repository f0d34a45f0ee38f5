//! A hub that is fed over HTTP instead of by Kafka: quick to start, and each event is known to be in, or not, when the call returns.
//!
//! Every event is offered again until it was accepted, by whichever process runs then; so in the end all of them must have been
//! delivered, and the ledger judges them as it does a load from Kafka.

use super::hub::Hub;
use super::kafka::{Manifest, Row};
use super::ledger::judge;
use super::receiver::Receiver;
use super::{Chance, until_true, wall_us};
use serde_json::{Value, json};
use std::time::Duration;

/// How soon after the end of a fault everything must go on.
pub(crate) const HEALED: Duration = Duration::from_secs(10);
/// The longest that all deliveries may take.
const DELIVERED: Duration = Duration::from_secs(60);

/// The hub, its receiver, and what was offered so far.
pub(crate) struct Fed {
    pub(crate) hub: Hub,
    pub(crate) receiver: Receiver,
    tenants: Vec<String>,
    key: String,
    offered: Vec<Row>,
    chance: Chance,
}

/// What became of an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Offer {
    /// 202: it is stored.
    Accepted,
    /// Refused with that status and code.
    Refused(u16, String),
    /// No answer: whether it is stored is not known.
    NoAnswer(String),
}

impl Fed {
    /// A hub that does not run yet.
    pub(crate) fn stopped(tenants: u32, settings: &[(&str, &str)]) -> Self {
        let receiver = Receiver::start();
        let mut hub = Hub::new(receiver.port(), settings);
        hub.set("HTTP_INGEST_ENABLED", "true");
        let tenants = (0..tenants).map(|number| format!("tenant-{number:03}")).collect();
        // Each test its own events, the same in every run.
        Self { hub, receiver, tenants, key: String::new(), offered: Vec::new(), chance: Chance::new(1) }
    }

    /// A hub that runs, with a subscription of each tenant.
    pub(crate) fn new(tenants: u32, settings: &[(&str, &str)]) -> Self {
        let mut fed = Self::stopped(tenants, settings);
        fed.hub.start();
        fed.set_up(&json!({}));
        fed
    }

    /// Makes the key to feed it with, and the subscriptions: fifo, to everything, with something laid over.
    pub(crate) fn set_up(&mut self, more: &Value) {
        let api = self.hub.api();
        let made = api.done("POST", "/admin/api-keys", None, Some(&json!({ "name": "feed", "role": "ingest" })));
        self.key = made["key"].as_str().unwrap().to_owned();
        for tenant in &self.tenants {
            let made = api.subscribe(tenant, &self.receiver.url(tenant), more);
            self.receiver.learn(tenant, &made.secret);
        }
    }

    /// Its tenants.
    pub(crate) fn tenants(&self) -> &[String] {
        &self.tenants
    }

    /// Makes the next event: the tenants take turns. It counts as offered from now on.
    pub(crate) fn next(&mut self) -> Event {
        let at = self.offered.len();
        let tenant = self.tenants[at % self.tenants.len()].clone();
        let n = (at / self.tenants.len()) as u64 + 1;
        let event = (u128::from(self.chance.below(u64::MAX)) << 64 | u128::from(self.chance.below(u64::MAX)))
            & !(0xf << 76 | 0x3 << 62)
            | 7 << 76
            | 2 << 62;
        let body = format!("{{\"tenant\":\"{tenant}\",\"n\":{n},\"at\":{},\"text\":\"{:0>200}\"}}", wall_us(), n);
        let mut sum = flate2::Crc::new();
        sum.update(body.as_bytes());
        self.offered.push(Row { event, tenant: tenant.clone(), n, checksum: sum.sum() });
        Event { id: event, tenant, body }
    }

    /// Offers an event once.
    pub(crate) fn offer(&self, event: &Event) -> Offer {
        self.offer_within(event, super::api::CALL)
    }

    /// Offers an event once, and waits so long for the answer.
    pub(crate) fn offer_within(&self, event: &Event, within: Duration) -> Offer {
        let head = [
            "POST /ingest/events HTTP/1.1",
            "host: hub",
            "connection: close",
            "content-type: application/json",
            "ce-specversion: 1.0",
            "ce-source: lender",
            "ce-type: studio.lerian.lender.loan.paid",
            "ce-resourcetype: loan",
            "ce-eventtype: paid",
            "ce-schemaversion: 1.0.0",
            "ce-time: 2026-11-30T12:00:00Z",
            &format!("ce-id: {}", uuid(event.id)),
            &format!("ce-tenantid: {}", event.tenant),
            &format!("authorization: Bearer {}", self.key),
            &format!("content-length: {}", event.body.len()),
            "",
            &event.body,
        ]
        .join("\r\n");
        // The body follows the empty line.
        let (lines, body) = head.rsplit_once("\r\n").unwrap();
        match self.hub.api().raw(&format!("{lines}\r\n{body}"), within) {
            Ok((202, _)) => Offer::Accepted,
            Ok((status, answer)) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or(Value::Null);
                Offer::Refused(status, answer["code"].as_str().unwrap_or_default().to_owned())
            }
            Err(why) => Offer::NoAnswer(why.to_string()),
        }
    }

    /// Feeds it so many events, each until it was accepted.
    pub(crate) fn feed(&mut self, events: usize) {
        for _ in 0..events {
            let event = self.next();
            self.insist(&event);
        }
    }

    /// Offers an event until it was accepted.
    pub(crate) fn insist(&self, event: &Event) {
        let mut last = Offer::Accepted;
        let within = Duration::from_secs(60);
        let accepted = || {
            last = self.offer(event);
            last == Offer::Accepted
        };
        if let Err(why) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until_true("the event is accepted", within, accepted);
        })) {
            eprintln!("the last answer: {last:?}");
            std::panic::resume_unwind(why);
        }
    }

    /// Waits until everything that was offered has been delivered and the hub has nothing left to do; then judges it all, and nothing was
    /// given up or quarantined. `crashes` as in [`judge`]. How many repeats there were.
    pub(crate) fn all_is_well(&self, crashes: &[usize], when: &str) -> usize {
        let api = self.hub.api();
        let wanted = self.offered.len();
        let settled = || self.receiver.count() >= wanted && api.metric("streaming_hub_unfinished_jobs") == 0.0;
        until_true(&format!("{when}: {wanted} deliveries, all settled"), DELIVERED, settled);
        let committed = self.offered.clone();
        let manifest = Manifest { committed, aborted: Vec::new(), told: Value::Null };
        let (faults, repeats) = judge(&manifest, &self.receiver, crashes);
        faults.none(when);
        for list in ["/admin/dead-letters", "/admin/poison", "/admin/gaps"] {
            assert_eq!(api.list(list), [Value::Null; 0], "{when}: {list}");
        }
        repeats
    }

    /// Waits until everything that was offered has been delivered; each once, in whatever order.
    pub(crate) fn all_were_delivered(&self, when: &str) {
        let wanted = self.offered.len();
        until_true(&format!("{when}: {wanted} deliveries"), DELIVERED, || self.receiver.count() >= wanted);
        let mut came: Vec<u128> = self.receiver.arrivals().iter().map(|arrival| arrival.event).collect();
        let mut offered: Vec<u128> = self.offered.iter().map(|row| row.event).collect();
        came.sort_unstable();
        offered.sort_unstable();
        assert!(came == offered, "{when}: {} came, {} were offered", came.len(), offered.len());
    }

    /// The hub was killed: waits until its connections are closed; how many deliveries had come, with the last one that it sent.
    pub(crate) fn crashed(&self) -> usize {
        self.receiver.has_taken_all_in();
        self.receiver.count()
    }
}

/// An event to be offered.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    id: u128,
    tenant: String,
    body: String,
}

impl Fed {
    /// Everything that was offered so far.
    pub(crate) fn offered(&self) -> Vec<Offered> {
        self.offered.iter().cloned().map(Offered).collect()
    }
}

/// An event that was offered.
#[derive(Debug, Clone)]
pub(crate) struct Offered(Row);

impl Offered {
    /// Its `ce-id`.
    pub(crate) fn id(&self) -> String {
        uuid(self.0.event)
    }

    /// Whose.
    pub(crate) fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// Its number in its tenant.
    pub(crate) fn n(&self) -> u64 {
        self.0.n
    }
}

fn uuid(id: u128) -> String {
    let id = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..])
}
