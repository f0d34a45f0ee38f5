//! Every operation of the disk in one commit, and then in reading the store in again, is in turn the one that fails or the last before the
//! power goes: nothing is lost, an outcome that was received counts, and only a crash repeats anything (invariants 2, 12, 18).

use super::{Bench, delivered, fifo, options, parallel, settle};
use crate::disk::{Effect, Fuse};
use crate::model::{AskAdmit, Asked};
use crate::options::Options;
use std::collections::BTreeMap;
use streaming_hub::engine::Applied;
use streaming_hub::model::ids::ClaimNo;
use streaming_hub::model::job::{Claim, Settle};

const EFFECTS: [Effect; 4] = [Effect::Fail { more: 0 }, Effect::Fail { more: 2 }, Effect::CutBefore, Effect::CutAfter];

// C5.3 C13.3
#[test]
fn every_operation_of_a_commit_may_be_the_one_that_fails() {
    for quick_repair_above in [0, u64::MAX] {
        for effect in EFFECTS {
            let operations = operations(quick_repair_above, effect);
            assert!(operations > 5, "a commit has more than {operations} operations: {effect:?}");
        }
    }
}

// C13.3
#[test]
fn every_operation_of_reading_in_again_may_fail_as_well() {
    let fail = Effect::Fail { more: 0 };
    let last = operations(u64::MAX, fail) - 1;
    // A commit that failed early, one that failed at its last operation, and one that the power cut in the middle.
    for (after, effect) in [(3, fail), (last, fail), (last / 2, Effect::CutAfter)] {
        for second in EFFECTS {
            let first = Fuse { after, effect };
            let mut after = 0;
            while Story::tell(u64::MAX, first, Some(Fuse { after, effect: second })).1 {
                after += 1;
            }
            assert!(after > 0, "reading in has operations: {first:?} {second:?}");
        }
    }
}

/// Lets each operation of the commit in turn be the one; how many there are.
fn operations(quick_repair_above: u64, effect: Effect) -> u64 {
    let mut after = 0;
    while Story::tell(quick_repair_above, Fuse { after, effect }, None).0 {
        after += 1;
    }
    after
}

/// Two lanes; then an outcome of one, the next claim of it, and new events, all in a commit that meets a fault.
struct Story {
    bench: Bench,
    attempts: BTreeMap<(u32, u64), u32>,
    in_flight: BTreeMap<ClaimNo, Claim>,
    /// Outcomes that the writer has and that are not known to be stored.
    kept: Vec<Settle>,
    crashes: u32,
}

impl Story {
    /// Whether the first fault was met, and the second one.
    fn tell(quick_repair_above: u64, first: Fuse, second: Option<Fuse>) -> (bool, bool) {
        let mut bench = Bench::new(Options { quick_repair_above, ..options() });
        bench.subscribe(1, fifo("https://a.example/"));
        bench.subscribe(2, parallel("https://b.example/"));
        let begun = bench.admit("loan", 2);
        let (attempts, in_flight) = (BTreeMap::new(), BTreeMap::new());
        let mut story = Story { bench, attempts, in_flight, kept: Vec::new(), crashes: 0 };
        story.begin(begun);
        let admits = vec![story.bench.records("loan", 2)];
        let met = story.a_commit_that_meets(first, &admits);
        story.recover(second);
        let met_again = second.is_some() && !story.bench.disk.is_armed();
        story.bench.disk.heal();
        story.go_on(admits);
        story.ends_well(&format!("{first:?} {second:?}"));
        (met, met_again)
    }

    fn begin(&mut self, applied: Applied) {
        for claim in applied.claims {
            *self.attempts.entry((claim.job.key.sub.0, claim.job.seq.0)).or_default() += 1;
            self.in_flight.insert(claim.no, claim);
        }
    }

    fn a_commit_that_meets(&mut self, fuse: Fuse, admits: &[AskAdmit]) -> bool {
        let ended: Vec<Claim> = self.in_flight.values().filter(|claim| claim.job.seq.0 == 1).cloned().collect();
        for claim in &ended {
            self.in_flight.remove(&claim.no);
        }
        self.kept = ended.iter().map(|claim| settle(claim, delivered())).collect();
        self.bench.disk.light(fuse);
        let asked = Asked { settles: self.kept.clone(), admits: admits.to_vec(), ..Asked::default() };
        match self.bench.turn(&asked) {
            Ok(applied) => {
                self.kept.clear();
                self.begin(applied);
                false
            }
            Err(_) => true,
        }
    }

    /// The process opens the store again, or another one starts; until it works.
    fn recover(&mut self, second: Option<Fuse>) {
        let cut = self.bench.disk.is_cut();
        if !cut && self.kept.is_empty() {
            return;
        }
        if cut {
            self.bench.disk.power_cycle();
        }
        self.bench.disk.heal();
        if let Some(second) = second {
            self.bench.disk.light(second);
        }
        if !cut {
            while !self.bench.disk.is_cut() {
                let now = self.bench.hub.clock.now(&self.bench.clocks);
                if self.bench.hub.engine.reopen(now).is_ok() && !self.bench.disk.is_cut() {
                    return;
                }
            }
            self.bench.disk.power_cycle();
        }
        self.crashes = 1;
        self.kept.clear();
        self.in_flight.clear();
        while self.bench.start_again().is_err() || self.bench.disk.is_cut() {
            if self.bench.disk.is_cut() {
                self.bench.disk.power_cycle();
            } else {
                self.bench.disk.kill();
            }
        }
    }

    /// Kept outcomes are settled, the records are read again from the position, and everything that is claimed is delivered.
    fn go_on(&mut self, admits: Vec<AskAdmit>) {
        let position = self.bench.hub.engine.reader().view().unwrap().positions().unwrap()[0].next;
        let admits = if position == 2 { admits } else { Vec::new() };
        let settles = std::mem::take(&mut self.kept);
        let applied = self.bench.turn(&Asked { settles, admits, ..Asked::default() }).unwrap();
        self.begin(applied);
        while let Some((_, claim)) = self.in_flight.pop_first() {
            let applied = self.bench.settle(&claim, delivered());
            self.begin(applied);
        }
    }

    fn ends_well(&self, what: &str) {
        assert_eq!(self.bench.left(), Vec::<u64>::new(), "{what}: jobs are left with nobody at work on them");
        let expected: Vec<(u32, u64)> = (1..=2).flat_map(|sub| (1..=4).map(move |seq| (sub, seq))).collect();
        assert_eq!(self.attempts.keys().copied().collect::<Vec<_>>(), expected, "{what}");
        for (job, count) in &self.attempts {
            assert!(
                *count <= 1 + self.crashes,
                "{what}: {job:?} was attempted {count} times, crashes {}",
                self.crashes
            );
        }
    }
}
