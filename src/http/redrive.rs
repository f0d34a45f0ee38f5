//! A tenant's dead letters of one subscription: looked at, sent again and removed, one by one or by a filter (C6.5).
//!
//! Many at once are bulk work (see `replays`): begun here, worked on between other work, listed and cancelled there.

use crate::engine::command::{Action, DeadEnd, LetterEnd, Through};
use crate::error::FieldCode;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::dead_letters::{Audience, REASONS, RedrivenShown, show};
use crate::http::form::{Faults, Form};
use crate::http::idempotency::Ticket;
use crate::http::problem::Problem;
use crate::http::replays::{Wish, begin, period};
use crate::http::spec::event_types;
use crate::model::ids::{LogNo, Seq};
use crate::model::replay::DeadFilter;
use crate::model::subscription::Subscription;
use crate::store::view::DeadRow;
use http::StatusCode;

/// One dead letter with its last attempts.
pub(crate) async fn get(call: &Call) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let row = find(call, &subscription).await?;
    let shown = show(call, vec![row], Audience::Tenant).await?.pop().ok_or_else(Problem::not_found)?;
    Ok(Answer::ok(&shown))
}

/// Sends one dead letter again.
pub(crate) async fn redrive_one(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let body = call.json()?;
    let mut faults = Faults::default();
    Form::body(&body)?.only(&[], &[], &mut faults);
    faults.check()?;
    let DeadRow { sub, log, .. } = find(call, &subscription).await?;
    let answer = Answer::ok(&RedrivenShown { redriven: 1, more: false });
    let row = ticket.row(call, &answer)?;
    call.manage_remembering(Action::DeadLetter { sub, log, end: LetterEnd::Redrive }, row).await?;
    Ok(answer)
}

/// Removes one dead letter.
pub(crate) async fn purge_one(call: &Call) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let DeadRow { sub, log, .. } = find(call, &subscription).await?;
    call.manage(Action::DeadLetter { sub, log, end: LetterEnd::Purge }).await?;
    Ok(Answer::empty(StatusCode::NO_CONTENT))
}

/// Sends the dead letters again that pass a filter; without one, all.
pub(crate) async fn redrive_all(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let (wish, _) = read(call, DeadEnd::Redrive)?;
    begin(call, ticket, &subscription, wish).await
}

/// Removes the dead letters that pass a filter; all of them only when that is said.
pub(crate) async fn purge_all(call: &Call, ticket: &mut Ticket) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let (wish, narrowed) = read(call, DeadEnd::Purge)?;
    if !narrowed {
        let detail = "name which dead letters to remove: event_types, reason, since, until, or \"all\": true";
        return Err(Problem::field("", FieldCode::Required, detail));
    }
    begin(call, ticket, &subscription, wish).await
}

/// The filter, and whether it says anything.
fn read(call: &Call, end: DeadEnd) -> Result<(Wish, bool), Problem> {
    let body = call.json()?;
    let form = Form::body(&body)?;
    let mut faults = Faults::default();
    form.only(&["event_types", "reason", "since", "until", "all", "dry_run"], &[], &mut faults);
    let only = event_types(&form, "event_types", &mut faults).unwrap_or_default();
    let reason = form.choice("reason", &REASONS, &mut faults);
    let (died_from, died_to) = period(call, &form, &mut faults).unwrap_or_default();
    let all = form.flag("all", &mut faults).unwrap_or(false);
    let dry_run = form.flag("dry_run", &mut faults).unwrap_or(false);
    let which = DeadFilter { reason, died_from, died_to };
    let is_narrow = !only.is_empty() || which != DeadFilter::default();
    if all && is_narrow {
        faults.add(form.pointer("all"), FieldCode::Conflict, "all stands for no filter");
    }
    faults.check()?;
    Ok((Wish { through: Through::DeadLetters { end, which }, only, dry_run }, all || is_narrow))
}

async fn find(call: &Call, subscription: &Subscription) -> Result<DeadRow, Problem> {
    let seq: u64 = call.path_part()?;
    let (tenant, sub) = (subscription.tenant_no, subscription.no);
    let found = call.read(move |view| {
        let Some(log): Option<LogNo> = view.log_of(tenant, Seq(seq))? else { return Ok(None) };
        Ok(view.dead_letter(sub, log)?.map(|letter| DeadRow { sub, log, letter }))
    });
    found.await?.ok_or_else(Problem::not_found)
}
