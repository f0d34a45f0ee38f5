//! Failures as clients see them: `application/problem+json` (RFC 9457, A1.4).
//!
//! Invariant: a problem holds a stable code and words for people, never the text of an inner error, a path or an address.

use crate::engine::command::Refusal;
use crate::error::{Code, FieldCode};
use crate::http::answer::Answer;
use crate::model::record::Reason;
use crate::store::StoreError;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{StatusCode, header};
use serde::Serialize;
use utoipa::ToSchema;

/// One failure, on its way to the client.
#[derive(Debug)]
pub(crate) struct Problem(Box<Told>);

#[derive(Debug)]
struct Told {
    status: u16,
    code: &'static str,
    title: &'static str,
    detail: String,
    errors: Vec<FieldError>,
    checks: Option<serde_json::Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What is wrong with one field of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// JSON Pointer (RFC 6901) into the body; `?name` for a query parameter.
    #[schema(example = "/sink/url")]
    pub(crate) pointer: String,
    /// Stable code.
    #[schema(example = "required")]
    pub(crate) code: &'static str,
    /// Words for people.
    pub(crate) detail: String,
}

/// The body of every failure (RFC 9457).
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemShown<'a> {
    /// URN of the code.
    #[serde(rename = "type")]
    #[schema(example = "urn:streaming-hub:problem:not_found")]
    kind: String,
    /// Title of the code.
    title: &'a str,
    /// HTTP status.
    status: u16,
    /// What went wrong this time.
    detail: &'a str,
    /// Stable code: one of the list in `components.schemas.ProblemCode`, or a quarantine reason at `/ingest/events`.
    code: &'a str,
    /// The answer's `X-Request-Id`.
    request_id: &'a str,
    /// All fields that are wrong, of a 422.
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    /// State of each check, of a 503 at `/readyz`.
    #[serde(skip_serializing_if = "Option::is_none")]
    checks: Option<&'a serde_json::Value>,
}

impl Problem {
    /// A failure of that code.
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Told {
            status: code.status(),
            code: code.text(),
            title: code.title(),
            detail: detail.into(),
            errors: Vec::new(),
            checks: None,
            headers: Vec::new(),
        }))
    }

    /// 422 with every field that is wrong.
    pub(crate) fn fields(errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            // The body itself has the empty pointer.
            [only] if only.pointer.is_empty() => only.detail.clone(),
            [only] => format!("{}: {}", only.pointer, only.detail),
            more => format!("{} fields are not valid; `errors` names each", more.len()),
        };
        let mut problem = Self::new(Code::Invalid, detail);
        problem.0.errors = errors;
        problem
    }

    /// 422 for one field.
    pub(crate) fn field(pointer: &str, code: FieldCode, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError { pointer: pointer.to_owned(), code: code.text(), detail: detail.into() }])
    }

    /// 422 for a record that was quarantined, the reason as its code (C3.6).
    pub(crate) fn quarantined(reason: Reason) -> Self {
        let detail = format!("the event breaks the rule `{}`; it is kept under /admin/poison", reason.code());
        let mut problem = Self::new(Code::Invalid, detail);
        problem.0.code = reason.code();
        problem.0.title = "The event was quarantined";
        problem
    }

    /// 404, the same for what is missing and for what another tenant has (A1.3).
    pub(crate) fn not_found() -> Self {
        Self::new(Code::NotFound, "there is no such object")
    }

    /// 400 for a cursor that no list of ours gave (A1.6).
    pub(crate) fn bad_cursor() -> Self {
        Self::new(Code::BadRequest, "the cursor is none that this list gave")
    }

    /// 503 of `/readyz`, with the checks.
    pub(crate) fn not_ready(detail: &str, checks: serde_json::Value) -> Self {
        let mut problem = Self::new(Code::NotReady, detail);
        problem.0.checks = Some(checks);
        problem
    }

    /// The same with another header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// Its HTTP status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> u16 {
        self.0.status
    }

    /// Its code.
    pub(crate) fn code(&self) -> &'static str {
        self.0.code
    }

    /// The answer that tells it.
    pub(crate) fn answer(self, request_id: &str) -> Answer {
        let told = *self.0;
        let shown = ProblemShown {
            kind: format!("urn:streaming-hub:problem:{}", told.code),
            title: told.title,
            status: told.status,
            detail: &told.detail,
            code: told.code,
            request_id,
            errors: &told.errors,
            checks: told.checks.as_ref(),
        };
        let status = StatusCode::from_u16(told.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = Answer::json(status, &shown);
        answer.set(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        for (name, value) in told.headers {
            answer.set(name, value);
        }
        answer
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let retry = |problem: Problem, seconds: &'static str| {
            problem.with_header(RETRY_AFTER, HeaderValue::from_static(seconds))
        };
        match refusal {
            Refusal::NotFound => Problem::not_found(),
            Refusal::Stale => Problem::new(Code::PreconditionFailed, "the object has changed since it was read"),
            Refusal::VerifyRequired => {
                Problem::new(Code::VerifyRequired, "the subscription was disabled by failures: verify it instead")
            }
            Refusal::RotationInProgress => Problem::new(
                Code::RotationInProgress,
                "the former secret is still valid; `expire_old_now` ends it and rotates again",
            ),
            Refusal::LimitReached(what) => Problem::new(Code::LimitReached, what),
            Refusal::BacklogFull => {
                let detail = "as many jobs as are kept in memory wait for another attempt; try again when some of them have ended";
                retry(Problem::new(Code::BacklogFull, detail), "30")
            }
            Refusal::DiskLow => retry(
                Problem::new(
                    Code::DiskLow,
                    "the hub's disk is nearly full: it takes no events and no changes until there is more room; deliveries go on",
                ),
                "5",
            ),
            // What the store said stands in the log; it names paths of this machine.
            Refusal::Suspended(_) => retry(
                Problem::new(
                    Code::StoreSuspended,
                    "the store takes no writes now; whether this one was stored is not known",
                ),
                "5",
            ),
            Refusal::Stopping => retry(
                Problem::new(
                    Code::Stopping,
                    "the hub is draining and takes nothing new; try again when it has been started again",
                ),
                "5",
            ),
            // Only partitions have positions, and no request moves one.
            Refusal::PositionMoved { .. } => Problem::new(Code::Internal, "the hub failed"),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        tracing::warn!(%error, "a read of the store failed");
        Problem::new(Code::StoreSuspended, "the store cannot be read now")
            .with_header(RETRY_AFTER, HeaderValue::from_static("5"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A1.4
    #[test]
    fn all_wrong_fields_are_named_at_once() {
        let field = |pointer: &str, code: FieldCode| FieldError {
            pointer: pointer.to_owned(),
            code: code.text(),
            detail: "wrong".to_owned(),
        };
        let errors = vec![field("/sink/url", FieldCode::InvalidValue), field("/name", FieldCode::TooLong)];
        let answer = Problem::fields(errors).answer("r-1");
        let shown: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(shown["status"], 422);
        assert_eq!(shown["code"], "invalid");
        assert_eq!(shown["type"], "urn:streaming-hub:problem:invalid");
        assert_eq!(shown["request_id"], "r-1");
        assert_eq!(shown["errors"][0]["pointer"], "/sink/url");
        assert_eq!(shown["errors"][1]["code"], "too_long");
    }

    // A1.4: no detail begins with a pointer that is not there.
    #[test]
    fn the_body_itself_needs_no_pointer() {
        for (pointer, detail) in
            [("", "the body must be a JSON object"), ("/name", "/name: the body must be a JSON object")]
        {
            let answer = Problem::field(pointer, FieldCode::WrongType, "the body must be a JSON object").answer("r-1");
            let shown: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(shown["detail"], detail);
        }
    }

    // C13.4: what the store said may name paths of the machine.
    #[test]
    fn inner_errors_stay_inside() {
        let problem = Problem::from(Refusal::Suspended("/var/lib/streaming-hub/hub.redb: EIO".to_owned()));
        assert_eq!(problem.code(), "store_suspended");
        let answer = problem.answer("r-1");
        assert!(!String::from_utf8_lossy(&answer.body).contains("/var/lib"));
    }
}
