//! Opening: the store, the key-encryption key, and the engine over both.
//!
//! Invariant: a KEK is made only together with a new store, and a store is used only with the KEK that seals in it: neither a lost
//! nor a wrong key is ever answered with a new one.

use super::open_files::CanOpen;
use super::{DaemonError, chance, service};
use crate::config::{KekFrom, Settings, Tenancy};
use crate::engine::Engine;
use crate::engine::board::Board;
use crate::entropy;
use crate::rules::autodisable::FAR_AHEAD_MS;
use crate::secrets::{Envelope, Kek};
use crate::store::disk::{Disk as _, FileDisk};
use crate::store::view::Reader;
use crate::store::{Birth, Store};
use crate::time::{Clock, HubClock, HubTime};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A store that is ready to work on.
pub(super) struct Opened {
    pub(super) engine: Engine,
    pub(super) board: Arc<Board>,
    pub(super) reader: Reader,
    pub(super) envelope: Arc<Envelope>,
    pub(super) hub_clock: HubClock,
    pub(super) can_open: CanOpen,
}

/// Opens everything, for as many attempts at once as there can be, off the runtime's threads, and keeps a service manager patient meanwhile.
pub(super) async fn open(
    settings: &Settings,
    can_open: CanOpen,
    disk: FileDisk,
    clock: Arc<dyn Clock>,
) -> Result<Opened, DaemonError> {
    let settings = settings.clone();
    let mut opening = tokio::task::spawn_blocking(move || open_blocking(&settings, can_open, disk, &*clock));
    loop {
        match tokio::time::timeout(service::EXTEND_EVERY, &mut opening).await {
            Ok(opened) => return opened.unwrap_or(Err(DaemonError::Broken("opening the store"))),
            Err(_) => service::still_opening(),
        }
    }
}

fn open_blocking(
    settings: &Settings,
    can_open: CanOpen,
    disk: FileDisk,
    clock: &dyn Clock,
) -> Result<Opened, DaemonError> {
    let is_new = !disk.exists()?;
    let kek = kek(&settings.kek, is_new)?;
    let store = Store::open(Arc::new(disk), settings.store, &birth(clock)?)?;
    let last = store.hub_row()?.hub_time;
    warn_of_clock(last, clock);
    let hub_clock = HubClock::start(last, clock);
    let board = Arc::new(Board::default());
    let now = hub_clock.now(clock);
    let mut engine_settings = settings.engine.clone();
    engine_settings.slots = can_open.slots;
    engine_settings.only_tenant = match &settings.tenancy {
        Tenancy::Single(tenant) => Some(tenant.to_string().into()),
        Tenancy::Multi => None,
    };
    let mut engine = Engine::open(store, board.clone(), engine_settings, chance()?, now)?;
    let still = engine.subscriptions_of_other_tenants();
    if still > 0 {
        tracing::warn!(
            subscriptions = still,
            "the store has subscriptions of other tenants than TENANT_ID: they stand still, and their waiting events are kept; \
             run with MULTI_TENANT_ENABLED or the former TENANT_ID to see or remove them"
        );
    }
    let envelope = Arc::new(Envelope::new(kek));
    if !engine.bind_kek(envelope.check_value())? {
        return Err(DaemonError::KekMismatch);
    }
    let reader = engine.reader();
    Ok(Opened { engine, board, reader, envelope, hub_clock, can_open })
}

fn kek(from: &KekFrom, store_is_new: bool) -> Result<Kek, DaemonError> {
    match from {
        KekFrom::Variable(name) => {
            let text = std::env::var(name).map(Zeroizing::new).map_err(|_| DaemonError::NoVariable(name.clone()))?;
            Ok(Kek::parse(&text)?)
        }
        KekFrom::File(path) => Ok(Kek::from_file(path)?),
        KekFrom::MadeWithStore(path) => made_with_store(path, store_is_new),
    }
}

// The key is written before the store is: a start that dies in between finds the key and goes on with it.
fn made_with_store(path: &Path, store_is_new: bool) -> Result<Kek, DaemonError> {
    match (path.exists(), store_is_new) {
        (true, _) => Ok(Kek::from_file(path)?),
        (false, true) => {
            let kek = Kek::generate()?;
            kek.write_new(path)?;
            Ok(kek)
        }
        (false, false) => Err(DaemonError::KekMissing(path.to_owned())),
    }
}

fn birth(clock: &dyn Clock) -> Result<Birth, DaemonError> {
    let mut delivery_key = [0; 32];
    entropy::os_bytes(&mut delivery_key)
        .map_err(|_| DaemonError::Io { what: "random bytes".to_owned(), source: std::io::ErrorKind::Other.into() })?;
    Ok(Birth { store_id: chance()?.uuid_v7(clock.wall()), delivery_key })
}

fn warn_of_clock(last: HubTime, clock: &dyn Clock) {
    let wall = clock.wall();
    if last.0 > wall.0 {
        tracing::warn!(
            behind_ms = last.0 - wall.0,
            "the wall clock is behind the store's last time; the store's is used"
        );
    } else if last.0 > 0 && wall.0 - last.0 > FAR_AHEAD_MS {
        tracing::warn!(
            ahead_ms = wall.0 - last.0,
            "the wall clock is far ahead of the store's last time; subscriptions are switched off only after a fresh failure"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C13.8 has its clocks in `time`; here only that a key is never made for a store that has one.
    #[test]
    fn a_kek_is_made_only_with_a_new_store() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kek");
        let from = KekFrom::MadeWithStore(path.clone());
        assert!(matches!(kek(&from, false), Err(DaemonError::KekMissing(_))));
        assert!(!path.exists());
        let made = kek(&from, true).unwrap().check_value();
        for store_is_new in [true, false] {
            assert_eq!(kek(&from, store_is_new).unwrap().check_value(), made);
        }
    }
}
