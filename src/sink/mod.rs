//! Kinds of destination behind one small interface: deliver one event, or probe. Nothing outside asks which kind it is.

use crate::model::attempt::ErrorClass;
use crate::model::event::Event;
use crate::model::ids::{DeliveryId, Seq};
use crate::model::job::Cause;
use crate::model::subscription::Subscription;
use std::sync::Arc;
use std::time::Duration;

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
    /// The first bytes of the answer's body.
    pub answer: Vec<u8>,
}
