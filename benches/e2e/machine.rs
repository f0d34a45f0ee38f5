//! What the machine gives: its disk, and how busy it is with other things.

use crate::measure::{Spread, rounded};
use serde_json::{Value, json};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Instant;

/// Writes of 4 KiB, each made durable.
const SYNCS: usize = 400;

/// How long the disk takes to make 4 KiB durable, in milliseconds: overwritten in place, as a store's pages are.
pub(crate) fn disk(folder: &Path) -> Value {
    let mut file = tempfile::tempfile_in(folder).unwrap();
    let page = [7u8; 4096];
    for _ in 0..64 {
        file.write_all(&page).unwrap();
    }
    file.sync_all().unwrap();
    let mut took = Vec::with_capacity(SYNCS);
    for at in 0..SYNCS {
        file.seek(SeekFrom::Start((at as u64 % 64) * 4096)).unwrap();
        let began = Instant::now();
        file.write_all(&page).unwrap();
        file.sync_data().unwrap();
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    json!({ "fsync_ms": Spread::of(took).json() })
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
