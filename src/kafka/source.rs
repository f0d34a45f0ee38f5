//! What all tasks of the Kafka source share: settings, doors, the budget of fetched bytes, and the bells that wake one another.

use crate::entropy::Entropy;
use crate::kafka::backoff::{Backoff, Mended};
use crate::kafka::connection::Access;
use crate::kafka::inbox::Inbox;
use crate::kafka::settings::KafkaSettings;
use crate::kafka::status::KafkaStatus;
use crate::model::limits::FETCHED_BYTES;
use crate::time::Clock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, watch};
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
    chance: Mutex<Entropy>,
    held: AtomicUsize,
    fetchers: Notify,
    discovery: Notify,
    discoveries: watch::Sender<u64>,
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
        let access = Access { tls: settings.tls.clone(), sasl: settings.sasl.clone() };
        Self {
            settings,
            access,
            inbox,
            status,
            clock,
            stop,
            chance: Mutex::new(Entropy::from_seed(seed)),
            held: AtomicUsize::new(0),
            fetchers: Notify::new(),
            discovery: Notify::new(),
            discoveries: watch::Sender::new(0),
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

    /// A discovery was done.
    pub(super) fn discovered(&self) {
        self.discoveries.send_modify(|number| *number += 1);
    }

    /// Waits until the cluster has been looked at afresh: a discovery that began after this call.
    pub(super) async fn fresh_discovery(&self) {
        let mut seen = self.discoveries.subscribe();
        let now = *seen.borrow_and_update();
        // One may be under way that began before: the second one from here is surely new.
        while *seen.borrow() < now + 2 {
            self.discover_soon();
            if seen.changed().await.is_err() {
                return;
            }
        }
    }
}
