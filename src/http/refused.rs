//! What hyper refuses by itself, before there is a request: said as a problem like every other failure (A1.4).
//!
//! A head that is no HTTP, or is larger than hyper was told to read, is answered by hyper with a bare status, and no setting of it
//! adds a word. So that one write is taken out here, below hyper, and a problem goes in its place. What the client still sends is
//! then read for a moment: closing a socket with bytes unread resets it, and would take the answer along.
//!
//! Over HTTP/2 there is no such answer to replace: a frame that is none ends the connection with an error code.

use crate::error::Code;
use crate::http::negotiate::DRAIN_TIME;
use crate::http::problem::Problem;
use crate::model::limits::{REFUSED_BODY_BYTES, REQUEST_HEADERS, REQUEST_HEADERS_BYTES, REQUEST_TARGET_BYTES};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A whole answer over HTTP/1.1 after which the connection ends.
pub(crate) fn last_words(problem: Problem, request_id: &str) -> Vec<u8> {
    let answer = problem.answer(request_id);
    let mut out = format!("HTTP/1.1 {}\r\n", answer.status).into_bytes();
    for (name, value) in &answer.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    let id = if request_id.is_empty() { String::new() } else { format!("x-request-id: {request_id}\r\n") };
    let rest = format!("{id}connection: close\r\ncontent-length: {}\r\n\r\n", answer.body.len());
    out.extend_from_slice(rest.as_bytes());
    out.extend_from_slice(&answer.body);
    out
}

/// A connection on which hyper's own refusals are replaced. `I` makes a request id and counts the refusal by its status.
pub(crate) struct Worded<T, I> {
    inner: T,
    refused: I,
    words: Option<Words>,
}

/// A problem on its way out.
struct Words {
    bytes: Vec<u8>,
    sent: usize,
    /// What may still be read and thrown away, and for how long.
    drain: usize,
    until: Pin<Box<Sleep>>,
}

impl<T, I> Worded<T, I> {
    pub(crate) fn new(inner: T, refused: I) -> Self {
        Self { inner, refused, words: None }
    }
}

impl<T: AsyncWrite + Unpin, I: Fn(u16) -> String> Worded<T, I> {
    /// Whether these bytes were a bare refusal, which is replaced from now on.
    fn replaces(&mut self, bytes: &[u8]) -> bool {
        let Some((code, detail)) = bare_refusal(bytes) else { return false };
        let id = (self.refused)(code.status());
        let bytes = last_words(Problem::new(code, detail), &id);
        let until = Box::pin(sleep(DRAIN_TIME));
        self.words = Some(Words { bytes, sent: 0, drain: REFUSED_BODY_BYTES, until });
        true
    }

    /// Sends what is left of the problem.
    fn poll_words(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(words) = &mut self.words else { return Poll::Ready(Ok(())) };
        while let Some(rest) = words.bytes.get(words.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => words.sent += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin, I: Unpin> Worded<T, I> {
    /// Reads until the client has closed its side, or has had its moment.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(words) = &mut self.words else { return Poll::Ready(()) };
        let mut thrown_away = [0; 4096];
        while words.drain > 0 && words.until.as_mut().poll(cx).is_pending() {
            let mut buf = ReadBuf::new(&mut thrown_away);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buf)) {
                Ok(()) if !buf.filled().is_empty() => words.drain = words.drain.saturating_sub(buf.filled().len()),
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

/// What it is that hyper answers there without a word. Every answer of ours has a request id, and hyper's have none.
fn bare_refusal(bytes: &[u8]) -> Option<(Code, String)> {
    let head = bytes.strip_prefix(b"HTTP/1.1 ").filter(|_| bytes.len() < 256 && bytes.ends_with(b"\r\n\r\n"))?;
    let has = |text: &[u8]| head.windows(text.len()).any(|window| window == text);
    if !has(b"content-length: 0\r\n") || has(b"x-request-id:") {
        return None;
    }
    Some(match head.get(..3)? {
        b"400" => (Code::BadRequest, "this is no HTTP request that can be read in one way only".to_owned()),
        b"414" => (Code::UriTooLong, format!("path and query may have at most {REQUEST_TARGET_BYTES} bytes")),
        b"431" => {
            let (lines, bytes) = (REQUEST_HEADERS, REQUEST_HEADERS_BYTES);
            (Code::HeadersTooLarge, format!("there may be at most {lines} headers, of at most {bytes} bytes together"))
        }
        _ => return None,
    })
}

impl<T: AsyncRead + Unpin, I: Unpin> AsyncRead for Worded<T, I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin, I: Fn(u16) -> String + Unpin> AsyncWrite for Worded<T, I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_words(cx))?;
        if self.replaces(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_words(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_words(cx))?;
        ready!(Pin::new(&mut self.inner).poll_shutdown(cx))?;
        self.poll_drain(cx).map(Ok)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_words(cx))?;
        // A bare refusal has no body, so that it is one piece.
        let mut pieces = bytes.iter().filter(|piece| !piece.is_empty());
        if let (Some(only), None) = (pieces.next(), pieces.next())
            && self.replaces(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // A1.4
    #[test]
    fn only_a_refusal_without_a_word_is_replaced() {
        let bare = "connection: close\r\ncontent-length: 0\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\n\r\n";
        for (bytes, status) in [
            (format!("HTTP/1.1 400 Bad Request\r\n{bare}"), Some(400)),
            (format!("HTTP/1.1 414 URI Too Long\r\n{bare}"), Some(414)),
            (format!("HTTP/1.1 431 Request Header Fields Too Large\r\n{bare}"), Some(431)),
            (format!("HTTP/1.1 400 Bad Request\r\nx-request-id: 1\r\n{bare}"), None),
            (format!("HTTP/1.1 200 OK\r\n{bare}"), None),
            (format!("HTTP/1.1 400 Bad Request\r\n{bare}and more"), None),
            ("HTTP/1.1 400 Bad Request\r\ncontent-length: 7\r\n\r\n".to_owned(), None),
            ("HTTP/1.1 4".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(bare_refusal(bytes.as_bytes()).map(|(code, _)| code.status()), status, "{bytes}");
        }
    }
}
