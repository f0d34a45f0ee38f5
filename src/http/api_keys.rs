//! API keys: made, listed and revoked by the operator. A key is shown once; the store has its hash (A1.1).

use crate::engine::command::Action;
use crate::entropy::os_bytes;
use crate::error::{Code, FieldCode};
use crate::http::answer::Answer;
use crate::http::auth::{Tenancy, new_key};
use crate::http::call::Call;
use crate::http::form::{Faults, Form};
use crate::http::idempotency::Ticket;
use crate::http::page::{List, Listed, cursor};
use crate::http::problem::Problem;
use crate::model::api_key::{ApiKey, Role};
use crate::model::ids::KeyId;
use crate::model::limits::{API_KEYS, INGEST_KEY_NAMES, SOURCE_BYTES, TENANT_BYTES};
use crate::rules::classify::is_source;
use crate::time::Timestamp;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use zeroize::Zeroizing;

/// An API key, without the key itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ApiKey)]
pub(crate) struct ApiKeyShown {
    /// Its id.
    #[schema(example = "key_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01")]
    id: String,
    /// A name for people.
    name: String,
    /// `tenant`, `operator`, `ingest` or `viewer`.
    #[schema(example = "tenant")]
    role: &'static str,
    /// The tenant, of role `tenant`.
    tenant_id: Option<String>,
    /// Tenants that it may write, of role `ingest`; empty: all.
    tenants: Vec<String>,
    /// Sources that it may speak for, of role `ingest`; empty: all.
    sources: Vec<String>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Not valid from then on.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// Revoked then.
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
}

/// A new API key, with the key itself, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedApiKey)]
pub(crate) struct CreatedKey<'a> {
    #[serde(flatten)]
    shown: ApiKeyShown,
    /// The key. It is not shown again.
    #[schema(example = "shk_0198b0c27c1e7d3a9f102b6c5a4e8d01_yMCd6gPqTAxZYUtgTZWzLJW5b8I0v4vhfV0oLtnKWwL")]
    key: &'a str,
}

/// Makes a key.
pub(crate) async fn create(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let body = call.json()?;
    let form = Form::body(&body)?;
    let mut faults = Faults::default();
    form.only(&["name", "role", "tenant_id", "tenants", "sources", "expires_at"], &[], &mut faults);
    form.required("name", &mut faults);
    form.required("role", &mut faults);
    let name = form.name(None, &mut faults).unwrap_or_default();
    let role = role(call, &form, &mut faults);
    let expires_at = expires_at(call, &form, &mut faults);
    faults.check()?;
    let Some(role) = role else { return Err(Problem::new(Code::Internal, "the hub failed")) };
    if call.parts().board.api_keys(None, API_KEYS).len() >= API_KEYS {
        return Err(Problem::new(Code::LimitReached, format!("the hub keeps at most {API_KEYS} API keys")));
    }
    let mut random = Zeroizing::new([0; 32]);
    os_bytes(&mut *random).map_err(|_| Problem::new(Code::Internal, "the operating system gives no random bytes"))?;
    let (text, key) = new_key(KeyId(call.api.new_uuid()), &random, name, role, call.wall(), expires_at);
    let shown = CreatedKey { shown: ApiKeyShown::of(&key), key: text.reveal() };
    let answer = Answer::json(StatusCode::CREATED, &shown);
    let row = ticket.row(call, &answer)?;
    call.manage_remembering(Action::CreateApiKey(Box::new(key)), row).await?;
    Ok(answer)
}

/// Keys, newest first, the revoked ones too.
pub(crate) fn list(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor"], &mut faults);
    let page = call.query.page::<16>(List::ApiKeys, &mut faults)?;
    faults.check()?;
    let mut keys = call.parts().board.api_keys(page.after.map(KeyId), page.limit + 1);
    let more = keys.len() > page.limit;
    keys.truncate(page.limit);
    let next_cursor = keys.last().filter(|_| more).map(|key| cursor(List::ApiKeys, &key.id.0));
    Ok(Answer::ok(&Listed { items: keys.iter().map(|key| ApiKeyShown::of(key)).collect(), next_cursor }))
}

/// Revokes a key: no call that comes after the answer is allowed with it.
pub(crate) async fn revoke(call: &Call) -> Result<Answer, Problem> {
    let id: KeyId = call.path_id()?;
    call.manage(Action::RevokeApiKey { id, at: call.wall() }).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

impl ApiKeyShown {
    fn of(key: &ApiKey) -> Self {
        let (tenant_id, tenants, sources) = match &key.role {
            Role::Tenant(tenant) => (Some(tenant.clone()), Vec::new(), Vec::new()),
            Role::Ingest { tenants, sources } => (None, tenants.clone(), sources.clone()),
            Role::Operator | Role::Viewer => (None, Vec::new(), Vec::new()),
        };
        Self {
            id: key.id.to_string(),
            name: key.name.clone(),
            role: key.role.name(),
            tenant_id,
            tenants,
            sources,
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// The kinds of role by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tenant,
    Operator,
    Ingest,
    Viewer,
}

const KINDS: [(&str, Kind); 4] =
    [("tenant", Kind::Tenant), ("operator", Kind::Operator), ("ingest", Kind::Ingest), ("viewer", Kind::Viewer)];

fn role(call: &Call, form: &Form<'_>, faults: &mut Faults) -> Option<Role> {
    let tenant = form.text("tenant_id", 1..=TENANT_BYTES, faults);
    let tenants = form.texts("tenants", 0..=INGEST_KEY_NAMES, 1..=TENANT_BYTES, faults);
    let sources = sources(form, faults);
    let kind = form.choice("role", &KINDS, faults)?;
    let goes_with = [("tenant_id", Kind::Tenant), ("tenants", Kind::Ingest), ("sources", Kind::Ingest)];
    for (name, of) in goes_with {
        if form.get(name).is_some() && kind != of {
            faults.add(form.pointer(name), FieldCode::Conflict, "this does not go with the role");
        }
    }
    Some(match kind {
        Kind::Tenant => Role::Tenant(tenant_of(call, form, tenant, faults)?),
        Kind::Operator => Role::Operator,
        Kind::Ingest => Role::Ingest { tenants: tenants.unwrap_or_default(), sources: sources.unwrap_or_default() },
        Kind::Viewer => Role::Viewer,
    })
}

/// A single-tenant hub needs none, and takes no other.
fn tenant_of(call: &Call, form: &Form<'_>, given: Option<&str>, faults: &mut Faults) -> Option<String> {
    match (&call.parts().settings.tenancy, given) {
        (Tenancy::Multi, Some(given)) => Some(given.to_owned()),
        (Tenancy::Multi, None) => {
            form.required("tenant_id", faults);
            None
        }
        (Tenancy::Single(only), Some(given)) if given != &**only => {
            faults.add(
                form.pointer("tenant_id"),
                FieldCode::InvalidValue,
                "this hub has one tenant, and another name for it",
            );
            None
        }
        (Tenancy::Single(only), Some(_) | None) => Some(only.to_string()),
    }
}

fn sources(form: &Form<'_>, faults: &mut Faults) -> Option<Vec<String>> {
    let sources = form.texts("sources", 0..=INGEST_KEY_NAMES, 1..=SOURCE_BYTES, faults)?;
    for (at, source) in sources.iter().enumerate() {
        if !is_source(source) {
            let detail = "this must be the name of a producing application";
            faults.add(format!("{}/{at}", form.pointer("sources")), FieldCode::InvalidValue, detail);
        }
    }
    Some(sources)
}

fn expires_at(call: &Call, form: &Form<'_>, faults: &mut Faults) -> Option<Timestamp> {
    let text = form.text("expires_at", 1..=64, faults)?;
    let Some(at) = Timestamp::parse(text) else {
        let detail = "this must be a time like \"2026-01-31T12:00:00Z\"";
        faults.add(form.pointer("expires_at"), FieldCode::InvalidValue, detail);
        return None;
    };
    if at <= call.wall() {
        faults.add(form.pointer("expires_at"), FieldCode::OutOfRange, "this must be in the future");
    }
    Some(at)
}
