//! Space on the disk of the store, as it was measured.

/// What a disk has, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// What this process may still write.
    pub free: u64,
    /// All of the disk; 0 where it does not tell.
    pub total: u64,
}

/// What the space on the disk allows (C13.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Room {
    /// Everything.
    #[default]
    Enough,
    /// Less than `STORE_RESERVE_BYTES` is free: nothing new is taken in and nothing is changed by the API; deliveries go on.
    Low,
    /// Next to nothing is free: a store that failed is not opened for writing before there is more.
    Full,
}

impl Room {
    /// Whether new events and changes are taken.
    pub fn takes_new(self) -> bool {
        match self {
            Room::Enough => true,
            Room::Low | Room::Full => false,
        }
    }
}
