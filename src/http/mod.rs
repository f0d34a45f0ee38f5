//! The HTTP API: one table of calls ([`routes::ROUTES`]), and one straight line from a request to its answer (`Api::answer`): id,
//! route, authentication, limits, bounded body, handler, problem mapping, log and metric.
//!
//! Invariant: nothing is done for a caller before the route's row has allowed it, and every failure on the way is a problem
//! document (A1.4), that of an unknown path and of a panicking handler too. A handler runs to its end even when its client
//! leaves, so no change is ever half done.

mod accepting;
mod admin;
mod answer;
mod api_keys;
mod attempt;
pub mod auth;
mod call;
mod change;
mod create;
mod crowd;
mod dead_letters;
mod destination;
#[cfg(feature = "fuzz-doors")]
pub mod doors;
mod events;
mod form;
mod health;
mod idempotency;
mod ingest;
mod inputs;
mod json;
mod listen;
mod negotiate;
pub mod openapi;
mod operator;
mod outside;
mod page;
mod problem;
mod redrive;
mod refused;
mod replays;
pub mod routes;
mod running;
mod shape;
mod spec;
mod subscriptions;
mod watch;

pub use auth::Tenancy;
pub use listen::{bind_tcp, bind_unix, serve, serve_unix};
pub use outside::{Answering, Check, CheckState, Facts, PartitionFacts, ProbeSeen, Prober, TestSeen};

use crate::engine::board::Board;
use crate::engine::command::Refusal;
use crate::entropy::Entropy;
use crate::error::Code;
use crate::http::answer::Answer;
use crate::http::auth::Identity;
use crate::http::call::Call;
use crate::http::idempotency::InProgress;
use crate::http::page::Query;
use crate::http::problem::Problem;
use crate::http::routes::{Access, Found, Route, Router, Verb};
use crate::metrics::Metrics;
use crate::model::limits::PROBES;
use crate::rules::address::AddressPolicy;
use crate::rules::classify;
use crate::secrets::Envelope;
use crate::store::view::Reader;
use crate::time::{Clock, HubClock};
use crate::writer::Writer;
use bytes::Bytes;
use http::header::{ALLOW, EXPECT, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// What the operator decides about the API.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which tenants there are.
    pub tenancy: Tenancy,
    /// Whether `/ingest` is turned on.
    pub ingest: Ingest,
    /// Who may read `/metrics`.
    pub metrics: MetricsAccess,
    /// What records must be like.
    pub records: classify::Policy,
    /// Where webhooks may go (C9.8).
    pub destinations: AddressPolicy,
    /// How long a rotated-out secret signs too (C9.2).
    pub secret_overlap: Duration,
    /// How long answers are remembered (A1.7).
    pub idempotency_ttl: Duration,
}

/// Whether events are taken over HTTP (C3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ingest {
    /// They are.
    On,
    /// They are not: the path answers 404.
    Off,
}

/// Who may read `/metrics` (A1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Nobody: the path answers 404.
    Off,
    /// Everybody.
    Public,
    /// Everybody from loopback; from elsewhere the operator and viewers.
    LoopbackOrKey,
    /// The operator and viewers: behind a proxy everybody comes from loopback.
    Key,
}

/// What the API works with.
pub struct Parts {
    /// The door to the writer.
    pub writer: Writer,
    /// Subscriptions and keys as last committed.
    pub board: Arc<Board>,
    /// The store, for readers.
    pub reader: Reader,
    /// Seals and opens secrets.
    pub envelope: Arc<Envelope>,
    /// Where requests are counted, and what `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Hub time over that clock.
    pub hub_clock: HubClock,
    /// Where ids come from; secrets come from the operating system.
    pub entropy: Mutex<Entropy>,
    /// Tries destinations.
    pub prober: Arc<dyn Prober>,
    /// What only the daemon knows.
    pub facts: Arc<dyn Facts>,
    /// What the operator decides.
    pub settings: Settings,
}

/// The API, shared by all listeners.
pub struct Api {
    parts: Parts,
    router: Router,
    in_progress: InProgress,
    handlers: TaskTracker,
    probes: Semaphore,
    last_uuid: Mutex<u128>,
    reads_only: AtomicBool,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    /// Somebody on the network.
    Tcp(SocketAddr),
    /// The same user or root, at the command socket.
    Socket,
}

impl Api {
    /// Over its parts.
    pub fn new(parts: Parts) -> Arc<Self> {
        let (router, in_progress, handlers) = (Router::new(), InProgress::default(), TaskTracker::new());
        let (probes, last_uuid) = (Semaphore::new(PROBES), Mutex::default());
        let reads_only = AtomicBool::new(false);
        Arc::new(Self { parts, router, in_progress, handlers, probes, last_uuid, reads_only })
    }

    /// From now on whatever would change something, or send something, is answered with 503: the hub is stopping (C13.2).
    pub fn stop_writes(&self) {
        self.reads_only.store(true, Ordering::Relaxed);
    }

    /// Waits until every handler has come to its end, those whose client has left too. To be called after the listeners ended.
    pub async fn finished(&self) {
        self.handlers.close();
        self.handlers.wait().await;
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.parts.metrics
    }

    /// Takes note of a request that was refused before there was one; the id of the answer to it.
    pub(crate) fn refused(&self, status: u16) -> String {
        let request_id = self.new_request_id();
        self.parts.metrics.http_request("unknown", status);
        tracing::debug!(%request_id, status, "what came was no request");
        request_id
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.parts.clock.clone()
    }

    /// Answers one request, whose body must be here at `due`, on the monotonic clock.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        peer: Peer,
        due: Duration,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        let began = self.parts.clock.monotonic();
        let (head, mut body) = request.into_parts();
        let request_id = negotiate::request_id(&head.headers).unwrap_or_else(|| self.new_request_id());
        let mut operation = "unknown";
        let result = self.work(peer, due, &head, &mut body, &mut operation).await;
        if !body.is_end_stream() {
            self.leave(&head.headers, body);
        }
        if let Err(problem) = &result {
            tracing::debug!(%request_id, operation, code = problem.code(), "a request was refused");
        }
        let mut answer = result.unwrap_or_else(|problem| problem.answer(&request_id));
        if let Ok(id) = HeaderValue::from_str(&request_id) {
            answer.set(X_REQUEST_ID, id);
        }
        let took = self.parts.clock.monotonic().saturating_sub(began);
        self.parts.metrics.http_request(operation, answer.status.as_u16());
        let status = answer.status.as_u16();
        tracing::debug!(%request_id, operation, status, took_us = took.as_micros(), "answered");
        answer.into_response()
    }

    async fn work(
        self: &Arc<Self>,
        peer: Peer,
        due: Duration,
        head: &http::request::Parts,
        body: &mut Incoming,
        operation: &mut &'static str,
    ) -> Result<Answer, Problem> {
        negotiate::check_size(&head.uri, &head.headers)?;
        negotiate::check_host(head.version, &head.headers)?;
        let (route, parameters) = self.route(&head.method, &head.uri)?;
        *operation = route.op.name();
        let identity = self.identify(route, peer, &head.headers)?;
        let tenant = match (route.access, &identity) {
            (Access::Tenant, Some(caller)) => auth::tenant(&self.parts.settings.tenancy, &caller.role, &head.headers)?,
            (
                Access::Tenant | Access::Open | Access::Metrics | Access::Admin | Access::Operator | Access::Ingest,
                _,
            ) => Arc::from(""),
        };
        if route.verb != Verb::Get && self.reads_only.load(Ordering::Relaxed) {
            return Err(Refusal::Stopping.into());
        }
        negotiate::check_types(route, &head.headers, body)?;
        let ceiling = route.takes.ceiling(self.parts.settings.records.max_body_bytes);
        let left = due.saturating_sub(self.parts.clock.monotonic());
        let body = negotiate::read_body(route, &head.headers, body, ceiling, left).await?;
        let call = Call {
            api: self.clone(),
            route,
            identity,
            tenant,
            parameters,
            path: head.uri.path().to_owned(),
            query: Query::parse(head.uri.query()),
            headers: head.headers.clone(),
            body,
        };
        // A task of its own: a client that leaves stops nothing half-way, and a panic ends here.
        match self.handlers.spawn(call.run()).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => {
                self.parts.metrics.http_panicked();
                tracing::error!(operation, "a handler panicked");
                Err(Problem::new(Code::Internal, "the hub failed; its log says where"))
            }
            Err(_) => Err(Problem::new(Code::Stopping, "the hub is stopping")),
        }
    }

    /// Lets go of a body that was not read. What the client still sends is read for a moment, so that closing does not take the
    /// answer with it; who waits to be told to send is not told.
    fn leave(&self, headers: &HeaderMap, body: Incoming) {
        if !headers.contains_key(EXPECT) {
            self.handlers.spawn(negotiate::drain(body));
        }
    }

    fn route(&self, method: &Method, uri: &Uri) -> Result<(&'static Route, Vec<String>), Problem> {
        match self.router.find(method, uri.path()) {
            Found::Row(route, parameters) => Ok((route, parameters)),
            Found::OtherMethods(allow) => {
                let problem = Problem::new(Code::MethodNotAllowed, format!("this path takes {allow}"));
                Err(match HeaderValue::from_str(&allow) {
                    Ok(allow) => problem.with_header(ALLOW, allow),
                    Err(_) => problem,
                })
            }
            Found::Unknown => Err(Problem::new(Code::NotFound, "there is no such path")),
        }
    }

    /// Who calls, where the route needs to know.
    fn identify(&self, route: &Route, peer: Peer, headers: &HeaderMap) -> Result<Option<Identity>, Problem> {
        let open = match route.access {
            Access::Open => true,
            Access::Metrics => self.metrics_are_open(peer),
            Access::Tenant | Access::Admin | Access::Operator | Access::Ingest => false,
        };
        if open {
            return Ok(None);
        }
        let identity = match peer {
            Peer::Socket => Identity::socket(),
            Peer::Tcp(_) => auth::authenticate(&self.parts.board, headers, self.parts.clock.wall())?,
        };
        auth::authorize(&identity.role, route.access)?;
        Ok(Some(identity))
    }

    fn metrics_are_open(&self, peer: Peer) -> bool {
        match (self.parts.settings.metrics, peer) {
            (MetricsAccess::Public | MetricsAccess::Off, _) => true,
            (MetricsAccess::LoopbackOrKey, Peer::Tcp(address)) => address.ip().to_canonical().is_loopback(),
            (MetricsAccess::LoopbackOrKey | MetricsAccess::Key, Peer::Socket) => true,
            (MetricsAccess::Key, Peer::Tcp(_)) => false,
        }
    }

    fn new_request_id(&self) -> String {
        uuid::Uuid::from_bytes(self.new_uuid()).hyphenated().to_string()
    }

    /// A new UUIDv7, above every one before it: lists are in the order of ids, also of those made in one millisecond.
    fn new_uuid(&self) -> [u8; 16] {
        let now = self.parts.clock.wall();
        let made = self.parts.entropy.lock().unwrap_or_else(PoisonError::into_inner).uuid_v7(now);
        let mut last = self.last_uuid.lock().unwrap_or_else(PoisonError::into_inner);
        // One more touches only the random end: 62 bits of it would have to be all ones to reach further.
        *last = u128::from_be_bytes(made).max(last.saturating_add(1));
        last.to_be_bytes()
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
