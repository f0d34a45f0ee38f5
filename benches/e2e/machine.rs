//! What the machine gives: its disk, and how busy it is with other things.

use crate::measure::{Spread, rounded};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Writes of 4 KiB, each made durable.
const SYNCS: usize = 400;

/// Between two probes while something else is measured: few enough to take nothing from it.
const PROBE_EVERY: Duration = Duration::from_millis(50);

/// How long the disk takes to make 4 KiB durable, in milliseconds, while nothing else is measured.
pub(crate) fn disk(folder: &Path) -> Value {
    let mut probe = Probe::new(folder);
    json!({ "fsync_ms": Spread::of((0..SYNCS).map(|_| probe.sync()).collect()).json() })
}

/// A file whose pages are overwritten in place, as a store's are.
struct Probe {
    file: File,
    next: u64,
}

impl Probe {
    const PAGE: [u8; 4096] = [7; 4096];
    const PAGES: u64 = 64;

    fn new(folder: &Path) -> Self {
        let mut file = tempfile::tempfile_in(folder).unwrap();
        for _ in 0..Self::PAGES {
            file.write_all(&Self::PAGE).unwrap();
        }
        file.sync_all().unwrap();
        Self { file, next: 0 }
    }

    /// Milliseconds that one page took.
    fn sync(&mut self) -> f64 {
        self.file.seek(SeekFrom::Start(self.next % Self::PAGES * Self::PAGE.len() as u64)).unwrap();
        self.next += 1;
        let began = Instant::now();
        self.file.write_all(&Self::PAGE).unwrap();
        self.file.sync_data().unwrap();
        began.elapsed().as_secs_f64() * 1000.0
    }
}

/// The disk while something else is measured: what the hub's own syncs have to share it with (a broker's log that is written back).
pub(crate) struct DiskMeanwhile {
    stop: Sender<()>,
    probing: JoinHandle<Vec<f64>>,
}

impl DiskMeanwhile {
    /// Probes from now on, on a file of its own.
    pub(crate) fn watch(folder: &Path) -> Self {
        let (stop, stopped) = mpsc::channel();
        let mut probe = Probe::new(folder);
        let probing = std::thread::spawn(move || {
            let mut took = Vec::new();
            while stopped.recv_timeout(PROBE_EVERY) == Err(RecvTimeoutError::Timeout) {
                took.push(probe.sync());
            }
            took
        });
        Self { stop, probing }
    }

    /// What was seen.
    pub(crate) fn end(self) -> Value {
        drop(self.stop);
        Spread::of(self.probing.join().unwrap()).json()
    }
}

/// Writes back what programs wrote and nobody made durable (a broker's log), so that the next figures do not pay for it.
pub(crate) fn write_back() {
    assert!(std::process::Command::new("sync").status().unwrap().success());
}

/// Of the last minute, five, and fifteen.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Ticks of all cores since the machine started.
pub(crate) struct Busy {
    idle: f64,
    all: f64,
}

impl Busy {
    /// Now.
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let ticks: Vec<f64> =
            text.lines().next().unwrap().split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
        // User, nice, system, idle, waiting for the disk, ...; guests are part of user.
        Self { idle: ticks[3] + ticks[4], all: ticks.iter().take(8).sum() }
    }

    /// The idle share of all cores since then.
    pub(crate) fn idle_percent_since(&self) -> f64 {
        let now = Self::now();
        rounded(100.0 * (now.idle - self.idle) / (now.all - self.all).max(1.0))
    }
}
