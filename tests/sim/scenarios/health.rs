//! Failure spans, auto-disable, 410 and notices, step by step: with clocks that jump, crashes, and moves of the destination.

use super::{Bench, answer, blocked, delivered, fifo, options, parallel, seqs, sub_id};
use crate::dump::Dump;
use crate::model::{Ask, AskChange, Asked};
use crate::options::Options;
use streaming_hub::engine::command::{Action, LaneState, Manage, Managed, Refusal};
use streaming_hub::engine::{Applied, Batch};
use streaming_hub::model::ids::SubNo;
use streaming_hub::model::job::{Claim, DeadReason, Outcome};
use streaming_hub::model::limits::{NOTICE_KEPT_MS, NOTICES_KEPT};
use streaming_hub::model::notice::{Notice, NoticeKind};
use streaming_hub::model::subscription::{DisabledReason, Enabled, Subscription, Verification};
use streaming_hub::rules::autodisable::{Acts, AutoDisablePolicy, Cause, Health};
use streaming_hub::time::{HubTime, Timestamp};

const HOUR: u64 = 3_600_000;
const URL: &str = "https://a.example/";

/// Breakers that never open here, and retries that are due at once.
fn patient() -> Options {
    let mut options = Options { schedule: vec![0; 12], ..options() };
    options.breaker.failures = 1_000;
    options
}

impl Bench {
    fn later(&mut self, ms: u64) -> Applied {
        self.clocks.now += ms;
        self.nothing()
    }

    fn subscription(&self) -> Subscription {
        Dump::of(&self.disk).unwrap().subscriptions[&SubNo(1)].clone()
    }

    fn off_by(&self) -> Option<DisabledReason> {
        match self.subscription().enabled {
            Enabled::Yes => None,
            Enabled::Disabled { reason, .. } => Some(reason),
        }
    }

    fn health(&self) -> Option<Health> {
        Dump::of(&self.disk).unwrap().health.remove(&SubNo(1))
    }

    fn told(&self) -> Vec<NoticeKind> {
        Dump::of(&self.disk).unwrap().notices.values().map(|notice| notice.kind).collect()
    }

    /// One job, whose attempt fails at once and again 12 h later; its next claim.
    fn fail_for_twelve_hours(&mut self) -> Claim {
        let claims = self.admit("loan", 1).claims;
        let claims = self.settle(&claims[0], answer(500, 5)).claims;
        self.clocks.now += 12 * HOUR;
        let mut again = self.settle(&claims[0], answer(503, 5)).claims;
        again.remove(0)
    }

    fn killed(&mut self) {
        self.disk.kill();
        self.start_again().unwrap();
    }

    fn lane(&mut self) -> LaneState {
        match self.manage(Ask::Inspect(SubNo(1))).manages.remove(0) {
            Ok(Managed::Lane(lane)) => lane,
            other => panic!("{other:?}"),
        }
    }

    fn raise(&mut self, notices: Vec<Notice>) {
        let manage = |notice| Manage { action: Action::Notice(Box::new(notice)), idempotency: None };
        let mut batch = Batch { manages: notices.into_iter().map(manage).collect(), ..Batch::default() };
        self.clocks.now += 1;
        let now = self.hub.clock.now(&self.clocks);
        self.hub.engine.apply(now, Timestamp(now.0), &mut batch).unwrap();
    }
}

// C8.1 C8.2 C8.4 C8.5
#[test]
fn lasting_failure_switches_off_and_only_verify_brings_it_back() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    let claim = bench.fail_for_twelve_hours();
    bench.settle(&claim, Outcome::Released);
    bench.later(108 * HOUR - 60_000);
    assert_eq!(bench.off_by(), None, "not yet");
    let claims = bench.later(2 * HOUR).claims;
    assert!(claims.is_empty(), "what waits, waits on: {claims:?}");
    let off = bench.subscription();
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled));
    assert_eq!(off.verification, Verification::Active, "never touched");
    assert_eq!(bench.told(), [NoticeKind::AutoDisabled]);

    assert!(bench.admit("loan", 2).claims.is_empty(), "it is not matched");
    assert_eq!(bench.left(), [1], "the queued job waits");
    let resumed = bench.change(1, AskChange::Resume).manages.remove(0);
    assert_eq!(resumed.unwrap_err(), Refusal::VerifyRequired);
    bench.change(1, AskChange::Pause);
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled), "pausing what is off changes nothing");
    bench.killed();
    assert_eq!((bench.off_by(), bench.left()), (Some(DisabledReason::AutoDisabled), vec![1]));

    let mut verified = bench.change(1, AskChange::Verified { url: URL.to_owned() });
    assert_eq!(seqs(&verified), [1], "the queued job goes on");
    let Ok(Managed::Subscription { subscription, skipped }) = verified.manages.remove(0) else { panic!("refused") };
    assert!(subscription.is_live());
    assert_eq!(skipped.map(|skipped| (skipped.from.0, skipped.to.0)), Some((2, 3)));
    assert_eq!(bench.health(), None, "the span is cleared");
    bench.later(200 * HOUR);
    assert_eq!((bench.off_by(), bench.told().len()), (None, 1), "nothing of it is left");
}

// C8.2: judged after the failed attempt, in its own commit.
#[test]
fn the_failure_that_completes_the_span_switches_off_in_its_commit() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    let claim = bench.fail_for_twelve_hours();
    bench.clocks.now += 120 * HOUR;
    let applied = bench.settle(&claim, answer(500, 5));
    assert!(applied.claims.is_empty(), "no claim in the same commit: {:?}", applied.claims);
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled));
    assert_eq!(applied.counts.notices.len(), 1, "told with its commit");
    bench.killed();
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled), "and durable with it");
}

// C8.2: one success, also in the batch of the last failure.
#[test]
fn one_success_clears_the_span() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, parallel(URL));
    let claim = bench.fail_for_twelve_hours();
    let other = bench.admit("loan", 1).claims.remove(0);
    bench.clocks.now += 120 * HOUR;
    let settles = vec![super::settle(&claim, answer(500, 5)), super::settle(&other, delivered())];
    bench.turn(&Asked { settles, ..Asked::default() }).unwrap();
    assert_eq!((bench.off_by(), bench.health()), (None, None));
}

// C8.2: what is no real failed attempt neither extends nor clears.
#[test]
fn holds_blocks_sizes_and_crashes_count_nothing() {
    let too_large = || Outcome::Hopeless {
        attempt: match answer(413, 5) {
            Outcome::Failed { attempt, .. } => attempt,
            other => panic!("{other:?}"),
        },
        reason: DeadReason::TooLarge,
    };
    for outcome in [answer(429, 5), blocked(), too_large(), Outcome::Released, Outcome::Crashed] {
        let mut bench = Bench::new(patient());
        bench.subscribe(1, fifo(URL));
        let claim = bench.fail_for_twelve_hours();
        let before = bench.health();
        bench.clocks.now += HOUR;
        let what = format!("{outcome:?}");
        bench.settle(&claim, outcome);
        assert_eq!(bench.health(), before, "{what}");
    }
}

// C8.3
#[test]
fn the_kill_switch_records_the_verdict_and_does_not_act() {
    let autodisable = AutoDisablePolicy { acts: Acts::Off, ..AutoDisablePolicy::default() };
    let mut bench = Bench::new(Options { autodisable, ..patient() });
    bench.subscribe(1, fifo(URL));
    let claim = bench.fail_for_twelve_hours();
    bench.later(120 * HOUR);
    assert_eq!(bench.off_by(), None);
    let verdict = bench.health().unwrap().verdict.unwrap();
    assert_eq!(verdict.cause, Cause::Lasting);
    assert_eq!(bench.told(), [NoticeKind::WouldDisable]);
    let lane = bench.lane();
    assert!(lane.is_unhealthy(&bench.subscription()) && lane.health.verdict == Some(verdict), "it is visible");
    let claims = bench.settle(&claim, answer(500, 5)).claims;
    assert_eq!(bench.health().unwrap().verdict, Some(verdict), "it keeps its beginning");
    let again = bench.admit("loan", 1);
    bench.settle(&claims[0], delivered());
    assert_eq!((bench.health(), again.claims.len()), (None, 0));
}

// C8.3: an operator who turns it on again has it act on what was recorded.
#[test]
fn a_recorded_verdict_is_acted_on_once_the_switch_is_on_again() {
    let autodisable = AutoDisablePolicy { acts: Acts::Off, ..AutoDisablePolicy::default() };
    let mut bench = Bench::new(Options { autodisable, ..patient() });
    bench.subscribe(1, fifo(URL));
    bench.fail_for_twelve_hours();
    bench.later(120 * HOUR);
    let found = bench.health().unwrap().verdict;
    bench.options.autodisable.acts = Acts::On;
    bench.killed();
    bench.nothing();
    assert_eq!((bench.off_by(), bench.health().unwrap().verdict), (Some(DisabledReason::AutoDisabled), found));
    assert_eq!(bench.told(), [NoticeKind::WouldDisable, NoticeKind::AutoDisabled]);
}

// C9.10
#[test]
fn gone_of_three_events_over_an_hour_switches_off_at_once() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, parallel(URL));
    let claims = bench.admit("loan", 3).claims;
    let first = bench.settle(&claims[0], answer(410, 5)).claims.remove(0);
    for claim in &claims[1..] {
        let again = bench.settle(claim, answer(410, 5)).claims;
        bench.settle(&again[0], Outcome::Released);
    }
    bench.later(HOUR);
    assert_eq!(bench.off_by(), None, "three events, but not over an hour");
    bench.settle(&first, answer(410, 5));
    assert_eq!(bench.off_by(), Some(DisabledReason::Gone));
    assert_eq!(bench.told(), [NoticeKind::Gone]);
    let resumed = bench.change(1, AskChange::Resume).manages.remove(0);
    assert_eq!(resumed.unwrap_err(), Refusal::VerifyRequired);
    assert_eq!(bench.left(), [1, 2, 3]);
    bench.killed();
    assert_eq!(bench.change(1, AskChange::Verified { url: URL.to_owned() }).claims.len(), 3);
}

// C8.2: an attempt under way to the old destination says nothing about the new one, in either direction.
#[test]
fn a_new_destination_starts_fresh() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, parallel(URL));
    let claim = bench.fail_for_twelve_hours();
    let other = bench.admit("loan", 1).claims.remove(0);
    bench.change(1, AskChange::Spec { spec: Box::new(parallel("https://b.example/")), proven: true });
    assert_eq!(bench.health(), None);
    let again = bench.settle(&claim, answer(500, 5)).claims;
    assert_eq!(bench.health(), None, "the old one's failure is not the new one's");
    bench.settle(&again[0], answer(500, 5));
    let span = bench.health().unwrap();
    assert_eq!(span.span.as_ref().unwrap().failures, 1);
    bench.settle(&other, delivered());
    assert_eq!(bench.health(), Some(span), "nor is its success");
}

// C8.4: a paused one is only probed.
#[test]
fn verify_of_a_paused_one_changes_nothing_else() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    bench.fail_for_twelve_hours();
    bench.change(1, AskChange::Pause);
    let before = bench.health();
    bench.change(1, AskChange::Verified { url: URL.to_owned() });
    assert_eq!((bench.off_by(), bench.health()), (Some(DisabledReason::Paused), before));
    bench.later(130 * HOUR);
    assert_eq!(bench.off_by(), Some(DisabledReason::Paused), "one that is off is not judged");
}

// C13.8
#[test]
fn after_a_start_with_a_clock_far_ahead_only_a_fresh_failure_decides() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    let claim = bench.fail_for_twelve_hours();
    bench.settle(&claim, Outcome::Released);
    bench.clocks.wall_ahead = i64::try_from(365 * 24 * HOUR).unwrap();
    bench.killed();
    bench.later(2 * HOUR);
    assert_eq!(bench.off_by(), None, "the clock is doubted");
    bench.killed();
    let claim = bench.later(2 * HOUR).claims.remove(0);
    assert_eq!(bench.off_by(), None, "also by the next process, whose clock looks right");
    bench.settle(&claim, answer(500, 5));
    let fresh = bench.health().unwrap().span.unwrap();
    assert!(!fresh.doubted, "{fresh:?}");
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled));
}

// C8.2, C13.8: a start within two days is no reason to doubt.
#[test]
fn a_span_goes_on_through_a_restart() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    let claim = bench.fail_for_twelve_hours();
    bench.settle(&claim, Outcome::Released);
    bench.later(100 * HOUR);
    bench.clocks.now += 47 * HOUR;
    bench.killed();
    bench.nothing();
    assert_eq!(bench.off_by(), Some(DisabledReason::AutoDisabled), "hourly, and so at the first look after a start");
}

// C8.1: told again a day later, once.
#[test]
fn one_that_is_still_off_a_day_later_is_told_of_once_more() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    bench.fail_for_twelve_hours();
    bench.later(109 * HOUR);
    bench.later(23 * HOUR);
    assert_eq!(bench.told(), [NoticeKind::AutoDisabled]);
    bench.killed();
    bench.later(2 * HOUR);
    for _ in 0..3 {
        bench.later(30 * HOUR);
    }
    assert_eq!(bench.told(), [NoticeKind::AutoDisabled, NoticeKind::StillDisabled]);
    let notices = Dump::of(&bench.disk).unwrap().notices;
    let still = notices.values().last().unwrap();
    assert_eq!((still.subscription, still.last_error.as_deref()), (Some(sub_id(1)), Some("server_error")));
    assert!(still.detail.contains("waiting: 1"), "{}", still.detail);
}

// C7, C8.1: the writer wakes by itself for what has to be judged.
#[test]
fn the_writer_wakes_hourly_while_somebody_fails() {
    let mut bench = Bench::new(patient());
    let idle = bench.subscribe(1, fifo(URL));
    assert_eq!(idle.wake_at, None, "nothing to judge, nothing to wake for");
    let claims = bench.admit("loan", 1).claims;
    let applied = bench.settle(&claims[0], answer(500, 5));
    let now = bench.hub.clock.now(&bench.clocks);
    assert!(applied.wake_at.is_some_and(|at| at > now && at <= now.plus_ms(HOUR)), "{:?} at {now:?}", applied.wake_at);
}

// C7: once for a destination and window, however often it opens.
#[test]
fn a_breaker_that_flaps_is_told_of_once_a_day() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo(URL));
    bench.subscribe(2, fifo(URL));
    let mut open_and_close = || {
        let claims = bench.admit("loan", 1).claims;
        bench.settle(&claims[0], blocked());
        let later = bench.later(2_000).claims;
        for claim in claims[1..].iter().chain(&later) {
            bench.settle(claim, delivered());
        }
        while let Some(claim) = bench.later(2_000).claims.pop() {
            bench.settle(&claim, delivered());
        }
        bench.told()
    };
    assert_eq!(open_and_close(), [NoticeKind::BreakerOpened]);
    assert_eq!(open_and_close(), [NoticeKind::BreakerOpened], "the same window");
    bench.clocks.now += 24 * HOUR;
    let claims = bench.admit("loan", 1).claims;
    bench.settle(&claims[0], blocked());
    assert_eq!(bench.told(), [NoticeKind::BreakerOpened; 2]);
    let told = Dump::of(&bench.disk).unwrap().notices.into_values().next_back().unwrap();
    assert_eq!((told.tenant.as_deref(), told.subject.as_str()), (Some("t"), URL));
    assert_eq!(told.last_error.as_deref(), Some("destination_blocked"));
}

// C5.6: in the commit in which it dies, and also when that is a start.
#[test]
fn a_poison_job_is_told_of() {
    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo(URL));
    let mut claims = bench.admit("loan", 1).claims;
    for _ in 0..4 {
        claims = bench.settle(&claims[0], Outcome::Crashed).claims;
    }
    let applied = bench.settle(&claims[0], Outcome::Crashed);
    assert_eq!(applied.counts.notices.len(), 1);
    assert_eq!(bench.told(), [NoticeKind::PoisonJob]);

    let mut bench = Bench::new(options());
    bench.subscribe(1, fifo(URL));
    bench.admit("loan", 1);
    for crash in 1..=5 {
        bench.killed();
        assert_eq!(bench.told().len(), usize::from(crash == 5), "crash {crash}");
        let told = bench.nothing().counts.notices.len();
        assert_eq!(told, usize::from(crash == 5), "the first batch after the start tells the log");
    }
    bench.killed();
    bench.raise(vec![Notice::about(NoticeKind::TopicWithoutTenant, "topic", HubTime(5), "told")]);
    let expected = [NoticeKind::PoisonJob, NoticeKind::TopicWithoutTenant];
    assert_eq!(bench.told(), expected, "the row of a start is not written over");
}

// C8.1: bounded in number and age.
#[test]
fn notices_have_an_end() {
    let mut bench = Bench::new(options());
    let notice = |n: usize| Notice::about(NoticeKind::TopicWithoutTenant, format!("topic-{n}"), HubTime(5), "told");
    bench.raise(vec![Notice::about(NoticeKind::BreakerOpened, "https://x.example/", HubTime(5), "told")]);
    bench.raise((0..NOTICES_KEPT + 5).map(notice).collect());
    let kept = Dump::of(&bench.disk).unwrap().notices;
    assert_eq!(kept.len(), NOTICES_KEPT + 1);
    let subjects: Vec<&str> = kept.values().map(|notice| notice.subject.as_str()).take(2).collect();
    assert_eq!(subjects, ["https://x.example/", "topic-5"], "the oldest of their urgency go");
    bench.raise(vec![notice(7)]);
    assert_eq!(Dump::of(&bench.disk).unwrap().notices, kept, "within its window it is told once");
    bench.killed();
    bench.raise(vec![notice(7)]);
    assert_eq!(Dump::of(&bench.disk).unwrap().notices, kept, "also by the next process");
    bench.clocks.now += NOTICE_KEPT_MS;
    bench.nothing();
    let left = Dump::of(&bench.disk).unwrap().notices.len();
    assert!(left < NOTICES_KEPT / 2 + 1_000, "the old ones end, a chunk at a time: {left} are left");
}

// C8.2: every row has an owner of its end.
#[test]
fn a_deleted_subscription_leaves_no_span() {
    let mut bench = Bench::new(patient());
    bench.subscribe(1, fifo(URL));
    bench.fail_for_twelve_hours();
    bench.manage(Ask::Delete { id: sub_id(1), tenant: "t".to_owned() });
    assert!(Dump::of(&bench.disk).unwrap().health.is_empty());
}
