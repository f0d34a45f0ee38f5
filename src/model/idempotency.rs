//! Answers remembered for clients that ask twice (A1.7).

use crate::model::ids::KeyId;
use crate::model::subscription::Sealed;
use crate::time::HubTime;

/// A remembered answer (A1.7).
#[derive(Debug, Clone, bincode::Encode, bincode::Decode)]
pub struct IdempotencyRow {
    /// The API key that asked.
    pub key: KeyId,
    /// The client's `Idempotency-Key`.
    pub client_key: String,
    /// SHA-256 over method, path and body.
    pub request: [u8; 32],
    /// The answer, sealed; empty while it is not known yet.
    pub answer: Sealed,
    /// Forgotten then.
    pub expires: HubTime,
}
