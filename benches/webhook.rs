//! What one webhook delivery costs the hub: CPU time of its own threads (not the receiver's), and memory against hostile receivers.
//!
//! `cargo bench --bench webhook` prints one JSON line for each way of delivering. The receivers are bare sockets on threads of their
//! own; the kernel's work for the hub's side of the sockets counts as the hub's, as it does in production.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench fails loudly and prints its figures")]

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, Generation, Seq, SubNo, SubscriptionId, TenantNo};
use streaming_hub::model::job::Cause;
use streaming_hub::model::subscription::{
    DeliveryOrder, Enabled, EventPattern, SIGNING_SECRET_FIELD, SignatureFormat, SigningSecrets, Sink, Spec, StartFrom,
    Subscription, Verification, WebhookSink,
};
use streaming_hub::net::dial::Dialler;
use streaming_hub::net::resolve::{Resolve, Resolving};
use streaming_hub::net::tls::Roots;
use streaming_hub::rules::address::{AddressPolicy, parse_sink_allow};
use streaming_hub::secrets::{Envelope, Kek, Scope};
use streaming_hub::sink::{Delivery, Settings, Sinks, TenantVisibility};
use streaming_hub::time::{Clock, SystemClock, Timestamp};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_rustls::TlsAcceptor;

const BODY_BYTES: usize = 771;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn main() {
    let authority = authority();
    let receivers = runtime("receiver", 1);
    for (name, tls, workers, at_once, deliveries) in [
        ("plain, one at a time", false, 1, 1, 50_000),
        ("plain, 64 at once", false, 1, 64, 100_000),
        ("plain, 200 at once, 2 threads", false, 2, 200, 100_000),
        ("TLS, 64 at once", true, 1, 64, 50_000),
    ] {
        let port = receivers.block_on(start(tls.then(|| acceptor(&authority)), Behaviour::Answer));
        let hub = runtime("hub", workers);
        let sinks = Arc::new(sinks(&authority.pem()));
        let scheme = if tls { "https" } else { "http" };
        let lanes: Vec<_> = (0..at_once).map(|n| delivery(n, &format!("{scheme}://receiver.test:{port}/"))).collect();
        // The first round opens the connections.
        hub.block_on(round(&sinks, &lanes, at_once * 20));
        let (cpu, clock) = (cpu_of("hub"), SystemClock::new());
        hub.block_on(round(&sinks, &lanes, deliveries));
        let (cpu, wall) = (cpu_of("hub") - cpu, clock.monotonic());
        println!(
            "{{\"bench\":\"webhook\",\"how\":\"{name}\",\"cpu_us\":{:.2},\"per_second\":{:.0}}}",
            cpu.as_secs_f64() * 1e6 / deliveries as f64,
            deliveries as f64 / wall.as_secs_f64(),
        );
    }
    for (name, tls, behaviour) in [
        ("silent", false, Behaviour::Silence),
        ("endless head", false, Behaviour::Endless(b"HTTP/1.1 200 OK\r\nX: ", b"y")),
        ("endless body", false, Behaviour::Endless(b"HTTP/1.1 500 No\r\n\r\n", b"x")),
        ("endless body, TLS", true, Behaviour::Endless(b"HTTP/1.1 500 No\r\n\r\n", b"x")),
        ("silent, TLS", true, Behaviour::Silence),
    ] {
        let attempts = 500;
        let port = receivers.block_on(start(tls.then(|| acceptor(&authority)), behaviour));
        let hub = runtime("hub", 1);
        let sinks = Arc::new(sinks(&authority.pem()));
        let scheme = if tls { "https" } else { "http" };
        let mut lanes: Vec<_> =
            (0..attempts).map(|n| delivery(n, &format!("{scheme}://receiver.test:{port}/"))).collect();
        let body = Bytes::from(vec![b'x'; 1 << 20]);
        for lane in &mut lanes {
            Arc::make_mut(&mut lane.event).body = body.clone();
            lane.timeout = Duration::from_secs(3);
        }
        let before = resident();
        let peak = hub.block_on(async {
            let round = tokio::spawn({
                let sinks = sinks.clone();
                async move { round(&sinks, &lanes, attempts).await }
            });
            let mut peak = before;
            while !round.is_finished() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                peak = peak.max(resident());
            }
            peak
        });
        let each = (peak - before) / attempts as u64;
        println!("{{\"bench\":\"webhook\",\"how\":\"{name}, {attempts} at once\",\"kib_per_attempt\":{}}}", each >> 10);
    }
}

/// So many deliveries over those lanes, one at a time in each.
async fn round(sinks: &Arc<Sinks>, lanes: &[Delivery], deliveries: usize) {
    let mut running = tokio::task::JoinSet::new();
    for lane in lanes {
        let (sinks, lane, count) = (sinks.clone(), lane.clone(), deliveries / lanes.len());
        running.spawn(async move {
            for _ in 0..count {
                sinks.deliver(&lane).await;
            }
        });
    }
    running.join_all().await;
}

#[derive(Clone, Copy)]
enum Behaviour {
    Answer,
    Silence,
    Endless(&'static [u8], &'static [u8]),
}

async fn start(tls: Option<TlsAcceptor>, behaviour: Behaviour) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tcp.set_nodelay(true).unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                // Peers leave as they like.
                let _ = match tls {
                    None => behave(tcp, behaviour).await,
                    Some(acceptor) => match acceptor.accept(tcp).await {
                        Ok(tls) => behave(tls, behaviour).await,
                        Err(error) => Err(error),
                    },
                };
            });
        }
    });
    port
}

async fn behave(mut stream: impl AsyncRead + AsyncWrite + Unpin, behaviour: Behaviour) -> std::io::Result<()> {
    let mut buffer = vec![0; 8 << 10];
    match behaviour {
        Behaviour::Answer => {
            let (mut have, mut whole) = (0, None);
            loop {
                let read = stream.read(&mut buffer[have..]).await?;
                if read == 0 {
                    return Ok(());
                }
                have += read;
                // All requests of a connection are of one length.
                let head = || buffer[..have].windows(4).position(|window| window == b"\r\n\r\n");
                whole = whole.or_else(|| head().map(|head| head + 4 + BODY_BYTES));
                if whole.is_some_and(|whole| have >= whole) {
                    stream.write_all(OK).await?;
                    have = 0;
                }
            }
        }
        Behaviour::Silence => loop {
            tokio::time::sleep(Duration::from_secs(60)).await;
        },
        Behaviour::Endless(head, rest) => {
            let rest = rest.repeat(4096);
            stream.write_all(head).await?;
            loop {
                stream.write_all(&rest).await?;
            }
        }
    }
}

fn runtime(name: &'static str, workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).thread_name(name).enable_all().build().unwrap()
}

/// CPU time of the threads of that name.
fn cpu_of(name: &str) -> Duration {
    let mut nanos = 0;
    for thread in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = thread.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).unwrap_or_default().trim() == name {
            let stat = std::fs::read_to_string(path.join("schedstat")).unwrap();
            nanos += stat.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    Duration::from_nanos(nanos)
}

/// Resident memory of the process.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn acceptor(authority: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["receiver.test".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap());
    TlsAcceptor::from(Arc::new(config.unwrap()))
}

struct Loopback;

impl Resolve for Loopback {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        Box::pin(async { Ok(vec![IpAddr::from([127, 0, 0, 1])]) })
    }
}

fn envelope() -> Envelope {
    Envelope::new(Kek::parse("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f").unwrap())
}

fn sinks(ca_pem: &str) -> Sinks {
    let rules = parse_sink_allow("127.0.0.0/8+plain").unwrap();
    let policy = AddressPolicy { rules, ports: (1024..=u16::MAX).rev().collect(), ..AddressPolicy::default() };
    let mut roots = Roots::none();
    roots.add_pem(ca_pem.as_bytes()).unwrap();
    let dialler = Arc::new(Dialler::new(Arc::new(policy), Arc::new(Loopback), roots).unwrap());
    let settings = Settings::new(TenantVisibility::Shown, Duration::from_secs(10));
    Sinks::new(Arc::new(envelope()), dialler, Arc::new(SystemClock::new()), settings).unwrap()
}

fn delivery(n: usize, url: &str) -> Delivery {
    static IDS: AtomicU64 = AtomicU64::new(0);
    let id = SubscriptionId(u128::from(IDS.fetch_add(1, Ordering::Relaxed)).to_be_bytes());
    let tenant = format!("tenant-{n}");
    let owner = id.to_string();
    let scope = Scope { tenant: &tenant, owner: &owner, field: SIGNING_SECRET_FIELD };
    let secret = b"whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let subscription = Subscription {
        no: SubNo(1),
        id,
        tenant_no: TenantNo(1),
        tenant: tenant.clone(),
        revision: 1,
        generation: Generation(1),
        spec: Spec {
            name: "bench".to_owned(),
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
        secrets: SigningSecrets { current: envelope().seal(scope, secret).unwrap(), previous: None },
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
    };
    let event = Event {
        id: "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01".parse().unwrap(),
        tenant: tenant.as_str().into(),
        source: "lender".into(),
        resource: "loan_application".into(),
        event: "approved".into(),
        time: "2025-08-01T12:00:00.5-03:00".into(),
        schema_version: "1.2.0".into(),
        schema_major: 1,
        subject: Some("loans/0198b0c2".into()),
        content_type: "application/json".into(),
        data_schema: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        tracestate: None,
        extensions: Vec::new(),
        body: Bytes::from(vec![b'x'; BODY_BYTES]),
    };
    Delivery {
        subscription: Arc::new(subscription),
        event: Arc::new(event),
        seq: Seq(41),
        delivery: DeliveryId([9; 16]),
        attempt: 1,
        cause: Cause::Match,
        timeout: Duration::from_secs(10),
    }
}
