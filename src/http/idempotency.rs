//! `Idempotency-Key`: the first answer to a call that creates or acts is repeated to the same API key (A1.7).
//!
//! An answer that is known beforehand is written in the commit of its action; one that is not, right after. Only successes are
//! remembered: a refusal has changed nothing, so asking again is safe. Invariant: of two calls with one key at the same time only
//! one runs; remembered answers are sealed, since some hold a secret.

use crate::engine::command::{Action, IdempotencyRow};
use crate::error::Code;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::problem::Problem;
use crate::http::routes::{Takes, Verb};
use crate::model::ids::KeyId;
use crate::model::limits::IDEMPOTENCY_KEY_BYTES;
use crate::model::subscription::Sealed;
use crate::secrets::Scope;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use zeroize::Zeroizing;

/// Calls with an `Idempotency-Key` that are being worked on.
#[derive(Debug, Default)]
pub(crate) struct InProgress(Mutex<HashSet<(KeyId, String)>>);

/// How a call begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It was answered before.
    Repeat(Answer),
    /// It is the first, or asked for nothing to be remembered.
    First(Ticket),
}

/// What a call that is worked on holds until its answer is remembered.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<Wanted>);

/// What the client wants remembered.
#[derive(Debug)]
struct Wanted {
    place: Place,
    request: [u8; 32],
    written: Option<Answer>,
}

/// A place among the calls in progress, given back when dropped.
#[derive(Debug)]
struct Place {
    api: Arc<super::Api>,
    key: KeyId,
    client_key: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.api.in_progress.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&(self.key, std::mem::take(&mut self.client_key)));
    }
}

/// Looks whether the call was answered before, and keeps others with its key out while it is worked on.
pub(crate) async fn begin(call: &Call) -> Result<Begun, Problem> {
    let Some(client_key) = wanted_key(call)? else { return Ok(Begun::First(Ticket(None))) };
    let key = call.identity.as_ref().map_or(KeyId([0; 16]), |identity| identity.key);
    // The place is taken before the store is asked: who came first has remembered its answer before it gives the place back.
    let place = take_place(call, key, client_key)?;
    let request = digest(call);
    let asked = place.client_key.clone();
    let remembered = call.read(move |view| view.idempotency(key, &asked)).await?;
    match remembered {
        Some(row) if call.hub_now() < row.expires => {
            if row.request != request {
                let detail = "the Idempotency-Key was used for another request; take a new one";
                return Err(Problem::new(Code::IdempotencyConflict, detail));
            }
            open(call, key, &row.answer).map(Begun::Repeat)
        }
        Some(_) | None => Ok(Begun::First(Ticket(Some(Wanted { place, request, written: None })))),
    }
}

impl Ticket {
    /// The row that remembers an answer which is known before its action is done; none where nothing is to be remembered.
    pub(crate) fn row(&mut self, call: &Call, answer: &Answer) -> Result<Option<IdempotencyRow>, Problem> {
        let Some(wanted) = &mut self.0 else { return Ok(None) };
        let row = seal(call, wanted, answer)?;
        wanted.written = Some(answer.clone());
        Ok(Some(row))
    }

    /// Remembers the answer, unless it has been already.
    pub(crate) async fn remember(self, call: &Call, answer: &Answer) {
        let Some(wanted) = self.0 else { return };
        if wanted.written.as_ref().is_some_and(|written| written.body == answer.body) || answer.status.as_u16() >= 400 {
            return;
        }
        let remembered = match seal(call, &wanted, answer) {
            Ok(row) => call.manage_remembering(Action::Remember, Some(row)).await.map(|_| ()),
            Err(problem) => Err(problem),
        };
        if let Err(problem) = remembered {
            // What was done is done; only a repetition would do it again.
            tracing::warn!(code = problem.code(), "an answer could not be remembered for its Idempotency-Key");
        }
    }
}

/// An answer as it is remembered.
#[derive(Serialize, Deserialize)]
struct Remembered {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

const HEADER: &str = "idempotency-key";
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const FIELD: &str = "idempotent_answer";

/// The client's key, on calls that create or act.
fn wanted_key(call: &Call) -> Result<Option<String>, Problem> {
    if call.route.verb != Verb::Post || call.route.takes == Takes::Event {
        return Ok(None);
    }
    let mut values = call.headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| (1..=IDEMPOTENCY_KEY_BYTES).contains(&text.len()));
    match (text, values.next()) {
        (Some(text), None) => Ok(Some(text.to_owned())),
        _ => Err(Problem::new(
            Code::BadRequest,
            format!("Idempotency-Key must be one text of 1 to {IDEMPOTENCY_KEY_BYTES} visible ASCII characters"),
        )),
    }
}

fn take_place(call: &Call, key: KeyId, client_key: String) -> Result<Place, Problem> {
    let mut held = call.api.in_progress.0.lock().unwrap_or_else(PoisonError::into_inner);
    if !held.insert((key, client_key.clone())) {
        let detail = "the first request with this Idempotency-Key is being worked on; ask again later";
        return Err(Problem::new(Code::IdempotencyInProgress, detail));
    }
    Ok(Place { api: call.api.clone(), key, client_key })
}

/// SHA-256 over what makes two requests the same: method, path, tenant and body, each behind its length.
fn digest(call: &Call) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in [call.route.verb.name().as_bytes(), call.path.as_bytes(), call.tenant.as_bytes(), &call.body] {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

fn seal(call: &Call, wanted: &Wanted, answer: &Answer) -> Result<IdempotencyRow, Problem> {
    let headers = answer
        .headers
        .iter()
        .filter_map(|(name, value)| value.to_str().ok().map(|value| (name.as_str().to_owned(), value.to_owned())));
    let remembered = Remembered {
        status: answer.status.as_u16(),
        headers: headers.collect(),
        body: String::from_utf8_lossy(&answer.body).into_owned(),
    };
    let clear =
        Zeroizing::new(serde_json::to_vec(&remembered).map_err(|_| Problem::new(Code::Internal, "the hub failed"))?);
    let answer = call.seal(&owner(wanted.place.key), FIELD, &clear)?;
    let ttl = crate::time::millis(call.parts().settings.idempotency_ttl);
    Ok(IdempotencyRow {
        key: wanted.place.key,
        client_key: wanted.place.client_key.clone(),
        request: wanted.request,
        answer,
        expires: call.hub_now().plus_ms(ttl),
    })
}

fn open(call: &Call, key: KeyId, sealed: &Sealed) -> Result<Answer, Problem> {
    let unreadable =
        || Problem::new(Code::Internal, "the remembered answer cannot be opened; take a new Idempotency-Key");
    let owner = owner(key);
    let scope = Scope { tenant: &call.tenant, owner: &owner, field: FIELD };
    let clear = call.parts().envelope.open(scope, sealed).map_err(|_| unreadable())?;
    let Remembered { status, headers, body } = serde_json::from_slice(&clear).map_err(|_| unreadable())?;
    let mut answer = Answer::empty(StatusCode::from_u16(status).map_err(|_| unreadable())?);
    answer.body = body.into();
    answer.headers =
        headers.iter().filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?))).collect();
    Ok(answer.with_header(REPLAYED, HeaderValue::from_static("true")))
}

fn owner(key: KeyId) -> String {
    key.to_string()
}
