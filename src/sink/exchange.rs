//! One request and its answer over one connection, under one deadline.
//!
//! An HTTP/1.1 connection has no task of its own: the attempt that uses it drives it, and an idle one rests in the pool until it is
//! looked at again. A delivery thereby costs no hand-over between tasks, and an attempt that is dropped closes its connection. An
//! HTTP/2 connection is shared and needs a driver; its tasks end with the connection.
//!
//! The answer's body is read for the log only: to its end, up to 64 KiB or for 1 s, within the deadline, and whatever goes wrong there
//! changes nothing (C9.5). An HTTP/1.1 connection whose answer was not read to its end is not used again.

use crate::model::attempt::ErrorClass;
use crate::model::limits::{ANSWER_HEAD_BYTES, ANSWER_HEADERS, ANSWER_KEPT_BYTES, ANSWER_READ_BYTES};
use crate::net::Deadline;
use crate::net::stream::Conn;
use crate::sink::meter::{Meter, Metered};
use crate::time::millis;
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A request's body: the event's bytes as they are stored, shared, never copied.
pub(super) type Body = Full<Bytes>;

/// How long an answer's body is read.
const BODY_READ_FOR: Duration = Duration::from_secs(1);
/// Streams on one HTTP/2 connection; beyond it another connection is made.
const STREAMS_PER_CONNECTION: usize = 100;
/// What a receiver may send before the end of an answer's head, and around it: informational answers included.
const AROUND_HEAD_BYTES: u64 = 2 * ANSWER_HEAD_BYTES as u64;
/// What it may send for one answer in all, framing included.
const AROUND_ANSWER_BYTES: u64 = AROUND_HEAD_BYTES + 2 * ANSWER_READ_BYTES as u64;
/// What an HTTP/2 connection may save up of it.
const SAVED_UP_BYTES: u64 = 16 * AROUND_ANSWER_BYTES;

/// An answer's head, and what was kept of its body.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// `Retry-After`; of several header lines all values, as one list.
    pub(super) retry_after: Option<Vec<u8>>,
    pub(super) body: Vec<u8>,
}

/// What is kept of an answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The first kilobyte of a failure's.
    OfFailures,
    /// All that is read (probes).
    All,
}

/// No answer's head came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) class: ErrorClass,
    /// The receiver did not begin to answer, so that a used connection may just have been closed under us (C9.9).
    pub(super) unanswered: bool,
}

/// An open HTTP/1.1 connection, driven by whoever holds it.
pub(super) struct Http1 {
    send: http1::SendRequest<Body>,
    driver: http1::Connection<TokioIo<Metered>, Body>,
    meter: Arc<Meter>,
    ended: bool,
    reusable: bool,
    /// When it was opened.
    pub(super) born: Instant,
    /// Its TLS version.
    pub(super) tls: Option<&'static str>,
}

impl Http1 {
    pub(super) async fn open(conn: Conn) -> Result<Self, Broken> {
        let (meter, tls) = (Arc::new(Meter::default()), conn.tls_version());
        meter.allow(AROUND_HEAD_BYTES);
        let opened = http1::Builder::new()
            .max_buf_size(ANSWER_HEAD_BYTES)
            .max_headers(ANSWER_HEADERS)
            .title_case_headers(true)
            .handshake(TokioIo::new(Metered::new(conn.stream, meter.clone())))
            .await;
        let (send, driver) = opened.map_err(|error| broken(&error, &meter, 0))?;
        Ok(Self { send, driver, meter, ended: false, reusable: false, born: Instant::now(), tls })
    }

    /// Whether it rests open and ready: looks at the socket without waiting.
    pub(super) fn is_ready(&mut self) -> bool {
        self.reusable && self.drive(&mut Context::from_waker(Waker::noop())).is_pending() && self.send.is_ready()
    }

    /// Whether the last answer was read to its end and another request may follow.
    pub(super) fn is_reusable(&self) -> bool {
        self.reusable && !self.ended
    }

    /// Sends, and reads the answer.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Body>,
        keep: Keep,
        deadline: Deadline,
    ) -> Result<Answer, Broken> {
        self.reusable = false;
        let before = self.meter.received();
        self.meter.allow(AROUND_HEAD_BYTES);
        let response = deadline.bound(self.head(request)).await;
        let response = response.ok_or(TIMEOUT)?.map_err(|error| match error {
            Some(error) => broken(&error, &self.meter, before),
            None => Broken { class: ErrorClass::Reset, unanswered: self.meter.received() == before },
        })?;
        self.meter.allow(AROUND_ANSWER_BYTES);
        let mut reading = Reading::begin(response, keep);
        let whole = if reading.body.is_end_stream() {
            true
        } else {
            let until = deadline.within(BODY_READ_FOR).at();
            tokio::time::timeout_at(until, self.read(&mut reading)).await.unwrap_or(false)
        };
        // The last look lets the driver see that the exchange is over and ask for the next.
        self.reusable = whole && poll_fn(|cx| Poll::Ready(self.drive(cx).is_pending())).await && self.send.is_ready();
        Ok(reading.answer)
    }

    async fn head(&mut self, request: Request<Body>) -> Result<Response<Incoming>, Option<hyper::Error>> {
        let mut response = pin!(self.send.send_request(request));
        let (driver, ended) = (&mut self.driver, &mut self.ended);
        poll_fn(move |cx| {
            let over = drive(driver, ended, cx).is_ready();
            match response.as_mut().poll(cx) {
                Poll::Ready(result) => Poll::Ready(result.map_err(Some)),
                Poll::Pending if over => Poll::Ready(Err(None)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Reads the body; whether it came to its end.
    async fn read(&mut self, reading: &mut Reading) -> bool {
        poll_fn(|cx| {
            loop {
                let over = self.drive(cx).is_ready();
                match reading.poll(cx) {
                    Poll::Ready(Some(whole)) => return Poll::Ready(whole),
                    Poll::Ready(None) => {}
                    Poll::Pending if over => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        drive(&mut self.driver, &mut self.ended, cx)
    }
}

/// Lets the connection work; ready when it is over.
fn drive(driver: &mut http1::Connection<TokioIo<Metered>, Body>, ended: &mut bool, cx: &mut Context<'_>) -> Poll<()> {
    if !*ended {
        // Its error, if any, has gone to the request that it broke; an idle connection's is of no interest.
        *ended = Pin::new(driver).poll(cx).is_ready();
    }
    if *ended { Poll::Ready(()) } else { Poll::Pending }
}

/// An open HTTP/2 connection, shared by many attempts of one key.
pub(super) struct Http2 {
    send: http2::SendRequest<Body>,
    meter: Arc<Meter>,
    streams: AtomicUsize,
    /// Milliseconds from birth to the end of the last stream.
    last_used: AtomicU64,
    silent: AtomicBool,
    /// When it was opened.
    pub(super) born: Instant,
    /// Its TLS version.
    pub(super) tls: Option<&'static str>,
    _tasks: DropGuard,
}

impl Http2 {
    pub(super) async fn open(conn: Conn, deadline: Deadline) -> Result<Self, Broken> {
        let (meter, tls) = (Arc::new(Meter::paced()), conn.tls_version());
        meter.allow(AROUND_ANSWER_BYTES);
        let over = CancellationToken::new();
        let opening = http2::Builder::new(Tasks(over.clone()))
            .initial_stream_window_size(Some(ANSWER_READ_BYTES as u32))
            .initial_connection_window_size(Some(16 * ANSWER_READ_BYTES as u32))
            .max_header_list_size(ANSWER_HEAD_BYTES as u32)
            .max_frame_size(Some(16 << 10))
            .handshake(TokioIo::new(Metered::new(conn.stream, meter.clone())));
        let opened = deadline.bound(opening).await.ok_or(TIMEOUT)?;
        let (send, driver) = opened.map_err(|error| broken(&error, &meter, 0))?;
        hyper::rt::Executor::execute(&Tasks(over.clone()), async move {
            // Its error has gone to the requests that it broke.
            let _ = driver.await;
        });
        Ok(Self {
            send,
            meter,
            streams: AtomicUsize::new(0),
            last_used: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            born: Instant::now(),
            tls,
            _tasks: over.drop_guard(),
        })
    }

    /// Whether it can take another stream.
    pub(super) fn has_room(&self) -> bool {
        self.streams.load(Relaxed) < STREAMS_PER_CONNECTION
    }

    /// For how long no attempt has used it.
    pub(super) fn rested(&self, now: Instant) -> Duration {
        match self.streams.load(Relaxed) {
            0 => now.duration_since(self.born).saturating_sub(Duration::from_millis(self.last_used.load(Relaxed))),
            _ => Duration::ZERO,
        }
    }

    /// Whether it can be used at all.
    pub(super) fn is_alive(&self) -> bool {
        self.send.is_ready() && !self.silent.load(Relaxed)
    }

    /// Sends, and reads the answer.
    pub(super) async fn exchange(
        &self,
        request: Request<Body>,
        keep: Keep,
        deadline: Deadline,
    ) -> Result<Answer, Broken> {
        let _stream = InFlight::begin(self);
        let before = self.meter.received();
        self.meter.allow_more(AROUND_ANSWER_BYTES, SAVED_UP_BYTES);
        let sending = self.send.clone().send_request(request);
        let response = match deadline.bound(self.meter.in_pace(sending)).await {
            Some(response) => response.map_err(|error| broken(&error, &self.meter, before))?,
            None => {
                // Not a byte in all that time: the peer may be gone without a word, and the next attempt must not wait for it too.
                self.silent.fetch_or(self.meter.received() == before, Relaxed);
                return Err(TIMEOUT);
            }
        };
        let mut reading = Reading::begin(response, keep);
        if !reading.body.is_end_stream() {
            let until = deadline.within(BODY_READ_FOR).at();
            let read = poll_fn(|cx| {
                loop {
                    match reading.poll(cx) {
                        Poll::Ready(Some(_)) => return Poll::Ready(()),
                        Poll::Ready(None) => {}
                        Poll::Pending => return Poll::Pending,
                    }
                }
            });
            // What is left unread is given up with the stream.
            let _ = tokio::time::timeout_at(until, self.meter.in_pace(read)).await;
        }
        Ok(reading.answer)
    }
}

/// Counts one stream while it lives.
struct InFlight<'a>(&'a Http2);

impl<'a> InFlight<'a> {
    fn begin(connection: &'a Http2) -> Self {
        connection.streams.fetch_add(1, Relaxed);
        Self(connection)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.last_used.store(millis(self.0.born.elapsed()), Relaxed);
        self.0.streams.fetch_sub(1, Relaxed);
    }
}

/// Runs what an HTTP/2 connection needs, until the connection is dropped.
#[derive(Clone)]
struct Tasks(CancellationToken);

impl<F> hyper::rt::Executor<F> for Tasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, task: F) {
        let over = self.0.clone();
        tokio::spawn(async move {
            // Either way the task is over: the connection's end leaves nobody to tell.
            let _ = over.run_until_cancelled(task).await;
        });
    }
}

/// An answer whose body is on its way in.
struct Reading {
    answer: Answer,
    body: Incoming,
    keep: usize,
    read: usize,
}

impl Reading {
    fn begin(response: Response<Incoming>, keep: Keep) -> Self {
        let (head, body) = response.into_parts();
        let keep = match keep {
            Keep::All => ANSWER_READ_BYTES,
            Keep::OfFailures if head.status.is_success() => 0,
            Keep::OfFailures => ANSWER_KEPT_BYTES,
        };
        // Several lines are one list (RFC 9110, 5.2): of a header that holds one value no reader can say which is meant, so it is left to
        // the rule to find the whole unreadable.
        let lines: Vec<&[u8]> = head.headers.get_all(RETRY_AFTER).iter().map(HeaderValue::as_bytes).collect();
        let retry_after = (!lines.is_empty()).then(|| lines.join(&b", "[..]));
        let answer = Answer { status: head.status, retry_after, body: Vec::new() };
        Self { answer, body, keep, read: 0 }
    }

    /// The next piece: none while more may come, else whether the body came to its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<bool>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(Some(true)),
            Some(Err(_)) => return Poll::Ready(Some(false)),
            Some(Ok(frame)) => frame,
        };
        let Some(data) = frame.data_ref() else { return Poll::Ready(None) };
        let room = self.keep.saturating_sub(self.answer.body.len());
        self.answer.body.extend_from_slice(&data[..data.len().min(room)]);
        self.read += data.len();
        Poll::Ready((self.read > ANSWER_READ_BYTES).then_some(false))
    }
}

const TIMEOUT: Broken = Broken { class: ErrorClass::Timeout, unanswered: false };

/// What a broken exchange means. `before` is what had been received when it began.
fn broken(error: &hyper::Error, meter: &Meter, before: u64) -> Broken {
    let unanswered = meter.received() == before;
    tracing::debug!(error = error as &dyn std::error::Error, unanswered, "exchange broken");
    let class = if meter.overrun() || error.is_parse() {
        ErrorClass::Protocol
    } else if let Some(class) = meter.tls_fault() {
        class
    } else if let Some(h2) = cause::<h2::Error>(error) {
        // What the peer or the network ended is a reset; what we ended, we ended because it broke the protocol.
        let class = if h2.is_remote() || h2.is_io() { ErrorClass::Reset } else { ErrorClass::Protocol };
        return Broken { class, unanswered: unanswered || refused(h2) };
    } else if error.is_canceled() && !unanswered {
        // It spoke before it was asked.
        ErrorClass::Protocol
    } else {
        ErrorClass::Reset
    };
    Broken { class, unanswered }
}

/// Whether the peer says that it has not looked at the request (RFC 9113, 8.7).
fn refused(error: &h2::Error) -> bool {
    let reason = error.reason();
    error.is_remote()
        && (reason == Some(h2::Reason::REFUSED_STREAM) || error.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
}

/// The first cause of that type.
fn cause<T: std::error::Error + 'static>(error: &hyper::Error) -> Option<&T> {
    let mut next = error.source();
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
