//! What brokers let us do, and no longer, and again (C1.7): sessions that end, passwords that change, rights that are taken.

use crate::kafka_support::{
    MemoryInbox, Running, body, calm, events, healed, own_prefix, produce, produce_lines, secured, service,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use streaming_hub::kafka::{KafkaStatus, SaslMechanism};

/// Collects what is said to be wrong, also what is said for a moment only.
fn listen(status: &Arc<KafkaStatus>) -> (Arc<Mutex<Vec<String>>>, tokio::task::JoinHandle<()>) {
    let (heard, status) = (Arc::new(Mutex::new(Vec::new())), status.clone());
    let hearing = heard.clone();
    let task = tokio::spawn(async move {
        loop {
            hearing.lock().unwrap().extend(status.problems());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    (heard, task)
}

// C1.7: with SCRAM-SHA-512 the test brokers end a session after three seconds (KIP-368).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_is_renewed_before_and_a_changed_password_is_told_until_it_is_right_again() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    let user = format!("session-{}", std::process::id());
    produce(&["create-topic", &topic, "--assignment", "1,2,3"], String::new()).await;
    produce(&["scram-user", &user, "first", "--bits", "512"], String::new()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(secured(&prefix, SaslMechanism::ScramSha512, &user, "first"), &inbox);
    let connections = |status: &KafkaStatus| status.counters.connections.load(Ordering::Relaxed);
    running.until("three brokers are read", |status| connections(status) >= 3).await;
    let (heard, listening) = listen(&running.status);
    let mut n = 0;
    while connections(&running.status) < 12 {
        produce_lines(&[], &events(&topic, n..n + 3)).await;
        n += 3;
        inbox.until("events over every session", |kept| kept.events() == n).await;
    }
    listening.abort();
    assert_eq!(*heard.lock().unwrap(), [""; 0], "no session ended under a call");

    produce(&["scram-user", &user, "second", "--bits", "512"], String::new()).await;
    running.until("it is refused", |status| status.word() == "refused").await;
    assert!(running.status.problems()[0].contains("authentication"), "{:?}", running.status.problems());
    produce_lines(&[], &events(&topic, n..n + 3)).await;
    produce(&["scram-user", &user, "first", "--bits", "512"], String::new()).await;
    healed("a password that is right again", async {
        inbox.until("the events", |kept| kept.events() == n + 3).await;
        running.until("all well", |status| status.problems().is_empty()).await;
    })
    .await;
    running.stop().await;
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_is_told_and_once_given_back_nothing_is_missing() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let (taken, other) = (format!("{prefix}lender"), format!("{prefix}midaz"));
    let (user, password) = (service("HUB_TEST_KAFKA_USER"), service("HUB_TEST_KAFKA_PASSWORD"));
    produce(&["create-topic", &taken, "--partitions", "2"], String::new()).await;
    produce(&["create-topic", &other], String::new()).await;
    // Without the other one nobody would be named any more, and everybody might read.
    produce(&["right", &taken, &user], String::new()).await;
    produce(&["right", &taken, "somebody"], String::new()).await;
    produce_lines(&[], &[events(&taken, 0..4), events(&other, 100..102)].concat()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(secured(&prefix, SaslMechanism::ScramSha256, &user, &password), &inbox);
    inbox.until("both topics' events", |kept| kept.events() == 6).await;

    produce(&["right", &taken, &user, "--take"], String::new()).await;
    let refused = [0, 1].map(|partition| format!("{taken}/{partition}: refused topic_authorization_failed"));
    running.until("it says what is missing", |status| status.problems() == refused).await;
    // Brokers do not even name the topic to us any more: that is not taken for its deletion.
    let looks = || running.status.partitions().len();
    produce_lines(&[], &[events(&taken, 4..8), events(&other, 102..105)].concat()).await;
    inbox.until("the other topic goes on", |kept| kept.bodies(&other).len() == 5).await;
    assert_eq!((looks(), running.status.problems().len(), running.status.word()), (3, 2, "connected"));

    produce(&["right", &taken, &user], String::new()).await;
    healed("a right given back", async {
        inbox.until("what came meanwhile", |kept| kept.bodies(&taken).len() == 8).await;
        running.until("all well", |status| status.problems().is_empty()).await;
    })
    .await;
    inbox.with(|kept| {
        let mut bodies = kept.bodies(&taken);
        bodies.sort_unstable();
        assert_eq!(bodies, (0..8).map(body).collect::<Vec<_>>());
        assert!(kept.gaps.is_empty() && kept.records.len() == 13, "{kept:?}");
    });
    running.stop().await;
}
