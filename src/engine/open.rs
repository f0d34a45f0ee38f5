//! The claims that the pool was given, and what the batch under way has made of them.
//!
//! Invariant: after a failed commit the claims that were handed out are known again as they were before the batch: those of the batch were
//! given to nobody, and an outcome of the batch is still to come (C5.1).

use super::core::OpenJob;
use crate::model::ids::ClaimNo;
use crate::model::job::JobKey;
use std::collections::{BTreeMap, HashSet};

/// Claims by number.
#[derive(Debug, Default)]
pub(super) struct OpenClaims {
    jobs: BTreeMap<ClaimNo, OpenJob>,
    /// What stood under each number before its change in this batch, in order.
    before: Vec<(ClaimNo, Option<OpenJob>)>,
}

impl OpenClaims {
    /// A claim.
    pub(super) fn get(&self, no: ClaimNo) -> Option<&OpenJob> {
        self.jobs.get(&no)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ClaimNo, &OpenJob)> {
        self.jobs.iter().map(|(no, open)| (*no, open))
    }

    /// Jobs that are claimed.
    pub(super) fn keys(&self) -> HashSet<JobKey> {
        self.jobs.values().filter(|open| !open.gone).map(|open| open.key).collect()
    }

    /// Takes a claim in, in place of what it was.
    pub(super) fn insert(&mut self, no: ClaimNo, open: OpenJob) {
        self.before.push((no, self.jobs.insert(no, open)));
    }

    /// Ends a claim.
    pub(super) fn remove(&mut self, no: ClaimNo) -> Option<OpenJob> {
        let open = self.jobs.remove(&no);
        self.before.push((no, open));
        open
    }

    /// The batch is durable: its claims are handed out.
    pub(super) fn committed(&mut self) {
        self.before.clear();
    }

    /// Whether the batch is durable is not known: what was handed out is what was before it.
    pub(super) fn roll_back(&mut self) {
        for (no, before) in self.before.drain(..).rev() {
            match before {
                Some(open) => self.jobs.insert(no, open),
                None => self.jobs.remove(&no),
            };
        }
    }
}

impl FromIterator<(ClaimNo, OpenJob)> for OpenClaims {
    fn from_iter<I: IntoIterator<Item = (ClaimNo, OpenJob)>>(claims: I) -> Self {
        Self { jobs: claims.into_iter().collect(), before: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lane::Taken;
    use crate::model::ids::{Generation, LogNo, SubNo};

    fn open(log: u64) -> OpenJob {
        let key = JobKey { log: LogNo(log), sub: SubNo(1) };
        OpenJob {
            key,
            from: Taken::Head,
            alone: false,
            probes: false,
            generation: Generation(1),
            place: 0,
            gone: false,
        }
    }

    fn logs(claims: &OpenClaims) -> Vec<(u64, u64)> {
        claims.iter().map(|(no, open)| (no.0, open.key.log.0)).collect()
    }

    // C5.1
    #[test]
    fn after_a_failed_commit_what_was_handed_out_is_what_it_was_before() {
        let mut claims = OpenClaims::default();
        claims.insert(ClaimNo(1), open(10));
        claims.insert(ClaimNo(2), open(20));
        claims.committed();
        // An outcome, the lane's next claim, and a claim that changes and ends in the same batch.
        claims.remove(ClaimNo(1));
        claims.insert(ClaimNo(3), open(30));
        claims.insert(ClaimNo(2), open(21));
        claims.remove(ClaimNo(2));
        claims.roll_back();
        assert_eq!(logs(&claims), [(1, 10), (2, 20)]);
        claims.remove(ClaimNo(1));
        claims.committed();
        claims.roll_back();
        assert_eq!(logs(&claims), [(2, 20)]);
    }
}
