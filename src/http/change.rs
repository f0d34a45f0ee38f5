//! Changes of a subscription: PATCH, delete, verify, rotate-secret, pause, resume, test.
//!
//! Invariant: what a client read and what is changed are the same revision. With `If-Match` a stale one is refused (A1.8); without,
//! a PATCH is laid over the newest one again.

use crate::engine::command::{Action, Change, Managed};
use crate::error::{Code, FieldCode};
use crate::http::answer::Answer;
use crate::http::attempt::AttemptShown;
use crate::http::call::Call;
use crate::http::create::new_signing_secret;
use crate::http::form::{Faults, Form};
use crate::http::idempotency::Ticket;
use crate::http::json;
use crate::http::outside::ProbeSeen;
use crate::http::problem::Problem;
use crate::http::shape::{Changed, ProbeShown, SkippedShown, SubscriptionShown};
use crate::http::spec::{self, Asker, Subject};
use crate::model::subscription::{Enabled, SIGNING_SECRET_FIELD, Skipped, Spec, Subscription, Verification};
use crate::time::Timestamp;
use http::StatusCode;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// A subscription after a probe.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = VerifiedSubscription)]
pub(crate) struct Verified {
    #[serde(flatten)]
    subscription: SubscriptionShown,
    /// What was stored while it was not matched, when the passed probe made it matched again.
    skipped: Option<SkippedShown>,
    /// What the probe saw.
    probe: ProbeShown,
}

/// A new signing secret, shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = RotatedSecret)]
pub(crate) struct Rotated<'a> {
    /// The secret that signs from now on. It is not shown again.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")]
    signing_secret: &'a str,
    /// Until when the former secret signs too; null when it ended at once.
    #[schema(value_type = Option<String>, format = DateTime)]
    former_secret_until: Option<Timestamp>,
}

/// A test delivery.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TestDelivery)]
pub(crate) struct Tested {
    /// The `ce-id` of the test event.
    event_id: String,
    /// The attempt.
    attempt: AttemptShown,
}

/// What came of a probe.
#[derive(Debug)]
pub(crate) struct Proven {
    /// The subscription as it is now.
    pub(crate) subscription: Arc<Subscription>,
    /// What was stored while it was not matched.
    pub(crate) skipped: Option<Skipped>,
    /// What the probe saw.
    pub(crate) seen: ProbeSeen,
}

/// Lays a merge patch over the subscription.
pub(crate) async fn patch(call: &Call) -> Result<Answer, Problem> {
    let patch = call.json()?;
    for _ in 0..TRIES {
        let stored = call.subscription()?;
        let wanted = call.if_match(stored.revision)?;
        let (spec, verify) = patched(call.asker(), &stored, &patch)?;
        let moves = !stored.spec.sink.is_proven_by(&spec.sink);
        let probed = match verify {
            Verify::Yes if moves => Some(probe_first(call, &stored, &spec).await?),
            Verify::Yes | Verify::No => None,
        };
        let change = Change::Spec { spec: Box::new(spec), proven: probed.is_some(), at: call.wall() };
        // The patch was laid over this revision, so it is made of no other.
        let changed = match change_at(call, &stored, Some(stored.revision), change).await {
            Err(problem) if problem.code() == Code::PreconditionFailed.text() && wanted.is_none() => continue,
            other => other?,
        };
        return finish_patch(call, changed, verify, probed).await;
    }
    Err(Problem::new(Code::PreconditionFailed, "the subscription is being changed by others; read it again"))
}

/// Removes a subscription with all that is its own.
pub(crate) async fn delete(call: &Call) -> Result<Answer, Problem> {
    let stored = call.subscription()?;
    let if_revision = call.if_match(stored.revision)?;
    call.manage(Action::DeleteSubscription { tenant: call.tenant.clone(), id: stored.id, if_revision }).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// Probes the destination; a passed probe makes the subscription active and lifts what failures switched off (C8.4).
pub(crate) async fn verify(call: &Call) -> Result<Answer, Problem> {
    no_fields(call)?;
    let proven = prove(call, call.subscription()?).await?;
    let revision = proven.subscription.revision;
    let shown = Verified {
        subscription: SubscriptionShown::of(&proven.subscription),
        skipped: proven.skipped.map(SkippedShown::of),
        probe: ProbeShown::of(&proven.seen),
    };
    Ok(Answer::ok(&shown).with_revision(revision))
}

/// Probes a subscription's destination and has a passed probe written down.
pub(crate) async fn prove(call: &Call, subscription: Arc<Subscription>) -> Result<Proven, Problem> {
    let seen = call.probe(subscription.clone()).await?;
    if !seen.passed {
        // It may have been changed meanwhile: what is shown is what is.
        let now = call.parts().board.subscription(subscription.no).unwrap_or(subscription);
        return Ok(Proven { subscription: now, skipped: None, seen });
    }
    let change = Change::Verified { sink: Box::new(subscription.spec.sink.clone()), at: call.wall() };
    let (subscription, skipped) = change_at(call, &subscription, None, change).await?;
    Ok(Proven { subscription, skipped, seen })
}

/// Makes a new signing secret; the former one signs too for a while, unless it is to end now (C9.2).
pub(crate) async fn rotate_secret(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let body = call.json()?;
    let form = Form::body(&body)?;
    let mut faults = Faults::default();
    form.only(&["expire_old_now"], &[], &mut faults);
    let expire_now = form.flag("expire_old_now", &mut faults).unwrap_or(false);
    faults.check()?;
    let stored = call.subscription()?;
    let if_revision = call.if_match(stored.revision)?;

    let secret = new_signing_secret()?;
    let sealed = call.seal(&stored.id.to_string(), SIGNING_SECRET_FIELD, secret.as_bytes())?;
    let at = call.wall();
    let old_until = (!expire_now).then(|| at.plus(call.parts().settings.secret_overlap));
    let answer = Answer::ok(&Rotated { signing_secret: &secret, former_secret_until: old_until });
    let row = ticket.row(call, &answer)?;
    let change = Change::RotateSecret { secret: sealed, old_until, at };
    let action = Action::ChangeSubscription { tenant: call.tenant.clone(), id: stored.id, if_revision, change };
    call.manage_remembering(action, row).await?;
    Ok(answer)
}

/// `enabled` off, reason `paused`.
pub(crate) async fn pause(call: &Call) -> Result<Answer, Problem> {
    let at = call.wall();
    switch(call, Change::Pause { at }).await
}

/// `enabled` on, of a paused one.
pub(crate) async fn resume(call: &Call) -> Result<Answer, Problem> {
    let at = call.wall();
    switch(call, Change::Resume { at }).await
}

/// Sends one marked test event.
pub(crate) async fn test(call: &Call) -> Result<Answer, Problem> {
    no_fields(call)?;
    let seen = call.test(call.subscription()?).await?;
    Ok(Answer::ok(&Tested { event_id: seen.event_id.to_string(), attempt: AttemptShown::of(&seen.attempt) }))
}

/// For answers of the writer that do not go with what was asked; there are none.
pub(crate) fn unexpected() -> Problem {
    tracing::error!("the writer answered something else than was asked");
    Problem::new(Code::Internal, "the hub failed; its log says where")
}

/// How often a PATCH without `If-Match` is laid over a newer revision.
const TRIES: usize = 5;

/// Whether the client wants the destination proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verify {
    /// It does.
    Yes,
    /// It says nothing of it.
    No,
}

/// The specification that the patch leads to.
pub(crate) fn patched(asker: Asker<'_>, stored: &Subscription, patch: &Value) -> Result<(Spec, Verify), Problem> {
    let form = Form::body(patch)?;
    let mut faults = Faults::default();
    form.only(&[&spec::FIELDS[..], &["verify"]].concat(), &spec::READ_ONLY, &mut faults);
    let verify = if form.flag("verify", &mut faults) == Some(true) { Verify::Yes } else { Verify::No };
    let mut whole = settable(stored);
    json::merge(&mut whole, patch);
    let merged = Form::body(&whole)?;
    let subject = Subject { id: stored.id, stored: Some(&stored.spec) };
    let spec = spec::read(asker, subject, &merged, faults)?;
    if stored.started && spec.start_from != stored.spec.start_from {
        let detail = "the subscription has started already; from where it did cannot be changed";
        return Err(Problem::field("/start_from", FieldCode::ReadOnly, detail));
    }
    Ok((spec, verify))
}

/// The subscription as it is shown, without what may only be read.
pub(crate) fn settable(stored: &Subscription) -> Value {
    match serde_json::to_value(SubscriptionShown::of(stored)) {
        Ok(Value::Object(fields)) => {
            let settable = fields.into_iter().filter(|(name, _)| spec::FIELDS.contains(&name.as_str()));
            Value::Object(settable.collect())
        }
        Ok(_) | Err(_) => Value::Object(Map::new()),
    }
}

/// Probes the new destination before anything goes there, so that the switch leaves no gap.
async fn probe_first(call: &Call, stored: &Subscription, spec: &Spec) -> Result<ProbeSeen, Problem> {
    let moved = Subscription { spec: spec.clone(), ..stored.clone() };
    let seen = call.probe(Arc::new(moved)).await?;
    if seen.passed {
        return Ok(seen);
    }
    let met = match (seen.error, seen.status) {
        (Some(class), Some(status)) => format!("status {status}, {}", class.code()),
        (Some(class), None) => class.code().to_owned(),
        (None, Some(status)) => format!("status {status}"),
        (None, None) => "no answer".to_owned(),
    };
    let detail = format!("the new destination did not pass its probe ({met}); nothing was changed");
    Err(Problem::field("/sink/url", FieldCode::ProbeFailed, detail))
}

/// Writes down what a probe has proven, or makes the one that is still wanted.
async fn finish_patch(
    call: &Call,
    (changed, skipped): (Arc<Subscription>, Option<Skipped>),
    verify: Verify,
    probed: Option<ProbeSeen>,
) -> Result<Answer, Problem> {
    let open = changed.verification == Verification::Pending || matches!(changed.enabled, Enabled::Disabled { .. });
    let (subscription, later, seen) = match (verify, probed) {
        (Verify::Yes, Some(seen)) if open => {
            let change = Change::Verified { sink: Box::new(changed.spec.sink.clone()), at: call.wall() };
            let (subscription, later) = change_at(call, &changed, None, change).await?;
            (subscription, later, Some(seen))
        }
        (Verify::Yes, None) => {
            let proven = prove(call, changed).await?;
            (proven.subscription, proven.skipped, Some(proven.seen))
        }
        (Verify::Yes, Some(seen)) => (changed, None, Some(seen)),
        (Verify::No, seen) => (changed, None, seen),
    };
    let skipped = later.or(skipped);
    let revision = subscription.revision;
    let answer = match seen {
        Some(seen) => Answer::ok(&Verified {
            subscription: SubscriptionShown::of(&subscription),
            skipped: skipped.map(SkippedShown::of),
            probe: ProbeShown::of(&seen),
        }),
        None => Answer::ok(&Changed::of(&subscription, skipped)),
    };
    Ok(answer.with_revision(revision))
}

async fn switch(call: &Call, change: Change) -> Result<Answer, Problem> {
    no_fields(call)?;
    let stored = call.subscription()?;
    let if_revision = call.if_match(stored.revision)?;
    let (subscription, skipped) = change_at(call, &stored, if_revision, change).await?;
    Ok(Answer::ok(&Changed::of(&subscription, skipped)).with_revision(subscription.revision))
}

async fn change_at(
    call: &Call,
    stored: &Subscription,
    if_revision: Option<u64>,
    change: Change,
) -> Result<(Arc<Subscription>, Option<Skipped>), Problem> {
    let action = Action::ChangeSubscription { tenant: call.tenant.clone(), id: stored.id, if_revision, change };
    match call.manage(action).await? {
        Managed::Subscription { subscription, skipped } => Ok((subscription, skipped)),
        Managed::Deleted
        | Managed::Redriven(_)
        | Managed::Replay(_)
        | Managed::ApiKey(_)
        | Managed::Done
        | Managed::Lane(_)
        | Managed::Breakers(_)
        | Managed::Healths { .. }
        | Managed::Hub(_) => Err(unexpected()),
    }
}

/// These calls take an object without fields, or nothing.
fn no_fields(call: &Call) -> Result<(), Problem> {
    let body = call.json()?;
    let mut faults = Faults::default();
    Form::body(&body)?.only(&[], &[], &mut faults);
    faults.check()
}
