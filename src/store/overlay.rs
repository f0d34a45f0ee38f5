//! A store file that is looked at and never written: what redb writes to open it stays in memory.
//!
//! redb repairs a file while it opens it. Invariant: a file that turns out to be damaged, or no store, is left as it was; and a disk
//! that takes no writes can still be read (C13.4).

use super::disk::Backend;
use redb::StorageBackend;
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The grain in which changes are kept.
const PAGE: u64 = 4096;

/// The bytes of a backend under changes that only this one sees. The changes of opening and closing are few: a header, and the
/// pages that say which pages are in use.
#[derive(Debug)]
pub(super) struct Overlay {
    under: Backend,
    changes: Mutex<Changes>,
}

#[derive(Debug)]
struct Changes {
    len: u64,
    /// How much of what lies under it still shows: it was cut off there.
    shown: u64,
    pages: HashMap<u64, Box<[u8]>>,
}

impl Overlay {
    /// Over these bytes.
    ///
    /// # Errors
    /// When their length cannot be had.
    pub(super) fn over(under: Backend) -> io::Result<Self> {
        let len = under.len()?;
        Ok(Self { under, changes: Mutex::new(Changes { len, shown: len, pages: HashMap::new() }) })
    }

    // A change of a page is whole or not begun when something panics.
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a page shows that was not changed: zeros behind the end of what lies under it.
    fn unchanged(&self, shown: u64, page: u64) -> io::Result<Box<[u8]>> {
        let begin = page * PAGE;
        let mut bytes = vec![0; PAGE as usize].into_boxed_slice();
        let there = usize::try_from(shown.saturating_sub(begin).min(PAGE)).unwrap_or(0);
        if let Some(there) = bytes.get_mut(..there).filter(|there| !there.is_empty()) {
            self.under.read(begin, there)?;
        }
        Ok(bytes)
    }
}

/// The pages that a stretch touches: each with where the stretch begins in it, and how much of the stretch is behind that.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset.saturating_add(len as u64);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, within) = (at / PAGE, at % PAGE);
        let some = (PAGE - within).min(end - at);
        at += some;
        Some((page, usize::try_from(within).ok()?, usize::try_from(some).ok()?))
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changes().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changes = self.changes();
        if offset.saturating_add(out.len() as u64) > changes.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if changes.pages.is_empty() && changes.shown == changes.len {
            drop(changes);
            return self.under.read(offset, out);
        }
        let mut rest = out;
        for (page, within, some) in pages(offset, rest.len()) {
            let (now, later) = rest.split_at_mut(some);
            rest = later;
            match changes.pages.get(&page) {
                Some(changed) => now.copy_from_slice(&changed[within..within + some]),
                None => now.copy_from_slice(&self.unchanged(changes.shown, page)?[within..within + some]),
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut changes = self.changes();
        changes.len = len;
        if len < changes.shown {
            changes.shown = len;
        }
        changes.pages.retain(|page, _| page * PAGE < len);
        // What is behind the end is zeros when it grows again.
        if let Some(last) = changes.pages.get_mut(&(len / PAGE)) {
            last[usize::try_from(len % PAGE).unwrap_or(0)..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changes = self.changes();
        if offset.saturating_add(data.len() as u64) > changes.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = data;
        for (page, within, some) in pages(offset, rest.len()) {
            let (now, later) = rest.split_at(some);
            rest = later;
            let shown = changes.shown;
            let whole = match changes.pages.entry(page) {
                std::collections::hash_map::Entry::Occupied(changed) => changed.into_mut(),
                std::collections::hash_map::Entry::Vacant(place) => place.insert(self.unchanged(shown, page)?),
            };
            whole[within..within + some].copy_from_slice(now);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.under.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::backends::InMemoryBackend;

    fn over(bytes: &[u8]) -> Overlay {
        let under = InMemoryBackend::new();
        under.set_len(bytes.len() as u64).unwrap();
        under.write(0, bytes).unwrap();
        Overlay::over(Backend(Box::new(under))).unwrap()
    }

    fn read(overlay: &Overlay, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        overlay.read(offset, &mut out).unwrap();
        out
    }

    // C13.4
    #[test]
    fn writes_are_seen_and_what_lies_under_stays() {
        let overlay = over(&[1; 10_000]);
        overlay.write(4090, &[2; 20]).unwrap();
        assert_eq!(read(&overlay, 4089, 22), [&[1][..], &[2; 20], &[1]].concat());
        let mut under = [0; 10_000];
        overlay.under.read(0, &mut under).unwrap();
        assert_eq!(under, [1; 10_000]);
        assert_eq!(overlay.under.len().unwrap(), 10_000);
    }

    // C13.4
    #[test]
    fn what_was_cut_off_and_grown_again_is_zero() {
        let overlay = over(&[1; 10_000]);
        overlay.write(0, &[2; 5000]).unwrap();
        overlay.set_len(4500).unwrap();
        assert!(overlay.read(4500, &mut [0]).is_err());
        overlay.set_len(12_000).unwrap();
        assert_eq!(read(&overlay, 0, 12_000), [&[2; 4500][..], &[0; 7500]].concat());
        overlay.write(11_999, &[3]).unwrap();
        assert_eq!(read(&overlay, 11_998, 2), [0, 3]);
        assert!(overlay.write(12_000, &[3]).is_err());
    }
}
