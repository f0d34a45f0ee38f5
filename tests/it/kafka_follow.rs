//! Which partitions the Kafka source follows, and where it goes on when a position does not fit the log (C1.1, C1.3 to C1.5).

use crate::kafka_support::{
    MemoryInbox, Running, body, calm, events, own_prefix, produce, produce_lines, services, settings, storm,
};
use base64::Engine as _;
use std::time::Duration;
use streaming_hub::engine::command::Refusal;
use streaming_hub::kafka::{KafkaSettings, KafkaStatus, Start};
use streaming_hub::model::gap::{Gap, GapReason};

/// Between two looks that nobody asked for.
const LATE: Duration = Duration::from_secs(30);

/// Gaps without their times.
fn told(gaps: &[Gap]) -> Vec<(GapReason, i64, i64)> {
    gaps.iter().map(|gap| (gap.why, gap.from, gap.to)).collect()
}

async fn topic_id(topic: &str) -> [u8; 16] {
    let described: serde_json::Value =
        serde_json::from_str(&produce(&["describe", topic], String::new()).await).unwrap();
    let id = described[topic]["topic_id"].as_str().unwrap();
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(id).unwrap().try_into().unwrap()
}

// C1.1, C1.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_partitions_that_appear_are_read_from_their_beginning() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    running.until("a first look", |status| status.word() == "connected").await;
    let (topic, dead) = (format!("{prefix}lender"), format!("{prefix}lender.dlq"));
    produce(&["create-topic", &topic, &dead], String::new()).await;
    produce_lines(&[], &[events(&topic, 0..5), events(&dead, 5..7)].concat()).await;
    inbox.until("the new topic's events", |kept| kept.events() == 5).await;
    produce(&["add-partitions", &topic, "--partitions", "3"], String::new()).await;
    let mut lines = events(&topic, 10..16);
    for (n, line) in lines.iter_mut().enumerate() {
        line["partition"] = (n % 3).into();
    }
    produce_lines(&[], &lines).await;
    inbox.until("events of the new partitions", |kept| kept.events() == 11).await;
    inbox.with(|kept| {
        assert_eq!([0, 1, 2].map(|partition| kept.position(&topic, partition)), [Some(7), Some(2), Some(2)]);
        assert!(kept.bodies(&dead).is_empty() && kept.gaps.is_empty());
    });
    running.stop().await;
}

// C1.4, C3.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_goes_on_where_the_store_says() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    let inbox = MemoryInbox::new();
    for round in 0..3 {
        produce_lines(&[], &events(&topic, round * 10..round * 10 + 10)).await;
        let running = Running::start(settings(&prefix), &inbox);
        inbox.until("this round's events", |kept| kept.events() == round * 10 + 10).await;
        running.stop().await;
    }
    inbox.with(|kept| assert_eq!(kept.bodies(&topic), (0..30).map(body).collect::<Vec<_>>()));
    inbox.with(|kept| assert_eq!(kept.records.len(), 30, "nothing was read twice"));
}

// C1.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latest_is_for_partitions_that_exist_at_the_very_first_start() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let (old, new) = (format!("{prefix}lender"), format!("{prefix}midaz"));
    produce(&["create-topic", &old], String::new()).await;
    produce_lines(&[], &events(&old, 0..5)).await;
    let inbox = MemoryInbox::new();
    inbox.with(|kept| kept.first_start = true);
    let latest = || KafkaSettings { start: Start::Latest, ..settings(&prefix) };
    let running = Running::start(latest(), &inbox);
    inbox.until("the end as position", |kept| kept.position(&old, 0) == Some(5)).await;
    running.stop().await;

    inbox.with(|kept| kept.first_start = false);
    produce_lines(&[], &events(&old, 5..7)).await;
    let running = Running::start(latest(), &inbox);
    inbox.until("events after the first start", |kept| kept.events() == 2).await;
    produce(&["create-topic", &new], String::new()).await;
    produce_lines(&[], &events(&new, 20..23)).await;
    inbox.until("all of the later topic", |kept| kept.events() == 5).await;
    inbox.with(|kept| assert_eq!(kept.bodies(&old), [body(5), body(6)]));
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_below_the_log_is_a_gap_up_to_its_start() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..10)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("the first events", |kept| kept.events() == 10).await;
    running.stop().await;
    produce_lines(&[], &events(&topic, 10..50)).await;
    produce(&["delete-records", &topic, "0", "37"], String::new()).await;
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("what is left", |kept| kept.position(&topic, 0) == Some(50)).await;
    inbox.with(|kept| {
        assert_eq!(told(&kept.gaps), [(GapReason::BelowStart, 10, 37)]);
        assert_eq!(kept.bodies(&topic), (0..10).chain(37..50).map(body).collect::<Vec<_>>());
    });
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retention_that_overtakes_a_running_reader_is_a_gap_told_exactly() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let (topic, other) = (format!("{prefix}lender"), format!("{prefix}midaz"));
    produce(&["create-topic", &topic, &other], String::new()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    running.until("both are followed", |status| status.partitions().len() == 2).await;
    // The inbox takes nothing: what was fetched waits in memory, which has room for a part of it only.
    let padding = "x".repeat(40_000);
    let mut lines = events(&topic, 0..200);
    for (n, line) in lines.iter_mut().enumerate() {
        line["value"] = format!("{}{padding}", body(n)).into();
    }
    inbox.with(|kept| kept.refusals.extend(std::iter::repeat_n(Refusal::BacklogFull, 10_000)));
    produce_lines(&[], &lines).await;
    let waits = |status: &KafkaStatus| status.problems().iter().any(|told| told.contains("waiting"));
    running.until("the reader waits", waits).await;
    produce(&["delete-records", &topic, "0", "150"], String::new()).await;
    inbox.with(|kept| kept.refusals.clear());
    produce_lines(&[], &events(&other, 900..903)).await;
    inbox.until("what is left", |kept| kept.position(&topic, 0) == Some(200) && kept.bodies(&other).len() == 3).await;
    inbox.with(|kept| {
        let [(GapReason::BelowStart, from, 150)] = told(&kept.gaps)[..] else { panic!("{:?}", kept.gaps) };
        assert!((1..150).contains(&from), "{from}: nothing was fetched, or all of it");
        let numbers = (0..usize::try_from(from).unwrap()).chain(150..200);
        let read: Vec<_> = kept.bodies(&topic).iter().map(|body| body.trim_end_matches('x').to_owned()).collect();
        assert_eq!(read, numbers.map(body).collect::<Vec<_>>());
    });
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_beyond_the_log_or_of_a_foreign_epoch_goes_back() {
    let _calm = calm().await;
    let prefix = own_prefix();
    // Source, stored position, its epoch, where the gap ends, events read after it.
    let rows = [("beyond", 90, 0, 10, 0), ("foreign", 7, 44, 0, 10), ("unknown", 90, -1, 0, 10)];
    let inbox = MemoryInbox::new();
    for (number, (source, next, epoch, ..)) in rows.into_iter().enumerate() {
        let topic = format!("{prefix}{source}");
        produce(&["create-topic", &topic], String::new()).await;
        produce_lines(&[], &events(&topic, number * 20..number * 20 + 10)).await;
        let id = topic_id(&topic).await;
        inbox.with(|kept| kept.positions.insert((topic, id, 0), (next, epoch)));
    }
    let running = Running::start(settings(&prefix), &inbox);
    for (source, next, _, to, read) in rows {
        let topic = format!("{prefix}{source}");
        let done = |kept: &crate::kafka_support::Kept| kept.position(&topic, 0) == Some(10);
        inbox.until(&format!("{source} goes on"), done).await;
        inbox.with(|kept| {
            let of_topic: Vec<_> = kept.gaps.iter().filter(|gap| gap.topic == topic).cloned().collect();
            assert_eq!(told(&of_topic), [(GapReason::Truncated, next, to)], "{source}");
            assert_eq!(kept.bodies(&topic).len(), read, "{source}");
        });
    }
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_is_read_from_its_beginning_and_a_deleted_one_stays_away() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..5)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("the first topic's events", |kept| kept.events() == 5).await;
    produce(&["delete-topic", &topic], String::new()).await;
    running.until("the topic is not followed", |status| status.partitions().is_empty()).await;
    let listed = produce(&["describe", &topic], String::new()).await;
    assert!(!listed.contains("topic_id"), "asking for it made it again: {listed}");
    // Longer than the old one: by its offsets alone it would look the same.
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 10..22)).await;
    inbox.until("the second topic's events", |kept| kept.events() == 17).await;
    inbox.with(|kept| {
        assert_eq!(told(&kept.gaps), [(GapReason::Recreated, 5, 0)]);
        assert_eq!(kept.bodies(&topic), (0..5).chain(10..22).map(body).collect::<Vec<_>>());
    });
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_between_two_looks_is_read_from_its_beginning_too() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 0..5)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(KafkaSettings { discovery_interval: LATE, ..settings(&prefix) }, &inbox);
    inbox.until("the first topic's events", |kept| kept.events() == 5).await;
    // Fetches name a topic, not its id: the second one may be read at the first one's position for a moment.
    produce(&["delete-topic", &topic], String::new()).await;
    produce(&["create-topic", &topic], String::new()).await;
    produce_lines(&[], &events(&topic, 10..22)).await;
    inbox.until("the second topic's events", |kept| kept.events() == 17).await;
    let new = topic_id(&topic).await;
    inbox.until("its position", |kept| kept.positions.get(&(topic.clone(), new, 0)) == Some(&(12, 0))).await;
    inbox.with(|kept| {
        let sorted = |mut bodies: Vec<String>| {
            bodies.sort();
            bodies
        };
        let read = kept.bodies(&topic).into_iter().map(str::to_owned).collect();
        assert_eq!(sorted(read), sorted((0..5).chain(10..22).map(body).collect()), "each once");
        assert!(
            told(&kept.gaps).iter().any(|(why, _, to)| (*why, *to) == (GapReason::Recreated, 0)),
            "{:?}",
            kept.gaps
        );
    });
    running.stop().await;
}

// C1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_truncated_by_an_unclean_leader_is_a_gap_back_to_where_the_epoch_ends() {
    let _storm = storm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    let unclean = ["--config", "unclean.leader.election.enable=true"];
    produce(&[&["create-topic", &topic, "--assignment", "1:2"], &unclean[..]].concat(), String::new()).await;
    produce_lines(&[], &events(&topic, 0..10)).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("events that both replicas have", |kept| kept.events() == 10).await;
    services(&["broker-kill", "2"]).await;
    produce_lines(&[], &events(&topic, 10..20)).await;
    inbox.until("events that only the leader has", |kept| kept.events() == 20).await;
    services(&["broker-kill", "1"]).await;
    services(&["broker-start", "2"]).await;
    produce_lines(&[], &events(&topic, 30..35)).await;
    inbox.until("events of the new leader", |kept| kept.events() == 25).await;
    inbox.with(|kept| {
        assert_eq!(told(&kept.gaps), [(GapReason::Truncated, 20, 10)]);
        assert_eq!(kept.position(&topic, 0), Some(15));
    });
    running.stop().await;
    services(&["broker-start", "1"]).await;
}
