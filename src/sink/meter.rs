//! Counts what a receiver sends, and stops listening to one that sends too much.
//!
//! hyper bounds a single answer's head; this bounds what comes around it: a train of informational answers, HTTP/2 frames of no
//! stream, chunk headers. So an attempt's memory and CPU stay bounded whatever the receiver does (C9.5). The count also says
//! whether any byte of an answer came, which decides if a broken attempt may be sent once more (C9.9).
//!
//! An HTTP/2 connection has a driver of its own, which would read ahead of its exchanges: of the smallest frames, each of which costs
//! ten times its bytes in memory, a whole allowance at once. So there the meter also keeps pace: after every few kilobytes nothing
//! more is read until an exchange has taken in what there is.

use crate::model::attempt::ErrorClass;
use crate::net::stream::Stream;
use crate::net::tls;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What a paced connection reads before an exchange must have taken it in: 227 frames at most, of some 300 bytes in memory each.
const PACE_BYTES: u64 = 2 << 10;

/// What a connection has received and may still receive. Written by the connection, read by its exchange.
#[derive(Debug, Default)]
pub(super) struct Meter {
    received: AtomicU64,
    allowed: AtomicU64,
    overrun: AtomicBool,
    tls: OnceLock<ErrorClass>,
    pace: Option<Pace>,
}

/// How far a connection may read on by itself.
#[derive(Debug, Default)]
struct Pace {
    /// Up to that many bytes received in all, and who waits there.
    reached: Mutex<(u64, Option<Waker>)>,
    /// Told when it waits.
    waits: Notify,
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, (u64, Option<Waker>)> {
        // Two words, whole at every point where anything could panic.
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Meter {
    /// One that keeps pace with the exchanges: see [`Meter::in_pace`].
    pub(super) fn paced() -> Self {
        Self { pace: Some(Pace { reached: Mutex::new((PACE_BYTES, None)), waits: Notify::new() }), ..Self::default() }
    }

    /// Does an exchange's work, and lets a paced connection read on each time that the work has taken in what there is.
    pub(super) async fn in_pace<F: Future>(&self, work: F) -> F::Output {
        let Some(pace) = &self.pace else { return work.await };
        let mut work = pin!(work);
        loop {
            // Asked for before the connection may go on, or its next wait could be missed.
            let mut waits = pin!(pace.waits.notified());
            waits.as_mut().enable();
            let waker = {
                let mut reached = pace.lock();
                reached.0 = self.received() + PACE_BYTES;
                reached.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = waits => {}
            }
        }
    }

    /// How much may be read now; none where the connection has to wait, and is woken again.
    fn room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(pace) = &self.pace else { return Poll::Ready(usize::MAX) };
        let mut reached = pace.lock();
        let room = reached.0.saturating_sub(self.received());
        if room > 0 {
            return Poll::Ready(usize::try_from(room).unwrap_or(usize::MAX));
        }
        reached.1 = Some(cx.waker().clone());
        drop(reached);
        pace.waits.notify_waiters();
        Poll::Pending
    }

    /// Bytes received so far.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// From now on that many bytes more, whatever was allowed before.
    pub(super) fn allow(&self, bytes: u64) {
        self.allowed.store(self.received() + bytes, Relaxed);
    }

    /// That many bytes more beyond what is allowed, but never more than `most` ahead.
    pub(super) fn allow_more(&self, bytes: u64, most: u64) {
        let (received, allowed) = (self.received(), self.allowed.load(Relaxed));
        self.allowed.store((allowed.max(received) + bytes).min(received + most), Relaxed);
    }

    /// Whether the receiver sent more than was allowed, which ended the connection.
    pub(super) fn overrun(&self) -> bool {
        self.overrun.load(Relaxed)
    }

    /// What went wrong under TLS, where that is what ended the connection. Noted here, since HTTP/2 hands on only an error's text.
    pub(super) fn tls_fault(&self) -> Option<ErrorClass> {
        self.tls.get().copied()
    }

    fn note(&self, error: io::Error) -> io::Error {
        if let Some(class) = tls::classify(&error) {
            // The first fault is the one that counts.
            let _ = self.tls.set(class);
        }
        error
    }

    fn count(&self, bytes: usize) -> io::Result<()> {
        let received = self.received() + bytes as u64;
        self.received.store(received, Relaxed);
        if received > self.allowed.load(Relaxed) {
            self.overrun.store(true, Relaxed);
            return Err(io::Error::other("the receiver sends too much"));
        }
        Ok(())
    }
}

/// A stream under its meter.
#[derive(Debug)]
pub(super) struct Metered {
    stream: Stream,
    meter: Arc<Meter>,
}

impl Metered {
    pub(super) fn new(stream: Stream, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let room = ready!(this.meter.room(cx));
        let before = buf.filled().len();
        if room >= buf.remaining() {
            ready!(Pin::new(&mut this.stream).poll_read(cx, buf)).map_err(|error| this.meter.note(error))?;
        } else {
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part)).map_err(|error| this.meter.note(error))?;
            let read = part.filled().len();
            buf.advance(read);
        }
        Poll::Ready(this.meter.count(buf.filled().len() - before))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C9.5
    #[test]
    fn allowance_is_counted_from_what_was_received() {
        let meter = Meter::default();
        meter.allow(10);
        assert!(meter.count(10).is_ok());
        meter.allow_more(5, 7);
        meter.allow_more(5, 7);
        assert!(meter.count(7).is_ok(), "10 more, but never more than 7 ahead");
        assert!(!meter.overrun());
        assert!(meter.count(1).is_err());
        assert!(meter.overrun());
        assert_eq!(meter.received(), 18);
    }

    // C9.5
    #[tokio::test]
    async fn a_paced_connection_waits_until_an_exchange_has_taken_in_what_came() {
        let (meter, pace) = (Meter::paced(), PACE_BYTES as usize);
        let room = || {
            let meter = &meter;
            std::future::poll_fn(move |cx| Poll::Ready(meter.room(cx)))
        };
        meter.allow(u64::MAX);
        assert_eq!(room().await, Poll::Ready(pace));
        meter.count(pace - 1).unwrap();
        assert_eq!(room().await, Poll::Ready(1));
        meter.count(1).unwrap();
        assert_eq!(room().await, Poll::Pending, "nobody takes anything in");
        let mut steps = 0;
        let work = std::future::poll_fn(|cx| {
            // The connection reads what it may while the work is on its way, and wakes it by waiting.
            while let Poll::Ready(room) = meter.room(cx) {
                assert!(room <= pace);
                meter.count(room).unwrap();
            }
            steps += 1;
            if steps == 3 { Poll::Ready(()) } else { Poll::Pending }
        });
        meter.in_pace(work).await;
        assert_eq!(meter.received(), 4 * PACE_BYTES, "one pace for each time that it was taken in");
    }
}
