//! Brokers that are away for longer, and one that takes every connection and never answers (C1.7).

use crate::kafka_support::{
    MemoryInbox, Running, body, events, healed, own_prefix, produce, produce_lines, service, services, settings, storm,
};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long all brokers are away: beyond the longest wait between two tries.
const AWAY: Duration = Duration::from_secs(20);

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_brokers_away_is_told_and_heals_by_itself() {
    let _storm = storm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic, "--assignment", "1:2,2:3,3:1"], String::new()).await;
    produce_lines(&[], &events(&topic, 0..6)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("the first events", |kept| kept.events() == 6).await;
    services(&["all-kill"]).await;
    running.until("it says so", |status| status.word() == "unreachable").await;
    tokio::time::sleep(AWAY).await;
    assert_eq!((running.status.word(), running.status.partitions().len()), ("unreachable", 3));
    services(&["all-start"]).await;
    produce_lines(&[], &events(&topic, 6..12)).await;
    healed("all brokers back", async {
        inbox.until("events after it", |kept| kept.events() == 12).await;
        running.until("all well", |status| status.problems().is_empty()).await;
    })
    .await;
    inbox.with(|kept| assert!(kept.gaps.is_empty() && kept.records.len() == 12, "{kept:?}"));
    running.stop().await;
}

/// Between us and a broker: passes on everything, or takes it and keeps it.
struct Proxy {
    port: u16,
    silent: watch::Sender<bool>,
}

impl Proxy {
    async fn start(broker: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (silent, hears) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, broker.clone(), hears.clone()));
            }
        });
        Self { port, silent }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test stands between the hub and a broker")]
async fn pass(client: TcpStream, broker: String, mut silent: watch::Receiver<bool>) {
    if silent.wait_for(|silent| !silent).await.is_err() {
        return;
    }
    let Ok(broker) = TcpStream::connect(broker).await else { return };
    let (client, broker) = (client.into_split(), broker.into_split());
    // Until one side ends: then both do.
    tokio::select! {
        () = carry(client.0, broker.1, silent.clone()) => {}
        () = carry(broker.0, client.1, silent) => {}
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut silent: watch::Receiver<bool>) {
    let mut some = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut some).await {
        if silent.wait_for(|silent| !silent).await.is_err() || to.write_all(&some[..count]).await.is_err() {
            return;
        }
    }
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_accepts_and_never_answers_holds_up_its_own_partitions_only() {
    let _storm = storm().await;
    let listener = |name: &str| service(name).split(',').nth(2).unwrap().to_owned();
    let proxy = Proxy::start(listener("HUB_TEST_KAFKA_PLAIN")).await;
    // The cluster sees a broker in good health, and tells everybody to go through the proxy.
    let told = format!("PLAIN://127.0.0.1:{},SASL://{}", proxy.port, listener("HUB_TEST_KAFKA_SASL"));
    services(&["broker-stop", "3"]).await;
    services(&["broker-start", "3", &format!("advertised.listeners={told}")]).await;
    let prefix = own_prefix();
    let (held, other) = (format!("{prefix}lender"), format!("{prefix}midaz"));
    produce(&["create-topic", &held, "--assignment", "3"], String::new()).await;
    produce(&["create-topic", &other, "--assignment", "1"], String::new()).await;
    produce_lines(&[], &[events(&held, 0..3), events(&other, 100..103)].concat()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("both topics' events", |kept| kept.events() == 6).await;

    proxy.silent.send_replace(true);
    let told = |status: &streaming_hub::kafka::KafkaStatus| {
        status.problems().iter().any(|problem| problem.starts_with("broker 3: timeout"))
    };
    let mut n = 103;
    while !told(&running.status) {
        produce_lines(&[], &events(&other, n..n + 1)).await;
        n += 1;
        inbox.until("an event beside the silent broker", |kept| kept.bodies(&other).len() == n - 100).await;
    }
    assert_eq!(running.status.word(), "connected");

    proxy.silent.send_replace(false);
    healed("a broker that answers again", async {
        produce_lines(&[], &events(&held, 3..6)).await;
        inbox.until("its events", |kept| kept.bodies(&held).len() == 6).await;
        running.until("all well", |status| status.problems().is_empty()).await;
    })
    .await;
    inbox.with(|kept| {
        assert_eq!(kept.bodies(&held), (0..6).map(body).collect::<Vec<_>>());
        assert!(kept.gaps.is_empty());
    });
    running.stop().await;
    services(&["broker-stop", "3"]).await;
    services(&["broker-start", "3"]).await;
}
