//! `GET /v1/events/{ceId}`: a stored event, and where it went.
//!
//! Invariant: a body that is JSON goes out byte for byte (C3.4): no number is read and written again.

use crate::http::answer::Answer;
use crate::http::attempt::AttemptShown;
use crate::http::call::Call;
use crate::http::problem::Problem;
use crate::model::event::Event;
use crate::model::ids::{EventId, SubNo};
use crate::model::limits::DELIVERIES_SHOWN;
use crate::store::view::{JobState, StoredEvent};
use crate::time::Timestamp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A stored event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventShown {
    /// Its arrival sequence in its tenant.
    seq: u64,
    /// `ce-id`.
    #[serde(rename = "ceId")]
    ce_id: String,
    /// `studio.lerian.<source>.<resource>.<event>`.
    #[serde(rename = "type")]
    #[schema(example = "studio.lerian.lender.loan_application.approved")]
    ce_type: String,
    /// `<resource>.<event>`.
    #[serde(rename = "eventType")]
    #[schema(example = "loan_application.approved")]
    event_type: String,
    /// The producing application.
    source: String,
    /// As the producer gave it.
    #[serde(rename = "schemaVersion")]
    schema_version: String,
    /// As the producer gave it.
    #[schema(value_type = String, format = DateTime)]
    time: String,
    /// What it is about.
    subject: Option<String>,
    /// Media type of the payload.
    #[serde(rename = "dataContentType")]
    data_content_type: String,
    /// Schema of the payload.
    #[serde(rename = "dataSchema")]
    data_schema: Option<String>,
    /// Other attributes, by name.
    extensions: BTreeMap<String, String>,
    /// When it was stored.
    #[serde(rename = "storedAt")]
    #[schema(value_type = String, format = DateTime)]
    stored_at: Timestamp,
    /// The stored bytes, verbatim, when they are JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    payload: Option<Box<RawValue>>,
    /// The stored bytes when they are not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// One for each subscription that matched it when it was stored, 1000 at most.
    deliveries: Vec<DeliveryShown>,
}

/// Where an event stands with one subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryShown {
    /// Which; null when it is removed.
    subscription_id: Option<String>,
    /// `waiting`, `delivered`, `dead`, or `removed` with its subscription.
    state: &'static str,
    /// Failed attempts that count, of the retry curve it is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_used: Option<u8>,
    /// When it is due, of a waiting one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    due_at: Option<Timestamp>,
    /// Why it ended undelivered, of a dead one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// Its last failed attempts, newest last.
    attempts: Vec<AttemptShown>,
}

/// One event of the tenant.
pub(crate) async fn get(call: &Call) -> Result<Answer, Problem> {
    let id: EventId = call.path_id()?;
    let tenant = call.tenant.clone();
    let found = call.read(move |view| {
        let Some(stored) = view.event(&tenant, id)? else { return Ok(None) };
        let shown = stored.matched.iter().take(DELIVERIES_SHOWN);
        let states: Result<Vec<_>, _> = shown.map(|sub| Ok((*sub, view.job_state(stored.log, *sub)?))).collect();
        states.map(|states| Some((stored, states)))
    });
    let (stored, states) = found.await?.ok_or_else(Problem::not_found)?;
    Ok(Answer::ok(&show(call, stored, states)))
}

fn show(call: &Call, stored: StoredEvent, states: Vec<(SubNo, JobState)>) -> EventShown {
    let stored_at = call.wall_of(stored.stored_at);
    let Event { id, source, time, schema_version, subject, content_type, data_schema, extensions, body, .. } =
        &stored.event;
    let payload = json_verbatim(content_type, body);
    let payload_base64 = payload.is_none().then(|| STANDARD.encode(body));
    EventShown {
        seq: stored.seq.0,
        ce_id: id.to_string(),
        ce_type: stored.event.ce_type(),
        event_type: stored.event.event_type(),
        source: source.to_string(),
        schema_version: schema_version.to_string(),
        time: time.to_string(),
        subject: subject.as_deref().map(str::to_owned),
        data_content_type: content_type.to_string(),
        data_schema: data_schema.as_deref().map(str::to_owned),
        extensions: extensions.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        stored_at,
        payload,
        payload_base64,
        deliveries: states.into_iter().map(|(sub, state)| delivery(call, sub, &state)).collect(),
    }
}

fn delivery(call: &Call, sub: SubNo, state: &JobState) -> DeliveryShown {
    let subscription = call.parts().board.subscription(sub);
    let shown = |state, attempts| DeliveryShown {
        subscription_id: subscription.as_ref().map(|subscription| subscription.id.to_string()),
        state,
        steps_used: None,
        due_at: None,
        reason: None,
        attempts,
    };
    if subscription.is_none() {
        return shown("removed", Vec::new());
    }
    match state {
        JobState::Waiting(job) => DeliveryShown {
            steps_used: Some(job.steps_used),
            due_at: Some(call.wall_of(job.due)),
            ..shown("waiting", job.attempts.iter().map(AttemptShown::of).collect())
        },
        JobState::Dead(letter) => DeliveryShown {
            steps_used: Some(letter.steps_used),
            reason: Some(letter.reason.code()),
            ..shown("dead", letter.attempts.iter().map(AttemptShown::of).collect())
        },
        JobState::Done => shown("delivered", Vec::new()),
    }
}

/// A body as it is, when both its type and its bytes say JSON.
fn json_verbatim(content_type: &str, body: &[u8]) -> Option<Box<RawValue>> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" && !essence.ends_with("+json") {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    RawValue::from_string(text.to_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // C3.4
    #[test]
    fn json_goes_out_as_it_came() {
        for (content_type, body, verbatim) in [
            ("application/json", r#"{"amount":10.50, "n":1e400,"n":2}"#, true),
            ("application/json; charset=utf-8", "12345678901234567890.10", true),
            ("Application/CloudEvents+JSON", "null", true),
            ("application/json", "{", false),
            ("application/json", "", false),
            ("application/json", "\u{feff}{}", false),
            ("application/json", "{} {}", false),
            ("text/plain", "42", false),
            ("text/json5", "{}", false),
        ] {
            let shown = json_verbatim(content_type, body.as_bytes());
            assert_eq!(shown.as_ref().map(|raw| raw.get()), verbatim.then_some(body), "{content_type} {body}");
        }
        assert!(json_verbatim("application/json", b"\"\xff\"").is_none());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(json_verbatim("application/json", deep.as_bytes()).is_some());
    }
}
