//! # Streaming Hub
//!
//! One self-contained daemon that reads a company's business events (CloudEvents) from Kafka and brings every one of them to
//! whoever subscribed. This page is the map; the modules stand in the order in which an event passes through them.
//!
//! ```text
//!  Kafka record        HTTP ingest         HTTP manage                            receiver answers
//!       |                   |                   |                                       ^
//!  kafka/consumer       http/ingest          http/subscriptions ...               sink/webhook
//!       |                   |                   |                                       ^
//!       +----> rules/classify                   |                               dispatch/attempt   (async, one deadline)
//!                     | verdict                 |                                       ^
//!                     v                         v                                       | want
//!  +----------- writer: one thread, one queue a class, group commit -----------------+  |
//!  | engine/admit   dedup > seq > inbox > rules/matching > jobs > position (one txn) |  |
//!  | engine/claim   heads of lanes and due retries, up to the free slots ------------|--+ dispatch/pool  (no async: step(now))
//!  | engine/settle  claim check, rules/{outcome,backoff,breaker,autodisable} > job <--|--- outcome
//!  | engine/manage  subscriptions, keys    engine/{replay,dead,sweep}  bulk work      |
//!  +---------------------------------------------------------------------------------+
//!                                 | typed verbs
//!                            store/{txn,view}  ->  one redb file
//! ```
//!
//! A reader follows one event down: [`kafka`], [`rules::classify`], [`engine`] (admit, matching, claim), [`dispatch`] (pool,
//! attempt), [`sink`], [`rules::outcome`], and back into [`engine`] (settle). Nothing calls sideways or up: the bands are checked
//! by `tests/it/tidy.rs`.
//!
//! | band | modules | must not contain |
//! | --- | --- | --- |
//! | 0 ground | [`error`], [`time`], [`entropy`] | tokio, redb, hyper |
//! | 1 words | [`model`] | decisions, I/O |
//! | 2 | [`rules`] (decisions), [`store`] (the redb file), [`secrets`] (KEK, sealing) | each other; rules: async, clocks, tables, logging |
//! | 3 engine | [`engine`] | metrics, async, sockets, clock reads |
//! | 4 | [`metrics`], [`writer`] (the one thread and its door) | decisions |
//! | 5 edges | [`net`], [`kafka`], [`sink`], [`dispatch`], [`http`] | table names, redb types |
//! | 6 top | [`config`], [`daemon`], [`cli`] | logic |

pub mod cli;
pub mod config;
pub mod daemon;
pub mod dispatch;
pub mod engine;
pub mod entropy;
pub mod error;
pub mod http;
pub mod kafka;
pub mod metrics;
pub mod model;
pub mod net;
pub mod rules;
pub mod secrets;
pub mod sink;
pub mod store;
pub mod time;
pub mod writer;
