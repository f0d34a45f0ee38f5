//! The only source of chance. Everything else is handed one, so that a simulation can be run again from its seed.

use crate::time::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A source of random bytes: the operating system's in the daemon, a seed's in the simulator.
pub struct Entropy(StdRng);

impl Entropy {
    /// From the operating system.
    ///
    /// # Errors
    /// When the operating system gives no random bytes; the hub then does not start.
    pub fn from_os() -> Result<Self, ring::error::Unspecified> {
        let mut seed = [0u8; 32];
        os_bytes(&mut seed)?;
        Ok(Self(StdRng::from_seed(seed)))
    }

    /// From a seed: the same seed, the same chance.
    pub fn from_seed(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..=most`.
    pub fn up_to(&mut self, most: u64) -> u64 {
        // Widening multiplication: the bias is below 2^-64 times the range, far below what a retry delay can show.
        let range = u128::from(most) + 1;
        u64::try_from((u128::from(self.0.next_u64()) * range) >> 64).unwrap_or(most)
    }

    /// A UUIDv7 of that time (RFC 9562).
    pub fn uuid_v7(&mut self, at: Timestamp) -> [u8; 16] {
        let mut random = [0u8; 10];
        self.0.fill_bytes(&mut random);
        uuid::Builder::from_unix_timestamp_millis(at.0, &random).into_uuid().into_bytes()
    }
}

/// Fills with random bytes of the operating system: for keys, secrets and nonces.
///
/// # Errors
/// When the operating system gives none. Never zeros instead.
pub fn os_bytes(out: &mut [u8]) -> Result<(), ring::error::Unspecified> {
    use ring::rand::SecureRandom as _;
    ring::rand::SystemRandom::new().fill(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_chance() {
        let (mut a, mut b) = (Entropy::from_seed(7), Entropy::from_seed(7));
        assert_eq!((0..9).map(|_| a.next_u64()).collect::<Vec<_>>(), (0..9).map(|_| b.next_u64()).collect::<Vec<_>>());
        assert!((0..1000).all(|_| a.up_to(3) <= 3));
        assert_eq!(a.up_to(0), 0);
        assert_eq!(uuid::Uuid::from_bytes(a.uuid_v7(Timestamp(1_700_000_000_000))).get_version_num(), 7);
    }
}
