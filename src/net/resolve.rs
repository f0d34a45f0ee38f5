//! Names to addresses: [`Resolve`], and the machine's resolver on threads of its own.
//!
//! The machine's resolver blocks, for as long as its own configuration says, so it runs on at most [`LOOKUPS_AT_ONCE`] threads that
//! serve nothing else (C9.8). What keeps one slow name from costing others their lookups:
//!
//! * a name is looked up once at a time, however many attempts wait for it;
//! * nobody waits longer than [`LOOKUP_TIMEOUT`];
//! * a failure is remembered for [`FAILURE_KEPT`];
//! * names that were slow the last time share half of the threads.
//!
//! A good answer is not remembered: a receiver that moves is found by the next connection.

use crate::time::Clock;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Threads that look names up.
pub const LOOKUPS_AT_ONCE: usize = 64;
/// Longest wait for one lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a failure is answered from memory.
pub const FAILURE_KEPT: Duration = Duration::from_secs(30);
/// Names of which something is remembered. Beyond it everything is forgotten, which costs lookups and nothing else.
const NAMES_REMEMBERED: usize = 4096;
/// Lookups that wait for a thread. Beyond it a lookup fails as if it had taken too long.
const LOOKUPS_WAITING: usize = 4096;
/// A lookup that took so long makes its name a slow one.
const SLOW: Duration = Duration::from_secs(1);
/// A thread without work ends after that.
const THREAD_IDLE: Duration = Duration::from_secs(10);

/// What a lookup gave.
pub type Answer = Result<Vec<IpAddr>, ResolveError>;

/// A lookup on its way.
pub type Resolving<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Looks names up. Scripted in tests.
pub trait Resolve: Send + Sync {
    /// All addresses of a name, in the order of preference. Never an empty list.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a>;
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// There is no such name or it has no address, or its servers failed.
    #[error("the name cannot be resolved")]
    Failed,
    /// It took too long.
    #[error("the lookup took too long")]
    TimedOut,
}

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The machine's resolver (`getaddrinfo`).
pub struct SystemResolver {
    timeout: Duration,
    shared: Arc<Shared>,
}

impl SystemResolver {
    /// Starts no thread yet.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_lookup(clock, LOOKUP_TIMEOUT, Box::new(getaddrinfo))
    }

    fn with_lookup(clock: Arc<dyn Clock>, timeout: Duration, lookup: Box<Lookup>) -> Self {
        Self { timeout, shared: Arc::new(Shared { state: Mutex::default(), work: Condvar::new(), clock, lookup }) }
    }

    async fn wait_for(&self, name: &str) -> Answer {
        let mut answer = self.shared.begin(name)?;
        let waited = tokio::time::timeout(self.timeout, answer.wait_for(Option::is_some)).await;
        match waited {
            Ok(Ok(answer)) => answer.clone().unwrap_or(Err(ResolveError::Failed)),
            // The pool is gone: the hub is stopping.
            Ok(Err(_)) => Err(ResolveError::Failed),
            Err(_) => {
                self.shared.remember(name, ResolveError::TimedOut);
                Err(ResolveError::TimedOut)
            }
        }
    }
}

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolving<'a> {
        Box::pin(self.wait_for(name))
    }
}

impl Drop for SystemResolver {
    /// Lets the idle threads end. A thread inside the machine's resolver ends when that returns; it holds nothing that matters.
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

fn getaddrinfo(name: &str) -> io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|found| found.ip()).collect())
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    clock: Arc<dyn Clock>,
    lookup: Box<Lookup>,
}

#[derive(Default)]
struct State {
    looking: HashMap<Arc<str>, watch::Receiver<Option<Answer>>>,
    remembered: HashMap<Arc<str>, Memory>,
    waiting: VecDeque<Job>,
    waiting_slow: VecDeque<Job>,
    slow_running: usize,
    threads: usize,
    threads_idle: usize,
    closed: bool,
}

/// What is remembered of a name that gave trouble.
struct Memory {
    failed: ResolveError,
    until: Duration,
    slow: bool,
}

struct Job {
    name: Arc<str>,
    answer: watch::Sender<Option<Answer>>,
    slow: bool,
}

impl State {
    fn next_job(&mut self) -> Option<Job> {
        loop {
            let job = match self.waiting.pop_front() {
                Some(job) => job,
                None if self.slow_running < LOOKUPS_AT_ONCE / 2 => self.waiting_slow.pop_front()?,
                None => return None,
            };
            // The list itself holds one receiver; without another nobody waits any more.
            if job.answer.receiver_count() > 1 {
                self.slow_running += usize::from(job.slow);
                return Some(job);
            }
            self.looking.remove(&job.name);
        }
    }

    fn remember(&mut self, name: Arc<str>, memory: Memory, now: Duration) {
        if self.remembered.len() >= NAMES_REMEMBERED {
            self.remembered.retain(|_, memory| memory.until > now);
            if self.remembered.len() >= NAMES_REMEMBERED {
                self.remembered.clear();
            }
        }
        self.remembered.insert(name, memory);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left the state whole: every change below is finished before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the lookup of that name, or begins one.
    fn begin(self: &Arc<Self>, name: &str) -> Result<watch::Receiver<Option<Answer>>, ResolveError> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let slow = match state.remembered.get(name) {
            Some(memory) if memory.until > now => return Err(memory.failed),
            Some(memory) => memory.slow,
            None => false,
        };
        if let Some(answer) = state.looking.get(name) {
            return Ok(answer.clone());
        }
        if state.waiting.len() + state.waiting_slow.len() >= LOOKUPS_WAITING {
            return Err(ResolveError::TimedOut);
        }
        let (sender, answer) = watch::channel(None);
        let name: Arc<str> = name.into();
        let job = Job { name: name.clone(), answer: sender, slow };
        if slow {
            state.waiting_slow.push_back(job)
        } else {
            state.waiting.push_back(job)
        }
        state.looking.insert(name, answer.clone());
        // Counted against the jobs, not against zero: an idle thread that was just woken for another job is not free for this one.
        let jobs = state.waiting.len() + state.waiting_slow.len();
        if jobs > state.threads_idle && state.threads < LOOKUPS_AT_ONCE {
            let shared = self.clone();
            let spawned = std::thread::Builder::new().name("resolve".into()).spawn(move || shared.work());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::warn!(%error, threads = state.threads, "no thread for a name lookup"),
            }
        }
        drop(state);
        self.work.notify_one();
        Ok(answer)
    }

    /// Remembers that a name gave trouble, and that it was slow where that was the trouble.
    fn remember(&self, name: &str, failed: ResolveError) {
        let now = self.clock.monotonic();
        let slow = failed == ResolveError::TimedOut;
        self.lock().remember(name.into(), Memory { failed, until: now + FAILURE_KEPT, slow }, now);
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.lock();
        while !state.closed {
            if let Some(job) = state.next_job() {
                drop(state);
                let began = self.clock.monotonic();
                let found = (self.lookup)(&job.name);
                let now = self.clock.monotonic();
                let answer = match found {
                    Ok(addresses) if !addresses.is_empty() => Ok(addresses),
                    Ok(_) | Err(_) => Err(ResolveError::Failed),
                };
                state = self.lock();
                state.slow_running -= usize::from(job.slow);
                state.looking.remove(&job.name);
                let slow = now.saturating_sub(began) >= SLOW;
                match answer {
                    Err(failed) => {
                        state.remember(job.name, Memory { failed, until: now + FAILURE_KEPT, slow }, now);
                    }
                    // Remembered as slow, with nothing to answer from memory.
                    Ok(_) if slow => {
                        state.remember(job.name, Memory { failed: ResolveError::TimedOut, until: now, slow }, now);
                    }
                    Ok(_) => {
                        state.remembered.remove(&job.name);
                    }
                }
                job.answer.send_replace(Some(answer));
            } else {
                state.threads_idle += 1;
                let waited = self.work.wait_timeout(state, THREAD_IDLE);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                state.threads_idle -= 1;
                if timeout.timed_out() && state.waiting.is_empty() && state.waiting_slow.is_empty() {
                    break;
                }
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::SeqCst))
        }
    }

    fn v4(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    // C9.8
    #[tokio::test]
    async fn failures_are_kept_for_half_a_minute_and_good_answers_are_not() {
        let (clock, asked) = (Arc::new(Hands::default()), Arc::new(AtomicUsize::new(0)));
        let counter = asked.clone();
        let lookup = move |name: &str| {
            let n = counter.fetch_add(1, Ordering::SeqCst);
            match name {
                "good.test" => Ok(vec![v4(u8::try_from(n).unwrap())]),
                "empty.test" => Ok(vec![]),
                _ => Err(io::ErrorKind::NotFound.into()),
            }
        };
        let resolver = SystemResolver::with_lookup(clock.clone(), LOOKUP_TIMEOUT, Box::new(lookup));
        assert_eq!(resolver.resolve("good.test").await, Ok(vec![v4(0)]));
        assert_eq!(resolver.resolve("good.test").await, Ok(vec![v4(1)]), "asked again");
        for name in ["bad.test", "empty.test"] {
            let before = asked.load(Ordering::SeqCst);
            assert_eq!(resolver.resolve(name).await, Err(ResolveError::Failed));
            assert_eq!(resolver.resolve(name).await, Err(ResolveError::Failed));
            assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{name} is answered from memory");
            clock.0.fetch_add(30_001, Ordering::SeqCst);
            assert_eq!(resolver.resolve(name).await, Err(ResolveError::Failed));
            assert_eq!(asked.load(Ordering::SeqCst), before + 2, "{name} is asked again after 30 s");
        }
    }

    // C9.8, C5.5
    #[tokio::test]
    async fn a_name_that_hangs_is_given_up_and_never_holds_two_threads() {
        let (release, hang) = mpsc::channel::<()>();
        let hang = Mutex::new(hang);
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = asked.clone();
        let lookup = move |_: &str| {
            counter.fetch_add(1, Ordering::SeqCst);
            let _ = hang.lock().unwrap().recv();
            Ok(vec![v4(1)])
        };
        let clock = Arc::new(Hands::default());
        let resolver = SystemResolver::with_lookup(clock.clone(), Duration::from_millis(20), Box::new(lookup));
        let (a, b) = tokio::join!(resolver.resolve("hang.test"), resolver.resolve("hang.test"));
        assert_eq!((a, b), (Err(ResolveError::TimedOut), Err(ResolveError::TimedOut)));
        clock.0.fetch_add(30_001, Ordering::SeqCst);
        assert_eq!(resolver.resolve("hang.test").await, Err(ResolveError::TimedOut));
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        drop(release);
    }

    // C9.8, C5.5
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn at_most_64_lookups_run_at_once_and_slow_names_take_half_of_them() {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let running = Arc::new(AtomicUsize::new(0));
        let (inside, counter) = (gate.clone(), running.clone());
        let lookup = move |name: &str| {
            if name.starts_with("hang") {
                counter.fetch_add(1, Ordering::SeqCst);
                let open = inside.0.lock().unwrap();
                drop(inside.1.wait_while(open, |open| !*open).unwrap());
            }
            Ok(vec![v4(1)])
        };
        let (clock, patient) = (Arc::new(Hands::default()), Duration::from_secs(600));
        let resolver = Arc::new(SystemResolver::with_lookup(clock.clone(), patient, Box::new(lookup)));
        let ask_hundred = || {
            let mut all = tokio::task::JoinSet::new();
            for n in 0..100 {
                let resolver = resolver.clone();
                all.spawn(async move { resolver.resolve(&format!("hang{n}.test")).await });
            }
            all
        };
        let until = async |holds: &dyn Fn(&State) -> bool| {
            while !holds(&resolver.shared.lock()) {
                tokio::task::yield_now().await;
            }
        };
        let first = ask_hundred();
        until(&|state| state.waiting.len() == 100 - LOOKUPS_AT_ONCE).await;
        assert_eq!(resolver.shared.lock().threads, LOOKUPS_AT_ONCE);
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        assert!(first.join_all().await.iter().all(Result::is_ok));
        assert_eq!(running.load(Ordering::SeqCst), 100);

        *gate.0.lock().unwrap() = false;
        for n in 0..100 {
            resolver.shared.remember(&format!("hang{n}.test"), ResolveError::TimedOut);
        }
        clock.0.fetch_add(30_001, Ordering::SeqCst);
        let second = ask_hundred();
        until(&|state| state.waiting_slow.len() == 100 - LOOKUPS_AT_ONCE / 2).await;
        assert_eq!(resolver.shared.lock().slow_running, LOOKUPS_AT_ONCE / 2);
        assert_eq!(resolver.resolve("other.test").await, Ok(vec![v4(1)]), "half of the threads are free for others");
        *gate.0.lock().unwrap() = true;
        gate.1.notify_all();
        assert!(second.join_all().await.iter().all(Result::is_ok));
    }
}
