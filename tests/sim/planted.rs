//! Bugs planted on purpose: each has to be seen, by the invariant that it breaks, within the seeds that are green without it.

use crate::world;
use streaming_hub::engine::PlantedBug;

/// Within so many seeds; [`crate::SEEDS`] are green without the bug.
const WITHIN: std::ops::Range<u64> = crate::SEEDS;

/// The bug is seen, and for what it is.
fn is_caught(bug: PlantedBug, as_one_of: &[&str]) {
    let caught =
        WITHIN.map(|seed| (seed, world::run(seed, Some(bug)))).find_map(|(seed, run)| Some((seed, run.err()?)));
    let Some((seed, broken)) = caught else { panic!("{bug:?} is not seen in seeds {WITHIN:?}") };
    eprintln!("{bug:?} is seen in seed {seed}: {:.200}", broken.what.0);
    let seen = as_one_of.iter().any(|rule| broken.what.0.contains(rule));
    assert!(seen, "{bug:?} is seen as something else: {}\n{}", broken.what.0, broken.trace.join("\n"));
}

// C3.1
#[test]
fn position_before_its_records_is_caught() {
    // Where the records' own commit failed, the store's position is ahead: seen in the store, or in what the next step is answered.
    is_caught(PlantedBug::PositionFirst, &["invariant 2", "PositionMoved"]);
}

// C3.2
#[test]
fn duplicates_stored_are_caught() {
    is_caught(PlantedBug::NoDedup, &["C3"]);
}

// C5.1
#[test]
fn claims_not_written_down_are_caught() {
    is_caught(PlantedBug::NoClaim, &["invariant 12"]);
}

// C5.5
#[test]
fn claims_beyond_the_slots_are_caught() {
    is_caught(PlantedBug::ClaimsBeyondCapacity, &["C5.5"]);
}

// C5.6
#[test]
fn blaming_jobs_that_were_not_claimed_is_caught() {
    is_caught(PlantedBug::UnclaimedBlamed, &["C5.6", "invariant 21"]);
}

// C5.5
#[test]
fn a_change_that_claims_do_not_obey_is_caught() {
    is_caught(PlantedBug::GenerationIgnored, &["C5.5"]);
}

// C5.1
#[test]
fn a_refill_that_believes_an_older_end_is_caught() {
    is_caught(PlantedBug::RefillBelieved, &["invariant 9", "invariant 10", "liveness", "C4: answered"]);
}

// C8.2
#[test]
fn spans_in_memory_only_are_caught() {
    is_caught(PlantedBug::SpanNotStored, &["C8.2"]);
}

// C13.8
#[test]
fn a_believed_clock_is_caught() {
    is_caught(PlantedBug::ClockBelieved, &["C8.1", "C8.2"]);
}

// C5.6
#[test]
fn attempts_before_their_claim_is_durable_are_caught() {
    is_caught(PlantedBug::AttemptBeforeCommit, &["invariant 12"]);
}

// C6.6
#[test]
fn a_replay_that_forgets_its_place_is_caught() {
    is_caught(PlantedBug::ReplayForgetsItsPlace, &["C6.6"]);
}

// C6.6
#[test]
fn a_replay_that_makes_an_unfinished_job_anew_is_caught() {
    is_caught(PlantedBug::ReplayMakesAnew, &["C6.1", "C6.5", "C9.3", "invariant"]);
}
