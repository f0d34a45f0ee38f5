//! The whole daemon as it is run: the real program, real Kafka, a client of Kafka that is not ours, and a real receiver.
//!
//! `tests/run` runs them on the release build. Sizes: `HUB_TEST_EVENTS` (100,000 on a release build, else 20,000), `HUB_TEST_KILLS`,
//! `HUB_TEST_SEED`; `HUB_TEST_STORAGE_KILLS` (100, or `all`) of the writes of a run. The tests of disks need root: they mount one.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test's helper fails its test; these tests wait for other processes and measure time"
)]

mod backlog;
mod disk;
mod each_once;
mod harness;
mod kills;
mod orders;
mod stopping;
mod surroundings;
mod trouble;
