//! Looks now and then at what no command tells the writer, and raises the notices for it: topics whose records name no tenant (C2.8),
//! hanging transactions (C1.6), and what brokers refuse (C1.7).
//!
//! Invariant: raising again is harmless, since the writer keeps one notice of a kind about one thing in a window; so nothing is
//! remembered here, and a refusal is made good at the next look.

use crate::engine::command::{Action, Manage};
use crate::kafka::KafkaStatus;
use crate::model::notice::{Notice, NoticeKind};
use crate::time::{Clock, HubClock, HubTime, Timestamp};
use crate::writer::Writer;
use std::sync::Arc;
use std::time::Duration;

/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Looks until it is dropped.
pub(super) async fn watch(status: Arc<KafkaStatus>, writer: Writer, clock: Arc<dyn Clock>, hub_clock: HubClock) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        for notice in of_kafka(&status, clock.wall(), hub_clock.now(&*clock)) {
            let action = Action::Notice(Box::new(notice));
            if let Err(refusal) = writer.manage(Manage { action, idempotency: None }).await {
                tracing::debug!(%refusal, "a notice could not be stored; it is raised again at the next look");
            }
        }
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
