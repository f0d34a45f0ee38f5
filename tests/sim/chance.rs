//! Chance of one seed, in the shapes that the actors ask for.

use streaming_hub::entropy::Entropy;

/// A stream of chance. Each actor has its own, so that a change in one does not shift what the others draw.
pub struct Chance(Entropy);

impl Chance {
    /// The same seed, the same chance.
    pub fn of(seed: u64) -> Self {
        Self(Entropy::from_seed(seed))
    }

    /// A stream of its own.
    pub fn fork(&mut self) -> Chance {
        Self::of(self.0.next_u64())
    }

    /// A stream of chance in the product's own type.
    pub fn entropy(&mut self) -> Entropy {
        Entropy::from_seed(self.0.next_u64())
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.up_to(high - low)
    }

    /// Uniform in `0..count`.
    pub fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.within(0, count as u64 - 1)).unwrap()
    }

    /// True so often in a thousand.
    pub fn permille(&mut self, so_often: u64) -> bool {
        self.within(0, 999) < so_often
    }

    /// One of them.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A UUIDv7.
    pub fn uuid(&mut self, wall_ms: u64) -> [u8; 16] {
        self.0.uuid_v7(streaming_hub::time::Timestamp(wall_ms))
    }
}
