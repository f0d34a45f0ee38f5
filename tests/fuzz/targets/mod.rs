//! The fuzz targets: what must hold whatever the bytes are. Each panics when it does not.
//!
//! They are run in two ways: by the fuzzer (`tests/fuzz/run`), and on the saved corpus by an ordinary test
//! (`tests/it/fuzz_corpus.rs`).

mod address;
mod api;
mod kafka;
mod records;
mod retry_after;
mod stored;

use std::sync::LazyLock;
use streaming_hub::http::doors::Tenant;
use streaming_hub::rules::address::AddressPolicy;
use streaming_hub::secrets::{Envelope, Kek};
use streaming_hub::time::Timestamp;

/// Tries one input.
pub(crate) type Target = fn(&[u8]);

/// Every target with its name, which is also the name of its folder in `tests/fuzz/corpus`.
pub(crate) const ALL: [(&str, Target); 6] = [
    ("records", records::run),
    ("kafka", kafka::run),
    ("retry_after", retry_after::run),
    ("address", address::run),
    ("api", api::run),
    ("stored", stored::run),
];

const KEK: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// A tenant whose webhooks may go to every public address.
fn tenant() -> &'static Tenant {
    static TENANT: LazyLock<Tenant> = LazyLock::new(|| Tenant {
        name: "acme".to_owned(),
        destinations: AddressPolicy::default(),
        envelope: Envelope::new(Kek::parse(KEK).unwrap()),
        at: Timestamp(1_700_000_000_000),
    });
    &TENANT
}

/// Takes so many bytes from the front, zeros where there are none.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let (given, rest) = data.split_at(N.min(data.len()));
    *data = rest;
    let mut out = [0; N];
    out[..given.len()].copy_from_slice(given);
    out
}
