//! What the running hub is like: the checks of `/readyz`, and what `/admin/ingest` shows (C13.1).

use super::space::Pace;
use crate::error::counted;
use crate::http::{Check, CheckState, Facts, PartitionFacts};
use crate::kafka::{self, KafkaStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const DISK_LOW: &str = "the disk is nearly full: less than STORE_RESERVE_BYTES is free; no events and no changes are taken until there is more, deliveries go on";

/// The hub's health, told by its parts and shown by the API.
#[derive(Debug)]
pub(super) struct Health {
    source: Option<Arc<KafkaStatus>>,
    needs_kafka: bool,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    draining: bool,
    suspended: Option<&'static str>,
    suspensions: Suspensions,
    disk_low: bool,
    pace: Pace,
    broken: Option<&'static str>,
    foreign: bool,
}

/// What of the disk an operator must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskFacts {
    /// Writes are suspended now.
    pub(super) is_suspended: bool,
    /// How often they were so far.
    pub(super) suspensions: Suspensions,
    /// Less than `STORE_RESERVE_BYTES` is free.
    pub(super) is_low: bool,
}

/// How often writes were suspended since the start, and why the last time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Suspensions {
    pub(super) count: u64,
    pub(super) why: &'static str,
}

impl Health {
    /// Healthy, until somebody says otherwise.
    pub(super) fn new(source: Option<Arc<KafkaStatus>>, needs_kafka: bool) -> Self {
        Self { source, needs_kafka, now: Mutex::default() }
    }

    /// Where the Kafka source tells how it is; none without one.
    pub(super) fn source(&self) -> Option<Arc<KafkaStatus>> {
        self.source.clone()
    }

    /// The hub is on its way down.
    pub(super) fn drain(&self) {
        self.now().draining = true;
    }

    /// Writes are suspended, for that reason: words that everybody may read.
    pub(super) fn suspended(&self, why: &'static str) {
        let mut now = self.now();
        now.suspended = Some(why);
        now.suspensions = Suspensions { count: now.suspensions.count.saturating_add(1), why };
    }

    /// How the disk does.
    pub(super) fn disk(&self) -> DiskFacts {
        let now = self.now();
        DiskFacts { is_suspended: now.suspended.is_some(), suspensions: now.suspensions, is_low: now.disk_low }
    }

    /// Writes go on.
    pub(super) fn resumed(&self) {
        self.now().suspended = None;
    }

    /// Whether less than `STORE_RESERVE_BYTES` is free (C13.4).
    pub(super) fn disk_low(&self, is_low: bool) {
        self.now().disk_low = is_low;
    }

    /// How the disk answers.
    pub(super) fn pace(&self, pace: Pace) {
        self.now().pace = pace;
    }

    /// Events of other tenants are stored in a single-tenant hub. True: that is news.
    pub(super) fn has_foreign_events(&self) -> bool {
        !std::mem::replace(&mut self.now().foreign, true)
    }

    /// What `/readyz` says now.
    pub(super) fn is_ready(&self) -> bool {
        self.checks().iter().all(|check| check.state != CheckState::Failed)
    }

    // They can never be delivered, and only the operator can mend it (C2.8).
    fn tenants(&self, foreign: bool) -> Check {
        let lost = self.source.as_ref().map(|source| source.topics_without_tenant()).unwrap_or_default();
        let mut said = Vec::new();
        if foreign {
            said.push("events of other tenants than TENANT_ID are stored and can never be delivered".to_owned());
        }
        if let Some(first) = lost.first() {
            said.push(format!("no record of {first} names a tenant ({})", counted(lost.len() as u64, "such topic")));
        }
        let state = if said.is_empty() { CheckState::Ok } else { CheckState::Degraded };
        Check { name: "tenants", state, detail: (!said.is_empty()).then(|| said.join("; ")) }
    }

    /// A part ended that must not.
    pub(super) fn broke(&self, part: &'static str) {
        self.now().broken = Some(part);
    }

    // Kafka down only degrades: deliveries and the API go on.
    fn kafka(&self) -> Check {
        let name = "kafka";
        let Some(source) = &self.source else {
            return Check { name, state: CheckState::Ok, detail: Some("not configured".to_owned()) };
        };
        let problems = source.problems();
        let state = match (source.word(), self.needs_kafka) {
            ("connected", _) if problems.is_empty() => CheckState::Ok,
            ("connected", _) | (_, false) => CheckState::Degraded,
            (_, true) => CheckState::Failed,
        };
        let said = match problems.as_slice() {
            [] => source.word().to_owned(),
            [only] => only.clone(),
            [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
        };
        Check { name, state, detail: (state != CheckState::Ok).then_some(said) }
    }

    // Each change is one assignment: a thread that panicked leaves it whole.
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// The store's own words may name paths: they are in the log.
fn store(now: &Now) -> Check {
    let (state, detail) = match (now.suspended, now.pace) {
        (Some(why), _) => (CheckState::Failed, Some(format!("the store takes no writes now: {why}"))),
        (None, Pace::Hangs) => (CheckState::Failed, Some("the disk hangs: a write does not end".to_owned())),
        (None, Pace::Slow) => {
            (CheckState::Degraded, Some("the disk is slow: a write has taken long already".to_owned()))
        }
        (None, Pace::Well) => (CheckState::Ok, None),
    };
    Check { name: "store", state, detail }
}

impl Facts for Health {
    fn checks(&self) -> Vec<Check> {
        let now = self.now();
        let failed = |name, what: Option<String>| Check {
            name,
            state: if what.is_some() { CheckState::Failed } else { CheckState::Ok },
            detail: what,
        };
        vec![
            failed("draining", now.draining.then(|| "the hub is stopping".to_owned())),
            store(&now),
            failed("disk", now.disk_low.then(|| DISK_LOW.to_owned())),
            failed("workers", now.broken.map(|part| format!("{part} ended"))),
            self.kafka(),
            self.tenants(now.foreign),
        ]
    }

    fn partitions(&self) -> Vec<PartitionFacts> {
        let all = self.source.as_ref().map(|source| source.partitions()).unwrap_or_default();
        let shown = |(topic, partition, facts): (Arc<str>, i32, kafka::status::PartitionFacts)| PartitionFacts {
            topic: topic.to_string(),
            partition,
            state: facts.state.code(),
            position: facts.position,
            high_watermark: facts.high_watermark,
            last_stable: facts.last_stable,
            last_fetch: facts.last_fetch,
            last_record: facts.last_record,
            last_error: facts.last_error,
        };
        all.into_iter().map(shown).collect()
    }

    fn source(&self) -> &'static str {
        self.source.as_ref().map_or("off", |source| source.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C13.1
    #[test]
    fn every_check_is_named_whatever_its_state() {
        let health = Health::new(None, false);
        let states = || health.checks().into_iter().map(|check| (check.name, check.state)).collect::<Vec<_>>();
        let (ok, failed) = (CheckState::Ok, CheckState::Failed);
        let kafka = health.checks().into_iter().find(|check| check.name == "kafka").unwrap();
        assert_eq!(kafka.detail.as_deref(), Some("not configured"));
        let all = |draining, store, disk| {
            let others = [("workers", ok), ("kafka", ok), ("tenants", ok)];
            [("draining", draining), ("store", store), ("disk", disk)].into_iter().chain(others).collect::<Vec<_>>()
        };
        assert_eq!(states(), all(ok, ok, ok));
        health.suspended("the disk is full");
        assert_eq!(states(), all(ok, failed, ok));
        health.resumed();
        health.drain();
        assert_eq!(states(), all(failed, ok, ok));
    }

    // C13.4
    #[test]
    fn a_disk_without_room_is_said_in_plain_words() {
        let health = Health::new(None, false);
        let said = |name| health.checks().into_iter().find(|check| check.name == name).unwrap();
        health.disk_low(true);
        assert_eq!((said("disk").state, said("disk").detail.as_deref()), (CheckState::Failed, Some(DISK_LOW)));
        health.disk_low(false);
        assert_eq!((said("disk").state, said("disk").detail), (CheckState::Ok, None));
        for (pace, state) in
            [(Pace::Slow, CheckState::Degraded), (Pace::Hangs, CheckState::Failed), (Pace::Well, CheckState::Ok)]
        {
            health.pace(pace);
            assert_eq!(said("store").state, state, "{pace:?}");
        }
        health.suspended(crate::store::StoreError::Full("/some/path: ENOSPC".to_owned()).in_short());
        assert_eq!(said("store").detail.as_deref(), Some("the store takes no writes now: the disk is full"));
    }

    // C2.8
    #[test]
    fn events_of_other_tenants_degrade_and_are_told_once() {
        let health = Health::new(None, false);
        assert!(health.has_foreign_events());
        assert!(!health.has_foreign_events());
        let check = health.checks().into_iter().find(|check| check.name == "tenants").unwrap();
        assert_eq!(check.state, CheckState::Degraded);
    }

    // C13.1
    #[test]
    fn kafka_that_does_not_answer_degrades_and_fails_only_where_it_is_required() {
        for (required, state) in [(false, CheckState::Degraded), (true, CheckState::Failed)] {
            let health = Health::new(Some(Arc::default()), required);
            assert_eq!(health.is_ready(), !required);
            let kafka = health.checks().into_iter().find(|check| check.name == "kafka").unwrap();
            assert_eq!((kafka.state, kafka.detail.as_deref()), (state, Some("connecting")));
        }
    }
}
