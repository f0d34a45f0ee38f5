//! What all tasks of the Kafka source share: settings, doors, the budget of fetched bytes, and the bells that wake one another.

use crate::entropy::Entropy;
use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::connection::Access;
use crate::kafka::inbox::Inbox;
use crate::kafka::settings::KafkaSettings;
use crate::kafka::status::KafkaStatus;
use crate::model::limits::{FETCHED_BYTES, PARTITIONS_DECODED};
use crate::time::Clock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// What all tasks of the source share.
pub(super) struct Source {
    pub(super) settings: KafkaSettings,
    pub(super) access: Access,
    pub(super) inbox: Arc<dyn Inbox>,
    pub(super) status: Arc<KafkaStatus>,
    pub(super) clock: Arc<dyn Clock>,
    /// The end of everything.
    pub(super) stop: CancellationToken,
    /// Permits to decode more than a little.
    pub(super) decoding: Semaphore,
    chance: Mutex<Entropy>,
    held: AtomicUsize,
    fetchers: Notify,
    discovery: Notify,
    looks_begun: AtomicU64,
    looks_done: watch::Sender<u64>,
}

impl Source {
    pub(super) fn new(
        settings: KafkaSettings,
        inbox: Arc<dyn Inbox>,
        status: Arc<KafkaStatus>,
        clock: Arc<dyn Clock>,
        seed: u64,
        stop: CancellationToken,
    ) -> Self {
        let access = Access { clock: clock.clone(), tls: settings.tls.clone(), sasl: settings.sasl.clone() };
        Self {
            settings,
            access,
            inbox,
            status,
            clock,
            stop,
            decoding: Semaphore::new(PARTITIONS_DECODED),
            chance: Mutex::new(Entropy::from_seed(seed)),
            held: AtomicUsize::new(0),
            fetchers: Notify::new(),
            discovery: Notify::new(),
            looks_begun: AtomicU64::new(0),
            looks_done: watch::Sender::new(0),
        }
    }

    /// How long to wait after a failure.
    pub(super) fn wait_after(&self, backoff: &mut Backoff, mended: Mended) -> Duration {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        backoff.next(mended, self.clock.monotonic(), &mut chance)
    }

    /// Bytes that may still be fetched.
    pub(super) fn room(&self) -> usize {
        FETCHED_BYTES.saturating_sub(self.held.load(Ordering::Relaxed))
    }

    /// Counts fetched bytes.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Fetched bytes are gone.
    pub(super) fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.wake_fetchers();
    }

    /// There may be something to fetch.
    pub(super) fn wake_fetchers(&self) {
        self.fetchers.notify_waiters();
    }

    /// Rings when there may be something to fetch. Take it before looking whether there is.
    pub(super) fn fetcher_woken(&self) -> Notified<'_> {
        self.fetchers.notified()
    }

    /// Asks for a discovery before its time.
    pub(super) fn discover_soon(&self) {
        self.discovery.notify_one();
    }

    /// Rings when a discovery was asked for.
    pub(super) async fn discovery_asked(&self) {
        self.discovery.notified().await;
    }

    /// A look at the cluster begins.
    pub(super) fn look_begins(&self) {
        self.looks_begun.fetch_add(1, Ordering::Relaxed);
    }

    /// The look that began last was done, and all that it says is obeyed.
    pub(super) fn look_is_done(&self) {
        self.looks_done.send_replace(self.looks_begun.load(Ordering::Relaxed));
    }

    /// Waits for a look at the cluster that began after this call.
    pub(super) async fn fresh_look(&self) {
        let wanted = self.looks_begun.load(Ordering::Relaxed) + 1;
        self.discover_soon();
        // The sender lives as long as we do.
        let _ = self.looks_done.subscribe().wait_for(|done| *done >= wanted).await;
    }
}
