//! Reading Kafka: from brokers to the inbox (C1, C3.1).
//!
//! ```text
//!  consumer   looks at the cluster every 10 s; keeps the tasks below running
//!     |-- fetcher   one for each broker: one request for all partitions that it leads   (message, wire, connection)
//!     |      | bytes
//!     |-- reader    one for each partition: decode > classify > admit; offset trouble   (decode, cut, trouble)
//!     |      | records and position, one commit
//!     |   inbox     the writer's door
//!     `-- group     shows stored positions to ordinary tools
//! ```
//!
//! Invariants: the store's position is the truth, and moves only together with the records before it; every fault is retried for
//! ever and held against one partition or one broker only; rskafka is named in `wire` and `connection` alone, rsasl in
//! `credentials`.

mod backoff;
mod broker;
pub mod codec;
pub mod compress;
mod connection;
mod consumer;
mod credentials;
mod cut;
pub mod decode;
mod discovery;
#[cfg(feature = "fuzz-doors")]
pub mod doors;
mod fetcher;
mod group;
mod hanging;
pub mod inbox;
mod message;
mod partition;
mod reader;
pub mod settings;
mod source;
pub mod status;
mod trouble;
mod wire;

pub use inbox::{Inbox, Stored, WriterInbox};
pub use settings::{KafkaSettings, Password, SaslMechanism, SaslSettings, Start};
pub use status::KafkaStatus;

use crate::time::Clock;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Reads Kafka into the inbox until `stop`; returns when all its tasks have ended. `seed` feeds the jitter of retries.
pub async fn run(
    settings: KafkaSettings,
    inbox: Arc<dyn Inbox>,
    status: Arc<KafkaStatus>,
    clock: Arc<dyn Clock>,
    seed: u64,
    stop: CancellationToken,
) {
    let source = source::Source::new(settings, inbox, status, clock, seed, stop);
    consumer::Consumer::new(Arc::new(source)).run().await;
}
