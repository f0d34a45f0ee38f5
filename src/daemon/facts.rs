//! What the running hub is like: the checks of `/readyz`, and what `/admin/ingest` shows (C13.1).

use crate::http::{Check, CheckState, Facts, PartitionFacts};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The hub's health, told by its parts and shown by the API.
#[derive(Debug)]
pub(super) struct Health {
    needs_kafka: bool,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    draining: bool,
    suspended: Option<String>,
    broken: Option<&'static str>,
}

impl Health {
    /// Healthy, until somebody says otherwise.
    pub(super) fn new(needs_kafka: bool) -> Self {
        Self { needs_kafka, now: Mutex::default() }
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

    /// A part ended that must not.
    pub(super) fn broke(&self, part: &'static str) {
        self.now().broken = Some(part);
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
        ]
    }

    fn partitions(&self) -> Vec<PartitionFacts> {
        Vec::new()
    }

    fn source(&self) -> &'static str {
        "off"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C13.1
    #[test]
    fn every_check_is_named_whatever_its_state() {
        let health = Health::new(false);
        let states = || health.checks().into_iter().map(|check| (check.name, check.state)).collect::<Vec<_>>();
        let (ok, failed) = (CheckState::Ok, CheckState::Failed);
        assert_eq!(states(), [("draining", ok), ("store", ok), ("workers", ok)]);
        health.suspended("no space at some path");
        assert_eq!(states()[1], ("store", failed));
        health.resumed();
        health.drain();
        assert_eq!(states(), [("draining", failed), ("store", ok), ("workers", ok)]);
    }
}
