//! Dead letters: listed for a tenant and for the operator, and sent again one by one or by filter (C6.5).
//!
//! Invariant: nothing here holds the whole table: lists look at a bounded number of rows a page, and a redrive goes through in
//! chunks of one commit each, forward only, so that a letter that dies again at once is not met twice.

use crate::engine::command::{Action, Managed};
use crate::error::{Code, FieldCode};
use crate::http::answer::Answer;
use crate::http::attempt::AttemptShown;
use crate::http::call::Call;
use crate::http::change::unexpected;
use crate::http::form::{Faults, Form};
use crate::http::page::{List, Listed, cursor};
use crate::http::problem::Problem;
use crate::model::ids::{LogNo, Seq, SubNo, SubscriptionId};
use crate::model::job::DeadReason;
use crate::model::limits::{PAGE_ITEMS, PAGE_ROWS_EXAMINED, REDRIVE_PER_COMMIT, REDRIVE_PER_REQUEST, TENANT_BYTES};
use crate::model::subscription::Subscription;
use crate::store::StoreError;
use crate::store::view::{DeadRow, JobState, View};
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// A dead letter.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeadLetter)]
pub(crate) struct DeadLetterShown {
    /// Whose; only in the operator's list.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_id: Option<String>,
    /// For which subscription.
    subscription_id: String,
    /// The event's seq.
    seq: u64,
    /// `ce-id`; null when the event is gone.
    #[serde(rename = "ceId")]
    ce_id: Option<String>,
    /// `<resource>.<event>`; null when the event is gone.
    #[serde(rename = "eventType")]
    event_type: Option<String>,
    /// Why it died.
    #[schema(example = "exhausted")]
    reason: &'static str,
    /// When it died.
    #[schema(value_type = String, format = DateTime)]
    died_at: Timestamp,
    /// Steps of the curve that it had used.
    steps_used: u8,
    /// Its last attempts, newest last.
    attempts: Vec<AttemptShown>,
}

/// What a redrive did.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Redriven)]
pub(crate) struct RedrivenShown {
    /// So many were sent again.
    pub(crate) redriven: u64,
    /// There are more; ask again.
    pub(crate) more: bool,
}

/// A subscription's dead letters, newest event first.
pub(crate) async fn list_of(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor", "reason"], &mut faults);
    let reason = reason_parameter(call, &mut faults);
    let subscription = call.subscription()?;
    list_one(call, &subscription, reason, faults, Audience::Tenant).await
}

/// Dead letters of all tenants, or of one subscription.
pub(crate) async fn list_all(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor", "reason", "tenant_id", "subscription_id"], &mut faults);
    let reason = reason_parameter(call, &mut faults);
    let id = call.query.read("subscription_id", "the id of a subscription", &mut faults, |text| text.parse().ok());
    let tenant = call.query.get("tenant_id").map(str::to_owned);
    if let Some(id) = id {
        let found = subscription_of(call, id, tenant.as_deref())?;
        return list_one(call, &found, reason, faults, Audience::Operator).await;
    }
    let page = call.query.page::<12>(List::DeadLetters, &mut faults)?;
    faults.check()?;
    let (after, limit) = (page.after.map(read_key), page.limit);
    let filter = Filter { subscription: None, tenant, reason };
    let chunk = filter.chunk(call, after, limit, PAGE_ROWS_EXAMINED).await?;
    let next_cursor = chunk.next.map(|key| cursor(List::DeadLetters, &write_key(key)));
    Ok(Answer::ok(&Listed { items: show(call, chunk.rows, Audience::Operator).await?, next_cursor }))
}

/// Sends dead letters again: one by subscription and seq, or all that pass a filter.
pub(crate) async fn redrive(call: &Call) -> Result<Answer, Problem> {
    let body = call.json()?;
    let form = Form::body(&body)?;
    let mut faults = Faults::default();
    form.only(&["subscription_id", "seq", "tenant_id", "reason", "all"], &[], &mut faults);
    let id = form.text("subscription_id", 1..=64, &mut faults).and_then(|text| {
        let id = text.parse::<SubscriptionId>().ok();
        if id.is_none() {
            faults.add(
                form.pointer("subscription_id"),
                FieldCode::InvalidValue,
                "this must be the id of a subscription",
            );
        }
        id
    });
    let seq = form.integer("seq", 1..=(1 << 53) - 1, &mut faults).map(Seq);
    let tenant = form.text("tenant_id", 1..=TENANT_BYTES, &mut faults).map(str::to_owned);
    let reason = form.choice("reason", &REASONS, &mut faults);
    let all = form.flag("all", &mut faults).unwrap_or(false);
    if seq.is_some() && id.is_none() {
        faults.add(form.pointer("subscription_id"), FieldCode::Required, "a seq needs its subscription");
    }
    if id.is_none() && tenant.is_none() && reason.is_none() && !all && faults.none() {
        let detail = "name what is to be sent again: subscription_id and seq, a filter, or \"all\": true";
        faults.add("", FieldCode::Required, detail);
    }
    faults.check()?;
    let subscription = id.map(|id| subscription_of(call, id, tenant.as_deref())).transpose()?;
    let shown = match (subscription, seq) {
        (Some(subscription), Some(seq)) => redrive_one(call, &subscription, seq).await?,
        (subscription, _) => redrive_all(call, Filter { subscription, tenant, reason }).await?,
    };
    Ok(Answer::ok(&shown))
}

/// The reasons by name.
pub(crate) const REASONS: [(&str, DeadReason); 5] = [
    ("exhausted", DeadReason::Exhausted),
    ("too_large", DeadReason::TooLarge),
    ("not_representable", DeadReason::NotRepresentable),
    ("poison", DeadReason::Poison),
    ("expired", DeadReason::Expired),
];

/// Who reads a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    Tenant,
    Operator,
}

/// Which dead letters are meant.
#[derive(Debug, Clone)]
struct Filter {
    subscription: Option<Arc<Subscription>>,
    tenant: Option<String>,
    reason: Option<DeadReason>,
}

/// Some rows that pass a filter, and after which key to go on.
#[derive(Debug)]
struct Chunk {
    rows: Vec<DeadRow>,
    next: Option<(SubNo, LogNo)>,
}

impl Filter {
    /// The next rows that pass. Of one subscription newest first, else in the order of the table.
    async fn chunk(
        &self,
        call: &Call,
        after: Option<(SubNo, LogNo)>,
        limit: usize,
        examine: usize,
    ) -> Result<Chunk, Problem> {
        let (filter, board) = (self.clone(), call.parts().board.clone());
        let wants_tenant = move |sub: SubNo| {
            let tenant = filter.tenant.as_deref();
            tenant.is_none_or(|tenant| board.subscription(sub).is_some_and(|found| found.tenant == tenant))
        };
        let (reason, sub) = (self.reason, self.subscription.as_ref().map(|subscription| subscription.no));
        call.read(move |view| {
            let (mut rows, mut next, mut examined) = (Vec::new(), after, 0);
            let mut known: HashMap<SubNo, bool> = HashMap::new();
            loop {
                let found = step(view, sub, next)?;
                let last = found.len() < PAGE_ITEMS;
                for row in found {
                    if rows.len() == limit {
                        return Ok(Chunk { rows, next });
                    }
                    next = Some((row.sub, row.log));
                    let mine = *known.entry(row.sub).or_insert_with(|| wants_tenant(row.sub));
                    if mine && reason.is_none_or(|reason| reason == row.letter.reason) {
                        rows.push(row);
                    }
                    examined += 1;
                }
                if last {
                    return Ok(Chunk { rows, next: None });
                }
                if examined >= examine {
                    return Ok(Chunk { rows, next });
                }
            }
        })
        .await
    }
}

fn step(view: &View, sub: Option<SubNo>, after: Option<(SubNo, LogNo)>) -> Result<Vec<DeadRow>, StoreError> {
    match sub {
        Some(sub) => view.dead_letters_of(sub, after.map(|(_, log)| log), PAGE_ITEMS),
        None => view.dead_letters(after, PAGE_ITEMS),
    }
}

async fn list_one(
    call: &Call,
    subscription: &Arc<Subscription>,
    reason: Option<DeadReason>,
    mut faults: Faults,
    audience: Audience,
) -> Result<Answer, Problem> {
    let page = call.query.page::<8>(List::DeadLettersOf, &mut faults)?;
    faults.check()?;
    let after = page.after.map(|log| (subscription.no, LogNo(u64::from_be_bytes(log))));
    let filter = Filter { subscription: Some(subscription.clone()), tenant: None, reason };
    let chunk = filter.chunk(call, after, page.limit, PAGE_ROWS_EXAMINED).await?;
    let next_cursor = chunk.next.map(|(_, log)| cursor(List::DeadLettersOf, &log.0.to_be_bytes()));
    Ok(Answer::ok(&Listed { items: show(call, chunk.rows, audience).await?, next_cursor }))
}

/// Rows with their events; those whose subscription has just been removed are left out.
pub(crate) async fn show(call: &Call, rows: Vec<DeadRow>, audience: Audience) -> Result<Vec<DeadLetterShown>, Problem> {
    let logs: Vec<LogNo> = rows.iter().map(|row| row.log).collect();
    let heads = call.read(move |view| logs.into_iter().map(|log| view.head_at(log)).collect::<Result<Vec<_>, _>>());
    let heads = heads.await?;
    let shown = rows.into_iter().zip(heads).filter_map(|(row, head)| {
        let subscription = call.parts().board.subscription(row.sub)?;
        let event = head.map(|head| head.event);
        Some(DeadLetterShown {
            tenant_id: (audience == Audience::Operator).then(|| subscription.tenant.clone()),
            subscription_id: subscription.id.to_string(),
            seq: row.letter.seq.0,
            ce_id: event.as_ref().map(|event| event.id.to_string()),
            event_type: event.as_ref().map(|event| event.event_type()),
            reason: row.letter.reason.code(),
            died_at: call.wall_of(row.letter.died_at),
            steps_used: row.letter.steps_used,
            attempts: row.letter.attempts.iter().map(AttemptShown::of).collect(),
        })
    });
    Ok(shown.collect())
}

async fn redrive_one(call: &Call, subscription: &Subscription, seq: Seq) -> Result<RedrivenShown, Problem> {
    let (tenant, sub) = (subscription.tenant_no, subscription.no);
    let found = call.read(move |view| {
        let Some(log) = view.log_of(tenant, seq)? else { return Ok(None) };
        Ok(match view.job_state(log, sub)? {
            JobState::Dead(_) => Some(log),
            JobState::Waiting(_) | JobState::Done => None,
        })
    });
    let log = found.await?.ok_or_else(Problem::not_found)?;
    Ok(RedrivenShown { redriven: send_again(call, vec![(sub, log)]).await?, more: false })
}

async fn redrive_all(call: &Call, filter: Filter) -> Result<RedrivenShown, Problem> {
    let (mut after, mut redriven, mut chosen) = (None, 0, 0);
    loop {
        let chunk = filter.chunk(call, after, REDRIVE_PER_COMMIT, PAGE_ROWS_EXAMINED).await?;
        chosen += chunk.rows.len();
        if !chunk.rows.is_empty() {
            redriven += send_again(call, chunk.rows.iter().map(|row| (row.sub, row.log)).collect()).await?;
        }
        after = chunk.next;
        if after.is_none() {
            return Ok(RedrivenShown { redriven, more: false });
        }
        if chosen >= REDRIVE_PER_REQUEST {
            return Ok(RedrivenShown { redriven, more: true });
        }
    }
}

async fn send_again(call: &Call, which: Vec<(SubNo, LogNo)>) -> Result<u64, Problem> {
    match call.manage(Action::Redrive(which)).await? {
        Managed::Redriven(count) => Ok(count),
        Managed::Subscription { .. }
        | Managed::Deleted
        | Managed::Replay(_)
        | Managed::ApiKey(_)
        | Managed::Done
        | Managed::Lane(_)
        | Managed::Breakers(_)
        | Managed::Healths { .. }
        | Managed::Hub(_) => Err(unexpected()),
    }
}

fn subscription_of(call: &Call, id: SubscriptionId, tenant: Option<&str>) -> Result<Arc<Subscription>, Problem> {
    let found = call.parts().board.subscription_by_id(id);
    found
        .filter(|found| tenant.is_none_or(|tenant| found.tenant == tenant))
        .ok_or_else(|| Problem::new(Code::NotFound, "there is no such subscription"))
}

fn reason_parameter(call: &Call, faults: &mut Faults) -> Option<DeadReason> {
    call.query.read("reason", "a reason of dead letters", faults, DeadReason::from_code)
}

fn write_key((sub, log): (SubNo, LogNo)) -> [u8; 12] {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&sub.0.to_be_bytes());
    key[4..].copy_from_slice(&log.0.to_be_bytes());
    key
}

fn read_key([a, b, c, d, log @ ..]: [u8; 12]) -> (SubNo, LogNo) {
    (SubNo(u32::from_be_bytes([a, b, c, d])), LogNo(u64::from_be_bytes(log)))
}
