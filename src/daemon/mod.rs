//! Start and stop of the hub, in written order.
//!
//! Up: store, KEK, writer, dispatch, listeners, Kafka; then ready. Down: not ready, Kafka, claims, attempts in flight, listeners, writer,
//! store. Invariant: whatever this starts it also stops and waits for; after [`Running::stop`] nothing of the hub is left.

mod addresses;
mod facts;
mod listeners;
mod noticing;
mod open_files;
mod opened;
mod outgoing;
mod prober;
mod service;
mod signals;
mod source;
mod space;
mod telling;

pub use listeners::bind;
pub use signals::Signals;

use crate::config::{Settings, StopSettings, Tenancy};
use crate::dispatch::pool::PoolSettings;
use crate::engine::command::{Action, HubState, Manage, Managed, Refusal};
use crate::entropy::Entropy;
use crate::http::{self, Api};
use crate::kafka::{KafkaSettings, KafkaStatus};
use crate::metrics::Metrics;
use crate::model::limits::IN_FLIGHT_BODY_BYTES;
use crate::secrets::KekError;
use crate::store::StoreError;
use crate::store::disk::FileDisk;
use crate::store::view::Reader;
use crate::time::{Clock, SystemClock, millis};
use crate::writer::{self, Writer};
use facts::Health;
use listeners::Listening;
use opened::Opened;
use source::Source;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Why the hub did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key-encryption key.
    #[error(transparent)]
    Kek(#[from] KekError),
    /// A store whose key is not there: nothing sealed in it could be opened.
    #[error(
        "the store is there, but no KEK at {}; it is never made anew for an old store. If the hub runs as a service its KEK lies elsewhere: start the service and try again, or say where with KEK_SOURCE and KEK_REF. Else put the file back",
        .0.display()
    )]
    KekMissing(PathBuf),
    /// Another key than the one that sealed.
    #[error("the KEK is not the one that sealed the secrets of this store; give the right one")]
    KekMismatch,
    /// A name in the environment that holds no key.
    #[error("the environment variable {0} that KEK_REF names is not set")]
    NoVariable(String),
    /// A listener, a thread, the operating system's chance.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A setting that only its user can judge.
    #[error("{setting}: {why}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The writer refuses.
    #[error("the hub cannot be asked: {0}")]
    Refused(#[from] Refusal),
    /// A part that must not end has ended; the log says why.
    #[error("{0} ended unexpectedly; the hub stopped, so that it can be started again")]
    Broken(&'static str),
    /// Something did not end, most likely a write to a disk that hangs.
    #[error(
        "the hub did not end within {0:?}: the store's disk may hang; it ended as if it were killed: nothing is lost, and what was in flight is attempted again"
    )]
    NotEnded(Duration),
    /// The second signal came.
    #[error("stopped at once; what was in flight is attempted again at the next start")]
    StoppedAtOnce,
}

impl DaemonError {
    /// A newer program wrote the store: exit code 78, so that no supervisor tries again.
    pub fn is_newer_store(&self) -> bool {
        matches!(self, DaemonError::Store(StoreError::Newer { .. }))
    }

    /// A setting is wrong, in a way that only showed when it was used.
    pub fn is_setting(&self) -> bool {
        match self {
            DaemonError::Setting { .. }
            | DaemonError::Kek(_)
            | DaemonError::KekMissing(_)
            | DaemonError::KekMismatch
            | DaemonError::NoVariable(_) => true,
            DaemonError::Store(_)
            | DaemonError::Io { .. }
            | DaemonError::Refused(_)
            | DaemonError::Broken(_)
            | DaemonError::NotEnded(_)
            | DaemonError::StoppedAtOnce => false,
        }
    }

    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Runs the hub until it is told to stop (C13.2).
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(settings: Settings) -> Result<(), DaemonError> {
    let signals = Signals::listen().map_err(DaemonError::io("signals"))?;
    let disk = FileDisk::take(&settings.data_dir)?;
    let port = bind(&settings.http)?;
    let clock = Arc::new(SystemClock::new());
    // A large store may take long to open; breaking that off is no worse than a crash, which loses nothing.
    let opened = tokio::select! {
        opened = open(&settings, disk, clock.clone()) => opened?,
        () = signals.drain.cancelled() => return Ok(()),
    };
    // From here on attempts are made, and their outcomes are to be stored: what has begun is wound down.
    let running = tokio::select! {
        running = start_over(settings, opened, port, clock) => running?,
        () = signals.now.cancelled() => return Err(DaemonError::StoppedAtOnce),
    };
    let broken = tokio::select! {
        () = signals.drain.cancelled() => None,
        part = running.broken() => Some(part),
    };
    running.stop(&signals).await?;
    broken.map_or(Ok(()), |part| Err(DaemonError::Broken(part)))
}

/// Starts the whole hub, with its API at that port.
///
/// # Errors
/// See [`DaemonError`]; nothing runs then.
pub async fn start(
    settings: Settings,
    disk: FileDisk,
    port: TcpListener,
    clock: Arc<dyn Clock>,
) -> Result<Running, DaemonError> {
    let opened = open(&settings, disk, clock.clone()).await?;
    start_over(settings, opened, port, clock).await
}

/// Starts the whole hub over a store that is open.
async fn start_over(
    settings: Settings,
    opened: Opened,
    port: TcpListener,
    clock: Arc<dyn Clock>,
) -> Result<Running, DaemonError> {
    let tcp = listeners::taken(port).map_err(DaemonError::io("the API's port"))?;
    let address = tcp.local_addr().map_err(DaemonError::io("the API's port"))?;
    let tls = settings.http.tls.as_ref().map(listeners::tls).transpose()?;
    let mut running = begin(&settings, opened, clock, Some(address), Work::Everything).await?;
    running.listening.tcp(tcp, tls);
    if settings.kafka.is_none() && !settings.http.ingest {
        tracing::warn!("no events will come: neither KAFKA_BROKERS nor HTTP_INGEST_ENABLED is set");
    }
    if let Some(kafka) = settings.kafka
        && let Err(error) = running.read_kafka(kafka).await
    {
        running.wind_down().await;
        return Err(error);
    }
    service::ready();
    let (store, env) = (settings.data_dir.display(), settings.env.name());
    running.ready_was_told = running.health.is_ready();
    if running.ready_was_told {
        tracing::info!(%address, %store, env, "the hub is ready");
    } else {
        tracing::info!(%address, %store, env, "the hub serves; it is ready when Kafka answers (READY_REQUIRES_KAFKA)");
    }
    Ok(running)
}

/// Starts a hub that answers commands at its socket and does nothing else, for commands without a running hub (C13.5).
///
/// # Errors
/// See [`DaemonError`]; nothing runs then.
pub async fn start_for_commands(
    settings: Settings,
    disk: FileDisk,
    clock: Arc<dyn Clock>,
) -> Result<Running, DaemonError> {
    let opened = open(&settings, disk, clock.clone()).await?;
    begin(&settings, opened, clock, None, Work::CommandsOnly).await
}

/// Where the command socket of such a hub is (C13.5).
pub fn socket_path(settings: &Settings) -> PathBuf {
    settings.data_dir.join("hub.sock")
}

/// How much of the hub runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Everything,
    CommandsOnly,
}

async fn open(settings: &Settings, disk: FileDisk, clock: Arc<dyn Clock>) -> Result<Opened, DaemonError> {
    // Refused before anything of the store is touched.
    settings.http.tls.as_ref().map(listeners::tls).transpose()?;
    let can_open = open_files::allowed(settings.engine.slots);
    opened::open(settings, can_open, disk, clock).await
}

async fn begin(
    settings: &Settings,
    opened: Opened,
    clock: Arc<dyn Clock>,
    address: Option<SocketAddr>,
    work: Work,
) -> Result<Running, DaemonError> {
    let Opened { mut engine, board, reader, envelope, hub_clock, can_open } = opened;
    let delivery_key = Arc::new(ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &engine.delivery_key()));
    if work == Work::CommandsOnly {
        engine.stop_claiming();
    }
    let policy = outgoing::policy(settings, address);
    let sinks = outgoing::sinks(settings, can_open.resting_max, policy.clone(), envelope.clone(), clock.clone())?;
    let socket = socket_path(settings);
    // Whoever closes the store removes its socket then.
    if engine.inherited_claims() > 0 || socket.exists() {
        tracing::info!(
            jobs = engine.inherited_claims(),
            "the last process ended without closing the store; the jobs that it had claimed are attempted again"
        );
    }
    let unix = http::bind_unix(&socket).map_err(DaemonError::io(socket.display().to_string()))?;

    let entropy = Mutex::new(chance()?);

    // Everything that can be refused was tried above; from here on parts run.
    let metrics = Arc::new(Metrics::new());
    let source = settings.kafka.as_ref().filter(|_| work == Work::Everything).map(|_| Arc::<KafkaStatus>::default());
    let health = Arc::new(Health::new(source, settings.http.ready_requires_kafka));
    let telling = telling::Told::new(metrics.clone(), health.clone());
    if engine.has_events_of_other_tenants() {
        telling.foreign_events();
    }
    let (writer, thread, claims) = writer::start(engine, clock.clone(), hub_clock, telling.clone())
        .map_err(DaemonError::io("the writer's thread"))?;
    // Before anybody can ask for anything.
    let mut space = space::Watcher::new(settings.data_dir.clone(), settings.reserve, thread.gate(), telling.clone());
    space.look().await;
    let commits = space::watch_commits(thread.gate(), clock.clone(), telling.clone());
    let noticing = noticing::watch(health.clone(), writer.clone(), clock.clone(), hub_clock);
    let watching = [tokio::spawn(space.watch()), tokio::spawn(commits), tokio::spawn(noticing)];
    let dispatch_stop = CancellationToken::new();
    let dispatch = crate::dispatch::Dispatch {
        writer: writer.clone(),
        board: board.clone(),
        reader: reader.clone(),
        sinks: sinks.clone(),
        clock: clock.clone(),
        hub_clock,
        delivery_key,
        default_timeout: settings.sinks.attempt_timeout,
        watching: telling,
    };
    let pool = PoolSettings {
        body_bytes: IN_FLIGHT_BODY_BYTES,
        loads: settings.dispatch.workers * crate::dispatch::LOADED_TOGETHER,
        lease_ms: millis(settings.dispatch.lease),
    };
    let dispatching = match work {
        Work::Everything => {
            let run = Arc::new(dispatch).run(pool, claims, dispatch_stop.clone(), settings.stop.drain);
            Some(tokio::spawn(run))
        }
        Work::CommandsOnly => None,
    };
    let tending = tokio::spawn({
        let sinks = sinks.clone();
        async move { sinks.tend().await }
    });
    let prober = prober::SinkProber::new(sinks, clock.clone(), settings.sinks.attempt_timeout);
    let api = Api::new(http::Parts {
        writer: writer.clone(),
        board,
        reader: reader.clone(),
        envelope,
        metrics: metrics.clone(),
        clock: clock.clone(),
        hub_clock,
        entropy,
        prober: Arc::new(prober),
        facts: health.clone(),
        settings: listeners::api_settings(settings, policy),
    });
    let mut listening = Listening::new(api);
    listening.unix(unix);
    Ok(Running {
        address,
        socket,
        writer,
        thread,
        reader,
        metrics,
        clock,
        health,
        source: None,
        dispatch_stop,
        dispatching,
        tending,
        watching,
        listening,
        ready_was_told: true,
        stop: settings.stop,
    })
}

fn chance() -> Result<Entropy, DaemonError> {
    Entropy::from_os().map_err(|_| DaemonError::Io {
        what: "random bytes of the operating system".to_owned(),
        source: io::ErrorKind::Other.into(),
    })
}

/// A running hub.
pub struct Running {
    address: Option<SocketAddr>,
    socket: PathBuf,
    writer: Writer,
    thread: writer::Running,
    reader: Reader,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    health: Arc<Health>,
    source: Option<Source>,
    dispatch_stop: CancellationToken,
    dispatching: Option<JoinHandle<usize>>,
    tending: JoinHandle<()>,
    /// They only look and tell, so there is nothing of theirs to be finished.
    watching: [JoinHandle<()>; 3],
    listening: Listening,
    ready_was_told: bool,
    stop: StopSettings,
}

/// What closing may take beside the time for attempts: of 40 s in all, with the defaults.
const CLOSE: Duration = Duration::from_secs(8);
/// How often is looked whether a part has ended that must not.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a count for the log is waited for.
const ASK_TIME: Duration = Duration::from_secs(1);

impl Running {
    /// Where its API listens; none of a hub for commands.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Its command socket (C13.5).
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The hub's counts.
    ///
    /// # Errors
    /// When it is stopping, or its store is suspended.
    pub async fn inspect(&self) -> Result<HubState, DaemonError> {
        match self.writer.manage(Manage { action: Action::InspectHub, idempotency: None }).await? {
            Managed::Hub(state) => Ok(state),
            Managed::Subscription { .. }
            | Managed::Deleted
            | Managed::Redriven(_)
            | Managed::Replay(_)
            | Managed::ApiKey(_)
            | Managed::Done
            | Managed::Breakers(_)
            | Managed::Healths { .. }
            | Managed::Lane(_) => Err(DaemonError::Broken("the writer's answer")),
        }
    }

    async fn read_kafka(&mut self, settings: KafkaSettings) -> Result<(), DaemonError> {
        let Some(status) = self.health.source() else { return Ok(()) };
        let (writer, reader, metrics) = (self.writer.clone(), self.reader.clone(), self.metrics.clone());
        let clock = self.clock.clone();
        self.source = Some(Source::start(settings, writer, reader, status, metrics, clock, chance()?).await?);
        Ok(())
    }

    /// Waits until a part ends that must not, and names it.
    pub async fn broken(&self) -> &'static str {
        let mut ready_was_told = self.ready_was_told;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !ready_was_told && self.health.is_ready() {
                ready_was_told = true;
                tracing::info!("the hub is ready");
            }
            let ended = |task: &Option<JoinHandle<usize>>| task.as_ref().is_some_and(JoinHandle::is_finished);
            let part = match () {
                () if self.thread.has_ended() => "the writer",
                () if ended(&self.dispatching) => "dispatch",
                () if self.source.as_ref().is_some_and(Source::has_ended) => "the Kafka source",
                () => continue,
            };
            self.health.broke(part);
            tracing::error!(part, "a part of the hub ended that must not");
            return part;
        }
    }

    /// Drains and closes (C13.2). A second signal ends it at once, and a disk that hangs when the time for all of it is over.
    ///
    /// # Errors
    /// When the second signal came, or the disk hung.
    pub async fn stop(self, signals: &Signals) -> Result<(), DaemonError> {
        service::stopping();
        let all = self.stop.pre_stop.saturating_add(self.stop.drain).saturating_add(CLOSE);
        tokio::select! {
            () = self.wind_down() => Ok(()),
            () = signals.now.cancelled() => Err(DaemonError::StoppedAtOnce),
            () = tokio::time::sleep(all) => Err(DaemonError::NotEnded(all)),
        }
    }

    async fn wind_down(self) {
        self.health.drain();
        tracing::info!("draining: not ready any more");
        tokio::time::sleep(self.stop.pre_stop).await;
        if let Some(source) = self.source {
            source.stop().await;
        }
        self.listening.stop_writes();
        self.thread.stop_claiming();
        self.dispatch_stop.cancel();
        if let Some(dispatching) = self.dispatching {
            let asked = Manage { action: Action::InspectHub, idempotency: None };
            // A writer that hangs in a slow commit must not hold up the stop.
            let told = tokio::time::timeout(ASK_TIME, self.writer.manage(asked)).await;
            if let Ok(Ok(Managed::Hub(state))) = told {
                let at_most_s = self.stop.drain.as_secs();
                tracing::info!(in_flight = state.in_flight, at_most_s, "waiting for the attempts in flight");
            }
            // It ends within its own drain time; a panic of it was told by `broken`.
            match dispatching.await {
                Ok(0) => tracing::info!("no attempt was cut off"),
                Ok(cut_off) => tracing::info!(cut_off, "attempts were cut off; they are made again after the start"),
                Err(_) => {}
            }
        }
        self.tending.abort();
        self.watching.iter().for_each(JoinHandle::abort);
        self.listening.stop().await;
        let thread = self.thread;
        // Commits what is queued and closes the store: file work, not for the runtime's threads.
        let _ = tokio::task::spawn_blocking(move || thread.end()).await;
        // A socket that nobody serves only misleads; the next start would replace it.
        let _ = std::fs::remove_file(&self.socket);
        tracing::info!("stopped");
    }
}

/// Whether receivers are told the tenant, for the tenancy of the hub (C9.4).
fn visibility(tenancy: &Tenancy) -> crate::sink::TenantVisibility {
    match tenancy {
        Tenancy::Single(_) => crate::sink::TenantVisibility::Hidden,
        Tenancy::Multi => crate::sink::TenantVisibility::Shown,
    }
}
