//! Tests of the whole crate from outside, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helper fails its test")]

mod cli_dev;
mod cli_explain;
mod cli_serve;
mod cli_settings;
mod command;
mod examples;
mod kafka_raw;
mod kafka_source;
mod kafka_support;
mod receivers;
mod sink_connections;
mod sink_probe;
mod sink_receivers;
mod sink_webhook;
mod tidy;
