//! Names and types of the metrics, and nothing else: edges and the writer record, `/metrics` encodes (C13.1).
//!
//! Invariant: no label holds a tenant, an id or a URL. Labels are codes of closed lists, operations of the API, and topic
//! partitions, so what a scrape answers is bounded whatever tenants do.

use crate::engine::Counts;
use crate::engine::command::HubState;
use crate::model::job::Outcome;
use crate::time::HubTime;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What `/metrics` answers with: the OpenMetrics text format.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Codes<const N: usize> = Family<Labels<N>, Counter>;
type PartitionLabels = Vec<(&'static str, String)>;
type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of the hub. One for the process, shared by everybody who counts.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    records: Codes<1>,
    quarantined: Codes<1>,
    dedup_drops: Counter,
    dedup_conflicts: Counter,
    events: Counter,
    jobs: Counter,
    sent_again: Counter,
    attempts: Codes<2>,
    deliveries: Counter,
    dead_letters: Codes<1>,
    gaps: Counter,
    breakers_opened: Counter,
    jobs_shed: Counter,
    notices: Codes<1>,
    stale_settles: Counter,
    http_requests: Codes<2>,
    http_panics: Counter,
    http_refused: Counter,
    kafka_connected: Gauge,
    kafka_hanging: Gauge,
    kafka_lag: Family<PartitionLabels, Gauge>,
    kafka_last_fetch: Family<PartitionLabels, Gauge>,
    unfinished: Gauge,
    in_memory: Gauge,
    in_flight: Gauge,
    subscriptions: Gauge,
    breakers_open: Gauge,
    breaker_open_age: Seconds,
    switched_off: Gauge,
    oldest_waiting: Seconds,
    oldest_unfinished: Seconds,
    store_bytes: Gauge,
    store_suspended: Gauge,
    disk_free: Gauge,
    disk_low: Gauge,
    attempt_duration: Histogram,
    first_attempt: Histogram,
    commit_duration: Histogram,
    commit_commands: Histogram,
}

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        let mut made = Self {
            registry: Registry::with_prefix("streaming_hub"),
            records: Family::default(),
            quarantined: Family::default(),
            dedup_drops: Counter::default(),
            dedup_conflicts: Counter::default(),
            events: Counter::default(),
            jobs: Counter::default(),
            sent_again: Counter::default(),
            attempts: Family::default(),
            deliveries: Counter::default(),
            dead_letters: Family::default(),
            gaps: Counter::default(),
            breakers_opened: Counter::default(),
            jobs_shed: Counter::default(),
            notices: Family::default(),
            stale_settles: Counter::default(),
            http_requests: Family::default(),
            http_panics: Counter::default(),
            http_refused: Counter::default(),
            kafka_connected: Gauge::default(),
            kafka_hanging: Gauge::default(),
            kafka_lag: Family::default(),
            kafka_last_fetch: Family::default(),
            unfinished: Gauge::default(),
            in_memory: Gauge::default(),
            in_flight: Gauge::default(),
            subscriptions: Gauge::default(),
            breakers_open: Gauge::default(),
            breaker_open_age: Seconds::default(),
            switched_off: Gauge::default(),
            oldest_waiting: Seconds::default(),
            oldest_unfinished: Seconds::default(),
            store_bytes: Gauge::default(),
            store_suspended: Gauge::default(),
            disk_free: Gauge::default(),
            disk_low: Gauge::default(),
            attempt_duration: Histogram::new(ATTEMPT_SECONDS),
            first_attempt: Histogram::new(FIRST_ATTEMPT_SECONDS),
            commit_duration: Histogram::new(COMMIT_SECONDS),
            commit_commands: Histogram::new(COMMIT_COMMANDS),
        };
        made.register();
        made
    }

    fn register(&mut self) {
        let all = &mut self.registry;
        all.register("records", "Records by verdict", self.records.clone());
        all.register("quarantined_records", "Quarantined records by reason", self.quarantined.clone());
        all.register("dedup_drops", "Records known already", self.dedup_drops.clone());
        all.register("dedup_conflicts", "Records known already with another body", self.dedup_conflicts.clone());
        all.register("events_accepted", "Events stored", self.events.clone());
        all.register("jobs_made", "Jobs made for stored events", self.jobs.clone());
        let help = "Jobs that replays and bulk redrives made, or made due";
        all.register("jobs_sent_again", help, self.sent_again.clone());
        all.register("attempts", "Attempts by outcome and error class", self.attempts.clone());
        all.register("deliveries", "Events delivered", self.deliveries.clone());
        all.register("dead_letters", "Jobs that ended undelivered, by reason", self.dead_letters.clone());
        all.register("gaps", "Stretches of partitions that were never read", self.gaps.clone());
        all.register("breakers_opened", "Breakers that opened", self.breakers_opened.clone());
        let help = "Due jobs passed over by breakers, at their opening and at each failed probe";
        all.register("jobs_shed", help, self.jobs_shed.clone());
        all.register("notices", "Notices to operators, by kind", self.notices.clone());
        all.register("stale_settles", "Outcomes of claims that were gone", self.stale_settles.clone());
        all.register("http_requests", "Requests by operation and status class", self.http_requests.clone());
        all.register("http_panics", "Requests whose handler panicked", self.http_panics.clone());
        all.register("http_refused_connections", "Connections over the limit", self.http_refused.clone());
        all.register("kafka_connected", "1 while the brokers answer", self.kafka_connected.clone());
        let help = "Partitions that a hanging transaction holds up";
        all.register("kafka_hanging_transactions", help, self.kafka_hanging.clone());
        all.register("kafka_lag", "Records between position and end of the partition", self.kafka_lag.clone());
        let help = "Unix time of the last answered fetch of the partition";
        all.register("kafka_last_fetch_timestamp_seconds", help, self.kafka_last_fetch.clone());
        all.register("unfinished_jobs", "Jobs waiting or claimed", self.unfinished.clone());
        all.register("jobs_in_memory", "Jobs waiting that are in memory as well", self.in_memory.clone());
        all.register("jobs_in_flight", "Jobs claimed now", self.in_flight.clone());
        all.register("subscriptions", "Subscriptions", self.subscriptions.clone());
        all.register("breakers_open", "Breakers that are not closed", self.breakers_open.clone());
        let help = "How long the breaker is open that is longest open; 0 while none is";
        all.register("breaker_open_age_seconds", help, self.breaker_open_age.clone());
        let help = "Subscriptions that failures or 410 have switched off";
        all.register("subscriptions_switched_off", help, self.switched_off.clone());
        let help = "Age of the oldest unfinished event of a live lane that nothing blocks";
        all.register("oldest_waiting_age_seconds", help, self.oldest_waiting.clone());
        let help = "Age of the oldest unfinished event of any lane, on hold or switched off too";
        all.register("oldest_unfinished_age_seconds", help, self.oldest_unfinished.clone());
        all.register("store_bytes", "Allocated bytes of the store file", self.store_bytes.clone());
        all.register("store_suspended", "1 while the store takes no writes", self.store_suspended.clone());
        all.register("disk_free_bytes", "Free bytes on the disk of the store", self.disk_free.clone());
        let help = "1 while less than STORE_RESERVE_BYTES is free: no events and no changes are taken";
        all.register("disk_low", help, self.disk_low.clone());
        all.register("attempt_duration_seconds", "Duration of attempts", self.attempt_duration.clone());
        let help = "From storing an event (and the first step of its schedule) to the claim for its first attempt";
        all.register("accept_to_first_attempt_seconds", help, self.first_attempt.clone());
        all.register("commit_duration_seconds", "Duration of commits", self.commit_duration.clone());
        all.register("commit_commands", "Commands in a commit", self.commit_commands.clone());
    }

    /// Counts what a durable batch led to. The writer's counts are the one source of what happened to records and jobs.
    pub fn committed(&self, counts: &Counts, commands: usize, took: Duration) {
        self.commit_duration.observe(took.as_secs_f64());
        self.commit_commands.observe(f64::from(u32::try_from(commands).unwrap_or(u32::MAX)));
        for (verdict, count) in [
            ("accept", counts.accepted.saturating_add(counts.duplicates)),
            ("drop", counts.dropped),
            ("quarantine", counts.quarantined.iter().map(|(_, count)| count).sum()),
        ] {
            if count > 0 {
                self.records.get_or_create(&[("verdict", verdict)]).inc_by(count);
            }
        }
        for (reason, count) in &counts.quarantined {
            self.quarantined.get_or_create(&[("reason", reason.code())]).inc_by(*count);
        }
        for (reason, count) in &counts.dead {
            self.dead_letters.get_or_create(&[("reason", reason.code())]).inc_by(*count);
        }
        self.events.inc_by(counts.accepted);
        self.dedup_drops.inc_by(counts.duplicates);
        self.dedup_conflicts.inc_by(counts.dedup_conflicts);
        self.jobs.inc_by(counts.jobs);
        self.sent_again.inc_by(counts.sent_again);
        self.deliveries.inc_by(counts.delivered);
        self.gaps.inc_by(counts.gaps);
        for waited_ms in &counts.first_waits_ms {
            self.first_attempt.observe(Duration::from_millis(*waited_ms).as_secs_f64());
        }
        self.breakers_opened.inc_by(counts.breakers_opened);
        self.jobs_shed.inc_by(counts.shed);
        for notice in &counts.notices {
            self.notices.get_or_create(&[("kind", notice.kind.code())]).inc();
        }
        self.stale_settles.inc_by(counts.stale_settles);
    }

    /// Says whether the store takes writes.
    pub fn store_suspended(&self, suspended: bool) {
        self.store_suspended.set(i64::from(suspended));
    }

    /// Says how much of the store's disk is free.
    pub fn disk_free(&self, bytes: u64) {
        self.disk_free.set(shown(bytes));
    }

    /// Says whether that is less than `STORE_RESERVE_BYTES` (C13.4).
    pub fn disk_low(&self, is_low: bool) {
        self.disk_low.set(i64::from(is_low));
    }

    /// Counts a system event that was never handed to the writer.
    pub fn dropped(&self) {
        self.records.get_or_create(&[("verdict", "drop")]).inc();
    }

    /// Counts an attempt by what it met; what was given back without an attempt is not counted.
    pub fn attempt(&self, outcome: &Outcome) {
        let (name, attempt) = match outcome {
            Outcome::Delivered(attempt) => ("delivered", Some(attempt)),
            Outcome::Failed { attempt, .. } => ("failed", Some(attempt)),
            Outcome::Held { attempt, .. } => ("held", Some(attempt)),
            Outcome::Hopeless { attempt, .. } => ("hopeless", Some(attempt)),
            Outcome::Crashed => ("crashed", None),
            Outcome::Released => return,
        };
        let error = outcome.error_class().map_or("none", |class| class.code());
        self.attempts.get_or_create(&[("outcome", name), ("error", error)]).inc();
        if let Some(attempt) = attempt {
            self.attempt_duration.observe(f64::from(attempt.duration_ms) / 1000.0);
        }
    }

    /// Counts an answered request. `operation` is a name of the closed list of the API.
    pub fn http_request(&self, operation: &'static str, status: u16) {
        let class = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.http_requests.get_or_create(&[("operation", operation), ("status", class)]).inc();
    }

    /// Counts a request whose handler panicked.
    pub fn http_panicked(&self) {
        self.http_panics.inc();
    }

    /// Counts a connection that was refused because too many were open.
    pub fn http_refused(&self) {
        self.http_refused.inc();
    }

    /// Says whether the brokers answer.
    pub fn kafka_connected(&self, connected: bool) {
        self.kafka_connected.set(i64::from(connected));
    }

    /// Says how many partitions are held up by a hanging transaction (C1.6).
    pub fn kafka_hanging(&self, partitions: i64) {
        self.kafka_hanging.set(partitions);
    }

    /// Says how far behind a partition is, and when it last answered (Unix seconds).
    pub fn kafka_partition(&self, topic: &str, partition: i32, lag: i64, last_fetch_unix: i64) {
        let labels = partition_labels(topic, partition);
        self.kafka_lag.get_or_create(&labels).set(lag);
        self.kafka_last_fetch.get_or_create(&labels).set(last_fetch_unix);
    }

    /// Forgets a partition that is followed no more.
    pub fn kafka_partition_gone(&self, topic: &str, partition: i32) {
        let labels = partition_labels(topic, partition);
        self.kafka_lag.remove(&labels);
        self.kafka_last_fetch.remove(&labels);
    }

    /// Shows the hub's counts as they are now.
    pub fn hub(&self, hub: &HubState) {
        self.unfinished.set(shown(hub.unfinished));
        self.in_memory.set(shown(hub.in_memory));
        self.in_flight.set(shown(hub.in_flight));
        self.subscriptions.set(shown(hub.subscriptions));
        self.breakers_open.set(shown(hub.breakers_open));
        let open_ms = hub.breaker_open_since.map_or(0, |since| hub.now.since_ms(since));
        self.breaker_open_age.set(Duration::from_millis(open_ms).as_secs_f64());
        self.switched_off.set(shown(hub.switched_off));
        self.store_bytes.set(shown(hub.store_bytes));
        let age = |stored: Option<HubTime>| {
            Duration::from_millis(stored.map_or(0, |stored| hub.now.since_ms(stored))).as_secs_f64()
        };
        self.oldest_waiting.set(age(hub.oldest_waiting));
        self.oldest_unfinished.set(age(hub.oldest_unfinished));
    }

    /// Everything in the OpenMetrics text format.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing into a String cannot fail; what is there is shown either way.
        let _ = encode(&mut out, &self.registry);
        out
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

const ATTEMPT_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0, 60.0];
const FIRST_ATTEMPT_SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0, 60.0, 600.0];
const COMMIT_SECONDS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];
const COMMIT_COMMANDS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0];

fn partition_labels(topic: &str, partition: i32) -> PartitionLabels {
    vec![("topic", topic.to_owned()), ("partition", partition.to_string())]
}

fn shown(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attempt::{AttemptRecord, ErrorClass};
    use crate::model::ids::DeliveryId;
    use crate::model::job::DeadReason;
    use crate::model::notice::{Notice, NoticeKind};
    use crate::model::record::Reason;
    use crate::time::Timestamp;

    fn attempt(error: Option<ErrorClass>) -> AttemptRecord {
        let delivery = DeliveryId([1; 16]);
        AttemptRecord { delivery, at: Timestamp(0), duration_ms: 3, status: None, error, answer: Vec::new() }
    }

    // C13.1
    #[test]
    fn what_is_recorded_is_shown() {
        let metrics = Metrics::new();
        let counts = Counts {
            accepted: 1,
            duplicates: 1,
            dedup_conflicts: 1,
            quarantined: vec![(Reason::MissingTenant, 1)],
            gaps: 2,
            jobs: 3,
            delivered: 1,
            shed: 4,
            notices: vec![Notice::about(NoticeKind::Gone, "https://secret.example/hook", HubTime(1), "tenant-x")],
            dead: vec![(DeadReason::Exhausted, 1)],
            ..Counts::default()
        };
        metrics.committed(&counts, 12, Duration::from_millis(2));
        metrics.dropped();
        metrics.attempt(&Outcome::Delivered(attempt(None)));
        metrics.attempt(&Outcome::Failed { attempt: attempt(Some(ErrorClass::Dns)), not_before_ms: None });
        metrics.attempt(&Outcome::Released);
        metrics.http_request("list_subscriptions", 204);
        metrics.kafka_partition("lerian.streaming.lender", 0, 7, 1_700_000_000);
        metrics.kafka_hanging(2);
        let oldest_waiting = Some(HubTime(1_000));
        let (breaker_open_since, now) = (Some(HubTime(3_000)), HubTime(3_500));
        let oldest_unfinished = Some(HubTime(500));
        let hub =
            HubState { unfinished: 5, in_memory: 4, oldest_waiting, oldest_unfinished, now, ..HubState::default() };
        metrics.hub(&HubState { breaker_open_since, switched_off: 2, ..hub });
        let text = metrics.text();
        for line in [
            "streaming_hub_records_total{verdict=\"accept\"} 2",
            "streaming_hub_records_total{verdict=\"drop\"} 1",
            "streaming_hub_quarantined_records_total{reason=\"missing_tenant\"} 1",
            "streaming_hub_dedup_drops_total 1",
            "streaming_hub_dedup_conflicts_total 1",
            "streaming_hub_events_accepted_total 1",
            "streaming_hub_jobs_made_total 3",
            "streaming_hub_attempts_total{outcome=\"delivered\",error=\"none\"} 1",
            "streaming_hub_attempts_total{outcome=\"failed\",error=\"dns\"} 1",
            "streaming_hub_deliveries_total 1",
            "streaming_hub_dead_letters_total{reason=\"exhausted\"} 1",
            "streaming_hub_gaps_total 2",
            "streaming_hub_http_requests_total{operation=\"list_subscriptions\",status=\"2xx\"} 1",
            "streaming_hub_kafka_lag{topic=\"lerian.streaming.lender\",partition=\"0\"} 7",
            "streaming_hub_jobs_shed_total 4",
            "streaming_hub_notices_total{kind=\"gone\"} 1",
            "streaming_hub_breaker_open_age_seconds 0.5",
            "streaming_hub_subscriptions_switched_off 2",
            "streaming_hub_kafka_hanging_transactions 2",
            "streaming_hub_unfinished_jobs 5",
            "streaming_hub_jobs_in_memory 4",
            "streaming_hub_oldest_waiting_age_seconds 2.5",
            "streaming_hub_oldest_unfinished_age_seconds 3.0",
            "streaming_hub_attempt_duration_seconds_count 2",
            "streaming_hub_commit_commands_sum 12.0",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line}\n{text}");
        }
        assert!(!text.contains("secret.example") && !text.contains("tenant-x"), "{text}");
        metrics.kafka_partition_gone("lerian.streaming.lender", 0);
        assert!(!metrics.text().contains("lerian.streaming.lender"));
    }
}
