//! How a subscription does, as the API shows it: its breaker, its failures, its hold, its backlog, and what was counted (A2, C7.3, C8).

use crate::engine::command::{BreakerState, LaneState, Tally};
use crate::http::call::Call;
use crate::http::json::show_duration;
use crate::http::shape::{SubscriptionShown, disabled_reason_name};
use crate::model::subscription::{Enabled, Subscription};
use crate::rules::autodisable;
use crate::time::{HubTime, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// A subscription with its health.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubscriptionWithHealth)]
pub(crate) struct WithHealth {
    #[serde(flatten)]
    subscription: SubscriptionShown,
    /// How it does.
    health: Health,
}

/// How a subscription does.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Health {
    #[serde(flatten)]
    state: HealthState,
    /// Age of its oldest waiting event; those sent again are left out.
    #[schema(example = "12s")]
    oldest_pending_age: Option<String>,
    /// Its last success since the hub started; null where there was none.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_success: Option<Timestamp>,
    /// Its last failure: of the open stretch of failures, or since the hub started.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_failure: Option<Timestamp>,
    /// What was counted since the hub started.
    counts: CountsShown,
    /// Until when the former signing secret signs too; null when it does not.
    #[schema(value_type = Option<String>, format = DateTime)]
    former_secret_until: Option<Timestamp>,
}

/// What keeps a subscription from being delivered to, or may soon.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HealthState)]
pub(crate) struct HealthState {
    /// State of the destination's breaker.
    breaker: BreakerShown,
    /// The open stretch of failures; null while there is none.
    failure_span: Option<FailureSpan>,
    /// That the failures are enough to switch it off; null while they are not.
    verdict: Option<VerdictShown>,
    /// Held by a 429; null while it is not.
    hold: Option<HoldShown>,
    /// Jobs of it.
    backlog: Backlog,
    /// Since when it is off; null while it is on.
    #[schema(value_type = Option<String>, format = DateTime)]
    disabled_since: Option<Timestamp>,
}

/// A breaker.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Breaker)]
pub(crate) struct BreakerShown {
    /// `closed`, `open` or `probing`.
    state: &'static str,
    /// When it first opened; null while it is closed.
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    /// When the next probe may go, of an open one.
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    /// Due deliveries to the destination that it has passed over since.
    shed: u64,
}

/// A stretch of failures without a success.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FailureSpan {
    /// Its first failure.
    #[schema(value_type = String, format = DateTime)]
    from: Timestamp,
    /// Its last failure so far.
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// How many attempts failed in it.
    failures: u64,
    /// Class of the last one's error.
    #[schema(example = "server_error")]
    last_error: &'static str,
    /// How many different events were answered with 410; 3 stands for more as well.
    gone_events: usize,
}

/// That failures are enough to switch a subscription off.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Verdict)]
pub(crate) struct VerdictShown {
    /// `auto_disabled` or `gone`.
    reason: &'static str,
    /// When it was found.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Whether it was acted on; not while auto-disable is off.
    acted: bool,
}

/// A hold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Hold)]
pub(crate) struct HoldShown {
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    until: Timestamp,
}

/// Jobs of a subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Backlog {
    /// Waiting, retries included.
    waiting: u64,
    /// On their way now.
    in_flight: u32,
}

/// What was counted of a subscription since the hub started.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HealthCounts)]
pub(crate) struct CountsShown {
    /// Events delivered.
    delivered: u64,
    /// Attempts that failed; those answered with 429 are not counted.
    failed_attempts: u64,
    /// Events given up.
    dead_letters: u64,
}

impl WithHealth {
    pub(crate) fn of(call: &Call, subscription: &Subscription, lane: &LaneState) -> Self {
        let Tally { delivered, failed, dead_letters, last_success, last_failure } = lane.tally;
        let in_span = lane.health.span.as_ref().map(|span| span.last);
        let wall = |at: HubTime| call.wall_of(at);
        let health = Health {
            state: HealthState::of(call, subscription, lane),
            oldest_pending_age: lane
                .oldest_waiting
                .map(|stored| show_duration(lane.now.since_ms(stored) / 1000 * 1000)),
            last_success: last_success.map(wall),
            last_failure: last_failure.max(in_span).map(wall),
            counts: CountsShown { delivered, failed_attempts: failed, dead_letters },
            former_secret_until: subscription
                .secrets
                .previous
                .as_ref()
                .map(|previous| previous.until)
                .filter(|until| call.wall() < *until),
        };
        Self { subscription: SubscriptionShown::of(subscription), health }
    }
}

impl HealthState {
    pub(crate) fn of(call: &Call, subscription: &Subscription, lane: &LaneState) -> Self {
        let autodisable::Health { span, verdict, down } = &lane.health;
        Self {
            breaker: BreakerShown::of(call, lane),
            failure_span: span.as_ref().map(|span| FailureSpan {
                from: call.wall_of(span.first),
                to: call.wall_of(span.last),
                failures: span.failures,
                last_error: span.error.code(),
                gone_events: span.gone.as_ref().map_or(0, |gone| gone.events.len()),
            }),
            verdict: verdict.map(|verdict| VerdictShown {
                reason: disabled_reason_name(verdict.cause.reason()),
                at: call.wall_of(verdict.at),
                acted: down.is_some(),
            }),
            hold: lane.hold_until.map(|until| HoldShown { until: call.wall_of(until) }),
            backlog: Backlog { waiting: lane.waiting, in_flight: lane.in_flight },
            disabled_since: match subscription.enabled {
                Enabled::Yes => None,
                Enabled::Disabled { since, .. } => Some(since),
            },
        }
    }
}

impl BreakerShown {
    fn of(call: &Call, lane: &LaneState) -> Self {
        let (state, until) = breaker_state(call, lane.breaker);
        Self { state, since: lane.breaker_since.map(|at| call.wall_of(at)), until, shed: lane.breaker_shed }
    }
}

/// A breaker's state in a word, and when the next probe may go.
pub(crate) fn breaker_state(call: &Call, state: BreakerState) -> (&'static str, Option<Timestamp>) {
    match state {
        BreakerState::Closed => ("closed", None),
        BreakerState::Open { until } => ("open", Some(call.wall_of(until))),
        BreakerState::Probing => ("probing", None),
    }
}
