//! What the Kafka source shows of itself: `/admin/ingest`, `/readyz`, metrics, and one log line for each change of state (C1.7).
//!
//! Invariant: a state is logged when it begins and when it ends, however often what caused it repeats in between.

use crate::metrics::Metrics;
use crate::model::gap::GapReason;
use crate::model::record::Reason;
use crate::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tracing::{error, info, warn};

/// The state of the source. Shared by the source, which writes, and everybody else.
#[derive(Debug, Default)]
pub struct KafkaStatus {
    /// What was counted since the start.
    pub counters: Counters,
    shown: RwLock<Shown>,
    /// Partitions that have gauges.
    on_metrics: Mutex<BTreeSet<(Arc<str>, i32)>>,
}

#[derive(Debug, Default)]
struct Shown {
    source: Link,
    brokers: BTreeMap<i32, Link>,
    partitions: BTreeMap<(Arc<str>, i32), Arc<PartitionStatus>>,
}

/// Whether somebody answers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Link {
    /// Not tried yet.
    #[default]
    Connecting,
    /// It answers.
    Up,
    /// It does not.
    Down(Down),
}

/// What keeps somebody from answering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Down {
    /// A stable word for it.
    pub code: &'static str,
    /// In words for the operator.
    pub detail: String,
    /// A setting or a right has to be changed; waiting does not mend it.
    pub needs_a_person: bool,
    /// Since when (wall time).
    pub since: Timestamp,
}

impl KafkaStatus {
    /// The source in one word: `connecting`, `connected`, `unreachable`, or `refused` where a setting or a right must be changed.
    pub fn word(&self) -> &'static str {
        match &self.read().source {
            Link::Connecting => "connecting",
            Link::Up => "connected",
            Link::Down(down) if down.needs_a_person => "refused",
            Link::Down(_) => "unreachable",
        }
    }

    /// What an operator should know, one line each, without addresses; empty when all is well.
    pub fn problems(&self) -> Vec<String> {
        let shown = self.read();
        let mut problems = Vec::new();
        if let Link::Down(down) = &shown.source {
            let what = if down.needs_a_person { "the brokers refuse us" } else { "no broker answers" };
            problems.push(format!("{what}: {} since {}", down.code, down.since));
        }
        for (id, link) in &shown.brokers {
            if let Link::Down(down) = link {
                problems.push(format!("broker {id}: {} since {}", down.code, down.since));
            }
        }
        for ((topic, partition), status) in &shown.partitions {
            let facts = status.facts();
            match facts.state {
                PartitionState::NoLeader
                | PartitionState::Failing
                | PartitionState::Refused
                | PartitionState::Waiting => {
                    let why = facts.last_error.as_deref().unwrap_or_default();
                    problems.push(format!("{topic}/{partition}: {} {why}", facts.state.code()));
                }
                PartitionState::HangingTransaction => {
                    let since = facts.hanging_since.unwrap_or_default();
                    let stable = facts.last_stable.unwrap_or(-1);
                    problems.push(format!("{topic}/{partition}: {} at {stable} since {since}", facts.state.code()));
                }
                PartitionState::Starting | PartitionState::Reading => {}
            }
        }
        problems
    }

    /// What brokers refuse us: all, or one of them, and topics. Somebody has to change a setting or a right.
    pub fn refusals(&self) -> Vec<Refused> {
        let shown = self.read();
        let links = std::iter::once(("brokers".to_owned(), &shown.source));
        let links = links.chain(shown.brokers.iter().map(|(id, link)| (format!("broker {id}"), link)));
        let mut refusals: Vec<Refused> = links.filter_map(|(what, link)| link.refused(what)).collect();
        for ((topic, _), status) in &shown.partitions {
            let facts = status.facts();
            let known = refusals.last().is_some_and(|last| *last.what == **topic);
            if facts.state == PartitionState::Refused && !known {
                let why = facts.last_error.clone().unwrap_or_default();
                refusals.push(Refused { what: topic.to_string(), code: why.clone(), detail: why, since: None });
            }
        }
        refusals
    }

    /// Topics of which every record that was judged came without a tenant: nothing of them can ever be delivered (C2.8).
    pub fn topics_without_tenant(&self) -> Vec<Arc<str>> {
        let mut topics: BTreeMap<&Arc<str>, (u64, u64)> = BTreeMap::new();
        let shown = self.read();
        for ((topic, _), status) in &shown.partitions {
            let facts = status.facts();
            let (judged, without) = topics.entry(topic).or_default();
            *judged += facts.judged;
            *without += facts.without_tenant;
        }
        let lost = topics.into_iter().filter(|(_, (judged, without))| *judged > 0 && judged == without);
        lost.map(|(topic, _)| topic.clone()).collect()
    }

    /// Every partition that is followed.
    pub fn partitions(&self) -> Vec<(Arc<str>, i32, PartitionFacts)> {
        let shown = self.read();
        shown.partitions.iter().map(|((topic, partition), s)| (topic.clone(), *partition, s.facts().clone())).collect()
    }

    /// Sets the gauges of the metrics to what is true now: before each scrape.
    pub fn show_on(&self, metrics: &Metrics) {
        let shown = self.read();
        metrics.kafka_connected(shown.source == Link::Up);
        let now: BTreeSet<_> = shown.partitions.keys().cloned().collect();
        let mut before = self.on_metrics.lock().unwrap_or_else(PoisonError::into_inner);
        before.difference(&now).for_each(|(topic, partition)| metrics.kafka_partition_gone(topic, *partition));
        *before = now;
        drop(before);
        let mut hanging = 0;
        for ((topic, partition), status) in &shown.partitions {
            let facts = status.facts();
            hanging += i64::from(facts.hanging_since.is_some());
            let last_fetch = facts.last_fetch.map_or(0, Timestamp::unix_seconds);
            let last_fetch = i64::try_from(last_fetch).unwrap_or(i64::MAX);
            metrics.kafka_partition(topic, *partition, facts.lag().unwrap_or(0), last_fetch);
        }
        metrics.kafka_hanging(hanging);
    }

    /// The whole source answers, or does not.
    pub(super) fn set_source(&self, link: Link) {
        let mut shown = self.write();
        if shown.source.becomes(link) {
            match &shown.source {
                Link::Connecting => {}
                Link::Up => info!("kafka answers"),
                Link::Down(down) if down.needs_a_person => {
                    error!(code = down.code, detail = %down.detail, "kafka refuses us; trying on, slowly");
                }
                Link::Down(down) => warn!(code = down.code, detail = %down.detail, "kafka does not answer; trying on"),
            }
        }
    }

    /// A broker that we fetch from answers, or does not.
    pub(super) fn set_broker(&self, id: i32, link: Link) {
        let mut shown = self.write();
        let broker = shown.brokers.entry(id).or_default();
        if broker.becomes(link) {
            match broker {
                Link::Connecting => {}
                Link::Up => info!(broker = id, "reading from broker"),
                Link::Down(down) if down.needs_a_person => {
                    error!(broker = id, code = down.code, detail = %down.detail, "broker refuses us; trying on, slowly");
                }
                Link::Down(down) => {
                    warn!(broker = id, code = down.code, detail = %down.detail, "broker does not answer; trying on");
                }
            }
        }
    }

    /// Nothing is read from that broker any more.
    pub(super) fn forget_broker(&self, id: i32) {
        self.write().brokers.remove(&id);
    }

    /// A partition is followed from now on.
    pub(super) fn follow(&self, topic: &Arc<str>, partition: i32) -> Arc<PartitionStatus> {
        let status = Arc::new(PartitionStatus::default());
        self.write().partitions.insert((topic.clone(), partition), status.clone());
        status
    }

    /// A partition is not followed any more.
    pub(super) fn unfollow(&self, topic: &Arc<str>, partition: i32) {
        self.write().partitions.remove(&(topic.clone(), partition));
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Shown> {
        self.shown.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Shown> {
        self.shown.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `brokers` for all of them, `broker` and its number, or a topic.
    pub what: String,
    /// A stable word for why.
    pub code: String,
    /// Why, in words for the operator.
    pub detail: String,
    /// Since when, where that is known (wall time).
    pub since: Option<Timestamp>,
}

impl Link {
    fn refused(&self, what: String) -> Option<Refused> {
        match self {
            Link::Down(down) if down.needs_a_person => {
                let Down { code, detail, since, .. } = down.clone();
                Some(Refused { what, code: code.to_owned(), detail, since: Some(since) })
            }
            Link::Down(_) | Link::Up | Link::Connecting => None,
        }
    }

    /// Becomes `now`; whether that is another state, and not the same one told in other words. A state that goes on keeps its
    /// beginning.
    fn becomes(&mut self, mut now: Link) -> bool {
        let news = match (&*self, &mut now) {
            (Link::Down(before), Link::Down(now)) => {
                let news = before.needs_a_person != now.needs_a_person;
                if !news {
                    now.since = before.since;
                }
                news
            }
            (before, now) => before != now,
        };
        *self = now;
        news
    }
}

/// State of one partition.
#[derive(Debug, Default)]
pub struct PartitionStatus(Mutex<PartitionFacts>);

impl PartitionStatus {
    pub(super) fn facts(&self) -> MutexGuard<'_, PartitionFacts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of one partition.
#[derive(Debug, Clone, Default)]
pub struct PartitionFacts {
    /// What it does.
    pub state: PartitionState,
    /// The next offset, as the store has it.
    pub position: Option<i64>,
    /// Leader epoch of the last record that was stored; -1 not known.
    pub leader_epoch: i32,
    /// The log's first offset.
    pub log_start: Option<i64>,
    /// The log's end for readers.
    pub high_watermark: Option<i64>,
    /// The end of what transactions have decided.
    pub last_stable: Option<i64>,
    /// Since when a hanging transaction holds that up (wall time); none while none does (C1.6).
    pub hanging_since: Option<Timestamp>,
    /// When the last fetch was answered (wall time).
    pub last_fetch: Option<Timestamp>,
    /// Time of the newest batch that was read, as its producer or broker set it.
    pub last_record: Option<Timestamp>,
    /// The last error, in words for the operator; stays when it has passed.
    pub last_error: Option<String>,
    /// Records judged since the start, system events left out.
    pub judged: u64,
    /// Of these, the ones without a tenant.
    pub without_tenant: u64,
}

impl PartitionFacts {
    /// Offsets between the position and the log's end.
    pub fn lag(&self) -> Option<i64> {
        Some(self.high_watermark?.saturating_sub(self.position.or(self.log_start)?).max(0))
    }
}

/// What a partition does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionState {
    /// Its position is being found.
    #[default]
    Starting,
    /// It is read.
    Reading,
    /// It is read up to a transaction that hangs: somebody has to end that (C1.6).
    HangingTransaction,
    /// The inbox takes nothing now.
    Waiting,
    /// No broker leads it.
    NoLeader,
    /// The broker gives an error for it that will pass.
    Failing,
    /// The broker refuses it: a right or a setting has to be changed.
    Refused,
}

impl PartitionState {
    /// The stable word.
    pub fn code(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Reading => "reading",
            Self::HangingTransaction => "hanging_transaction",
            Self::Waiting => "waiting",
            Self::NoLeader => "no_leader",
            Self::Failing => "error",
            Self::Refused => "refused",
        }
    }
}

const REASONS: usize = Reason::ALL.len();
const GAP_REASONS: usize = 3;

/// What was counted since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Records that became events, repeated ones with them.
    pub accepted: AtomicU64,
    /// System events.
    pub dropped: AtomicU64,
    quarantined: [AtomicU64; REASONS],
    /// Accepted records that were known already (C3.2).
    pub duplicates: AtomicU64,
    /// Those of them with another body.
    pub dedup_conflicts: AtomicU64,
    gaps: [AtomicU64; GAP_REASONS],
    /// Fetches that brought something.
    pub fetches: AtomicU64,
    /// Bytes of records fetched, as they came.
    pub bytes: AtomicU64,
    /// Batches given up as unreadable.
    pub unreadable_batches: AtomicU64,
    /// Errors that brokers gave for partitions.
    pub fetch_errors: AtomicU64,
    /// Connections for fetching that were made.
    pub connections: AtomicU64,
}

impl Counters {
    /// Quarantined records of that reason.
    pub fn quarantined(&self, reason: Reason) -> u64 {
        self.quarantined.get(reason_index(reason)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Gaps of that reason.
    pub fn gaps(&self, why: GapReason) -> u64 {
        self.gaps.get(gap_index(why)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(super) fn count_quarantined(&self, reason: Reason) {
        if let Some(count) = self.quarantined.get(reason_index(reason)) {
            add(count, 1);
        }
    }

    pub(super) fn count_gap(&self, why: GapReason) {
        if let Some(count) = self.gaps.get(gap_index(why)) {
            add(count, 1);
        }
    }
}

/// Counts.
pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
}

fn reason_index(reason: Reason) -> usize {
    Reason::ALL.iter().position(|each| *each == reason).unwrap_or(usize::MAX)
}

fn gap_index(why: GapReason) -> usize {
    match why {
        GapReason::BelowStart => 0,
        GapReason::Truncated => 1,
        GapReason::Recreated => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn down(code: &'static str, detail: &str, since: u64) -> Link {
        let (needs_a_person, since) = (code == "authentication", Timestamp(since));
        Link::Down(Down { code, detail: detail.to_owned(), needs_a_person, since })
    }

    // C1.7, C13.1
    #[test]
    fn the_state_is_told_in_one_word_and_keeps_its_beginning() {
        let status = KafkaStatus::default();
        assert_eq!(status.word(), "connecting");
        status.set_source(down("connect", "refused", 9));
        assert_eq!(status.word(), "unreachable");
        let mut link = down("connect", "refused", 9);
        assert!(!link.becomes(down("timeout", "silent", 12)), "the same state in other words");
        assert_eq!(link, down("timeout", "silent", 9));
        assert!(link.becomes(down("authentication", "", 15)));
        status.set_source(down("authentication", "wrong password", 9));
        assert_eq!(status.word(), "refused");
        assert_eq!(status.problems(), ["the brokers refuse us: authentication since 1970-01-01T00:00:00.009Z"]);
        status.set_source(Link::Up);
        status.set_broker(2, down("timeout", "", 9));
        let topic: Arc<str> = "t".into();
        let partition = status.follow(&topic, 3);
        partition.facts().state = PartitionState::NoLeader;
        assert_eq!(status.problems().len(), 2);
        // C1.6
        *partition.facts() = PartitionFacts {
            state: PartitionState::HangingTransaction,
            last_stable: Some(12),
            hanging_since: Some(Timestamp(9)),
            ..PartitionFacts::default()
        };
        assert_eq!(status.problems()[1], "t/3: hanging_transaction at 12 since 1970-01-01T00:00:00.009Z");
        assert_eq!(status.refusals(), []);
        status.forget_broker(2);
        status.unfollow(&topic, 3);
        assert_eq!((status.word(), status.problems().len()), ("connected", 0));
    }

    // C1.7
    #[test]
    fn what_is_refused_is_told_by_what_it_is_about() {
        let status = KafkaStatus::default();
        status.set_broker(1, down("timeout", "silent", 9));
        status.set_broker(2, down("authentication", "wrong password", 9));
        let (topic, other): (Arc<str>, Arc<str>) = ("t".into(), "u".into());
        for partition in 0..2 {
            let refused = status.follow(&topic, partition);
            refused.facts().state = PartitionState::Refused;
            refused.facts().last_error = Some("topic_authorization_failed".to_owned());
            status.follow(&other, partition).facts().state = PartitionState::Failing;
        }
        let told = |status: &KafkaStatus| -> Vec<_> {
            status.refusals().into_iter().map(|refused| (refused.what, refused.code, refused.since)).collect()
        };
        let of_broker = ("broker 2".to_owned(), "authentication".to_owned(), Some(Timestamp(9)));
        let of_topic = ("t".to_owned(), "topic_authorization_failed".to_owned(), None);
        assert_eq!(told(&status), [of_broker.clone(), of_topic.clone()]);
        status.set_source(down("authentication", "wrong password", 7));
        let of_all = ("brokers".to_owned(), "authentication".to_owned(), Some(Timestamp(7)));
        assert_eq!(told(&status), [of_all, of_broker, of_topic]);
    }

    #[test]
    fn lag_is_what_is_left_to_read() {
        let facts = |position, log_start| {
            PartitionFacts { position, log_start, high_watermark: Some(50), ..PartitionFacts::default() }.lag()
        };
        assert_eq!(facts(Some(20), Some(5)), Some(30));
        assert_eq!(facts(None, Some(5)), Some(45));
        assert_eq!(facts(Some(60), None), Some(0));
        assert_eq!(facts(None, None), None);
    }
}
