//! Where the bytes lie: a file on disk, or what a test puts in its place.
//!
//! Invariant: a store file under its own name is always whole. A new one is made under another name, synced and renamed: a crash
//! at the first write leaves nothing that could never be opened.

use super::StoreError;
use crate::model::space::Space;
use redb::StorageBackend;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A place where one store lies.
pub trait Disk: Send + Sync + Debug {
    /// Whether there is one already.
    ///
    /// # Errors
    /// When that cannot be told.
    fn exists(&self) -> Result<bool, StoreError>;

    /// Makes one: `fill` writes it, then it appears whole.
    ///
    /// # Errors
    /// When it cannot; there is none then.
    fn create(&self, fill: &mut dyn FnMut(Backend) -> Result<(), StoreError>) -> Result<(), StoreError>;

    /// The bytes of the one that is there.
    ///
    /// # Errors
    /// When they cannot be had.
    fn open(&self) -> Result<Backend, StoreError>;

    /// The same, only to be read.
    ///
    /// # Errors
    /// When they cannot be had.
    fn look(&self) -> Result<Backend, StoreError> {
        self.open()
    }

    /// Bytes that it really takes (files are sparse).
    fn allocated_bytes(&self) -> u64;
}

/// The storage that redb is given.
#[derive(Debug)]
pub struct Backend(pub Box<dyn StorageBackend>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

/// `hub.redb` in a folder, which one process has at a time (C13.5).
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    // Held open for its lock, which the kernel drops with the process, however that ends.
    _lock: File,
    was_opened: AtomicBool,
}

impl FileDisk {
    /// Takes the folder for this process, making it (0700) where it is missing.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has it.
    pub fn take(folder: &Path) -> Result<Self, StoreError> {
        make_folder(folder).map_err(|e| no_place(folder, &e))?;
        let path = folder.join("hub.lock");
        let lock = private(&path).map_err(|e| no_place(&path, &e))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { folder: folder.to_owned(), _lock: lock, was_opened: AtomicBool::new(false) }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StoreError::InUse(folder.display().to_string())),
            Err(error) => Err(at(&path, &error.into())),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("hub.redb")
    }

    fn open_with(&self, options: &OpenOptions) -> Result<Backend, StoreError> {
        let path = self.path();
        let file = options.open(&path).map_err(|e| at(&path, &e))?;
        let found = file.metadata().map_err(|e| at(&path, &e))?;
        if !found.is_file() {
            return Err(StoreError::Damaged(format!("{} is not a file", path.display())));
        }
        // redb would take an empty file for a new store; for us it is one that lost its bytes.
        if found.len() == 0 {
            return Err(StoreError::Damaged(format!("{} is empty", path.display())));
        }
        if self.was_opened.load(Ordering::Relaxed) {
            // After a sync that failed the kernel may show pages that it could not write and will not write again: what is read from
            // here on must come from the disk. Where this is not possible nothing is worse than before.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
        backend(file)
    }
}

impl Disk for FileDisk {
    fn exists(&self) -> Result<bool, StoreError> {
        let path = self.path();
        path.try_exists().map_err(|e| at(&path, &e))
    }

    fn create(&self, fill: &mut dyn FnMut(Backend) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let draft = self.folder.join("hub.redb.new");
        // A leftover of a start that was killed; it was never a store.
        match std::fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&draft, &error)),
            _ => {}
        }
        let file = private(&draft).map_err(|e| at(&draft, &e))?;
        fill(backend(file.try_clone().map_err(|e| at(&draft, &e))?)?)?;
        file.sync_all().map_err(|e| at(&draft, &e))?;
        let path = self.path();
        std::fs::rename(&draft, &path).map_err(|e| at(&path, &e))?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(|e| at(&self.folder, &e))
    }

    fn open(&self) -> Result<Backend, StoreError> {
        let backend = self.open_with(OpenOptions::new().read(true).write(true))?;
        self.was_opened.store(true, Ordering::Relaxed);
        Ok(backend)
    }

    fn look(&self) -> Result<Backend, StoreError> {
        self.open_with(OpenOptions::new().read(true))
    }

    fn allocated_bytes(&self) -> u64 {
        std::fs::metadata(self.path()).map_or(0, |file| file.blocks().saturating_mul(512))
    }
}

/// The space on the disk of a folder. Blocking, for as long as the disk takes.
///
/// # Errors
/// When the operating system does not tell.
pub fn space(folder: &Path) -> io::Result<Space> {
    let told = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
    Ok(Space { free: bytes(told.f_bavail), total: bytes(told.f_blocks) })
}

fn backend(file: File) -> Result<Backend, StoreError> {
    Ok(Backend(Box::new(redb::backends::FileBackend::new(file)?)))
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn no_place(path: &Path, error: &io::Error) -> StoreError {
    match StoreError::of_io(error, format!("{}: {error}", path.display())) {
        StoreError::Io(told) => StoreError::Place(told),
        other => other,
    }
}

fn at(path: &Path, error: &io::Error) -> StoreError {
    StoreError::of_io(error, format!("{}: {error}", path.display()))
}
