//! Which claimed jobs begin their attempt now: no async, no I/O, the time is an argument.
//!
//! Invariants: every claim that comes in leaves exactly once, as an outcome or given back; an attempt begins only under the
//! generation it was claimed under (C5.5); the bodies of attempts in flight stay under their ceiling.

use crate::model::event::Event;
use crate::model::ids::{ClaimNo, Generation, SubNo};
use crate::model::job::{Claim, Outcome, Settle};
use crate::time::HubTime;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// What the pool is bounded by.
#[derive(Debug, Clone, Copy)]
pub struct PoolSettings {
    /// Bytes of bodies in flight; a single larger one goes alone.
    pub body_bytes: usize,
    /// Events being loaded from the store at once (the workers of C5.1).
    pub loads: usize,
    /// An attempt that has not ended by then is given up: a backstop, longer than every attempt's own deadline.
    pub lease_ms: u64,
}

/// Claims on their way from the writer to their outcome.
#[derive(Debug)]
pub struct Pool {
    settings: PoolSettings,
    to_load: VecDeque<Claim>,
    ready: VecDeque<(Claim, Arc<Event>)>,
    begun: HashMap<ClaimNo, Begun>,
    loading: usize,
    bytes: usize,
    draining: bool,
}

#[derive(Debug)]
struct Begun {
    claim: Claim,
    bytes: usize,
    since: HubTime,
}

/// What the driver has to do now.
#[derive(Debug)]
pub enum Step {
    /// Read the event, then call [`Pool::loaded`].
    Load(Claim),
    /// Attempt it, then call [`Pool::ended`].
    Begin(Claim, Arc<Event>),
    /// End this attempt's task: its lease ran out, and it was settled as crashed.
    Abandon(ClaimNo),
    /// Hand to the writer.
    Settle(Settle),
}

/// What a subscription's generation is now; none where it is gone.
pub trait Generations {
    /// The generation that attempts must have been claimed under.
    fn generation(&self, sub: SubNo) -> Option<Generation>;
}

impl Pool {
    /// An empty pool.
    pub fn new(settings: PoolSettings) -> Self {
        Self {
            settings,
            to_load: VecDeque::new(),
            ready: VecDeque::new(),
            begun: HashMap::new(),
            loading: 0,
            bytes: 0,
            draining: false,
        }
    }

    /// Takes a claim in.
    pub fn take(&mut self, mut claim: Claim) {
        match claim.job.event.take() {
            Some(event) => self.ready.push_back((claim, event)),
            None => self.to_load.push_back(claim),
        }
    }

    /// The event of a claim was read; none where it is not stored any more, or could not be read now.
    pub fn loaded(&mut self, claim: Claim, event: Option<Arc<Event>>, steps: &mut Vec<Step>) {
        self.loading -= 1;
        match event {
            Some(event) => self.ready.push_back((claim, event)),
            None => steps.push(Step::Settle(settle(&claim, Outcome::Released))),
        }
    }

    /// The worker crashed over a claim's event: the job is reclaimed, and counted (C5.6).
    pub fn load_crashed(&mut self, claim: &Claim, steps: &mut Vec<Step>) {
        self.loading -= 1;
        steps.push(Step::Settle(settle(claim, Outcome::Crashed)));
    }

    /// An attempt ended.
    pub fn ended(&mut self, claim: ClaimNo, outcome: Outcome, steps: &mut Vec<Step>) {
        // One whose lease ran out was settled then.
        if let Some(begun) = self.begun.remove(&claim) {
            self.bytes -= begun.bytes;
            steps.push(Step::Settle(settle(&begun.claim, outcome)));
        }
    }

    /// The process stood still so long: no lease ran meanwhile, since nobody could say how its attempt had ended (C5.6).
    pub fn stood_still(&mut self, ms: u64) {
        for begun in self.begun.values_mut() {
            begun.since = begun.since.plus_ms(ms);
        }
    }

    /// Gives back all that is not begun, and takes nothing more up (C13.2).
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Attempts in flight.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.ready.is_empty() && self.to_load.is_empty() && self.loading == 0
    }

    /// Decides what begins now.
    pub fn step(&mut self, now: HubTime, generations: &impl Generations, steps: &mut Vec<Step>) {
        self.expire(now, steps);
        if self.draining {
            for (claim, _) in self.ready.drain(..) {
                steps.push(Step::Settle(settle(&claim, Outcome::Released)));
            }
            for claim in self.to_load.drain(..) {
                steps.push(Step::Settle(settle(&claim, Outcome::Released)));
            }
            return;
        }
        while self.loading < self.settings.loads
            && let Some(claim) = self.to_load.pop_front()
        {
            self.loading += 1;
            steps.push(Step::Load(claim));
        }
        while let Some((_, event)) = self.ready.front() {
            let size = event.body.len();
            if self.bytes > 0 && self.bytes + size > self.settings.body_bytes {
                break;
            }
            let Some((claim, event)) = self.ready.pop_front() else { break };
            if generations.generation(claim.job.key.sub) == Some(claim.generation) {
                self.bytes += size;
                self.begun.insert(claim.no, Begun { claim: claim.clone(), bytes: size, since: now });
                steps.push(Step::Begin(claim, event));
            } else {
                steps.push(Step::Settle(settle(&claim, Outcome::Released)));
            }
        }
    }

    fn expire(&mut self, now: HubTime, steps: &mut Vec<Step>) {
        let lease = self.settings.lease_ms;
        let over = |(no, begun): (&ClaimNo, &Begun)| (now.since_ms(begun.since) > lease).then_some(*no);
        // In the order of their numbers, so that the same claims give the same steps.
        let expired: BTreeSet<ClaimNo> = self.begun.iter().filter_map(over).collect();
        for no in expired {
            steps.push(Step::Abandon(no));
            self.ended(no, Outcome::Crashed, steps);
        }
    }
}

fn settle(claim: &Claim, outcome: Outcome) -> Settle {
    Settle { claim: claim.no, key: claim.job.key, generation: claim.generation, outcome }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{LogNo, Seq};
    use crate::model::job::{Cause, ClaimedJob, JobKey};

    struct At(u64);
    impl Generations for At {
        fn generation(&self, _: SubNo) -> Option<Generation> {
            Some(Generation(self.0))
        }
    }

    fn pool() -> Pool {
        Pool::new(PoolSettings { body_bytes: 100, loads: 2, lease_ms: 1000 })
    }

    fn claim(no: u64, body: Option<usize>) -> Claim {
        let event = |bytes: usize| {
            Arc::new(Event {
                id: crate::model::ids::EventId([0; 16]),
                tenant: "t".into(),
                source: "s".into(),
                resource: "r".into(),
                event: "e".into(),
                time: "2026-11-30T00:00:00Z".into(),
                schema_version: "1".into(),
                schema_major: 1,
                subject: None,
                content_type: "application/json".into(),
                data_schema: None,
                traceparent: None,
                tracestate: None,
                extensions: Vec::new(),
                body: vec![b'x'; bytes].into(),
            })
        };
        let key = JobKey { log: LogNo(no), sub: SubNo(1) };
        Claim {
            no: ClaimNo(no),
            generation: Generation(1),
            job: ClaimedJob { key, seq: Seq(no), steps_used: 0, cause: Cause::Match, event: body.map(event) },
        }
    }

    fn step(pool: &mut Pool, now: u64, generation: u64) -> Vec<String> {
        let mut steps = Vec::new();
        pool.step(HubTime(now), &At(generation), &mut steps);
        steps.iter().map(show).collect()
    }

    fn show(step: &Step) -> String {
        match step {
            Step::Load(claim) => format!("load {}", claim.no),
            Step::Begin(claim, _) => format!("begin {}", claim.no),
            Step::Abandon(no) => format!("abandon {no}"),
            Step::Settle(settle) => match settle.outcome {
                Outcome::Released => format!("release {}", settle.claim),
                Outcome::Crashed => format!("crashed {}", settle.claim),
                _ => format!("settle {}", settle.claim),
            },
        }
    }

    // C5.5
    #[test]
    fn a_claim_of_an_older_generation_goes_back_unattempted() {
        let mut pool = pool();
        pool.take(claim(1, Some(1)));
        assert_eq!(step(&mut pool, 0, 2), ["release 1"]);
        assert!(pool.is_empty());
    }

    // C5.5: bounded by body bytes
    #[test]
    fn bodies_in_flight_stay_under_their_ceiling() {
        let mut pool = pool();
        for (no, bytes) in [(1, 60), (2, 60), (3, 10)] {
            pool.take(claim(no, Some(bytes)));
        }
        assert_eq!(step(&mut pool, 0, 1), ["begin 1"]);
        let mut steps = Vec::new();
        pool.ended(ClaimNo(1), Outcome::Released, &mut steps);
        assert_eq!(step(&mut pool, 0, 1), ["begin 2", "begin 3"]);
        let mut large = super::tests::pool();
        large.take(claim(4, Some(500)));
        assert_eq!(step(&mut large, 0, 1), ["begin 4"], "a single body above the ceiling goes alone");
    }

    // C5.1: the workers
    #[test]
    fn loads_are_bounded_and_a_lost_event_gives_the_claim_back() {
        let mut pool = pool();
        for no in 1..=3 {
            pool.take(claim(no, None));
        }
        assert_eq!(step(&mut pool, 0, 1), ["load 1", "load 2"]);
        let mut steps = Vec::new();
        pool.loaded(claim(1, None), None, &mut steps);
        assert_eq!(steps.iter().map(show).collect::<Vec<_>>(), ["release 1"]);
        assert_eq!(step(&mut pool, 0, 1), ["load 3"]);
    }

    // C5.6
    #[test]
    fn a_crash_while_loading_settles_the_claim_and_frees_its_place() {
        let mut pool = pool();
        for no in 1..=3 {
            pool.take(claim(no, None));
        }
        assert_eq!(step(&mut pool, 0, 1), ["load 1", "load 2"]);
        let mut steps = Vec::new();
        pool.load_crashed(&claim(1, None), &mut steps);
        assert_eq!(steps.iter().map(show).collect::<Vec<_>>(), ["crashed 1"]);
        assert_eq!(step(&mut pool, 0, 1), ["load 3"]);
    }

    // C5.1: the lease is a backstop
    #[test]
    fn an_attempt_past_its_lease_is_settled_once() {
        let mut pool = pool();
        pool.take(claim(1, Some(1)));
        assert_eq!(step(&mut pool, 0, 1), ["begin 1"]);
        assert!(step(&mut pool, 1000, 1).is_empty());
        assert_eq!(step(&mut pool, 1001, 1), ["abandon 1", "crashed 1"]);
        let mut steps = Vec::new();
        pool.ended(ClaimNo(1), Outcome::Released, &mut steps);
        assert!(steps.is_empty(), "a late outcome says nothing");
    }

    // C5.6
    #[test]
    fn leases_do_not_run_while_the_process_stands_still() {
        let mut pool = pool();
        pool.take(claim(1, Some(1)));
        assert_eq!(step(&mut pool, 0, 1), ["begin 1"]);
        pool.stood_still(600_000);
        assert!(step(&mut pool, 601_000, 1).is_empty());
        assert_eq!(step(&mut pool, 601_001, 1), ["abandon 1", "crashed 1"]);
    }

    // C13.2
    #[test]
    fn a_draining_pool_gives_back_what_is_not_begun() {
        let mut pool = pool();
        pool.take(claim(1, Some(1)));
        step(&mut pool, 0, 1);
        pool.take(claim(2, Some(1)));
        pool.take(claim(3, None));
        pool.drain();
        assert_eq!(step(&mut pool, 0, 1), ["release 2", "release 3"]);
        assert_eq!(pool.in_flight(), 1);
    }
}
