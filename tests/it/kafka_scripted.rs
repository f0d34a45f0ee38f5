//! The Kafka source against a broker that misbehaves on command (C1.7, C2.7): what real brokers do too rarely to wait for.

use crate::kafka_broker::batch::{Batch, GZIP, Record, ZSTD};
use crate::kafka_broker::{Broker, Fault};
use crate::kafka_support::{MemoryInbox, Running, What, body, event};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use streaming_hub::kafka::{KafkaSettings, KafkaStatus, Start};
use streaming_hub::model::gap::GapReason;
use streaming_hub::rules::classify::Policy;

const TOPIC: &str = "scripted.lender";

fn settings(broker: &Broker) -> KafkaSettings {
    KafkaSettings {
        brokers: vec![broker.endpoint.clone()],
        tls: None,
        sasl: None,
        group: "scripted".to_owned(),
        topic_prefix: "scripted.".to_owned(),
        discovery_interval: Duration::from_secs(10),
        start: Start::Earliest,
        classify: Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false },
    }
}

/// A batch of well-formed events.
fn batch(numbers: std::ops::Range<usize>) -> Batch {
    let records = (0..).zip(numbers.clone()).map(|(delta, n)| {
        let event = event(TOPIC, n);
        let headers = event["headers"].as_array().unwrap().iter().map(|header| {
            let text = |index: usize| header[index].as_str().unwrap().as_bytes().to_vec();
            (text(0), Some(text(1)))
        });
        Record { delta, value: Some(body(n).into_bytes()), headers: headers.collect(), ..Record::default() }
    });
    Batch { records: records.collect(), ..Batch::of(i64::try_from(numbers.start).unwrap(), &[]) }
}

async fn running(broker: &Broker) -> (Running, Arc<MemoryInbox>) {
    let inbox = MemoryInbox::new();
    (Running::start(settings(broker), &inbox), inbox)
}

fn poison(kept: &crate::kafka_support::Kept) -> usize {
    let is_poison = |what: &What| matches!(what, What::Poison { reason: "unreadable_batch", .. });
    kept.records.iter().filter(|(_, _, what)| is_poison(what)).count()
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_a_connection_loses_nothing() {
    for faults in [
        vec![Fault::HangUp, Fault::HangUp],
        vec![Fault::Zeros(2000)],
        vec![Fault::Zeros(48 << 20)],
        vec![Fault::Code(6), Fault::Code(74), Fault::Code(5)],
        vec![Fault::Throttle(120)],
        // The watermark of a moment ago: the batch seems to lie beyond the end.
        vec![Fault::Watermark(3)],
        vec![Fault::Cut(90)],
        vec![Fault::Cut(5)],
    ] {
        let broker = Broker::start(TOPIC).await;
        broker.append(&batch(0..10));
        broker.append(&batch(10..20).with(ZSTD));
        let named = format!("{faults:?}");
        broker.with(|state| state.faults.extend(faults));
        let (running, inbox) = running(&broker).await;
        inbox.until(&named, |kept| kept.position(TOPIC, 0) == Some(20)).await;
        inbox.with(|kept| assert_eq!(kept.bodies(TOPIC), (0..20).map(body).collect::<Vec<_>>(), "{named}"));
        running.stop().await;
    }
}

// C2.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_cannot_be_read_is_tried_thrice_and_then_passed() {
    let damaged = |change: fn(&mut Vec<u8>)| {
        let mut bytes = batch(10..20).bytes();
        change(&mut bytes);
        bytes
    };
    let huge = Record::of(9, &"0".repeat(33 << 20));
    let bomb = Batch { records: vec![huge], ..batch(10..20) }.with(GZIP);
    for (name, bytes) in [
        ("checksum", damaged(|bytes| bytes[100] ^= 1)),
        ("format 0", damaged(|bytes| bytes[16] = 0)),
        ("bomb", bomb.bytes()),
        ("before what was read", damaged(|bytes| bytes[7] = 1)),
    ] {
        let broker = Broker::start(TOPIC).await;
        broker.append(&batch(0..10));
        broker.append_bytes(20, bytes);
        broker.append(&batch(20..30));
        let (running, inbox) = running(&broker).await;
        inbox.until(name, |kept| kept.position(TOPIC, 0) == Some(30)).await;
        inbox.with(|kept| {
            assert_eq!(kept.bodies(TOPIC), (0..10).chain(20..30).map(body).collect::<Vec<_>>(), "{name}");
            assert_eq!(poison(kept), 1, "{name}");
        });
        let tries = broker.with(|state| state.fetches.iter().filter(|(offset, _)| *offset == 10).count());
        assert!(tries >= 2, "{name}: tried again {tries} times");
        running.stop().await;
    }
}

// C2.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_withholds_for_good_is_passed_offset_by_offset() {
    for fault in [Fault::Code(2), Fault::Cut(90)] {
        let broker = Broker::start(TOPIC).await;
        broker.append(&batch(0..1));
        broker.append(&batch(1..4));
        broker.with(|state| state.faults.extend(std::iter::repeat_n(fault.clone(), 3)));
        let (running, inbox) = running(&broker).await;
        inbox.until(&format!("{fault:?}"), |kept| kept.position(TOPIC, 0) == Some(4)).await;
        inbox.with(|kept| {
            assert_eq!(kept.bodies(TOPIC), (1..4).map(body).collect::<Vec<_>>());
            assert_eq!(poison(kept), 1);
        });
        running.stop().await;
    }
}

// C1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_missing_is_a_named_state_of_the_partition() {
    let broker = Broker::start(TOPIC).await;
    broker.append(&batch(0..5));
    broker.with(|state| state.faults.extend(std::iter::repeat_n(Fault::Code(29), 3)));
    let (running, inbox) = running(&broker).await;
    let says = |status: &KafkaStatus| status.problems() == [format!("{TOPIC}/0: refused topic_authorization_failed")];
    running.until("it says what is missing", says).await;
    inbox.until("the events, once it is granted", |kept| kept.events() == 5).await;
    running.until("all well", |status| status.problems().is_empty()).await;
    running.stop().await;
}

// C1.5, C3.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_jumps_back_is_told_and_delivers_nothing_again() {
    let broker = Broker::start(TOPIC).await;
    broker.append(&batch(0..10));
    broker.append(&batch(10..20));
    let (running, inbox) = running(&broker).await;
    inbox.until("all of the log", |kept| kept.position(TOPIC, 0) == Some(20)).await;
    // As after a broker's disk was put back from a copy: the same topic and epoch, an end before our position.
    broker.jump_back(10);
    inbox.until("the gap", |kept| !kept.gaps.is_empty()).await;
    // What was lost comes again, and something new behind it.
    broker.append(&batch(10..20));
    broker.append(&batch(20..25));
    inbox.until("what is new", |kept| kept.position(TOPIC, 0) == Some(25)).await;
    inbox.with(|kept| {
        assert_eq!(kept.bodies(TOPIC), (0..25).map(body).collect::<Vec<_>>(), "each once");
        let gaps: Vec<_> = kept.gaps.iter().map(|gap| (gap.why, gap.from, gap.to)).collect();
        assert_eq!(gaps, [(GapReason::Truncated, 20, 0)]);
    });
    let counted = |status: &KafkaStatus| {
        (status.counters.gaps(GapReason::Truncated), status.counters.duplicates.load(Ordering::Relaxed)) == (1, 20)
    };
    running.until("it is counted", counted).await;
    running.stop().await;
}
