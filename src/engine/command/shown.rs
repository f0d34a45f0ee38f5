//! What the writer tells of lanes, breakers and the hub when it is asked: readings, which change nothing.

use crate::model::attempt::ErrorClass;
use crate::model::ids::TenantNo;
use crate::model::subscription::{DisabledReason, Enabled, Subscription};
use crate::rules::autodisable::Health;
use crate::time::HubTime;

/// State of one subscription's lane, for its health.
#[derive(Debug, Clone, Default)]
pub struct LaneState {
    /// Jobs waiting, retries included.
    pub waiting: u64,
    /// Jobs claimed now.
    pub in_flight: u32,
    /// Hub time at which its oldest waiting event was stored.
    pub oldest_waiting: Option<HubTime>,
    /// Held by a 429 until then.
    pub hold_until: Option<HubTime>,
    /// State of the destination's breaker.
    pub breaker: BreakerState,
    /// When that breaker first opened; none while it is closed.
    pub breaker_since: Option<HubTime>,
    /// Due jobs that it has passed over since (C7.1).
    pub breaker_shed: u64,
    /// What its failures have come to (C8.2).
    pub health: Health,
    /// What was counted of it since the process started; in memory only.
    pub tally: Tally,
    /// The hub's time of this reading.
    pub now: HubTime,
}

impl LaneState {
    /// Whether somebody should look after the subscription: failures have switched it off or would have, its breaker is not closed, or it
    /// is held.
    pub fn is_unhealthy(&self, subscription: &Subscription) -> bool {
        let off = match subscription.enabled {
            Enabled::Yes | Enabled::Disabled { reason: DisabledReason::Paused, .. } => false,
            Enabled::Disabled { reason: DisabledReason::AutoDisabled | DisabledReason::Gone, .. } => true,
        };
        off || self.health.verdict.is_some() || self.hold_until.is_some() || self.breaker != BreakerState::Closed
    }
}

/// Whose health is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Those that do well.
    Healthy,
    /// The others; see [`LaneState::is_unhealthy`].
    Unhealthy,
}

/// What was counted of a subscription since the process started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events delivered.
    pub delivered: u64,
    /// Attempts that failed; those that were told to wait (429) are not counted.
    pub failed: u64,
    /// Jobs that ended undelivered.
    pub dead_letters: u64,
    /// The last delivery.
    pub last_success: Option<HubTime>,
    /// The last failed attempt.
    pub last_failure: Option<HubTime>,
}

/// A breaker that is not closed, for `/admin/breakers` (C7.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerSeen {
    /// Its tenant.
    pub tenant: TenantNo,
    /// Its destination.
    pub destination: String,
    /// Its state.
    pub state: BreakerState,
    /// When it first opened.
    pub since: HubTime,
    /// Due jobs passed over so far, counted at opening and at each failed probe (C7.1).
    pub shed: u64,
    /// Due jobs that wait for it now.
    pub waiting: u64,
    /// Subscriptions that go there.
    pub subscriptions: u64,
    /// What the last failed attempt of any of them met, where one of them has a span of failures.
    pub last_error: Option<ErrorClass>,
}

/// A breaker as it is shown (C7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BreakerState {
    /// Deliveries go on.
    #[default]
    Closed,
    /// Jobs are shed until then.
    Open {
        /// Next probe.
        until: HubTime,
    },
    /// One job is on its way to try.
    Probing,
}

/// Counts of the whole hub, for metrics and health.
#[derive(Debug, Clone, Default)]
pub struct HubState {
    /// Jobs waiting or claimed.
    pub unfinished: u64,
    /// Jobs claimed now.
    pub in_flight: u64,
    /// Of the jobs that wait, those in memory; the others wait in the store only.
    pub in_memory: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Breakers that are not closed.
    pub breakers_open: u64,
    /// When the one of them that is longest open first opened.
    pub breaker_open_since: Option<HubTime>,
    /// Subscriptions that failures have switched off (C8, C9.10).
    pub switched_off: u64,
    /// Hub time at which the oldest unfinished event of a live, unblocked lane was stored.
    pub oldest_waiting: Option<HubTime>,
    /// When the oldest unfinished event of any lane was stored, those on hold, switched off or behind a breaker too.
    pub oldest_unfinished: Option<HubTime>,
    /// The hub's time of this reading.
    pub now: HubTime,
    /// Allocated bytes of the store file.
    pub store_bytes: u64,
}
