//! What operators look at first: notices, breakers that are not closed, and the subscriptions of all tenants, unhealthy ones first.
//!
//! Invariant: nothing here reads more than a page's rows of the store; subscriptions are looked through in memory, a bounded number a
//! page.

use crate::engine::command::{Action, BreakerSeen, LaneState, Managed, Wanted};
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::change::unexpected;
use crate::http::form::Faults;
use crate::http::health::{HealthState, breaker_state};
use crate::http::page::{List, Listed, cursor};
use crate::http::problem::Problem;
use crate::http::shape::SubscriptionShown;
use crate::model::ids::{SubNo, TenantNo};
use crate::model::limits::{PAGE_ROWS_EXAMINED, PAGE_SUBSCRIPTIONS_EXAMINED};
use crate::model::notice::{Notice, NoticeKind};
use crate::store::view::BreakerKey;
use crate::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

/// Something that an operator must know.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Notice)]
pub(crate) struct NoticeShown {
    /// Its rising number.
    no: u64,
    /// When it was raised.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// What kind of thing happened.
    #[schema(example = "auto_disabled")]
    kind: &'static str,
    /// `act`: it stays until a person acts; `watch`: it may mend itself.
    urgency: &'static str,
    /// Whose; null where it is the whole hub's.
    tenant_id: Option<String>,
    /// The subscription it is about, where it is about one.
    subscription_id: Option<String>,
    /// What it is about: a destination, a topic.
    subject: String,
    /// Since when it is so.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Class of the last error.
    #[schema(example = "connect_timeout")]
    last_error: Option<String>,
    /// What happened.
    detail: String,
    /// What to do.
    action: &'static str,
}

/// A breaker that is not closed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OpenBreaker)]
pub(crate) struct OpenBreakerShown {
    /// Its tenant.
    tenant_id: String,
    /// Its destination, without a query.
    destination: String,
    /// `open`, or `probing` while one delivery is on its way to try.
    state: &'static str,
    /// When it first opened.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// When the next probe may go; null while one is on its way.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_probe: Option<Timestamp>,
    /// Due deliveries passed over so far, counted at its opening and at each failed probe.
    shed: u64,
    /// Due deliveries that wait for it now.
    waiting: u64,
    /// Subscriptions that go there.
    subscriptions: u64,
    /// Class of the last error of those subscriptions.
    last_error: Option<&'static str>,
}

/// A subscription as operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TenantSubscription)]
pub(crate) struct OfTenantShown {
    /// Its tenant.
    tenant_id: String,
    #[serde(flatten)]
    subscription: SubscriptionShown,
    /// Whether nobody needs to look after it.
    healthy: bool,
    /// What keeps it from being delivered to, or may soon.
    health: HealthState,
}

/// The kinds of notices by name.
pub(crate) fn kind_of(code: &str) -> Option<NoticeKind> {
    NoticeKind::ALL.iter().copied().find(|kind| kind.code() == code)
}

/// Notices, newest first; perhaps of one kind.
pub(crate) async fn notices(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor", "kind"], &mut faults);
    let kind = call.query.read("kind", "a kind of notice", &mut faults, kind_of);
    let page = call.query.page::<8>(List::Notices, &mut faults)?;
    faults.check()?;
    let (before, limit) = (page.after.map(u64::from_be_bytes), page.limit);
    let examined = if kind.is_some() { PAGE_ROWS_EXAMINED } else { limit };
    let mut rows = call.read(move |view| view.notices(before, examined + 1)).await?;
    let mut more = rows.len() > examined;
    rows.truncate(examined);
    let mut last = rows.last().map(|(no, _)| *no);
    rows.retain(|(_, notice)| kind.is_none_or(|kind| kind == notice.kind));
    if rows.len() > limit {
        rows.truncate(limit);
        (more, last) = (true, rows.last().map(|(no, _)| *no));
    }
    let next_cursor = last.filter(|_| more).map(|no| cursor(List::Notices, &no.to_be_bytes()));
    let items = rows.into_iter().map(|(no, notice)| NoticeShown::of(call, no, notice)).collect();
    Ok(Answer::ok(&Listed { items, next_cursor }))
}

/// Breakers that are not closed, by tenant and destination. One that has just closed leaves its page shorter.
pub(crate) async fn breakers(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor"], &mut faults);
    let page = call.query.page_of_any(List::Breakers, &mut faults)?;
    faults.check()?;
    let (after, limit) = (page.after.map(|key| read_breaker_key(&key)).transpose()?, page.limit);
    let mut keys = call
        .read(move |view| {
            view.breakers(after.as_ref().map(|(tenant, destination)| (*tenant, destination.as_str())), limit + 1)
        })
        .await?;
    let more = keys.len() > limit;
    keys.truncate(limit);
    let next_cursor = keys.last().filter(|_| more).map(|key| cursor(List::Breakers, &breaker_key(key)));
    let asked = keys.iter().map(|key| (key.tenant, key.destination.clone())).collect();
    let Managed::Breakers(seen) = call.manage(Action::InspectBreakers(asked)).await? else { return Err(unexpected()) };
    let shown = seen.into_iter().filter_map(|seen| {
        let key = keys.iter().find(|key| (key.tenant, &key.destination) == (seen.tenant, &seen.destination))?;
        Some(OpenBreakerShown::of(call, key, seen))
    });
    Ok(Answer::ok(&Listed { items: shown.collect(), next_cursor }))
}

/// Subscriptions of all tenants, the unhealthy ones first and each part newest first. One whose health changes between two pages may be
/// met twice, or not at all.
pub(crate) async fn subscriptions(call: &Call) -> Result<Answer, Problem> {
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor", "tenant_id", "health"], &mut faults);
    let only = call.query.read("health", "healthy or unhealthy", &mut faults, wanted_of);
    let tenant = call.query.get("tenant_id").map(str::to_owned);
    let page = call.query.page::<5>(List::OfTenants, &mut faults)?;
    faults.check()?;
    let first = only.unwrap_or(Wanted::Unhealthy);
    let mut at = page.after.map_or(Some((first, None)), |key| read_place(key).map(|(part, no)| (part, Some(no))));
    let (mut items, mut examined) = (Vec::new(), 0);
    while let Some((part, below)) = at
        && items.len() < page.limit
        && examined < PAGE_SUBSCRIPTIONS_EXAMINED
    {
        let limit = page.limit - items.len();
        let examine = u32::try_from(PAGE_ROWS_EXAMINED).unwrap_or(u32::MAX);
        let action = Action::InspectHealth { wanted: part, below, limit, examine };
        let Managed::Healths { seen, next } = call.manage(action).await? else { return Err(unexpected()) };
        examined += PAGE_ROWS_EXAMINED;
        items.extend(seen.into_iter().filter_map(|(sub, lane)| of_tenant(call, sub, &lane, tenant.as_deref())));
        at = match (next, part, only) {
            (Some(no), _, _) => Some((part, Some(no))),
            (None, Wanted::Unhealthy, None) => Some((Wanted::Healthy, None)),
            (None, Wanted::Unhealthy, Some(_)) | (None, Wanted::Healthy, _) => None,
        };
    }
    let next_cursor = at.map(|(part, below)| cursor(List::OfTenants, &place(part, below)));
    Ok(Answer::ok(&Listed { items, next_cursor }))
}

/// The values of the filter `health`.
pub(crate) fn wanted_of(text: &str) -> Option<Wanted> {
    match text {
        "healthy" => Some(Wanted::Healthy),
        "unhealthy" => Some(Wanted::Unhealthy),
        _ => None,
    }
}

fn of_tenant(call: &Call, sub: SubNo, lane: &LaneState, tenant: Option<&str>) -> Option<OfTenantShown> {
    let subscription = call.parts().board.subscription(sub)?;
    if tenant.is_some_and(|tenant| tenant != subscription.tenant) {
        return None;
    }
    Some(OfTenantShown {
        tenant_id: subscription.tenant.clone(),
        subscription: SubscriptionShown::of(&subscription),
        healthy: !lane.is_unhealthy(&subscription),
        health: HealthState::of(call, &subscription, lane),
    })
}

// A part of the list, and below which number to go on in it; the largest number stands for its beginning.
fn place(part: Wanted, below: Option<SubNo>) -> [u8; 5] {
    let [a, b, c, d] = below.map_or(u32::MAX, |no| no.0).to_be_bytes();
    [u8::from(part == Wanted::Healthy), a, b, c, d]
}

fn read_place([part, number @ ..]: [u8; 5]) -> Option<(Wanted, SubNo)> {
    let part = if part == 0 { Wanted::Unhealthy } else { Wanted::Healthy };
    Some((part, SubNo(u32::from_be_bytes(number))))
}

fn breaker_key(key: &BreakerKey) -> Vec<u8> {
    [&key.tenant.0.to_be_bytes()[..], key.destination.as_bytes()].concat()
}

fn read_breaker_key(key: &[u8]) -> Result<(TenantNo, String), Problem> {
    let read = key.split_first_chunk::<4>().and_then(|(tenant, destination)| {
        Some((TenantNo(u32::from_be_bytes(*tenant)), String::from_utf8(destination.to_vec()).ok()?))
    });
    read.ok_or_else(Problem::bad_cursor)
}

impl NoticeShown {
    fn of(call: &Call, no: u64, notice: Notice) -> Self {
        let Notice { kind, tenant, subscription, subject, since, last_error, detail, at } = notice;
        Self {
            no,
            time: call.wall_of(at),
            kind: kind.code(),
            urgency: kind.urgency().name(),
            tenant_id: tenant,
            subscription_id: subscription.map(|id| id.to_string()),
            subject,
            since: call.wall_of(since),
            last_error,
            detail,
            action: kind.advice(),
        }
    }
}

impl OpenBreakerShown {
    fn of(call: &Call, key: &BreakerKey, seen: BreakerSeen) -> Self {
        let (state, next_probe) = breaker_state(call, seen.state);
        Self {
            tenant_id: key.tenant_name.clone(),
            destination: seen.destination,
            state,
            since: call.wall_of(seen.since),
            next_probe,
            shed: seen.shed,
            waiting: seen.waiting,
            subscriptions: seen.subscriptions,
            last_error: seen.last_error.map(|class| class.code()),
        }
    }
}
