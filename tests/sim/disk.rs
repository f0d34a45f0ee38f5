//! A disk in memory that may fail or lose power at any operation, also inside a commit.
//!
//! Each file has what readers see (the page cache) and what would be there after a power cut. A write dirties sectors of 512 bytes; a sync
//! makes them durable; a power cut keeps a random part of those that were not synced. A kill keeps all that was written.

use crate::chance::Chance;
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use streaming_hub::store::StoreError;
use streaming_hub::store::disk::{Backend, Disk};

const SECTOR: usize = 512;

/// What is to happen at an operation to come.
#[derive(Debug, Clone, Copy)]
pub struct Fuse {
    /// After so many more operations that change something.
    pub after: u64,
    /// What happens then.
    pub effect: Effect,
}

/// What happens when a fuse has burnt down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Power goes before the operation did anything.
    CutBefore,
    /// Power goes when it is done, and before anybody knows.
    CutAfter,
    /// The operation fails, and so many more after it.
    Fail {
        /// More failures, reads and opens included.
        more: u32,
    },
}

/// The disk; a handle, cheap to clone.
#[derive(Debug, Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    chance_seed: u64,
    store: Option<File>,
    draft: Option<File>,
    /// The rename to the final name is not yet durable.
    rename_unsynced: bool,
    epoch: u64,
    fuse: Option<Fuse>,
    failures_left: u32,
    power: Power,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Cut,
}

#[derive(Debug, Default, Clone)]
struct File {
    seen: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Store,
    Draft,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            chance_seed: seed,
            store: None,
            draft: None,
            rename_unsynced: false,
            epoch: 0,
            fuse: None,
            failures_left: 0,
            power: Power::On,
        })))
    }

    /// Lights a fuse.
    pub fn light(&self, fuse: Fuse) {
        self.state().fuse = Some(fuse);
    }

    /// No more faults.
    pub fn heal(&self) {
        let mut state = self.state();
        state.fuse = None;
        state.failures_left = 0;
    }

    /// Whether the fuse cut the power.
    pub fn is_cut(&self) -> bool {
        self.state().power == Power::Cut
    }

    /// Whether something is about to happen to it.
    pub fn is_armed(&self) -> bool {
        let state = self.state();
        state.fuse.is_some() || state.failures_left > 0
    }

    /// There is no store on it.
    pub fn is_empty(&self) -> bool {
        self.state().store.is_none()
    }

    /// The process is gone: its handles do nothing any more. What it wrote is there.
    pub fn kill(&self) {
        self.state().epoch += 1;
    }

    /// The machine is gone and comes back: of what was not synced, a random part is there.
    pub fn power_cycle(&self) {
        let mut state = self.state();
        state.epoch += 1;
        state.power = Power::On;
        state.failures_left = 0;
        let mut chance = state.chance();
        if state.rename_unsynced && chance.permille(500) {
            state.draft = state.store.take();
        }
        state.rename_unsynced = false;
        for file in [Name::Store, Name::Draft] {
            if let Some(file) = state.file(file) {
                file.lose_power(&mut chance);
            }
        }
    }

    /// A healthy disk that holds the same, to look at what is there without touching it.
    pub fn copy(&self) -> SimDisk {
        let copy = SimDisk::new(0);
        copy.state().store = self.state().store.clone();
        copy
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn handle(&self, name: Name) -> Backend {
        let epoch = self.state().epoch;
        Backend(Box::new(Handle { disk: self.clone(), name, epoch }))
    }
}

impl State {
    fn chance(&mut self) -> Chance {
        self.chance_seed = self.chance_seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        Chance::of(self.chance_seed)
    }

    fn file(&mut self, name: Name) -> Option<&mut File> {
        match name {
            Name::Store => self.store.as_mut(),
            Name::Draft => self.draft.as_mut(),
        }
    }

    /// An operation that reads: it only meets failures that have begun.
    fn reading(&mut self) -> io::Result<()> {
        if self.power == Power::Cut {
            return Err(gone());
        }
        if self.failures_left > 0 {
            self.failures_left -= 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        Ok(())
    }

    /// An operation that changes something: `Ok` of what the fuse has in mind for it.
    fn changing(&mut self) -> io::Result<Option<Effect>> {
        self.reading()?;
        let Some(fuse) = &mut self.fuse else { return Ok(None) };
        if fuse.after > 0 {
            fuse.after -= 1;
            return Ok(None);
        }
        let effect = fuse.effect;
        self.fuse = None;
        match effect {
            Effect::CutBefore => {
                self.power = Power::Cut;
                Err(gone())
            }
            Effect::CutAfter => {
                self.power = Power::Cut;
                Ok(Some(effect))
            }
            Effect::Fail { more } => {
                self.failures_left = more;
                Ok(Some(effect))
            }
        }
    }
}

impl File {
    fn resize(&mut self, len: usize) {
        let old = self.seen.len();
        self.seen.resize(len, 0);
        // Sectors that were cut off or came anew: zeros until written.
        for sector in old.min(len) / SECTOR..old.max(len).div_ceil(SECTOR) {
            self.dirty.insert(sector);
        }
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        if offset + data.len() > self.seen.len() {
            self.resize(offset + data.len());
        }
        self.seen[offset..offset + data.len()].copy_from_slice(data);
        for sector in offset / SECTOR..(offset + data.len()).div_ceil(SECTOR) {
            self.dirty.insert(sector);
        }
    }

    fn sync(&mut self) {
        self.durable.resize(self.seen.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.persist(sector);
        }
    }

    fn persist(&mut self, sector: usize) {
        let end = ((sector + 1) * SECTOR).min(self.seen.len()).min(self.durable.len());
        if let Some(start) = Some(sector * SECTOR).filter(|start| *start < end) {
            self.durable[start..end].copy_from_slice(&self.seen[start..end]);
        }
    }

    /// A sync failed: some of it became durable, the rest stays to be written.
    fn sync_some(&mut self, chance: &mut Chance) {
        if self.durable.len() < self.seen.len() {
            self.durable.resize(self.seen.len(), 0);
        }
        for sector in self.dirty.clone() {
            if chance.permille(500) {
                self.persist(sector);
            }
        }
    }

    fn lose_power(&mut self, chance: &mut Chance) {
        // All, none, or each for itself: the extremes are worth drawing too.
        let kept = chance.pick(&[0, 200, 500, 800, 1000]);
        if self.durable.len() != self.seen.len() && chance.permille(500) {
            self.durable.resize(self.seen.len(), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            if chance.permille(kept) {
                self.persist(sector);
            }
        }
        self.seen = self.durable.clone();
    }
}

impl Disk for SimDisk {
    fn exists(&self) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.reading().map_err(refused)?;
        Ok(state.store.is_some())
    }

    fn create(&self, fill: &mut dyn FnMut(Backend) -> Result<(), StoreError>) -> Result<(), StoreError> {
        {
            let mut state = self.state();
            let effect = state.changing().map_err(refused)?;
            state.draft = Some(File::default());
            done(effect).map_err(refused)?;
        }
        fill(self.handle(Name::Draft))?;
        self.handle(Name::Draft).0.sync_data().map_err(refused)?;
        let mut state = self.state();
        let effect = state.changing().map_err(refused)?;
        if !matches!(effect, Some(Effect::Fail { .. })) {
            state.store = state.draft.take();
            state.rename_unsynced = true;
        }
        done(effect).map_err(refused)?;
        // The folder's own sync.
        let effect = state.changing().map_err(refused)?;
        if !matches!(effect, Some(Effect::Fail { .. })) {
            state.rename_unsynced = false;
        }
        done(effect).map_err(refused)
    }

    fn open(&self) -> Result<Backend, StoreError> {
        {
            let mut state = self.state();
            state.reading().map_err(refused)?;
            if state.store.as_ref().is_none_or(|file| file.seen.is_empty()) {
                return Err(StoreError::Damaged("the file is empty".to_owned()));
            }
        }
        Ok(self.handle(Name::Store))
    }

    fn allocated_bytes(&self) -> u64 {
        self.state().store.as_ref().map_or(0, |file| file.seen.len() as u64)
    }
}

/// What redb holds.
#[derive(Debug)]
struct Handle {
    disk: SimDisk,
    name: Name,
    epoch: u64,
}

impl Handle {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.state();
        if state.epoch == self.epoch { Ok(state) } else { Err(gone()) }
    }
}

impl redb::StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        let mut state = self.state()?;
        state.reading()?;
        Ok(state.file(self.name).ok_or_else(gone)?.seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state()?;
        state.reading()?;
        let file = state.file(self.name).ok_or_else(gone)?;
        let offset = usize::try_from(offset).unwrap();
        let from = file.seen.get(offset..offset + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let effect = state.changing()?;
        if !matches!(effect, Some(Effect::Fail { .. })) {
            state.file(self.name).ok_or_else(gone)?.resize(usize::try_from(len).unwrap());
        }
        done(effect)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state()?;
        let effect = state.changing()?;
        let mut chance = state.chance();
        let file = state.file(self.name).ok_or_else(gone)?;
        match effect {
            Some(Effect::Fail { .. }) => file.sync_some(&mut chance),
            Some(Effect::CutAfter | Effect::CutBefore) | None => file.sync(),
        }
        done(effect)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state()?;
        let effect = state.changing()?;
        let mut chance = state.chance();
        let file = state.file(self.name).ok_or_else(gone)?;
        let written = match effect {
            // A short write: its first sectors are there.
            Some(Effect::Fail { .. }) => chance.below(data.len() / SECTOR + 1) * SECTOR,
            Some(Effect::CutAfter | Effect::CutBefore) | None => data.len(),
        };
        file.write(usize::try_from(offset).unwrap(), &data[..written]);
        done(effect)
    }
}

/// What the caller is told after an operation.
fn done(effect: Option<Effect>) -> io::Result<()> {
    match effect {
        None => Ok(()),
        // "No space left on device".
        Some(Effect::Fail { .. }) => Err(io::Error::from_raw_os_error(28)),
        Some(Effect::CutAfter | Effect::CutBefore) => Err(gone()),
    }
}

fn refused(error: io::Error) -> StoreError {
    StoreError::Io(error.to_string())
}

fn gone() -> io::Error {
    io::Error::other("the power is off")
}
