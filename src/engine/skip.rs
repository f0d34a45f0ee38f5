//! What a subscription skipped while it was not matched (C8.5): remembered stretch by stretch until a replay takes it up.
//!
//! Invariant: the stretches of a subscription rise and do not overlap, and there are [`SKIPPED_STRETCHES`] of them at most.

use crate::model::ids::Seq;
use crate::model::limits::SKIPPED_STRETCHES;
use crate::model::subscription::{Skipped, Subscription};
use crate::store::StoreError;
use crate::store::txn::Txn;

/// What was skipped and not taken up since, up to the seq `upto`, the stretch that is still open included. `noted` are the closed ones
/// as they are stored.
pub fn stretches(subscription: &Subscription, noted: Option<Vec<Skipped>>, upto: Seq) -> Vec<Skipped> {
    let open = subscription.unmatched_from.map(|from| Skipped { from, to: upto });
    let all = closed(subscription, noted).into_iter().chain(open);
    let cut = all.map(|stretch| Skipped { to: stretch.to.min(upto), ..stretch });
    cut.filter(|stretch| stretch.from <= stretch.to).collect()
}

/// Notes a stretch that has just come to its end.
pub(super) fn note(txn: &mut Txn<'_>, before: &Subscription, stretch: Skipped) -> Result<(), StoreError> {
    let noted = txn.skipped(before.no)?;
    put(txn, before, closed(before, noted), [stretch])
}

/// Takes everything up to a seq: it is skipped no more. An open stretch goes on behind it.
pub(super) fn take(txn: &mut Txn<'_>, subscription: &mut Subscription, upto: Seq) -> Result<Vec<Skipped>, StoreError> {
    let noted = txn.skipped(subscription.no)?;
    let taken = stretches(subscription, noted.clone(), upto);
    let rest = closed(subscription, noted).into_iter().filter(|stretch| stretch.to > upto);
    let rest: Vec<Skipped> =
        rest.map(|stretch| Skipped { from: stretch.from.max(Seq(upto.0 + 1)), ..stretch }).collect();
    txn.set_skipped(subscription.no, &rest)?;
    subscription.unmatched_from = subscription.unmatched_from.map(|from| from.max(Seq(upto.0 + 1)));
    Ok(taken)
}

/// Puts back what was taken and is not replayed after all.
pub(super) fn put_back(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    stretches: impl IntoIterator<Item = Skipped>,
) -> Result<(), StoreError> {
    let noted = txn.skipped(subscription.no)?;
    put(txn, subscription, closed(subscription, noted), stretches)
}

/// The part of some stretches from a seq on.
pub(super) fn from(stretches: &[Skipped], next: Seq) -> Vec<Skipped> {
    let rest = stretches.iter().filter(|stretch| stretch.to >= next);
    rest.map(|stretch| Skipped { from: stretch.from.max(next), ..*stretch }).collect()
}

/// A store of before the stretches were noted knows the last one only.
fn closed(subscription: &Subscription, noted: Option<Vec<Skipped>>) -> Vec<Skipped> {
    noted.unwrap_or_else(|| subscription.skipped.into_iter().collect())
}

fn put(
    txn: &mut Txn<'_>,
    subscription: &Subscription,
    mut all: Vec<Skipped>,
    more: impl IntoIterator<Item = Skipped>,
) -> Result<(), StoreError> {
    all.extend(more);
    all.sort_by_key(|stretch| stretch.from);
    while all.len() > SKIPPED_STRETCHES {
        // What lies between the two is sent once more with them: better than to forget one.
        let second = all.remove(1);
        all[0].to = all[0].to.max(second.to);
    }
    txn.set_skipped(subscription.no, &all)
}
