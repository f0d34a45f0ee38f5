//! A hub's API under test: the real server, writer and store, a scripted prober, and a client.

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streaming_hub::engine::board::Board;
use streaming_hub::engine::command::{Action, Admit, AdmitFrom, AdmitResult, Judged, Manage};
use streaming_hub::engine::{Counts, Engine, EngineSettings, ReplayPace};
use streaming_hub::entropy::Entropy;
use streaming_hub::http::auth::new_key;
use streaming_hub::http::{
    Answering, Api, Check, CheckState, Facts, Ingest, MetricsAccess, PartitionFacts, Parts, ProbeSeen, Prober,
    Settings, Tenancy, TestSeen, bind_unix, serve, serve_unix,
};
use streaming_hub::metrics::Metrics;
use streaming_hub::model::api_key::Role;
use streaming_hub::model::attempt::{AttemptRecord, ErrorClass};
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, EventId, KeyId, Seq};
use streaming_hub::model::job::{Claim, DeadReason, Outcome, Settle};
use streaming_hub::model::subscription::Subscription;
use streaming_hub::rules::address::AddressPolicy;
use streaming_hub::rules::autodisable::AutoDisablePolicy;
use streaming_hub::rules::backoff::Schedule;
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::rules::classify::Policy;
use streaming_hub::secrets::{Envelope, Kek};
use streaming_hub::store::disk::FileDisk;
use streaming_hub::store::{Birth, Store, StoreSettings};
use streaming_hub::time::{Clock, HubClock, HubTime, SystemClock, Timestamp};
use streaming_hub::writer::{self, Gate, Telling, Writer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A running API. Dropping it leaves the tasks to the test's runtime and the files to the temporary folder.
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    pub(crate) socket: PathBuf,
    pub(crate) prober: Arc<ScriptedProber>,
    pub(crate) facts: Arc<ScriptedFacts>,
    pub(crate) writer: Writer,
    pub(crate) stop: CancellationToken,
    pub(crate) operator: String,
    /// Where the writer is told what the disk allows.
    pub(crate) gate: Gate,
    claims: Mutex<mpsc::UnboundedReceiver<Claim>>,
    pub(crate) api: Arc<Api>,
    pub(crate) clock: Arc<JumpingClock>,
    ids: Mutex<Entropy>,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

/// The machine's clock, which a test may move forward.
pub(crate) struct JumpingClock {
    machine: SystemClock,
    ahead_ms: AtomicU64,
}

impl JumpingClock {
    pub(crate) fn jump(&self, seconds: u64) {
        self.ahead_ms.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn wall(&self) -> Timestamp {
        self.machine.wall()
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic() + Duration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) body: Value,
}

/// Answers probes and tests as a test says.
pub(crate) struct ScriptedProber {
    pub(crate) passes: Mutex<bool>,
    pub(crate) probed: Mutex<Vec<String>>,
    /// How many probes have begun.
    pub(crate) begun: AtomicUsize,
    /// While a test holds it, probes wait.
    pub(crate) gate: tokio::sync::Mutex<()>,
    pub(crate) panics: Mutex<bool>,
}

impl Prober for ScriptedProber {
    fn probe(&self, subscription: Arc<Subscription>) -> Answering<'_, ProbeSeen> {
        Box::pin(async move {
            self.begun.fetch_add(1, Ordering::SeqCst);
            let _open = self.gate.lock().await;
            assert!(!*self.panics.lock().unwrap(), "as the test wants it");
            self.probed.lock().unwrap().push(subscription.spec.sink.destination());
            let passed = *self.passes.lock().unwrap();
            let error = (!passed).then_some(ErrorClass::ServerError);
            let status = Some(if passed { 200 } else { 503 });
            ProbeSeen { passed, status, duration_ms: 7, tls: Some("TLSv1.3".to_owned()), error }
        })
    }

    fn test(&self, _: Arc<Subscription>) -> Answering<'_, TestSeen> {
        Box::pin(async {
            TestSeen { event_id: EventId([7; 16]), attempt: attempt(Some(503), Some(ErrorClass::ServerError)) }
        })
    }
}

/// Facts as a test says.
pub(crate) struct ScriptedFacts {
    pub(crate) checks: Mutex<Vec<Check>>,
    pub(crate) partitions: Mutex<Vec<PartitionFacts>>,
}

impl Facts for ScriptedFacts {
    fn checks(&self) -> Vec<Check> {
        self.checks.lock().unwrap().clone()
    }

    fn partitions(&self) -> Vec<PartitionFacts> {
        self.partitions.lock().unwrap().clone()
    }

    fn source(&self) -> &'static str {
        "connected"
    }
}

struct Silent;

impl Telling for Silent {
    fn committed(&self, _: &Counts, _: usize, _: Duration) {}
    fn suspended(&self, _: &streaming_hub::store::StoreError) {}
    fn ended_unstored(&self, _: &streaming_hub::store::StoreError) {}
    fn resumed(&self) {}
}

/// How a hub under test is set up.
pub(crate) fn settings(tenancy: Tenancy) -> Settings {
    Settings {
        tenancy,
        ingest: Ingest::On,
        metrics: MetricsAccess::LoopbackOrKey,
        records: Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false },
        destinations: AddressPolicy::default(),
        secret_overlap: Duration::from_secs(24 * 3600),
        idempotency_ttl: Duration::from_secs(24 * 3600),
    }
}

impl Hub {
    /// A hub of many tenants.
    pub(crate) async fn multi() -> Self {
        Self::start(settings(Tenancy::Multi)).await
    }

    /// A hub with the one tenant `default`.
    pub(crate) async fn single() -> Self {
        Self::start(settings(Tenancy::Single("default".into()))).await
    }

    pub(crate) async fn start(settings: Settings) -> Self {
        Self::start_for(settings, None).await
    }

    /// The same, with an engine that knows which tenant is the only one.
    pub(crate) async fn start_for(settings: Settings, only_tenant: Option<&str>) -> Self {
        // The client wants a provider even where it never speaks TLS; a second install is refused and harmless.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(JumpingClock { machine: SystemClock::new(), ahead_ms: AtomicU64::new(0) });
        let hub_clock = HubClock::start(HubTime(0), &*clock);
        let disk = Arc::new(FileDisk::take(&folder.path().join("data")).unwrap());
        let birth = Birth { store_id: [1; 16], delivery_key: [2; 32] };
        let kept = StoreSettings { cache_bytes: 8 << 20, quick_repair_above: 256 << 20 };
        let store = Store::open(disk, kept, &birth).unwrap();
        let (reader, board) = (store.reader(), Arc::new(Board::default()));
        let now = hub_clock.now(&*clock);
        let engine_settings = EngineSettings { only_tenant: only_tenant.map(Into::into), ..engine_settings() };
        let engine = Engine::open(store, board.clone(), engine_settings, Entropy::from_seed(1), now).unwrap();
        let (writer, running, claims) = writer::start(engine, clock.clone(), hub_clock, Arc::new(Silent)).unwrap();

        let prober = Arc::new(ScriptedProber {
            passes: Mutex::new(true),
            probed: Mutex::default(),
            begun: AtomicUsize::new(0),
            gate: tokio::sync::Mutex::default(),
            panics: Mutex::default(),
        });
        let ready = Check { name: "store", state: CheckState::Ok, detail: None };
        let facts = Arc::new(ScriptedFacts { checks: Mutex::new(vec![ready]), partitions: Mutex::default() });
        let api = Api::new(Parts {
            writer: writer.clone(),
            board,
            reader,
            envelope: Arc::new(Envelope::new(Kek::generate().unwrap())),
            metrics: Arc::new(Metrics::new()),
            clock: clock.clone(),
            hub_clock,
            entropy: Mutex::new(Entropy::from_os().unwrap()),
            prober: prober.clone(),
            facts: facts.clone(),
            settings,
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = folder.path().join("data/hub.sock");
        let stop = CancellationToken::new();
        tokio::spawn(serve(api.clone(), listener, None, stop.clone()));
        tokio::spawn(serve_unix(api.clone(), bind_unix(&socket).unwrap(), stop.clone()));
        let mut hub = Self {
            address,
            socket,
            prober,
            facts,
            writer,
            stop,
            operator: String::new(),
            gate: running.gate(),
            claims: Mutex::new(claims),
            api,
            clock,
            ids: Mutex::new(Entropy::from_seed(9)),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            _folder: folder,
        };
        hub.operator = hub.key(Role::Operator).await;
        hub
    }

    /// A new key of that role.
    pub(crate) async fn key(&self, role: Role) -> String {
        self.key_until(role, None).await.0
    }

    /// A new key that expires.
    pub(crate) async fn key_until(&self, role: Role, expires: Option<Timestamp>) -> (String, KeyId) {
        let id = KeyId(self.uuid());
        let random = std::array::from_fn(|at| id.0[at % 16] ^ at as u8);
        let (text, key) = new_key(id, &random, "a test's key", role, self.clock.wall(), expires);
        let action = Action::CreateApiKey(Box::new(key));
        self.writer.manage(Manage { action, idempotency: None }).await.unwrap();
        (text.reveal().to_owned(), id)
    }

    /// The key of a tenant.
    pub(crate) async fn tenant(&self, tenant: &str) -> String {
        self.key(Role::Tenant(tenant.to_owned())).await
    }

    fn uuid(&self) -> [u8; 16] {
        self.ids.lock().unwrap().uuid_v7(self.clock.wall())
    }

    /// A call with a key and perhaps a JSON body.
    pub(crate) async fn call(&self, method: &str, path: &str, key: &str, body: Option<&Value>) -> Answered {
        self.call_with(method, path, key, body, &[]).await
    }

    /// A call with more headers; an empty key is none.
    pub(crate) async fn call_with(
        &self,
        method: &str,
        path: &str,
        key: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answered {
        let mut request = self.request(method, path);
        if !key.is_empty() {
            request = request.bearer_auth(key);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
            request = request.header("content-type", kind).body(body.to_string());
        }
        read(request).await
    }

    /// Waits until so many probes have begun.
    pub(crate) async fn probes_begun(&self, count: usize) {
        while self.prober.begun.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    }

    /// A bare request.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    /// Makes a subscription to `https://<host>.example.com/hook` and answers it as it was created.
    pub(crate) async fn subscribe(&self, key: &str, host: &str) -> Value {
        let made = self.call("POST", "/v1/subscriptions", key, Some(&new_subscription(host))).await;
        assert_eq!(made.status, 201, "{}", made.text);
        made.body
    }

    /// The same, proven.
    pub(crate) async fn subscribe_active(&self, key: &str, host: &str) -> String {
        let id = self.subscribe(key, host).await["id"].as_str().unwrap().to_owned();
        let verified = self.call("POST", &format!("/v1/subscriptions/{id}/verify"), key, None).await;
        assert_eq!(verified.body["verification_state"], "active", "{}", verified.text);
        id
    }

    /// Stores an event of a tenant.
    pub(crate) async fn store(&self, tenant: &str, body: &str) -> (EventId, Seq) {
        let event = event(EventId(self.uuid()), tenant, body);
        let id = event.id;
        let admit = Admit { from: AdmitFrom::Http, records: vec![Judged::Event(Box::new(event))] };
        match self.writer.admit(admit).await.unwrap().results[..] {
            [AdmitResult::Stored { seq, .. }] => (id, seq),
            ref other => panic!("{other:?}"),
        }
    }

    /// Waits for the next claim and ends its job undelivered.
    pub(crate) async fn let_die(&self) {
        let claim = tokio::time::timeout(Duration::from_secs(20), self.next_claim()).await.unwrap();
        let outcome =
            Outcome::Hopeless { attempt: attempt(None, Some(ErrorClass::TooLarge)), reason: DeadReason::TooLarge };
        self.settle(&claim, outcome);
    }

    /// The next claim that the writer hands out.
    pub(crate) async fn next_claim(&self) -> Claim {
        std::future::poll_fn(|cx| self.claims.lock().unwrap().poll_recv(cx)).await.unwrap()
    }

    /// Says what became of a claimed job.
    pub(crate) fn settle(&self, claim: &Claim, outcome: Outcome) {
        self.writer.settle(Settle { claim: claim.no, key: claim.job.key, generation: claim.generation, outcome });
    }
}

/// A subscription to everything, at `https://<host>.example.com/hook`.
pub(crate) fn new_subscription(host: &str) -> Value {
    json!({
        "name": format!("to {host}"),
        "event_types": ["*"],
        "sink": {"kind": "webhook", "url": format!("https://{host}.example.com/hook")},
    })
}

/// Sends a request and reads its answer whole.
pub(crate) async fn read(request: reqwest::RequestBuilder) -> Answered {
    let answer = request.send().await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::Null);
    Answered { status, headers, text, body }
}

impl Answered {
    /// A header's text; empty where it is absent.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The pointers and codes of a 422's errors.
    pub(crate) fn faults(&self) -> BTreeMap<String, String> {
        let fault =
            |fault: &Value| (fault["pointer"].as_str().unwrap().to_owned(), fault["code"].as_str().unwrap().to_owned());
        self.body["errors"].as_array().map(|all| all.iter().map(fault).collect()).unwrap_or_default()
    }

    /// Checks that it is a problem document of that status and code.
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status, &self.body["code"]), (status, &json!(code)), "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["type"], format!("urn:streaming-hub:problem:{code}"));
        assert_eq!(self.body["request_id"], self.header("x-request-id"));
        assert!(!self.body["title"].as_str().unwrap().is_empty() && !self.body["detail"].as_str().unwrap().is_empty());
    }
}

pub(crate) fn attempt(status: Option<u16>, error: Option<ErrorClass>) -> AttemptRecord {
    let answer = b"no".to_vec();
    AttemptRecord {
        delivery: DeliveryId([3; 16]),
        at: Timestamp(1_700_000_000_000),
        duration_ms: 12,
        status,
        error,
        answer,
    }
}

fn event(id: EventId, tenant: &str, body: &str) -> Event {
    Event {
        id,
        tenant: tenant.into(),
        source: "lender".into(),
        resource: "loan_application".into(),
        event: "approved".into(),
        time: "2026-11-30T12:00:00.123456789Z".into(),
        schema_version: "1.0.0".into(),
        schema_major: 1,
        subject: Some("loan-1".into()),
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: None,
        tracestate: None,
        extensions: vec![("region".into(), "br".into())],
        body: body.to_owned().into(),
    }
}

fn engine_settings() -> EngineSettings {
    EngineSettings {
        slots: 64,
        claim_batch: 16,
        poison_threshold: 5,
        breaker: BreakerPolicy { failures: 5, cooling_ms: 30_000, cooling_max_ms: 600_000 },
        autodisable: AutoDisablePolicy::default(),
        schedule: Schedule::default_curve(),
        pending_max: 4_000_000,
        poison_max_bytes: 1 << 28,
        poison_retention_ms: 1 << 40,
        recent_bytes: 1 << 20,
        only_tenant: None,
        replay: ReplayPace::default(),
        planted: None,
    }
}
