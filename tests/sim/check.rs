//! The invariants of `design/invariants.md`, one function each, over the model and what the store says.

use crate::dump::Dump;
use crate::hold;
use crate::model::health::{notices_are_stored, reason, spans_are_stored};
use crate::model::replay::{Path, ReplayModel};
use crate::model::{ClaimModel, Held, Job, Model, State};
use std::collections::{BTreeMap, BTreeSet};
use streaming_hub::engine::board::Board;
use streaming_hub::model::ids::{ClaimNo, LogNo, Seq, SubNo, TenantNo};
use streaming_hub::model::job::JobKey;
use streaming_hub::model::replay::{Replay, Work};
use streaming_hub::model::subscription::{DisabledReason, Enabled, Verification};
use streaming_hub::store::view::PositionRow;
use streaming_hub::time::HubTime;

/// How exactly claims must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claims {
    /// Every claim, and no other.
    Exact,
    /// A claim that nobody was given may be gone already: the store was being read again.
    UngivenMayBeGone,
}

/// Everything that can be seen in a store at rest, against the model.
pub fn store(model: &mut Model, dump: &Dump, claims: Claims) -> Held {
    let logs = inbox_is_whole(model, dump)?;
    positions_are_those_of_the_records(model, dump)?;
    subscriptions_are_as_acknowledged(model, dump)?;
    no_job_is_lost_or_made_up(model, dump)?;
    claims_are_the_open_ones(model, dump, claims)?;
    dues_and_counts_follow_the_rules(model, dump)?;
    dead_letters_have_their_reason(model, dump, &logs)?;
    what_was_set_aside_is_counted(model, dump)?;
    breakers_are_kept_while_they_are_open(model, dump)?;
    spans_are_stored(model, dump)?;
    notices_are_stored(model, dump)?;
    replays_go_on_where_they_are(model, dump)?;
    conservation(model, dump)
}

/// C3.1 to C3.4, C4.4, C4.5, invariants 1 and 6: each accepted event once, seqs 1..n, bytes kept, matched as decided.
fn inbox_is_whole(model: &Model, dump: &Dump) -> Result<BTreeMap<(String, Seq), LogNo>, crate::model::Violation> {
    let names: BTreeSet<&str> = dump.tenants.iter().map(|(name, _)| name.as_str()).collect();
    hold!(names.len() == dump.tenants.len(), "C4.4: a tenant has two numbers: {:?}", dump.tenants);
    let known: BTreeSet<&str> =
        model.tenants.iter().filter(|(_, events)| !events.is_empty()).map(|(name, _)| name.as_str()).collect();
    hold!(known.is_subset(&names), "invariant 1: tenants {known:?}, stored {names:?}");
    let mut logs = BTreeMap::new();
    let mut total = 0;
    for (no, (tenant, last)) in dump.tenants.iter().enumerate() {
        let expected = model.tenants.get(tenant).map_or(&[][..], Vec::as_slice);
        hold!(
            last.0 == expected.len() as u64,
            "C3.3: last seq of {tenant} is {last}, {} were accepted",
            expected.len()
        );
        let mut before = LogNo(0);
        for (seq, event) in (1u64..).map(Seq).zip(expected) {
            let stored = dump.events.get(&(TenantNo(u32::try_from(no).unwrap()), seq));
            let Some(stored) = stored.map(|stored| &stored.0) else {
                return Err(crate::model::Violation(format!("invariant 1: {tenant} seq {seq} is not stored")));
            };
            hold!(stored.event == *event.event, "C3.4: {tenant} seq {seq} is {:?}", stored.event);
            hold!(stored.seq == seq, "C3.3: {tenant} seq {seq} is stored as {}", stored.seq);
            hold!(stored.log > before, "invariant 9: log numbers of {tenant} do not rise at seq {seq}");
            hold!(stored.stored_at == event.stored_at, "{tenant} seq {seq}: stored at {:?}", stored.stored_at);
            let matched: BTreeSet<SubNo> = stored.matched.iter().copied().collect();
            hold!(
                matched == event.matched && matched.len() == stored.matched.len(),
                "C4.5: {tenant} seq {seq} matched {:?}, expected {:?}",
                stored.matched,
                event.matched
            );
            before = stored.log;
            logs.insert((tenant.clone(), seq), stored.log);
            total += 1;
        }
    }
    hold!(total == dump.events.len(), "C3.2: {} events are stored, {total} were accepted", dump.events.len());
    Ok(logs)
}

/// Invariant 2: a position is where the records stored with it end, never ahead.
fn positions_are_those_of_the_records(model: &Model, dump: &Dump) -> Held {
    let stored: BTreeMap<_, _> =
        dump.positions.iter().map(|row| ((row.topic.as_str().into(), row.topic_id, row.partition), row.next)).collect();
    hold!(stored == model.positions, "invariant 2: positions {stored:?}, expected {:?}", model.positions);
    Ok(())
}

/// Invariant 3: no position went back, but for a recorded gap.
pub fn positions_never_go_back(model: &Model, before: &Dump, after: &Dump) -> Held {
    let kept = |row: &&PositionRow| !model.set_back.contains(&(row.topic.clone(), row.topic_id, row.partition));
    for row in before.positions.iter().filter(kept) {
        let now = after
            .positions
            .iter()
            .find(|other| (&other.topic, other.topic_id, other.partition) == (&row.topic, row.topic_id, row.partition));
        hold!(now.is_some_and(|now| now.next >= row.next), "invariant 3: {row:?} became {now:?}");
    }
    Ok(())
}

/// Invariant 20: what was acknowledged is there.
fn subscriptions_are_as_acknowledged(model: &Model, dump: &Dump) -> Held {
    let live = model.subs.iter().filter(|(_, sub)| !sub.deleted);
    let expected: BTreeSet<SubNo> = live.clone().map(|(no, _)| *no).collect();
    let stored: BTreeSet<SubNo> = dump.subscriptions.keys().copied().collect();
    hold!(stored == expected, "invariant 20: subscriptions {stored:?}, expected {expected:?}");
    for (no, sub) in live {
        let stored = &dump.subscriptions[no];
        let (enabled, active) = (stored.enabled == Enabled::Yes, stored.verification == Verification::Active);
        hold!(
            (enabled, active, stored.started) == (sub.enabled, sub.active, sub.started),
            "invariant 20: subscription {no} is {stored:?}, expected {sub:?}"
        );
        let off = match stored.enabled {
            Enabled::Yes | Enabled::Disabled { reason: DisabledReason::Paused, .. } => None,
            Enabled::Disabled { reason, .. } => Some(reason),
        };
        hold!(off == sub.off.map(reason), "C8.1: subscription {no} is off by {off:?}, expected {:?}", sub.off);
        hold!(stored.revision == sub.revision, "A1.8: subscription {no} has revision {}", stored.revision);
        hold!(stored.spec == sub.spec && stored.tenant == sub.tenant, "invariant 20: subscription {no}: {stored:?}");
        hold!(stored.unmatched_from.map(|seq| seq.0) == sub.unmatched_from, "C8.5: subscription {no}: {stored:?}");
        let hold_until = dump.holds.get(no).copied().unwrap_or(HubTime(0));
        hold!(hold_until == sub.hold_until, "C9.6: subscription {no} is held until {hold_until:?}, not {sub:?}");
        hold!(dump.fills.contains(no) == sub.fill.is_some(), "C4.8: subscription {no}: fill {:?}", sub.fill);
    }
    hold!(dump.keys == model.keys, "invariant 20: API keys {:?}", dump.keys);
    Ok(())
}

/// Invariant 20: readers see what was acknowledged.
pub fn readers_are_shown_what_is_stored(model: &Model, board: &Board) -> Held {
    for (no, sub) in &model.subs {
        let shown = board.subscription(*no);
        let of_tenant = board.subscription_of(&sub.tenant, sub.id);
        hold!(shown.is_some() != sub.deleted && shown == of_tenant, "C4: subscription {no} is shown as {shown:?}");
        if let Some(shown) = shown {
            hold!(
                (shown.revision, shown.is_live(), &shown.spec) == (sub.revision, sub.is_live(), &sub.spec),
                "invariant 20: subscription {no} is shown as {shown:?}, and is {sub:?}"
            );
        }
    }
    Ok(())
}

/// Invariant 1: a row for each unfinished job, and for no other.
fn no_job_is_lost_or_made_up(model: &Model, dump: &Dump) -> Held {
    let unfinished = |job: &Job| matches!(job.state, State::Waiting | State::Claimed(_));
    let expected: BTreeSet<(SubNo, Seq)> =
        model.jobs.iter().filter(|(_, job)| unfinished(job)).map(|(key, _)| *key).collect();
    let live = |key: &&JobKey| !dump.tombstones.contains(&key.sub);
    let stored: BTreeSet<(SubNo, Seq)> =
        dump.jobs.keys().filter(live).filter_map(|key| Model::key_of(dump, *key)).collect();
    if let Some(lost) = expected.difference(&stored).next() {
        hold!(false, "invariant 1: job {lost:?} is lost; it was {:?}", model.jobs[lost]);
    }
    if let Some(made_up) = stored.difference(&expected).next() {
        hold!(false, "invariant 1: job {made_up:?} should not be; the model has {:?}", model.jobs.get(made_up));
    }
    let twice = dump.jobs.keys().filter(live).count() != stored.len();
    hold!(!twice, "C6.6: two unfinished jobs of one event for one subscription");
    Ok(())
}

/// Invariant 12: the claims of the store are those that are open.
fn claims_are_the_open_ones(model: &Model, dump: &Dump, exactly: Claims) -> Held {
    for (no, claim) in &model.claims {
        match dump.claims.get(no) {
            Some(row) => {
                let key = Model::key_of(dump, row.key);
                hold!(key == Some((claim.sub, claim.seq)), "invariant 12: claim {no} is {row:?}, not {claim:?}");
                hold!(row.alone == claim.alone, "C5.6: claim {no} is {row:?}, not {claim:?}");
            }
            None => {
                let may_be_gone = exactly == Claims::UngivenMayBeGone && !claim.handed_out;
                hold!(may_be_gone, "invariant 12: claim {no} is not stored: {claim:?}");
            }
        }
    }
    let other: Option<&ClaimNo> = dump.claims.keys().find(|no| !model.claims.contains_key(no));
    hold!(other.is_none(), "invariant 12: claim {other:?} is nobody's");
    Ok(())
}

/// Invariants 10 and 11, C5.6: due within the step, steps and crashes counted right.
fn dues_and_counts_follow_the_rules(model: &mut Model, dump: &Dump) -> Held {
    for (key, row) in &dump.jobs {
        let Some(job) = model.jobs.get_mut(&(key.sub, row.seq)) else { continue };
        if dump.tombstones.contains(&key.sub) {
            continue;
        }
        let what = format!("job {}/{}: {row:?}, expected {job:?}", key.sub, row.seq);
        hold!(job.due.0 <= row.due && row.due <= job.due.1, "invariant 11: due of {what}");
        // Known exactly from here on.
        job.due = (row.due, row.due);
        hold!(row.steps_used == job.steps, "C6.1: steps of {what}");
        hold!(row.reclaims == job.reclaims, "C5.6: crashes of {what}");
        hold!(row.cause == job.cause, "C6.5: cause of {what}");
        hold!(row.first_attempt == job.first_attempt, "C9.6: first attempt of {what}");
    }
    Ok(())
}

/// C6.3, C6.6: what is dead is kept with its reason, and stays while it is replayed.
fn dead_letters_have_their_reason(model: &mut Model, dump: &Dump, logs: &BTreeMap<(String, Seq), LogNo>) -> Held {
    let mut expected = BTreeMap::new();
    for ((no, seq), job) in &mut model.jobs {
        if let Some(letter) = &mut job.letter {
            let log = logs[&(model.subs[no].tenant.clone(), *seq)];
            expected.insert((*no, log), (*seq, letter.reason, letter.steps));
            // One that died at a start is known to have died then from here on.
            letter.died_at = dump.dead.get(&(*no, log)).map_or(letter.died_at, |stored| stored.died_at);
        }
    }
    let live = dump.dead.iter().filter(|((sub, _), _)| !dump.tombstones.contains(sub));
    let stored: BTreeMap<_, _> = live.map(|(key, l)| (*key, (l.seq, l.reason, l.steps_used))).collect();
    hold!(stored == expected, "C6.3: dead letters {stored:?}, expected {expected:?}");
    Ok(())
}

/// C6.5, C6.6, C8.5: bulk work stands where it came to in the commit of its jobs; what was skipped is remembered until it is replayed.
fn replays_go_on_where_they_are(model: &Model, dump: &Dump) -> Held {
    let place = |replay: &ReplayModel| match &replay.path {
        Path::Events { next, .. } => Some(*next),
        Path::Letters { .. } => None,
    };
    let stored_place = |replay: &Replay| match &replay.work {
        Work::Events { next, .. } => Some(next.0),
        Work::DeadLetters { .. } => None,
    };
    let expected: BTreeMap<_, _> = model.replays.iter().map(|(key, r)| (*key, (r.done, r.turn, place(r)))).collect();
    let live = dump.replays.iter().filter(|((sub, _), _)| !dump.tombstones.contains(sub));
    let stored: BTreeMap<_, _> = live.map(|(key, r)| (*key, (r.done, r.turn, stored_place(r)))).collect();
    hold!(stored == expected, "C6.6: replays {stored:?}, expected {expected:?}");
    for (no, stored) in &dump.skipped {
        let stored: Vec<_> = stored.iter().map(|stretch| (stretch.from.0, stretch.to.0)).collect();
        let expected = &model.subs[no].skipped;
        hold!(stored == *expected, "C8.5: subscription {no} skipped {stored:?}, expected {expected:?}");
    }
    Ok(())
}

/// C2.7, C1.5: poison records and gaps.
fn what_was_set_aside_is_counted(model: &Model, dump: &Dump) -> Held {
    hold!(dump.poison == model.poison, "C2.7: {} poison records, expected {}", dump.poison, model.poison);
    hold!(dump.gaps == model.gaps, "C1.5: {} gaps, expected {}", dump.gaps, model.gaps);
    Ok(())
}

/// C7: a row for each breaker that is not closed, and for no other.
fn breakers_are_kept_while_they_are_open(model: &Model, dump: &Dump) -> Held {
    let expected: BTreeSet<_> =
        model.breakers.iter().filter(|(_, breaker)| breaker.is_open()).map(|(key, _)| key.clone()).collect();
    let named = |(tenant, name): &(TenantNo, String)| (dump.tenants[tenant.0 as usize].0.clone(), name.clone());
    let stored: BTreeSet<_> = dump.breakers.keys().map(named).collect();
    hold!(stored == expected, "C7.1: breakers {stored:?}, expected {:?}", model.breakers);
    Ok(())
}

/// Invariant 25: matches and nothing else became jobs, and each is somewhere.
fn conservation(model: &Model, dump: &Dump) -> Held {
    let matches: usize = model.tenants.values().flatten().map(|event| event.matched.len()).sum();
    let mut by_state = [0usize; 5];
    for job in model.jobs.values() {
        by_state[match job.state {
            State::Waiting | State::Claimed(_) => 0,
            State::Delivered => 1,
            State::Dead(_) => 2,
            State::Removed => 3,
            State::Purged => 4,
        }] += 1;
    }
    let live = dump.jobs.keys().filter(|key| !dump.tombstones.contains(&key.sub)).count();
    let jobs = model.jobs.len() - by_state[4];
    hold!(matches == jobs, "invariant 25: {matches} matches, {jobs} jobs beside those purged");
    hold!(by_state[0] == live, "invariant 25: {by_state:?}, {live} rows");
    Ok(())
}

/// C5.6, C5.1: an attempt that had begun when the process died has its claim in the store.
pub fn begun_attempts_were_claimed(claims: &BTreeMap<ClaimNo, ClaimModel>, dump: &Dump) -> Held {
    let without = claims.iter().find(|(no, claim)| claim.begun && !dump.claims.contains_key(no));
    hold!(without.is_none(), "invariant 12: an attempt began before its claim was durable: {without:?}");
    Ok(())
}

/// Invariant 21: reading the store in changes nothing that was not changed the first time.
pub fn starting_twice_is_starting_once(first: &Dump, second: &Dump) -> Held {
    hold!(first.is_same_state(second), "invariant 21: another start changed the store: {first:?} {second:?}");
    Ok(())
}

/// When all is quiet: no claim, no job but of lanes that wait for somebody (invariant 1, C13).
pub fn nothing_is_left_over(model: &Model, dump: &Dump) -> Held {
    hold!(dump.claims.is_empty(), "claims are left: {:?}", dump.claims);
    hold!(dump.tombstones.is_empty(), "tombstones are left: {:?}", dump.tombstones);
    hold!(dump.fills.is_empty(), "fills are left: {:?}", dump.fills);
    hold!(dump.replays.is_empty(), "replays are left: {:?}", dump.replays);
    for key in dump.jobs.keys() {
        let sub = &model.subs[&key.sub];
        hold!(!sub.is_live(), "job {key:?} is left of a live lane");
    }
    Ok(())
}
