//! Connections: TLS and HTTP/2, reuse, the one resend, addresses, and being dropped (C9.8, C9.9, C9.5).

use crate::receivers::https::{Authority, Receiver, server_tls};
use crate::receivers::hub::{Hub, Script, Setup, open_policy, webhook};
use crate::receivers::script::Scripted;
use bytes::Bytes;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::ids::DeliveryId;
use streaming_hub::model::subscription::{CLIENT_KEY_FIELD, ClientCertificate, SIGNING_SECRET_FIELD};
use streaming_hub::rules::address::AddressPolicy;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

const OK: &str = "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n";

struct Https {
    authority: Arc<Authority>,
    hub: Hub,
}

impl Https {
    fn new() -> Self {
        let authority = Arc::new(Authority::new());
        let hub = Hub::new(Setup { ca_pem: Some(&authority.pem()), ..Setup::default() });
        Self { authority, hub }
    }

    async fn receiver(&self, alpn: &[&str]) -> Receiver {
        Receiver::ok(Some(server_tls(&self.authority.certificate(&["receiver.test"]), alpn, None))).await
    }

    async fn scripted(&self, script: &str) -> Scripted {
        Scripted::start(script, &self.authority).await
    }
}

// C9.9
#[tokio::test]
async fn over_tls_the_receiver_chooses_the_protocol_and_connections_are_kept() {
    let world = Https::new();
    for (alpn, version) in [
        (&["h2", "http/1.1"][..], http::Version::HTTP_2),
        (&["http/1.1"], http::Version::HTTP_11),
        (&["http/1.1", "h2"], http::Version::HTTP_11),
        (&[], http::Version::HTTP_11),
    ] {
        let mut receiver = world.receiver(alpn).await;
        let url = format!("https://receiver.test:{}/hook?a=1", receiver.address.port());
        let mut connections = Vec::new();
        for _ in 0..3 {
            let met = world.hub.deliver(&url).await;
            assert_eq!((met.status, met.error), (Some(200), None), "{alpn:?}");
            let got = receiver.next().await;
            assert_eq!((got.version, got.uri.path_and_query().unwrap().as_str()), (version, "/hook?a=1"));
            assert_eq!(got.one("x-lerian-event-type"), "loan_application.approved");
            assert_eq!(got.one("content-length"), "16");
            connections.push(got.from);
        }
        connections.dedup();
        assert_eq!(connections.len(), 1, "one connection for all, {alpn:?}");
    }
}

// C9.5, C9.9
#[tokio::test]
async fn large_and_empty_bodies_arrive_whole_over_every_protocol() {
    let world = Https::new();
    let large: Vec<u8> = (0..3_000_001_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    for body in [Bytes::new(), Bytes::from(large)] {
        for alpn in [None, Some("http/1.1"), Some("h2")] {
            let mut receiver = match alpn {
                None => Receiver::ok(None).await,
                Some(alpn) => world.receiver(&[alpn]).await,
            };
            let scheme = if alpn.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://receiver.test:{}/", receiver.address.port());
            let mut made = world.hub.delivery(world.hub.subscription(&url));
            Arc::make_mut(&mut made.event).body = body.clone();
            assert_eq!(world.hub.sinks.deliver(&made).await.status, Some(200), "{alpn:?}");
            let got = receiver.next().await;
            assert!(got.body == body, "{alpn:?}, {} bytes", body.len());
            assert_eq!(got.one("content-length"), body.len().to_string());
        }
    }
}

// C5.5, C9.9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_at_once_share_one_http2_connection_once_it_is_known() {
    let world = Https::new();
    let hub = Arc::new(world.hub);
    let tls = server_tls(&world.authority.certificate(&["receiver.test"]), &["h2"], None);
    let mut receiver = Receiver::ok(Some(tls)).await;
    let url = format!("https://receiver.test:{}/", receiver.address.port());
    assert_eq!(hub.deliver(&url).await.status, Some(200));
    let first = receiver.next().await.from;
    let mut running = JoinSet::new();
    for _ in 0..50 {
        let (hub, url) = (hub.clone(), url.clone());
        running.spawn(async move { hub.deliver(&url).await.status });
    }
    assert!(running.join_all().await.iter().all(|status| *status == Some(200)));
    for _ in 0..50 {
        assert_eq!(receiver.next().await.from, first);
    }
}

// C9.8: two tenants never share a connection.
#[tokio::test]
async fn each_tenant_has_its_own_connections() {
    let hub = Hub::new(Setup::default());
    let mut receiver = Receiver::ok(None).await;
    let url = format!("http://127.0.0.1:{}/", receiver.address.port());
    let mut connections = Vec::new();
    for tenant in ["acme", "globex", "acme"] {
        let mut to = hub.subscription(&url);
        to.tenant = tenant.to_owned();
        to.secrets.current = hub.seal_for(tenant, to.id, SIGNING_SECRET_FIELD, "s");
        assert_eq!(hub.sinks.deliver(&hub.delivery(to)).await.status, Some(200));
        connections.push(receiver.next().await.from);
    }
    assert_eq!(connections[0], connections[2]);
    assert_ne!(connections[0], connections[1]);
}

/// Delivers so many times, each with its own delivery id; what each met.
async fn deliveries(hub: &Hub, receiver: &Scripted, count: u8) -> Vec<Result<u16, ErrorClass>> {
    let to = hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port()));
    let mut made = hub.delivery(to);
    let mut all = Vec::new();
    for n in 1..=count {
        made.delivery = DeliveryId([n; 16]);
        let met = hub.sinks.deliver(&made).await;
        all.push(met.error.map_or_else(|| Ok(met.status.unwrap()), Err));
    }
    all
}

// C9.9: the keep-alive race.
#[tokio::test]
async fn a_reset_on_a_reused_connection_is_sent_once_more_and_only_then() {
    let world = Https::new();
    let reset = ErrorClass::Reset;
    for (script, met, sent, connections) in [
        // The second request meets a reset before any byte: once more, on a new connection.
        (format!("{OK} | read | reset || {OK} | hold"), vec![Ok(200), Ok(200)], vec![1, 2, 2], 2),
        (format!("{OK} | read | close || {OK} | hold"), vec![Ok(200), Ok(200)], vec![1, 2, 2], 2),
        // Only once more.
        (format!("{OK} | read | reset || read | reset"), vec![Ok(200), Err(reset)], vec![1, 2, 2], 2),
        // Not after the first byte of an answer.
        (format!("{OK} | read | send H | reset || {OK} | hold"), vec![Ok(200), Err(reset)], vec![1, 2], 1),
        // Not on a connection that was new.
        (format!("read | reset || {OK} | hold"), vec![Err(reset), Ok(200)], vec![1, 2], 2),
        // The receiver says that it closes, and does.
        (
            "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n | close".to_owned(),
            vec![Ok(200), Ok(200), Ok(200)],
            vec![1, 2, 3],
            3,
        ),
        // An answer that is longer than it said: its tail is not taken for the next answer.
        (
            "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\nHTTP/1.1 500 Forged\\r\\n\\r\\n | hold"
                .to_owned(),
            vec![Ok(200), Ok(200)],
            vec![1, 2],
            2,
        ),
    ] {
        let mut receiver = world.scripted(&script).await;
        let count = u8::try_from(met.len()).unwrap();
        assert_eq!(deliveries(&world.hub, &receiver, count).await, met, "{script}");
        for delivery in &sent {
            let id = DeliveryId([*delivery; 16]).to_string();
            let request = receiver.next().await;
            assert!(request.contains(&format!("X-Lerian-Delivery-Id: {id}\r\n")), "{script}: {request}");
        }
        assert!(receiver.requests.try_recv().is_err(), "{script}: no further request");
        assert_eq!(receiver.connections(), connections, "{script}");
    }
}

// C9.9: a resting connection that its receiver closed in the meantime costs nothing.
#[tokio::test]
async fn a_resting_connection_that_was_closed_is_not_used() {
    let world = Https::new();
    let mut receiver = world.scripted(&format!("{OK} | close || {OK} | hold")).await;
    assert_eq!(deliveries(&world.hub, &receiver, 1).await, [Ok(200)]);
    receiver.ended(1).await;
    assert_eq!(deliveries(&world.hub, &receiver, 1).await, [Ok(200)]);
    assert_eq!((receiver.connections(), receiver.requests.len()), (2, 2));
}

// C9.5: a receiver that answers before it has read everything has answered.
#[tokio::test]
async fn an_early_refusal_of_a_large_body_is_understood() {
    let world = Https::new();
    let receiver =
        world.scripted("take 100 | send HTTP/1.1 413 Too Large\\r\\nContent-Length: 0\\r\\n\\r\\n | hold").await;
    let mut made =
        world.hub.delivery(world.hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port())));
    Arc::make_mut(&mut made.event).body = vec![b'x'; 16 << 20].into();
    let met = world.hub.sinks.deliver(&made).await;
    assert_eq!((met.status, met.error), (Some(413), None));
}

// C5.5, C9.5: dropped in the middle, an attempt leaves nothing behind, and the next one starts afresh.
#[tokio::test]
async fn a_dropped_attempt_closes_its_connection() {
    let world = Https::new();
    let mut receiver = world.scripted(&format!("read | hold || {OK} | hold")).await;
    let made = world.hub.delivery(world.hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port())));
    tokio::select! {
        met = world.hub.sinks.deliver(&made) => panic!("{met:?}"),
        _ = receiver.next() => {}
    }
    receiver.ended(1).await;
    assert_eq!(world.hub.sinks.deliver(&made).await.status, Some(200));
}

// C9.5: a peer that has gone without a word does not hold the next attempt on the same HTTP/2 connection.
#[tokio::test]
async fn a_silent_http2_connection_is_not_used_again() {
    let world = Https::new();
    let tls = server_tls(&world.authority.certificate(&["receiver.test"]), &["h2"], None);
    let mut receiver = Receiver::start(Some(tls), |got| (got.uri.path() == "/ok").then(http::Response::default)).await;
    let url = |path| format!("https://receiver.test:{}/{path}", receiver.address.port());
    assert_eq!(world.hub.deliver(&url("ok")).await.status, Some(200));
    let mut made = world.hub.delivery(world.hub.subscription(&url("hang")));
    made.timeout = Duration::from_millis(300);
    let hung = world.hub.sinks.deliver(&made).await;
    assert_eq!((hung.status, hung.error), (None, Some(ErrorClass::Timeout)));
    assert_eq!(world.hub.deliver(&url("ok")).await.status, Some(200));
    let mut from = Vec::new();
    for _ in 0..3 {
        from.push(receiver.next().await.from);
    }
    assert_eq!(from[0], from[1], "shared while it answered");
    assert_ne!(from[1], from[2], "not after it was silent");
}

// C9.9
#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_set() {
    let world = Https::new();
    let clients = Authority::new();
    let client = clients.certificate(&["tenant.test"]);
    for alpn in ["http/1.1", "h2"] {
        let tls = server_tls(&world.authority.certificate(&["receiver.test"]), &[alpn], Some(&clients));
        let mut receiver = Receiver::ok(Some(tls)).await;
        let url = format!("https://receiver.test:{}/", receiver.address.port());
        let mut to = world.hub.subscription(&url);
        assert_eq!(world.hub.deliver(&url).await.error, Some(ErrorClass::Tls), "none is set, {alpn}");
        webhook(&mut to).client_certificate = Some(ClientCertificate {
            chain_pem: client.pem.clone(),
            key: world.hub.seal(to.id, CLIENT_KEY_FIELD, &client.key.serialize_pem()),
            updated_at: to.updated_at,
        });
        let made = world.hub.delivery(to.clone());
        for _ in 0..2 {
            assert_eq!(world.hub.sinks.deliver(&made).await.status, Some(200), "{alpn}");
        }
        assert_eq!(receiver.next().await.from, receiver.next().await.from);
        assert_eq!(
            world.hub.deliver(&url).await.error,
            Some(ErrorClass::Tls),
            "not over the other's connection, {alpn}"
        );
        let unusable = world.hub.seal(to.id, CLIENT_KEY_FIELD, "no key");
        webhook(&mut to).client_certificate.as_mut().unwrap().key = unusable;
        let met = world.hub.sinks.deliver(&world.hub.delivery(to)).await;
        assert_eq!(met.error, Some(ErrorClass::SecretUnreadable), "{alpn}");
    }
}

// C9.8: not one packet goes where the policy does not allow it, for literals and names alike.
#[tokio::test]
async fn what_the_policy_forbids_is_not_even_connected_to() {
    let world = Https::new();
    let closed = AddressPolicy { rules: Vec::new(), allow_http: true, ..open_policy() };
    let hub = Hub::new(Setup { policy: closed, ..Setup::default() });
    let receiver = world.scripted(&format!("{OK} | hold")).await;
    let port = receiver.address.port();
    let own = Hub::new(Setup {
        policy: AddressPolicy { own_listeners: vec![receiver.address], ..open_policy() },
        ..Setup::default()
    });
    for (hub, host) in [(&hub, "127.0.0.1"), (&hub, "receiver.test"), (&own, "127.0.0.1"), (&own, "receiver.test")] {
        let met = hub.deliver(&format!("http://{host}:{port}/")).await;
        assert_eq!((met.status, met.error), (None, Some(ErrorClass::DestinationBlocked)), "{host}");
    }
    assert_eq!(receiver.connections(), 0);
    for stored in ["ftp://receiver.test/", "http://user@receiver.test/", "nonsense", ""] {
        assert_eq!(world.hub.deliver(stored).await.error, Some(ErrorClass::DestinationBlocked), "{stored}");
    }
}

// C9.8: what was judged is what is connected to.
#[tokio::test]
async fn a_name_is_resolved_once_an_attempt_and_its_answer_is_cut() {
    let world = Https::new();
    let receiver = world.scripted("read | send HTTP/1.1 200 OK\\r\\n\\r\\n | close").await;
    let url = |name: &str| format!("http://{name}:{}/", receiver.address.port());
    let here = IpAddr::from([127, 0, 0, 1]);
    let names = &world.hub.names;
    names.set("changing.test", Script::Changing(vec![vec![here], vec![[10, 0, 0, 1].into()]]));
    assert_eq!(world.hub.deliver(&url("changing.test")).await.status, Some(200));
    assert_eq!(names.asked.load(Ordering::SeqCst), 1);
    assert_eq!(world.hub.deliver(&url("changing.test")).await.error, Some(ErrorClass::DestinationBlocked));
    assert_eq!(names.asked.load(Ordering::SeqCst), 2, "asked again for the next attempt, and judged again");

    // 500 addresses: those of the first 16 that differ are tried, and none of the others.
    let many = |good_at: usize| {
        let all = (0..500_usize).map(|n| if n == good_at { here } else { [127, 0, 1, 1 + (n % 200) as u8].into() });
        Script::Addresses(all.flat_map(|ip| [ip, ip]).collect())
    };
    names.set("many.test", many(15));
    assert_eq!(world.hub.deliver(&url("many.test")).await.status, Some(200));
    names.set("many.test", many(16));
    assert_eq!(world.hub.deliver(&url("many.test")).await.error, Some(ErrorClass::Connect));
}

// C9.9: over HTTP/2 a receiver can say that it has not looked at a request.
#[tokio::test]
async fn a_refused_stream_on_a_reused_connection_is_sent_once_more() {
    let world = Https::new();
    for (refused, met, sent) in [
        (&[2][..], vec![Ok(200), Ok(200)], vec![1, 2, 2]),
        (&[2, 3], vec![Ok(200), Err(ErrorClass::Reset)], vec![1, 2, 2]),
        (&[1], vec![Err(ErrorClass::Reset), Ok(200)], vec![1, 2]),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let certified = world.authority.certificate(&["receiver.test"]);
        let acceptor = TlsAcceptor::from(server_tls(&certified, &["h2"], None));
        let mut receiver = JoinSet::new();
        let (seen, mut requests) = mpsc::unbounded_channel();
        receiver.spawn(async move {
            let (tcp, _) = listener.accept().await.unwrap();
            let mut connection = h2::server::handshake(acceptor.accept(tcp).await.unwrap()).await.unwrap();
            for n in 1.. {
                let Some(Ok((request, mut respond))) = connection.accept().await else { break };
                seen.send(request.headers()["x-lerian-delivery-id"].to_str().unwrap().to_owned()).unwrap();
                if refused.contains(&n) {
                    respond.send_reset(h2::Reason::REFUSED_STREAM);
                } else {
                    respond.send_response(http::Response::new(()), true).unwrap();
                }
            }
        });
        let mut made = world.hub.delivery(world.hub.subscription(&format!("https://receiver.test:{port}/")));
        let mut all = Vec::new();
        for n in 1..=2 {
            made.delivery = DeliveryId([n; 16]);
            let met = world.hub.sinks.deliver(&made).await;
            all.push(met.error.map_or_else(|| Ok(met.status.unwrap()), Err));
        }
        assert_eq!(all, met, "{refused:?}");
        for id in sent {
            assert_eq!(requests.recv().await.unwrap(), DeliveryId([id; 16]).to_string(), "{refused:?}");
        }
        assert!(requests.try_recv().is_err(), "{refused:?}");
    }
}

// C9.3: what an event may hold at most arrives.
#[tokio::test]
async fn the_largest_header_lines_arrive() {
    let hub = Hub::new(Setup::default());
    let script = "read | send HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n | hold";
    let mut receiver = Scripted::start(script, &Arc::new(Authority::new())).await;
    let mut made = hub.delivery(hub.subscription(&format!("http://127.0.0.1:{}/", receiver.address.port())));
    let event = Arc::make_mut(&mut made.event);
    event.subject = Some("ç".repeat(512).into());
    event.data_schema = Some("ç".repeat(1024).into());
    event.extensions = (0..16).map(|n| (format!("ext{n}").into(), "€ ".repeat(256).into())).collect();
    event.body = vec![b'x'; 1 << 20].into();
    assert_eq!(hub.sinks.deliver(&made).await.status, Some(200));
    let request = receiver.next().await;
    assert!(request.contains(&format!("X-Lerian-Ext-Ext15: {}\r\n", "%E2%82%AC%20".repeat(256))));
    assert!(request.ends_with(&"x".repeat(1 << 20)));
}
