//! The fuzz targets on their saved corpus: what the fuzzer once found, and seeds written by hand.
//!
//! The fuzzer itself is `tests/fuzz/run`. An input on which it found a fault stays in the corpus as `fault-<what>`.

use crate::fuzz_targets::ALL;
use std::path::Path;

/// Runs every input of a target; a fault says which input it was.
fn replay(target: &str) {
    let (name, run) = ALL.iter().find(|(name, _)| *name == target).unwrap();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(name);
    let mut inputs: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(inputs.len() >= 10, "only {} inputs", inputs.len());
    for input in inputs {
        let data = std::fs::read(&input).unwrap();
        let held = std::panic::catch_unwind(|| run(&data));
        assert!(held.is_ok(), "{} breaks what {name} promises", input.display());
    }
}

#[test]
fn every_target_has_its_corpus_and_its_test() {
    assert_eq!(ALL.map(|(name, _)| name), ["records", "kafka", "retry_after", "address", "api", "stored"]);
}

// C2.2, C2.3, C2.6, C2.7, C9.3, C9.4
#[test]
fn record_headers_to_verdict() {
    replay("records");
}

// C1.6, C2.7
#[test]
fn what_a_broker_sends() {
    replay("kafka");
}

// C9.6
#[test]
fn retry_after_in_every_form() {
    replay("retry_after");
}

// C9.8
#[test]
fn destinations_to_address_policy() {
    replay("address");
}

// A1.4, A1.9
#[test]
fn bodies_of_the_api() {
    replay("api");
}

// C13.6
#[test]
fn stored_values_of_any_form() {
    replay("stored");
}
