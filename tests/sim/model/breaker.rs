//! The circuit breaker as C7 tells it.

use streaming_hub::model::ids::ClaimNo;
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::time::HubTime;

/// A breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerModel {
    Closed { failures: u32 },
    Open { until: HubTime, cooling: u64 },
    Probing { claim: ClaimNo, cooling: u64 },
}

impl BreakerModel {
    /// Whether it is not closed.
    pub fn is_open(self) -> bool {
        !matches!(self, BreakerModel::Closed { .. })
    }

    /// Whether a job may be claimed for the destination.
    pub fn lets_through(self, now: HubTime) -> bool {
        match self {
            BreakerModel::Closed { .. } => true,
            BreakerModel::Open { until, .. } => until <= now,
            BreakerModel::Probing { .. } => false,
        }
    }

    /// A failure that counts.
    pub fn failed(self, policy: &BreakerPolicy, now: HubTime, at_once: bool) -> Self {
        match self {
            BreakerModel::Closed { failures } if failures + 1 < policy.failures && !at_once => {
                BreakerModel::Closed { failures: failures + 1 }
            }
            BreakerModel::Closed { .. } => {
                let cooling = policy.cooling_ms.min(policy.cooling_max_ms);
                BreakerModel::Open { until: now.plus_ms(cooling), cooling }
            }
            BreakerModel::Open { .. } => self,
            BreakerModel::Probing { cooling, .. } => {
                let cooling = (cooling * 2).min(policy.cooling_max_ms);
                BreakerModel::Open { until: now.plus_ms(cooling), cooling }
            }
        }
    }

    /// The probe's claim ended without saying anything.
    pub fn probe_ended(self, now: HubTime) -> Self {
        match self {
            BreakerModel::Probing { cooling, .. } => BreakerModel::Open { until: now, cooling },
            BreakerModel::Closed { .. } | BreakerModel::Open { .. } => self,
        }
    }
}
