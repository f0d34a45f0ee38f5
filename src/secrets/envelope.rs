//! Sealing: AES-256-GCM under the KEK, each value bound to the place where it belongs.
//!
//! A sealed value is a format byte, the key's id, a random nonce, and ciphertext with its tag. Everything before the
//! ciphertext, and whose value it is, is authenticated too. Invariant: a value moved to another tenant, owner or field
//! does not open; the parts are written with their lengths, so that no two places look the same. What is not prevented:
//! an older value put back in its own place.
//!
//! Nonces are random, not counted: a counter would repeat itself after a restored backup. 2^32 values may be sealed
//! under one key.

use crate::entropy;
use crate::model::subscription::Sealed;
use crate::secrets::kek::Kek;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

/// The layout below.
const FORMAT: u8 = 1;
/// Format byte, key id.
const HEAD_BYTES: usize = 1 + 4;
const TAG_BYTES: usize = 16;

/// Where a value belongs.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// Whose it is.
    pub tenant: &'a str,
    /// The object that holds it: a subscription's or key's id.
    pub owner: &'a str,
    /// Which of its values.
    pub field: &'static str,
}

/// Why a value cannot be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The operating system gives no random bytes: nothing is sealed under a nonce that is not random.
    #[error("the operating system gives no random bytes")]
    NoRandomBytes,
    /// More than the cipher takes.
    #[error("the value is too long to be sealed")]
    TooLong,
    /// Cut off, or of a format that is not known.
    #[error("the sealed value is cut off or of an unknown format")]
    Format,
    /// Sealed under another KEK.
    #[error("the value was sealed under the KEK {key_id:08x}")]
    OtherKey {
        /// That one.
        key_id: u32,
    },
    /// Changed, or moved here from elsewhere.
    #[error("the sealed value was changed, or belongs elsewhere")]
    NotAuthentic,
}

/// Seals and opens under one KEK.
pub struct Envelope {
    key: LessSafeKey,
    key_id: u32,
    check_value: [u8; 16],
}

impl std::fmt::Debug for Envelope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Envelope({:08x})", self.key_id)
    }
}

impl Envelope {
    /// Under that key, which is wiped afterwards.
    #[expect(clippy::expect_used, reason = "a key of the cipher's own length cannot be refused")]
    pub fn new(kek: Kek) -> Self {
        // invariant: a Kek has 32 bytes, which is what AES-256 takes.
        let key = UnboundKey::new(&AES_256_GCM, kek.bytes()).expect("32 bytes");
        Self { key: LessSafeKey::new(key), key_id: kek.key_id(), check_value: kek.check_value() }
    }

    /// [`Kek::check_value`] of its key.
    pub fn check_value(&self) -> [u8; 16] {
        self.check_value
    }

    /// Seals a value for its place.
    ///
    /// # Errors
    /// When there are no random bytes, or the value is over 64 GiB.
    pub fn seal(&self, scope: Scope<'_>, plain: &[u8]) -> Result<Sealed, SealError> {
        let mut nonce = [0; NONCE_LEN];
        entropy::os_bytes(&mut nonce).map_err(|_| SealError::NoRandomBytes)?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + NONCE_LEN + plain.len() + TAG_BYTES);
        sealed.push(FORMAT);
        sealed.extend_from_slice(&self.key_id.to_be_bytes());
        sealed.extend_from_slice(&nonce);
        let head = sealed.len();
        sealed.extend_from_slice(plain);
        let aad = Aad::from(place(FORMAT, self.key_id, scope));
        let nonce = Nonce::assume_unique_for_key(nonce);
        // The plain bytes are overwritten where they stand.
        let tag =
            self.key.seal_in_place_separate_tag(nonce, aad, &mut sealed[head..]).map_err(|_| SealError::TooLong)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(Sealed(sealed))
    }

    /// Opens a value that was sealed for that place.
    ///
    /// # Errors
    /// When it was not, not under this key, or was changed since.
    pub fn open(&self, scope: Scope<'_>, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (head, rest) = sealed.0.split_first_chunk::<HEAD_BYTES>().ok_or(SealError::Format)?;
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_LEN>().ok_or(SealError::Format)?;
        let [format, key_id @ ..] = *head;
        let key_id = u32::from_be_bytes(key_id);
        if format != FORMAT || ciphertext.len() < TAG_BYTES {
            return Err(SealError::Format);
        }
        if key_id != self.key_id {
            return Err(SealError::OtherKey { key_id });
        }
        let mut plain = Zeroizing::new(ciphertext.to_vec());
        let aad = Aad::from(place(format, key_id, scope));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.key.open_in_place(nonce, aad, &mut plain).map_err(|_| SealError::NotAuthentic)?.len();
        plain.truncate(length);
        Ok(plain)
    }
}

/// What is authenticated beside the value.
fn place(format: u8, key_id: u32, scope: Scope<'_>) -> Vec<u8> {
    let mut bytes = b"streaming-hub/seal/v1".to_vec();
    bytes.push(format);
    bytes.extend_from_slice(&key_id.to_be_bytes());
    for part in [scope.tenant, scope.owner, scope.field] {
        bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const PLACE: Scope<'_> = Scope { tenant: "t1", owner: "s1", field: "signing_secret" };

    fn envelope(seed: u8) -> Envelope {
        let hex: String = (0..32u8).map(|at| format!("{:02x}", at.wrapping_mul(7) ^ seed)).collect();
        Envelope::new(Kek::parse(&hex).unwrap())
    }

    // Test list 1c, 1 and 7.
    #[test]
    fn what_is_sealed_opens_and_no_two_are_alike() {
        let envelope = envelope(1);
        for plain in [&b""[..], b"whsec_canary", &[7; 100_000]] {
            let sealed = envelope.seal(PLACE, plain).unwrap();
            assert_eq!(**envelope.open(PLACE, &sealed).unwrap(), *plain);
            assert_eq!(sealed.0.len(), HEAD_BYTES + NONCE_LEN + plain.len() + TAG_BYTES);
        }
        let many: HashSet<Vec<u8>> = (0..1000).map(|_| envelope.seal(PLACE, b"a").unwrap().0).collect();
        let nonces: HashSet<&[u8]> = many.iter().map(|sealed| &sealed[HEAD_BYTES..HEAD_BYTES + NONCE_LEN]).collect();
        assert_eq!((many.len(), nonces.len()), (1000, 1000));
        let sealed = envelope.seal(PLACE, b"whsec_canary").unwrap();
        assert!(!sealed.0.windows(6).any(|window| window == b"canary"));
        assert!(!format!("{sealed:?} {envelope:?}").contains("canary"));
    }

    // Test list 1c, 2 and 3.
    #[test]
    fn no_flipped_bit_and_no_cut_goes_unnoticed() {
        let envelope = envelope(1);
        let sealed = envelope.seal(PLACE, b"whsec_canary").unwrap().0;
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(envelope.open(PLACE, &Sealed(flipped)).is_err(), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(envelope.open(PLACE, &Sealed(sealed[..length].to_vec())).is_err(), "{length} bytes");
        }
        assert!(envelope.open(PLACE, &Sealed([sealed.as_slice(), &[0]].concat())).is_err());
    }

    // Test list 1c, 4 and 5.
    #[test]
    fn a_moved_value_does_not_open() {
        let envelope = envelope(1);
        let sealed = envelope.seal(PLACE, b"whsec_canary").unwrap();
        for scope in [
            Scope { tenant: "t2", ..PLACE },
            Scope { owner: "s2", ..PLACE },
            Scope { field: "client_key", ..PLACE },
            // Parts shifted over their boundaries.
            Scope { tenant: "t1s", owner: "1", ..PLACE },
            Scope { tenant: "t", owner: "1s1", ..PLACE },
            Scope { tenant: "", owner: "t1s1", ..PLACE },
            Scope { owner: "s1signing", field: "_secret", ..PLACE },
            Scope { tenant: "t1\0", ..PLACE },
        ] {
            assert_eq!(envelope.open(scope, &sealed).unwrap_err(), SealError::NotAuthentic, "{scope:?}");
        }
    }

    // Test list 1c, 9.
    #[test]
    fn another_key_is_told_apart_from_damage() {
        let (one, other) = (envelope(1), envelope(2));
        let sealed = one.seal(PLACE, b"whsec_canary").unwrap();
        assert_eq!(other.open(PLACE, &sealed).unwrap_err(), SealError::OtherKey { key_id: one.key_id });
        // Also when the id is forged.
        let mut forged = sealed.clone();
        forged.0[1..HEAD_BYTES].copy_from_slice(&other.key_id.to_be_bytes());
        assert_eq!(other.open(PLACE, &forged).unwrap_err(), SealError::NotAuthentic);
        assert_ne!(one.check_value(), other.check_value());
        assert_eq!(one.check_value(), envelope(1).check_value());
    }

    // What was sealed in this format stays readable.
    #[test]
    fn the_first_format_is_read_for_ever() {
        let envelope = envelope(1);
        let mut expected = vec![FORMAT];
        expected.extend_from_slice(&envelope.key_id.to_be_bytes());
        assert_eq!(envelope.seal(PLACE, b"").unwrap().0[..HEAD_BYTES], expected);
        let golden: Vec<u8> = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, GOLDEN).unwrap();
        assert_eq!(**envelope.open(PLACE, &Sealed(golden)).unwrap(), *b"whsec_canary");
    }

    /// Made by another implementation (Python's `cryptography`), with the nonce 0, 1, 2 and so on.
    const GOLDEN: &str = "Ae8vtF8AAQIDBAUGBwgJCgtM7ccCI/QlglklbmAH1YYdNM/C2sNH9wat2QAr";

    proptest! {
        #[test]
        fn any_value_of_any_place_opens_there_only(
            plain: Vec<u8>, tenant in "\\PC{0,9}", owner in "\\PC{0,9}", other in "\\PC{0,9}", garbage: Vec<u8>,
        ) {
            let envelope = envelope(1);
            let scope = Scope { tenant: &tenant, owner: &owner, field: "f" };
            let sealed = envelope.seal(scope, &plain).unwrap();
            prop_assert_eq!(&**envelope.open(scope, &sealed).unwrap(), &plain);
            let moved = Scope { tenant: &owner, owner: &other, field: "f" };
            prop_assert_eq!(envelope.open(moved, &sealed).is_ok(), tenant == owner && owner == other);
            prop_assert!(envelope.open(scope, &Sealed(garbage)).is_err());
        }
    }
}
