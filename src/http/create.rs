//! `POST /v1/subscriptions`: makes a subscription, and proves its destination at once when asked to.

use crate::engine::command::{Action, Managed, NewSubscription};
use crate::entropy::os_bytes;
use crate::error::Code;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::change;
use crate::http::form::{Faults, Form};
use crate::http::idempotency::Ticket;
use crate::http::problem::Problem;
use crate::http::shape::{ProbeShown, SubscriptionShown, location};
use crate::http::spec::{self, Asker, Subject};
use crate::model::ids::{Generation, SubNo, SubscriptionId, TenantNo};
use crate::model::subscription::{Enabled, SIGNING_SECRET_FIELD, SigningSecrets, Spec, Subscription, Verification};
use crate::rules::signature;
use crate::time::Timestamp;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// A subscription with its signing secret, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedSubscription)]
pub(crate) struct Created<'a> {
    #[serde(flatten)]
    #[schema(inline = false)]
    subscription: SubscriptionShown,
    /// The secret that signs its deliveries. It is not shown again.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")]
    signing_secret: &'a str,
    /// What the probe saw, when `verify` asked for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    probe: Option<ProbeShown>,
}

/// Makes a subscription. Its id, secret and times are made here, so that the answer is known before the commit and can be
/// remembered in it (A1.7).
pub(crate) async fn create(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let body = call.json()?;
    let id = SubscriptionId(call.api.new_uuid());
    let (spec, verify) = wanted(call.asker(), id, &body)?;

    let secret = new_signing_secret()?;
    let sealed = call.seal(&id.to_string(), SIGNING_SECRET_FIELD, secret.as_bytes())?;
    let at = call.wall();
    let secrets = SigningSecrets { current: sealed.clone(), previous: None };
    let known = as_it_will_be(&call.tenant, id, spec.clone(), secrets, at);
    let answer = created(&known, &secret, None)?;
    let row = ticket.row(call, &answer)?;
    let new = NewSubscription { id, tenant: call.tenant.clone(), spec, secret: sealed, at };
    let made = call.manage_remembering(Action::CreateSubscription(Box::new(new)), row).await?;
    let Managed::Subscription { subscription, .. } = made else { return Err(change::unexpected()) };
    if !verify {
        return Ok(answer);
    }
    let proven = change::prove(call, subscription).await?;
    created(&proven.subscription, &secret, Some(ProbeShown::of(&proven.seen)))
}

/// What a new subscription is to be, and whether its destination is to be proven at once.
pub(crate) fn wanted(asker: Asker<'_>, id: SubscriptionId, body: &Value) -> Result<(Spec, bool), Problem> {
    let form = Form::body(body)?;
    let mut faults = Faults::default();
    form.only(&[&spec::FIELDS[..], &["verify"]].concat(), &spec::READ_ONLY, &mut faults);
    let verify = form.flag("verify", &mut faults).unwrap_or(false);
    Ok((spec::read(asker, Subject { id, stored: None }, &form, faults)?, verify))
}

/// A new signing secret of the operating system's chance (C9.1).
pub(crate) fn new_signing_secret() -> Result<Zeroizing<String>, Problem> {
    let mut random = Zeroizing::new([0; 32]);
    os_bytes(&mut *random).map_err(|_| Problem::new(Code::Internal, "the operating system gives no random bytes"))?;
    Ok(signature::new_secret(&random))
}

/// A new subscription before the writer has given it its numbers.
pub(crate) fn as_it_will_be(
    tenant: &str,
    id: SubscriptionId,
    spec: Spec,
    secrets: SigningSecrets,
    at: Timestamp,
) -> Subscription {
    Subscription {
        // Number and generation are the writer's to give, and never shown.
        no: SubNo(0),
        tenant_no: TenantNo(0),
        generation: Generation(0),
        id,
        tenant: tenant.to_owned(),
        revision: 1,
        spec,
        enabled: Enabled::Yes,
        verification: Verification::Pending,
        started: false,
        unmatched_from: None,
        skipped: None,
        secrets,
        created_at: at,
        updated_at: at,
    }
}

fn created(subscription: &Subscription, secret: &str, probe: Option<ProbeShown>) -> Result<Answer, Problem> {
    let shown = Created { subscription: SubscriptionShown::of(subscription), signing_secret: secret, probe };
    let place = HeaderValue::from_str(&location(subscription.id)).map_err(|_| change::unexpected())?;
    Ok(Answer::json(StatusCode::CREATED, &shown).with_revision(subscription.revision).with_header(LOCATION, place))
}
