//! The writer over a disk that fails: who waits is told, outcomes are kept, and it goes on when the disk is well (C13.4).

use super::inbox::{engine_settings, event, spec};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streaming_hub::engine::command::{Action, Admit, AdmitFrom, Change, Judged, Manage, NewSubscription, Refusal};
use streaming_hub::engine::{Counts, Engine};
use streaming_hub::entropy::Entropy;
use streaming_hub::model::attempt::AttemptRecord;
use streaming_hub::model::ids::{DeliveryId, EventId, SubNo, SubscriptionId};
use streaming_hub::model::job::{Claim, Outcome, Settle};
use streaming_hub::model::space::Room;
use streaming_hub::model::subscription::{EventPattern, Sealed};
use streaming_hub::store::disk::{Backend, Disk, FileDisk};
use streaming_hub::store::view::Reader;
use streaming_hub::store::{Birth, Store, StoreError, StoreSettings};
use streaming_hub::time::{Clock, HubClock, HubTime, SystemClock, Timestamp};
use streaming_hub::writer::{self, Running, Telling, Writer};
use tokio::sync::mpsc;

/// A disk that takes no writes while it is told so, and can be read all the time.
#[derive(Debug)]
struct Flawed {
    disk: FileDisk,
    fails: Arc<AtomicBool>,
    error: io::ErrorKind,
    opened: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FlawedBytes {
    bytes: Backend,
    fails: Arc<AtomicBool>,
    error: io::ErrorKind,
}

impl FlawedBytes {
    fn change(&self, work: impl FnOnce(&Backend) -> io::Result<()>) -> io::Result<()> {
        if self.fails.load(Ordering::SeqCst) {
            return Err(self.error.into());
        }
        work(&self.bytes)
    }
}

impl redb::StorageBackend for FlawedBytes {
    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.bytes.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(|bytes| bytes.set_len(len))
    }
    fn sync_data(&self) -> io::Result<()> {
        self.change(redb::StorageBackend::sync_data)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(|bytes| bytes.write(offset, data))
    }
    fn close(&self) -> io::Result<()> {
        self.bytes.close()
    }
}

impl Disk for Flawed {
    fn exists(&self) -> Result<bool, StoreError> {
        self.disk.exists()
    }
    fn create(&self, fill: &mut dyn FnMut(Backend) -> Result<(), StoreError>) -> Result<(), StoreError> {
        self.disk.create(fill)
    }
    fn open(&self) -> Result<Backend, StoreError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let (fails, error) = (self.fails.clone(), self.error);
        Ok(Backend(Box::new(FlawedBytes { bytes: self.disk.open()?, fails, error })))
    }
    fn look(&self) -> Result<Backend, StoreError> {
        self.disk.look()
    }
    fn allocated_bytes(&self) -> u64 {
        self.disk.allocated_bytes()
    }
}

/// What the writer said, in order.
#[derive(Default)]
struct Said(Mutex<Vec<&'static str>>);

impl Said {
    fn all(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }
}

impl Telling for Said {
    fn committed(&self, _: &Counts, _: usize, _: Duration) {}
    fn suspended(&self, why: &StoreError) {
        self.0.lock().unwrap().push(why.in_short());
    }
    fn resumed(&self) {
        self.0.lock().unwrap().push("open again");
    }
    fn ended_unstored(&self, _: &StoreError) {
        self.0.lock().unwrap().push("ended unstored");
    }
}

/// A clock that a test moves, and that counts how often it is read.
#[derive(Default)]
struct Moved {
    ms: AtomicU64,
    read: AtomicUsize,
}

impl Moved {
    /// Ten seconds pass, and the writer has seen it.
    async fn pass(&self, bench: &Bench) {
        self.ms.fetch_add(10_000, Ordering::SeqCst);
        let read = self.read.load(Ordering::SeqCst);
        while self.read.load(Ordering::SeqCst) < read + 4 {
            // Wakes the writer.
            let _ = bench.admit(99).await;
        }
    }
}

impl Clock for Moved {
    fn wall(&self) -> Timestamp {
        Timestamp(1_700_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        self.read.fetch_add(1, Ordering::SeqCst);
        Duration::from_millis(self.ms.load(Ordering::SeqCst))
    }
}

/// A writer over a flawed disk, with one subscription that wants everything.
struct Bench {
    folder: tempfile::TempDir,
    fails: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
    said: Arc<Said>,
    reader: Reader,
    writer: Writer,
    running: Running,
    claims: mpsc::UnboundedReceiver<Claim>,
}

fn open(disk: Arc<dyn Disk>) -> Engine {
    let kept = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: 1 << 30 };
    let store = Store::open(disk, kept, &Birth { store_id: [1; 16], delivery_key: [2; 32] }).unwrap();
    Engine::open(store, Arc::default(), engine_settings(), Entropy::from_seed(1), HubTime(1_700_000_000_000)).unwrap()
}

impl Bench {
    async fn new(clock: Arc<dyn Clock>, error: io::ErrorKind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (fails, opened, said) = (Arc::default(), Arc::default(), Arc::<Said>::default());
        let disk = Flawed {
            disk: FileDisk::take(folder.path()).unwrap(),
            fails: Arc::clone(&fails),
            error,
            opened: Arc::clone(&opened),
        };
        let engine = open(Arc::new(disk));
        let (hub_clock, reader) = (HubClock::start(HubTime(0), &*clock), engine.reader());
        let (writer, running, claims) = writer::start(engine, clock, hub_clock, said.clone()).unwrap();
        let bench = Self { folder, fails, opened, said, reader, writer, running, claims };
        let (id, at, wanted) = (SubscriptionId([1; 16]), Timestamp(0), spec(vec![EventPattern::All]));
        let sink = Box::new(wanted.sink.clone());
        let new = NewSubscription { id, tenant: "a".into(), spec: wanted, secret: Sealed(vec![]), at };
        bench.manage(Action::CreateSubscription(Box::new(new))).await.unwrap();
        let change = Change::Verified { sink, at };
        let proven = Action::ChangeSubscription { tenant: "a".into(), id, if_revision: None, change };
        bench.manage(proven).await.unwrap();
        bench
    }

    async fn manage(&self, action: Action) -> Result<(), Refusal> {
        self.writer.manage(Manage { action, idempotency: None }).await.map(drop)
    }

    async fn admit(&self, id: u8) -> Result<(), Refusal> {
        let records = vec![Judged::Event(Box::new(event(id, "a", "{}")))];
        self.writer.admit(Admit { from: AdmitFrom::Http, records }).await.map(drop)
    }

    fn deliver(&self, claim: &Claim) {
        let outcome = Outcome::Delivered(AttemptRecord {
            delivery: DeliveryId([0; 16]),
            at: Timestamp(0),
            duration_ms: 1,
            status: Some(200),
            error: None,
            answer: Vec::new(),
        });
        self.writer.settle(Settle { claim: claim.no, key: claim.job.key, generation: claim.generation, outcome });
    }

    async fn until_said(&self, count: usize) {
        while self.said.all().len() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

// C13.4: who asks is refused at once, and the state is told once when it begins and once when it ends
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_store_refuses_at_once_and_goes_on_by_itself() {
    let mut bench = Bench::new(Arc::new(SystemClock::new()), io::ErrorKind::Other).await;
    bench.admit(1).await.unwrap();
    let claim = bench.claims.recv().await.unwrap();
    bench.fails.store(true, Ordering::SeqCst);
    for id in 2..40 {
        assert!(matches!(bench.admit(id).await, Err(Refusal::Suspended(_))), "{id}");
    }
    bench.deliver(&claim);
    bench.fails.store(false, Ordering::SeqCst);
    bench.until_said(2).await;
    bench.admit(2).await.unwrap();
    // The outcome came while the store was away: the lane goes on behind it.
    let next = bench.claims.recv().await.unwrap();
    assert_eq!(next.job.seq.0, 2);
    assert_eq!(bench.said.all(), ["the disk refuses", "open again"]);
}

// C13.4: reads see the last commit, again and again, and what is known of a lane is told
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_no_writes_can_be_read() {
    let clock = Arc::new(Moved::default());
    let bench = Bench::new(clock.clone(), io::ErrorKind::Other).await;
    bench.admit(1).await.unwrap();
    bench.fails.store(true, Ordering::SeqCst);
    assert!(matches!(bench.admit(2).await, Err(Refusal::Suspended(_))));
    for _ in 0..5 {
        clock.pass(&bench).await;
        let view = bench.reader.view().unwrap();
        assert!(view.event("a", EventId([1; 16])).unwrap().is_some());
        assert!(view.event("a", EventId([2; 16])).unwrap().is_none());
        bench.manage(Action::InspectLane(SubNo(1))).await.unwrap();
        assert!(matches!(bench.manage(Action::Remember).await, Err(Refusal::Suspended(_))));
    }
    bench.fails.store(false, Ordering::SeqCst);
    while bench.said.all().len() < 2 {
        clock.pass(&bench).await;
    }
    bench.admit(2).await.unwrap();
    assert!(bench.reader.view().unwrap().event("a", EventId([2; 16])).unwrap().is_some());
}

// C13.4: without room on the disk the next commit would fail as the last one did
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_left_alone_until_it_has_room() {
    let clock = Arc::new(Moved::default());
    let bench = Bench::new(clock.clone(), io::ErrorKind::StorageFull).await;
    let gate = bench.running.gate();
    bench.fails.store(true, Ordering::SeqCst);
    assert!(matches!(bench.admit(1).await, Err(Refusal::Suspended(_))));
    bench.fails.store(false, Ordering::SeqCst);
    // The disk said that it is full: so it is until somebody has looked.
    let opened = bench.opened.load(Ordering::SeqCst);
    for _ in 0..20 {
        clock.pass(&bench).await;
    }
    assert_eq!(bench.opened.load(Ordering::SeqCst), opened);
    assert_eq!(bench.said.all(), ["the disk is full"]);
    gate.set(Room::Low);
    while bench.said.all().len() < 2 {
        clock.pass(&bench).await;
    }
    assert_eq!(bench.admit(1).await, Err(Refusal::DiskLow));
    gate.set(Room::Enough);
    while bench.admit(1).await.is_err() {}
    assert_eq!(bench.said.all(), ["the disk is full", "open again"]);
}

// C13.2, C13.4: an outcome that a failed commit left waiting is stored when the writer ends, where the disk is well by then
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_ends_while_suspended_stores_the_outcomes_that_it_holds() {
    // It stands still, so that no second try to open the store comes by itself.
    let mut bench = Bench::new(Arc::new(Moved::default()), io::ErrorKind::Other).await;
    bench.admit(1).await.unwrap();
    let claim = bench.claims.recv().await.unwrap();
    bench.fails.store(true, Ordering::SeqCst);
    bench.deliver(&claim);
    // Refused: by now the outcome was in a commit that failed.
    while bench.admit(2).await.is_ok() {}
    bench.fails.store(false, Ordering::SeqCst);
    let Bench { running, folder, said, writer, .. } = bench;
    tokio::task::spawn_blocking(move || running.end()).await.unwrap();
    assert_eq!(writer.admit(Admit { from: AdmitFrom::Http, records: vec![] }).await.unwrap_err(), Refusal::Stopping);
    assert_eq!(said.all(), ["the disk refuses", "open again"]);
    let mut engine = open(Arc::new(FileDisk::take(folder.path()).unwrap()));
    let applied = engine.apply(HubTime(1_700_000_100_000), Timestamp(0), &mut Default::default()).unwrap();
    assert!(applied.claims.is_empty(), "it was delivered: {:?}", applied.claims);
}

// C13.2: a disk that stays broken does not keep the writer from ending, and it is told what was lost
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_ends_on_a_broken_disk_too() {
    let mut bench = Bench::new(Arc::new(Moved::default()), io::ErrorKind::Other).await;
    bench.admit(1).await.unwrap();
    let claim = bench.claims.recv().await.unwrap();
    bench.fails.store(true, Ordering::SeqCst);
    bench.deliver(&claim);
    while bench.admit(2).await.is_ok() {}
    let Bench { running, folder, said, .. } = bench;
    tokio::task::spawn_blocking(move || running.end()).await.unwrap();
    assert_eq!(said.all(), ["the disk refuses", "ended unstored"]);
    let mut engine = open(Arc::new(FileDisk::take(folder.path()).unwrap()));
    let applied = engine.apply(HubTime(1_700_000_100_000), Timestamp(0), &mut Default::default()).unwrap();
    assert_eq!(applied.claims.len(), 1, "attempted again, as after a crash");
}
