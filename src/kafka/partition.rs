//! A followed partition as its two sides share it: the fetcher of its leader asks it what to fetch and hands it what came; its
//! reader judges and stores that, and says where to fetch next.
//!
//! Invariants: only the reader lets fetching begin ([`Partition::fetch_from`]); each beginning has a new generation, and what was
//! fetched under an older one is dropped. Bytes handed over are counted until they are dropped.

use crate::kafka::decode::{Fetched, next_fetch};
use crate::kafka::hanging::StableWatch;
use crate::kafka::message::ErrorCode;
use crate::kafka::message::fetch::FetchedPartition;
use crate::kafka::source::Source;
use crate::kafka::status::{PartitionState, PartitionStatus, add};
use crate::kafka::trouble::Place;
use crate::model::limits::{FETCH_PARTITION_BYTES, FETCHED_PARTITION_BYTES};
use crate::time::{Timestamp, millis};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tracing::{info, warn};

/// Deliveries that wait for the reader at most.
const DELIVERIES_WAITING: usize = 32;

/// A followed partition.
pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    pub(super) topic_id: [u8; 16],
    pub(super) number: i32,
    pub(super) status: Arc<PartitionStatus>,
    source: Arc<Source>,
    slot: Mutex<Slot>,
    deliveries: mpsc::Sender<Delivery>,
}

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leadership {
    /// -1: nobody.
    pub(super) broker: i32,
    /// -1: not known.
    pub(super) epoch: i32,
}

#[derive(Debug)]
struct Slot {
    generation: u64,
    leader: Leadership,
    /// The next offset to ask for; none while the reader does not want anything.
    next: Option<i64>,
    between_batches: bool,
    /// Bytes handed over and not dropped yet.
    held: usize,
    max_bytes: usize,
    stable: StableWatch,
}

/// What to fetch of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// This.
    Fetch(Ask),
    /// Nothing before the reader has got further; then at once.
    Full,
    /// Nothing from this broker.
    Nothing,
}

/// A fetch of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) generation: u64,
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) between_batches: bool,
    pub(super) max_bytes: usize,
}

/// What the fetcher hands to the reader.
pub(super) struct Delivery {
    pub(super) generation: u64,
    pub(super) what: Delivered,
}

/// What came for a partition.
pub(super) enum Delivered {
    /// Records.
    Records(Fetched, Held),
    /// An error; nothing more is fetched until the reader says so.
    Error(ErrorCode),
}

/// Fetched bytes that are still in memory.
pub(super) struct Held {
    partition: Arc<Partition>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.partition.slot().held -= self.bytes;
        self.partition.source.release(self.bytes);
    }
}

impl Partition {
    /// A partition with nothing to fetch yet, and the end at which its reader listens.
    pub(super) fn new(
        topic: Arc<str>,
        topic_id: [u8; 16],
        number: i32,
        source: Arc<Source>,
    ) -> (Arc<Self>, mpsc::Receiver<Delivery>) {
        let (deliveries, receiver) = mpsc::channel(DELIVERIES_WAITING);
        let leader = Leadership { broker: -1, epoch: -1 };
        let slot = Slot {
            generation: 0,
            leader,
            next: None,
            between_batches: false,
            held: 0,
            max_bytes: FETCH_PARTITION_BYTES,
            stable: StableWatch::default(),
        };
        let status = source.status.follow(&topic, number);
        let partition = Self { topic, topic_id, number, status, source, slot: Mutex::new(slot), deliveries };
        (Arc::new(partition), receiver)
    }

    /// Fetching begins at that place, from that leader.
    pub(super) fn fetch_from(&self, place: &Place, leader: Leadership, max_bytes: usize) -> u64 {
        let generation = {
            let mut slot = self.slot();
            slot.generation += 1;
            slot.leader = leader;
            slot.next = Some(place.next);
            slot.between_batches = place.between_batches;
            slot.max_bytes = max_bytes.max(FETCH_PARTITION_BYTES);
            slot.generation
        };
        self.source.wake_fetchers();
        generation
    }

    /// So many bytes at a time from now on.
    pub(super) fn fetch_no_more_than(&self, max_bytes: usize) {
        self.slot().max_bytes = max_bytes;
    }

    /// Fetching ends until it begins again.
    pub(super) fn fetch_nothing(&self) {
        let mut slot = self.slot();
        slot.generation += 1;
        slot.next = None;
    }

    /// What this broker shall be asked for.
    pub(super) fn wish(&self, broker: i32) -> Wish {
        let slot = self.slot();
        let Some(offset) = slot.next.filter(|_| slot.leader.broker == broker) else { return Wish::Nothing };
        if slot.held >= FETCHED_PARTITION_BYTES || self.deliveries.capacity() == 0 {
            // An inbox that takes nothing may do so for hours.
            let soon = self.status.facts().state != PartitionState::Waiting;
            return if soon { Wish::Full } else { Wish::Nothing };
        }
        Wish::Fetch(Ask {
            generation: slot.generation,
            offset,
            leader_epoch: slot.leader.epoch,
            between_batches: slot.between_batches,
            max_bytes: slot.max_bytes,
        })
    }

    /// Hands over what came for an ask.
    pub(super) fn deliver(self: &Arc<Self>, ask: Ask, came: FetchedPartition) {
        let mut slot = self.slot();
        if slot.generation != ask.generation {
            return;
        }
        if came.error != ErrorCode::NONE {
            slot.next = None;
            add(&self.source.status.counters.fetch_errors, 1);
            self.send(Delivery { generation: ask.generation, what: Delivered::Error(came.error) });
            return;
        }
        self.show(&mut slot.stable, &came);
        let bytes = came.records.len();
        if bytes == 0 {
            return;
        }
        // Where nothing is whole the reader decides; asked again blindly it would come again for ever.
        let next = next_fetch(&came.records, ask.offset);
        slot.next = (next > ask.offset).then_some(next);
        slot.between_batches = true;
        slot.held += bytes;
        drop(slot);
        self.source.hold(bytes);
        let held = Held { partition: self.clone(), bytes };
        let fetched = Fetched {
            bytes: came.records,
            asked: ask.offset,
            between_batches: ask.between_batches,
            high_watermark: came.high_watermark,
            aborted: came.aborted,
        };
        self.send(Delivery { generation: ask.generation, what: Delivered::Records(fetched, held) });
    }

    fn send(&self, delivery: Delivery) {
        // invariant: there is room, since each fetch asks for room first (`wish`) and one fetch of a partition runs at a time. A
        // reader that has ended needs nothing.
        let _ = self.deliveries.try_send(delivery);
    }

    fn show(&self, stable: &mut StableWatch, came: &FetchedPartition) {
        let now = self.source.clock.wall();
        let hung = stable.hangs();
        let hangs = stable.look(self.source.clock.monotonic(), came.last_stable_offset, came.high_watermark);
        let mut facts = self.status.facts();
        match facts.state {
            PartitionState::Starting
            | PartitionState::NoLeader
            | PartitionState::Failing
            | PartitionState::HangingTransaction => facts.state = PartitionState::Reading,
            PartitionState::Refused => {
                info!(topic = %self.topic, partition = self.number, "the partition is read again");
                facts.state = PartitionState::Reading;
            }
            // Whether the inbox takes something again, the reader will know.
            PartitionState::Waiting | PartitionState::Reading => {}
        }
        if hangs.is_some() && facts.state == PartitionState::Reading {
            facts.state = PartitionState::HangingTransaction;
        }
        if hung != hangs.is_some() {
            facts.hanging_since = hangs.map(|stood| Timestamp(now.0.saturating_sub(millis(stood))));
            self.tell_hanging(came, facts.hanging_since);
        }
        facts.last_fetch = Some(now);
        facts.high_watermark = Some(came.high_watermark);
        facts.last_stable = Some(came.last_stable_offset).filter(|offset| *offset >= 0);
        facts.log_start = Some(came.log_start).filter(|offset| *offset >= 0).or(facts.log_start);
    }

    /// Once when it begins and once when it ends (C1.6).
    fn tell_hanging(&self, came: &FetchedPartition, since: Option<Timestamp>) {
        let (stable, end) = (came.last_stable_offset, came.high_watermark);
        let (topic, partition) = (&self.topic, self.number);
        match since {
            Some(since) => warn!(
                %topic, partition, last_stable = stable, high_watermark = end, %since,
                "a transaction hangs: nothing behind its first record can be read until it ends; kafka-transactions.sh finds and aborts it"
            ),
            None => {
                info!(%topic, partition, last_stable = stable, high_watermark = end, "the transaction that hung has ended; the partition is read on")
            }
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
