//! Connections that rest open between attempts.
//!
//! Kept by tenant, scheme, host, port and client certificate: two tenants never share a connection, not even to the same place. A
//! resting connection is looked at when it is taken and every few seconds by [`Pool::sweep`]; it is closed after [`IDLE_FOR`], a
//! little before common servers close theirs, and none is used beyond [`MAX_AGE`], so that a receiver that moved is looked up again.
//! Beyond the ceilings the one that rested longest is closed.

use crate::model::limits::IDLE_CONNECTIONS_PER_PLACE;
use crate::sink::exchange::{Http1, Http2};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a connection rests before it is closed.
pub(super) const IDLE_FOR: Duration = Duration::from_secs(60);
/// How long a connection is used in all.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Connections looked at under one lock.
const SWEPT_AT_ONCE: usize = 64;

/// Between whom a connection runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) tenant: String,
    /// Scheme, host and port.
    pub(super) origin: String,
    /// Digest of the client certificate and its sealed key.
    pub(super) identity: Option<[u8; 32]>,
}

/// A connection in use.
pub(super) enum Lease {
    /// Ours alone.
    Http1(Box<Http1>),
    /// Shared.
    Http2(Arc<Http2>),
}

impl Lease {
    /// The TLS version of the connection.
    pub(super) fn tls(&self) -> Option<&'static str> {
        match self {
            Lease::Http1(own) => own.tls,
            Lease::Http2(shared) => shared.tls,
        }
    }
}

/// The resting connections.
pub(super) struct Pool {
    inner: Mutex<Inner>,
    resting_max: usize,
}

#[derive(Default)]
struct Inner {
    places: HashMap<Arc<Key>, Place>,
    /// Resting HTTP/1.1 connections by when they came to rest.
    order: BTreeMap<u64, Arc<Key>>,
    rests: u64,
}

#[derive(Default)]
struct Place {
    /// The one that came last is taken first, so that those not needed grow old.
    idle: Vec<Idle>,
    shared: Vec<Arc<Http2>>,
    /// Taken while an HTTP/2 connection is being made, so that attempts that come together make one.
    gate: Option<Arc<tokio::sync::Mutex<()>>>,
}

struct Idle {
    rest: u64,
    since: Instant,
    connection: Box<Http1>,
}

impl Pool {
    /// Lets so many rest at most.
    pub(super) fn new(resting_max: usize) -> Self {
        Self { inner: Mutex::default(), resting_max }
    }

    /// A connection that is open as far as can be seen.
    pub(super) fn take(&self, key: &Arc<Key>, now: Instant) -> Option<Lease> {
        loop {
            let mut idle = {
                let mut inner = self.lock();
                let place = inner.places.get_mut(key)?;
                if let Some(shared) = place.shared.iter().find(|shared| usable(shared, now) && shared.has_room()) {
                    return Some(Lease::Http2(shared.clone()));
                }
                let idle = place.idle.pop()?;
                inner.order.remove(&idle.rest);
                idle
            };
            // Looked at outside the lock; a closed one is dropped and the next one taken.
            if idle.is_fresh(now) && idle.connection.is_ready() {
                return Some(Lease::Http1(idle.connection));
            }
        }
    }

    /// Puts a connection to rest.
    pub(super) fn rest(&self, key: &Arc<Key>, connection: Box<Http1>, now: Instant) {
        if !connection.is_reusable() || now.duration_since(connection.born) >= MAX_AGE {
            return;
        }
        let mut inner = self.lock();
        let rest = inner.rests;
        inner.rests += 1;
        inner.order.insert(rest, key.clone());
        let place = inner.places.entry(key.clone()).or_default();
        place.idle.push(Idle { rest, since: now, connection });
        let over = if place.idle.len() > IDLE_CONNECTIONS_PER_PLACE { Some(place.idle.remove(0)) } else { None };
        let closed = match over {
            Some(over) => inner.order.remove(&over.rest).map(|_| over),
            None if inner.order.len() > self.resting_max => inner.pop_oldest(),
            None => None,
        };
        drop(inner);
        // Closing a socket is a system call: after the lock.
        drop(closed);
    }

    /// Shares a new HTTP/2 connection.
    pub(super) fn share(&self, key: &Arc<Key>, connection: &Arc<Http2>, now: Instant) {
        let mut inner = self.lock();
        let place = inner.places.entry(key.clone()).or_default();
        place.shared.retain(|shared| usable(shared, now));
        place.shared.push(connection.clone());
        place.gate.get_or_insert_default();
    }

    /// What to hold while dialling, where the place is known to speak HTTP/2.
    pub(super) fn gate(&self, key: &Arc<Key>) -> Option<Arc<tokio::sync::Mutex<()>>> {
        self.lock().places.get(key)?.gate.clone()
    }

    /// Closes what rested too long or was closed by its peer. Called every few seconds.
    pub(super) fn sweep(&self, now: Instant) {
        let keys: Vec<Arc<Key>> = self.lock().places.keys().cloned().collect();
        for keys in keys.chunks(SWEPT_AT_ONCE) {
            let mut closed = Vec::new();
            let mut guard = self.lock();
            let inner = &mut *guard;
            for key in keys {
                let Some(place) = inner.places.get_mut(key) else { continue };
                for idle in place.idle.extract_if(.., |idle| !(idle.is_fresh(now) && idle.connection.is_ready())) {
                    inner.order.remove(&idle.rest);
                    closed.push(idle);
                }
                place.shared.retain(|shared| usable(shared, now));
                if place.idle.is_empty() && place.shared.is_empty() {
                    inner.places.remove(key);
                }
            }
            drop(guard);
            drop(closed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The maps are whole at every point where anything could panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn pop_oldest(&mut self) -> Option<Idle> {
        let (rest, key) = self.order.pop_first()?;
        let idle = &mut self.places.get_mut(&key)?.idle;
        let at = idle.iter().position(|idle| idle.rest == rest)?;
        Some(idle.remove(at))
    }
}

impl Idle {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < IDLE_FOR && now.duration_since(self.connection.born) < MAX_AGE
    }
}

fn usable(shared: &Http2, now: Instant) -> bool {
    shared.is_alive() && shared.rested(now) < IDLE_FOR && now.duration_since(shared.born) < MAX_AGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits::IDLE_CONNECTIONS;
    use crate::net::Deadline;
    use crate::net::dial::{Dialler, Place as Target, Security};
    use crate::net::resolve::SystemResolver;
    use crate::net::tls::Roots;
    use crate::rules::address::{AddressPolicy, TargetHost, parse_sink_allow};
    use crate::sink::exchange::{Body, Keep};
    use crate::time::SystemClock;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    struct World {
        pool: Pool,
        dialler: Dialler,
        port: u16,
        now: Instant,
        _receiver: JoinSet<()>,
    }

    impl World {
        /// A pool, and a receiver that answers whatever it reads.
        async fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let mut receiver = JoinSet::new();
            receiver.spawn(async move {
                let mut connections = JoinSet::new();
                loop {
                    let (mut tcp, _) = listener.accept().await.unwrap();
                    connections.spawn(async move {
                        while tcp.read(&mut [0; 4096]).await.is_ok_and(|read| read > 0) {
                            let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                            tcp.write_all(answer).await.unwrap();
                        }
                    });
                }
            });
            let rules = parse_sink_allow("127.0.0.0/8+plain").unwrap();
            let policy = AddressPolicy { rules, ports: vec![port], ..AddressPolicy::default() };
            let resolver = Arc::new(SystemResolver::new(Arc::new(SystemClock::new())));
            let dialler = Dialler::new(Arc::new(policy), resolver, Roots::none()).unwrap();
            Self { pool: Pool::new(IDLE_CONNECTIONS), dialler, port, now: Instant::now(), _receiver: receiver }
        }

        /// A connection that has served one exchange.
        async fn used(&self) -> Box<Http1> {
            let host = TargetHost::Ip([127, 0, 0, 1].into());
            let target = Target { host: &host, port: self.port, security: Security::Plain };
            let deadline = Deadline::after(Duration::from_secs(60));
            let conn = self.dialler.dial("acme", target, deadline).await.unwrap();
            let mut connection = Box::new(Http1::open(conn).await.unwrap());
            let request = http::Request::post("/").header("host", "a").body(Body::default()).unwrap();
            connection.exchange(request, Keep::OfFailures, deadline).await.unwrap();
            connection
        }

        fn at(&self, seconds: u64) -> Instant {
            self.now + Duration::from_secs(seconds)
        }

        fn sizes(&self) -> (usize, usize) {
            let inner = self.pool.lock();
            (inner.order.len(), inner.places.values().map(|place| place.idle.len()).sum())
        }
    }

    fn key(tenant: &str) -> Arc<Key> {
        Arc::new(Key { tenant: tenant.to_owned(), origin: "http://a".to_owned(), identity: None })
    }

    // C9.9
    #[tokio::test]
    async fn a_connection_rests_for_a_minute_and_lives_for_five() {
        let world = World::new().await;
        let (pool, key) = (&world.pool, key("acme"));
        for (rested_at, taken_at, found) in
            [(1, 60, true), (1, 62, false), (290, 295, true), (290, 301, false), (301, 302, false)]
        {
            pool.rest(&key, world.used().await, world.at(rested_at));
            assert_eq!(pool.take(&key, world.at(taken_at)).is_some(), found, "{rested_at} {taken_at}");
            assert_eq!(world.sizes(), (0, 0));
            pool.rest(&key, world.used().await, world.at(rested_at));
            pool.sweep(world.at(taken_at));
            assert_eq!(pool.take(&key, world.at(rested_at)).is_some(), found, "swept: {rested_at} {taken_at}");
        }
        pool.sweep(world.at(1));
        assert!(pool.lock().places.is_empty(), "no place is kept without a connection");
    }

    // C9.9
    #[tokio::test]
    async fn beyond_a_ceiling_the_one_that_rested_longest_is_closed() {
        let world = World::new().await;
        let (pool, one, other) = (&world.pool, key("one"), key("other"));
        pool.rest(&other, world.used().await, world.at(0));
        for _ in 0..IDLE_CONNECTIONS_PER_PLACE + 3 {
            pool.rest(&one, world.used().await, world.at(1));
        }
        let kept = IDLE_CONNECTIONS_PER_PLACE + 1;
        assert_eq!(world.sizes(), (kept, kept));
        let oldest = pool.lock().pop_oldest().unwrap();
        assert_eq!(oldest.rest, 0, "of all places");
        assert!(pool.take(&other, world.at(1)).is_none());
        assert!(pool.take(&one, world.at(1)).is_some());
    }
}
