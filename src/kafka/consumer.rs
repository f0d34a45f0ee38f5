//! The supervisor of the Kafka source: looks at the cluster, follows what is to be followed, and keeps one reader for each
//! partition and one fetcher for each broker running.
//!
//! Invariants: it tries for ever; what it started it waits for before it ends; a topic that was made anew gets a new reader, and
//! the old one has ended before; a topic that we may not see any more is not taken for a deleted one.

use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::broker::Broker;
use crate::kafka::connection::CallError;
use crate::kafka::discovery::{Found, follow_set};
use crate::kafka::fetcher::{Fetcher, Led};
use crate::kafka::group;
use crate::kafka::message::metadata::{BrokerAddress, Metadata, MetadataAnswer};
use crate::kafka::partition::{Leadership, Partition};
use crate::kafka::reader::{Assignment, PartitionReader};
use crate::kafka::settings::Start;
use crate::kafka::source::Source;
use crate::kafka::status::{Down, Link};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

/// One broker may take so long for the metadata before the next one is asked.
const METADATA_LIMIT: Duration = Duration::from_secs(10);
/// Looks at the cluster that were asked for come no faster.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Brokers whose causes are told when none answers.
const CAUSES: usize = 8;

/// All brokers that are known.
pub(super) type Known = Arc<[Arc<Broker>]>;

/// Follows the cluster.
pub(super) struct Consumer {
    source: Arc<Source>,
    bootstrap: Vec<Arc<Broker>>,
    known: watch::Sender<Known>,
    answered: Option<Arc<Broker>>,
    readers: BTreeMap<(Arc<str>, i32), Reading>,
    fetchers: HashMap<i32, Fetching>,
    /// For partitions that are found now.
    start: Start,
    backoff: Backoff,
}

/// No broker answered.
struct Unanswered {
    /// The cause of one of them: of one that refuses us, if there is such a one.
    why: CallError,
    /// What each of them said, in words.
    detail: String,
}

struct Reading {
    partition: Arc<Partition>,
    assignment: watch::Sender<Assignment>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Reading {
    /// Tells its reader who leads, when that is news.
    fn assign(&self, assignment: Assignment) {
        self.assignment.send_if_modified(|now| {
            let news = !now.is(&assignment);
            if news {
                *now = assignment;
            }
            news
        });
    }
}

struct Fetching {
    broker: Arc<Broker>,
    led: watch::Sender<Led>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Consumer {
    pub(super) fn new(source: Arc<Source>) -> Self {
        let settings = &source.settings;
        let bootstrap = settings.brokers.iter();
        let bootstrap =
            bootstrap.map(|endpoint| Arc::new(Broker::new(-1, endpoint.clone(), source.access.clone()))).collect();
        Self {
            bootstrap,
            known: watch::Sender::new(Arc::new([])),
            answered: None,
            readers: BTreeMap::new(),
            fetchers: HashMap::new(),
            start: settings.start,
            backoff: Backoff::default(),
            source,
        }
    }

    /// Runs until the source is stopped; then waits for all that it started.
    pub(super) async fn run(mut self) {
        let stop = self.source.stop.clone();
        let committing = tokio::spawn(group::commit_for_ever(self.source.clone(), self.known.subscribe()));
        while !stop.is_cancelled() {
            let Some(looked) = stop.run_until_cancelled(self.look()).await else { break };
            match looked {
                Ok(answer) => {
                    self.backoff.reset();
                    self.source.status.set_source(Link::Up);
                    self.follow(&answer).await;
                    self.source.look_is_done();
                    let source = self.source.clone();
                    let _ = stop.run_until_cancelled(until_next_look(&source)).await;
                }
                Err(why) => {
                    let wait = self.failed(why);
                    let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
                }
            }
        }
        for reading in std::mem::take(&mut self.readers).into_values() {
            end("reader", reading.task).await;
        }
        for fetching in std::mem::take(&mut self.fetchers).into_values() {
            end("fetcher", fetching.task).await;
        }
        end("committer", committing).await;
    }

    /// Asks the brokers one after the other, the one that answered last time first.
    async fn look(&mut self) -> Result<MetadataAnswer, Unanswered> {
        self.source.look_begins();
        let known = self.known.borrow().clone();
        let candidates = self.answered.iter().chain(known.iter()).chain(&self.bootstrap).cloned();
        let mut tried: Vec<Arc<Broker>> = Vec::new();
        let mut last = CallError::Broken("no broker is known".to_owned());
        let mut told: Vec<String> = Vec::new();
        for broker in candidates.collect::<Vec<_>>() {
            if tried.iter().any(|tried| tried.endpoint == broker.endpoint) {
                continue;
            }
            match broker.ask(Metadata::All, METADATA_LIMIT).await {
                // A broker that has just begun knows nobody yet.
                Ok(answer) if !answer.brokers.is_empty() => {
                    self.answered = Some(broker);
                    return Ok(answer);
                }
                Ok(_) => told.push(format!("{}: it knows no brokers yet", broker.endpoint)),
                Err(why) => {
                    told.push(format!("{}: {why}", broker.endpoint));
                    // One broker that is away must not hide that another one refuses us.
                    if !last.needs_a_person() {
                        last = why;
                    }
                }
            }
            tried.push(broker);
        }
        Err(Unanswered { detail: each_cause(&told).unwrap_or_else(|| last.to_string()), why: last })
    }

    fn failed(&mut self, Unanswered { why, detail }: Unanswered) -> Duration {
        let needs_a_person = why.needs_a_person();
        self.source.status.set_source(Link::Down(Down {
            code: why.code(),
            detail,
            needs_a_person,
            since: self.source.clock.wall(),
        }));
        self.source.wait_after(&mut self.backoff, Mended::by(needs_a_person))
    }

    /// Follows what is there now.
    async fn follow(&mut self, answer: &MetadataAnswer) {
        self.know(&answer.brokers);
        let found = follow_set(answer, &self.source.settings.topic_prefix);
        let hidden = self.hidden(&found).await;
        let gone = self.leave_what_is_gone(&found, &hidden).await;
        for reading in self.readers.values().filter(|reading| hidden.contains(&reading.partition.topic)) {
            let leader = reading.assignment.borrow().leader;
            reading.assign(self.assignment(leader));
        }
        let new = found.iter().filter(|found| self.follow_partition(found)).count();
        if new + gone > 0 {
            info!(partitions = self.readers.len(), new, gone, "the set of followed partitions has changed");
        }
        self.fetch_from_leaders().await;
        // Partitions that appear later start at their beginning (C1.4).
        self.start = Start::Earliest;
    }

    fn know(&self, brokers: &[BrokerAddress]) {
        let before = self.known.borrow().clone();
        let now = brokers.iter().map(|address| {
            let endpoint = endpoint(address);
            let same = before.iter().find(|broker| broker.id == address.id && broker.endpoint == endpoint);
            let made = || Arc::new(Broker::new(address.id, endpoint.clone(), self.source.access.clone()));
            same.cloned().unwrap_or_else(made)
        });
        self.known.send_replace(now.collect());
    }

    /// Topics that are followed and were not told, though they may still be there: brokers leave out what we have no right to see.
    async fn hidden(&self, found: &[Found]) -> BTreeSet<Arc<str>> {
        let told: BTreeSet<&str> = found.iter().map(|found| &*found.topic).collect();
        let followed = self.readers.keys().map(|(topic, _)| topic);
        let missing: BTreeSet<Arc<str>> = followed.filter(|topic| !told.contains(&***topic)).cloned().collect();
        let Some(broker) = self.answered.as_ref().filter(|_| !missing.is_empty()) else { return missing };
        match broker.ask(Metadata::Of(missing.iter().cloned().collect()), METADATA_LIMIT).await {
            Ok(answer) => {
                let hidden = answer.topics.into_iter().filter(|topic| topic.error.needs_a_person());
                hidden.map(|topic| topic.name.into()).collect()
            }
            // Whether they are gone will be seen at the next look.
            Err(_) => missing,
        }
    }

    /// How many are followed no more.
    async fn leave_what_is_gone(&mut self, found: &[Found], hidden: &BTreeSet<Arc<str>>) -> usize {
        let is_there = |key: &(Arc<str>, i32), reading: &Reading| {
            if hidden.contains(&key.0) {
                return true;
            }
            let place = found.binary_search_by(|found| (&found.topic, found.partition).cmp(&(&key.0, key.1)));
            let same = place.ok().and_then(|place| found.get(place));
            same.is_some_and(|found| found.topic_id == reading.partition.topic_id)
        };
        let gone: Vec<_> =
            self.readers.extract_if(.., |key, reading| !is_there(key, reading) || reading.task.is_finished()).collect();
        let count = gone.len();
        for ((topic, partition), reading) in gone {
            debug!(%topic, partition, "the partition is not followed any more");
            reading.stop.cancel();
            end("reader", reading.task).await;
            self.source.status.unfollow(&topic, partition);
        }
        count
    }

    /// Whether it was not followed before.
    fn follow_partition(&mut self, found: &Found) -> bool {
        let assignment = self.assignment(found.leader);
        let key = (found.topic.clone(), found.partition);
        if let Some(reading) = self.readers.get(&key) {
            reading.assign(assignment);
            return false;
        }
        debug!(topic = %found.topic, partition = found.partition, "the partition is followed");
        let (partition, deliveries) =
            Partition::new(found.topic.clone(), found.topic_id, found.partition, self.source.clone());
        let (assignment, assigned) = watch::channel(assignment);
        let stop = self.source.stop.child_token();
        let reader = PartitionReader::new(
            self.source.clone(),
            partition.clone(),
            deliveries,
            assigned,
            stop.clone(),
            self.start,
        );
        let task = tokio::spawn(reader.run());
        self.readers.insert(key, Reading { partition, assignment, stop, task });
        true
    }

    fn assignment(&self, leader: Leadership) -> Assignment {
        let known = self.known.borrow();
        Assignment { leader, broker: known.iter().find(|broker| broker.id == leader.broker).cloned() }
    }

    /// One fetcher for each broker that leads something.
    async fn fetch_from_leaders(&mut self) {
        let mut led: HashMap<i32, (Arc<Broker>, Vec<Arc<Partition>>)> = HashMap::new();
        for reading in self.readers.values() {
            if let Some(broker) = reading.assignment.borrow().broker.clone() {
                led.entry(broker.id).or_insert_with(|| (broker, vec![])).1.push(reading.partition.clone());
            }
        }
        let still = |id: &i32, fetching: &Fetching| {
            let same = led.get(id).is_some_and(|(broker, _)| Arc::ptr_eq(broker, &fetching.broker));
            same && !fetching.task.is_finished()
        };
        let gone: Vec<_> = self.fetchers.extract_if(|id, fetching| !still(id, fetching)).collect();
        for (_, fetching) in gone {
            fetching.stop.cancel();
            end("fetcher", fetching.task).await;
        }
        for (id, (broker, partitions)) in led {
            let partitions: Led = partitions.into();
            if let Some(fetching) = self.fetchers.get(&id) {
                fetching.led.send_if_modified(|now| {
                    let same = now.len() == partitions.len()
                        && now.iter().zip(partitions.iter()).all(|(a, b)| Arc::ptr_eq(a, b));
                    *now = partitions;
                    !same
                });
                continue;
            }
            let (led, receiver) = watch::channel(partitions);
            let stop = self.source.stop.child_token();
            let fetcher = Fetcher::new(self.source.clone(), broker.clone(), receiver, stop.clone());
            let task = tokio::spawn(fetcher.run());
            self.fetchers.insert(id, Fetching { broker, led, stop, task });
        }
    }
}

/// Asked for or not, one look a second at most.
async fn until_next_look(source: &Source) {
    tokio::time::sleep(BETWEEN_LOOKS).await;
    let rest = source.settings.discovery_interval.saturating_sub(BETWEEN_LOOKS);
    // Passed without being asked for: it is time for a look all the same.
    let _ = tokio::time::timeout(rest, source.discovery_asked()).await;
}

fn endpoint(address: &BrokerAddress) -> String {
    let BrokerAddress { host, port, .. } = address;
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Waits for a task's end.
async fn end(what: &'static str, task: JoinHandle<()>) {
    if let Err(why) = task.await {
        error!(what, %why, "a task of the kafka source crashed");
    }
}

/// Of many brokers the first ones only.
fn each_cause(told: &[String]) -> Option<String> {
    let (shown, more) = told.split_at_checked(CAUSES).unwrap_or((told, &[]));
    let more = if more.is_empty() { String::new() } else { format!("; and {} more", more.len()) };
    (!shown.is_empty()).then(|| shown.join("; ") + &more)
}
