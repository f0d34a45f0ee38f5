//! What the tests of the whole daemon and its end-to-end bench stand on: the real program as a process, real Kafka, a client of its
//! API, a receiver that takes tens of thousands of deliveries a second, and the ledger that says what must have come.
//!
//! * [`hub`]: the program, started, killed, stopped, started again on the same store;
//! * [`api`]: its API over the command socket, and what is open on TCP;
//! * [`receiver`]: records every delivery that reaches it, and answers as it is told;
//! * [`kafka`]: topics and load, by the client that is not ours;
//! * [`ledger`]: what was produced against what was received;
//! * [`scene`]: all of these together, as most tests begin;
//! * [`fed`]: the same without Kafka, fed over HTTP;
//! * [`fault`]: a disk that fails, hangs or is full, and a kill at any of its writes.
#![allow(dead_code, reason = "the tests and the bench each use their part")]

pub(crate) mod api;
pub(crate) mod fault;
pub(crate) mod fed;
pub(crate) mod hub;
pub(crate) mod kafka;
pub(crate) mod ledger;
pub(crate) mod receiver;
mod request;
pub(crate) mod scene;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `look` finds something; fails the test after that time.
pub(crate) fn until<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        std::thread::sleep(LOOK);
    }
}

/// The same for a condition that only holds or not.
pub(crate) fn until_true(what: &str, within: Duration, mut holds: impl FnMut() -> bool) {
    until(what, within, || holds().then_some(()));
}

/// Wall time in microseconds, the clock that the loader writes into its bodies.
pub(crate) fn wall_us() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

/// One test at a time: they measure time, and each of them fills the machine.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // One that failed holds nothing that the next one needs.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A topic prefix that no other test has.
pub(crate) fn own_prefix() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("whole-{}-{}.", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A port on loopback that is free, and that no outgoing connection takes meanwhile: below the ephemeral ones.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let below: u64 = range.split_whitespace().next().unwrap().parse().unwrap();
    let (low, high) = (10_000, below.min(32_768));
    let first = u64::from(std::process::id()) * 13 + wall_us() / 1000;
    for _ in 0..1000 {
        let port = low + (first + NEXT.fetch_add(1, Ordering::Relaxed) * 7) % (high - low);
        let port = u16::try_from(port).unwrap();
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port below {high}");
}

/// A small generator of chance with a seed that a failing test shows.
pub(crate) struct Chance(u64);

impl Chance {
    /// Of that seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(1))
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
