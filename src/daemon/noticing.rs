//! Looks now and then at what no command tells the writer, and raises the notices for it: topics whose records name no tenant (C2.8).
//!
//! Invariant: raising again is harmless, since the writer keeps one notice of a kind about one thing in a window; so nothing is
//! remembered here, and a refusal is made good at the next look.

use crate::engine::command::{Action, Manage};
use crate::kafka::KafkaStatus;
use crate::model::notice::{Notice, NoticeKind};
use crate::time::{Clock, HubClock, HubTime};
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
        for notice in of_kafka(&status, hub_clock.now(&*clock)) {
            let action = Action::Notice(Box::new(notice));
            if let Err(refusal) = writer.manage(Manage { action, idempotency: None }).await {
                tracing::debug!(%refusal, "a notice could not be stored; it is raised again at the next look");
            }
        }
    }
}

/// What the Kafka source shows that an operator must know.
fn of_kafka(status: &KafkaStatus, now: HubTime) -> Vec<Notice> {
    let lost = status.topics_without_tenant().into_iter().map(|topic| {
        let detail = format!("no record of {topic} that was read since the start names a tenant");
        Notice::about(NoticeKind::TopicWithoutTenant, &*topic, now, detail)
    });
    lost.collect()
}
