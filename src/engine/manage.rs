//! Changes of the hub's own objects: checked first, written after, so that a refused one has written nothing.

use super::command::{Action, Change, Manage, Managed, NewSubscription, Refusal};
use super::core::{Core, Effects};
use super::skip;
use crate::model::api_key::ApiKey;
use crate::model::ids::{Generation, KeyId, SubNo, SubscriptionId};
use crate::model::job::JobKey;
use crate::model::limits::SUBSCRIPTIONS_PER_TENANT;
use crate::model::subscription::{
    DisabledReason, Enabled, PreviousSecret, SigningSecrets, Skipped, Subscription, Verification,
};
use crate::rules::breaker::Breaker;
use crate::store::StoreError;
use crate::store::txn::Txn;
use crate::time::{HubTime, Timestamp};
use std::sync::Arc;

pub(super) type Answer = Result<Result<Managed, Refusal>, StoreError>;

impl Core {
    pub(super) fn manage(&mut self, txn: &mut Txn<'_>, now: HubTime, manage: Manage, effects: &mut Effects) -> Answer {
        if !self.room.takes_new() && needs_room(&manage.action) {
            return Ok(Err(Refusal::DiskLow));
        }
        let answer = match manage.action {
            Action::CreateSubscription(new) => self.create(txn, now, *new, effects)?,
            Action::ChangeSubscription { tenant, id, if_revision, change } => {
                match self.find(&tenant, id, if_revision) {
                    Ok(subscription) => self.change(txn, now, &subscription, change, effects)?,
                    Err(refusal) => Err(refusal),
                }
            }
            Action::DeleteSubscription { tenant, id, if_revision } => match self.find(&tenant, id, if_revision) {
                Ok(subscription) => self.delete(txn, now, subscription, effects)?,
                Err(refusal) => Err(refusal),
            },
            Action::Redrive(which) => self.redrive(txn, now, &which)?,
            Action::DeadLetter { sub, log, end } => self.end_letter(txn, now, JobKey { log, sub }, end)?,
            Action::StartReplay { tenant, id, if_revision, replay } => match self.find(&tenant, id, if_revision) {
                Ok(subscription) => self.start_replay(txn, now, &subscription, *replay, effects)?,
                Err(refusal) => Err(refusal),
            },
            Action::CancelReplay { tenant, id, replay } => match self.find(&tenant, id, None) {
                Ok(subscription) => self.cancel_replay(txn, now, &subscription, replay)?,
                Err(refusal) => Err(refusal),
            },
            Action::CreateApiKey(key) => self.keep_key(txn, *key, effects)?,
            Action::RevokeApiKey { id, at } => self.revoke_key(txn, id, at, effects)?,
            Action::Remember => Ok(Managed::Done),
            Action::InspectLane(sub) => self.lane_state(txn, sub, now)?.map(Managed::Lane).ok_or(Refusal::NotFound),
            Action::InspectBreakers(which) => Ok(Managed::Breakers(self.breakers_seen(&which))),
            Action::InspectHealth { wanted, below, limit, examine } => {
                let (seen, next) = self.of_health(now, wanted, below, limit, examine);
                Ok(Managed::Healths { seen, next })
            }
            Action::Notice(notice) => self.raise(txn, now, *notice).map(|_| Ok(Managed::Done))?,
            Action::InspectHub => Ok(Managed::Hub(self.hub_state(txn, now)?)),
        };
        if answer.is_ok()
            && let Some(row) = manage.idempotency
        {
            txn.put_idempotency(&row)?;
        }
        Ok(answer)
    }

    /// A tenant's subscription; another tenant's is as if it did not exist (A1.3).
    fn find(&self, tenant: &str, id: SubscriptionId, if_revision: Option<u64>) -> Result<Arc<Subscription>, Refusal> {
        let subscription = self.sub_numbers.get(&id).and_then(|no| self.subs.get(no)).ok_or(Refusal::NotFound)?;
        if subscription.tenant != tenant {
            return Err(Refusal::NotFound);
        }
        if if_revision.is_some_and(|revision| revision != subscription.revision) {
            return Err(Refusal::Stale);
        }
        Ok(subscription.clone())
    }

    fn create(&mut self, txn: &mut Txn<'_>, now: HubTime, new: NewSubscription, effects: &mut Effects) -> Answer {
        let tenant_no = self.tenants.find(&new.tenant);
        let of_tenant = self.subs.values().filter(|sub| Some(sub.tenant_no) == tenant_no).count();
        if of_tenant >= SUBSCRIPTIONS_PER_TENANT {
            return Ok(Err(Refusal::LimitReached("the tenant has as many subscriptions as are allowed")));
        }
        let no = self.hub.next_sub;
        self.hub.next_sub = SubNo(no.0 + 1);
        let subscription = Arc::new(Subscription {
            no,
            id: new.id,
            tenant_no: self.tenants.number(&new.tenant),
            tenant: new.tenant.to_string(),
            revision: 1,
            generation: Generation(1),
            spec: new.spec,
            enabled: Enabled::Yes,
            verification: Verification::Pending,
            started: false,
            unmatched_from: None,
            skipped: None,
            secrets: SigningSecrets { current: new.secret, previous: None },
            created_at: new.at,
            updated_at: new.at,
        });
        txn.put_subscription(&subscription)?;
        self.open_lane(&subscription, now);
        effects.show.push(subscription.clone());
        Ok(Ok(Managed::Subscription { subscription, skipped: None }))
    }

    fn change(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        before: &Arc<Subscription>,
        change: Change,
        effects: &mut Effects,
    ) -> Answer {
        let mut after = (**before).clone();
        let mut new_place = false;
        let mut lifted = false;
        let at = match change {
            Change::Spec { spec, proven, at } => {
                new_place = !before.spec.sink.is_proven_by(&spec.sink);
                if new_place && !proven {
                    after.verification = Verification::Pending;
                }
                after.spec = *spec;
                at
            }
            Change::Pause { at } => {
                if let Enabled::Disabled { .. } = before.enabled {
                    return Ok(Ok(unchanged(before)));
                }
                after.enabled = Enabled::Disabled { reason: DisabledReason::Paused, since: at };
                at
            }
            Change::Resume { at } => match before.enabled {
                Enabled::Yes => return Ok(Ok(unchanged(before))),
                Enabled::Disabled { reason: DisabledReason::Paused, .. } => {
                    after.enabled = Enabled::Yes;
                    at
                }
                Enabled::Disabled { reason: DisabledReason::AutoDisabled | DisabledReason::Gone, .. } => {
                    return Ok(Err(Refusal::VerifyRequired));
                }
            },
            Change::Verified { sink, at } => {
                if *sink != before.spec.sink {
                    return Ok(Err(Refusal::Stale));
                }
                after.verification = Verification::Active;
                if let Enabled::Disabled { reason: DisabledReason::AutoDisabled | DisabledReason::Gone, .. } =
                    before.enabled
                {
                    after.enabled = Enabled::Yes;
                }
                lifted = true;
                at
            }
            Change::RotateSecret { secret, old_until, at } => {
                let overlapping = before.secrets.previous.as_ref().is_some_and(|previous| previous.until > at);
                if overlapping && old_until.is_some() {
                    return Ok(Err(Refusal::RotationInProgress));
                }
                let current = std::mem::replace(&mut after.secrets.current, secret);
                after.secrets.previous = old_until.map(|until| PreviousSecret { secret: current, until });
                at
            }
        };
        after.updated_at = at;
        after.revision += 1;
        let lane_generation = self.lanes.get(before.no).map(|lane| lane.generation).unwrap_or_default();
        after.generation = Generation(before.generation.max(lane_generation).0 + 1);
        let skipped = self.cross(txn, before, &mut after)?;
        let after = Arc::new(after);
        txn.put_subscription(&after)?;
        if new_place {
            self.end_probes_of(after.no, now);
            let dest = self.lanes.dest_no(after.tenant_no, &after.spec.sink.destination());
            let old = self.lanes.get(after.no).map(|lane| lane.dest);
            self.lanes.move_lane(after.no, dest);
            // The new destination starts fresh (C8.2).
            self.end_span(txn, after.no)?;
            if let Some(old) = old {
                self.forget_dest(txn, old)?;
            }
        }
        if lifted {
            self.lift(txn, &after, now)?;
            match after.enabled {
                Enabled::Yes => self.forget_failures(txn, after.no)?,
                // A paused one is only probed (C8.4).
                Enabled::Disabled { .. } => {}
            }
        }
        self.set_lane(&after, now);
        if !before.started && after.started {
            self.start(txn, &after)?;
        }
        self.lanes.look(after.no, now);
        effects.show.push(after.clone());
        Ok(Ok(Managed::Subscription { subscription: after, skipped }))
    }

    /// Crossing between matched and not matched (C4.2, C8.5): notes from where nothing was matched, and what was passed over.
    pub(super) fn cross(
        &self,
        txn: &mut Txn<'_>,
        before: &Subscription,
        after: &mut Subscription,
    ) -> Result<Option<Skipped>, StoreError> {
        let next = crate::model::ids::Seq(self.tenants.last_seq(after.tenant_no).0 + 1);
        match (before.is_live(), after.is_live()) {
            (true, false) => after.unmatched_from = Some(next),
            (false, true) if !before.started => after.started = true,
            (false, true) => {
                if let Some(from) = after.unmatched_from.take()
                    && from < next
                {
                    let skipped = Skipped { from, to: crate::model::ids::Seq(next.0 - 1) };
                    skip::note(txn, before, skipped)?;
                    after.skipped = Some(skipped);
                    return Ok(after.skipped);
                }
            }
            (true, true) | (false, false) => {}
        }
        Ok(None)
    }

    /// A passed probe closes the breaker and ends a hold (C7.2).
    fn lift(&mut self, txn: &mut Txn<'_>, subscription: &Subscription, now: HubTime) -> Result<(), StoreError> {
        let Some(lane) = self.lanes.get_mut(subscription.no) else { return Ok(()) };
        lane.hold_until = HubTime(0);
        let dest = lane.dest;
        txn.set_hold(subscription.no, None)?;
        self.lanes.dest_mut(dest).breaker = Breaker::Closed { failures: 0 };
        txn.set_breaker::<Breaker>(subscription.tenant_no, &subscription.spec.sink.destination(), None)?;
        self.lanes.look_at_dest(dest, now);
        Ok(())
    }

    fn delete(
        &mut self,
        txn: &mut Txn<'_>,
        now: HubTime,
        subscription: Arc<Subscription>,
        effects: &mut Effects,
    ) -> Answer {
        self.matcher.remove(subscription.tenant_no, subscription.no);
        self.subs.remove(&subscription.no);
        self.sub_numbers.remove(&subscription.id);
        self.bury(txn, subscription.no, now)?;
        // It may have been changed earlier in this batch: what is shown last is that it is gone.
        effects.show.retain(|shown| shown.no != subscription.no);
        effects.hide.push(subscription);
        Ok(Ok(Managed::Deleted))
    }

    fn keep_key(&mut self, txn: &mut Txn<'_>, key: ApiKey, effects: &mut Effects) -> Answer {
        txn.put_api_key(&key)?;
        self.keys.insert(key.id, key.clone());
        effects.keys.push(key.clone());
        Ok(Ok(Managed::ApiKey(Box::new(key))))
    }

    fn revoke_key(&mut self, txn: &mut Txn<'_>, id: KeyId, at: Timestamp, effects: &mut Effects) -> Answer {
        let Some(mut key) = self.keys.get(&id).cloned() else { return Ok(Err(Refusal::NotFound)) };
        key.revoked_at.get_or_insert(at);
        self.keep_key(txn, key, effects)
    }
}

fn unchanged(subscription: &Arc<Subscription>) -> Managed {
    Managed::Subscription { subscription: subscription.clone(), skipped: None }
}

/// Whether it is a change that somebody wants: those wait while the disk is nearly full (C13.4). What only looks, and what the hub
/// itself has to say, goes on.
fn needs_room(action: &Action) -> bool {
    match action {
        Action::CreateSubscription(_)
        | Action::ChangeSubscription { .. }
        | Action::DeleteSubscription { .. }
        | Action::Redrive(_)
        | Action::DeadLetter { .. }
        | Action::StartReplay { .. }
        | Action::CancelReplay { .. }
        | Action::CreateApiKey(_)
        | Action::RevokeApiKey { .. }
        | Action::Remember => true,
        Action::Notice(_)
        | Action::InspectLane(_)
        | Action::InspectHealth { .. }
        | Action::InspectBreakers(_)
        | Action::InspectHub => false,
    }
}
