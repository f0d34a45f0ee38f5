//! One attempt: who, what and how long, then the sink, then the judgement.

use super::{Dispatch, Word};
use crate::model::attempt::AttemptRecord;
use crate::model::event::Event;
use crate::model::ids::{ClaimNo, DeliveryId};
use crate::model::job::{Claim, JobKey, Outcome};
use crate::model::limits::ANSWER_KEPT_BYTES;
use crate::model::subscription::Subscription;
use crate::rules::outcome::{Judged, Told, judge};
use crate::sink::{Delivery, Met};
use crate::time::{Timestamp, millis};
use std::sync::Arc;
use std::time::Duration;

/// Makes the one attempt of a claim (C5.2) and says what came of it.
pub(super) async fn run(dispatch: Arc<Dispatch>, claim: Claim, event: Arc<Event>, word: Word) {
    let Some(subscription) = dispatch.board.subscription(claim.job.key.sub) else {
        // Deleted between the pool's decision and now.
        word.say(Outcome::Released);
        return;
    };
    let delivery = Delivery {
        timeout: timeout_of(&subscription, dispatch.default_timeout),
        subscription,
        event,
        seq: claim.job.seq,
        delivery: delivery_id(&dispatch.delivery_key, claim.job.key, claim.no),
        attempt: u32::from(claim.job.steps_used) + 1,
        cause: claim.job.cause,
    };
    let at = dispatch.clock.wall();
    let began = dispatch.clock.monotonic();
    let met = dispatch.sinks.deliver(&delivery).await;
    let took = dispatch.clock.monotonic().saturating_sub(began);
    let outcome = outcome_of(met, delivery.delivery, at, took, dispatch.clock.wall());
    dispatch.watching.attempted(&outcome, took);
    word.say(outcome);
}

/// The limit of a subscription's attempts (C9.5).
pub fn timeout_of(subscription: &Subscription, default: Duration) -> Duration {
    subscription.spec.sink.timeout_ms().map_or(default, |ms| Duration::from_millis(u64::from(ms)))
}

/// What an attempt met, judged (C9.5, C9.6) and put into the words of the job.
pub fn outcome_of(met: Met, delivery: DeliveryId, at: Timestamp, took: Duration, wall_now: Timestamp) -> Outcome {
    let Met { status, error, retry_after, mut answer } = met;
    let judged = judge(&Told { status, error, retry_after }, wall_now);
    answer.truncate(ANSWER_KEPT_BYTES);
    let duration_ms = u32::try_from(millis(took)).unwrap_or(u32::MAX);
    let record = |error, answer| AttemptRecord { delivery, at, duration_ms, status, error, answer };
    match judged {
        Judged::Delivered => Outcome::Delivered(record(None, Vec::new())),
        Judged::Failed { error, not_before_ms } => {
            Outcome::Failed { attempt: record(Some(error), answer), not_before_ms }
        }
        Judged::Held { hold_ms } => {
            let error = Some(crate::model::attempt::ErrorClass::RateLimited);
            Outcome::Held { attempt: record(error, answer), hold_ms }
        }
        Judged::Hopeless { error, reason } => Outcome::Hopeless { attempt: record(Some(error), answer), reason },
    }
}

/// The id of an attempt: a keyed hash of its job and claim, in the shape of a UUIDv8, so that it need not be stored (C9.3).
pub fn delivery_id(key: &ring::hmac::Key, job: JobKey, claim: ClaimNo) -> DeliveryId {
    let mut input = [0u8; 20];
    input[..8].copy_from_slice(&job.log.0.to_be_bytes());
    input[8..12].copy_from_slice(&job.sub.0.to_be_bytes());
    input[12..].copy_from_slice(&claim.0.to_be_bytes());
    let tag = ring::hmac::sign(key, &input);
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&tag.as_ref()[..16]);
    DeliveryId(uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{LogNo, SubNo};

    // C9.3
    #[test]
    fn delivery_ids_are_new_for_every_claim_and_the_same_for_the_same() {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &[7; 32]);
        let job = JobKey { log: LogNo(1), sub: SubNo(2) };
        let id = |claim| delivery_id(&key, job, ClaimNo(claim)).to_string();
        assert_eq!(id(3), id(3));
        assert_ne!(id(3), id(4));
        assert!(id(3).starts_with("dlv_"));
        assert_eq!(id(3).len(), 40);
        assert_eq!(&id(3)[18..19], "8", "a UUIDv8");
    }
}
