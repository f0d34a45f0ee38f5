//! Who acts on the hub from outside: readers, clients, receivers, and misfortune.

use super::{Happening, World};
use crate::disk::{Effect, Fuse};
use crate::hub::Asker;
use crate::model::{Ask, AskAdmit, Held};

impl World {
    /// A partition grows, and its reader takes a step.
    pub(super) fn source(&mut self, number: usize) {
        let wall = self.wall().0;
        if self.acting && self.to_make > 0 {
            let many = self.chance.below(6).min(self.to_make);
            self.to_make -= many;
            for _ in 0..many {
                self.sources[number].append(&mut self.producer, wall);
            }
            match self.chance.below(400) {
                0..=2 => self.sources[number].expire(),
                3 | 4 => self.sources[number].truncate(),
                5 => self.sources[number].recreate(),
                _ => {}
            }
        }
        let after = self.chance.within(1, (self.options.acting_ms / 60).max(2));
        // While the backlog is full it asks less and less often.
        let calm = self.clocks.now.saturating_sub(self.options.acting_ms);
        let pause = if self.acting { after } else { 200 + calm / 20 };
        self.read(number, wall);
        if self.acting || self.is_unread(number) {
            self.schedule(pause, Happening::Source(number));
        }
    }

    fn read(&mut self, number: usize, wall: u64) {
        let Some(hub) = &mut self.hub else { return };
        if hub.suspended || hub.stopping.is_some() {
            return;
        }
        let source = &mut self.sources[number];
        if source.is_lost() {
            if source.asked > 0 {
                return;
            }
            let Ok(positions) = hub.engine.reader().view().and_then(|view| view.positions()) else { return };
            let mine = positions.iter().find(|row| {
                (&*row.topic, row.topic_id, row.partition) == (&*source.topic, source.topic_id, source.partition)
            });
            source.found(mine.map(|row| row.next));
        }
        // Up to three steps ahead of their answers.
        let ahead = self.chance.below(3) + 1;
        let mut asked = false;
        while source.asked < ahead
            && let Some(step) = source.step(wall)
        {
            hub.admits.push_back((Asker::Source(number), step));
            asked = true;
        }
        if asked {
            let after = self.chance.within(0, 3);
            self.want_turn(after);
        }
    }

    /// A client sends an event over HTTP.
    pub(super) fn http(&mut self) {
        if !self.acting {
            return;
        }
        let after = self.chance.within(1, self.options.acting_ms / 12);
        self.schedule(after, Happening::Http);
        let wall = self.wall().0;
        let Some(hub) = &mut self.hub else { return };
        if hub.suspended || hub.stopping.is_some() {
            return;
        }
        let record = self.producer.over_http(wall);
        hub.admits.push_back((Asker::Http, AskAdmit { from: None, records: vec![record] }));
        let after = self.chance.within(0, 3);
        self.want_turn(after);
    }

    /// A client of the API acts. When faults have stopped: everything is proven and resumed, until it is.
    pub(super) fn api(&mut self) {
        let wall = self.wall().0;
        let starting = self.clocks.now < self.options.acting_ms / 20;
        let busy = starting || self.chance.permille(self.options.faults.api * 5);
        if self.acting {
            let after = self.chance.within(1, self.options.acting_ms / 80);
            self.schedule(after, Happening::Api);
        }
        let Some(hub) = &mut self.hub else { return };
        if hub.suspended || hub.stopping.is_some() {
            if !self.acting {
                self.schedule(500, Happening::Api);
            }
            return;
        }
        let asks = if !self.acting {
            let asks: Vec<Ask> =
                self.clients.resume(&hub.board).into_iter().chain(self.clients.verify(&hub.board)).collect();
            // A late failure may still switch one off: it is looked at again, beyond the time that tells whether all is quiet.
            let asleep = self.model.subs.values().any(|sub| !sub.deleted && !sub.is_live());
            self.schedule(if asleep { 500 } else { 5_000 }, Happening::Api);
            asks
        } else if busy {
            if starting && self.chance.permille(600) {
                let made = self.clients.verify(&hub.board);
                if made.is_empty() { self.clients.act(&hub.board, &hub.engine.reader(), wall) } else { made }
            } else {
                self.clients.act(&hub.board, &hub.engine.reader(), wall)
            }
        } else {
            Vec::new()
        };
        let Some(hub) = &mut self.hub else { return };
        if !asks.is_empty() {
            hub.manages.extend(asks);
            let after = self.chance.within(0, 3);
            self.want_turn(after);
        }
    }

    /// A destination changes its mood.
    pub(super) fn mood(&mut self) {
        if !self.acting {
            return;
        }
        let after = self.chance.within(1, self.options.acting_ms / 20);
        self.schedule(after, Happening::Mood);
        if self.options.faults.receivers > 0 && self.chance.permille(self.options.faults.receivers * 4) {
            let url = self.chance.pick(&self.clients.urls());
            let mood = self.receivers.turn(&url);
            self.note(|| format!("{url} is {mood:?}"));
        }
    }

    /// Something may go wrong.
    pub(super) fn fault(&mut self) -> Held {
        if !self.acting {
            return Ok(());
        }
        let after = self.chance.within(1, self.options.acting_ms / 100);
        self.schedule(after, Happening::Fault);
        let faults = self.options.faults;
        if self.chance.permille(faults.clock) {
            self.jump();
        }
        if self.chance.permille(faults.cuts) {
            let effect = self.chance.pick(&[Effect::CutBefore, Effect::CutAfter]);
            let after = self.chance.within(0, 80);
            self.note(|| format!("the power will go after {after} operations: {effect:?}"));
            self.disk.light(Fuse { after, effect });
        } else if self.chance.permille(faults.disk) {
            let after = self.chance.within(0, 60);
            let more = self.chance.pick(&[0, 0, 1, 4, 30]);
            self.note(|| format!("the disk will fail after {after} operations, {more} more times"));
            self.disk.light(Fuse { after, effect: Effect::Fail { more } });
        }
        let Some(hub) = &self.hub else { return Ok(()) };
        let stopping = hub.stopping.is_some();
        if self.chance.permille(faults.kills) {
            return self.kill();
        }
        if !stopping && self.chance.permille(faults.stops) {
            self.begin_stop();
        }
        Ok(())
    }
}
