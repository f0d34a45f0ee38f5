//! The world of one seed: a virtual clock, what happens when, and the actors around one hub.
//!
//! Invariant: everything that happens follows from the seed; the same seed gives the same history.

mod actors;
mod attempt;
mod calm;
mod power;
mod turn;

use crate::api::Clients;
use crate::chance::Chance;
use crate::check;
use crate::disk::SimDisk;
use crate::dump::Dump;
use crate::hold;
use crate::hub::Hub;
use crate::model::{Asked, Held, Model, Totals, Violation};
use crate::options::Options;
use crate::receiver::Receivers;
use crate::source::{Producer, Source};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use streaming_hub::engine::PlantedBug;
use streaming_hub::model::ids::ClaimNo;
use streaming_hub::model::job::{Claim, Outcome};
use streaming_hub::time::{Clock, HubTime, Timestamp};

/// Wall time at which every world begins.
const EPOCH_MS: u64 = 1_796_000_000_000;
/// Lines of history that are kept.
const TRACE: usize = 200;

/// What a run was like.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    pub totals: Totals,
    pub crashes: u64,
    pub double_crashes: u64,
    pub reopenings: u64,
    pub clean_stops: u64,
    pub in_doubt_landed: u64,
    pub in_doubt_gone: u64,
    pub turns: u64,
    pub repeats: u64,
    /// Looks at the hub that found more waiting than is in memory.
    pub beyond_memory: u64,
    /// A digest of the whole history.
    pub history: u64,
}

/// What broke in a seed, with the last of what happened.
#[derive(Debug)]
pub struct Broken {
    pub what: Violation,
    pub trace: Vec<String>,
    pub options: Options,
}

/// Something that happens at its time.
#[derive(Debug)]
enum Happening {
    /// A reader takes its next step.
    Source(usize),
    /// A client of HTTP ingest sends an event.
    Http,
    /// A client of the API does something.
    Api,
    /// A destination changes its mood.
    Mood,
    /// Something may go wrong.
    Fault,
    /// Everything that can be seen is checked.
    Rest,
    /// A process is started.
    Start,
    /// The following are of one process, and nothing to another.
    Turn,
    PoolStep,
    Loaded(Claim),
    Ended(ClaimNo, Outcome),
    Reopen,
    /// A clean stop looks whether it can end.
    Stopping,
    /// The attempt of a killing event brings the process down.
    Killed,
}

impl Happening {
    fn is_of_a_process(&self) -> bool {
        match self {
            Happening::Turn
            | Happening::PoolStep
            | Happening::Loaded(_)
            | Happening::Ended(..)
            | Happening::Reopen
            | Happening::Stopping
            | Happening::Killed => true,
            Happening::Source(_)
            | Happening::Http
            | Happening::Api
            | Happening::Mood
            | Happening::Fault
            | Happening::Rest
            | Happening::Start => false,
        }
    }
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Milliseconds since the world began.
    pub now: u64,
    /// How far the wall clock is set ahead.
    pub wall_ahead: i64,
}

impl Clock for Clocks {
    fn wall(&self) -> Timestamp {
        Timestamp((EPOCH_MS + self.now).saturating_add_signed(self.wall_ahead))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.now)
    }
}

/// A batch of which it is not known whether it was stored.
struct InDoubt {
    now: HubTime,
    wall: Timestamp,
    asked: Asked,
}

/// The world.
pub struct World {
    options: Options,
    chance: Chance,
    clocks: Clocks,
    happenings: BTreeMap<(u64, u64), (u64, Happening)>,
    order: u64,
    disk: SimDisk,
    model: Model,
    hub: Option<Hub>,
    /// Which process runs.
    process: u64,
    in_doubt: Option<InDoubt>,
    sources: Vec<Source>,
    producer: Producer,
    clients: Clients,
    receivers: Receivers,
    to_make: usize,
    acting: bool,
    /// A start has been tried since the last process ended.
    reading_in: bool,
    /// A start since then found the wall clock far ahead of the store (C13.8).
    far_ahead: bool,
    last_dump: Option<Dump>,
    /// The newest events, when somebody wants to read them.
    trace: Option<VecDeque<String>>,
    report: Report,
}

/// Runs one seed.
pub fn run(seed: u64, planted: Option<PlantedBug>) -> Result<Report, Box<Broken>> {
    let once = |traced: bool| {
        let mut world = World::new(seed, planted, traced);
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
        let held = held.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(Violation(format!("panic: {}", text.unwrap_or_default())))
        });
        (held, world)
    };
    // History is written down only for a seed that failed: the second run is the same.
    let (held, world) = once(false);
    if held.is_ok() {
        return Ok(world.report);
    }
    let first = world.report.history;
    let (held, mut world) = once(true);
    let what = match held {
        Err(what) if world.report.history == first => what,
        Err(what) => Violation(format!("{} (and the second run of the same seed was another one)", what.0)),
        Ok(()) => Violation("the second run of the same seed was another one, and held".to_owned()),
    };
    let trace = world.trace.take().unwrap_or_default().into();
    Err(Box::new(Broken { what, trace, options: world.options }))
}

impl World {
    fn new(seed: u64, planted: Option<PlantedBug>, traced: bool) -> Self {
        let mut chance = Chance::of(seed);
        let options = Options::of(&mut chance, planted);
        let tenants: Vec<String> = (0..options.tenants).map(|n| format!("tenant-{n}")).collect();
        let Options { partitions, subscriptions, faults, .. } = options;
        Self {
            clocks: Clocks { now: 1, wall_ahead: 0 },
            happenings: BTreeMap::new(),
            order: 0,
            disk: SimDisk::new(chance.bits()),
            model: Model::new(options.rules()),
            hub: None,
            process: 0,
            in_doubt: None,
            sources: (0..partitions).map(|number| Source::new(chance.fork(), number)).collect(),
            producer: Producer::new(chance.fork(), tenants.clone(), faults.crashers, faults.killers),
            clients: Clients::new(chance.fork(), tenants, subscriptions),
            receivers: Receivers::new(chance.fork()),
            to_make: options.records,
            acting: true,
            reading_in: false,
            far_ahead: false,
            last_dump: None,
            trace: traced.then(VecDeque::new),
            report: Report::default(),
            chance: chance.fork(),
            options,
        }
    }

    fn live(&mut self) -> Held {
        self.schedule(0, Happening::Start);
        for number in 0..self.sources.len() {
            self.schedule(10, Happening::Source(number));
        }
        for happening in [Happening::Http, Happening::Api, Happening::Mood, Happening::Fault, Happening::Rest] {
            self.schedule(20, happening);
        }
        while let Some(at) = self.next_at()
            && at < self.options.acting_ms
        {
            self.happen()?;
        }
        self.calm_down()?;
        self.end()
    }

    fn next_at(&self) -> Option<u64> {
        self.happenings.first_key_value().map(|((at, _), _)| *at)
    }

    fn schedule(&mut self, after_ms: u64, happening: Happening) {
        let process = if happening.is_of_a_process() { self.process } else { 0 };
        self.order += 1;
        self.happenings.insert((self.clocks.now + after_ms, self.order), (process, happening));
    }

    fn happen(&mut self) -> Held {
        let Some(((at, _), (process, happening))) = self.happenings.pop_first() else { return Ok(()) };
        self.clocks.now = self.clocks.now.max(at);
        // A read may write as well, and meet the fuse: the cache makes room.
        if self.hub.is_some() && self.disk.is_cut() {
            self.power_is_gone()?;
        }
        if process != 0 && (process != self.process || self.hub.is_none()) {
            return Ok(());
        }
        match happening {
            Happening::Source(number) => self.source(number),
            Happening::Http => self.http(),
            Happening::Api => self.api(),
            Happening::Mood => self.mood(),
            Happening::Fault => return self.fault(),
            Happening::Rest => {
                if self.acting {
                    let after = self.chance.within(300, self.options.acting_ms / 8);
                    self.schedule(after, Happening::Rest);
                }
                return self.rest();
            }
            Happening::Start => return self.start(),
            Happening::Turn => return self.turn(at),
            Happening::PoolStep => return self.pool_step(at),
            Happening::Loaded(claim) => return self.loaded(claim),
            Happening::Ended(claim, outcome) => self.ended(claim, outcome),
            Happening::Reopen => return self.reopen(),
            Happening::Stopping => return self.stopping(),
            Happening::Killed => return self.kill(),
        }
        Ok(())
    }

    /// Everything that can be seen from outside of a running hub, against the model.
    fn rest(&mut self) -> Held {
        let Some(hub) = &self.hub else { return Ok(()) };
        if hub.suspended || self.in_doubt.is_some() {
            return Ok(());
        }
        let now = self.hub_now();
        // A process that has just started, or opened its store again, has its first turn still to come.
        let turn_is_due = hub.next_turn.is_some_and(|at| at <= self.clocks.now);
        if hub.is_idle(now)
            && !turn_is_due
            && hub.stopping.is_none()
            && let Some(forgotten) = self.model.forgotten(now)
        {
            return Err(Violation(format!("invariant 10: {forgotten}")));
        }
        check::readers_are_shown_what_is_stored(&self.model, &hub.board)?;
        let dump = self.dump()?;
        check::store(&mut self.model, &dump, check::Claims::Exact)?;
        self.remember(dump)
    }

    fn dump(&self) -> Result<Dump, Violation> {
        Dump::of(&self.disk).map_err(|error| Violation(format!("C13.3: the store cannot be opened: {error}")))
    }

    fn remember(&mut self, dump: Dump) -> Held {
        if let Some(before) = &self.last_dump {
            check::positions_never_go_back(&self.model, before, &dump)?;
            hold!(dump.hub.hub_time >= before.hub.hub_time, "C13.8: hub time went back");
        }
        self.last_dump = Some(dump);
        Ok(())
    }

    fn hub_now(&self) -> HubTime {
        self.hub.as_ref().map_or(HubTime(0), |hub| hub.clock.now(&self.clocks))
    }

    fn wall(&self) -> Timestamp {
        self.clocks.wall()
    }

    /// Notes what happened: in the digest of the history, and as a line where somebody wants to read it.
    fn note(&mut self, line: impl FnOnce() -> String) {
        self.report.history = self.report.history.rotate_left(7) ^ self.clocks.now.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE {
                trace.pop_front();
            }
            trace.push_back(format!("{:>9} {}", self.clocks.now, line()));
        }
    }
}
