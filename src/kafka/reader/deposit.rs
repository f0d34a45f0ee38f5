//! What goes into the inbox: records, positions and gaps, one admit at a time (C3.1), and what is counted of them.

use super::{PartitionReader, Stopped};
use crate::engine::command::{Admit, AdmitFrom, AdmitResult, Admitted, Judged, PartitionStep, Refusal};
use crate::kafka::partition::Partition;
use crate::kafka::source::Source;
use crate::kafka::status::{PartitionState, add};
use crate::kafka::trouble::Place;
use crate::model::gap::{Gap, GapReason};
use crate::model::limits::FETCH_PARTITION_BYTES;
use crate::model::record::Reason;
use tracing::warn;

/// What an admit led to.
pub(super) enum Stored {
    /// It is stored.
    Done,
    /// The inbox takes nothing now, and why; the same again later.
    Later(String),
    /// It is not, or nobody knows, and why: wait, then ask the store for the position.
    Reread(String),
}

/// How far the position moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upto {
    /// The next offset to read.
    pub(super) next: i64,
    /// Whether that is known to lie between two batches.
    pub(super) between_batches: bool,
    /// Leader epoch of the record before it; -1 not known.
    pub(super) leader_epoch: i32,
}

impl Upto {
    /// Up to an offset of which nothing more is known.
    pub(super) fn offset(next: i64, leader_epoch: i32) -> Self {
        Self { next, between_batches: false, leader_epoch }
    }
}

impl PartitionReader {
    /// Records a gap and goes on behind it. False: it could not be stored, begin anew.
    pub(super) async fn gap(&mut self, why: GapReason, to: i64, leader_epoch: i32) -> Result<bool, Stopped> {
        let Some(place) = self.place else { return Ok(false) };
        let gap = Gap {
            topic: self.partition.topic.to_string(),
            partition: self.partition.number,
            from: place.next,
            to,
            at: self.source.clock.wall(),
            why,
        };
        let stored = self.step_to(to, leader_epoch, vec![gap]).await?;
        if stored {
            self.source.status.counters.count_gap(why);
            let Partition { topic, number, .. } = &*self.partition;
            warn!(%topic, partition = number, from = place.next, to, why = why.code(), "a stretch of the partition could not be read");
        }
        Ok(stored)
    }

    /// Moves the position without records, trying until the inbox takes it. False: begin anew.
    pub(super) async fn step_to(&mut self, next: i64, leader_epoch: i32, gaps: Vec<Gap>) -> Result<bool, Stopped> {
        loop {
            match self.store(vec![], Upto::offset(next, leader_epoch), gaps.clone()).await? {
                Stored::Done => return Ok(true),
                Stored::Later(why) => self.wait_for_inbox(&why).await?,
                Stored::Reread(why) => {
                    self.wait_for_inbox(&why).await?;
                    return Ok(false);
                }
            }
        }
    }

    /// One admit: these records, and the position after them (C3.1).
    pub(super) async fn store(&mut self, records: Vec<Judged>, upto: Upto, gaps: Vec<Gap>) -> Result<Stored, Stopped> {
        let Upto { next, between_batches, leader_epoch } = upto;
        let Some(place) = self.place else { return Ok(Stored::Reread("no position".to_owned())) };
        if records.is_empty() && gaps.is_empty() && place.stored == Some(next) {
            return Ok(Stored::Done);
        }
        let leader_epoch = if gaps.is_empty() { leader_epoch.max(place.leader_epoch) } else { leader_epoch };
        let step = PartitionStep {
            topic: self.partition.topic.clone(),
            topic_id: self.partition.topic_id,
            partition: self.partition.number,
            from: place.stored,
            next,
            leader_epoch,
            gaps,
        };
        let tally = Tally::of(&records);
        // An answer that comes while the hub stops is waited for: it comes soon, and what is stored is then known.
        match self.source.inbox.admit(Admit { from: AdmitFrom::Partition(step), records }).await {
            Ok(admitted) => {
                let (judged, without_tenant) = tally.judged();
                tally.count(&self.source);
                self.note_duplicates(&admitted, place.next, next);
                self.place = Some(Place { stored: Some(next), next, leader_epoch, between_batches });
                self.backoff.reset();
                self.max_bytes = FETCH_PARTITION_BYTES;
                self.partition.fetch_no_more_than(FETCH_PARTITION_BYTES);
                let mut facts = self.partition.status.facts();
                (facts.position, facts.leader_epoch) = (Some(next), leader_epoch);
                facts.judged += judged;
                facts.without_tenant += without_tenant;
                if facts.state == PartitionState::Waiting {
                    facts.state = PartitionState::Reading;
                }
                Ok(Stored::Done)
            }
            Err(Refusal::Stopping) => Err(Stopped),
            Err(full @ (Refusal::BacklogFull | Refusal::DiskLow)) => Ok(Stored::Later(full.to_string())),
            Err(
                why @ (Refusal::PositionMoved { .. }
                | Refusal::Suspended(_)
                | Refusal::NotFound
                | Refusal::Stale
                | Refusal::VerifyRequired
                | Refusal::RotationInProgress
                | Refusal::LimitReached(_)),
            ) => {
                self.place = None;
                Ok(Stored::Reread(why.to_string()))
            }
        }
    }

    fn note_duplicates(&self, admitted: &Admitted, from: i64, next: i64) {
        let (mut duplicates, mut conflicts) = (0, 0);
        for result in &admitted.results {
            match result {
                AdmitResult::Duplicate { conflict, .. } => {
                    duplicates += 1;
                    conflicts += usize::from(*conflict);
                }
                AdmitResult::Stored { .. } | AdmitResult::Dropped | AdmitResult::Quarantined => {}
            }
        }
        let counters = &self.source.status.counters;
        add(&counters.duplicates, duplicates);
        add(&counters.dedup_conflicts, conflicts);
        if conflicts > 0 {
            let Partition { topic, number, .. } = &*self.partition;
            warn!(%topic, partition = number, from, next, conflicts, "events known already came again with another body; the first ones count");
        }
    }
}

/// Verdicts on the records of one admit, counted when they are stored.
#[derive(Default)]
struct Tally {
    accepted: usize,
    dropped: usize,
    quarantined: Vec<Reason>,
}

impl Tally {
    fn of(records: &[Judged]) -> Self {
        let mut tally = Self::default();
        for record in records {
            match record {
                Judged::Event(_) => tally.accepted += 1,
                Judged::Dropped => tally.dropped += 1,
                Judged::Poison(poison) => tally.quarantined.push(poison.reason),
            }
        }
        tally
    }

    /// Records that might have become events, and how many of them named no tenant (C2.8).
    fn judged(&self) -> (u64, u64) {
        let without = self.quarantined.iter().filter(|reason| **reason == Reason::MissingTenant).count();
        ((self.accepted + self.quarantined.len()) as u64, without as u64)
    }

    fn count(self, source: &Source) {
        let counters = &source.status.counters;
        add(&counters.accepted, self.accepted);
        add(&counters.dropped, self.dropped);
        self.quarantined.into_iter().for_each(|reason| counters.count_quarantined(reason));
    }
}
