//! Replays of a subscription: begun, listed, cancelled (C6.6, C8.5). Bulk work on dead letters is begun by its neighbour and shown here.
//!
//! Invariant: a replay's id and count are known before its commit, so its answer is remembered in that commit (A1.7): a repeated call
//! begins nothing twice, also after a crash.

use crate::engine::command::{Action, DeadEnd, Managed, NewReplay, Through};
use crate::engine::counting::{Countable, Counted, Counting, seqs_between};
use crate::engine::skip;
use crate::error::FieldCode;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::change::unexpected;
use crate::http::form::{Faults, Form};
use crate::http::idempotency::Ticket;
use crate::http::page::{List, Listed, cursor};
use crate::http::problem::Problem;
use crate::http::spec::event_types;
use crate::model::ids::{ReplayId, Seq};
use crate::model::replay::{DeadAction, DeadFilter, Filter, Replay, ReplayState, Work};
use crate::model::subscription::{EventPattern, Skipped, Subscription};
use crate::rules::matching::pattern_text;
use crate::time::{HubTime, Timestamp};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

/// What a call began, or would begin.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ReplayBegun)]
pub(crate) struct BegunShown {
    /// Its id; null of a dry run.
    #[schema(example = "rpl_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01")]
    id: Option<String>,
    /// What it does.
    #[schema(value_type = ReplayKindSchema)]
    kind: &'static str,
    /// Only counted, nothing begun.
    dry_run: bool,
    /// How many there are to do.
    count: u64,
    /// There are more than were counted.
    at_least: bool,
}

/// Bulk work on a subscription.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Replay)]
pub(crate) struct ReplayShown {
    /// Its id.
    #[schema(example = "rpl_0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01")]
    id: String,
    /// What it does.
    #[schema(value_type = ReplayKindSchema)]
    kind: &'static str,
    /// `running`, `done` or `cancelled`.
    #[schema(example = "running")]
    state: &'static str,
    /// How many there were to do when it was asked for.
    count: u64,
    /// There were more than were counted.
    at_least: bool,
    /// How many it has done: jobs made or made due, dead letters removed.
    done: u64,
    /// The first seq of its range; null of dead letters.
    from_seq: Option<u64>,
    /// The last seq of its range; null of dead letters.
    to_seq: Option<u64>,
    /// The next seq that it looks at; null of dead letters, and once it has ended.
    next_seq: Option<u64>,
    /// Only these event types; null: all that the subscription wanted when it was asked for.
    event_types: Option<Vec<String>>,
    /// Only dead letters of that reason.
    reason: Option<&'static str>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it ended.
    #[schema(value_type = Option<String>, format = DateTime)]
    ended_at: Option<Timestamp>,
}

/// The kinds of bulk work.
#[derive(ToSchema)]
#[schema(as = ReplayKind, rename_all = "snake_case")]
#[expect(dead_code, reason = "only a schema")]
pub(crate) enum ReplayKindSchema {
    /// A range of seqs or of time is sent.
    Range,
    /// What was skipped is sent.
    Skipped,
    /// Dead letters are sent and stay until that succeeds.
    DeadLetters,
    /// Dead letters become jobs with a new curve.
    Redrive,
    /// Dead letters are removed.
    Purge,
}

/// What is to be begun, checked.
#[derive(Debug)]
pub(crate) struct Wish {
    /// What it goes through.
    pub(crate) through: Through,
    /// Only these event types; empty: all.
    pub(crate) only: Vec<EventPattern>,
    /// Only count.
    pub(crate) dry_run: bool,
}

/// Begins a replay, or counts what it would send.
pub(crate) async fn start(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let body = call.json()?;
    let form = Form::body(&body)?;
    let mut faults = Faults::default();
    form.only(&FIELDS, &[], &mut faults);
    let only = event_types(&form, "event_types", &mut faults).unwrap_or_default();
    let dry_run = form.flag("dry_run", &mut faults).unwrap_or(false);
    let through = match chosen(&form, &mut faults) {
        Some(Chosen::Seqs) => seqs(call, &subscription, &form, &mut faults).await?,
        Some(Chosen::Times) => times(call, &subscription, &form, &mut faults).await?,
        Some(Chosen::Skipped) => Some(Through::Skipped { upto: newest(call, &subscription).await? }),
        Some(Chosen::DeadLetters) => Some(Through::DeadLetters { end: DeadEnd::Replay, which: DeadFilter::default() }),
        None => None,
    };
    faults.check()?;
    let Some(through) = through else { return Err(unexpected()) };
    begin(call, ticket, &subscription, Wish { through, only, dry_run }).await
}

/// Begins what was asked for, with the count of it.
pub(crate) async fn begin(
    call: &Call,
    ticket: &mut Ticket,
    subscription: &Subscription,
    wish: Wish,
) -> Result<Answer, Problem> {
    let if_revision = call.if_match(subscription.revision)?;
    let Wish { through, only, dry_run } = wish;
    let Counted { count, at_least } = count(call, subscription, &through, &only).await?;
    let id = (!dry_run).then(|| ReplayId(call.api.new_uuid()));
    let kind = match &through {
        Through::Events { .. } => "range",
        Through::Skipped { .. } => "skipped",
        Through::DeadLetters { end: DeadEnd::Replay, .. } => "dead_letters",
        Through::DeadLetters { end: DeadEnd::Redrive, .. } => "redrive",
        Through::DeadLetters { end: DeadEnd::Purge, .. } => "purge",
    };
    let shown = BegunShown { id: id.map(|id| id.to_string()), kind, dry_run, count, at_least };
    let answer = Answer::json(StatusCode::ACCEPTED, &shown);
    let Some(id) = id else { return Ok(answer) };
    let row = ticket.row(call, &answer)?;
    let replay = Box::new(NewReplay { id, through, only, count, at_least });
    let action = Action::StartReplay { tenant: call.tenant.clone(), id: subscription.id, if_revision, replay };
    call.manage_remembering(action, row).await?;
    Ok(answer)
}

/// Replays and other bulk work of a subscription, newest first.
pub(crate) async fn list(call: &Call) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let mut faults = Faults::default();
    call.query.only(&["limit", "cursor"], &mut faults);
    let page = call.query.page::<16>(List::Replays, &mut faults)?;
    faults.check()?;
    let (sub, before, limit) = (subscription.no, page.after.map(ReplayId), page.limit);
    let mut rows = call.read(move |view| view.replays_of(sub, before, limit + 1)).await?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let last = rows.last().filter(|_| more);
    let next_cursor = last.map(|replay| cursor(List::Replays, &replay.id.0));
    let items: Vec<_> = rows.iter().map(|replay| shown(call, replay)).collect();
    Ok(Answer::ok(&Listed { items, next_cursor }))
}

/// Cancels bulk work; one that has ended already stays as it is.
pub(crate) async fn cancel(call: &Call) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let replay = call.path_part()?;
    let action = Action::CancelReplay { tenant: call.tenant.clone(), id: subscription.id, replay };
    match call.manage(action).await? {
        Managed::Replay(_) => Ok(Answer::empty(StatusCode::NO_CONTENT)),
        Managed::Subscription { .. }
        | Managed::Deleted
        | Managed::Redriven(_)
        | Managed::ApiKey(_)
        | Managed::Done
        | Managed::Lane(_)
        | Managed::Breakers(_)
        | Managed::Healths { .. }
        | Managed::Hub(_) => Err(unexpected()),
    }
}

const FIELDS: [&str; 8] = ["from_seq", "to_seq", "since", "until", "dead_letters", "skipped", "event_types", "dry_run"];

/// Which of the four forms a replay has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    Seqs,
    Times,
    DeadLetters,
    Skipped,
}

/// The one form that was sent; every field of another one is a fault.
fn chosen(form: &Form<'_>, faults: &mut Faults) -> Option<Chosen> {
    let mut on = |name: &str| form.flag(name, faults) == Some(true) || form.get(name).is_some_and(|v| !v.is_boolean());
    let forms = [
        ("from_seq", form.get("from_seq").is_some(), Chosen::Seqs),
        ("to_seq", form.get("to_seq").is_some(), Chosen::Seqs),
        ("since", form.get("since").is_some(), Chosen::Times),
        ("until", form.get("until").is_some(), Chosen::Times),
        ("dead_letters", on("dead_letters"), Chosen::DeadLetters),
        ("skipped", on("skipped"), Chosen::Skipped),
    ];
    let mut sent = forms.iter().filter(|(_, is_there, _)| *is_there);
    let Some((first, _, chosen)) = sent.next() else {
        let detail = "say what to replay: from_seq and to_seq, or since and until, or \"dead_letters\": true, or \"skipped\": true";
        faults.add("", FieldCode::Required, detail);
        return None;
    };
    for (name, _, other) in sent {
        if other != chosen {
            faults.add(form.pointer(name), FieldCode::Conflict, format!("this does not go with {first}"));
        }
    }
    Some(*chosen)
}

/// A range of seqs; without an end, up to the newest.
async fn seqs(
    call: &Call,
    subscription: &Subscription,
    form: &Form<'_>,
    faults: &mut Faults,
) -> Result<Option<Through>, Problem> {
    let newest = newest(call, subscription).await?;
    form.required("from_seq", faults);
    let mut read = |name| {
        let seq = form.integer(name, 1..=(1 << 53) - 1, faults)?;
        if seq > newest.0 {
            let detail = format!("the tenant's newest event has seq {newest}");
            faults.add(form.pointer(name), FieldCode::OutOfRange, detail);
        }
        Some(Seq(seq))
    };
    let (from, to) = (read("from_seq"), read("to_seq"));
    if let (Some(from), Some(to)) = (from, to)
        && to < from
    {
        faults.add(form.pointer("to_seq"), FieldCode::Conflict, format!("this must be {from} or more, as from_seq is"));
    }
    Ok(from.map(|from| Through::Events { from, to: to.unwrap_or(newest) }))
}

/// A range of time, by when events were stored; without an end, up to now.
async fn times(
    call: &Call,
    subscription: &Subscription,
    form: &Form<'_>,
    faults: &mut Faults,
) -> Result<Option<Through>, Problem> {
    form.required("since", faults);
    let Some((since, until)) = period(call, form, faults) else { return Ok(None) };
    let (tenant, since) = (subscription.tenant_no, since.unwrap_or(HubTime(0)));
    let until = until.unwrap_or(HubTime(u64::MAX));
    let found = call.read(move |view| seqs_between(view, tenant, since, until)).await?;
    // Nothing was stored in that time: nothing to do, and no fault.
    let (from, to) = found.unwrap_or((Seq(1), Seq(0)));
    Ok(Some(Through::Events { from, to }))
}

/// `since` and `until` in hub time; none where one of them is wrong.
pub(crate) fn period(call: &Call, form: &Form<'_>, faults: &mut Faults) -> Option<(Option<HubTime>, Option<HubTime>)> {
    let now = call.wall();
    let mut wrong = false;
    let mut read = |name| {
        let text = form.text(name, 1..=64, faults);
        let at = text.and_then(Timestamp::parse);
        if text.is_some() && at.is_none() {
            let detail = "this must be a time like \"2026-11-30T12:00:00Z\"";
            faults.add(form.pointer(name), FieldCode::InvalidValue, detail);
        }
        wrong |= form.get(name).is_some() && at.is_none();
        at
    };
    let (since, until) = (read("since"), read("until"));
    if since.is_some_and(|since| since > now) {
        faults.add(form.pointer("since"), FieldCode::OutOfRange, "this must not be in the future");
        wrong = true;
    }
    if let (Some(since), Some(until)) = (since, until)
        && until < since
    {
        faults.add(form.pointer("until"), FieldCode::Conflict, "this must not be before since");
        wrong = true;
    }
    (!wrong).then(|| (since.map(|at| call.hub_of(at)), until.map(|at| call.hub_of(at))))
}

async fn newest(call: &Call, subscription: &Subscription) -> Result<Seq, Problem> {
    let tenant = subscription.tenant_no;
    call.read(move |view| view.last_seq(tenant)).await
}

async fn count(
    call: &Call,
    subscription: &Subscription,
    through: &Through,
    only: &[EventPattern],
) -> Result<Counted, Problem> {
    let filter = Filter::of(&subscription.spec);
    let (tenant, sub) = (subscription.tenant_no, subscription.no);
    let events = |stretches| Countable::Events { tenant, stretches, next: Seq(0), filter: filter.clone() };
    let countable = match *through {
        Through::Events { from, to } if to < from => return Ok(Counted { count: 0, at_least: false }),
        Through::Events { from, to } => events(vec![Skipped { from, to }]),
        Through::Skipped { upto } => {
            let noted = call.read(move |view| view.skipped(sub)).await?;
            events(skip::stretches(subscription, noted, upto))
        }
        Through::DeadLetters { end, which } => {
            let filter = (end == DeadEnd::Replay).then_some(filter);
            Countable::DeadLetters { sub, which, filter, after: None }
        }
    };
    let mut counting = Counting::of(countable, only.to_vec());
    loop {
        let (counted, going_on) = call.read(move |view| Ok((counting.go_on(view)?, counting))).await?;
        if let Some(counted) = counted {
            return Ok(counted);
        }
        counting = going_on;
    }
}

fn shown(call: &Call, replay: &Replay) -> ReplayShown {
    let range = match &replay.work {
        Work::Events { stretches, next, .. } => {
            let ends = stretches.first().zip(stretches.last());
            let next = stretches.first().map(|first| first.from.max(*next).0);
            ends.map(|(first, last)| (first.from.0, last.to.0, next.filter(|_| replay.ended_at.is_none())))
        }
        Work::DeadLetters { .. } => None,
    };
    let (kind, reason) = match &replay.work {
        Work::Events { skipped: false, .. } => ("range", None),
        Work::Events { skipped: true, .. } => ("skipped", None),
        Work::DeadLetters { action, which, .. } => {
            let kind = match action {
                DeadAction::Replay(_) => "dead_letters",
                DeadAction::Redrive => "redrive",
                DeadAction::Purge => "purge",
            };
            (kind, which.reason.map(|reason| reason.code()))
        }
    };
    ReplayShown {
        id: replay.id.to_string(),
        kind,
        state: match replay.state {
            ReplayState::Running => "running",
            ReplayState::Done => "done",
            ReplayState::Cancelled => "cancelled",
        },
        count: replay.count,
        at_least: replay.at_least,
        done: replay.done,
        from_seq: range.map(|(from, _, _)| from),
        to_seq: range.map(|(_, to, _)| to),
        next_seq: range.and_then(|(_, _, next)| next),
        event_types: (!replay.only.is_empty()).then(|| replay.only.iter().map(pattern_text).collect()),
        reason,
        created_at: call.wall_of(replay.asked_at),
        ended_at: replay.ended_at.map(|at| call.wall_of(at)),
    }
}
