//! Kinds of destination behind one small interface: deliver one event, or probe. Nothing outside asks which kind it is.
//!
//! * [`webhook`](self): the POST itself, `route` (a destination made ready), `headers` (what is said about an event);
//! * `exchange` (one request over one connection), `pool` (connections at rest), `meter` (what a receiver may send).

#[cfg(feature = "fuzz-doors")]
pub mod doors;
mod exchange;
mod headers;
mod meter;
mod pool;
mod route;
mod webhook;

use crate::model::attempt::ErrorClass;
use crate::model::event::Event;
use crate::model::ids::{DeliveryId, Seq};
use crate::model::job::Cause;
use crate::model::limits::IDLE_CONNECTIONS;
use crate::model::subscription::{Sink, Subscription};
use crate::net::dial::Dialler;
use crate::secrets::Envelope;
use crate::time::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How often resting connections are looked at.
const SWEEP_EVERY: Duration = Duration::from_secs(5);

/// Every kind of destination, ready to be delivered to.
pub struct Sinks {
    webhook: webhook::Webhook,
}

/// What all sinks need to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether receivers are told the tenant.
    pub visibility: TenantVisibility,
    /// The attempt timeout of subscriptions that give none (C9.5); deliveries carry theirs, probes need it.
    pub timeout: Duration,
    /// `User-Agent` of webhooks.
    pub user_agent: String,
    /// Connections that rest open between attempts; beyond it the one that rested longest is closed.
    pub resting_max: usize,
}

impl Settings {
    /// As the contract has them.
    pub fn new(visibility: TenantVisibility, timeout: Duration) -> Self {
        let user_agent = concat!("streaming-hub/", env!("CARGO_PKG_VERSION")).to_owned();
        Self { visibility, timeout, user_agent, resting_max: IDLE_CONNECTIONS }
    }
}

/// Whether receivers are told the tenant (C9.4): decided when sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantVisibility {
    /// A multi-tenant hub tells them.
    Shown,
    /// A single-tenant hub sends no tenant identity anywhere.
    Hidden,
}

/// One attempt to be made.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// To whom: its destination, secrets and headers as they are now.
    pub subscription: Arc<Subscription>,
    /// What.
    pub event: Arc<Event>,
    /// The event's seq.
    pub seq: Seq,
    /// New on every attempt.
    pub delivery: DeliveryId,
    /// Steps used + 1.
    pub attempt: u32,
    /// Why the job exists.
    pub cause: Cause,
    /// The whole attempt's limit (C9.5).
    pub timeout: Duration,
}

/// What an attempt met, before any judgement (`rules::outcome` judges).
#[derive(Debug, Clone, Default)]
pub struct Met {
    /// HTTP status, where an answer's head came.
    pub status: Option<u16>,
    /// What went wrong below HTTP, or before sending; statuses are judged by `rules::outcome`.
    pub error: Option<ErrorClass>,
    /// The `Retry-After` header's value.
    pub retry_after: Option<Vec<u8>>,
    /// The first bytes of the answer's body; none of a success.
    pub answer: Vec<u8>,
}

/// What a probe saw (C4.7).
#[derive(Debug, Clone)]
pub struct Probe {
    /// Whether the destination is proven.
    pub passed: bool,
    /// What was met: status, error, and the answer's first bytes.
    pub met: Met,
    /// The TLS version, where a TLS connection was made.
    pub tls: Option<&'static str>,
    /// How long it took.
    pub duration: Duration,
}

impl Sinks {
    /// Sinks that open secrets with that envelope and connect with that dialler.
    ///
    /// # Errors
    /// When the user agent is no header value.
    pub fn new(
        envelope: Arc<Envelope>,
        dialler: Arc<Dialler>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Result<Self, http::header::InvalidHeaderValue> {
        Ok(Self { webhook: webhook::Webhook::new(envelope, dialler, clock, settings)? })
    }

    /// Makes one attempt, within the delivery's timeout. Dropping the future gives the attempt up at once, and its connection with it.
    pub async fn deliver(&self, delivery: &Delivery) -> Met {
        match &delivery.subscription.spec.sink {
            Sink::Webhook(webhook) => self.webhook.deliver(delivery, webhook).await,
        }
    }

    /// Asks a destination whether it wants to be one (C4.7). Changes nothing.
    pub async fn probe(&self, subscription: &Subscription, challenge: &str) -> Probe {
        match &subscription.spec.sink {
            Sink::Webhook(webhook) => self.webhook.probe(subscription, webhook, challenge).await,
        }
    }

    /// Closes connections that are not needed any more, for ever: run beside the deliveries, stopped by dropping it.
    pub async fn tend(&self) {
        loop {
            tokio::time::sleep(SWEEP_EVERY).await;
            self.webhook.sweep();
        }
    }
}
