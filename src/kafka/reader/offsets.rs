//! Where the partition begins, and where it goes on when its position does not fit the log (C1.4, C1.5): asks the store and the
//! leader, and lets `trouble` decide.

use super::{PartitionReader, Stopped};
use crate::kafka::broker::Broker;
use crate::kafka::connection::{CALL_LIMIT, CallError};
use crate::kafka::message::ErrorCode;
use crate::kafka::message::offsets::{ListOffsets, LogEnd, OffsetAnswer, OffsetForLeaderEpoch};
use crate::kafka::partition::Leadership;
use crate::kafka::settings::Start;
use crate::kafka::trouble::{Begin, Place, Trouble, begin, epoch_end, out_of_range};
use crate::model::gap::GapReason;
use std::time::Duration;

/// A fresh look at the cluster is waited for so long, when the broker says that an offset is out of range.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(30);

impl PartitionReader {
    /// Finds the position in the store, or in the log where none is stored. False: try again.
    pub(super) async fn locate(&mut self, broker: &Broker, leader: Leadership) -> Result<bool, Stopped> {
        let partition = self.partition.clone();
        let stored = match self.source.inbox.stored(partition.topic.clone(), partition.number).await {
            Ok(stored) => stored,
            Err(why) => {
                self.wait_for_inbox(&why.to_string()).await?;
                return Ok(false);
            }
        };
        let from_start = |next| Place { stored: None, next, leader_epoch: -1, between_batches: false };
        match begin(&stored.rows, partition.topic_id) {
            Begin::At(place) => self.place = Some(place),
            Begin::Earliest if stored.first_start && self.start == Start::Latest => {
                let latest = match self.latest {
                    Some(latest) => latest,
                    None => match self.log_end(broker, leader, LogEnd::LastStable).await? {
                        Some(latest) => latest,
                        None => return Ok(false),
                    },
                };
                // Stored at once: after a restart it is not the first start any more.
                self.latest = Some(latest);
                self.place = Some(from_start(latest));
                return self.step_to(latest, -1, vec![]).await;
            }
            Begin::Earliest => match self.log_end(broker, leader, LogEnd::Start).await? {
                Some(start) => self.place = Some(from_start(start)),
                None => return Ok(false),
            },
            Begin::Recreated { from } => match self.log_end(broker, leader, LogEnd::Start).await? {
                Some(start) => {
                    self.place = Some(from_start(from));
                    return self.gap(GapReason::Recreated, start, -1).await;
                }
                None => return Ok(false),
            },
        }
        self.partition.status.facts().position = self.place.and_then(|place| place.stored);
        Ok(true)
    }

    /// Under another leader epoch than that of the last record: whether the leader's log still has what we read. False: try again.
    pub(super) async fn check_epoch(&mut self, broker: &Broker, leader: Leadership) -> Result<bool, Stopped> {
        let Some(place) = self.place else { return Ok(false) };
        if place.leader_epoch < 0 || leader.epoch < 0 || place.leader_epoch == leader.epoch {
            return Ok(true);
        }
        let question = OffsetForLeaderEpoch {
            topic: self.partition.topic.clone(),
            partition: self.partition.number,
            current_epoch: leader.epoch,
            epoch: place.leader_epoch,
        };
        let answered = self.unless_stopped(broker.ask(question, CALL_LIMIT)).await?;
        if let Err(CallError::Version(_)) = answered {
            return Ok(true);
        }
        let Some(answer) = self.usable(answered).await? else { return Ok(false) };
        match epoch_end(&place, answer.leader_epoch, answer.offset) {
            Trouble::None => Ok(true),
            Trouble::Gap { why, to, leader_epoch } => self.gap(why, to, leader_epoch).await,
            Trouble::Truncated => match self.log_end(broker, leader, LogEnd::Start).await? {
                Some(start) => self.gap(GapReason::Truncated, start, -1).await,
                None => Ok(false),
            },
        }
    }

    pub(super) async fn settle_range(&mut self, broker: &Broker, leader: Leadership) -> Result<(), Stopped> {
        // A topic that was made anew looks the same at first: its id tells it, and then this reader is stopped.
        let source = self.source.clone();
        let look = self.unless_moved(tokio::time::timeout(DISCOVERY_LIMIT, source.fresh_look()));
        look.await?;
        if self.assignment.has_changed().unwrap_or(true) {
            return Ok(());
        }
        let Some(start) = self.log_end(broker, leader, LogEnd::Start).await? else { return Ok(()) };
        let Some(end) = self.log_end(broker, leader, LogEnd::HighWatermark).await? else { return Ok(()) };
        let Some(place) = self.place else { return Ok(()) };
        let mut trouble = out_of_range(place.next, start, end);
        if trouble == Trouble::Truncated && place.leader_epoch >= 0 {
            let question = OffsetForLeaderEpoch {
                topic: self.partition.topic.clone(),
                partition: self.partition.number,
                current_epoch: leader.epoch,
                epoch: place.leader_epoch,
            };
            let answered = self.unless_stopped(broker.ask(question, CALL_LIMIT)).await?;
            if !matches!(answered, Err(CallError::Version(_))) {
                let Some(answer) = self.usable(answered).await? else { return Ok(()) };
                trouble = epoch_end(&place, answer.leader_epoch, answer.offset);
            }
        }
        match trouble {
            Trouble::None => self.wait_for_broker("offset_out_of_range", false, true).await,
            Trouble::Gap { why, to, leader_epoch } => self.gap(why, to, leader_epoch).await.map(|_| ()),
            Trouble::Truncated => self.gap(GapReason::Truncated, start, -1).await.map(|_| ()),
        }
    }

    /// An end of the log, as the leader tells it. None: try again.
    pub(super) async fn log_end(
        &mut self,
        broker: &Broker,
        leader: Leadership,
        end: LogEnd,
    ) -> Result<Option<i64>, Stopped> {
        let question = ListOffsets {
            topic: self.partition.topic.clone(),
            partition: self.partition.number,
            leader_epoch: leader.epoch,
            end,
        };
        let answered = self.unless_stopped(broker.ask(question, CALL_LIMIT)).await?;
        Ok(self.usable(answered).await?.map(|answer| answer.offset))
    }

    /// The answer, when it is one; else waits. None: try again.
    pub(super) async fn usable(
        &mut self,
        answered: Result<OffsetAnswer, CallError>,
    ) -> Result<Option<OffsetAnswer>, Stopped> {
        match answered {
            Ok(answer) if answer.error == ErrorCode::NONE => return Ok(Some(answer)),
            Ok(answer) => {
                let code = answer.error;
                self.wait_for_broker(&code.name(), code.needs_a_person(), code.asks_for_discovery()).await?;
            }
            Err(why) => self.wait_for_broker(&why.to_string(), why.needs_a_person(), true).await?,
        }
        Ok(None)
    }
}
