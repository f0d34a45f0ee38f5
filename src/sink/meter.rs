//! Counts what a receiver sends, and stops listening to one that sends too much.
//!
//! hyper bounds a single answer's head; this bounds what comes around it: a train of informational answers, HTTP/2 frames of no
//! stream, chunk headers. So an attempt's memory and CPU stay bounded whatever the receiver does (C9.5). The count also says
//! whether any byte of an answer came, which decides if a broken attempt may be sent once more (C9.9).

use crate::model::attempt::ErrorClass;
use crate::net::stream::Stream;
use crate::net::tls;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a connection has received and may still receive. Written by the connection, read by its exchange.
#[derive(Debug, Default)]
pub(super) struct Meter {
    received: AtomicU64,
    allowed: AtomicU64,
    overrun: AtomicBool,
    tls: OnceLock<ErrorClass>,
}

impl Meter {
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
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf)).map_err(|error| this.meter.note(error))?;
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
}
