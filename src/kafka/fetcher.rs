//! One loop for each broker: all partitions that it leads in one request, the next request sent before anything of the last answer
//! is decoded.
//!
//! Invariants: a partition that is behind, or that gives errors, is left out and delays no other; a broken connection is made
//! anew for ever, ever more slowly; the order of partitions turns, so that none is always served last.

use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::broker::Broker;
use crate::kafka::connection::{CallError, Connection};
use crate::kafka::message::ErrorCode;
use crate::kafka::message::fetch::{Fetch, FetchAnswer, FetchPartition};
use crate::kafka::partition::{Ask, Partition, Wish};
use crate::kafka::source::Source;
use crate::kafka::status::{Down, Link, add};
use crate::model::limits::{BROKER_ANSWER_BYTES, BROKER_ANSWER_BYTES_MAX, FETCH_BYTES, FETCH_PARTITION_BYTES};
use crate::time::millis;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The broker answers after so long at the latest.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The same while a partition is left out that will soon want something.
const SHORT_WAIT: Duration = Duration::from_millis(10);
/// Beyond the wait: the broker hangs.
const ANSWER_MARGIN: Duration = Duration::from_secs(10);
/// The longest pause that a broker may ask for.
const THROTTLE_MAX: Duration = Duration::from_secs(5);
/// Wishes are looked at again after so long, whatever bells rang.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// The partitions that a broker leads.
pub(super) type Led = Arc<[Arc<Partition>]>;

/// Fetches from one broker.
pub(super) struct Fetcher {
    source: Arc<Source>,
    broker: Arc<Broker>,
    led: watch::Receiver<Led>,
    stop: CancellationToken,
    backoff: Backoff,
    answer_max: usize,
    /// Partitions in one request at most.
    together: usize,
    turn: usize,
}

type Asked = HashMap<(Arc<str>, i32), (Arc<Partition>, Ask)>;

impl Fetcher {
    pub(super) fn new(
        source: Arc<Source>,
        broker: Arc<Broker>,
        led: watch::Receiver<Led>,
        stop: CancellationToken,
    ) -> Self {
        let answer_max = BROKER_ANSWER_BYTES;
        Self { source, broker, led, stop, backoff: Backoff::default(), answer_max, together: usize::MAX, turn: 0 }
    }

    /// Fetches until it is stopped.
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(async {
            loop {
                let why = self.fetch_over_one_connection().await;
                let wait = self.failed(&why);
                tokio::time::sleep(wait).await;
            }
        })
        .await;
        self.source.status.forget_broker(self.broker.id);
    }

    /// Ends with what broke the connection.
    async fn fetch_over_one_connection(&mut self) -> CallError {
        let mut connection = match self.open().await {
            Ok(connection) => connection,
            Err(why) => return why,
        };
        let source = self.source.clone();
        loop {
            // Nothing is under way on the old one here.
            if connection.is_to_be_renewed(&self.broker.access) {
                connection = match self.open().await {
                    Ok(connection) => connection,
                    Err(why) => return why,
                };
            }
            let mut woken = pin!(source.fetcher_woken());
            woken.as_mut().enable();
            let (fetch, asked) = self.wanted();
            if asked.is_empty() {
                tokio::select! {
                    () = woken => {}
                    () = changed(&mut self.led) => {}
                    () = tokio::time::sleep(IDLE_MAX) => {}
                }
                continue;
            }
            let limit = MAX_WAIT + ANSWER_MARGIN;
            match connection.call(fetch, limit).await {
                Ok(answer) if answer.error != ErrorCode::NONE => {
                    return CallError::Broken(format!("fetch refused: {}", answer.error.name()));
                }
                Ok(answer) => {
                    self.backoff.reset();
                    self.source.status.set_broker(self.broker.id, Link::Up);
                    self.deliver(answer, &asked).await;
                }
                Err(why) => return why,
            }
        }
    }

    async fn open(&self) -> Result<Connection, CallError> {
        let Broker { endpoint, access, .. } = &*self.broker;
        let connection = Connection::open(endpoint, access, self.answer_max).await?;
        add(&self.source.status.counters.connections, 1);
        Ok(connection)
    }

    /// What to ask for now.
    fn wanted(&mut self) -> (Fetch, Asked) {
        let led = self.led.borrow_and_update().clone();
        let room = self.source.room();
        let (mut asked, mut partitions) = (Asked::new(), Vec::new());
        let mut wait = MAX_WAIT;
        self.turn = self.turn.wrapping_add(1);
        let (later, first) = led.split_at(self.turn.checked_rem(led.len()).unwrap_or(0));
        let mut max_bytes = FETCH_BYTES.min(room);
        for partition in first.iter().chain(later) {
            match partition.wish(self.broker.id) {
                Wish::Fetch(_) if room == 0 || partitions.len() >= self.together => wait = SHORT_WAIT,
                Wish::Full => wait = SHORT_WAIT,
                Wish::Nothing => {}
                Wish::Fetch(ask) => {
                    max_bytes = max_bytes.max(ask.max_bytes);
                    partitions.push(FetchPartition {
                        topic: partition.topic.clone(),
                        partition: partition.number,
                        leader_epoch: ask.leader_epoch,
                        offset: ask.offset,
                        max_bytes: bytes(ask.max_bytes),
                    });
                    asked.insert((partition.topic.clone(), partition.number), (partition.clone(), ask));
                }
            }
        }
        let max_wait_ms = i32::try_from(millis(wait)).unwrap_or(i32::MAX);
        (Fetch { max_wait_ms, max_bytes: bytes(max_bytes.max(FETCH_PARTITION_BYTES)), partitions }, asked)
    }

    async fn deliver(&mut self, answer: FetchAnswer, asked: &Asked) {
        let counters = &self.source.status.counters;
        let (mut looks_moved, mut came) = (false, 0);
        for fetched in answer.partitions {
            looks_moved |= fetched.error.asks_for_discovery();
            came += fetched.records.len();
            let key = (fetched.topic.clone(), fetched.partition);
            if let Some((partition, ask)) = asked.get(&key) {
                partition.deliver(*ask, fetched);
            }
        }
        if looks_moved {
            self.source.discover_soon();
        }
        if came > 0 {
            add(&counters.fetches, 1);
            add(&counters.bytes, came);
            self.together = usize::MAX;
        }
        if let Ok(throttle) = u64::try_from(answer.throttle_ms) {
            tokio::time::sleep(Duration::from_millis(throttle).min(THROTTLE_MAX)).await;
        }
    }

    /// Notes a failure and says how long to wait.
    fn failed(&mut self, why: &CallError) -> Duration {
        let mut needs_a_person = why.needs_a_person();
        if let CallError::TooLarge(bytes) = *why {
            needs_a_person = bytes > BROKER_ANSWER_BYTES_MAX;
            self.answer_max = bytes.saturating_add(FETCH_BYTES).min(BROKER_ANSWER_BYTES_MAX);
            self.together =
                if needs_a_person { (self.led.borrow().len().min(self.together) / 2).max(1) } else { usize::MAX };
        }
        self.source.status.set_broker(
            self.broker.id,
            Link::Down(Down {
                code: why.code(),
                detail: format!("{}: {why}", self.broker.endpoint),
                needs_a_person,
                since: self.source.clock.wall(),
            }),
        );
        // Its partitions may have another leader by now.
        self.source.discover_soon();
        self.source.wait_after(&mut self.backoff, Mended::by(needs_a_person))
    }
}

/// Other partitions are led. Where nobody says so any more it waits to be stopped.
async fn changed(led: &mut watch::Receiver<Led>) {
    if led.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn bytes(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}
