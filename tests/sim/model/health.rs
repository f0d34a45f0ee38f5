//! Failure spans, verdicts and notices, as C8 and C9.10 tell it: from the whole list of failures since the last success.

use super::{Model, Sub};
use crate::dump::Dump;
use crate::hold;
use crate::model::Held;
use std::collections::BTreeSet;
use streaming_hub::model::attempt::ErrorClass;
use streaming_hub::model::ids::{Seq, SubNo, SubscriptionId};
use streaming_hub::model::notice::NoticeKind;
use streaming_hub::model::subscription::DisabledReason;
use streaming_hub::rules::autodisable::{Acts, Cause, Health};
use streaming_hub::time::HubTime;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// What is to be remembered of a subscription that fails.
#[derive(Debug, Clone, Default)]
pub struct HealthModel {
    /// Every failure since the last success: when, with what, of which event.
    pub failures: Vec<(HubTime, ErrorClass, Seq)>,
    /// The clock jumped since the last of them (C13.8).
    pub doubted: bool,
    pub verdict: Option<(Cause, HubTime)>,
    /// It was switched off then; and whether that was told again.
    pub down: Option<(HubTime, bool)>,
}

/// A notice.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NoticeModel {
    pub kind: NoticeKind,
    pub tenant: String,
    pub subject: String,
    pub subscription: Option<SubscriptionId>,
    pub at: HubTime,
}

impl HealthModel {
    /// A success, or a new destination.
    pub fn succeeded(&mut self) {
        self.failures.clear();
        self.doubted = false;
        if self.down.is_none() {
            self.verdict = None;
        }
    }

    /// A failure that counts.
    pub fn failed(&mut self, now: HubTime, error: ErrorClass, seq: Seq) {
        self.failures.push((now, error, seq));
        self.doubted = false;
    }

    fn judged(&self, model: &Model, now: HubTime) -> Option<Cause> {
        let policy = &model.rules.autodisable;
        let (first, last) = (self.failures.first()?.0, self.failures.last()?.0);
        let gone: Vec<_> = self.failures.iter().filter(|(_, error, _)| *error == ErrorClass::Gone).collect();
        let events: BTreeSet<Seq> = gone.iter().map(|(.., seq)| *seq).collect();
        let over = gone.first().zip(gone.last()).map_or(0, |(first, last)| last.0.since_ms(first.0));
        if self.doubted {
            None
        } else if events.len() >= 3 && over >= policy.gone_over_ms {
            Some(Cause::Gone)
        } else if now.since_ms(first) >= policy.window_ms && last.since_ms(first) >= policy.spread_ms {
            Some(Cause::Lasting)
        } else {
            None
        }
    }

    /// Whether a row is this.
    fn is(&self, row: &Health) -> bool {
        let gone: Vec<_> = self.failures.iter().filter(|(_, error, _)| *error == ErrorClass::Gone).collect();
        let events: BTreeSet<Seq> = gone.iter().map(|(.., seq)| *seq).collect();
        let span = match (&row.span, self.failures.first(), self.failures.last()) {
            (None, None, None) => true,
            (Some(span), Some((first, ..)), Some((last, error, _))) => {
                let stored = (span.first, span.last, span.error, span.failures, span.doubted);
                let of_gone = span.gone.as_ref().map(|gone| (gone.first, gone.last, gone.events.len()));
                stored == (*first, *last, *error, self.failures.len() as u64, self.doubted)
                    && of_gone == gone.first().zip(gone.last()).map(|(a, b)| (a.0, b.0, events.len().min(3)))
            }
            (Some(_) | None, _, _) => false,
        };
        span && row.verdict.map(|verdict| (verdict.cause, verdict.at)) == self.verdict
            && row.down.map(|down| (down.at, down.reminded)) == self.down
    }
}

/// Whether a failure counts here (C8.2).
pub fn counts(error: ErrorClass) -> bool {
    !matches!(
        error,
        ErrorClass::RateLimited
            | ErrorClass::TooLarge
            | ErrorClass::NotRepresentable
            | ErrorClass::DestinationBlocked
            | ErrorClass::SecretUnreadable
            | ErrorClass::Challenge
            | ErrorClass::Crashed
    )
}

/// What is written to a subscription.
pub fn reason(cause: Cause) -> DisabledReason {
    match cause {
        Cause::Lasting => DisabledReason::AutoDisabled,
        Cause::Gone => DisabledReason::Gone,
    }
}

impl Model {
    /// After the outcomes of a batch: those that failed are judged, and hourly all.
    pub(super) fn judge(&mut self, now: HubTime, failed: &BTreeSet<SubNo>) {
        for no in failed {
            self.judge_one(now, *no);
        }
        if now < self.next_look {
            return;
        }
        self.next_look = now.plus_ms(HOUR_MS);
        let all: Vec<SubNo> = self.subs.keys().copied().collect();
        for no in all {
            self.judge_one(now, no);
            let sub = self.subs.get_mut(&no).unwrap();
            if let Some((at, reminded)) = &mut sub.health.down
                && !sub.deleted
                && !*reminded
                && now.since_ms(*at) >= DAY_MS
            {
                *reminded = true;
                self.tell_of(NoticeKind::StillDisabled, no, now);
            }
        }
    }

    fn judge_one(&mut self, now: HubTime, no: SubNo) {
        let sub = &self.subs[&no];
        let Some(cause) = sub.health.judged(self, now).filter(|_| sub.enabled && !sub.deleted) else { return };
        let next = self.last_seq(&sub.tenant) + 1;
        let acts = self.rules.autodisable.acts;
        let sub = self.subs.get_mut(&no).unwrap();
        if sub.health.verdict.is_none_or(|(known, _)| known != cause) {
            sub.health.verdict = Some((cause, now));
        }
        let kind = match (acts, cause) {
            (Acts::Off, _) => NoticeKind::WouldDisable,
            (Acts::On, Cause::Lasting) => NoticeKind::AutoDisabled,
            (Acts::On, Cause::Gone) => NoticeKind::Gone,
        };
        if acts == Acts::On {
            if sub.is_live() {
                sub.unmatched_from = Some(next);
            }
            sub.enabled = false;
            sub.off = Some(cause);
            sub.health.down = Some((now, false));
            sub.revision += 1;
            sub.changes += 1;
            self.totals.switched_off += 1;
        }
        self.tell_of(kind, no, now);
    }

    fn tell_of(&mut self, kind: NoticeKind, no: SubNo, now: HubTime) {
        let Sub { id, tenant, .. } = &self.subs[&no];
        let (subscription, tenant, subject) = (Some(*id), tenant.clone(), self.subs[&no].destination().1);
        self.tell(NoticeModel { kind, tenant, subject, subscription, at: now });
    }

    /// Once for a subject and window.
    pub(super) fn tell(&mut self, notice: NoticeModel) {
        let about =
            |notice: &NoticeModel| (notice.kind, notice.tenant.clone(), notice.subject.clone(), notice.subscription);
        let known = |other: &&NoticeModel| about(other) == about(&notice) && notice.at.since_ms(other.at) < DAY_MS;
        if self.notices.iter().find(known).is_none() {
            self.totals.notices += 1;
            self.notices.push(notice);
        }
    }

    /// A job was given up as poison (C5.6).
    pub(super) fn tell_of_poison(&mut self, no: SubNo, now: HubTime) {
        self.tell_of(NoticeKind::PoisonJob, no, now);
    }

    /// A start with a clock that is far ahead (C13.8).
    pub fn doubt(&mut self) {
        for sub in self.subs.values_mut() {
            sub.health.doubted = !sub.health.failures.is_empty();
        }
        self.totals.doubts += 1;
    }

    /// Whether the store says that a start doubted its clock, and the model does not know of it.
    pub fn has_been_doubted(&self, dump: &Dump) -> bool {
        dump.health.iter().any(|(no, health)| {
            let doubted = health.span.as_ref().is_some_and(|span| span.doubted);
            doubted && self.subs.get(no).is_some_and(|sub| !sub.health.doubted)
        })
    }
}

/// C8, C9.10, C13.8: a row for each subscription that has something to remember, and for no other.
pub fn spans_are_stored(model: &Model, dump: &Dump) -> Held {
    for (no, sub) in &model.subs {
        let row = dump.health.get(no).cloned().unwrap_or_default();
        if sub.deleted {
            hold!(!dump.health.contains_key(no), "C8.2: deleted subscription {no} has {row:?}");
        } else {
            hold!(sub.health.is(&row), "C8.2: subscription {no} has {row:?}, expected {:?}", sub.health);
        }
    }
    let empty = dump.health.iter().find(|(_, health)| health.is_empty());
    hold!(empty.is_none(), "C8.2: an empty row is stored: {empty:?}");
    Ok(())
}

/// C8.1, C7: a notice for each thing that is told, once in its window.
pub fn notices_are_stored(model: &mut Model, dump: &Dump) -> Held {
    let shown = |notice: &streaming_hub::model::notice::Notice| NoticeModel {
        kind: notice.kind,
        tenant: notice.tenant.clone().unwrap_or_default(),
        subject: notice.subject.clone(),
        subscription: notice.subscription,
        at: notice.at,
    };
    let stored: BTreeSet<NoticeModel> = dump.notices.values().map(shown).collect();
    hold!(stored.len() == dump.notices.len(), "C8.1: a notice is stored twice: {:?}", dump.notices);
    // A start that was broken off may have told of a poison job, at a time that nobody knows: the store says it.
    for notice in model.notices.iter_mut().filter(|notice| notice.kind == NoticeKind::PoisonJob) {
        let same = |other: &&NoticeModel| NoticeModel { at: notice.at, ..(*other).clone() } == *notice;
        if !stored.contains(notice)
            && let Some(told) = stored.iter().filter(same).max_by_key(|other| other.at)
        {
            notice.at = told.at;
        }
    }
    let expected: BTreeSet<NoticeModel> = model.notices.iter().cloned().collect();
    let missing: Vec<_> = expected.difference(&stored).collect();
    let made_up: Vec<_> = stored.difference(&expected).collect();
    hold!(missing.is_empty(), "C8.1: notices are missing: {missing:?}, made up {made_up:?}");
    hold!(made_up.is_empty(), "C8.1: notices are made up: {made_up:?}");
    Ok(())
}
