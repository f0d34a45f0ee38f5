//! The health of subscriptions: failure spans, verdicts and what follows from them (C8, C9.10), all in the commit of the outcome that
//! led to them; and what was counted since the start.
//!
//! Invariants: the rows in memory are those of the store; a success writes nothing where there is no span; `verification_state` is
//! never touched (C8.1).

use super::command::Tally;
use super::core::{Core, Effects};
use crate::model::ids::{Generation, Seq, SubNo};
use crate::model::job::{JobKey, Outcome, Settle};
use crate::model::limits::JUDGED_PER_COMMIT;
use crate::model::notice::{Notice, NoticeKind};
use crate::model::subscription::{Enabled, Subscription};
use crate::rules::autodisable::{self, Acts, Cause, Health};
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::{HubTime, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// How often spans are judged without a failure (C8.2).
const LOOK_EVERY_MS: u64 = 3_600_000;

/// What is known of the health of all subscriptions.
#[derive(Debug, Default)]
pub(super) struct HealthBook {
    /// A row for each subscription that has something to remember, as stored.
    rows: BTreeMap<SubNo, Health>,
    /// Those with a failure in the batch under way: judged when all of its outcomes are known.
    failed: BTreeSet<SubNo>,
    /// When all spans are judged next; in memory only, so that a start does not wait an hour for it.
    next_look: HubTime,
    /// Where a look that did not get to its end goes on.
    look_after: Option<SubNo>,
    /// Counts since the start of the process.
    tallies: HashMap<SubNo, Tally>,
    /// What the batch under way adds to them.
    fresh: Vec<(SubNo, Happened, HubTime)>,
}

/// What is counted of a subscription.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happened {
    Delivered,
    Failed,
    Died,
}

impl HealthBook {
    /// Rows as stored; the counts of the process go on.
    pub(super) fn load(&mut self, rows: Vec<(SubNo, Health)>) {
        self.rows = rows.into_iter().collect();
        self.failed.clear();
        self.next_look = HubTime(0);
        self.look_after = None;
        self.fresh.clear();
    }

    /// The batch is durable: what happened in it counts.
    pub(super) fn committed(&mut self) {
        for (sub, happened, at) in self.fresh.drain(..) {
            let tally = self.tallies.entry(sub).or_default();
            match happened {
                Happened::Delivered => {
                    tally.delivered += 1;
                    tally.last_success = Some(at);
                }
                Happened::Failed => {
                    tally.failed += 1;
                    tally.last_failure = Some(at);
                }
                Happened::Died => tally.dead_letters += 1,
            }
        }
    }

    /// Something happened to a subscription's job.
    pub(super) fn count(&mut self, sub: SubNo, happened: Happened, at: HubTime) {
        self.fresh.push((sub, happened, at));
    }

    /// What is remembered of a subscription.
    pub(super) fn of(&self, sub: SubNo) -> Option<&Health> {
        self.rows.get(&sub)
    }

    /// What was counted of a subscription since the start.
    pub(super) fn tally(&self, sub: SubNo) -> Tally {
        self.tallies.get(&sub).copied().unwrap_or_default()
    }

    /// Subscriptions that failures have switched off.
    pub(super) fn switched_off(&self) -> u64 {
        self.rows.values().filter(|health| health.down.is_some()).count() as u64
    }

    /// A deleted subscription; its row goes with it.
    pub(super) fn forget(&mut self, sub: SubNo) {
        self.rows.remove(&sub);
        self.failed.remove(&sub);
        self.tallies.remove(&sub);
        self.fresh.retain(|(other, ..)| *other != sub);
    }

    /// When to look again, where there is anything to look at.
    pub(super) fn next_look(&self) -> Option<HubTime> {
        (!self.rows.is_empty() && self.look_after.is_none()).then_some(self.next_look)
    }
}

impl Core {
    /// An outcome at the place where events go now: what it says about the subscription's health (C8.2).
    pub(super) fn note_outcome(&mut self, txn: &mut Txn<'_>, now: HubTime, settle: &Settle) -> Result<(), StoreError> {
        let JobKey { log, sub } = settle.key;
        match &settle.outcome {
            Outcome::Delivered(_) => {
                self.health.count(sub, Happened::Delivered, now);
                self.end_span(txn, sub)
            }
            Outcome::Failed { attempt, .. } => {
                self.health.count(sub, Happened::Failed, now);
                let Some(error) = attempt.error.filter(|error| autodisable::extends(*error)) else { return Ok(()) };
                let health = self.health.of(sub).cloned().unwrap_or_default();
                self.put_health(txn, sub, health.on_failure(now, error, log))?;
                self.health.failed.insert(sub);
                Ok(())
            }
            Outcome::Hopeless { .. } => {
                self.health.count(sub, Happened::Failed, now);
                Ok(())
            }
            Outcome::Held { .. } | Outcome::Released | Outcome::Crashed => Ok(()),
        }
    }

    /// A success, or a new destination: its failures so far count no more.
    pub(super) fn end_span(&mut self, txn: &mut Txn<'_>, sub: SubNo) -> Result<(), StoreError> {
        match self.health.of(sub).filter(|health| health.span.is_some()).cloned() {
            Some(health) => self.put_health(txn, sub, health.on_success()),
            None => Ok(()),
        }
    }

    /// A passed probe of one that nobody paused: nothing is remembered (C8.4).
    pub(super) fn forget_failures(&mut self, txn: &mut Txn<'_>, sub: SubNo) -> Result<(), StoreError> {
        if self.health.of(sub).is_some() { self.put_health(txn, sub, Health::default()) } else { Ok(()) }
    }

    /// Judges the subscriptions that failed in this batch (C8.2).
    pub(super) fn judge_failed(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        for sub in std::mem::take(&mut self.health.failed) {
            self.judge(txn, now, wall, sub, effects)?;
        }
        Ok(())
    }

    /// Judges every span, hourly, a bounded number a commit; whether there are more.
    pub(super) fn look_at_health(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        effects: &mut Effects,
    ) -> Result<bool, StoreError> {
        if now < self.health.next_look {
            return Ok(false);
        }
        let from = self.health.look_after.map_or(Bound::Unbounded, Bound::Excluded);
        if !self.health.rows.is_empty() {
            // The time is stored, so that a hub in which nothing else happens is not taken for one whose clock has jumped (C13.8).
            self.hub.hub_time = now;
            txn.put_hub_row(&self.hub)?;
        }
        let looked_at: Vec<SubNo> =
            self.health.rows.range((from, Bound::Unbounded)).take(JUDGED_PER_COMMIT).map(|(sub, _)| *sub).collect();
        for sub in &looked_at {
            self.judge(txn, now, wall, *sub, effects)?;
            self.remind(txn, now, *sub)?;
        }
        if looked_at.len() == JUDGED_PER_COMMIT {
            self.health.look_after = looked_at.last().copied();
            return Ok(true);
        }
        self.health.look_after = None;
        self.health.next_look = now.plus_ms(LOOK_EVERY_MS);
        self.notices.forget_past_windows(now);
        Ok(false)
    }

    /// A start with a wall clock far ahead: spans decide nothing until another attempt has failed (C13.8).
    pub(super) fn doubt_spans(&mut self, txn: &mut Txn<'_>) -> Result<(), StoreError> {
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::ClockBelieved) {
            return Ok(());
        }
        let believed = |health: &Health| health.span.as_ref().is_some_and(|span| !span.doubted);
        let open: Vec<_> =
            self.health.rows.iter().filter(|(_, health)| believed(health)).map(|(sub, _)| *sub).collect();
        for sub in open {
            let health = self.health.of(sub).cloned().unwrap_or_default();
            self.put_health(txn, sub, health.doubted())?;
        }
        Ok(())
    }

    /// A job that crashed its worker again and again was given up (C5.6).
    pub(super) fn tell_of_poison(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        sub: SubNo,
        seq: Seq,
    ) -> Result<(), StoreError> {
        let Some(subscription) = self.subs.get(&sub).cloned() else { return Ok(()) };
        let detail = format!(
            "the delivery of event seq {seq} to {} was given up: it was under way in every crash, {} times",
            subscription.id, self.settings.poison_threshold
        );
        let notice = Notice {
            last_error: Some("crashed".to_owned()),
            ..about(NoticeKind::PoisonJob, &subscription, now, detail)
        };
        self.raise(txn, now, notice).map(drop)
    }

    fn judge(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        sub: SubNo,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        let (Some(health), Some(subscription)) = (self.health.of(sub), self.subs.get(&sub).cloned()) else {
            return Ok(());
        };
        // One that is off already, by whomever, is not tried, and so not judged.
        let Enabled::Yes = subscription.enabled else { return Ok(()) };
        let Some(cause) = health.judge(&self.settings.autodisable, now) else { return Ok(()) };
        let judged = health.clone().with_verdict(cause, now);
        let acts = self.settings.autodisable.acts;
        let notice = told_of(cause, acts, &subscription, &judged, now);
        match acts {
            Acts::On => {
                self.put_health(txn, sub, judged.switched_off(now))?;
                self.switch_off(txn, now, wall, &subscription, cause, effects)?;
                self.raise(txn, now, notice)?;
            }
            Acts::Off => {
                if *health != judged {
                    self.put_health(txn, sub, judged)?;
                }
                self.raise(txn, now, notice)?;
            }
        }
        Ok(())
    }

    /// `enabled` off, and nothing else (C8.1): its jobs wait (C8.5), and events are matched no more (C4.2).
    fn switch_off(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        wall: Timestamp,
        before: &Arc<Subscription>,
        cause: Cause,
        effects: &mut Effects,
    ) -> Result<(), StoreError> {
        let mut after = (**before).clone();
        after.enabled = Enabled::Disabled { reason: cause.reason(), since: wall };
        after.updated_at = wall;
        after.revision += 1;
        let lane_generation = self.lanes.get(before.no).map(|lane| lane.generation).unwrap_or_default();
        after.generation = Generation(before.generation.max(lane_generation).0 + 1);
        self.cross(txn, before, &mut after)?;
        let after = Arc::new(after);
        txn.put_subscription(&after)?;
        self.set_lane(&after, now);
        self.lanes.look(after.no, now);
        effects.show.push(after);
        Ok(())
    }

    /// One that is still off a day later is told of once more (C8.1).
    fn remind(&mut self, txn: &mut Txn<'_>, now: HubTime, sub: SubNo) -> Result<(), StoreError> {
        let (Some(health), Some(subscription)) = (self.health.of(sub), self.subs.get(&sub).cloned()) else {
            return Ok(());
        };
        let Some(down) = health.down.filter(|_| health.is_to_be_reminded(now)) else { return Ok(()) };
        let last_error = health.span.as_ref().map(|span| span.error.code().to_owned());
        let health = health.clone().reminded();
        self.put_health(txn, sub, health)?;
        let waiting = self.lanes.get(sub).map_or(0, super::lane::Lane::waiting);
        let hours = now.since_ms(down.at) / 3_600_000;
        let detail = format!(
            "{} is still off, {hours} h after it was switched off; deliveries waiting: {waiting}",
            subscription.id
        );
        let notice = Notice { last_error, ..about(NoticeKind::StillDisabled, &subscription, down.at, detail) };
        self.raise(txn, now, notice).map(drop)
    }

    fn put_health(&mut self, txn: &mut Txn<'_>, sub: SubNo, health: Health) -> Result<(), StoreError> {
        #[cfg(feature = "planted-bugs")]
        if self.planted(super::PlantedBug::SpanNotStored) && !health.is_empty() {
            self.health.rows.insert(sub, health);
            return Ok(());
        }
        if health.is_empty() {
            self.health.rows.remove(&sub);
            return txn.set_health::<Health>(sub, None);
        }
        txn.set_health(sub, Some(&health))?;
        self.health.rows.insert(sub, health);
        Ok(())
    }
}

/// What a verdict is told as.
fn told_of(cause: Cause, acts: Acts, subscription: &Subscription, health: &Health, now: HubTime) -> Notice {
    let span = health.span.as_ref();
    let since = span.map_or(now, |span| match (cause, &span.gone) {
        (Cause::Gone, Some(gone)) => gone.first,
        (Cause::Gone | Cause::Lasting, _) => span.first,
    });
    let hours = now.since_ms(since) / 3_600_000;
    let (kind, what) = match (acts, cause) {
        (Acts::On, Cause::Lasting) => (NoticeKind::AutoDisabled, "was switched off"),
        (Acts::On, Cause::Gone) => (NoticeKind::Gone, "was switched off"),
        (Acts::Off, Cause::Lasting | Cause::Gone) => (NoticeKind::WouldDisable, "would be switched off"),
    };
    let why = match cause {
        Cause::Lasting => {
            let failures = span.map_or(0, |span| span.failures);
            format!("{failures} attempts failed over {hours} h and none succeeded")
        }
        Cause::Gone => format!("several different events were answered with 410 Gone over {hours} h"),
    };
    let detail = format!("{} {what}: {why}; its waiting deliveries are kept", subscription.id);
    let last_error = span.map(|span| span.error.code().to_owned());
    Notice { last_error, ..about(kind, subscription, since, detail) }
}

/// A notice about a subscription.
fn about(kind: NoticeKind, subscription: &Subscription, since: HubTime, detail: String) -> Notice {
    Notice {
        tenant: Some(subscription.tenant.clone()),
        subscription: Some(subscription.id),
        ..Notice::about(kind, subscription.spec.sink.destination(), since, detail)
    }
}
