//! Reading subscriptions: the list, and one with its health.

use crate::engine::command::{Action, LaneState, Managed, Wanted};
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::change::unexpected;
use crate::http::form::Faults;
use crate::http::health::WithHealth;
use crate::http::operator::wanted_of;
use crate::http::page::{List, Listed, cursor};
use crate::http::problem::Problem;
use crate::http::shape::{SubscriptionShown, VERIFICATIONS};
use crate::model::ids::{SubNo, SubscriptionId};
use crate::model::limits::{PAGE_ITEMS, PAGE_ROWS_EXAMINED};
use crate::model::subscription::{Enabled, Subscription, Verification};
use std::sync::Arc;

/// The tenant's subscriptions, newest first. A page that stopped early because few of many passed the filter says where to go on.
pub(crate) async fn list(call: &Call) -> Result<Answer, Problem> {
    let (filter, page) = {
        let mut faults = Faults::default();
        let filter = Filter::read(call, &mut faults);
        let page = call.query.page::<16>(List::Subscriptions, &mut faults)?;
        faults.check()?;
        (filter, page)
    };
    let mut before = page.after.map(SubscriptionId);
    let (mut items, mut examined) = (Vec::new(), 0);
    let next = loop {
        let rows = call.parts().board.subscriptions_of(&call.tenant, before, PAGE_ITEMS);
        let last_rows = rows.len() < PAGE_ITEMS;
        let mut full = false;
        for row in rows {
            if items.len() == page.limit {
                full = true;
                break;
            }
            examined += 1;
            before = Some(row.id);
            if filter.wants(&row) && filter.wants_health(call, &row).await? {
                items.push(SubscriptionShown::of(&row));
            }
        }
        if full || (examined >= filter.rows_examined() && !last_rows) {
            break before;
        }
        if last_rows {
            break None;
        }
    };
    let next_cursor = next.map(|id| cursor(List::Subscriptions, &id.0));
    Ok(Answer::ok(&Listed { items, next_cursor }))
}

/// One subscription with its health.
pub(crate) async fn get(call: &Call) -> Result<Answer, Problem> {
    let subscription = call.subscription()?;
    let lane = lane(call, subscription.no).await?;
    Ok(Answer::ok(&WithHealth::of(call, &subscription, &lane)).with_revision(subscription.revision))
}

/// What a list is narrowed to.
#[derive(Debug)]
struct Filter {
    enabled: Option<bool>,
    verification: Option<Verification>,
    sink: Option<String>,
    health: Option<Wanted>,
}

impl Filter {
    fn read(call: &Call, faults: &mut Faults) -> Self {
        let query = &call.query;
        query.only(&["limit", "cursor", "enabled", "verification_state", "sink", "health"], faults);
        Self {
            enabled: query.read("enabled", "true or false", faults, |text| text.parse().ok()),
            verification: query.read("verification_state", "pending or active", faults, |text| {
                VERIFICATIONS.iter().find(|(name, _)| *name == text).map(|(_, state)| *state)
            }),
            sink: query.read("sink", "webhook", faults, |text| (text == "webhook").then(|| text.to_owned())),
            health: query.read("health", "healthy or unhealthy", faults, wanted_of),
        }
    }

    /// The health of a lane is asked of the writer, one by one: fewer of those a page.
    fn rows_examined(&self) -> usize {
        if self.health.is_some() { PAGE_ITEMS } else { PAGE_ROWS_EXAMINED }
    }

    fn wants(&self, subscription: &Subscription) -> bool {
        self.enabled.is_none_or(|enabled| enabled == matches!(subscription.enabled, Enabled::Yes))
            && self.verification.is_none_or(|state| state == subscription.verification)
            && self.sink.as_deref().is_none_or(|kind| kind == subscription.spec.sink.kind())
    }

    async fn wants_health(&self, call: &Call, subscription: &Arc<Subscription>) -> Result<bool, Problem> {
        let Some(wanted) = self.health else { return Ok(true) };
        let unhealthy = lane(call, subscription.no).await?.is_unhealthy(subscription);
        Ok(unhealthy == (wanted == Wanted::Unhealthy))
    }
}

/// The state of a lane; one of a subscription that is just being removed is empty.
async fn lane(call: &Call, no: SubNo) -> Result<LaneState, Problem> {
    match call.manage(Action::InspectLane(no)).await? {
        Managed::Lane(lane) => Ok(lane),
        Managed::Subscription { .. }
        | Managed::Deleted
        | Managed::Redriven(_)
        | Managed::Replay(_)
        | Managed::ApiKey(_)
        | Managed::Done
        | Managed::Breakers(_)
        | Managed::Healths { .. }
        | Managed::Hub(_) => Err(unexpected()),
    }
}
