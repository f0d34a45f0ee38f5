//! What a planted bug needs to remember.

use crate::model::ids::LogNo;
use std::collections::VecDeque;

/// A snapshot that a refiller outside of the writer reads is so many commits old by the time that its rows are taken.
const COMMITS: usize = 8;

/// Where the log ended after each of the last commits.
#[derive(Debug, Default)]
pub(super) struct Ends(VecDeque<LogNo>);

impl Ends {
    /// After one more commit the log ends there.
    pub(super) fn committed(&mut self, end: LogNo) {
        self.0.push_back(end);
        if self.0.len() > COMMITS {
            self.0.pop_front();
        }
    }

    /// Where the log ended in the snapshot.
    pub(super) fn of_an_old_snapshot(&self) -> LogNo {
        self.0.front().copied().unwrap_or(LogNo(u64::MAX))
    }
}
