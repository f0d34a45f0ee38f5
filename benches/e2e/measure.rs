//! Figures out of samples: percentiles, rates, and what a process used between two moments.

use crate::harness::hub::Usage;
use crate::harness::receiver::Arrival;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Sorted samples.
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    /// Of these.
    pub(crate) fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    fn at(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1) as f64;
        self.0.get((last * share).round() as usize).copied().map_or(0.0, rounded)
    }

    /// The percentiles that are asked for.
    pub(crate) fn json(&self) -> Value {
        json!({
            "samples": self.0.len(), "p50": self.at(0.5), "p90": self.at(0.9), "p99": self.at(0.99), "max": self.at(1.0),
        })
    }
}

/// Three digits after the point.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Milliseconds from produce to delivery.
pub(crate) fn latencies(arrivals: &[Arrival]) -> Spread {
    let of_one = |arrival: &Arrival| arrival.received_us.saturating_sub(arrival.produced_us) as f64 / 1000.0;
    Spread::of(arrivals.iter().map(of_one).collect())
}

/// Samples of a rising count: how many, and when in seconds.
#[derive(Default)]
pub(crate) struct Rising(pub(crate) Vec<(f64, f64)>);

impl Rising {
    /// Of deliveries by their arrival.
    pub(crate) fn of_arrivals(arrivals: &[Arrival]) -> Self {
        let counted = arrivals.iter().enumerate();
        Self(counted.map(|(at, arrival)| ((at + 1) as f64, arrival.received_us as f64 / 1e6)).collect())
    }

    /// A second, between the first and the last tenth.
    pub(crate) fn rate(&self) -> f64 {
        let end = self.0.last().map_or(0.0, |(count, _)| *count);
        let reached = |share: f64| self.0.iter().find(|(count, _)| *count >= end * share).copied().unwrap_or_default();
        let ((low, from), (high, to)) = (reached(0.1), reached(0.9));
        rounded((high - low) / (to - from).max(1e-9)).round()
    }
}

/// What the hub used between two moments, for so many events.
pub(crate) fn used(before: Usage, after: Usage, events: u64) -> Value {
    let thousands = events as f64 / 1000.0;
    json!({
        "cpu_seconds_per_1000": rounded((after.cpu - before.cpu) / thousands),
        "of_which_system": rounded((after.system - before.system) / thousands),
        "written_bytes_per_event": (after.written - before.written) / events,
        "rss_peak_mb": megabytes(after.rss_peak),
    })
}

/// A size in megabytes.
pub(crate) fn megabytes(bytes: u64) -> f64 {
    rounded(bytes as f64 / 1e6)
}

/// Allocated bytes of a file: its length has holes.
pub(crate) fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}
