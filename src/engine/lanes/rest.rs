//! Lanes too long for memory: the end of such a lane is rows of the store and nothing else, until its turn comes (C5.1, C5.5).
//!
//! A lane holds as many jobs as there is room left for all others, and a small head in any case ([`Lanes::share`]). What comes beyond that
//! is its `rest`: all of its jobs from one log number on that were never attempted, of which only the number is known. When a head runs
//! short, rows are read from where its rest begins, in the order of the log, a bounded number in a commit, and every lane whose rest is
//! passed takes what is its own. Failed jobs stay in memory: a lane that has more of them than its share makes no first attempts
//! meanwhile.
//!
//! Invariant: of a lane's jobs that were never attempted, those below `rest.from` are in memory or claimed, and those from there on are
//! rows only, or claimed: none is lost, and none is there twice. They are read in the writer's own transaction, which sees every row,
//! those of its own batch too: that a rest has come to its end is never believed of an older snapshot.

use super::super::core::Core;
use super::super::lane::Taken;
use super::super::load::is_fresh;
use super::Lanes;
use crate::model::ids::{LogNo, SubNo};
use crate::model::job::{Cause, JobKey};
use crate::model::limits::{BULK_ROWS_PER_COMMIT, LANE_HEAD_JOBS};
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::HubTime;

/// The end of a lane that is not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct Rest {
    /// It begins at this log number.
    pub(in crate::engine) from: LogNo,
    /// How many jobs it has.
    pub(in crate::engine) jobs: usize,
}

impl Lanes {
    /// How many jobs of one kind a lane may hold, where all lanes together hold that many: no more than are left for all others, and
    /// its head in any case.
    pub(super) fn share(&self, held: usize) -> usize {
        self.max.saturating_sub(held).max(self.head())
    }

    /// What every lane may hold: all heads together are an eighth of what may be in memory, or one job each.
    fn head(&self) -> usize {
        (self.max / (8 * self.lanes.len().max(1))).clamp(1, LANE_HEAD_JOBS)
    }

    /// Appends a job that was never attempted: in memory, or to the rest.
    pub(in crate::engine) fn push_new(&mut self, sub: SubNo, log: LogNo) {
        let share = self.share(self.queued);
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        match &mut lane.rest {
            Some(rest) => {
                rest.jobs += 1;
                self.resting += 1;
            }
            None if lane.queue.len() < share => {
                lane.queue.push_back(log);
                self.queued += 1;
            }
            None => {
                lane.rest = Some(Rest { from: log, jobs: 1 });
                self.resting += 1;
                self.with_rest.insert(sub);
            }
        }
    }

    /// Puts back a job that was claimed and not attempted.
    pub(in crate::engine) fn put_back(&mut self, sub: SubNo, log: LogNo, from: Taken, cause: Cause) {
        let Some(lane) = self.lanes.get_mut(&sub) else { return };
        match (from, &mut lane.rest) {
            (Taken::Due, _) => {
                lane.push_due(log, cause);
                self.retrying += 1;
            }
            // It was claimed when the store was read in again, and all around it became the rest: its row is read with theirs.
            (Taken::Head, Some(rest)) if log >= rest.from => {
                rest.jobs += 1;
                self.resting += 1;
            }
            (Taken::Head, Some(_) | None) => {
                // Several may come back of a parallel lane, in any order.
                let heads = lane.heads();
                let at = heads.partition_point(|other| *other < log);
                heads.insert(at, log);
                self.queued += 1;
                // What the lane waited for was about the head of before: of this one its row tells when it is looked at.
                if at == 0 {
                    lane.not_before = HubTime(0);
                }
            }
        }
    }

    /// A job was taken of a lane's head: whether that runs short.
    pub(super) fn note_short(&mut self, sub: SubNo) {
        let enough = self.head() / 2;
        if self.lanes.get(&sub).is_some_and(|lane| lane.rest.is_some() && lane.queue.len() <= enough) {
            self.short.insert(sub);
        }
    }

    /// Where rows are to be read: where the earliest rest begins of a lane whose head runs short.
    pub(in crate::engine) fn refill_from(&self) -> Option<LogNo> {
        self.short.iter().filter_map(|sub| Some(self.lanes.get(sub)?.rest?.from)).min()
    }

    /// A row of a job that was never attempted and is not claimed, read on the way from `from`: into memory, if it is its lane's next one
    /// and there is room. Within one reading room only shrinks: a lane that has left one out takes none after it.
    fn refill(&mut self, key: JobKey, from: LogNo) {
        let share = self.share(self.queued);
        let Some(lane) = self.lanes.get_mut(&key.sub) else { return };
        let Some(rest) = &mut lane.rest else { return };
        let is_passed = from <= rest.from && rest.from <= key.log;
        // One whose worker crashed waits among the failed ones, and its row does not tell.
        if is_passed && lane.queue.len() < share && !lane.due.contains(&key.log) {
            lane.queue.push_back(key.log);
            let counted = rest.jobs.min(1);
            *rest = Rest { from: LogNo(key.log.0 + 1), jobs: rest.jobs - counted };
            self.queued += 1;
            self.resting -= counted;
        }
    }

    /// All rows were read from `from` up to `next`, or to the last of all: what that says of every rest on the way. The lanes that had
    /// run short, to be looked at.
    fn has_read(&mut self, from: LogNo, next: Option<LogNo>) -> Vec<SubNo> {
        let (share, enough) = (self.share(self.queued), self.head() / 2);
        let had_run_short = self.short.iter().copied().collect();
        for sub in self.with_rest.clone() {
            let Some(lane) = self.lanes.get_mut(&sub) else { continue };
            let Some(rest) = lane.rest.filter(|rest| from <= rest.from) else { continue };
            let took_all = lane.queue.len() < share;
            lane.rest = match next {
                Some(_) | None if rest.jobs == 0 => None,
                Some(next) if took_all => Some(Rest { from: rest.from.max(next), ..rest }),
                // Whatever is counted beyond was removed by something that did not know of this lane.
                None if took_all => None,
                Some(_) | None => Some(rest),
            };
            if lane.queue.len() > enough || lane.rest.is_none() {
                self.short.remove(&sub);
            }
            if lane.rest.is_none() {
                self.resting -= rest.jobs;
                self.with_rest.remove(&sub);
            }
        }
        had_run_short
    }
}

impl Core {
    /// Reads a chunk of rows where a lane has run short.
    pub(in crate::engine) fn refill_some(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        let Some(from) = self.lanes.refill_from() else { return Ok(()) };
        let claimed = self.open.keys();
        let rows = BULK_ROWS_PER_COMMIT.min(self.settings.pending_max);
        let believed_end = self.believed_end();
        let lanes = &mut self.lanes;
        let next = txn.jobs_from(from, rows, |key, job| {
            if is_fresh(&job) && !claimed.contains(&key) && key.log < believed_end {
                lanes.refill(key, from);
            }
        })?;
        for sub in self.lanes.has_read(from, next.filter(|next| *next < believed_end)) {
            self.lanes.look(sub, now);
        }
        Ok(())
    }

    /// No row is beyond it. The transaction sees all there is, so this is the end of all numbers.
    fn believed_end(&self) -> LogNo {
        #[cfg(feature = "planted-bugs")]
        if self.planted(crate::engine::PlantedBug::RefillBelieved) {
            return self.ends.of_an_old_snapshot();
        }
        LogNo(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::lane::Lane;
    use crate::engine::ring::Pace;
    use crate::model::ids::TenantNo;

    const SUB: SubNo = SubNo(1);

    /// Two lanes over a memory of so many jobs.
    fn lanes(max: usize) -> Lanes {
        let mut lanes = Lanes::new(max);
        for sub in [SUB, SubNo(2)] {
            let dest = lanes.dest_no(TenantNo(0), &sub.to_string());
            let lane = Lane { live: true, in_flight_max: 1000, ..Lane::new(TenantNo(0), dest) };
            lanes.add(sub, lane);
        }
        lanes
    }

    fn push(lanes: &mut Lanes, logs: std::ops::Range<u64>) {
        for log in logs {
            lanes.push_new(SUB, LogNo(log));
        }
    }

    fn rest(lanes: &Lanes) -> Option<(u64, usize)> {
        lanes.get(SUB).unwrap().rest.map(|rest| (rest.from.0, rest.jobs))
    }

    /// Reads the rows of that lane with these numbers, from the place where it has to be read.
    fn read(lanes: &mut Lanes, rows: impl IntoIterator<Item = u64>, next: Option<u64>) {
        let from = lanes.refill_from().unwrap();
        for log in rows.into_iter().filter(|log| *log >= from.0) {
            lanes.refill(JobKey { log: LogNo(log), sub: SUB }, from);
        }
        lanes.has_read(from, next.map(LogNo));
    }

    fn take(lanes: &mut Lanes, many: usize) -> Vec<u64> {
        lanes.look(SUB, HubTime(0));
        let mut taken = Vec::new();
        while taken.len() < many {
            let Some(next) = lanes.next(HubTime(0), 10_000, &mut Vec::new()) else { break };
            taken.push(next.log.0);
            lanes.count_closed(next.sub, Some(Pace::Quick));
            lanes.look(SUB, HubTime(0));
        }
        taken
    }

    // C5.5
    #[test]
    fn no_lane_takes_more_memory_than_it_leaves_to_all_others() {
        let mut lanes = lanes(160);
        push(&mut lanes, 1..1001);
        assert_eq!((rest(&lanes), lanes.queued, lanes.pending()), (Some((81, 920)), 80, 1000));
        for log in 1..1001 {
            lanes.push_new(SubNo(2), LogNo(log));
        }
        assert_eq!((lanes.queued, lanes.pending()), (120, 2000));
    }

    // C5.4
    #[test]
    fn a_lane_is_refilled_in_order_and_to_its_last_job() {
        let mut lanes = lanes(16);
        push(&mut lanes, 1..31);
        assert_eq!(rest(&lanes), Some((9, 22)));
        let mut taken = take(&mut lanes, 30);
        assert_eq!(taken.len(), 8, "what is in memory");
        // A chunk, and a job that is admitted before the next.
        read(&mut lanes, 1..13, Some(13));
        push(&mut lanes, 31..32);
        taken.extend(take(&mut lanes, 30));
        assert_eq!(rest(&lanes), Some((13, 19)));
        while rest(&lanes).is_some() {
            read(&mut lanes, 1..32, None);
            taken.extend(take(&mut lanes, 30));
        }
        assert_eq!(taken, (1..32).collect::<Vec<_>>());
        assert_eq!((lanes.pending(), lanes.refill_from()), (0, None));
        push(&mut lanes, 32..33);
        assert_eq!((rest(&lanes), take(&mut lanes, 2)), (None, vec![32]), "it is as short as any");
    }

    // C5.1
    #[test]
    fn what_comes_back_beyond_the_head_is_read_with_the_rest() {
        let mut lanes = lanes(16);
        push(&mut lanes, 1..11);
        assert_eq!(take(&mut lanes, 1), [1]);
        lanes.put_back(SUB, LogNo(1), Taken::Head, Cause::Match);
        lanes.put_back(SUB, LogNo(20), Taken::Head, Cause::Match);
        assert_eq!((rest(&lanes), lanes.pending()), (Some((9, 3)), 11));
        assert_eq!(take(&mut lanes, 30), (1..9).collect::<Vec<_>>());
        read(&mut lanes, [9, 10, 20], None);
        assert_eq!((take(&mut lanes, 30), rest(&lanes)), (vec![9, 10, 20], None));
    }

    // C5.6
    #[test]
    fn what_crashed_beyond_the_head_is_not_read_a_second_time() {
        let mut lanes = lanes(16);
        push(&mut lanes, 1..10);
        push(&mut lanes, 11..12);
        lanes.push_retry(SUB, LogNo(10), HubTime(50), Cause::Match);
        assert_eq!(take(&mut lanes, 30), (1..9).collect::<Vec<_>>());
        lanes.look(SUB, HubTime(60));
        read(&mut lanes, [9, 10, 11], None);
        let lane = lanes.get(SUB).unwrap();
        assert_eq!((&lane.queue, &lane.due), (&[LogNo(9), LogNo(11)].into(), &[LogNo(10)].into()));
        assert_eq!((rest(&lanes), lanes.pending()), (None, 3));
    }

    // C5.5
    #[test]
    fn a_lane_with_more_failed_jobs_than_its_share_makes_no_first_attempts() {
        let mut lanes = lanes(16);
        push(&mut lanes, 1..4);
        for log in 101..120 {
            lanes.push_retry(SUB, LogNo(log), HubTime(50), Cause::Match);
        }
        assert_eq!(take(&mut lanes, 1), Vec::<u64>::new());
        // A redriven one is no sign of failure.
        lanes.push_retry(SubNo(2), LogNo(1), HubTime(50), Cause::Redrive);
        lanes.push_new(SubNo(2), LogNo(2));
        lanes.look(SubNo(2), HubTime(0));
        assert_eq!(lanes.next(HubTime(0), 10_000, &mut Vec::new()).map(|next| next.log.0), Some(2));
    }

    // C5.1, C6.1: the time that the event behind it has to wait for is not its own
    #[test]
    fn a_head_that_comes_back_does_not_wait_for_the_one_behind_it() {
        let mut lanes = lanes(100);
        push(&mut lanes, 1..3);
        assert_eq!(take(&mut lanes, 1), [1]);
        // The second is looked at while the first is claimed: its first step is not over.
        assert_eq!(take(&mut lanes, 1), [2]);
        lanes.put_back_until(SUB, LogNo(2), HubTime(700));
        assert_eq!(take(&mut lanes, 1), [0; 0]);
        lanes.put_back(SUB, LogNo(1), Taken::Head, Cause::Match);
        assert_eq!(take(&mut lanes, 1), [1]);
    }
}
