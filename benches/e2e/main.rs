//! The whole daemon, measured as it is run: real Kafka, the release program, and a receiver, all on one machine. Prints one JSON.
//!
//! ```text
//! cargo build --release
//! HUB_TEST_BINARY=target/release/streaming-hub tests/run --services-only cargo bench --bench e2e -- [SCENARIO ...]
//! ```
//!
//! | scenario | what |
//! | --- | --- |
//! | `accept` | events accepted a second without subscriptions; CPU, disk and written bytes of an event |
//! | `deliver` | deliveries a second, one fifo subscription for each of 200 tenants; CPU of 1000 deliveries |
//! | `latency` | from produce to delivery, at 50 events a second and at higher rates |
//! | `saturation` | the same as fast as deliveries go, with `E2E_WINDOW` events on their way at any time |
//! | `backlog` | memory with a million jobs waiting, and the restart with them |
//! | `isolation` | from produce to delivery at 100 events a second, alone, and beside tenants in each kind of trouble |
//! | `reopen` | a store of 2 GB after `kill -9`: serving again, in flight again, and latency over such a store |
//!
//! Without a scenario: all but the last two. Sizes: `E2E_EVENTS` (200,000), `E2E_RATES` (50,2000,4000), `E2E_SECONDS` (20), `E2E_WARM`
//! (200,000 events before latencies are measured), `E2E_WINDOW` (2,000), `E2E_BACKLOG` (1,000,000), `E2E_STORE_MB` (2,000); of `isolation`
//! `E2E_HANGING` (1,000), `E2E_LONG` (200,000) over a `PENDING_IN_MEMORY_MAX` of a tenth of it. The hub's CPU is what the kernel
//! counts for its process; rates depend on what else runs, so the load average and the idle share of the machine stand beside them, and
//! beside a latency what a sync of the disk took meanwhile: brokers and hub share it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a bench measures time, may fail loudly and prints its figures"
)]

#[path = "../../tests/whole/harness/mod.rs"]
mod harness;
mod isolation;
mod machine;
mod measure;
mod scenarios;

use serde_json::{Value, json};

fn main() {
    // Cargo passes `--bench`.
    let mut asked: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if asked.is_empty() {
        asked = ["accept", "deliver", "latency", "saturation", "backlog"].map(str::to_owned).into();
    }
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut all = json!({
        "binary": harness::hub::binary().display().to_string(),
        "cores": std::thread::available_parallelism().unwrap().get(),
        "load_average": machine::load_average(),
        "disk": machine::disk(folder),
    });
    for name in asked {
        eprintln!("{name} ...");
        let before = machine::Busy::now();
        let mut figures: Value = match name.as_str() {
            "accept" => scenarios::accept(),
            "deliver" => scenarios::deliver(),
            "latency" => scenarios::latency(),
            "saturation" => scenarios::saturation(),
            "isolation" => isolation::isolation(),
            "backlog" => scenarios::backlog(),
            "reopen" => scenarios::reopen(),
            other => panic!("no scenario {other}"),
        };
        figures["machine"] = json!({
            "load_average": machine::load_average(), "idle_percent": before.idle_percent_since(),
        });
        eprintln!("{figures:#}");
        all[name] = figures;
    }
    println!("{all:#}");
}
