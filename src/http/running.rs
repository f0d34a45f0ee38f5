//! `/healthz`, `/readyz`, `/metrics` and `/openapi.json` (C13.1).

use crate::engine::command::{Action, Managed};
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::outside::{Check, CheckState};
use crate::http::problem::Problem;
use crate::http::{MetricsAccess, openapi};
use crate::metrics::CONTENT_TYPE;
use http::StatusCode;
use http::header::HeaderValue;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use utoipa::ToSchema;

/// Whether the hub can do its work.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Readiness {
    /// `ready`, or `degraded` where something does not work and the hub does its work all the same.
    status: &'static str,
    /// State of each check by its name: `status` is `ok`, `degraded` or `failed`.
    #[schema(value_type = std::collections::BTreeMap<String, CheckShown>)]
    checks: Value,
}

/// One check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckShown {
    /// `ok`, `degraded` or `failed`.
    status: &'static str,
    /// What an operator should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Alive, whatever else is wrong.
pub(crate) fn healthz() -> Result<Answer, Problem> {
    Ok(Answer::ok(&json!({"status": "alive"})))
}

/// Ready, degraded (200 both), or 503 with every check named.
pub(crate) fn readyz(call: &Call) -> Result<Answer, Problem> {
    let checks = call.parts().facts.checks();
    let shown = Value::Object(checks.iter().map(|check| (check.name.to_owned(), show(check))).collect());
    match worst(&checks) {
        CheckState::Ok => Ok(Answer::ok(&Readiness { status: "ready", checks: shown })),
        CheckState::Degraded => Ok(Answer::ok(&Readiness { status: "degraded", checks: shown })),
        CheckState::Failed => {
            let failed: Vec<&str> =
                checks.iter().filter(|check| check.state == CheckState::Failed).map(|check| check.name).collect();
            Err(Problem::not_ready(&format!("failed: {}", failed.join(", ")), shown))
        }
    }
}

/// Everything that is counted, with the hub's state of this moment.
pub(crate) async fn metrics(call: &Call) -> Result<Answer, Problem> {
    if call.parts().settings.metrics == MetricsAccess::Off {
        return Err(Problem::not_found());
    }
    // A writer that hangs in a slow commit must not take the metrics with it: the gauges then show what was.
    let inspected = tokio::time::timeout(INSPECT_TIME, call.manage(Action::InspectHub)).await;
    if let Ok(Ok(Managed::Hub(hub))) = inspected {
        call.parts().metrics.hub(&hub);
    }
    let text = call.parts().metrics.text();
    Ok(Answer::of(StatusCode::OK, HeaderValue::from_static(CONTENT_TYPE), text.into()))
}

/// The description of this API.
pub(crate) fn openapi() -> Result<Answer, Problem> {
    let json = HeaderValue::from_static("application/json");
    Ok(Answer::of(StatusCode::OK, json, openapi::DOCUMENT.into()))
}

const INSPECT_TIME: Duration = Duration::from_secs(2);

fn worst(checks: &[Check]) -> CheckState {
    checks.iter().fold(CheckState::Ok, |worst, check| match (worst, check.state) {
        (CheckState::Failed, _) | (_, CheckState::Failed) => CheckState::Failed,
        (CheckState::Degraded, _) | (_, CheckState::Degraded) => CheckState::Degraded,
        (CheckState::Ok, CheckState::Ok) => CheckState::Ok,
    })
}

fn show(check: &Check) -> Value {
    let status = match check.state {
        CheckState::Ok => "ok",
        CheckState::Degraded => "degraded",
        CheckState::Failed => "failed",
    };
    json!(CheckShown { status, detail: check.detail.clone() })
}
