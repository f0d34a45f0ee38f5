//! Attempts as the API shows them.

use crate::model::attempt::AttemptRecord;
use crate::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// One attempt.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Attempt)]
pub(crate) struct AttemptShown {
    /// Its delivery id, new on every attempt.
    #[schema(example = "dlv_0198b0c2-7c1e-8d3a-9f10-2b6c5a4e8d01")]
    delivery_id: String,
    /// When it began.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// How long it took.
    duration_ms: u32,
    /// HTTP status, where an answer's head came.
    status: Option<u16>,
    /// What went wrong; null of a success.
    #[schema(example = "server_error")]
    error_class: Option<&'static str>,
    /// The first 1 KiB of a failure's answer.
    answer: Option<String>,
}

impl AttemptShown {
    pub(crate) fn of(attempt: &AttemptRecord) -> Self {
        Self {
            delivery_id: attempt.delivery.to_string(),
            time: attempt.at,
            duration_ms: attempt.duration_ms,
            status: attempt.status,
            error_class: attempt.error.map(|class| class.code()),
            answer: (!attempt.answer.is_empty()).then(|| String::from_utf8_lossy(&attempt.answer).into_owned()),
        }
    }
}
