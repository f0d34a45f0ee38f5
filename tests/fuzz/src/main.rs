//! libFuzzer around the targets. Which one runs is told by the environment, so that one build serves all of them.
#![no_main]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a broken invariant ends the run")]

#[path = "../targets/mod.rs"]
mod targets;

use std::sync::OnceLock;

/// The variable that names the target.
const WHICH: &str = "FUZZ_TARGET";

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    static TARGET: OnceLock<targets::Target> = OnceLock::new();
    let run = TARGET.get_or_init(|| {
        let name = std::env::var(WHICH).unwrap_or_default();
        let found = targets::ALL.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("{WHICH} must name a target")).1
    });
    run(data);
});
