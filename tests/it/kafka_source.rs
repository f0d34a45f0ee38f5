//! The Kafka source on real Apache Kafka (C1, C2.6, C3.1): every record shape, discovery, offset trouble, faults of brokers.

use crate::kafka_support::{
    MemoryInbox, Running, What, body, calm, event, own_prefix, produce, produce_lines, settings,
};

// C1.4, C1.6, C3.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_compression_arrives_whole_and_in_order() {
    let _calm = calm();
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
