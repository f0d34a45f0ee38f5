//! The one table of calls: method, path, operation, who may, and what body. Authentication, limits, metric labels and the
//! OpenAPI document hang on it; what is not a row here does not exist.

use crate::model::limits::REQUEST_BODY_BYTES;
use http::Method;

/// A row of [`ROUTES`].
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The method.
    pub verb: Verb,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// What it does.
    pub op: Op,
    /// Who may.
    pub access: Access,
    /// What body it takes.
    pub takes: Takes,
}

/// The methods that the API uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Reads; answers `HEAD` as well.
    Get,
    /// Creates or acts.
    Post,
    /// Changes.
    Patch,
    /// Removes.
    Delete,
}

impl Verb {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }

    fn answers(self, method: &Method) -> bool {
        match self {
            Verb::Get => method == Method::GET || method == Method::HEAD,
            Verb::Post => method == Method::POST,
            Verb::Patch => method == Method::PATCH,
            Verb::Delete => method == Method::DELETE,
        }
    }
}

/// Who may make a call (A1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a key.
    Open,
    /// Everybody from loopback or where the setting says so; else the operator and viewers.
    Metrics,
    /// A tenant for itself, the operator for any.
    Tenant,
    /// The operator and viewers.
    Admin,
    /// The operator only.
    Operator,
    /// Ingest keys only.
    Ingest,
}

/// What body a call takes, and so which media types it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// None; one that comes is not read.
    Nothing,
    /// A JSON object.
    Json,
    /// A JSON object, or nothing where all of its fields may be absent.
    OptionalJson,
    /// A JSON merge patch (RFC 7396).
    MergePatch,
    /// The data of one event, in any media type (CloudEvents HTTP binding, binary mode).
    Event,
}

impl Takes {
    /// How long the body may be (A1.9). `event_bytes` is the record limit.
    pub fn ceiling(self, event_bytes: usize) -> usize {
        match self {
            Takes::Nothing => 0,
            Takes::Json | Takes::OptionalJson | Takes::MergePatch => REQUEST_BODY_BYTES,
            Takes::Event => event_bytes,
        }
    }
}

macro_rules! ops {
    ($($name:ident $text:literal $tag:literal $summary:literal,)*) => {
        /// What a call does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each stands with its summary in the table below")]
        pub enum Op { $($name,)* }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// Its name: `operationId` and metric label.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => $text,)* }
            }

            /// Its group in the OpenAPI document.
            pub fn tag(self) -> &'static str {
                match self { $(Op::$name => $tag,)* }
            }

            /// What it does, for people.
            pub fn summary(self) -> &'static str {
                match self { $(Op::$name => $summary,)* }
            }
        }
    };
}

ops! {
    Healthz "healthz" "running" "Whether the process is alive, also while it drains",
    Readyz "readyz" "running" "Whether the hub can do its work, check by check",
    Metrics "metrics" "running" "Metrics in the OpenMetrics text format",
    OpenApi "openapi" "running" "This document",
    CreateSubscription "create_subscription" "subscriptions" "Create a subscription; its signing secret is shown this once",
    ListSubscriptions "list_subscriptions" "subscriptions" "List the tenant's subscriptions, newest first",
    GetSubscription "get_subscription" "subscriptions" "One subscription with its health",
    PatchSubscription "patch_subscription" "subscriptions" "Change a subscription (JSON merge patch)",
    DeleteSubscription "delete_subscription" "subscriptions" "Delete a subscription with its jobs, dead letters and secrets",
    VerifySubscription "verify_subscription" "subscriptions" "Probe the destination; a passed probe makes it active again",
    RotateSecret "rotate_secret" "subscriptions" "Make a new signing secret, shown this once",
    PauseSubscription "pause_subscription" "subscriptions" "Switch a subscription off, reason paused",
    ResumeSubscription "resume_subscription" "subscriptions" "Switch a paused subscription on",
    TestSubscription "test_subscription" "subscriptions" "Send a marked test event now and show the attempt",
    ListDeadLettersOf "list_subscription_dead_letters" "dead letters" "A subscription's dead letters, newest event first",
    GetDeadLetter "get_subscription_dead_letter" "dead letters" "One dead letter with its last attempts",
    RedriveDeadLetter "redrive_subscription_dead_letter" "dead letters" "Send one dead letter again with a new retry curve",
    RedriveDeadLettersOf "redrive_subscription_dead_letters" "dead letters" "Send a subscription's dead letters again with a new retry curve",
    PurgeDeadLetter "purge_subscription_dead_letter" "dead letters" "Remove one dead letter",
    PurgeDeadLettersOf "purge_subscription_dead_letters" "dead letters" "Remove a subscription's dead letters",
    StartReplay "start_replay" "replays" "Send stored events to a subscription again, or for the first time",
    ListReplays "list_replays" "replays" "A subscription's replays and other bulk work, newest first",
    CancelReplay "cancel_replay" "replays" "Cancel a replay or other bulk work; what it queued already is still sent",
    GetEvent "get_event" "events" "A stored event and where it went",
    ListPoison "list_poison" "operator" "Quarantined records, newest first",
    ListGaps "list_gaps" "operator" "Stretches of partitions that were never read, newest first",
    ShowIngest "show_ingest" "operator" "Each partition: position, end, lag, last record, last error",
    ListDeadLetters "list_dead_letters" "operator" "Dead letters of all tenants",
    RedriveDeadLetters "redrive_dead_letters" "operator" "Send dead letters again with a new retry curve",
    ListNotices "list_notices" "operator" "What operators must know: what happened, since when, what to do; newest first",
    ListBreakers "list_breakers" "operator" "Breakers that are not closed, of all tenants",
    ListAllSubscriptions "list_all_subscriptions" "operator" "Subscriptions of all tenants, unhealthy ones first",
    ListApiKeys "list_api_keys" "operator" "API keys, newest first; never the keys themselves",
    CreateApiKey "create_api_key" "operator" "Make an API key, shown this once",
    RevokeApiKey "revoke_api_key" "operator" "Revoke an API key",
    IngestEvent "ingest_event" "ingest" "Store one event (CloudEvents HTTP binding, binary mode)",
}

const fn row(verb: Verb, path: &'static str, op: Op, access: Access, takes: Takes) -> Route {
    Route { verb, path, op, access, takes }
}

/// Every call of the API.
pub const ROUTES: &[Route] = &[
    row(Verb::Get, "/healthz", Op::Healthz, Access::Open, Takes::Nothing),
    row(Verb::Get, "/readyz", Op::Readyz, Access::Open, Takes::Nothing),
    row(Verb::Get, "/metrics", Op::Metrics, Access::Metrics, Takes::Nothing),
    row(Verb::Get, "/openapi.json", Op::OpenApi, Access::Open, Takes::Nothing),
    row(Verb::Post, "/v1/subscriptions", Op::CreateSubscription, Access::Tenant, Takes::Json),
    row(Verb::Get, "/v1/subscriptions", Op::ListSubscriptions, Access::Tenant, Takes::Nothing),
    row(Verb::Get, "/v1/subscriptions/{id}", Op::GetSubscription, Access::Tenant, Takes::Nothing),
    row(Verb::Patch, "/v1/subscriptions/{id}", Op::PatchSubscription, Access::Tenant, Takes::MergePatch),
    row(Verb::Delete, "/v1/subscriptions/{id}", Op::DeleteSubscription, Access::Tenant, Takes::Nothing),
    row(Verb::Post, "/v1/subscriptions/{id}/verify", Op::VerifySubscription, Access::Tenant, Takes::OptionalJson),
    row(Verb::Post, "/v1/subscriptions/{id}/rotate-secret", Op::RotateSecret, Access::Tenant, Takes::OptionalJson),
    row(Verb::Post, "/v1/subscriptions/{id}/pause", Op::PauseSubscription, Access::Tenant, Takes::OptionalJson),
    row(Verb::Post, "/v1/subscriptions/{id}/resume", Op::ResumeSubscription, Access::Tenant, Takes::OptionalJson),
    row(Verb::Post, "/v1/subscriptions/{id}/test", Op::TestSubscription, Access::Tenant, Takes::OptionalJson),
    row(Verb::Get, "/v1/subscriptions/{id}/dead-letters", Op::ListDeadLettersOf, Access::Tenant, Takes::Nothing),
    row(Verb::Get, "/v1/subscriptions/{id}/dead-letters/{seq}", Op::GetDeadLetter, Access::Tenant, Takes::Nothing),
    row(Verb::Delete, "/v1/subscriptions/{id}/dead-letters/{seq}", Op::PurgeDeadLetter, Access::Tenant, Takes::Nothing),
    row(
        Verb::Post,
        "/v1/subscriptions/{id}/dead-letters/{seq}/redrive",
        Op::RedriveDeadLetter,
        Access::Tenant,
        Takes::OptionalJson,
    ),
    row(
        Verb::Post,
        "/v1/subscriptions/{id}/dead-letters/redrive",
        Op::RedriveDeadLettersOf,
        Access::Tenant,
        Takes::OptionalJson,
    ),
    row(Verb::Post, "/v1/subscriptions/{id}/dead-letters/purge", Op::PurgeDeadLettersOf, Access::Tenant, Takes::Json),
    row(Verb::Post, "/v1/subscriptions/{id}/replay", Op::StartReplay, Access::Tenant, Takes::Json),
    row(Verb::Get, "/v1/subscriptions/{id}/replays", Op::ListReplays, Access::Tenant, Takes::Nothing),
    row(Verb::Delete, "/v1/subscriptions/{id}/replays/{replay}", Op::CancelReplay, Access::Tenant, Takes::Nothing),
    row(Verb::Get, "/v1/events/{ceId}", Op::GetEvent, Access::Tenant, Takes::Nothing),
    row(Verb::Get, "/admin/poison", Op::ListPoison, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/gaps", Op::ListGaps, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/ingest", Op::ShowIngest, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/dead-letters", Op::ListDeadLetters, Access::Admin, Takes::Nothing),
    row(Verb::Post, "/admin/dead-letters/redrive", Op::RedriveDeadLetters, Access::Operator, Takes::Json),
    row(Verb::Get, "/admin/notices", Op::ListNotices, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/breakers", Op::ListBreakers, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/subscriptions", Op::ListAllSubscriptions, Access::Admin, Takes::Nothing),
    row(Verb::Get, "/admin/api-keys", Op::ListApiKeys, Access::Admin, Takes::Nothing),
    row(Verb::Post, "/admin/api-keys", Op::CreateApiKey, Access::Operator, Takes::Json),
    row(Verb::Delete, "/admin/api-keys/{id}", Op::RevokeApiKey, Access::Operator, Takes::Nothing),
    row(Verb::Post, "/ingest/events", Op::IngestEvent, Access::Ingest, Takes::Event),
];

/// Finds rows by path.
#[derive(Debug)]
pub(crate) struct Router {
    paths: matchit::Router<Vec<&'static Route>>,
}

/// What a path and a method lead to.
#[derive(Debug)]
pub(crate) enum Found {
    /// A row, with the path's parameters in their order.
    Row(&'static Route, Vec<String>),
    /// The path is known and takes only these methods.
    OtherMethods(String),
    /// No such path.
    Unknown,
}

impl Router {
    /// Over all of [`ROUTES`].
    pub(crate) fn new() -> Self {
        let mut paths: matchit::Router<Vec<&'static Route>> = matchit::Router::new();
        for route in ROUTES {
            match paths.at_mut(route.path) {
                Ok(at) if at.value.iter().any(|same| same.path == route.path) => at.value.push(route),
                Ok(_) | Err(_) => {
                    // A conflict shows in the test below, which finds each row by its own path.
                    let _ = paths.insert(route.path, vec![route]);
                }
            }
        }
        Self { paths }
    }

    /// Where a request goes.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found {
        let Ok(at) = self.paths.at(path) else { return Found::Unknown };
        if let Some(route) = at.value.iter().find(|route| route.verb.answers(method)) {
            return Found::Row(route, at.params.iter().map(|(_, value)| value.to_owned()).collect());
        }
        let mut allow: Vec<&str> = at.value.iter().map(|route| route.verb.name()).collect();
        if allow.contains(&"GET") {
            allow.push("HEAD");
        }
        Found::OtherMethods(allow.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_path() {
        let router = Router::new();
        for route in ROUTES {
            let path = route.path.replace(['{', '}'], "");
            let method: Method = route.verb.name().parse().unwrap();
            match router.find(&method, &path) {
                Found::Row(found, parameters) => {
                    assert_eq!((found.op, found.path), (route.op, route.path));
                    let named: Vec<&str> = route.path.split(['{', '}']).skip(1).step_by(2).collect();
                    assert_eq!(parameters, named, "{}", route.path);
                }
                other => panic!("{} {}: {other:?}", route.verb.name(), route.path),
            }
        }
        for op in Op::ALL {
            assert_eq!(ROUTES.iter().filter(|route| route.op == *op).count(), 1, "{op:?} needs exactly one row");
        }
    }

    // A1.11
    #[test]
    fn other_methods_are_told_what_is_allowed() {
        let router = Router::new();
        for (method, path, allow) in [
            ("PUT", "/v1/subscriptions", "POST, GET, HEAD"),
            ("POST", "/v1/subscriptions/sub_1", "GET, PATCH, DELETE, HEAD"),
            ("TRACE", "/healthz", "GET, HEAD"),
            ("GET", "/ingest/events", "POST"),
            ("get", "/healthz", "GET, HEAD"),
        ] {
            match router.find(&method.parse().unwrap(), path) {
                Found::OtherMethods(found) => assert_eq!(found, allow, "{method} {path}"),
                other => panic!("{method} {path}: {other:?}"),
            }
        }
        for path in ["/", "", "/v1", "/v1/subscriptions/", "/v1/subscriptions//verify", "/V1/subscriptions", "*"] {
            assert!(matches!(router.find(&Method::GET, path), Found::Unknown), "{path}");
        }
        assert!(matches!(router.find(&Method::HEAD, "/healthz"), Found::Row(..)));
    }
}
