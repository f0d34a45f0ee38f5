//! One allowed call, whole, on its way to the handler of its operation.

use crate::engine::command::{Action, IdempotencyRow, Manage, Managed};
use crate::error::Code;
use crate::http::answer::Answer;
use crate::http::auth::Identity;
use crate::http::outside::{ProbeSeen, TestSeen};
use crate::http::page::Query;
use crate::http::problem::Problem;
use crate::http::routes::{Op, Route, Takes};
use crate::http::spec::Asker;
use crate::http::{
    Api, Parts, admin, api_keys, change, create, dead_letters, events, idempotency, ingest, json, operator, redrive,
    replays, running, subscriptions,
};
use crate::model::ids::SubscriptionId;
use crate::model::subscription::{Sealed, Subscription};
use crate::secrets::Scope;
use crate::store::StoreError;
use crate::store::view::View;
use crate::time::{HubTime, Timestamp};
use bytes::Bytes;
use http::HeaderMap;
use http::header::IF_MATCH;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A call that its route allows.
#[derive(Debug)]
pub(crate) struct Call {
    /// The API that answers it.
    pub(crate) api: Arc<Api>,
    /// Its row.
    pub(crate) route: &'static Route,
    /// Who calls; none where everybody may.
    pub(crate) identity: Option<Identity>,
    /// The tenant it is about; empty outside `/v1`.
    pub(crate) tenant: Arc<str>,
    /// The path's parameters in their order.
    pub(crate) parameters: Vec<String>,
    /// The path.
    pub(crate) path: String,
    /// The query.
    pub(crate) query: Query,
    /// The headers.
    pub(crate) headers: HeaderMap,
    /// The body, whole.
    pub(crate) body: Bytes,
}

impl Call {
    /// Runs the handler of its operation; a repeated one that asks for it gets the first answer again (A1.7).
    pub(crate) async fn run(self) -> Result<Answer, Problem> {
        let mut ticket = match idempotency::begin(&self).await? {
            idempotency::Begun::Repeat(answer) => return Ok(answer),
            idempotency::Begun::First(ticket) => ticket,
        };
        let answer = match self.route.op {
            Op::Healthz => running::healthz(),
            Op::Readyz => running::readyz(&self),
            Op::Metrics => running::metrics(&self).await,
            Op::OpenApi => running::openapi(),
            Op::CreateSubscription => create::create(&self, &mut ticket).await,
            Op::ListSubscriptions => subscriptions::list(&self).await,
            Op::GetSubscription => subscriptions::get(&self).await,
            Op::PatchSubscription => change::patch(&self).await,
            Op::DeleteSubscription => change::delete(&self).await,
            Op::VerifySubscription => change::verify(&self).await,
            Op::RotateSecret => change::rotate_secret(&self, &mut ticket).await,
            Op::PauseSubscription => change::pause(&self).await,
            Op::ResumeSubscription => change::resume(&self).await,
            Op::TestSubscription => change::test(&self).await,
            Op::ListDeadLettersOf => dead_letters::list_of(&self).await,
            Op::GetDeadLetter => redrive::get(&self).await,
            Op::RedriveDeadLetter => redrive::redrive_one(&self, &mut ticket).await,
            Op::RedriveDeadLettersOf => redrive::redrive_all(&self, &mut ticket).await,
            Op::PurgeDeadLetter => redrive::purge_one(&self).await,
            Op::PurgeDeadLettersOf => redrive::purge_all(&self, &mut ticket).await,
            Op::StartReplay => replays::start(&self, &mut ticket).await,
            Op::ListReplays => replays::list(&self).await,
            Op::CancelReplay => replays::cancel(&self).await,
            Op::GetEvent => events::get(&self).await,
            Op::ListPoison => admin::poison(&self).await,
            Op::ListGaps => admin::gaps(&self).await,
            Op::ShowIngest => admin::ingest(&self).await,
            Op::ListDeadLetters => dead_letters::list_all(&self).await,
            Op::RedriveDeadLetters => dead_letters::redrive(&self).await,
            Op::ListNotices => operator::notices(&self).await,
            Op::ListBreakers => operator::breakers(&self).await,
            Op::ListAllSubscriptions => operator::subscriptions(&self).await,
            Op::ListApiKeys => api_keys::list(&self),
            Op::CreateApiKey => api_keys::create(&self, &mut ticket).await,
            Op::RevokeApiKey => api_keys::revoke(&self).await,
            Op::IngestEvent => ingest::ingest(&self).await,
        }?;
        ticket.remember(&self, &answer).await;
        Ok(answer)
    }

    /// What the API works with.
    pub(crate) fn parts(&self) -> &Parts {
        &self.api.parts
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        self.parts().clock.wall()
    }

    /// Hub time.
    pub(crate) fn hub_now(&self) -> HubTime {
        self.parts().hub_clock.now(&*self.parts().clock)
    }

    /// A moment of hub time as people read it: as far from now on the wall clock.
    pub(crate) fn wall_of(&self, at: HubTime) -> Timestamp {
        let (now, wall) = (self.hub_now(), self.wall());
        Timestamp(wall.0.saturating_add(at.since_ms(now)).saturating_sub(now.since_ms(at)))
    }

    /// A moment that people name, in hub time: the other way round.
    pub(crate) fn hub_of(&self, at: Timestamp) -> HubTime {
        let (now, wall) = (self.hub_now(), self.wall());
        HubTime(now.0.saturating_add(at.0.saturating_sub(wall.0)).saturating_sub(wall.0.saturating_sub(at.0)))
    }

    /// The body as JSON; `{}` where it may be absent and is.
    pub(crate) fn json(&self) -> Result<Value, Problem> {
        if self.body.is_empty() && self.route.takes == Takes::OptionalJson {
            return Ok(Value::Object(Map::new()));
        }
        json::parse(&self.body)
    }

    /// Has the writer do something.
    pub(crate) async fn manage(&self, action: Action) -> Result<Managed, Problem> {
        self.manage_remembering(action, None).await
    }

    /// Has the writer do something and remember the answer to it in the same commit.
    pub(crate) async fn manage_remembering(
        &self,
        action: Action,
        idempotency: Option<IdempotencyRow>,
    ) -> Result<Managed, Problem> {
        Ok(self.parts().writer.manage(Manage { action, idempotency }).await?)
    }

    /// Who asks, for what is read of a body.
    pub(crate) fn asker(&self) -> Asker<'_> {
        let parts = self.parts();
        let (destinations, envelope) = (&parts.settings.destinations, &*parts.envelope);
        Asker { tenant: &self.tenant, destinations, envelope, at: self.wall() }
    }

    /// Seals something of this tenant's.
    pub(crate) fn seal(&self, owner: &str, field: &'static str, clear: &[u8]) -> Result<Sealed, Problem> {
        let scope = Scope { tenant: &self.tenant, owner, field };
        self.parts().envelope.seal(scope, clear).map_err(|error| {
            tracing::error!(%error, "a secret could not be sealed");
            Problem::new(Code::Internal, "the hub failed; its log says why")
        })
    }

    /// Probes a destination, when there is room for another probe.
    pub(crate) async fn probe(&self, subscription: Arc<Subscription>) -> Result<ProbeSeen, Problem> {
        let _room = self.api.probes.acquire().await.map_err(|_| Problem::new(Code::Stopping, "the hub is stopping"))?;
        Ok(self.parts().prober.probe(subscription).await)
    }

    /// Sends a test event, when there is room for another one.
    pub(crate) async fn test(&self, subscription: Arc<Subscription>) -> Result<TestSeen, Problem> {
        let _room = self.api.probes.acquire().await.map_err(|_| Problem::new(Code::Stopping, "the hub is stopping"))?;
        Ok(self.parts().prober.test(subscription).await)
    }

    /// Reads the store, off the runtime's threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&View) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let reader = self.parts().reader.clone();
        match tokio::task::spawn_blocking(move || read(&reader.view()?)).await {
            Ok(result) => Ok(result?),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Problem::new(Code::Stopping, "the hub is stopping")),
        }
    }

    /// The id in the path; what is no id is nothing there is.
    pub(crate) fn path_id<T: std::str::FromStr>(&self) -> Result<T, Problem> {
        self.parameters.first().and_then(|text| text.parse().ok()).ok_or_else(Problem::not_found)
    }

    /// What the path names within that object; what cannot be read is nothing there is.
    pub(crate) fn path_part<T: std::str::FromStr>(&self) -> Result<T, Problem> {
        self.parameters.get(1).and_then(|text| text.parse().ok()).ok_or_else(Problem::not_found)
    }

    /// The tenant's subscription in the path, as last committed.
    pub(crate) fn subscription(&self) -> Result<Arc<Subscription>, Problem> {
        let id: SubscriptionId = self.path_id()?;
        self.parts().board.subscription_of(&self.tenant, id).ok_or_else(Problem::not_found)
    }

    /// The revision that `If-Match` wants, checked against the one there is (A1.8).
    pub(crate) fn if_match(&self, current: u64) -> Result<Option<u64>, Problem> {
        let mut values = self.headers.get_all(IF_MATCH).iter().peekable();
        if values.peek().is_none() {
            return Ok(None);
        }
        let tags = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim);
        // A weak tag never matches (RFC 9110, 13.1.1), and neither does one that we never gave.
        let wanted = format!("\"{current}\"");
        let mut found = None;
        for tag in tags {
            match tag {
                "*" => return Ok(None),
                tag if tag == wanted => found = Some(current),
                _ => {}
            }
        }
        match found {
            Some(revision) => Ok(Some(revision)),
            None => Err(Problem::new(Code::PreconditionFailed, "the object has changed since it was read")),
        }
    }
}
