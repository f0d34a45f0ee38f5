//! How a command reaches the hub: over the socket of the running one; only without a running hub it opens the store itself, as a hub
//! that answers commands and nothing else (C13.5).

use super::hub::Hub;
use super::settings::meant;
use super::{Failure, serve};
use crate::config::{Settings, Typed};
use crate::daemon::{self, DaemonError, Signals};
use crate::store::StoreError;
use crate::store::disk::FileDisk;
use crate::time::SystemClock;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

/// Does something with the hub.
pub(super) fn with_hub<T>(typed: &mut Typed, work: impl AsyncFnOnce(&Hub) -> Result<T, Failure>) -> Result<T, Failure> {
    let settings = meant(typed)?;
    serve::runtime()?.block_on(async {
        let socket = daemon::socket_path(&settings);
        if listens(&socket).await {
            return work(&Hub::at_socket(&socket)?).await;
        }
        with_store(settings, &socket, work).await
    })
}

/// Refuses a store of another user: files that this one would leave there could be in the way of the hub. (Root may reach a running hub.)
fn others_store(store: &Path) -> Result<(), Failure> {
    let owner = std::fs::metadata(store).map_err(Failure::io(store.display().to_string()))?.uid();
    if owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Failure::OthersStore { store: store.display().to_string(), owner })
}

async fn listens(socket: &Path) -> bool {
    tokio::net::UnixStream::connect(socket).await.is_ok()
}

async fn with_store<T>(
    settings: Settings,
    socket: &Path,
    work: impl AsyncFnOnce(&Hub) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // A store and a KEK are made by the hub alone: made by a command, most likely by another user and with other settings, they would be in
    // its way for ever.
    let store = settings.data_dir.join("hub.redb");
    if !store.exists() {
        return Err(Failure::NoStore(settings.data_dir.display().to_string()));
    }
    others_store(&store)?;
    let disk = match FileDisk::take(&settings.data_dir) {
        Ok(disk) => disk,
        Err(StoreError::InUse(_)) => return Err(Failure::NoSocket(socket.display().to_string())),
        Err(error) => return Err(DaemonError::from(error).into()),
    };
    let signals = Signals::listen().map_err(Failure::io("signals"))?;
    let running = daemon::start_for_commands(settings, disk, Arc::new(SystemClock::new())).await?;
    let done = match Hub::at_socket(running.socket()) {
        Ok(hub) => work(&hub).await,
        Err(failure) => Err(failure),
    };
    running.stop(&signals).await?;
    done
}
