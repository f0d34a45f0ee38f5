//! What the Kafka tests stand on: the running brokers, the client that is not ours, an inbox in memory, and a running source.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streaming_hub::engine::command::{Admit, AdmitFrom, AdmitResult, Admitted, Judged, Refusal};
use streaming_hub::kafka::inbox::Answering;
use streaming_hub::kafka::{Inbox, KafkaSettings, KafkaStatus, Password, SaslMechanism, SaslSettings, Start, Stored};
use streaming_hub::model::gap::Gap;
use streaming_hub::model::ids::Seq;
use streaming_hub::net::broker::BrokerTls;
use streaming_hub::rules::classify::Policy;
use streaming_hub::store::StoreError;
use streaming_hub::store::view::PositionRow;
use streaming_hub::time::{Clock, SystemClock, Timestamp};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio_util::sync::CancellationToken;

/// The longest that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that healing takes once a fault has ended.
const HEALED_WITHIN: Duration = Duration::from_secs(10);

/// A setting of the running services.
pub(crate) fn service(name: &str) -> String {
    let why = "the services are not running; run the tests by `tests/run -- --test it`";
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: {why}"))
}

static WEATHER: RwLock<()> = RwLock::const_new(());

/// Held by tests that need all brokers.
pub(crate) async fn calm() -> RwLockReadGuard<'static, ()> {
    WEATHER.read().await
}

/// Held by tests that stop brokers: no other test of Kafka is running. When it goes, all brokers are up again, so that a test that
/// failed in between fails alone.
pub(crate) struct Storm {
    _alone: RwLockWriteGuard<'static, ()>,
}

/// Waits until no other test of Kafka is running.
pub(crate) async fn storm() -> Storm {
    Storm { _alone: WEATHER.write().await }
}

impl Drop for Storm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A frozen one dies as well, and all come back with their own settings.
            for verb in ["all-kill", "all-start"] {
                let _ = Command::new(service("HUB_TEST_SERVICES")).arg(verb).output();
            }
        }
    }
}

/// Runs a command to its end; its standard output.
pub(crate) async fn run(program: String, args: Vec<String>, input: String) -> String {
    let told = format!("{program} {args:?}");
    tokio::task::spawn_blocking(move || {
        let mut command = Command::new(&program);
        command.args(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|why| panic!("{told}: {why}"));
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{told}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    })
    .await
    .unwrap()
}

/// The client that is not ours.
pub(crate) async fn produce(args: &[&str], input: String) -> String {
    // It ends with the thread that waits for it, also when the test is killed.
    let mut all: Vec<String> = ["--pdeathsig", "KILL", "--"].map(str::to_owned).into();
    all.extend([service("HUB_TEST_PYTHON"), service("HUB_TEST_PRODUCE")]);
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    run("setpriv".to_owned(), all, input).await
}

/// Produces lines in the form of `produce.py records`.
pub(crate) async fn produce_lines(options: &[&str], lines: &[serde_json::Value]) {
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    produce(&[&["records", "-"], options].concat(), input).await;
}

/// Starts, stops, freezes brokers.
pub(crate) async fn services(args: &[&str]) {
    run(service("HUB_TEST_SERVICES"), args.iter().map(|arg| (*arg).to_owned()).collect(), String::new()).await;
}

/// The plain listener of broker 1.
pub(crate) fn first_broker() -> String {
    service("HUB_TEST_KAFKA_PLAIN").split(',').next().unwrap().to_owned()
}

/// A prefix of topics that no other test has.
pub(crate) fn own_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("it-{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A well-formed event of source `lender`, number `n`, as `produce.py records` takes it.
pub(crate) fn event(topic: &str, n: usize) -> serde_json::Value {
    let source = topic.rsplit('.').next().unwrap();
    serde_json::json!({
        "topic": topic,
        "headers": [
            ["ce-specversion", "1.0"], ["ce-id", event_id(n)], ["ce-source", source],
            ["ce-type", format!("studio.lerian.{source}.loan.paid")], ["ce-time", "2026-11-30T12:00:00Z"],
            ["ce-schemaversion", "1.0.0"], ["ce-resourcetype", "loan"], ["ce-eventtype", "paid"], ["ce-tenantid", "t-1"],
        ],
        "value": body(n),
    })
}

/// Events of a row of numbers.
pub(crate) fn events(topic: &str, numbers: std::ops::Range<usize>) -> Vec<serde_json::Value> {
    numbers.map(|n| event(topic, n)).collect()
}

/// Settings for the listeners with TLS and credentials.
pub(crate) fn secured(prefix: &str, mechanism: SaslMechanism, username: &str, password: &str) -> KafkaSettings {
    let ca = std::fs::read_to_string(service("HUB_TEST_KAFKA_CA")).unwrap();
    KafkaSettings {
        brokers: service("HUB_TEST_KAFKA_SASL").split(',').map(str::to_owned).collect(),
        tls: Some(BrokerTls::new(Some(&ca)).unwrap()),
        sasl: Some(SaslSettings {
            mechanism,
            username: username.to_owned(),
            password: Password::new(password.to_owned()),
        }),
        ..settings(prefix)
    }
}

/// A fault has ended: that heals within ten seconds.
pub(crate) async fn healed(what: &str, healing: impl Future<Output = ()>) {
    let begun = tokio::time::Instant::now();
    assert!(tokio::time::timeout(HEALED_WITHIN, healing).await.is_ok(), "not healed within {HEALED_WITHIN:?}: {what}");
    tracing::info!(after = ?begun.elapsed(), what, "healed");
}

/// The body of event `n`.
pub(crate) fn body(n: usize) -> String {
    format!("{{\"n\":{n}}}")
}

/// The id of event `n`.
pub(crate) fn event_id(n: usize) -> String {
    format!("0198b0c2-7c1e-7d3a-9f10-{n:012x}")
}

/// An inbox in memory that keeps the rules of the real one and can be told to refuse.
#[derive(Default)]
pub(crate) struct MemoryInbox {
    kept: Mutex<Kept>,
    changed: Notify,
}

/// What the inbox holds.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) positions: BTreeMap<(String, [u8; 16], i32), (i64, i32)>,
    /// Everything stored, in order: topic, partition, what.
    pub(crate) records: Vec<(String, i32, What)>,
    pub(crate) gaps: Vec<Gap>,
    pub(crate) refusals: VecDeque<Refusal>,
    pub(crate) refused: usize,
    pub(crate) admits: usize,
    pub(crate) first_start: bool,
    known: HashMap<String, bytes::Bytes>,
    seq: u64,
}

/// A record as it was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Event(String),
    Duplicate(String),
    Dropped,
    Poison { reason: &'static str, body: String },
}

impl Kept {
    /// Bodies of the events of a topic, in order of storing.
    pub(crate) fn bodies(&self, topic: &str) -> Vec<&str> {
        let of_topic = self.records.iter().filter(|(name, ..)| name == topic);
        of_topic
            .filter_map(|(_, _, what)| if let What::Event(body) = what { Some(body.as_str()) } else { None })
            .collect()
    }

    /// Ids of all events.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    /// How many events.
    pub(crate) fn events(&self) -> usize {
        self.records.iter().filter(|(_, _, what)| matches!(what, What::Event(_))).count()
    }

    /// The position of a partition that has one topic id only.
    pub(crate) fn position(&self, topic: &str, partition: i32) -> Option<i64> {
        let of_it = self.positions.iter().filter(|((name, _, number), _)| name == topic && *number == partition);
        let found: Vec<_> = of_it.map(|(_, (next, _))| *next).collect();
        assert!(found.len() <= 1, "several topics of that name: {:?}", self.positions);
        found.first().copied()
    }
}

impl MemoryInbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// A look at, or a change of, what it holds.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Kept) -> T) -> T {
        f(&mut self.kept.lock().unwrap())
    }

    /// Waits until that is true.
    pub(crate) async fn until(&self, what: &str, mut is_true: impl FnMut(&Kept) -> bool) {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if self.with(|kept| is_true(kept)) {
                    return;
                }
                changed.await;
            }
        };
        if tokio::time::timeout(PATIENCE, waiting).await.is_err() {
            self.with(|kept| {
                let Kept { positions, gaps, refused, admits, .. } = kept;
                let (count, last) = (kept.records.len(), kept.records.last());
                panic!("not within {PATIENCE:?}: {what}; {count} records, last {last:?}, {positions:?}, {gaps:?}, {refused} refused, {admits} admits");
            });
        }
    }

    fn take(&self, admit: Admit) -> Result<Admitted, Refusal> {
        let mut kept = self.kept.lock().unwrap();
        if let Some(refusal) = kept.refusals.pop_front() {
            kept.refused += 1;
            return Err(refusal);
        }
        let AdmitFrom::Partition(step) = admit.from else { panic!("not from a partition") };
        let key = (step.topic.to_string(), step.topic_id, step.partition);
        let stored = kept.positions.get(&key).map(|(next, _)| *next);
        if stored != step.from {
            return Err(Refusal::PositionMoved { stored });
        }
        assert!(!step.gaps.is_empty() || stored.is_none_or(|stored| stored <= step.next), "backwards: {step:?}");
        assert!(admit.records.len() <= 1024);
        kept.admits += 1;
        kept.positions.insert(key, (step.next, step.leader_epoch));
        kept.gaps.extend(step.gaps);
        let mut results = Vec::new();
        for judged in admit.records {
            let (what, result) = kept.judge(judged);
            kept.records.push((step.topic.to_string(), step.partition, what));
            results.push(result);
        }
        Ok(Admitted { results })
    }
}

impl Kept {
    fn judge(&mut self, judged: Judged) -> (What, AdmitResult) {
        match judged {
            Judged::Event(event) => {
                let body = String::from_utf8_lossy(&event.body).into_owned();
                if let Some(known) = self.known.get(&event.id.to_string()) {
                    let conflict = *known != event.body;
                    return (What::Duplicate(body), AdmitResult::Duplicate { seq: None, conflict });
                }
                self.known.insert(event.id.to_string(), event.body.clone());
                self.seq += 1;
                (What::Event(body), AdmitResult::Stored { seq: Seq(self.seq), jobs: 0 })
            }
            Judged::Dropped => (What::Dropped, AdmitResult::Dropped),
            Judged::Poison(poison) => {
                let body = String::from_utf8_lossy(&poison.body).into_owned();
                (What::Poison { reason: poison.reason.code(), body }, AdmitResult::Quarantined)
            }
        }
    }
}

impl Inbox for MemoryInbox {
    fn stored(&self, topic: Arc<str>, partition: i32) -> Answering<'_, Result<Stored, StoreError>> {
        Box::pin(async move {
            let kept = self.kept.lock().unwrap();
            let of_it = kept.positions.iter().filter(|((name, _, number), _)| **name == *topic && *number == partition);
            let rows = of_it.map(|((name, id, number), (next, epoch))| PositionRow {
                topic: name.clone(),
                topic_id: *id,
                partition: *number,
                next: *next,
                leader_epoch: *epoch,
            });
            Ok(Stored { rows: rows.collect(), first_start: kept.first_start })
        })
    }

    fn admit(&self, admit: Admit) -> Answering<'_, Result<Admitted, Refusal>> {
        Box::pin(async move {
            let answer = self.take(admit);
            self.changed.notify_waiters();
            answer
        })
    }
}

/// The machine's clocks, and what a test put them ahead by.
#[derive(Default)]
pub(crate) struct AheadClock {
    real: SystemClock,
    ahead_ms: AtomicU64,
}

impl AheadClock {
    /// That much later.
    pub(crate) fn pass(&self, time: Duration) {
        self.ahead_ms.fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
    }

    fn ahead(&self) -> Duration {
        Duration::from_millis(self.ahead_ms.load(Ordering::Relaxed))
    }
}

impl Clock for AheadClock {
    fn wall(&self) -> Timestamp {
        self.real.wall().plus(self.ahead())
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + self.ahead()
    }
}

/// A running source.
pub(crate) struct Running {
    pub(crate) status: Arc<KafkaStatus>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// Settings for the plain listeners; discovery every second.
pub(crate) fn settings(prefix: &str) -> KafkaSettings {
    KafkaSettings {
        brokers: service("HUB_TEST_KAFKA_PLAIN").split(',').map(str::to_owned).collect(),
        tls: None,
        sasl: None,
        group: format!("{prefix}hub"),
        topic_prefix: prefix.to_owned(),
        discovery_interval: Duration::from_secs(1),
        start: Start::Earliest,
        classify: Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false },
    }
}

impl Running {
    pub(crate) fn start(settings: KafkaSettings, inbox: &Arc<MemoryInbox>) -> Self {
        Self::start_by(Arc::new(SystemClock::new()), settings, inbox)
    }

    /// The same by another clock.
    pub(crate) fn start_by(clock: Arc<dyn Clock>, settings: KafkaSettings, inbox: &Arc<MemoryInbox>) -> Self {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        // Another test of this process may have done it already.
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let status = Arc::new(KafkaStatus::default());
        let stop = CancellationToken::new();
        let run = streaming_hub::kafka::run(settings, inbox.clone(), status.clone(), clock, 7, stop.clone());
        Self { status, stop, task: tokio::spawn(run) }
    }

    /// Ends it, within seconds.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task).await.expect("the source stops").unwrap();
    }

    /// Waits until the status says so.
    pub(crate) async fn until(&self, what: &str, is_true: impl Fn(&KafkaStatus) -> bool) {
        let waiting = async {
            while !is_true(&self.status) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let patience = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(patience.is_ok(), "not within {PATIENCE:?}: {what}; {:?}", self.status);
    }
}
