//! Positions shown to ordinary tools (`kafka-consumer-groups`) as offsets of a group that has no members.
//!
//! Invariant: what is shown was stored before; failing to show it never stops reading. Our own store stays the truth.

use crate::kafka::broker::Broker;
use crate::kafka::connection::{CALL_LIMIT, CallError};
use crate::kafka::consumer::Known;
use crate::kafka::message::ErrorCode;
use crate::kafka::message::group::{CommittedPosition, FindCoordinator, OffsetCommit};
use crate::kafka::source::Source;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// How often positions are shown.
const INTERVAL: Duration = Duration::from_secs(5);
/// Brokers forget a group's offsets after some days without a commit: after so many rounds all are shown again.
const ALL_AGAIN_AFTER: u32 = 720;

/// A coordinator that moves makes a round or two fail: nothing to tell.
const FAILURES_TOLD_AFTER: u32 = 3;

/// Why positions could not be shown.
#[derive(Debug, thiserror::Error)]
enum NotShown {
    #[error("no broker is known yet")]
    NobodyKnown,
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("the broker says {}", .0.name())]
    Refused(ErrorCode),
}

/// Shows positions until the source is stopped.
pub(super) async fn commit_for_ever(source: Arc<Source>, known: watch::Receiver<Known>) {
    let mut shower = Shower { group: source.settings.group.as_str().into(), known, shown: HashMap::new(), failures: 0 };
    let stop = source.stop.clone();
    stop.run_until_cancelled(async {
        for round in 0u32.. {
            tokio::time::sleep(INTERVAL).await;
            if round.is_multiple_of(ALL_AGAIN_AFTER) {
                shower.shown.clear();
            }
            shower.round(&source).await;
        }
    })
    .await;
}

struct Shower {
    group: Arc<str>,
    known: watch::Receiver<Known>,
    shown: HashMap<(Arc<str>, i32), i64>,
    /// Rounds that failed, one after the other.
    failures: u32,
}

impl Shower {
    async fn round(&mut self, source: &Source) {
        let mut positions = Vec::new();
        for (topic, partition, facts) in source.status.partitions() {
            let Some(next) = facts.position else { continue };
            if self.shown.get(&(topic.clone(), partition)) != Some(&next) {
                positions.push(CommittedPosition { topic, partition, next, leader_epoch: facts.leader_epoch });
            }
        }
        if positions.is_empty() {
            return;
        }
        match self.show(positions.clone()).await {
            Ok(()) => {
                let now = positions.into_iter().map(|shown| ((shown.topic, shown.partition), shown.next));
                self.shown.extend(now);
                if self.failures >= FAILURES_TOLD_AFTER {
                    info!(group = %self.group, "positions are shown again");
                }
                self.failures = 0;
            }
            Err(why) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == FAILURES_TOLD_AFTER {
                    warn!(group = %self.group, %why, "positions cannot be shown to other tools; reading goes on");
                }
            }
        }
    }

    async fn show(&self, positions: Vec<CommittedPosition>) -> Result<(), NotShown> {
        let known = self.known.borrow().clone();
        let coordinator = self.coordinator(&known).await?;
        let commit = OffsetCommit { group: self.group.clone(), positions };
        match coordinator.ask(commit, CALL_LIMIT).await? {
            ErrorCode::NONE => Ok(()),
            error => Err(NotShown::Refused(error)),
        }
    }

    async fn coordinator(&self, known: &Known) -> Result<Arc<Broker>, NotShown> {
        let mut last = NotShown::NobodyKnown;
        for broker in known.iter() {
            match broker.ask(FindCoordinator { group: self.group.clone() }, CALL_LIMIT).await {
                Ok(found) if found.error == ErrorCode::NONE => {
                    return known.iter().find(|broker| broker.id == found.broker.id).cloned().ok_or(last);
                }
                Ok(found) => last = NotShown::Refused(found.error),
                Err(why) => last = why.into(),
            }
        }
        Err(last)
    }
}
