//! The one redb file: tables, keys, codecs, one write transaction at a time and short read snapshots.
//!
//! Invariant: after an error inside a write, the outcome of that commit is unknown and nothing more is written until
//! [`Store::reopen`]; readers see the last commit meanwhile, as far as the disk can be read. What is damaged is refused with a message,
//! never taken for empty, and left as it was: a file is looked over before anything of it is opened for writing.

mod codec;
pub mod disk;
#[cfg(feature = "fuzz-doors")]
pub mod doors;
mod key;
mod overlay;
mod replays;
pub mod rows;
mod tables;
mod told;
pub mod txn;
pub mod view;

use crate::time::HubTime;
use disk::{Backend, Disk};
use redb::{Database, ReadableDatabase as _};
use rows::HubRow;
use std::sync::{Arc, PoisonError, RwLock};
use tables::Table;
use txn::Txn;

/// The store format that this program writes (C13.6).
pub const FORMAT: u32 = 1;

/// Why the store cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Another process has it (C13.5).
    #[error("the store {0} is in use by another process; stop that one first, or use another DATA_DIR")]
    InUse(String),
    /// A newer program wrote it (C13.6).
    #[error(
        "the store has format {found}, this program knows up to {FORMAT}; run the newer program again, or restore a backup made before the upgrade"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// The disk has no room, or the quota is used up.
    #[error("the disk is full: {0}")]
    Full(String),
    /// The place is not one where this user may keep a store.
    #[error("DATA_DIR cannot be used: {0}; it must be a folder, of the hub's own user, that is not write-protected")]
    Place(String),
    /// The disk refused.
    #[error("the disk refused: {0}")]
    Io(String),
    /// What was read makes no sense.
    #[error("the store is damaged: {0}; it was left as it is: restore a backup, or move the file away to begin anew")]
    Damaged(String),
    /// It is closed, or waits to be reopened.
    #[error("the store is not open")]
    Closed,
}

impl StoreError {
    /// The kind of trouble, in words without a path or another name of this machine.
    pub fn in_short(&self) -> &'static str {
        match self {
            StoreError::InUse(_) => "another process has it",
            StoreError::Newer { .. } => "a newer program wrote it",
            StoreError::Full(_) => "the disk is full",
            StoreError::Place(_) => "its folder cannot be used by the hub's user",
            StoreError::Io(_) => "the disk refuses",
            StoreError::Damaged(_) => "it is damaged",
            StoreError::Closed => "it is not open",
        }
    }

    /// What the operating system says about reading or writing; `told` is how it is told.
    fn of_io(error: &std::io::Error, told: String) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Self::Full(told),
            // The bytes are there and are no store's, or the file ends too early.
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => Self::Damaged(told),
            _ => Self::Io(told),
        }
    }
}

impl From<redb::StorageError> for StoreError {
    fn from(error: redb::StorageError) -> Self {
        match error {
            redb::StorageError::Io(error) => Self::of_io(&error, error.to_string()),
            redb::StorageError::Corrupted(what) => Self::Damaged(what),
            redb::StorageError::DatabaseClosed => Self::Closed,
            other => Self::Io(other.to_string()),
        }
    }
}

macro_rules! through_storage {
    ($($error:ident),*) => {$(
        impl From<redb::$error> for StoreError {
            fn from(error: redb::$error) -> Self {
                match error {
                    redb::$error::Storage(error) => error.into(),
                    other => Self::Io(other.to_string()),
                }
            }
        }
    )*};
}
through_storage!(TransactionError, CommitError, TableError);

impl From<redb::DatabaseError> for StoreError {
    fn from(error: redb::DatabaseError) -> Self {
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => Self::InUse("file".to_owned()),
            redb::DatabaseError::Storage(error) => error.into(),
            other => Self::Damaged(other.to_string()),
        }
    }
}

/// How the store is kept.
#[derive(Debug, Clone, Copy)]
pub struct StoreSettings {
    /// Memory for pages.
    pub cache_bytes: usize,
    /// Above that many allocated bytes every commit also saves what makes reopening instant, at the price of a second sync. Up to that
    /// many every page is checked when the store is opened.
    pub quick_repair_above: u64,
}

/// What a new store begins with; made by the caller, since chance is not ours.
#[derive(Debug, Clone)]
pub struct Birth {
    /// Tells it from every other store.
    pub store_id: [u8; 16],
    /// Keys the delivery ids.
    pub delivery_key: [u8; 32],
}

/// The store. One of it a process, held by the writer.
#[derive(Debug)]
pub struct Store {
    disk: Arc<dyn Disk>,
    settings: StoreSettings,
    open: Arc<RwLock<Handle>>,
}

/// What is open of the store's file.
#[derive(Debug)]
enum Handle {
    /// Nothing.
    Closed,
    /// All of it, for reading and writing.
    Whole(Database),
    /// Its last commit, for readers, while it cannot be opened for writing (C13.4). What opening writes stays in memory.
    LastCommit(Database),
}

impl Handle {
    /// Where readers read.
    fn readable(&self) -> Result<&Database, StoreError> {
        match self {
            Handle::Whole(database) | Handle::LastCommit(database) => Ok(database),
            Handle::Closed => Err(StoreError::Closed),
        }
    }

    /// Where the writer writes.
    fn writable(&self) -> Result<&Database, StoreError> {
        match self {
            Handle::Whole(database) => Ok(database),
            Handle::LastCommit(_) | Handle::Closed => Err(StoreError::Closed),
        }
    }
}

impl Store {
    /// Opens the store, or makes it, whole or not at all.
    ///
    /// # Errors
    /// See [`StoreError`]; nothing was changed then.
    pub fn open(disk: Arc<dyn Disk>, settings: StoreSettings, birth: &Birth) -> Result<Self, StoreError> {
        if !disk.exists()? {
            disk.create(&mut |backend| first_row(backend, settings, birth))?;
        }
        let store = Self { disk, settings, open: Arc::new(RwLock::new(Handle::Closed)) };
        let is_small = store.allocated_bytes() <= settings.quick_repair_above;
        drop(store.look_at(if is_small { Check::EveryPage } else { Check::LastCommit })?);
        store.reopen()?;
        Ok(store)
    }

    /// Drops the handle and opens the file again: the way on after any error inside a write.
    ///
    /// # Errors
    /// See [`StoreError`]; it can only be read then, if that, and this can be called again.
    pub fn reopen(&self) -> Result<(), StoreError> {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        // Readers keep what they have while the disk still fails.
        if let Handle::Whole(_) = &*open {
            *open = Handle::Closed;
        }
        match self.whole() {
            Ok(database) => {
                *open = Handle::Whole(database);
                Ok(())
            }
            Err(error) => {
                self.keep_readable(&mut open);
                Err(error)
            }
        }
    }

    /// Gives up writing until [`Store::reopen`]; readers see the last commit.
    pub fn only_read(&self) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Handle::Whole(_) = &*open {
            *open = Handle::Closed;
        }
        self.keep_readable(&mut open);
    }

    fn keep_readable(&self, open: &mut Handle) {
        if let Handle::Closed = open
            && let Ok(database) = self.look_at(Check::LastCommit)
        {
            *open = Handle::LastCommit(database);
        }
    }

    /// The file, opened for writing.
    fn whole(&self) -> Result<Database, StoreError> {
        let database = open_database(self.disk.open()?, self.settings, Check::LastCommit)?;
        check_format(&database)?;
        complete(&database)?;
        Ok(database)
    }

    /// The file, opened so that nothing of it is changed.
    fn look_at(&self, check: Check) -> Result<Database, StoreError> {
        let bytes =
            overlay::Overlay::over(self.disk.look()?).map_err(|error| StoreError::of_io(&error, error.to_string()))?;
        let database = open_database(Backend(Box::new(bytes)), self.settings, check)?;
        check_format(&database)?;
        complete(&database)?;
        Ok(database)
    }

    /// Closes the file cleanly. Readers see [`StoreError::Closed`] from then on.
    pub fn close(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = Handle::Closed;
    }

    /// The counters and identity as of the last commit.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub fn hub_row(&self) -> Result<HubRow, StoreError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        read_hub_row(open.readable()?)
    }

    /// A handle for readers.
    pub fn reader(&self) -> view::Reader {
        view::Reader::new(self.open.clone())
    }

    /// Allocated bytes of the file.
    pub fn allocated_bytes(&self) -> u64 {
        self.disk.allocated_bytes()
    }

    /// Runs `work` in one transaction and commits it durably, if it changed anything.
    ///
    /// # Errors
    /// See [`StoreError`]. The outcome is unknown then: [`Store::reopen`] and read again before anything else.
    pub fn write<T>(&self, work: impl FnOnce(&mut Txn<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let mut write = open.writable()?.begin_write()?;
        write.set_quick_repair(self.disk.allocated_bytes() > self.settings.quick_repair_above);
        let mut txn = Txn::new(&write);
        let done = work(&mut txn);
        let changed = txn.changed();
        drop(txn);
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                // The work failed, so its half is thrown away; a failure of that is the same fault again.
                let _ = write.abort();
                return Err(error);
            }
        };
        if changed {
            write.commit()?;
        } else {
            write.abort()?;
        }
        Ok(done)
    }
}

/// How much of a file is checked when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The checksum of every page in use. Takes as long as reading the file.
    EveryPage,
    /// What leads to the last commit; every page where the file was not closed cleanly and a repair has to read them anyway.
    LastCommit,
}

/// Memory for pages while all of them are checked.
const CHECK_CACHE_BYTES: usize = 16 << 20;

fn open_database(backend: Backend, settings: StoreSettings, check: Check) -> Result<Database, StoreError> {
    let cache_bytes = match check {
        // Each page is read once.
        Check::EveryPage => settings.cache_bytes.min(CHECK_CACHE_BYTES),
        Check::LastCommit => settings.cache_bytes,
    };
    let opening = std::panic::AssertUnwindSafe(|| {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes).set_check_integrity_on_open(check == Check::EveryPage);
        builder.create_with_backend(backend)
    });
    // redb may panic on a file whose bytes were flipped; for us that is a damaged file, not a crash.
    match std::panic::catch_unwind(opening) {
        Ok(database) => Ok(database?),
        Err(_) => Err(StoreError::Damaged("its pages contradict each other".to_owned())),
    }
}

fn first_row(backend: Backend, settings: StoreSettings, birth: &Birth) -> Result<(), StoreError> {
    let database = open_database(backend, settings, Check::LastCommit)?;
    let write = database.begin_write()?;
    let mut txn = Txn::new(&write);
    txn.create_tables()?;
    txn.put_hub_row(&HubRow {
        format: FORMAT,
        store_id: birth.store_id,
        delivery_key: birth.delivery_key,
        kek_check: None,
        hub_time: HubTime(0),
        next_log: crate::model::ids::LogNo(1),
        next_claim: crate::model::ids::ClaimNo(1),
        next_sub: crate::model::ids::SubNo(1),
        next_row: 1,
        poison_bytes: 0,
        poison_counted: 0,
    })?;
    drop(txn);
    write.commit()?;
    Ok(())
}

fn check_format(database: &Database) -> Result<(), StoreError> {
    let found = read_hub_row(database)?.format;
    if found > FORMAT { Err(StoreError::Newer { found }) } else { Ok(()) }
}

/// Makes the tables that a former build did not know, so that readers find them: to it they were empty.
fn complete(database: &Database) -> Result<(), StoreError> {
    if database.begin_read()?.list_tables()?.count() >= tables::TABLES {
        return Ok(());
    }
    let write = database.begin_write()?;
    let mut txn = Txn::new(&write);
    txn.create_tables()?;
    drop(txn);
    write.commit()?;
    Ok(())
}

fn read_hub_row(database: &Database) -> Result<HubRow, StoreError> {
    let read = database.begin_read()?;
    let meta = match read.open_table(tables::definition(Table::Meta)) {
        Ok(meta) => meta,
        Err(redb::TableError::TableDoesNotExist(_)) => {
            return Err(StoreError::Damaged("it is a redb file, but not one of this program's".to_owned()));
        }
        Err(other) => return Err(other.into()),
    };
    let row = meta.get(txn::HUB_ROW_KEY)?.ok_or_else(|| StoreError::Damaged("its first row is missing".to_owned()))?;
    codec::decode(row.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::notice::{Notice, NoticeKind};
    use disk::FileDisk;

    // C13.6: a store of a former build opens, and what it did not know is empty.
    #[test]
    fn tables_that_a_former_build_did_not_know_are_made() {
        let folder = tempfile::tempdir().unwrap();
        let settings = StoreSettings { cache_bytes: 1 << 20, quick_repair_above: u64::MAX };
        let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
        let open = || Store::open(Arc::new(FileDisk::take(folder.path()).unwrap()), settings, &birth).unwrap();
        drop(open());
        let former = Database::open(folder.path().join("hub.redb")).unwrap();
        let write = former.begin_write().unwrap();
        for table in [Table::Health, Table::Notice] {
            assert!(write.delete_table(tables::definition(table)).unwrap());
        }
        write.commit().unwrap();
        drop(former);
        let store = open();
        assert!(store.reader().view().unwrap().notices(None, 10).unwrap().is_empty());
        let notice = Notice::about(NoticeKind::ForeignTenant, "x", HubTime(1), "y");
        store.write(|txn| txn.put_notice(1, &notice)).unwrap();
        assert_eq!(store.reader().view().unwrap().notices(None, 10).unwrap(), [(1, notice)]);
    }
}
