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

use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// A timer that is so late was not late by itself: nothing ran.
const STOOD_STILL: Duration = Duration::from_millis(50);
/// For a look at what came meanwhile.
const LAST_LOOK: Duration = Duration::from_millis(250);

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

    /// Does that until the deadline; none when it passed first.
    ///
    /// A process that stood still beyond it (stopped, frozen with its machine, starved of CPU) has not looked at what came meanwhile:
    /// it looks once more before it gives up, or what a receiver took and answered would be sent again.
    pub async fn bound<F: Future>(self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        if let Ok(done) = tokio::time::timeout_at(self.0, &mut work).await {
            return Some(done);
        }
        if Instant::now().duration_since(self.0) < STOOD_STILL {
            return None;
        }
        tokio::time::timeout(LAST_LOOK, work).await.ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    // C9.5
    #[tokio::test]
    async fn a_process_that_stood_still_looks_once_more() {
        let ready_after = |ms| tokio::time::sleep(Duration::from_millis(ms));
        // As after a stop of a minute: the deadline passed long before anybody looked.
        let past = Deadline(Instant::now().checked_sub(Duration::from_secs(60)).unwrap());
        assert!(past.bound(ready_after(20)).await.is_some());
        assert!(past.bound(std::future::pending::<()>()).await.is_none(), "and only once");
        let ahead = Deadline::after(Duration::from_millis(20));
        assert!(ahead.bound(ready_after(0)).await.is_some());
        assert!(ahead.bound(std::future::pending::<()>()).await.is_none());
    }
}
