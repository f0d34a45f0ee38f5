//! A transaction that hangs on real Apache Kafka (C1.6): named while it lasts, over by itself when it ends.

use crate::kafka_support::{
    AheadClock, MemoryInbox, Running, body, calm, events, own_prefix, produce, produce_lines, settings,
};
use std::time::Duration;
use streaming_hub::kafka::KafkaStatus;
use streaming_hub::kafka::status::PartitionFacts;
use streaming_hub::metrics::Metrics;
use streaming_hub::time::Clock as _;

fn facts(status: &KafkaStatus, topic: &str) -> PartitionFacts {
    let mut all = status.partitions().into_iter();
    all.find_map(|(name, _, facts)| (*name == *topic).then_some(facts)).expect("the topic is followed")
}

fn gauge(status: &KafkaStatus) -> String {
    let metrics = Metrics::new();
    status.show_on(&metrics);
    let text = metrics.text();
    text.lines().find_map(|line| line.strip_prefix("streaming_hub_kafka_hanging_transactions ")).unwrap().to_owned()
}

/// Lets time pass as the source sees it: in steps, with a look at the topic in each.
async fn pass_watched(running: &Running, clock: &AheadClock, topic: &str, time: Duration) {
    let step = Duration::from_secs(5);
    for _ in 0..time.div_duration_f64(step).ceil() as usize {
        clock.pass(step);
        let now = clock.wall();
        running.until("a fetch", |status| facts(status, topic).last_fetch.is_some_and(|at| at >= now)).await;
    }
}

// C1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_hangs_is_named_until_it_ends() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let (held, other) = (format!("{prefix}lender"), format!("{prefix}midaz"));
    produce(&["create-topic", &held, &other], String::new()).await;
    produce_lines(&[], &[events(&held, 0..3), events(&other, 100..103)].concat()).await;
    let id = format!("{prefix}hanging");
    let transaction = |how| ["--transaction", how, "--transactional-id", &id, "--transaction-timeout-ms", "600000"];
    produce_lines(&transaction("hang"), &events(&held, 3..5)).await;

    let inbox = MemoryInbox::new();
    let clock = std::sync::Arc::new(AheadClock::default());
    let running = Running::start_by(clock.clone(), settings(&prefix), &inbox);
    inbox.until("what is before the transaction", |kept| kept.events() == 6).await;
    pass_watched(&running, &clock, &held, Duration::from_secs(65)).await;
    assert_eq!(facts(&running.status, &held).state.code(), "reading", "nothing waits behind it yet");

    produce_lines(&[], &events(&held, 5..8)).await;
    running.until("it is named", |status| facts(status, &held).state.code() == "hanging_transaction").await;
    let since = facts(&running.status, &held).hanging_since.unwrap();
    assert!(clock.wall().0 - since.0 >= 60_000, "{since}");
    assert_eq!(running.status.problems(), [format!("{held}/0: hanging_transaction at 3 since {since}")]);
    assert_eq!((running.status.word(), gauge(&running.status).as_str()), ("connected", "1"));
    produce_lines(&[], &events(&other, 103..105)).await;
    inbox.until("the other topic goes on", |kept| kept.bodies(&other).len() == 5).await;

    // Its producer comes again: the broker aborts what it had left.
    produce_lines(&transaction("abort"), &[]).await;
    inbox.until("what was behind it", |kept| kept.bodies(&held).len() == 6).await;
    inbox.with(|kept| assert_eq!(kept.bodies(&held), (0..3).chain(5..8).map(body).collect::<Vec<_>>()));
    running.until("all well", |status| status.problems().is_empty()).await;
    assert_eq!((facts(&running.status, &held).hanging_since, gauge(&running.status).as_str()), (None, "0"));
    running.stop().await;
}
