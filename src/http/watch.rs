//! Watches a connection's bytes, so that a slow request and an idle connection can be told apart and ended (A1.9).
//!
//! hyper's own header timeout starts before the first byte has come, and its version sniffing has none at all; so the moments are
//! taken here, below hyper, and judged by the task that drives the connection.

use crate::model::limits::{CONNECTION_IDLE_MS, REQUEST_ARRIVAL_MS};
use crate::time::Clock;
use http::Version;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What has happened on one connection. Moments are monotonic milliseconds since it was opened, plus one; 0 is never.
pub(crate) struct Watch {
    clock: Arc<dyn Clock>,
    opened: Duration,
    moved: AtomicU64,
    request_began: AtomicU64,
    running: AtomicUsize,
    multiplexed: AtomicBool,
}

/// Whether a connection may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// It may; look again after [`LOOK_EVERY`].
    Fine,
    /// A request did not arrive whole in time, or nothing has moved for too long.
    Over,
}

impl Watch {
    /// Of a connection that opens now.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        let opened = clock.monotonic();
        let [moved, request_began] = [1, 0].map(AtomicU64::new);
        let (running, multiplexed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { clock, opened, moved, request_began, running, multiplexed })
    }

    /// A request's head has come: until when (monotonic) its body must be here, and what tells that it has been answered, or given up.
    pub(crate) fn head_came(self: &Arc<Self>, version: Version) -> (Duration, Running) {
        self.running.fetch_add(1, Relaxed);
        if version == Version::HTTP_2 {
            // Its frames between requests are no requests.
            self.multiplexed.store(true, Relaxed);
        }
        let began = match self.request_began.swap(0, Relaxed) {
            0 => self.clock.monotonic(),
            at => self.moment(at),
        };
        (began + ARRIVAL, Running(self.clone()))
    }

    /// Whether the connection may go on.
    pub(crate) fn judge(&self) -> Judgement {
        if self.running.load(Relaxed) > 0 {
            // A handler is at work, and bounded by its own deadlines; its request's body has one too.
            return Judgement::Fine;
        }
        let idle_at = self.moment(self.moved.load(Relaxed)) + IDLE;
        let due = match self.request_began.load(Relaxed) {
            0 => idle_at,
            began => idle_at.min(self.moment(began) + ARRIVAL),
        };
        if self.clock.monotonic() >= due { Judgement::Over } else { Judgement::Fine }
    }

    /// Since when nothing has moved (monotonic); none while a request is worked on.
    pub(crate) fn rests_since(&self) -> Option<Duration> {
        (self.running.load(Relaxed) == 0).then(|| self.moment(self.moved.load(Relaxed)))
    }

    fn moment(&self, at: u64) -> Duration {
        self.opened + Duration::from_millis(at.saturating_sub(1))
    }

    fn now(&self) -> u64 {
        crate::time::millis(self.clock.monotonic().saturating_sub(self.opened)).saturating_add(1)
    }

    fn read_some(&self) {
        let now = self.now();
        self.moved.store(now, Relaxed);
        // Bytes of a body are no new request; those of a pipelined one count from when its turn comes.
        if self.running.load(Relaxed) == 0 && !self.multiplexed.load(Relaxed) {
            let _ = self.request_began.compare_exchange(0, now, Relaxed, Relaxed);
        }
    }
}

/// A request being worked on; dropped with its answer.
pub(crate) struct Running(Arc<Watch>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
        self.0.moved.store(self.0.now(), Relaxed);
    }
}

/// How often a connection is judged.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);

const ARRIVAL: Duration = Duration::from_millis(REQUEST_ARRIVAL_MS);
const IDLE: Duration = Duration::from_millis(CONNECTION_IDLE_MS);

/// A connection whose bytes are watched.
pub(crate) struct Watched<T> {
    inner: T,
    watch: Arc<Watch>,
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: T, watch: Arc<Watch>) -> Self {
        Self { inner, watch }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            self.watch.read_some();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.watch.moved.store(self.watch.now(), Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, bytes))?;
        self.watch.moved.store(self.watch.now(), Relaxed);
        Poll::Ready(Ok(written))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A clock that stands still until it is moved.
    #[derive(Default)]
    pub(crate) struct Still(AtomicU64);

    impl Still {
        pub(crate) fn after(&self, seconds: u64) {
            self.0.fetch_add(seconds * 1000, Relaxed);
        }
    }

    impl Clock for Still {
        fn wall(&self) -> crate::time::Timestamp {
            crate::time::Timestamp(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.load(Relaxed))
        }
    }

    // A1.9
    #[test]
    fn an_idle_connection_is_over_after_75_seconds() {
        let clock = Arc::new(Still::default());
        let watch = Watch::new(clock.clone());
        clock.after(74);
        assert_eq!(watch.judge(), Judgement::Fine);
        clock.after(1);
        assert_eq!(watch.judge(), Judgement::Over);
    }

    // A1.9: it counts from the first byte, however many follow.
    #[tokio::test]
    async fn a_request_must_arrive_in_30_seconds() {
        let clock = Arc::new(Still::default());
        let watch = Watch::new(clock.clone());
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = Watched::new(server, watch.clone());
        clock.after(60);
        for second in 0..30 {
            client.write_all(b"G").await.unwrap();
            server.read_u8().await.unwrap();
            assert_eq!(watch.judge(), Judgement::Fine, "second {second}");
            clock.after(1);
        }
        assert_eq!(watch.judge(), Judgement::Over);
    }

    // A1.9: the deadline of the body counts from the first byte of the head; a running handler is left alone.
    #[tokio::test]
    async fn the_body_has_what_the_head_left() {
        let clock = Arc::new(Still::default());
        let watch = Watch::new(clock.clone());
        let (mut client, server) = tokio::io::duplex(64);
        let mut server = Watched::new(server, watch.clone());
        clock.after(50);
        let began = clock.monotonic();
        client.write_all(b"G").await.unwrap();
        server.read_u8().await.unwrap();
        clock.after(10);
        let (due, running) = watch.head_came(Version::HTTP_11);
        assert_eq!(due - began, ARRIVAL);
        clock.after(200);
        assert_eq!(watch.judge(), Judgement::Fine);
        drop(running);
        clock.after(74);
        assert_eq!(watch.judge(), Judgement::Fine);
        clock.after(1);
        assert_eq!(watch.judge(), Judgement::Over);
    }
}
