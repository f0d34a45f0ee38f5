//! Tests of the whole crate from outside, in one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test's helper fails its test")]

mod api;
mod cli_dev;
mod cli_explain;
mod cli_health;
mod cli_install;
mod cli_replay;
mod cli_serve;
mod cli_settings;
mod cli_stop;
mod command;
mod examples;
mod fuzz_corpus;
#[path = "../fuzz/targets/mod.rs"]
mod fuzz_targets;
mod http_access;
mod http_admin;
mod http_health;
mod http_hub;
mod http_idempotency;
mod http_replays;
mod http_subscriptions;
mod http_wire;
mod inbox;
mod kafka_access;
#[path = "../broker/mod.rs"]
mod kafka_broker;
mod kafka_faults;
mod kafka_follow;
mod kafka_hanging;
mod kafka_outage;
mod kafka_raw;
mod kafka_scripted;
mod kafka_source;
mod kafka_support;
mod receivers;
mod sink_connections;
mod sink_probe;
mod sink_receivers;
mod sink_webhook;
mod suspended;
mod tidy;
