//! One task for each followed partition: finds its position, judges and stores what is fetched for it, and settles whatever is
//! wrong with its offsets.
//!
//! Invariants: the position moves only by an admit that carries what was read up to it (C3.1); one admit at a time; whatever
//! fails is tried again for ever from the stored position; nothing is passed over without a gap or a poison record.

mod deposit;
mod offsets;

use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::broker::Broker;
use crate::kafka::cut::{Cut, Cutter, Judge, Then};
use crate::kafka::decode::{Fault, Fetched, Unreadable};
use crate::kafka::message::ErrorCode;
use crate::kafka::partition::{Delivered, Delivery, Leadership, Partition};
use crate::kafka::settings::Start;
use crate::kafka::source::Source;
use crate::kafka::status::{PartitionState, add};
use crate::kafka::trouble::Place;
use crate::model::limits::{BROKER_ANSWER_BYTES_MAX, FETCH_BYTES, FETCH_PARTITION_BYTES};
use crate::time::Timestamp;
use bytes::Bytes;
use deposit::{Stored, Upto};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

/// A batch is tried so often before it is given up as unreadable.
const UNREADABLE_TRIES: u32 = 3;
/// Fetched bytes up to this size are decoded where they are; more goes to a thread that may block.
const INLINE_BYTES: usize = 16 << 10;

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

/// How far fetched bytes could be taken in.
enum TakenIn {
    /// To their end.
    Whole,
    /// Up to a batch that cannot be read; so many bytes would be needed for the whole of it, or 0.
    Unreadable { batch: Unreadable, wanted: usize },
    /// Up to what the inbox does not take now.
    Later(String),
    /// Up to where it is not known what the inbox took.
    Reread(String),
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
        let judge = Judge::new(&source.settings, partition.topic.clone(), partition.number);
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

    /// Judges and stores everything that was fetched.
    async fn take_in(&mut self, fetched: Fetched) -> Result<Result<(), Anew>, Stopped> {
        loop {
            match self.take_in_once(fetched.clone()).await? {
                TakenIn::Whole => return Ok(Ok(())),
                TakenIn::Unreadable { batch, wanted } => {
                    self.pass_unreadable(batch, wanted).await?;
                    return Ok(Err(Anew));
                }
                TakenIn::Later(why) => self.wait_for_inbox(&why).await?,
                TakenIn::Reread(why) => {
                    self.wait_for_inbox(&why).await?;
                    return Ok(Err(Anew));
                }
            }
        }
    }

    /// Judges and stores as far as it goes. No more than some partitions do this at a time: what is decoded has to be in memory.
    async fn take_in_once(&mut self, fetched: Fetched) -> Result<TakenIn, Stopped> {
        let Some(place) = self.place else { return Ok(TakenIn::Whole) };
        let source = self.source.clone();
        let inline = fetched.bytes.len() <= INLINE_BYTES;
        let _turn = if inline { None } else { Some(self.unless_stopped(source.decoding.acquire()).await?) };
        let (bytes, asked) = (fetched.bytes.clone(), fetched.asked);
        let mut cutter = Cutter::new(fetched, place.next, self.judge.clone());
        while !self.stop.is_cancelled() {
            let from = self.place.map_or(asked, |place| place.next);
            let Some((cutter_back, cut)) = cut(cutter, inline).await else {
                let batch = Unreadable { why: Fault::Crashed, raw: bytes, skip_to: from.saturating_add(1) };
                return Ok(TakenIn::Unreadable { batch, wanted: 0 });
            };
            cutter = cutter_back;
            let Cut { next, between_batches, leader_epoch, .. } = cut;
            match self.store(cut.records, Upto { next, between_batches, leader_epoch }, vec![]).await? {
                Stored::Done => {}
                Stored::Later(why) => return Ok(TakenIn::Later(why)),
                Stored::Reread(why) => return Ok(TakenIn::Reread(why)),
            }
            if cut.newest.is_some() {
                self.partition.status.facts().last_record = cut.newest.map(Timestamp);
            }
            match cut.then {
                Then::More => {}
                Then::End(_) if next > asked => return Ok(TakenIn::Whole),
                Then::End(wanted) => {
                    let batch = Unreadable { why: Fault::CutOff, raw: bytes, skip_to: from.saturating_add(1) };
                    return Ok(TakenIn::Unreadable { batch, wanted });
                }
                Then::Unreadable(batch) => return Ok(TakenIn::Unreadable { batch, wanted: 0 }),
            }
        }
        Err(Stopped)
    }

    /// Counts the tries of a batch that cannot be read; after the last one it becomes a poison record and is passed. `wanted`
    /// bytes are asked for at least.
    async fn pass_unreadable(&mut self, batch: Unreadable, wanted: usize) -> Result<(), Stopped> {
        let Some(place) = self.place else { return Ok(()) };
        let Unreadable { why, raw, skip_to } = batch;
        let tries = if self.unreadable.0 == place.next { self.unreadable.1 + 1 } else { 1 };
        self.unreadable = (place.next, tries);
        // More bytes: a batch that was cut off comes whole, and the one after a damaged one shows where the damage ends.
        self.max_bytes = wanted.clamp(FETCH_BYTES, BROKER_ANSWER_BYTES_MAX / 2);
        if tries < UNREADABLE_TRIES {
            let wait = Duration::from_millis(100) * tries;
            return self.unless_stopped(tokio::time::sleep(wait)).await;
        }
        let poison = self.judge.unreadable(raw, place.next);
        match self.store(vec![poison], Upto::offset(skip_to, -1), vec![]).await? {
            Stored::Done => {}
            // The next try of the batch leads here again.
            Stored::Later(why) | Stored::Reread(why) => return self.wait_for_inbox(&why).await,
        }
        add(&self.source.status.counters.unreadable_batches, 1);
        self.partition.status.facts().last_error = Some(format!("unreadable batch at {}: {why}", place.next));
        let Partition { topic, number, .. } = &*self.partition;
        let offset = place.next;
        error!(%topic, partition = number, offset, skip_to, %why, "a batch cannot be read; kept as a poison record, going on after it");
        Ok(())
    }

    /// The broker gave an error for the partition.
    async fn refused(&mut self, code: ErrorCode, broker: &Broker, leader: Leadership) -> Result<(), Stopped> {
        let Some(place) = self.place else { return Ok(()) };
        match code {
            ErrorCode::OFFSET_OUT_OF_RANGE => self.settle_range(broker, leader).await,
            ErrorCode::CORRUPT_MESSAGE => {
                let (raw, skip_to) = (Bytes::new(), place.next.saturating_add(1));
                self.pass_unreadable(Unreadable { why: Fault::Withheld, raw, skip_to }, 0).await
            }
            other => self.wait_for_broker(&other.name(), other.needs_a_person(), other.asks_for_discovery()).await,
        }
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
async fn cut(mut cutter: Cutter, inline: bool) -> Option<(Cutter, Cut)> {
    let guarded = move || {
        // The cutter is gone after a crash, so nothing half changed is seen again.
        catch_unwind(AssertUnwindSafe(|| {
            let cut = cutter.cut();
            (cutter, cut)
        }))
        .ok()
    };
    if inline {
        return guarded();
    }
    tokio::task::spawn_blocking(guarded).await.ok().flatten()
}
