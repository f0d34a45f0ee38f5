//! Who calls: API keys, the roles they carry, and the tenant that a call is about (A1.1 to A1.3).
//!
//! Invariant: every refusal for want of a valid key is the same answer, whatever was wrong with the key; what a key may do is
//! decided by its role and the route's row alone.

use crate::engine::board::Board;
use crate::error::Code;
use crate::http::problem::Problem;
use crate::http::routes::Access;
use crate::model::api_key::{ApiKey, Role};
use crate::model::ids::KeyId;
use crate::model::limits::TENANT_BYTES;
use crate::time::Timestamp;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A key as its holder sends it: `shk_<id>_<43 base62>`. Shown once; not printed by accident, wiped when dropped.
#[derive(Clone)]
pub struct KeyText(Zeroizing<String>);

impl KeyText {
    /// The key itself: to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(***)")
    }
}

/// Makes a key of 32 random bytes of the operating system. The text goes to its holder, the rest to the store.
pub fn new_key(
    id: KeyId,
    random: &[u8; 32],
    name: &str,
    role: Role,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
) -> (KeyText, ApiKey) {
    let secret = Zeroizing::new(base62(random));
    let text = KeyText(Zeroizing::new(format!("{PREFIX}{}_{}", uuid::Uuid::from_bytes(id.0).simple(), *secret)));
    let sha256 = digest(text.reveal());
    (text, ApiKey { id, name: name.to_owned(), role, sha256, created_at, expires_at, revoked_at: None })
}

/// A caller whose key is valid, or who came over the command socket.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    /// The key, for what is remembered per key; all zeros for the command socket.
    pub(crate) key: KeyId,
    /// What it may do.
    pub(crate) role: Role,
}

impl Identity {
    /// The same user or root, over the command socket (C13.5).
    pub(crate) fn socket() -> Self {
        Self { key: KeyId([0; 16]), role: Role::Operator }
    }
}

/// Which tenants the hub has.
#[derive(Debug, Clone)]
pub enum Tenancy {
    /// One, and every `/v1` call is about it (A1.2).
    Single(Arc<str>),
    /// Many: the key or `X-Tenant-Id` says which.
    Multi,
}

/// The holder of the key in the headers, or 401.
pub(crate) fn authenticate(board: &Board, headers: &HeaderMap, now: Timestamp) -> Result<Identity, Problem> {
    let Some(given) = credential(headers) else { return Err(unauthorized()) };
    let known = key_id(given).and_then(|id| board.api_key(id));
    // An unknown id costs the same hash and comparison as a known one.
    let expected = known.as_ref().map_or([0; 32], |key| key.sha256);
    let same = equal(&digest(given), &expected);
    match known {
        Some(key) if same && is_valid(&key, now) => Ok(Identity { key: key.id, role: key.role.clone() }),
        Some(_) | None => Err(unauthorized()),
    }
}

/// Whether a role may make a call of that access; open calls never come here.
pub(crate) fn authorize(role: &Role, access: Access) -> Result<(), Problem> {
    let allowed = match (access, role) {
        (Access::Open, _) => true,
        (Access::Tenant, Role::Tenant(_) | Role::Operator) => true,
        (Access::Admin | Access::Metrics, Role::Operator | Role::Viewer) => true,
        (Access::Operator, Role::Operator) => true,
        (Access::Ingest, Role::Ingest { .. }) => true,
        (Access::Tenant, Role::Ingest { .. } | Role::Viewer) => false,
        (Access::Admin | Access::Metrics, Role::Tenant(_) | Role::Ingest { .. }) => false,
        (Access::Operator, Role::Tenant(_) | Role::Ingest { .. } | Role::Viewer) => false,
        (Access::Ingest, Role::Tenant(_) | Role::Operator | Role::Viewer) => false,
    };
    if allowed {
        return Ok(());
    }
    Err(Problem::new(Code::Forbidden, format!("a key of role {} may not make this call", role.name())))
}

/// The tenant that a `/v1` call is about (A1.2).
pub(crate) fn tenant(tenancy: &Tenancy, role: &Role, headers: &HeaderMap) -> Result<Arc<str>, Problem> {
    let named = named_tenant(headers)?;
    let own = match role {
        Role::Tenant(own) => Some(own.as_str()),
        Role::Operator | Role::Ingest { .. } | Role::Viewer => None,
    };
    match tenancy {
        Tenancy::Single(only) => {
            let others = [named, own].into_iter().flatten().any(|other| *other != **only);
            if others { Err(Problem::not_found()) } else { Ok(only.clone()) }
        }
        Tenancy::Multi => match (own, named) {
            (Some(own), Some(named)) if own != named => {
                Err(Problem::new(Code::TenantMismatch, "X-Tenant-Id names another tenant than the key's"))
            }
            (Some(tenant), Some(_) | None) | (None, Some(tenant)) => Ok(tenant.into()),
            (None, None) => {
                Err(Problem::new(Code::TenantRequired, "this hub has many tenants: name one in X-Tenant-Id"))
            }
        },
    }
}

const PREFIX: &str = "shk_";
const SECRET_DIGITS: usize = 43;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const X_TENANT_ID: HeaderName = HeaderName::from_static("x-tenant-id");

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "a valid API key is needed, as Authorization: Bearer or X-API-Key")
        .with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"streaming-hub\""))
}

fn credential(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    bearer.or_else(|| headers.get(X_API_KEY)?.to_str().ok().map(str::trim))
}

/// The id in a well-formed key.
fn key_id(text: &str) -> Option<KeyId> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let lower = id.len() == 32 && id.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let whole = secret.len() == SECRET_DIGITS && secret.bytes().all(|digit| digit.is_ascii_alphanumeric());
    if !lower || !whole {
        return None;
    }
    uuid::Uuid::try_parse(id).ok().map(|id| KeyId(id.into_bytes()))
}

fn is_valid(key: &ApiKey, now: Timestamp) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|expires| now < expires)
}

fn named_tenant(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(X_TENANT_ID) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).ok();
    let sane = |text: &&str| !text.is_empty() && text.len() <= TENANT_BYTES && !text.chars().any(char::is_control);
    match text.filter(sane) {
        Some(tenant) if headers.get_all(X_TENANT_ID).iter().count() == 1 => Ok(Some(tenant)),
        Some(_) | None => Err(Problem::new(Code::BadRequest, "X-Tenant-Id names no tenant that there could be")),
    }
}

fn digest(text: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Compares in a time that does not depend on where two digests differ (A1.1).
fn equal(a: &[u8; 32], b: &[u8; 32]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| std::hint::black_box(bits | (a ^ b)));
    differing == 0
}

/// 32 bytes as a number in base 62, in 43 digits: 62^43 is just above 2^256.
fn base62(bytes: &[u8; 32]) -> String {
    let mut number = Zeroizing::new(*bytes);
    let mut digits = Zeroizing::new([0u8; SECRET_DIGITS]);
    for digit in digits.iter_mut().rev() {
        let mut rest = 0u16;
        for byte in number.iter_mut() {
            let part = rest << 8 | u16::from(*byte);
            // The rest is below 62, so the part is below 62 * 256 and its quotient fits a byte.
            *byte = u8::try_from(part / 62).unwrap_or(u8::MAX);
            rest = part % 62;
        }
        *digit = DIGITS[usize::from(rest)];
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn board_with(change: impl FnOnce(&mut ApiKey)) -> (Board, KeyText) {
        let (text, mut key) = new_key(KeyId([7; 16]), &[9; 32], "a key", Role::Viewer, NOW, None);
        change(&mut key);
        let board = Board::default();
        board.show_key(key);
        (board, text)
    }

    // A1.1
    #[test]
    fn keys_have_their_form_and_are_stored_hashed() {
        for random in [[0; 32], [1; 32], [255; 32]] {
            let (text, key) = new_key(KeyId([0xab; 16]), &random, "a key", Role::Operator, NOW, None);
            assert!(text.reveal().starts_with(&format!("shk_{}_", "ab".repeat(16))), "{}", text.reveal());
            assert_eq!(text.reveal().len(), "shk_".len() + 32 + 1 + 43);
            assert_eq!(key_id(text.reveal()), Some(KeyId([0xab; 16])));
            assert_eq!(key.sha256, digest(text.reveal()));
            assert_eq!(format!("{text:?}"), "KeyText(***)");
        }
        let (a, _) = new_key(KeyId([1; 16]), &[1; 32], "a", Role::Operator, NOW, None);
        let (b, _) = new_key(KeyId([1; 16]), &[2; 32], "a", Role::Operator, NOW, None);
        assert_ne!(a.reveal(), b.reveal());
    }

    // A1.1: base 62 loses nothing.
    #[test]
    fn base62_is_the_whole_number() {
        let value = |digits: &str| {
            digits.bytes().fold([0u8; 40], |number, digit| {
                let mut carry = DIGITS.iter().position(|known| *known == digit).unwrap() as u32;
                let mut next = [0; 40];
                for (at, byte) in number.iter().enumerate().rev() {
                    let part = u32::from(*byte) * 62 + carry;
                    next[at] = (part & 0xff) as u8;
                    carry = part >> 8;
                }
                next
            })
        };
        for bytes in
            [[0; 32], [255; 32], [1; 32], std::array::from_fn(|at| at as u8), std::array::from_fn(|at| 251 - at as u8)]
        {
            let digits = base62(&bytes);
            assert_eq!(value(&digits)[8..], bytes, "{digits}");
            assert_eq!(value(&digits)[..8], [0; 8]);
        }
    }

    // A1.1
    #[test]
    fn a_valid_key_is_known_in_either_header() {
        let (board, text) = board_with(|_| {});
        let bearer = format!("bearer {}", text.reveal());
        for given in [("authorization", bearer.as_str()), ("x-api-key", text.reveal())] {
            let identity = authenticate(&board, &headers(&[given]), NOW).unwrap();
            assert_eq!((identity.key, identity.role), (KeyId([7; 16]), Role::Viewer));
        }
    }

    // A1.1: unknown, malformed, revoked and expired keys are told the same.
    #[test]
    fn every_bad_key_is_answered_alike() {
        let (board, good) = board_with(|_| {});
        let (revoked, _) = board_with(|key| key.revoked_at = Some(NOW));
        let (expired, _) = board_with(|key| key.expires_at = Some(NOW));
        let (other, _) = new_key(KeyId([8; 16]), &[9; 32], "x", Role::Operator, NOW, None);
        let (forged, _) = new_key(KeyId([7; 16]), &[8; 32], "x", Role::Operator, NOW, None);
        let cut = &good.reveal()[..good.reveal().len() - 1];
        let upper = good.reveal().to_uppercase();
        let basic = format!("Basic {}", good.reveal());
        let answers: Vec<_> = [
            (&board, headers(&[])),
            (&board, headers(&[("x-api-key", "")])),
            (&board, headers(&[("x-api-key", "shk_")])),
            (&board, headers(&[("x-api-key", cut)])),
            (&board, headers(&[("x-api-key", &upper)])),
            (&board, headers(&[("x-api-key", other.reveal())])),
            (&board, headers(&[("x-api-key", forged.reveal())])),
            (&board, headers(&[("authorization", good.reveal())])),
            (&board, headers(&[("authorization", &basic)])),
            (&revoked, headers(&[("x-api-key", good.reveal())])),
            (&expired, headers(&[("x-api-key", good.reveal())])),
        ]
        .into_iter()
        .map(|(board, headers)| authenticate(board, &headers, NOW).unwrap_err().answer("r").into_response())
        .map(|answer| format!("{answer:?}"))
        .collect();
        assert!(answers[0].contains("401") && answers[0].contains("www-authenticate"), "{}", answers[0]);
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    }

    // A1.1
    #[test]
    fn roles_reach_their_own_calls_only() {
        let ingest = Role::Ingest { tenants: Vec::new(), sources: Vec::new() };
        let roles = [Role::Tenant("a".to_owned()), Role::Operator, ingest, Role::Viewer];
        for (access, allowed) in [
            (Access::Open, [true, true, true, true]),
            (Access::Tenant, [true, true, false, false]),
            (Access::Admin, [false, true, false, true]),
            (Access::Metrics, [false, true, false, true]),
            (Access::Operator, [false, true, false, false]),
            (Access::Ingest, [false, false, true, false]),
        ] {
            for (role, allowed) in roles.iter().zip(allowed) {
                assert_eq!(authorize(role, access).is_ok(), allowed, "{access:?} {role:?}");
            }
        }
    }

    // A1.2
    #[test]
    fn a_call_is_about_one_tenant() {
        let single = Tenancy::Single("one".into());
        let (one, two) = (Role::Tenant("one".to_owned()), Role::Tenant("two".to_owned()));
        for (tenancy, role, named, wanted) in [
            (&single, &Role::Operator, None, Ok("one")),
            (&single, &Role::Operator, Some("one"), Ok("one")),
            (&single, &Role::Operator, Some("two"), Err("not_found")),
            (&single, &one, None, Ok("one")),
            (&single, &one, Some("two"), Err("not_found")),
            (&single, &two, None, Err("not_found")),
            (&Tenancy::Multi, &Role::Operator, None, Err("tenant_required")),
            (&Tenancy::Multi, &Role::Operator, Some("two"), Ok("two")),
            (&Tenancy::Multi, &Role::Operator, Some(""), Err("bad_request")),
            (&Tenancy::Multi, &Role::Operator, Some("a\tb"), Err("bad_request")),
            (&Tenancy::Multi, &Role::Operator, Some("inquilino-ção"), Ok("inquilino-ção")),
            (&Tenancy::Multi, &one, None, Ok("one")),
            (&Tenancy::Multi, &one, Some("one"), Ok("one")),
            (&Tenancy::Multi, &one, Some("two"), Err("tenant_mismatch")),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(named) = named {
                headers.insert(X_TENANT_ID, HeaderValue::from_bytes(named.as_bytes()).unwrap());
            }
            let found = tenant(tenancy, role, &headers);
            assert_eq!(found.as_deref().map_err(Problem::code), wanted, "{tenancy:?} {role:?} {named:?}");
        }
        let mut both = HeaderMap::new();
        both.append(X_TENANT_ID, HeaderValue::from_static("a"));
        both.append(X_TENANT_ID, HeaderValue::from_static("b"));
        assert_eq!(tenant(&Tenancy::Multi, &Role::Operator, &both).unwrap_err().code(), "bad_request");
    }
}
