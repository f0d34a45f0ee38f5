//! The one place that resolves and connects.
//!
//! Every destination that a tenant can name is reached through [`dial::Dialler`]: it judges the target, resolves once, judges every
//! address, connects only to those that pass, and checks the peer again (C9.8). Literals and names go the same way. No proxy is
//! ever taken from the environment.
//!
//! * [`dial`]: the dialler;
//! * [`resolve`]: names to addresses, on a pool of its own;
//! * [`tls`]: roots, client certificates, and what a failed handshake means;
//! * [`stream`]: what a dial gives;
//! * [`broker`]: Kafka brokers, which the operator names and no tenant can.

pub mod broker;
pub mod dial;
pub mod resolve;
pub mod stream;
pub mod tls;

use std::time::Duration;
use tokio::time::Instant;

/// When an attempt must be over: one moment for lookup, connect, TLS, sending and the answer's head (C9.5).
///
/// It runs on the runtime's own timer, which neither a jump of the wall clock nor a change of it moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// That long from now.
    pub fn after(duration: Duration) -> Self {
        let now = Instant::now();
        // A duration beyond the end of time is a month: longer than any attempt.
        Self(now.checked_add(duration).unwrap_or(now + Duration::from_secs(30 * 86_400)))
    }

    /// The moment.
    pub fn at(self) -> Instant {
        self.0
    }

    /// What is left of it.
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The earlier of this and that long from now.
    pub fn within(self, duration: Duration) -> Self {
        self.min(Self::after(duration))
    }
}
