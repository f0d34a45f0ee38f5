//! Notices on their way to operators: one of a kind about one thing in a window, written in the commit that made it true.
//!
//! Invariant: whatever is told by the log and the metrics is stored already, and what is stored is told; a notice is never the reason
//! that the thing it tells of is not done.

use super::core::Core;
use crate::model::ids::SubscriptionId;
use crate::model::limits::{BULK_ROWS_PER_COMMIT, NOTICE_KEPT_MS, NOTICE_WINDOW_MS, NOTICES_KEPT};
use crate::model::notice::{Notice, NoticeKind, Urgency};
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::HubTime;
use std::collections::{HashMap, VecDeque};

/// What there is one notice about in a window.
type About = (NoticeKind, Option<String>, Option<SubscriptionId>, String);

/// The notices that are kept.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// When the newest one about each thing was raised.
    recent: HashMap<About, HubTime>,
    /// Number and time of each that may mend itself, oldest first.
    watch: VecDeque<(u64, HubTime)>,
    /// The same of those that a person must mend.
    act: VecDeque<(u64, HubTime)>,
    /// Raised in the batch under way.
    told: Vec<Notice>,
}

impl Notices {
    /// As they are stored.
    pub(super) fn load(rows: Vec<(u64, Notice)>, now: HubTime) -> Self {
        let mut notices = Self::default();
        for (no, notice) in rows {
            notices.kept(notice.kind.urgency()).push_back((no, notice.at));
            notices.recent.insert(about(&notice), notice.at);
        }
        notices.forget_past_windows(now);
        notices
    }

    /// Those of this batch, for the log and the metrics once it is durable.
    pub(super) fn take_told(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.told)
    }

    /// Forgets what its window is over for.
    pub(super) fn forget_past_windows(&mut self, now: HubTime) {
        self.recent.retain(|_, at| now.since_ms(*at) < NOTICE_WINDOW_MS);
    }

    fn kept(&mut self, urgency: Urgency) -> &mut VecDeque<(u64, HubTime)> {
        match urgency {
            Urgency::Watch => &mut self.watch,
            Urgency::Act => &mut self.act,
        }
    }

    fn is_news(&self, notice: &Notice, now: HubTime) -> bool {
        self.recent.get(&about(notice)).is_none_or(|at| now.since_ms(*at) >= NOTICE_WINDOW_MS)
    }
}

impl Core {
    /// Raises a notice, unless there was one about the same in this window; whether it was raised.
    pub(super) fn raise(&mut self, txn: &mut Txn<'_>, now: HubTime, notice: Notice) -> Result<bool, StoreError> {
        let notice = Notice { at: now, ..notice.bounded() };
        if !self.notices.is_news(&notice, now) {
            return Ok(false);
        }
        let no = self.hub.next_row;
        self.hub.next_row += 1;
        txn.put_notice(no, &notice)?;
        self.notices.recent.insert(about(&notice), now);
        let kept = self.notices.kept(notice.kind.urgency());
        kept.push_back((no, now));
        let oldest = if kept.len() > NOTICES_KEPT { kept.pop_front() } else { None };
        self.notices.told.push(notice);
        match oldest {
            Some((oldest, _)) => txn.remove_notice(oldest).map(|()| true),
            None => Ok(true),
        }
    }

    /// Ends notices by their age.
    pub(super) fn end_old_notices(&mut self, txn: &mut Txn<'_>, now: HubTime) -> Result<(), StoreError> {
        for urgency in [Urgency::Watch, Urgency::Act] {
            for _ in 0..BULK_ROWS_PER_COMMIT / 2 {
                let kept = self.notices.kept(urgency);
                let Some((no, _)) = kept.pop_front_if(|(_, at)| now.since_ms(*at) >= NOTICE_KEPT_MS) else { break };
                txn.remove_notice(no)?;
            }
        }
        Ok(())
    }
}

fn about(notice: &Notice) -> About {
    (notice.kind, notice.tenant.clone(), notice.subscription, notice.subject.clone())
}
