//! What a seed's world is like, drawn from the seed.

use crate::chance::Chance;
use crate::model::Rules;
use streaming_hub::dispatch::pool::PoolSettings;
use streaming_hub::engine::{EngineSettings, PlantedBug, ReplayPace};
use streaming_hub::model::limits::RECLAIMS_DEFAULT;
use streaming_hub::rules::autodisable::{Acts, AutoDisablePolicy};
use streaming_hub::rules::backoff::Schedule;
use streaming_hub::rules::breaker::BreakerPolicy;
use streaming_hub::store::StoreSettings;

/// How a world of one seed is made.
#[derive(Debug, Clone)]
pub struct Options {
    pub tenants: usize,
    pub partitions: usize,
    pub subscriptions: usize,
    /// Events that the producers make in all.
    pub records: usize,
    /// How long the actors act, in milliseconds.
    pub acting_ms: u64,
    pub slots: u32,
    pub claim_batch: u32,
    pub recent_bytes: usize,
    pub pending_max: usize,
    pub replay: ReplayPace,
    pub loads: usize,
    pub body_bytes: usize,
    pub lease_ms: u64,
    /// How long a claim lies with the pool before it looks, at most.
    pub pool_delay_ms: u64,
    pub breaker: BreakerPolicy,
    pub autodisable: AutoDisablePolicy,
    pub schedule: Vec<u64>,
    pub cache_bytes: usize,
    pub quick_repair_above: u64,
    pub faults: Faults,
    pub planted: Option<PlantedBug>,
}

/// What goes wrong; each in so many of a thousand chances.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Power cuts at any operation of the disk.
    pub cuts: u64,
    /// Operations of the disk that fail.
    pub disk: u64,
    /// The process is killed.
    pub kills: u64,
    /// It is stopped cleanly.
    pub stops: u64,
    /// The wall clock jumps.
    pub clock: u64,
    /// Receivers answer badly.
    pub receivers: u64,
    /// Events that crash their worker, of a thousand events.
    pub crashers: u64,
    /// Events that crash the process, of a thousand events.
    pub killers: u64,
    /// Changes of subscriptions.
    pub api: u64,
}

impl Options {
    /// Those of a seed.
    pub fn of(chance: &mut Chance, planted: Option<PlantedBug>) -> Self {
        let faults = faults(chance);
        let short = chance.permille(600);
        let schedule = match chance.below(4) {
            0 => Schedule::default_curve().steps().to_vec(),
            1 => vec![0, 50, 2_000],
            2 => vec![200, 1_000, 1_000, 5_000],
            _ => vec![0, 5_000, 60_000, 60_000, 600_000],
        };
        Self {
            tenants: chance.pick(&[1, 1, 2, 4]),
            partitions: chance.pick(&[1, 2, 3, 5]),
            subscriptions: chance.pick(&[1, 2, 4, 7, 10]),
            records: chance.pick(&if short { [10, 25, 40] } else { [60, 100, 200] }),
            // Once in a while days, so that curves and holds come to their end.
            acting_ms: chance.pick(&[20_000, 20_000, 60_000, 60_000, 600_000, 200_000_000]),
            slots: chance.pick(&[1, 2, 3, 8, 64]),
            claim_batch: chance.pick(&[1, 2, 8, 256]),
            recent_bytes: chance.pick(&[0, 3_000, 1 << 20]),
            // Most worlds have lanes that are too long for memory.
            pending_max: chance.pick(&[2, 5, 12, 12, 40, 40, 1_000_000, 1_000_000]),
            replay: chance.pick(&[
                ReplayPace { jobs: 1, rows: 2, ahead: 1 },
                ReplayPace { jobs: 3, rows: 8, ahead: 4 },
                ReplayPace { jobs: 4, rows: 16, ahead: 1_000 },
                ReplayPace::default(),
            ]),
            loads: chance.pick(&[1, 3, 8]),
            body_bytes: chance.pick(&[600, 20_000, 64 << 20]),
            lease_ms: chance.pick(&[70_000, 90_000]),
            pool_delay_ms: chance.pick(&[0, 3, 3, 400]),
            breaker: BreakerPolicy {
                failures: chance.pick(&[1, 3, 5, 5]),
                cooling_ms: chance.pick(&[500, 30_000]),
                cooling_max_ms: chance.pick(&[30_000, 600_000]),
            },
            autodisable: AutoDisablePolicy {
                acts: if chance.permille(800) { Acts::On } else { Acts::Off },
                window_ms: chance.pick(&[0, 3_000, 30_000, 400_000, 120 * 3_600_000]),
                spread_ms: chance.pick(&[0, 1_000, 10_000, 3_600_000]),
                gone_over_ms: chance.pick(&[500, 10_000, 3_600_000]),
            },
            schedule,
            cache_bytes: chance.pick(&[64 << 10, 8 << 20]),
            quick_repair_above: chance.pick(&[0, u64::MAX]),
            faults,
            planted,
        }
    }

    /// For the engine.
    pub fn engine(&self) -> EngineSettings {
        EngineSettings {
            slots: self.slots,
            claim_batch: self.claim_batch,
            poison_threshold: RECLAIMS_DEFAULT,
            breaker: self.breaker,
            autodisable: self.autodisable,
            schedule: Schedule::from_steps_ms(&self.schedule).unwrap(),
            pending_max: self.pending_max,
            poison_max_bytes: 64 << 20,
            poison_retention_ms: u64::MAX,
            recent_bytes: self.recent_bytes,
            only_tenant: None,
            replay: self.replay,
            planted: self.planted,
        }
    }

    /// For the model.
    pub fn rules(&self) -> Rules {
        Rules {
            slots: self.slots,
            claim_batch: self.claim_batch,
            poison_threshold: RECLAIMS_DEFAULT,
            breaker: self.breaker,
            autodisable: self.autodisable,
            schedule: self.schedule.clone(),
            pending_max: self.pending_max,
            replay: self.replay,
        }
    }

    /// For the pool.
    pub fn pool(&self) -> PoolSettings {
        PoolSettings { body_bytes: self.body_bytes, loads: self.loads, lease_ms: self.lease_ms }
    }

    /// For the store.
    pub fn store(&self) -> StoreSettings {
        StoreSettings { cache_bytes: self.cache_bytes, quick_repair_above: self.quick_repair_above }
    }
}

/// Worlds with one kind of trouble, and worlds with all of them.
fn faults(chance: &mut Chance) -> Faults {
    let all = Faults {
        cuts: 25,
        disk: 15,
        kills: 12,
        stops: 8,
        clock: 5,
        receivers: 120,
        crashers: 25,
        killers: 12,
        api: 100,
    };
    let none = Faults::default();
    match chance.below(9) {
        0 => Faults { receivers: 200, ..none },
        1 => Faults { receivers: 200, api: 100, ..none },
        2 => Faults { cuts: 60, ..none },
        3 => Faults { disk: 50, receivers: 50, ..none },
        4 => Faults { kills: 30, stops: 20, clock: 10, receivers: 50, api: 50, ..none },
        5 => Faults { crashers: 60, killers: chance.pick(&[0, 40]), ..none },
        6 | 7 => all,
        _ => Faults { cuts: 100, kills: 40, api: 200, receivers: 100, ..all },
    }
}
