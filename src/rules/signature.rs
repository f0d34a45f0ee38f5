//! Signatures over deliveries, and checking them as a receiver would (C9.1, C9.2, C9.7).
//!
//! What is signed is the exact bytes that are sent. A secret is `whsec_` and base64 of 32 random bytes; the lerian key
//! is the whole text, the standard key is what the base64 stands for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use zeroize::Zeroizing;

/// How far a timestamp may be off, in seconds (C9.1).
const TOLERANCE_SECONDS: u64 = 300;
/// What every secret of ours begins with.
const SECRET_PREFIX: &str = "whsec_";
/// What a lerian signature begins with.
const LERIAN_PREFIX: &str = "v1,sha256=";
/// Hex digits of a lerian signature.
const HEX_DIGITS: usize = 64;

/// The value of `X-Webhook-Signature`: `v1,sha256=` and lower-case hex, over `v1:` + timestamp + `.` + body (C9.1).
pub fn lerian(secret: &str, timestamp: u64, body: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let tag = lerian_tag(secret, &timestamp.to_string(), body);
    let mut text = String::with_capacity(LERIAN_PREFIX.len() + HEX_DIGITS);
    text.push_str(LERIAN_PREFIX);
    for byte in tag.as_ref() {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    text
}

/// A secret that has no standard key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is not base64 behind whsec_")]
pub struct SecretError;

/// One signature of `webhook-signature`: `v1,` and base64, over id + `.` + timestamp + `.` + body (C9.7, Standard
/// Webhooks).
///
/// # Errors
/// When the secret is not base64, with or without `whsec_` before it.
pub fn standard(secret: &str, id: &str, timestamp: u64, body: &[u8]) -> Result<String, SecretError> {
    let encoded = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    let key = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| SecretError)?);
    if key.is_empty() {
        return Err(SecretError);
    }
    let timestamp = timestamp.to_string();
    let tag = tag(&key, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
    Ok(format!("v1,{}", STANDARD.encode(tag)))
}

/// A new signing secret from 32 random bytes (C9.1).
pub fn new_secret(random: &[u8; 32]) -> Zeroizing<String> {
    // As long as it gets, so that it is never moved and leaves no copy behind.
    let mut secret = Zeroizing::new(String::with_capacity(SECRET_PREFIX.len() + 44));
    secret.push_str(SECRET_PREFIX);
    STANDARD.encode_string(random, &mut secret);
    secret
}

/// Why a receiver must not believe a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The timestamp is no number.
    #[error("the timestamp is not a number of seconds")]
    Timestamp,
    /// The timestamp is more than five minutes off.
    #[error("the timestamp is {off_seconds} s off")]
    Stale {
        /// How far.
        off_seconds: u64,
    },
    /// No header holds a signature.
    #[error("there is no signature")]
    Missing,
    /// None of the signatures is right.
    #[error("no signature is right")]
    Wrong,
}

/// Checks a delivery as its receiver must: the timestamp within five minutes, and one of the signatures right, compared
/// in constant time. Signatures are picked by their pattern, since stacks on the way may join repeated headers with a
/// comma (C9.2).
///
/// # Errors
/// When it must not be believed.
pub fn verify_lerian<'a>(
    secret: &str,
    header_values: impl IntoIterator<Item = &'a str>,
    timestamp: &str,
    now_unix: u64,
    body: &[u8],
) -> Result<(), VerifyError> {
    if timestamp.is_empty() || !timestamp.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(VerifyError::Timestamp);
    }
    let seconds: u64 = timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
    let off_seconds = seconds.abs_diff(now_unix);
    if off_seconds > TOLERANCE_SECONDS {
        return Err(VerifyError::Stale { off_seconds });
    }
    let right = lerian_tag(secret, timestamp, body);
    // Both sides go through the MAC once more and ring compares the results, so time tells nothing about the right tag.
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let twice = hmac::sign(&key, right.as_ref());
    let mut answer = Err(VerifyError::Missing);
    for given in header_values.into_iter().flat_map(signatures) {
        if hmac::verify(&key, &given, twice.as_ref()).is_ok() {
            return Ok(());
        }
        answer = Err(VerifyError::Wrong);
    }
    answer
}

/// Every `v1,sha256=[0-9a-f]{64}` in a header's value, decoded.
fn signatures(value: &str) -> impl Iterator<Item = [u8; 32]> {
    value.match_indices(LERIAN_PREFIX).filter_map(|(at, prefix)| {
        let digits = value.as_bytes().get(at + prefix.len()..)?.get(..HEX_DIGITS)?;
        let mut tag = [0; 32];
        for (byte, pair) in tag.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(tag)
    })
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn lerian_tag(secret: &str, timestamp: &str, body: &[u8]) -> hmac::Tag {
    tag(secret.as_bytes(), &[b"v1:", timestamp.as_bytes(), b".", body])
}

fn tag(key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    context.sign()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    const NOW: u64 = 1_700_000_000;

    // C9.1
    #[test]
    fn the_given_vectors() {
        let given: Value = serde_json::from_str(include_str!("../../tests/cases/signature-vectors.json")).unwrap();
        let vectors = given["vectors"].as_array().unwrap();
        assert_eq!(vectors.len(), 5);
        for vector in vectors {
            let (secret, expected) = (vector["secret"].as_str().unwrap(), vector["signature"].as_str().unwrap());
            let timestamp = vector["timestamp"].as_u64().unwrap();
            let body = STANDARD.decode(vector["body_base64"].as_str().unwrap()).unwrap();
            assert_eq!(lerian(secret, timestamp, &body), expected);
            assert_eq!(verify_lerian(secret, [expected], &timestamp.to_string(), timestamp, &body), Ok(()));
        }
    }

    // C9.7: the example that Standard Webhooks' own libraries are tested with.
    #[test]
    fn the_standard_vector() {
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert_eq!(standard(secret, id, 1_614_265_330, body).as_deref(), Ok(expected));
        }
        for bad in ["", "whsec_", "whsec_*", "whsec_YQ", "segredo-ç"] {
            assert_eq!(standard(bad, id, 0, body), Err(SecretError), "{bad}");
        }
    }

    // C9.1
    #[test]
    fn a_new_secret_is_base64_of_its_bytes() {
        let secret = new_secret(&[255; 32]);
        assert_eq!(secret.as_str(), "whsec_//////////////////////////////////////////8=");
        assert_eq!(secret.capacity(), secret.len());
        assert!(standard(&secret, "id", 0, b"").is_ok());
    }

    // C9.1 C9.2
    #[test]
    fn a_receiver_believes_what_is_signed_and_recent() {
        let (secret, body) = ("whsec_test_secret", b"{}");
        let good = lerian(secret, NOW, body);
        let old = lerian("another", NOW, body);
        let text = NOW.to_string();
        let check = |values: &[&str], timestamp: &str, now: u64, body: &[u8]| {
            verify_lerian(secret, values.iter().copied(), timestamp, now, body)
        };
        for values in [
            &[good.as_str()][..],
            &[&good, &old],
            &[&old, &good],
            &[&format!("{old}, {good}")],
            &[&format!("{old},{good}")],
            &[&format!("v1,sha256={good}")],
            &[&format!("v1,sha256=abc, {good} trailing")],
            &["é", &good],
        ] {
            assert_eq!(check(values, &text, NOW, body), Ok(()), "{values:?}");
        }
        for (values, expected) in [
            (&[][..], VerifyError::Missing),
            (&[""], VerifyError::Missing),
            (&["v1,sha256="], VerifyError::Missing),
            (&[&good[..good.len() - 1]], VerifyError::Missing),
            (&[&good.replace("v1,", "v0,")], VerifyError::Missing),
            (&[&good.replace("sha256=", "sha256=\u{e9}")], VerifyError::Missing),
            (&[&format!("v1,sha256={}", good[LERIAN_PREFIX.len()..].to_uppercase())], VerifyError::Missing),
            (&[&old], VerifyError::Wrong),
            (&[&lerian(secret, NOW + 1, body)], VerifyError::Wrong),
            (&[&lerian(secret, NOW, b"{} ")], VerifyError::Wrong),
        ] {
            assert_eq!(check(values, &text, NOW, body), Err(expected), "{values:?}");
        }
        for (now, expected) in [
            (NOW - 300, Ok(())),
            (NOW + 300, Ok(())),
            (NOW - 301, Err(VerifyError::Stale { off_seconds: 301 })),
            (NOW + 301, Err(VerifyError::Stale { off_seconds: 301 })),
            (0, Err(VerifyError::Stale { off_seconds: NOW })),
            (u64::MAX, Err(VerifyError::Stale { off_seconds: u64::MAX - NOW })),
        ] {
            assert_eq!(check(&[&good], &text, now, body), expected, "{now}");
        }
        for timestamp in ["", " 1700000000", "+1700000000", "-1", "1700000000.0", "99999999999999999999", "now"] {
            assert_eq!(check(&[&good], timestamp, NOW, body), Err(VerifyError::Timestamp), "{timestamp}");
        }
    }

    proptest! {
        #[test]
        fn what_is_signed_verifies_and_nothing_else(
            secret in "\\PC{1,40}", timestamp: u64, body: Vec<u8>, at: prop::sample::Index, bit in 0u8..8,
        ) {
            let signature = lerian(&secret, timestamp, &body);
            prop_assert_eq!(signature.len(), LERIAN_PREFIX.len() + HEX_DIGITS);
            let text = timestamp.to_string();
            prop_assert_eq!(verify_lerian(&secret, [signature.as_str()], &text, timestamp, &body), Ok(()));
            let mut other = body.clone();
            if other.is_empty() { other.push(0) } else { let at = at.index(other.len()); other[at] ^= 1 << bit }
            prop_assert!(verify_lerian(&secret, [signature.as_str()], &text, timestamp, &other).is_err());
        }

        #[test]
        fn no_header_makes_the_receiver_panic(value in "(v1,sha256=)?\\PC{0,80}", timestamp in "\\PC{0,20}", now: u64) {
            prop_assert!(verify_lerian("s", [value.as_str()], &timestamp, now, b"").is_err());
        }
    }
}
