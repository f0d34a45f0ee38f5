//! Looks now and then at what no command tells the writer, and raises the notices for it: the disk (C13.4), and what the Kafka source
//! shows (C1.6, C1.7, C2.8).
//!
//! Invariant: raising again is harmless, since the writer keeps one notice of a kind about one thing in a window; so little is
//! remembered here, and a refusal is made good at the next look.

use super::facts::{DiskFacts, Health};
use crate::engine::command::{Action, Manage};
use crate::kafka::KafkaStatus;
use crate::model::notice::{Notice, NoticeKind};
use crate::time::{Clock, HubClock, HubTime, Timestamp};
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks until it is dropped.
pub(super) async fn watch(health: Arc<Health>, writer: Writer, clock: Arc<dyn Clock>, hub_clock: HubClock) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut disk = Disk::default();
    loop {
        looks.tick().await;
        let now = hub_clock.now(&*clock);
        let mut notices = disk.look(health.disk(), now);
        if let Some(status) = health.source() {
            notices.extend(of_kafka(&status, clock.wall(), now));
        }
        for notice in notices {
            let action = Action::Notice(Box::new(notice));
            if let Err(refusal) = writer.manage(Manage { action, idempotency: None }).await {
                tracing::debug!(%refusal, "a notice could not be stored; it is raised again at the next look");
                disk.is_stored = false;
            }
        }
    }
}

/// What was seen of the disk at the looks before.
#[derive(Debug, Default)]
struct Disk {
    low_since: Option<HubTime>,
    suspended_since: Option<HubTime>,
    /// Suspensions that were told, once [`Disk::is_stored`].
    told: u64,
    telling: u64,
    is_stored: bool,
}

impl Disk {
    /// What there is to tell. That writes were suspended can only be stored when they go on.
    fn look(&mut self, seen: DiskFacts, now: HubTime) -> Vec<Notice> {
        if std::mem::replace(&mut self.is_stored, true) {
            self.told = self.telling;
        }
        self.low_since = seen.is_low.then(|| self.low_since.unwrap_or(now));
        let mut notices = Vec::new();
        if let Some(since) = self.low_since {
            let detail = "less than STORE_RESERVE_BYTES is free: no events and no changes are taken, deliveries go on";
            notices.push(Notice::about(NoticeKind::DiskLow, "the disk of the store", since, detail));
        }
        if seen.suspensions.count > self.told {
            let since = *self.suspended_since.get_or_insert(now);
            if !seen.is_suspended {
                let times = seen.suspensions.count - self.told;
                let detail = format!(
                    "writes were suspended and go on again ({times} times since the last look), the last time because of this: {}",
                    seen.suspensions.why
                );
                notices.push(Notice::about(NoticeKind::StoreSuspended, "the store", since, detail));
                self.telling = seen.suspensions.count;
                self.suspended_since = None;
            }
        }
        notices
    }
}

/// What the Kafka source shows that an operator must know.
fn of_kafka(status: &KafkaStatus, wall: Timestamp, now: HubTime) -> Vec<Notice> {
    let since = |at: Timestamp| HubTime(now.0.saturating_sub(wall.0.saturating_sub(at.0)));
    let lost = status.topics_without_tenant().into_iter().map(|topic| {
        let detail = format!("no record of {topic} that was read since the start names a tenant");
        Notice::about(NoticeKind::TopicWithoutTenant, &*topic, now, detail)
    });
    let hanging = status.partitions().into_iter().filter_map(|(topic, partition, facts)| {
        let (at, stable) = (facts.hanging_since?, facts.last_stable?);
        let detail =
            format!("a transaction that begins at or before offset {stable} was left open; what is behind it waits");
        Some(Notice::about(NoticeKind::HangingTransaction, format!("{topic}/{partition}"), since(at), detail))
    });
    let refused = status.refusals().into_iter().map(|refused| {
        let begun = refused.since.map_or(now, since);
        let notice = Notice::about(NoticeKind::KafkaRefused, refused.what, begun, refused.detail);
        Notice { last_error: Some(refused.code), ..notice }
    });
    lost.chain(hanging).chain(refused).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::Suspensions;
    use super::*;

    fn seen(count: u64, is_suspended: bool, is_low: bool) -> DiskFacts {
        DiskFacts { is_suspended, suspensions: Suspensions { count, why: "the disk is full" }, is_low }
    }

    fn kinds(notices: &[Notice]) -> Vec<(NoticeKind, u64)> {
        notices.iter().map(|notice| (notice.kind, notice.since.0)).collect()
    }

    // C13.4
    #[test]
    fn a_suspension_is_told_when_it_is_over_and_until_it_is_stored() {
        use NoticeKind::{DiskLow, StoreSuspended};
        let mut disk = Disk::default();
        assert_eq!(kinds(&disk.look(seen(0, false, false), HubTime(1))), []);
        assert_eq!(kinds(&disk.look(seen(1, true, false), HubTime(2))), [], "it cannot be stored now");
        assert_eq!(kinds(&disk.look(seen(1, true, true), HubTime(3))), [(DiskLow, 3)]);
        let told = disk.look(seen(1, false, true), HubTime(4));
        assert_eq!(kinds(&told), [(DiskLow, 3), (StoreSuspended, 2)]);
        assert!(told[1].detail.contains("the disk is full"), "{}", told[1].detail);
        disk.is_stored = false;
        assert_eq!(kinds(&disk.look(seen(1, false, false), HubTime(5))), [(StoreSuspended, 5)], "it was refused");
        assert_eq!(kinds(&disk.look(seen(1, false, false), HubTime(6))), []);
        assert_eq!(kinds(&disk.look(seen(3, false, false), HubTime(7))), [(StoreSuspended, 7)], "between two looks");
        assert_eq!(kinds(&disk.look(seen(3, false, true), HubTime(8))), [(DiskLow, 8)]);
    }
}
