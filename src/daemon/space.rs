//! Looks at the store's disk, again and again, and tells whoever acts on it: how much is free, and whether it still answers (C13.4).
//!
//! Regularly and not at a write, so that the hub also sees room that somebody else took, or gave back.

use super::telling::Told;
use crate::model::space::{Room, Space};
use crate::rules::room::{Reserve, room};
use crate::store::disk;
use crate::time::Clock;
use crate::writer::Gate;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A commit that has not ended for so long is told: the disk is slow.
const SLOW: Duration = Duration::from_secs(5);
/// The same: the disk hangs, and the hub does not do its work.
const HANGS: Duration = Duration::from_secs(30);

/// How the disk answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Pace {
    /// As it should.
    #[default]
    Well,
    /// A commit has not ended for longer than [`SLOW`].
    Slow,
    /// A commit has not ended for longer than [`HANGS`].
    Hangs,
}

/// Looks for commits that do not end, until it is dropped. Asks nothing of the disk, which may hang.
pub(super) async fn watch_commits(gate: Gate, clock: Arc<dyn Clock>, told: Arc<Told>) {
    let mut before = Pace::Well;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let pace = pace(gate.committing_for(clock.monotonic()));
        if std::mem::replace(&mut before, pace) != pace {
            told.pace(pace);
        }
    }
}

fn pace(committing: Duration) -> Pace {
    if committing > HANGS {
        Pace::Hangs
    } else if committing > SLOW {
        Pace::Slow
    } else {
        Pace::Well
    }
}

/// Who looks at the room.
pub(super) struct Watcher {
    folder: PathBuf,
    reserve: Reserve,
    gate: Gate,
    told: Arc<Told>,
    room: Room,
    is_blind: bool,
}

impl Watcher {
    /// Of the disk of that folder.
    pub(super) fn new(folder: PathBuf, reserve: Reserve, gate: Gate, told: Arc<Told>) -> Self {
        Self { folder, reserve, gate, told, room: Room::Enough, is_blind: false }
    }

    /// Looks once. A disk that hangs lets it wait.
    pub(super) async fn look(&mut self) {
        let folder = self.folder.clone();
        match tokio::task::spawn_blocking(move || disk::space(&folder)).await {
            Ok(Ok(space)) => self.take(space),
            Ok(Err(error)) => self.cannot_tell(&error),
            // The runtime ends.
            Err(_) => {}
        }
    }

    /// Looks until it is dropped.
    pub(super) async fn watch(mut self) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            every.tick().await;
            self.look().await;
        }
    }

    fn take(&mut self, space: Space) {
        self.is_blind = false;
        let before = self.room;
        self.room = room(before, space, self.reserve);
        self.gate.set(self.room);
        self.told.space(space);
        if before.takes_new() != self.room.takes_new() {
            self.told.room(self.room, space, self.reserve.of(space.total));
        }
    }

    // What was known last goes on to count.
    fn cannot_tell(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.is_blind, true) {
            tracing::warn!(%error, folder = %self.folder.display(), "the free space of the disk cannot be told");
        }
    }
}
