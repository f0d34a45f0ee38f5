//! The hub's side of a delivery: sinks under a test's policy, a clock that stands still, and objects to deliver.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, Generation, Seq, SubNo, SubscriptionId, TenantNo};
use streaming_hub::model::job::Cause;
use streaming_hub::model::subscription::{
    DeliveryOrder, Enabled, EventPattern, SIGNING_SECRET_FIELD, Sealed, SignatureFormat, SigningSecrets, Sink, Spec,
    StartFrom, Subscription, Verification, WebhookSink,
};
use streaming_hub::net::dial::Dialler;
use streaming_hub::net::resolve::{Resolve, ResolveError, Resolving};
use streaming_hub::net::tls::Roots;
use streaming_hub::rules::address::{AddressPolicy, parse_sink_allow};
use streaming_hub::secrets::{Envelope, Kek, Scope};
use streaming_hub::sink::{Delivery, Met, Settings, Sinks, TenantVisibility};
use streaming_hub::time::{Clock, SystemClock, Timestamp};

/// The wall time at which every test's hub stands, unless it moves it.
pub(crate) const NOW: Timestamp = Timestamp(1_700_000_000_000);
/// A secret of the right form: the base64 of the bytes 0 to 31.
pub(crate) const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Another one: 32 bytes of 7.
pub(crate) const OLD_SECRET: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// A wall clock that a test sets; its monotonic side is the machine's.
pub(crate) struct SetClock {
    wall: AtomicU64,
    machine: SystemClock,
}

impl SetClock {
    pub(crate) fn set(&self, wall: Timestamp) {
        self.wall.store(wall.0, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        self.machine.monotonic()
    }
}

/// What a scripted name answers.
#[derive(Debug, Clone)]
pub(crate) enum Script {
    /// These, every time.
    Addresses(Vec<IpAddr>),
    /// The first list the first time, and so on; the last one stays.
    Changing(Vec<Vec<IpAddr>>),
    /// An error.
    Fails(ResolveError),
    /// Nothing, ever.
    Hangs,
}

/// Names by a script; counts how often it was asked.
#[derive(Default)]
pub(crate) struct ScriptedNames {
    names: Mutex<HashMap<String, Script>>,
    pub(crate) asked: AtomicUsize,
}

impl ScriptedNames {
    pub(crate) fn set(&self, name: &str, script: Script) {
        self.names.lock().unwrap().insert(name.to_owned(), script);
    }
}

impl Resolve for ScriptedNames {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let script = self.names.lock().unwrap().get(name).cloned();
        Box::pin(async move {
            match script {
                Some(Script::Addresses(all)) => Ok(all),
                Some(Script::Changing(lists)) => Ok(lists[asked.min(lists.len() - 1)].clone()),
                Some(Script::Fails(error)) => Err(error),
                Some(Script::Hangs) => std::future::pending().await,
                None => Err(ResolveError::Failed),
            }
        })
    }
}

/// A hub's sinks and what they stand on.
pub(crate) struct Hub {
    pub(crate) sinks: Sinks,
    pub(crate) names: Arc<ScriptedNames>,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) envelope: Arc<Envelope>,
}

/// How a test's hub is set up.
pub(crate) struct Setup<'a> {
    pub(crate) policy: AddressPolicy,
    pub(crate) visibility: TenantVisibility,
    pub(crate) ca_pem: Option<&'a str>,
}

impl Default for Setup<'_> {
    /// Multi-tenant, and every port of loopback is open.
    fn default() -> Self {
        Self { policy: open_policy(), visibility: TenantVisibility::Shown, ca_pem: None }
    }
}

impl Hub {
    pub(crate) fn new(setup: Setup<'_>) -> Self {
        let mut roots = Roots::none();
        if let Some(pem) = setup.ca_pem {
            roots.add_pem(pem.as_bytes()).unwrap();
        }
        let names = Arc::new(ScriptedNames::default());
        names.set("receiver.test", Script::Addresses(vec![IpAddr::from([127, 0, 0, 1])]));
        let clock = Arc::new(SetClock { wall: AtomicU64::new(NOW.0), machine: SystemClock::new() });
        let dialler = Arc::new(Dialler::new(Arc::new(setup.policy), names.clone(), roots).unwrap());
        let envelope = Arc::new(envelope());
        let settings = Settings::new(setup.visibility, Duration::from_secs(10));
        let sinks = Sinks::new(envelope.clone(), dialler, clock.clone(), settings).unwrap();
        Self { sinks, names, clock, envelope }
    }

    /// A live webhook subscription of tenant `acme` to that URL, signed with [`SECRET`].
    pub(crate) fn subscription(&self, url: &str) -> Subscription {
        let id = SubscriptionId([7; 16]);
        Subscription {
            no: SubNo(1),
            id,
            tenant_no: TenantNo(1),
            tenant: "acme".to_owned(),
            revision: 1,
            generation: Generation(1),
            spec: Spec {
                name: "test".to_owned(),
                description: None,
                event_types: vec![EventPattern::All],
                origin: None,
                schema_major: None,
                sink: Sink::Webhook(WebhookSink {
                    url: url.to_owned(),
                    headers: Vec::new(),
                    timeout_ms: None,
                    signature_format: SignatureFormat::Lerian,
                    client_certificate: None,
                }),
                start_from: StartFrom::Now,
                retry_schedule: None,
                verification_echo: true,
                delivery_order: DeliveryOrder::Fifo,
                max_in_flight: 1,
                rate_limit: None,
                metadata: BTreeMap::new(),
            },
            enabled: Enabled::Yes,
            verification: Verification::Active,
            started: true,
            unmatched_from: None,
            skipped: None,
            secrets: SigningSecrets { current: self.seal(id, SIGNING_SECRET_FIELD, SECRET), previous: None },
            created_at: NOW,
            updated_at: NOW,
        }
    }

    pub(crate) fn seal(&self, id: SubscriptionId, field: &'static str, text: &str) -> Sealed {
        self.seal_for("acme", id, field, text)
    }

    pub(crate) fn seal_for(&self, tenant: &str, id: SubscriptionId, field: &'static str, text: &str) -> Sealed {
        let owner = id.to_string();
        self.envelope.seal(Scope { tenant, owner: &owner, field }, text.as_bytes()).unwrap()
    }

    /// One delivery of [`event`] to that subscription, with a minute to do it.
    pub(crate) fn delivery(&self, subscription: Subscription) -> Delivery {
        Delivery {
            subscription: Arc::new(subscription),
            event: Arc::new(event()),
            seq: Seq(41),
            delivery: DeliveryId([9; 16]),
            attempt: 1,
            cause: Cause::Match,
            timeout: Duration::from_secs(60),
        }
    }

    /// Delivers [`event`] to that URL.
    pub(crate) async fn deliver(&self, url: &str) -> Met {
        self.sinks.deliver(&self.delivery(self.subscription(url))).await
    }
}

/// What a webhook subscription's sink says, to be changed.
pub(crate) fn webhook(subscription: &mut Subscription) -> &mut WebhookSink {
    match &mut subscription.spec.sink {
        Sink::Webhook(webhook) => webhook,
    }
}

/// An event of tenant `acme`.
pub(crate) fn event() -> Event {
    Event {
        id: "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01".parse().unwrap(),
        tenant: "acme".into(),
        source: "lender".into(),
        resource: "loan_application".into(),
        event: "approved".into(),
        time: "2025-08-01T12:00:00.5-03:00".into(),
        schema_version: "v1.2.0".into(),
        schema_major: 1,
        subject: None,
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: None,
        tracestate: None,
        extensions: Vec::new(),
        body: Bytes::from_static(br#"{"amount":10.50}"#),
    }
}

/// Loopback over IPv4, every port of it, plain or not; and public addresses as always.
pub(crate) fn open_policy() -> AddressPolicy {
    let rules = parse_sink_allow("127.0.0.0/8+plain").unwrap();
    AddressPolicy { rules, ports: (1024..=u16::MAX).collect(), ..AddressPolicy::default() }
}

fn envelope() -> Envelope {
    Envelope::new(Kek::parse("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f").unwrap())
}
