//! The Kafka source against faults of brokers, rights, the inbox and the disk (C1.7): tried for ever, lost never.

use crate::kafka_support::{
    MemoryInbox, Running, What, body, calm, events, healed, own_prefix, produce, produce_lines, secured, service,
    services, settings, storm,
};
use std::path::PathBuf;
use std::time::Duration;
use streaming_hub::engine::command::Refusal;
use streaming_hub::kafka::{KafkaSettings, SaslMechanism};
use streaming_hub::net::broker::BrokerTls;

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_and_every_mechanism_of_credentials() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..3)).await;
    let (user, password) = (service("HUB_TEST_KAFKA_USER"), service("HUB_TEST_KAFKA_PASSWORD"));
    for mechanism in [SaslMechanism::Plain, SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
        let inbox = MemoryInbox::new();
        let running = Running::start(secured(&prefix, mechanism, &user, &password), &inbox);
        inbox.until("the events", |kept| kept.events() == 3).await;
        running.stop().await;
    }
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_are_a_named_state_that_heals() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..3)).await;
    let user = format!("late-{}", std::process::id());
    let inbox = MemoryInbox::new();
    let running = Running::start(secured(&prefix, SaslMechanism::ScramSha256, &user, "right"), &inbox);
    running.until("it says that it is refused", |status| status.word() == "refused").await;
    assert!(running.status.problems()[0].contains("authentication"), "{:?}", running.status.problems());
    let made = [
        "tool",
        "org.apache.kafka.tools.ConfigCommand",
        "--bootstrap-server",
        &service("HUB_TEST_KAFKA_PLAIN"),
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        &user,
        "--add-config",
        "SCRAM-SHA-256=[password=right]",
    ];
    services(&made).await;
    healed("credentials that are right now", async {
        inbox.until("the events, once the user is there", |kept| kept.events() == 3).await;
    })
    .await;
    assert_eq!((running.status.word(), running.status.problems()), ("connected", vec![]));
    running.stop().await;
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_connection_is_told_by_a_word() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let (user, password) = (service("HUB_TEST_KAFKA_USER"), service("HUB_TEST_KAFKA_PASSWORD"));
    let good = || secured(&prefix, SaslMechanism::Plain, &user, &password);
    let stranger = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let plain = settings(&prefix).brokers;
    let nobody = vec!["127.0.0.1:1".to_owned()];
    for (settings, word, code) in [
        (KafkaSettings { tls: Some(BrokerTls::new(Some(&stranger)).unwrap()), ..good() }, "refused", "certificate"),
        (KafkaSettings { brokers: plain, ..good() }, "refused", "tls"),
        (KafkaSettings { brokers: nobody, ..good() }, "unreachable", "connect"),
        (secured(&prefix, SaslMechanism::Plain, &user, "wrong"), "refused", "authentication"),
    ] {
        let running = Running::start(settings, &MemoryInbox::new());
        running.until(code, |status| status.word() == word).await;
        let problems = running.status.problems();
        assert!(problems[0].contains(code), "{problems:?}");
        assert!(!format!("{problems:?}").contains("wrong"));
        running.stop().await;
    }
}

// C3.1, C13.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inbox_that_refuses_is_waited_for_and_nothing_is_lost_or_doubled() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    let inbox = MemoryInbox::new();
    inbox.with(|kept| {
        kept.refusals.extend([
            Refusal::BacklogFull,
            Refusal::BacklogFull,
            Refusal::DiskLow,
            Refusal::Suspended("disk full".to_owned()),
            Refusal::PositionMoved { stored: Some(3) },
        ]);
    });
    produce_lines(&["--compression", "gzip"], &events(&topic, 0..3000)).await;
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("all events", |kept| kept.records.len() == 3000).await;
    inbox.with(|kept| {
        assert_eq!(kept.bodies(&topic), (0..3000).map(body).collect::<Vec<_>>());
        assert_eq!(kept.refused, 5);
    });
    running.stop().await;
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn positions_are_shown_to_ordinary_tools() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..7)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    let group = format!("{prefix}hub");
    let shown = async {
        loop {
            let told = produce(&["group", &group], String::new()).await;
            let told: serde_json::Value = serde_json::from_str(&told).unwrap();
            if let Some(row) = told.as_array().and_then(|rows| rows.first()) {
                return row.clone();
            }
        }
    };
    let row = tokio::time::timeout(Duration::from_secs(30), shown).await.expect("the group shows an offset");
    assert_eq!((row["topic"].as_str(), row["offset"].as_i64()), (Some(topic.as_str()), Some(7)), "{row}");
    running.stop().await;
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_that_restart_and_leaders_that_move_lose_nothing() {
    let _storm = storm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic, "--assignment", "1:2,2:3,3:1"], String::new()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    let manifest = tempfile::NamedTempFile::new().unwrap();
    let path = manifest.path().to_str().unwrap().to_owned();
    let load = tokio::spawn(async move {
        let load = [
            "load",
            "--events",
            "6000",
            "--tenants",
            "30",
            "--topics",
            &topic,
            "--partitions",
            "3",
            "--rate",
            "500",
            "--manifest",
            &path,
        ];
        produce(&load, String::new()).await;
    });
    let topic = format!("{prefix}lender");
    inbox.until("a first part", |kept| kept.events() > 500).await;
    produce(&["move-leader", &topic, "--partition", "0"], String::new()).await;
    services(&["broker-stop", "3"]).await;
    services(&["broker-start", "3"]).await;
    services(&["broker-kill", "2"]).await;
    services(&["broker-start", "2"]).await;
    load.await.unwrap();
    inbox.until("all events", |kept| kept.events() == 6000).await;
    inbox.with(|kept| {
        assert!(kept.gaps.is_empty(), "{:?}", kept.gaps);
        // Each tenant counts its events from 1: in order, each once.
        let mut last = std::collections::HashMap::new();
        for body in kept.bodies(&topic) {
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            let n = body["n"].as_u64().unwrap();
            let before = last.insert(body["tenant"].as_str().unwrap().to_owned(), n).unwrap_or(0);
            assert_eq!(n, before + 1, "{body}");
        }
    });
    healed("brokers back", running.until("all well again", |status| status.problems().is_empty())).await;
    running.stop().await;
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_broker_holds_up_no_other_partition() {
    let _storm = storm().await;
    let prefix = own_prefix();
    let (frozen, other) = (format!("{prefix}frozen"), format!("{prefix}other"));
    produce(&["create-topic", &frozen, "--assignment", "3"], String::new()).await;
    produce(&["create-topic", &other, "--assignment", "1"], String::new()).await;
    produce_lines(&[], &[events(&frozen, 0..5), events(&other, 100..105)].concat()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("both topics' events", |kept| kept.events() == 10).await;
    services(&["broker-freeze", "3"]).await;
    for n in 105..110 {
        produce_lines(&[], &events(&other, n..n + 1)).await;
        inbox.until("an event beside the silent broker", |kept| kept.bodies(&other).len() == n - 99).await;
    }
    running
        .until("the silence is told", |status| {
            // Of the broker itself, or of its partition once the cluster has noticed too.
            let tells = |told: &String| told.starts_with("broker 3: timeout") || told.contains("frozen/0: no_leader");
            status.problems().iter().any(tells)
        })
        .await;
    services(&["broker-thaw", "3"]).await;
    produce_lines(&[], &events(&frozen, 5..8)).await;
    healed("a broker that woke", async {
        inbox.until("its events", |kept| kept.bodies(&frozen).len() == 8).await;
        running.until("all well", |status| status.problems().is_empty()).await;
    })
    .await;
    running.stop().await;
}

// C2.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_damaged_on_the_brokers_disk_becomes_a_poison_record() {
    let _storm = storm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic, "--assignment", "2"], String::new()).await;
    let mut lines = events(&topic, 0..30);
    lines.insert(20, serde_json::json!({ "do": "flush" }));
    lines.insert(10, serde_json::json!({ "do": "flush" }));
    lines.insert(0, serde_json::json!({ "do": "begin" }));
    lines.push(serde_json::json!({ "do": "commit" }));
    produce_lines(&["--linger", "200"], &lines).await;
    services(&["broker-stop", "2"]).await;
    let file: PathBuf = segment(2, &topic);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.windows(8).position(|window| window == b"{\"n\":15}").expect("the second batch");
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    services(&["broker-start", "2"]).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("what is behind the damage", |kept| kept.position(&topic, 0) == Some(31)).await;
    inbox.with(|kept| {
        assert_eq!(kept.bodies(&topic), (0..10).chain(20..30).map(body).collect::<Vec<_>>());
        let poison = |what: &What| matches!(what, What::Poison { reason: "unreadable_batch", body } if body.contains("z\"n\":15}"));
        assert_eq!(kept.records.iter().filter(|(_, _, what)| poison(what)).count(), 1, "{:?}", kept.records);
        assert!(kept.gaps.is_empty());
    });
    running.stop().await;
}

/// The only segment of partition 0 on a broker's disk.
fn segment(broker: u8, topic: &str) -> PathBuf {
    let ca = PathBuf::from(service("HUB_TEST_KAFKA_CA"));
    let run = ca.parent().and_then(|tls| tls.parent()).unwrap();
    run.join(format!("broker-{broker}/data/{topic}-0/00000000000000000000.log"))
}
