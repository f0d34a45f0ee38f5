//! One task for each followed partition: finds its position, judges and stores what is fetched for it, and settles whatever is
//! wrong with its offsets.
//!
//! Invariants: the position moves only by an admit that carries what was read up to it (C3.1); one admit at a time; whatever
//! fails is tried again for ever from the stored position; nothing is passed over without a gap or a poison record.

use crate::engine::command::{Admit, AdmitFrom, AdmitResult, Admitted, Judged, PartitionStep, Refusal};
use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::broker::Broker;
use crate::kafka::connection::{CALL_LIMIT, CallError};
use crate::kafka::cut::{Cut, Cutter, Judge, Then};
use crate::kafka::decode::{Fault, Fetched, Unreadable};
use crate::kafka::message::ErrorCode;
use crate::kafka::message::offsets::{ListOffsets, LogEnd, OffsetAnswer, OffsetForLeaderEpoch};
use crate::kafka::partition::{Delivered, Delivery, Leadership, Partition};
use crate::kafka::settings::Start;
use crate::kafka::source::Source;
use crate::kafka::status::{PartitionState, add};
use crate::kafka::trouble::{Begin, Place, Trouble, begin, epoch_end, out_of_range};
use crate::model::gap::{Gap, GapReason};
use crate::model::limits::{BROKER_ANSWER_BYTES_MAX, FETCH_BYTES, FETCH_PARTITION_BYTES};
use crate::time::Timestamp;
use bytes::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// A batch is tried so often before it is given up as unreadable.
const UNREADABLE_TRIES: u32 = 3;
/// Fetched bytes up to this size are decoded where they are; more goes to a thread that may block.
const INLINE_BYTES: usize = 16 << 10;
/// A fresh look at the cluster is waited for so long, when the broker says that an offset is out of range.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(30);

/// Who leads the partition, and the broker to ask.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) leader: Leadership,
    /// None while nobody leads it.
    pub(super) broker: Option<Arc<Broker>>,
}

impl Assignment {
    /// Whether it says the same.
    pub(super) fn is(&self, other: &Self) -> bool {
        let same_broker = match (&self.broker, &other.broker) {
            (Some(broker), Some(other)) => Arc::ptr_eq(broker, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        same_broker && self.leader == other.leader
    }
}

/// Reads one partition.
pub(super) struct PartitionReader {
    source: Arc<Source>,
    partition: Arc<Partition>,
    deliveries: mpsc::Receiver<Delivery>,
    assignment: watch::Receiver<Assignment>,
    stop: CancellationToken,
    judge: Judge,
    start: Start,
    /// Where `latest` was, once it was asked for.
    latest: Option<i64>,
    /// None: the store must be asked.
    place: Option<Place>,
    backoff: Backoff,
    /// The offset at which a batch could not be read, and how often.
    unreadable: (i64, u32),
    max_bytes: usize,
}

/// The reader shall end.
struct Stopped;

/// The partition has to begin anew, from the place if there is one, else from the store.
struct Anew;

/// What an admit led to.
enum Stored {
    /// It is stored.
    Done,
    /// The inbox takes nothing now; the same again later.
    Later,
    /// The store has to be asked for the position.
    Reread,
}

impl PartitionReader {
    pub(super) fn new(
        source: Arc<Source>,
        partition: Arc<Partition>,
        deliveries: mpsc::Receiver<Delivery>,
        assignment: watch::Receiver<Assignment>,
        stop: CancellationToken,
        start: Start,
    ) -> Self {
        let judge = Judge {
            policy: source.settings.classify,
            prefix: source.settings.topic_prefix.as_str().into(),
            topic: partition.topic.clone(),
            partition: partition.number,
        };
        Self {
            source,
            partition,
            deliveries,
            assignment,
            stop,
            judge,
            start,
            latest: None,
            place: None,
            backoff: Backoff::default(),
            unreadable: (-1, 0),
            max_bytes: FETCH_PARTITION_BYTES,
        }
    }

    /// Reads until it is stopped.
    pub(super) async fn run(mut self) {
        while self.read_from_the_beginning().await.is_ok() {
            self.partition.fetch_nothing();
        }
        self.partition.fetch_nothing();
    }

    /// Begins at the known place, or the stored one, and reads until something asks to begin anew.
    async fn read_from_the_beginning(&mut self) -> Result<(), Stopped> {
        let Assignment { leader, broker } = self.assignment.borrow_and_update().clone();
        let Some(broker) = broker else {
            self.partition.status.facts().state = PartitionState::NoLeader;
            self.source.discover_soon();
            return self.unless_moved(std::future::pending::<()>()).await;
        };
        if self.place.is_none() && !self.locate(&broker, leader).await? {
            return Ok(());
        }
        if !self.check_epoch(&broker, leader).await? {
            return Ok(());
        }
        let Some(place) = self.place else { return Ok(()) };
        let generation = self.partition.fetch_from(&place, leader, self.max_bytes);
        loop {
            let delivery = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Stopped),
                changed = self.assignment.changed() => {
                    changed.map_err(|_| Stopped)?;
                    self.assignment.mark_changed();
                    return Ok(());
                }
                delivery = self.deliveries.recv() => delivery.ok_or(Stopped)?,
            };
            if delivery.generation != generation {
                continue;
            }
            match delivery.what {
                Delivered::Records(fetched, _held) => {
                    if let Err(Anew) = self.take_in(fetched).await? {
                        return Ok(());
                    }
                }
                Delivered::Error(code) => return self.refused(code, &broker, leader).await,
            }
        }
    }

    /// Finds the position in the store, or in the log where none is stored. False: try again.
    async fn locate(&mut self, broker: &Broker, leader: Leadership) -> Result<bool, Stopped> {
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
    async fn check_epoch(&mut self, broker: &Broker, leader: Leadership) -> Result<bool, Stopped> {
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

    /// Judges and stores everything that was fetched.
    async fn take_in(&mut self, fetched: Fetched) -> Result<Result<(), Anew>, Stopped> {
        let bytes = fetched.bytes.clone();
        let asked = fetched.asked;
        'bytes: loop {
            let Some(place) = self.place else { return Ok(Err(Anew)) };
            let mut cutter = Cutter::new(fetched.clone(), place.next, self.judge.clone());
            loop {
                if self.stop.is_cancelled() {
                    return Err(Stopped);
                }
                let Some((cutter_back, cut)) = cut(cutter, bytes.len()).await else {
                    let next = self.place.map_or(asked, |place| place.next);
                    let (why, skip_to) = (Fault::Crashed, next.saturating_add(1));
                    return self.pass_unreadable(Unreadable { why, raw: bytes, skip_to }, 0).await.map(Err);
                };
                cutter = cutter_back;
                match self.store(cut.records, cut.next, cut.between_batches, cut.leader_epoch, vec![]).await? {
                    Stored::Done => {}
                    Stored::Later => continue 'bytes,
                    Stored::Reread => return Ok(Err(Anew)),
                }
                if cut.newest.is_some() {
                    self.partition.status.facts().last_record = cut.newest.map(Timestamp);
                }
                match cut.then {
                    Then::More => {}
                    Then::End(_) if self.place.is_some_and(|place| place.next > asked) => return Ok(Ok(())),
                    Then::End(half) => {
                        let unreadable =
                            Unreadable { why: Fault::CutOff, raw: bytes, skip_to: asked.saturating_add(1) };
                        return self.pass_unreadable(unreadable, half).await.map(Err);
                    }
                    Then::Unreadable(unreadable) => return self.pass_unreadable(unreadable, 0).await.map(Err),
                }
            }
        }
    }

    /// Counts the tries of a batch that cannot be read; after the last one it becomes a poison record and is passed.
    async fn pass_unreadable(&mut self, unreadable: Unreadable, wanted: usize) -> Result<Anew, Stopped> {
        let Some(place) = self.place else { return Ok(Anew) };
        let Unreadable { why, raw, skip_to } = unreadable;
        let tries = if self.unreadable.0 == place.next { self.unreadable.1 + 1 } else { 1 };
        self.unreadable = (place.next, tries);
        // More bytes: a batch that was cut off comes whole, and the one after a damaged one shows where the damage ends.
        self.max_bytes = wanted.clamp(FETCH_BYTES, BROKER_ANSWER_BYTES_MAX / 2);
        if tries < UNREADABLE_TRIES {
            let wait = Duration::from_millis(100) * tries;
            self.unless_stopped(tokio::time::sleep(wait)).await?;
            return Ok(Anew);
        }
        let poison = self.judge.unreadable(raw, place.next);
        if let Stored::Done = self.store(vec![poison], skip_to, false, place.leader_epoch, vec![]).await? {
            self.max_bytes = FETCH_PARTITION_BYTES;
            add(&self.source.status.counters.unreadable_batches, 1);
            self.partition.status.facts().last_error = Some(format!("unreadable batch at {}: {why}", place.next));
            let Partition { topic, number, .. } = &*self.partition;
            error!(%topic, partition = number, offset = place.next, skip_to, %why, "a batch cannot be read; kept as a poison record, going on after it");
        }
        Ok(Anew)
    }

    /// The broker gave an error for the partition.
    async fn refused(&mut self, code: ErrorCode, broker: &Broker, leader: Leadership) -> Result<(), Stopped> {
        let Some(place) = self.place else { return Ok(()) };
        match code {
            ErrorCode::OFFSET_OUT_OF_RANGE => self.settle_range(broker, leader).await,
            ErrorCode::CORRUPT_MESSAGE => {
                let (raw, skip_to) = (Bytes::new(), place.next.saturating_add(1));
                self.pass_unreadable(Unreadable { why: Fault::Withheld, raw, skip_to }, 0).await.map(|_| ())
            }
            other => self.wait_for_broker(&other.name(), other.needs_a_person(), other.asks_for_discovery()).await,
        }
    }

    async fn settle_range(&mut self, broker: &Broker, leader: Leadership) -> Result<(), Stopped> {
        // A topic that was made anew looks the same at first: its id tells it, and then this reader is stopped.
        let source = self.source.clone();
        let fresh = self.unless_moved(tokio::time::timeout(DISCOVERY_LIMIT, source.fresh_discovery()));
        fresh.await?;
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

    /// Records a gap and goes on behind it. False: it could not be stored, begin anew.
    async fn gap(&mut self, why: GapReason, to: i64, leader_epoch: i32) -> Result<bool, Stopped> {
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
    async fn step_to(&mut self, next: i64, leader_epoch: i32, gaps: Vec<Gap>) -> Result<bool, Stopped> {
        loop {
            match self.store(vec![], next, false, leader_epoch, gaps.clone()).await? {
                Stored::Done => return Ok(true),
                Stored::Later => {}
                Stored::Reread => return Ok(false),
            }
        }
    }

    /// One admit: these records, and the position after them (C3.1).
    async fn store(
        &mut self,
        records: Vec<Judged>,
        next: i64,
        between_batches: bool,
        leader_epoch: i32,
        gaps: Vec<Gap>,
    ) -> Result<Stored, Stopped> {
        let Some(place) = self.place else { return Ok(Stored::Reread) };
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
        // Not given up when the hub stops: the answer comes soon, and what is stored is then known.
        match self.source.inbox.admit(Admit { from: AdmitFrom::Partition(step), records }).await {
            Ok(admitted) => {
                tally.count(&self.source);
                self.note_duplicates(&admitted, place.next, next);
                self.place = Some(Place { stored: Some(next), next, leader_epoch, between_batches });
                self.backoff.reset();
                let mut facts = self.partition.status.facts();
                (facts.position, facts.leader_epoch) = (Some(next), leader_epoch);
                if facts.state == PartitionState::Waiting {
                    facts.state = PartitionState::Reading;
                }
                Ok(Stored::Done)
            }
            Err(Refusal::Stopping) => Err(Stopped),
            Err(Refusal::BacklogFull) => {
                self.wait_for_inbox(&Refusal::BacklogFull.to_string()).await?;
                Ok(Stored::Later)
            }
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
                self.wait_for_inbox(&why.to_string()).await?;
                Ok(Stored::Reread)
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

    /// An end of the log, as the leader tells it. None: try again.
    async fn log_end(&mut self, broker: &Broker, leader: Leadership, end: LogEnd) -> Result<Option<i64>, Stopped> {
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
    async fn usable(&mut self, answered: Result<OffsetAnswer, CallError>) -> Result<Option<OffsetAnswer>, Stopped> {
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

    async fn wait_for_broker(&mut self, why: &str, needs_a_person: bool, discover: bool) -> Result<(), Stopped> {
        if discover {
            self.source.discover_soon();
        }
        {
            let mut facts = self.partition.status.facts();
            let state = if needs_a_person { PartitionState::Refused } else { PartitionState::Failing };
            if facts.state != state {
                let Partition { topic, number, .. } = &*self.partition;
                if needs_a_person {
                    error!(%topic, partition = number, why, "the partition cannot be read; trying on, slowly");
                } else {
                    // A broker that restarts makes this for each of its partitions; its fetcher tells it once.
                    debug!(%topic, partition = number, why, "the partition cannot be read now; trying on");
                }
            }
            facts.state = state;
            facts.last_error = Some(why.to_owned());
        }
        let wait = self.source.wait_after(&mut self.backoff, Mended::by(needs_a_person));
        self.unless_moved(tokio::time::sleep(wait)).await
    }

    async fn wait_for_inbox(&mut self, why: &str) -> Result<(), Stopped> {
        {
            let mut facts = self.partition.status.facts();
            if facts.state != PartitionState::Waiting {
                let Partition { topic, number, .. } = &*self.partition;
                info!(%topic, partition = number, why, "the inbox takes nothing now; the partition waits");
            }
            facts.state = PartitionState::Waiting;
            facts.last_error = Some(why.to_owned());
        }
        let wait = self.source.wait_after(&mut self.backoff, Mended::ByTime);
        self.unless_stopped(tokio::time::sleep(wait)).await
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stopped> {
        self.stop.run_until_cancelled(work).await.ok_or(Stopped)
    }

    /// Waits for that, but not longer than until somebody else leads.
    async fn unless_moved<T>(&mut self, work: impl Future<Output = T>) -> Result<(), Stopped> {
        tokio::select! {
            () = self.stop.cancelled() => Err(Stopped),
            changed = self.assignment.changed() => {
                changed.map_err(|_| Stopped)?;
                self.assignment.mark_changed();
                Ok(())
            }
            _ = work => Ok(()),
        }
    }
}

/// Cuts the next piece; none when the decoder crashed.
async fn cut(mut cutter: Cutter, bytes: usize) -> Option<(Cutter, Cut)> {
    let guarded = move || {
        // The cutter is gone after a crash, so nothing half changed is seen again.
        catch_unwind(AssertUnwindSafe(|| {
            let cut = cutter.cut();
            (cutter, cut)
        }))
        .ok()
    };
    if bytes <= INLINE_BYTES {
        return guarded();
    }
    tokio::task::spawn_blocking(guarded).await.ok().flatten()
}

/// Verdicts on the records of one admit, counted when they are stored.
#[derive(Default)]
struct Tally {
    accepted: usize,
    dropped: usize,
    quarantined: Vec<crate::model::record::Reason>,
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

    fn count(self, source: &Source) {
        let counters = &source.status.counters;
        add(&counters.accepted, self.accepted);
        add(&counters.dropped, self.dropped);
        self.quarantined.into_iter().for_each(|reason| counters.count_quarantined(reason));
    }
}
