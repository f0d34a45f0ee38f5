//! What a delivery to each kind of receiver comes to: `tests/cases/receivers.tsv` (C9.5, C9.6, C9.8, C9.9).

use crate::receivers::https::Authority;
use crate::receivers::hub::{Hub, NOW, Script, Setup};
use crate::receivers::script::Scripted;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use streaming_hub::dispatch::attempt::outcome_of;
use streaming_hub::model::attempt::AttemptRecord;
use streaming_hub::model::ids::DeliveryId;
use streaming_hub::model::job::Outcome;
use streaming_hub::net::resolve::ResolveError;
use streaming_hub::time::Clock as _;
use tokio::runtime::{Builder, Runtime};

/// What one attempt may take of memory, whatever its receiver does.
const MEMORY_BYTES: u64 = 256 << 10;
/// By how much an attempt may outlast its timeout.
const GRACE_MS: u32 = 1000;
/// Rows under way at once.
const AT_ONCE: usize = 8;

struct Row {
    name: &'static str,
    scheme: &'static str,
    timeout_ms: u32,
    ends: Ends,
    /// Outcome and error class of each delivery.
    expected: Vec<(&'static str, &'static str)>,
    dns: Script,
    body_bytes: usize,
    script: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Soon,
    Timeout,
}

fn rows() -> Vec<Row> {
    let table = include_str!("../cases/receivers.tsv");
    table.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

fn row(line: &'static str) -> Row {
    let [name, scheme, timeout, ends, outcome, class, mut script] = line.split('\t').collect::<Vec<_>>()[..] else {
        panic!("{line}")
    };
    let ends = match ends {
        "soon" => Ends::Soon,
        "timeout" => Ends::Timeout,
        other => panic!("{name}: ends {other:?}"),
    };
    let mut take = |word: &str| {
        let (given, rest) = script.strip_prefix(word)?.split_once(" | ")?;
        script = rest;
        Some(given)
    };
    let body_bytes = take("body ").map_or(0, |bytes| bytes.parse().unwrap());
    let dns = take("dns ").map_or(Script::Addresses(vec![[127, 0, 0, 1].into()]), resolved);
    let expected = outcome.split(", ").zip(class.split(", ")).collect();
    Row { name, scheme, timeout_ms: timeout.parse().unwrap(), ends, expected, dns, body_bytes, script }
}

fn resolved(dns: &str) -> Script {
    match dns {
        "unknown" => Script::Fails(ResolveError::Failed),
        "empty" => Script::Addresses(vec![]),
        "timeout" => Script::Fails(ResolveError::TimedOut),
        "hang" => Script::Hangs,
        addresses => {
            let list = |list: &str| list.split(' ').map(|ip| ip.parse().unwrap()).collect();
            Script::Changing(addresses.split(" / ").map(list).collect())
        }
    }
}

/// The outcome in the table's words, its class, and the attempt as it is recorded.
fn told(outcome: Outcome) -> (String, &'static str, AttemptRecord) {
    let class = |attempt: &AttemptRecord| attempt.error.map_or("-", |error| error.code());
    match outcome {
        Outcome::Released | Outcome::Crashed => panic!("no attempt was made"),
        Outcome::Delivered(attempt) => ("delivered".to_owned(), class(&attempt), attempt),
        Outcome::Failed { attempt, not_before_ms: None } => ("failed".to_owned(), class(&attempt), attempt),
        Outcome::Failed { attempt, not_before_ms: Some(ms) } => {
            (format!("failed after {ms}"), class(&attempt), attempt)
        }
        Outcome::Held { attempt, hold_ms } => (format!("held {hold_ms}"), class(&attempt), attempt),
        Outcome::Hopeless { attempt, .. } => ("hopeless".to_owned(), class(&attempt), attempt),
    }
}

// C9.5, C9.6, C9.8, C9.9: every row is a case of its own, and fails by its name.
#[test]
fn every_receiver_ends_as_the_table_says_and_in_time() {
    let rows = rows();
    let authority = Arc::new(Authority::new());
    let receivers = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut wrong = Vec::new();
        while let Some(row) = rows.get(next.fetch_add(1, Ordering::SeqCst)) {
            let checked = catch_unwind(AssertUnwindSafe(|| check(row, &receivers, &authority)));
            let found = checked.unwrap_or_else(|_| vec!["panicked; its message stands above".to_owned()]);
            wrong.extend(found.into_iter().map(|what| format!("{}: {what}", row.name)));
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    receivers.shutdown_background();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Delivers as often as the row says, on a thread and a runtime of the row's own, so that what is measured is the attempt's alone.
fn check(row: &Row, receivers: &Runtime, authority: &Arc<Authority>) -> Vec<String> {
    let pem = authority.pem();
    let receiver = receivers.block_on(Scripted::start(row.script, authority));
    let own = Builder::new_current_thread().enable_all().build().unwrap();
    let hub = Hub::new(Setup { ca_pem: Some(&pem), ..Setup::default() });
    hub.names.set("receiver.test", row.dns.clone());
    let url = format!("{}://receiver.test:{}/hook", row.scheme, receiver.address.port());
    let mut delivery = hub.delivery(hub.subscription(&url));
    delivery.timeout = Duration::from_millis(row.timeout_ms.into());
    if row.body_bytes > 0 {
        Arc::make_mut(&mut delivery.event).body = vec![b'x'; row.body_bytes].into();
    }
    let mut wrong = Vec::new();
    for (n, expected) in row.expected.iter().enumerate() {
        delivery.delivery = DeliveryId([n as u8; 16]);
        let (mut met, mut took) = (None, Duration::ZERO);
        let memory = allocation_counter::measure(|| {
            let began = hub.clock.monotonic();
            met = Some(own.block_on(hub.sinks.deliver(&delivery)));
            took = hub.clock.monotonic() - began;
        });
        let (outcome, class, attempt) = told(outcome_of(met.unwrap(), delivery.delivery, NOW, took, NOW));
        if (outcome.as_str(), class) != *expected {
            wrong.push(format!("{outcome}, {class}; expected {expected:?} ({attempt:?})"));
        }
        let late = row.timeout_ms..=row.timeout_ms + GRACE_MS;
        let in_time = match row.ends {
            Ends::Timeout if n + 1 == row.expected.len() => late.contains(&attempt.duration_ms),
            Ends::Timeout | Ends::Soon => attempt.duration_ms < row.timeout_ms,
        };
        if !in_time {
            wrong.push(format!("took {} of {} ms, expected {:?}", attempt.duration_ms, row.timeout_ms, row.ends));
        }
        if memory.bytes_max > MEMORY_BYTES {
            wrong.push(format!("took {} bytes of memory", memory.bytes_max));
        }
        if attempt.answer.len() > 1024 {
            wrong.push(format!("kept {} bytes of the answer", attempt.answer.len()));
        }
    }
    wrong
}
