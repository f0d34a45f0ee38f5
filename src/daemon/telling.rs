//! Who the writer and dispatch tell what they did: metrics, health, and one log line for each change of state.

use super::facts::Health;
use super::space::Pace;
use crate::dispatch::Watching;
use crate::engine::Counts;
use crate::metrics::Metrics;
use crate::model::job::Outcome;
use crate::model::notice::{Notice, Urgency};
use crate::model::space::{Room, Space};
use crate::store::StoreError;
use crate::writer::Telling;
use std::sync::Arc;
use std::time::Duration;

/// Tells metrics, health and the log.
pub(super) struct Told {
    metrics: Arc<Metrics>,
    health: Arc<Health>,
}

impl Told {
    pub(super) fn new(metrics: Arc<Metrics>, health: Arc<Health>) -> Arc<Self> {
        Arc::new(Self { metrics, health })
    }
}

impl Told {
    /// A single-tenant hub has events of others (C2.8): told once.
    pub(super) fn foreign_events(&self) {
        if self.health.has_foreign_events() {
            tracing::warn!(
                "events of other tenants than TENANT_ID are stored; a single-tenant hub can never deliver them"
            );
        }
    }
}

impl Told {
    /// So much of the disk is free.
    pub(super) fn space(&self, space: Space) {
        self.metrics.disk_free(space.free);
    }

    /// The disk answers otherwise than before.
    pub(super) fn pace(&self, pace: Pace) {
        self.health.pace(pace);
        match pace {
            Pace::Slow => tracing::warn!(
                "the disk is slow: a write has taken long already; everything that is to be stored waits for it"
            ),
            Pace::Hangs => {
                tracing::error!("the disk hangs: a write does not end; everything that is to be stored waits for it")
            }
            Pace::Well => tracing::info!("the disk answers again"),
        }
    }

    /// The disk allows something else than before (C13.4).
    pub(super) fn room(&self, room: Room, space: Space, reserve: u64) {
        let is_low = !room.takes_new();
        self.health.disk_low(is_low);
        self.metrics.disk_low(is_low);
        let Space { free, total } = space;
        if is_low {
            tracing::error!(
                free,
                reserve,
                total,
                "the disk is nearly full: less than STORE_RESERVE_BYTES is free; no events and no changes are taken until there is \
                 more, deliveries go on: free some space or enlarge the disk"
            );
        } else {
            tracing::info!(free, reserve, total, "there is room on the disk again; events and changes are taken");
        }
    }
}

impl Telling for Told {
    fn committed(&self, counts: &Counts, size: usize, took: Duration) {
        self.metrics.committed(counts, size, took);
        for (reason, count) in &counts.dead {
            tracing::warn!(reason = reason.code(), count, "deliveries were given up; they are dead letters now");
        }
        if counts.breakers_opened > 0 {
            tracing::info!(count = counts.breakers_opened, "breakers opened: destinations fail repeatedly");
        }
        for notice in &counts.notices {
            tell(notice);
        }
        if counts.of_other_tenants > 0 {
            self.foreign_events();
        }
        if counts.dedup_conflicts > 0 {
            tracing::warn!(
                count = counts.dedup_conflicts,
                "records repeated a known ce-id with another body; they were dropped"
            );
        }
    }

    fn suspended(&self, why: &StoreError) {
        tracing::error!(%why, "the store failed; writes are suspended until it can be opened again");
        self.health.suspended(why.in_short());
        self.metrics.store_suspended(true);
    }

    fn resumed(&self) {
        tracing::info!("the store is open again; writes go on");
        self.health.resumed();
        self.metrics.store_suspended(false);
    }

    fn ended_unstored(&self, why: &StoreError) {
        tracing::error!(
            %why,
            "the store failed at the end: the last outcomes are not in it, and their deliveries are made again after the next start"
        );
    }
}

/// One line for each notice, which says what the API says of it.
fn tell(notice: &Notice) {
    let Notice { kind, tenant, subscription, subject, since, last_error, detail, at } = notice;
    let (kind, action, lasts_ms) = (kind.code(), kind.advice(), at.since_ms(*since));
    let (tenant, last_error) = (tenant.as_deref(), last_error.as_deref());
    let subscription = subscription.map(|id| id.to_string());
    let subscription = subscription.as_deref();
    match notice.kind.urgency() {
        Urgency::Act => {
            tracing::error!(kind, tenant, subscription, subject, lasts_ms, last_error, detail, action, "notice");
        }
        Urgency::Watch => {
            tracing::warn!(kind, tenant, subscription, subject, lasts_ms, last_error, detail, action, "notice");
        }
    }
}

impl Watching for Told {
    fn attempted(&self, outcome: &Outcome, took: Duration) {
        self.metrics.attempt(outcome);
        let error = outcome.error_class().map(|class| class.code());
        tracing::debug!(took_ms = took.as_millis(), error, "attempted");
    }

    fn in_flight(&self, _: usize) {
        // `/metrics` asks the writer, which knows of claims not begun as well.
    }
}
