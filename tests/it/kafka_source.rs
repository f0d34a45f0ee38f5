//! What the Kafka source reads from real Apache Kafka: every shape of record, batch and transaction (C1.6, C2.6, C2.7, C3.1).

use crate::kafka_broker::batch::{Batch, Record, SNAPPY};
use crate::kafka_support::{
    MemoryInbox, Running, What, body, calm, event, event_id, first_broker, own_prefix, produce, produce_lines, settings,
};
use serde_json::json;

/// Lines of a producer file that steer its transactions.
fn steer(step: &str) -> serde_json::Value {
    json!({ "do": step })
}

// C1.4, C1.6, C3.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_compression_arrives_whole_and_in_order() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    let mut n = 0;
    for compression in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let lines: Vec<_> = (n..n + 50).map(|n| event(&topic, n)).collect();
        n += 50;
        produce_lines(&["--compression", compression, "--linger", "100"], &lines).await;
    }
    inbox.until("all events", |kept| kept.events() == n).await;
    inbox.with(|kept| assert_eq!(kept.bodies(&topic), (0..n).map(body).collect::<Vec<_>>()));
    running.stop().await;
}

// C2.6, C2.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_of_every_shape_get_their_verdict() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic, "--assignment", "1"], String::new()).await;
    let with = |n: usize, header: serde_json::Value| {
        let mut line = event(&topic, n);
        line["headers"].as_array_mut().unwrap().push(header);
        line
    };
    let mut empty = event(&topic, 5);
    empty["value"] = json!("");
    let mut null = event(&topic, 6);
    null["value"] = json!(null);
    let mut keyed = event(&topic, 7);
    keyed["key"] = json!({ "base64": "//4A" });
    let lines = [
        with(0, json!(["x-null", null])),
        with(1, json!(["ce-tenantid", null])),
        with(2, json!(["ce-id", event_id(99)])),
        with(3, json!(["ce-systemevent", "true"])),
        with(4, json!(["ce-subject", { "base64": "//4=" }])),
        empty,
        null,
        keyed,
        json!({ "topic": topic, "value": "no envelope" }),
        event(&topic, 0),
    ];
    produce_lines(&[], &lines).await;
    let headers = event(&topic, 10)["headers"].clone();
    let headers = headers.as_array().unwrap().iter().map(|header| {
        let text = |index: usize| header[index].as_str().unwrap().as_bytes().to_vec();
        (text(0), Some(text(1)))
    });
    let headers = std::iter::once((b"\xff\xfe".to_vec(), Some(b"\xfd".to_vec()))).chain(headers).collect();
    let odd = Record { value: Some(body(10).into_bytes()), headers, ..Record::default() };
    let batch = Batch { records: vec![odd], ..Batch::of(0, &[]) }.with(SNAPPY);
    crate::kafka_raw::produce(&first_broker(), &topic, 0, &batch).await;

    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("all records", |kept| kept.records.len() == 11).await;
    let poison = |reason, body: &str| What::Poison { reason, body: body.to_owned() };
    let want = [
        What::Event(body(0)),
        poison("missing_tenant", &body(1)),
        What::Event(body(2)),
        What::Dropped,
        poison("header_not_utf8", &body(4)),
        What::Event(String::new()),
        What::Event(String::new()),
        What::Event(body(7)),
        poison("missing_header", "no envelope"),
        What::Duplicate(body(0)),
        What::Event(body(10)),
    ];
    inbox.with(|kept| {
        let is: Vec<_> = kept.records.iter().map(|(_, _, what)| what.clone()).collect();
        assert_eq!(is, want);
        assert_eq!(kept.position(&topic, 0), Some(11));
    });
    running.stop().await;
}

// C1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_committed_arrives() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic], String::new()).await;
    let mut lines = Vec::new();
    for (round, end) in ["commit", "abort", "commit", "abort"].into_iter().enumerate() {
        lines.push(steer("begin"));
        for n in 0..20 {
            lines.push(event(&topic, round * 20 + n));
            if n % 7 == 3 {
                lines.push(steer("flush"));
            }
        }
        lines.push(steer(end));
    }
    produce_lines(&["--compression", "zstd"], &lines).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    // The log ends with an aborted transaction and its marker: 80 records and 4 markers.
    inbox.until("the end of the log", |kept| kept.position(&topic, 0) == Some(84)).await;
    let want: Vec<_> = (0..20).chain(40..60).map(body).collect();
    inbox.with(|kept| assert_eq!(kept.bodies(&topic), want));
    running
        .until("no lag at a log that ends with a marker", |status| {
            status.partitions().iter().all(|(_, _, facts)| facts.lag() == Some(0))
        })
        .await;
    running.stop().await;
}

// C1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleaved_transactions_are_told_apart_while_they_are_read() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    produce(&["create-topic", &topic, "--partitions", "2"], String::new()).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    let manifest = tempfile::NamedTempFile::new().unwrap();
    let path = manifest.path().to_str().unwrap();
    let load = [
        "load",
        "--events",
        "3000",
        "--tenants",
        "20",
        "--topics",
        &topic,
        "--partitions",
        "2",
        "--transactions-every",
        "40",
        "--aborts-every",
        "3",
        "--compression",
        "mixed",
        "--manifest",
        path,
    ];
    produce(&load, String::new()).await;
    inbox.until("all committed events", |kept| kept.events() == 3000).await;
    let text = std::fs::read_to_string(manifest.path()).unwrap();
    let committed: std::collections::BTreeSet<&str> = text.lines().filter_map(|line| line.split(',').next()).collect();
    let stored = inbox.with(|kept| kept.ids());
    assert_eq!(stored.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), committed);
    running.stop().await;
}

// C1.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_and_a_compacted_tail_do_not_stop_it() {
    let _calm = calm().await;
    let prefix = own_prefix();
    let topic = format!("{prefix}lender");
    let config =
        ["cleanup.policy=compact", "min.cleanable.dirty.ratio=0.001", "segment.ms=100", "delete.retention.ms=0"];
    produce(&[&["create-topic", &topic, "--config"][..], &config].concat(), String::new()).await;
    let keyed = |n: usize, key: &str| {
        let mut line = event(&topic, n);
        line["key"] = json!(key);
        line
    };
    // Each key but the last ones is written over: batches become holes, and whole batches empty.
    let lines: Vec<_> = (0..60).map(|n| keyed(n, ["a", "b", "c"][n % 3])).collect();
    produce_lines(&["--linger", "50"], &lines).await;
    // A new segment lets the old one be compacted; what stays of it are three records.
    let end = async {
        for n in 60.. {
            produce_lines(&[], &[keyed(n, "last")]).await;
            let left = produce(&["consume", &topic], String::new()).await.lines().count();
            if left <= 5 {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(40), end).await.expect("the broker compacts the topic");
    let high = watermark(&topic).await;
    let inbox = MemoryInbox::new();
    let running = Running::start(settings(&prefix), &inbox);
    inbox.until("the end of the log", |kept| kept.position(&topic, 0) == Some(high)).await;
    inbox.with(|kept| {
        assert!(kept.bodies(&topic).starts_with(&[&*body(57), &*body(58), &*body(59)]), "{kept:?}");
        assert!(kept.gaps.is_empty());
    });
    running.stop().await;
}

/// The end of partition 0.
async fn watermark(topic: &str) -> i64 {
    let told = produce(&["watermarks", topic], String::new()).await;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    told[0]["high"].as_i64().unwrap()
}
