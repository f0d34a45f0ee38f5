//! The only reader of the clocks. Everything else is told what time it is.
//!
//! Two times, which are never one another: [`Timestamp`] is the wall clock, for people and signatures; [`HubTime`] is the
//! hub's own time, on which every deadline runs and which ignores jumps of the wall clock (C13.8).

use bincode::{Decode, Encode};
use std::fmt;
use std::time::Duration;

/// Wall time in milliseconds since 1970. Shown as RFC 3339 UTC with milliseconds (A1.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct Timestamp(pub u64);

/// Hub time in milliseconds: the last stored time, or the wall clock at start where that is later, plus what the monotonic
/// clock has counted since (C13.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct HubTime(pub u64);

impl Timestamp {
    /// Whole Unix seconds.
    pub fn unix_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// That much later; stops at the end of time.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }

    /// Reads RFC 3339.
    pub fn parse(text: &str) -> Option<Self> {
        let at = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
        u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FORMAT: &[time::format_description::BorrowedFormatItem<'_>] =
            time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
        let nanos = i128::from(self.0) * 1_000_000;
        let text = time::OffsetDateTime::from_unix_timestamp_nanos(nanos).ok().and_then(|at| at.format(FORMAT).ok());
        f.write_str(text.as_deref().unwrap_or("9999-12-31T23:59:59.999Z"))
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl HubTime {
    /// That many milliseconds later; stops at the end of time.
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this, 0 when it is not earlier.
    pub fn since_ms(self, earlier: HubTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Milliseconds of a duration; stops at the largest.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The wall clock.
    fn wall(&self) -> Timestamp;
    /// Time since some fixed moment of this process, unmoved by changes of the wall clock.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// Starts counting now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the monotonic clock")]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
    fn wall(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, millis))
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// Hub time over a clock: set once at start, then only forward (C13.8).
#[derive(Debug, Clone, Copy)]
pub struct HubClock {
    base: HubTime,
    at: Duration,
}

impl HubClock {
    /// Starts hub time at the later of what the store last saw and the wall clock.
    pub fn start(last_stored: HubTime, clock: &dyn Clock) -> Self {
        Self { base: HubTime(last_stored.0.max(clock.wall().0)), at: clock.monotonic() }
    }

    /// Hub time now.
    pub fn now(&self, clock: &dyn Clock) -> HubTime {
        self.base.plus_ms(millis(clock.monotonic().saturating_sub(self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A1.10
    #[test]
    fn timestamps_are_utc_with_milliseconds() {
        assert_eq!(Timestamp(1_700_000_000_123).to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp::parse("2023-11-14T19:13:20.123-03:00"), Some(Timestamp(1_700_000_000_123)));
        assert_eq!(Timestamp(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::parse("1969-01-01T00:00:00Z"), None);
    }

    struct Fixed(u64, u64);
    impl Clock for Fixed {
        fn wall(&self) -> Timestamp {
            Timestamp(self.0)
        }
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.1)
        }
    }

    // C13.8
    #[test]
    fn hub_time_ignores_jumps_of_the_wall_clock() {
        let hub = HubClock::start(HubTime(5_000), &Fixed(1_000, 10));
        assert_eq!(hub.now(&Fixed(1_000, 10)), HubTime(5_000), "a wall clock behind the store is not believed");
        assert_eq!(hub.now(&Fixed(9_999_999, 12)), HubTime(5_002), "a jump while running changes nothing");
        assert_eq!(HubClock::start(HubTime(5_000), &Fixed(7_000, 0)).now(&Fixed(0, 5)), HubTime(7_005));
    }
}
