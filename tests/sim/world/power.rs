//! Starts, clean stops, kills, power cuts, and a store that is opened again.

use super::{Happening, World};
use crate::check::{self, Claims};
use crate::disk::{Effect, Fuse};
use crate::dump::Dump;
use crate::hold;
use crate::hub::Hub;
use crate::model::claim::Claimed;
use crate::model::{Asked, Held, Violation};
use streaming_hub::engine::Batch;
use streaming_hub::model::job::{JobKey, Outcome, Settle};
use streaming_hub::time::HubTime;

/// How long a clean stop waits for attempts (C13.2).
const GRACE_MS: u64 = 30_000;

impl World {
    /// A process starts over what is on the disk.
    pub(super) fn start(&mut self) -> Held {
        if self.hub.is_some() {
            return Ok(());
        }
        if self.acting && self.chance.permille(self.options.faults.cuts * 4) {
            // Power goes again, before the start is done.
            let effect = self.chance.pick(&[Effect::CutBefore, Effect::CutAfter]);
            let after = self.chance.within(0, 25);
            self.disk.light(Fuse { after, effect });
        }
        self.process += 1;
        self.reading_in = true;
        let far_ahead = self.is_far_ahead();
        self.far_ahead |= far_ahead;
        let started = Hub::start(&self.disk, &self.options, &mut self.chance, &self.clocks);
        if self.disk.is_cut() {
            self.report.double_crashes += 1;
            self.note(|| "start: the power goes".to_owned());
            drop(started);
            return self.power_is_gone();
        }
        match started {
            Ok(hub) => {
                self.note(|| "start: the hub runs".to_owned());
                self.hub = Some(hub);
                self.reading_in = false;
                self.model.restarted(self.hub_now());
                let dump = self.dump()?;
                if far_ahead || (std::mem::take(&mut self.far_ahead) && self.model.has_been_doubted(&dump)) {
                    self.model.doubt();
                }
                self.far_ahead = false;
                hold!(self.hub_now() >= dump.hub.hub_time, "C13.8: hub time went back to {:?}", self.hub_now());
                check::store(&mut self.model, &dump, Claims::Exact)?;
                self.start_again_changes_nothing(&dump)?;
                self.remember(dump)?;
                self.want_turn(0);
                if !self.acting {
                    self.schedule(5, Happening::Api);
                }
                Ok(())
            }
            Err(error) => {
                self.note(|| format!("start: {error}"));
                hold!(self.acting, "C13.3: the store cannot be opened, and nothing is wrong: {error}");
                self.disk.kill();
                let after = self.chance.within(100, 3_000);
                self.schedule(after, Happening::Start);
                Ok(())
            }
        }
    }

    /// Invariant 21: a crash loop leaves what one start left.
    fn start_again_changes_nothing(&mut self, first: &Dump) -> Held {
        if !self.chance.permille(250) {
            return Ok(());
        }
        let copy = self.disk.copy();
        for _ in 0..2 {
            let mut chance = crate::chance::Chance::of(1);
            let again = Hub::start(&copy, &self.options, &mut chance, &self.clocks);
            copy.kill();
            let again = again.map_err(|error| Violation(format!("C13.3: another start fails: {error}")))?;
            drop(again);
            let second = Dump::of(&copy).map_err(|error| Violation(format!("C13.3: {error}")))?;
            check::starting_twice_is_starting_once(first, &second)?;
        }
        Ok(())
    }

    /// The process is killed; what it wrote is there.
    pub(super) fn kill(&mut self) -> Held {
        self.note(|| "kill".to_owned());
        self.disk.kill();
        self.process_is_gone()
    }

    /// The power went.
    pub(super) fn power_is_gone(&mut self) -> Held {
        self.note(|| "power cut".to_owned());
        self.disk.power_cycle();
        self.process_is_gone()
    }

    fn process_is_gone(&mut self) -> Held {
        self.report.crashes += 1;
        // Its handles are dead already, so that nothing is written on its way out.
        self.hub = None;
        self.process += 1;
        for source in &mut self.sources {
            source.lose_reader();
        }
        if !self.disk.is_empty() {
            let dump = self.dump()?;
            self.settle_doubt(&dump)?;
            if !self.reading_in {
                check::begun_attempts_were_claimed(&self.model.claims, &dump)?;
            } else if dump.claims.is_empty() {
                // The start that was broken off had taken the claims over already.
                self.model.restarted(HubTime(0));
            }
            if self.reading_in && self.far_ahead && self.model.has_been_doubted(&dump) {
                self.model.doubt();
            }
            check::store(&mut self.model, &dump, Claims::UngivenMayBeGone)?;
            self.remember(dump)?;
        }
        if self.acting && self.chance.permille(self.options.faults.clock * 20) {
            self.jump();
        }
        let after = self.chance.within(1, 2_000);
        self.schedule(after, Happening::Start);
        Ok(())
    }

    /// Whether a process that starts now finds the wall clock more than 48 h ahead of what was stored last (C13.8).
    fn is_far_ahead(&self) -> bool {
        let stored = self.last_dump.as_ref().map_or(0, |dump| dump.hub.hub_time.0);
        stored > 0 && self.wall().0.saturating_sub(stored) > 48 * 3_600_000
    }

    /// The wall clock is set.
    pub(super) fn jump(&mut self) {
        let hour = 3_600_000i64;
        let by = self.chance.pick(&[-72 * hour, -hour, -10_000, 10_000, hour, 47 * hour, 200 * hour]);
        self.clocks.wall_ahead += by;
        self.note(|| format!("the wall clock jumps by {by} ms"));
    }

    /// A batch whose outcome was not known: the store shows whether it is there, and then it must be there whole.
    fn settle_doubt(&mut self, dump: &Dump) -> Held {
        let Some(doubt) = self.in_doubt.take() else { return Ok(()) };
        let landed = dump.hub.hub_time == doubt.now;
        self.note(|| format!("the batch at {} {}", doubt.now.0, if landed { "is there" } else { "is not there" }));
        if !landed {
            self.report.in_doubt_gone += 1;
            return Ok(());
        }
        self.report.in_doubt_landed += 1;
        let first_new = self.model.next_claim;
        self.model.apply(doubt.now, doubt.wall, &doubt.asked);
        for (no, row) in dump.claims.range(streaming_hub::model::ids::ClaimNo(first_new)..) {
            let Some((sub, seq)) = crate::model::Model::key_of(dump, row.key) else {
                return Err(Violation(format!("invariant 12: claim {no} is of a job that is not stored: {row:?}")));
            };
            self.model.found(Claimed { no: *no, sub, seq })?;
        }
        Ok(())
    }

    /// The store is opened again by the process that had it (C13.4).
    pub(super) fn reopen(&mut self) -> Held {
        let now = self.hub_now();
        let dump = self.dump()?;
        self.settle_doubt(&dump)?;
        check::store(&mut self.model, &dump, Claims::UngivenMayBeGone)?;
        let Some(hub) = &mut self.hub else { return Ok(()) };
        let opened = hub.engine.reopen(now);
        if self.disk.is_cut() {
            return self.power_is_gone();
        }
        match opened {
            Ok(()) => {
                self.note(|| "the store is open again".to_owned());
                self.report.reopenings += 1;
                if let Some(hub) = &mut self.hub {
                    hub.suspended = false;
                }
                self.model.reopened(now);
                let dump = self.dump()?;
                check::store(&mut self.model, &dump, Claims::Exact)?;
                self.remember(dump)?;
                self.want_turn(0);
                self.want_pool_step(0);
            }
            Err(error) => {
                self.note(|| format!("the store does not open: {error}"));
                hold!(self.acting, "C13.4: the store does not open again, and nothing is wrong: {error}");
                let after = self.chance.within(100, 5_000);
                self.schedule(after, Happening::Reopen);
            }
        }
        Ok(())
    }

    /// SIGTERM (C13.2): nothing new is read or claimed, attempts in flight may end.
    pub(super) fn begin_stop(&mut self) {
        self.note(|| "stop".to_owned());
        let until = self.clocks.now + GRACE_MS;
        let Some(hub) = &mut self.hub else { return };
        hub.stopping = Some(until);
        hub.engine.stop_claiming();
        hub.pool.drain();
        self.want_pool_step(0);
        self.want_turn(1);
        self.schedule(100, Happening::Stopping);
    }

    /// Looks whether the stop can end: nothing is in flight, or its time is over.
    pub(super) fn stopping(&mut self) -> Held {
        let Some(hub) = &self.hub else { return Ok(()) };
        let Some(until) = hub.stopping else { return Ok(()) };
        let done = hub.pool.is_empty() && hub.settles.is_empty();
        if hub.suspended || (!done && self.clocks.now < until) {
            // While the store is away there is nothing to be stored: the daemon's own limit would end it as a kill.
            if hub.suspended && self.clocks.now > until + 10_000 {
                return self.kill();
            }
            self.schedule(100, Happening::Stopping);
            return Ok(());
        }
        self.end_stop()
    }

    fn end_stop(&mut self) -> Held {
        self.clocks.now += 1;
        while self.hub_now() <= self.model.committed {
            self.clocks.now += 1;
        }
        let (now, wall) = (self.hub_now(), self.wall());
        let Some(hub) = &mut self.hub else { return Ok(()) };
        let asked = Asked { settles: std::mem::take(&mut hub.settles), ..Asked::default() };
        let mut last = Batch { settles: asked.settles.clone(), ..Batch::default() };
        let applied = hub.engine.apply(now, wall, &mut last);
        if self.disk.is_cut() || applied.is_err() {
            self.in_doubt = Some(super::InDoubt { now, wall, asked });
            return if self.disk.is_cut() { self.power_is_gone() } else { self.kill() };
        }
        self.model.apply(now, wall, &asked);
        // What is still in flight is cut off; its outcome is lost, and it is not blamed.
        self.clocks.now += 1;
        let now = self.hub_now();
        let asked = Asked { settles: self.releases(), ..Asked::default() };
        let Some(hub) = &mut self.hub else { return Ok(()) };
        let released = hub.engine.release_claims(now, wall);
        if self.disk.is_cut() || released.is_err() {
            self.in_doubt = Some(super::InDoubt { now, wall, asked });
            return if self.disk.is_cut() { self.power_is_gone() } else { self.kill() };
        }
        self.count_cut_off();
        self.model.apply(now, wall, &asked);
        let Some(hub) = &mut self.hub else { return Ok(()) };
        hub.engine.close();
        if self.disk.is_cut() {
            return self.power_is_gone();
        }
        self.note(|| "stopped".to_owned());
        self.report.clean_stops += 1;
        self.disk.kill();
        let crashes = self.report.crashes;
        let held = self.process_is_gone();
        self.report.crashes = crashes;
        hold!(self.model.claims.is_empty(), "C5.6: claims are left after a clean stop: {:?}", self.model.claims);
        held
    }

    fn releases(&self) -> Vec<Settle> {
        let release = |(no, claim): (&streaming_hub::model::ids::ClaimNo, &crate::model::ClaimModel)| Settle {
            claim: *no,
            key: JobKey { log: streaming_hub::model::ids::LogNo(0), sub: claim.sub },
            generation: streaming_hub::model::ids::Generation(0),
            outcome: Outcome::Released,
        };
        self.model.claims.iter().map(release).collect()
    }

    fn count_cut_off(&mut self) {
        for claim in self.model.claims.values().filter(|claim| claim.begun) {
            if let Some(job) = self.model.jobs.get_mut(&(claim.sub, claim.seq)) {
                job.lost += 1;
            }
        }
    }
}
