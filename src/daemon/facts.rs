//! What the running hub is like: the checks of `/readyz`, and what `/admin/ingest` shows (C13.1).

use crate::http::{Check, CheckState, Facts, PartitionFacts};
use crate::kafka::{self, KafkaStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    suspended: Option<String>,
    broken: Option<&'static str>,
    foreign: bool,
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

    /// Writes are suspended, for that reason.
    pub(super) fn suspended(&self, why: &str) {
        self.now().suspended = Some(why.to_owned());
    }

    /// Writes go on.
    pub(super) fn resumed(&self) {
        self.now().suspended = None;
    }

    /// Events of other tenants are stored in a single-tenant hub. True: that is news.
    pub(super) fn has_foreign_events(&self) -> bool {
        !std::mem::replace(&mut self.now().foreign, true)
    }

    // They can never be delivered, and only the operator can mend it (C2.8).
    fn tenants(&self, foreign: bool) -> Check {
        let lost = self.source.as_ref().map(|source| source.topics_without_tenant()).unwrap_or_default();
        let mut said = Vec::new();
        if foreign {
            said.push("events of other tenants than TENANT_ID are stored and can never be delivered".to_owned());
        }
        if let Some(first) = lost.first() {
            said.push(format!("no record of {first} names a tenant ({} such topics)", lost.len()));
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
        let Some(source) = &self.source else { return Check { name, state: CheckState::Ok, detail: None } };
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
            // The store's own words may name paths: they are in the log.
            failed("store", now.suspended.as_ref().map(|_| "the store takes no writes now".to_owned())),
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
        assert_eq!(states(), [("draining", ok), ("store", ok), ("workers", ok), ("kafka", ok), ("tenants", ok)]);
        health.suspended("no space at some path");
        assert_eq!(states()[1], ("store", failed));
        health.resumed();
        health.drain();
        assert_eq!(states(), [("draining", failed), ("store", ok), ("workers", ok), ("kafka", ok), ("tenants", ok)]);
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
            let kafka = health.checks().into_iter().find(|check| check.name == "kafka").unwrap();
            assert_eq!((kafka.state, kafka.detail.as_deref()), (state, Some("connecting")));
        }
    }
}
