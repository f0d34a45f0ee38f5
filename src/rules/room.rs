//! How much of the disk must stay free, and what goes on while less is (C13.4).
//!
//! Invariant: room that was low is enough again only when clearly more than the reserve is free, so that the hub does not change its
//! mind with every page that is written.

use crate::model::space::{Room, Space};

/// What must stay free (`STORE_RESERVE_BYTES`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// So many bytes; 0: nothing.
    Bytes(u64),
    /// So many hundredths of the disk.
    Percent(u8),
}

impl Reserve {
    /// In bytes, on a disk of that size.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Reserve::Bytes(bytes) => bytes,
            Reserve::Percent(percent) => (total / 100).saturating_mul(u64::from(percent)),
        }
    }
}

/// Next to nothing: a commit may need so much. Of a small disk a 64th.
const FULL_BELOW: u64 = 4 << 20;

/// What the space allows, after what it allowed before.
pub fn room(before: Room, space: Space, reserve: Reserve) -> Room {
    let Space { free, total } = space;
    // A file system that does not tell its size tells nothing that could be believed.
    if total == 0 {
        return Room::Enough;
    }
    let reserve = reserve.of(total);
    let enough_from = if before.takes_new() { reserve } else { reserve.saturating_add(reserve / 10) };
    if free < FULL_BELOW.min(total / 64) {
        Room::Full
    } else if free < enough_from {
        Room::Low
    } else {
        Room::Enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    // C13.4
    #[test]
    fn below_the_reserve_room_is_low_and_clearly_above_it_enough_again() {
        let reserve = Reserve::Bytes(10 * GIB);
        let after = |before: Room, free: u64| room(before, Space { free, total: 200 * GIB }, reserve);
        for (before, free, expected) in [
            (Room::Enough, 200 * GIB, Room::Enough),
            (Room::Enough, 10 * GIB, Room::Enough),
            (Room::Enough, 10 * GIB - 1, Room::Low),
            (Room::Low, 10 * GIB, Room::Low),
            (Room::Low, 11 * GIB - 1, Room::Low),
            (Room::Low, 11 * GIB, Room::Enough),
            (Room::Low, (4 << 20) - 1, Room::Full),
            (Room::Full, 4 << 20, Room::Low),
            (Room::Full, 11 * GIB, Room::Enough),
            (Room::Enough, 0, Room::Full),
        ] {
            assert_eq!(after(before, free), expected, "{before:?} {free}");
        }
    }

    // C13.4
    #[test]
    fn the_reserve_may_be_a_part_of_the_disk_or_nothing() {
        let after = |free: u64, total: u64, reserve: Reserve| room(Room::Enough, Space { free, total }, reserve);
        assert_eq!(after(5 * GIB, 100 * GIB, Reserve::Percent(5)), Room::Enough);
        assert_eq!(after(5 * GIB - 1, 100 * GIB, Reserve::Percent(5)), Room::Low);
        assert_eq!(after(8 << 20, 100 * GIB, Reserve::Bytes(0)), Room::Enough);
        // On a disk of 4 MiB the last 64 KiB are next to nothing.
        assert_eq!(after(64 << 10, 4 << 20, Reserve::Bytes(0)), Room::Enough);
        assert_eq!(after((64 << 10) - 1, 4 << 20, Reserve::Bytes(0)), Room::Full);
        assert_eq!(after(0, 0, Reserve::Percent(5)), Room::Enough, "a disk that does not tell");
    }
}
