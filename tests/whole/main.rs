//! The whole daemon as it is run: the real program, real Kafka, a client of Kafka that is not ours, and a real receiver.
//!
//! `tests/run` runs them on the release build. Sizes: `HUB_TEST_EVENTS` (100,000 on a release build, else 20,000), `HUB_TEST_KILLS`,
//! `HUB_TEST_SEED`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test's helper fails its test; these tests wait for other processes and measure time"
)]

mod backlog;
mod each_once;
mod harness;
mod orders;
mod stopping;
mod trouble;
