//! What most of these tests begin with: topics, a receiver, a hub, and one fifo subscription for each tenant.

use super::hub::Hub;
use super::kafka::{self, Load};
use super::ledger::judge;
use super::receiver::Receiver;
use super::{own_prefix, until_true};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest that anything may go without the next delivery.
const STALL: Duration = Duration::from_secs(60);

/// A hub, what it reads, and where it delivers.
pub(crate) struct Scene {
    pub(crate) hub: Hub,
    pub(crate) receiver: Receiver,
    pub(crate) topics: Vec<String>,
    /// Prefix of the topics.
    pub(crate) prefix: String,
    folder: TempDir,
}

impl Scene {
    /// A hub that runs, over topics of so many partitions each.
    pub(crate) fn new(topics: &[&str], partitions: u32, settings: &[(&str, &str)]) -> Self {
        Self::replicated(topics, partitions, 1, settings)
    }

    /// The same with topics that so many brokers hold.
    pub(crate) fn replicated(topics: &[&str], partitions: u32, replicas: u32, settings: &[(&str, &str)]) -> Self {
        let mut scene = Self::made(topics, partitions, replicas, settings);
        scene.hub.start();
        scene
    }

    /// A hub that does not run yet.
    pub(crate) fn stopped(topics: &[&str], partitions: u32, settings: &[(&str, &str)]) -> Self {
        Self::made(topics, partitions, 1, settings)
    }

    fn made(topics: &[&str], partitions: u32, replicas: u32, settings: &[(&str, &str)]) -> Self {
        let prefix = own_prefix();
        let topics: Vec<String> = topics.iter().map(|topic| format!("{prefix}{topic}")).collect();
        kafka::create_topics(&topics, partitions, replicas);
        let receiver = Receiver::start();
        let mut hub = Hub::new(receiver.port(), settings);
        hub.set("KAFKA_BROKERS", &kafka::brokers());
        hub.set("TOPIC_PREFIX", &prefix);
        let folder = tempfile::Builder::new().prefix("load-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { hub, receiver, topics, prefix, folder }
    }

    /// Makes the subscription of each tenant: fifo, to everything.
    pub(crate) fn subscribe(&self, tenants: &[String]) {
        self.subscribe_as(tenants, &json!({}));
    }

    /// The same with something asked otherwise.
    pub(crate) fn subscribe_as(&self, tenants: &[String], more: &Value) {
        let api = self.hub.api();
        for tenant in tenants {
            let made = api.subscribe(tenant, &self.receiver.url(tenant), more);
            self.receiver.learn(tenant, &made.secret);
        }
        assert_eq!(self.receiver.probes(), tenants.len());
    }

    /// Where loads keep their manifests.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until so many deliveries came, for as long as they keep coming.
    pub(crate) fn delivered(&self, wanted: usize) {
        let (mut last, mut since) = (self.receiver.count(), Instant::now());
        until_true(&format!("{wanted} deliveries"), Duration::from_secs(1800), || {
            let count = self.receiver.count();
            if count != last {
                (last, since) = (count, Instant::now());
            }
            assert!(since.elapsed() < STALL, "no delivery after {count} of {wanted} for {STALL:?}");
            count >= wanted
        });
    }

    /// Waits until the hub has nothing left to do.
    pub(crate) fn settled(&self) {
        let api = self.hub.api();
        until_true("everything is settled", STALL, || {
            let partitions = api.done("GET", "/admin/ingest", None, None);
            // A partition that never held anything has no position.
            let is_read = |partition: &Value| {
                partition["position"].as_i64().unwrap_or(0) >= partition["high_watermark"].as_i64().unwrap_or(i64::MAX)
            };
            partitions["partitions"].as_array().unwrap().iter().all(is_read)
                && api.metric("streaming_hub_unfinished_jobs") == 0.0
        });
    }

    /// Nothing was given up, quarantined, or skipped.
    pub(crate) fn nothing_was_lost(&self) {
        let api = self.hub.api();
        for list in ["/admin/dead-letters", "/admin/poison", "/admin/gaps"] {
            assert_eq!(api.list(list), [Value::Null; 0], "{list}");
        }
    }

    /// `kill -9`; how many deliveries had come, with the last one that it sent.
    pub(crate) fn kill(&mut self) -> usize {
        self.hub.kill();
        self.receiver.has_taken_all_in();
        self.receiver.count()
    }

    /// All of that load was delivered, once and in order, and nothing else was.
    pub(crate) fn each_once(&self, manifest: &kafka::Manifest, when: &str) {
        judge(manifest, &self.receiver, &[]).0.none(when);
    }

    /// A load into its topics, of so many events and tenants.
    pub(crate) fn load(&self, events: u64, tenants: u32, partitions: u32) -> Load {
        Load::new(events, tenants, &self.topics, partitions)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The brokers of a run are shared, and a full disk would fail the next test. Not while failing: that would hide why.
        if !std::thread::panicking() {
            kafka::delete_topics(&self.topics);
        }
    }
}
