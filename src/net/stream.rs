//! What a dial gives: a plain or a TLS stream, and how it came about.

use std::io::{self, IoSlice, Read as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// An open connection to an address that passed the policy.
#[derive(Debug)]
pub struct Conn {
    /// The bytes.
    pub stream: Stream,
    /// Whom we speak with: checked after connecting, not only before.
    pub peer: SocketAddr,
}

impl Conn {
    /// Whether ALPN chose HTTP/2.
    pub fn speaks_http2(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Tls(tls) => tls.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// The TLS version in use; none on a plain connection.
    pub fn tls_version(&self) -> Option<&'static str> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => tls.get_ref().1.protocol_version().and_then(|version| match version {
                rustls::ProtocolVersion::TLSv1_2 => Some("1.2"),
                rustls::ProtocolVersion::TLSv1_3 => Some("1.3"),
                // Not our enum, and rustls speaks no other version.
                _ => None,
            }),
        }
    }
}

/// The bytes of a connection.
#[derive(Debug)]
pub enum Stream {
    /// As they are.
    Plain(TcpStream),
    /// Under TLS; boxed, since a session is large and a plain connection should not pay for it.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Stream::Tls(tls) => match Pin::new(&mut *tls).poll_read(cx, buf) {
                Poll::Ready(Err(error)) => Poll::Ready(what_came_before(tls, buf).ok_or(error)),
                other => other,
            },
        }
    }
}

/// What was deciphered before the record that broke, which may have come with it in one read: it is genuine, and an answer's head may
/// be in it. The fault itself is met by the next read.
fn what_came_before(tls: &mut TlsStream<TcpStream>, buf: &mut ReadBuf<'_>) -> Option<()> {
    let mut deciphered = tls.get_mut().1.reader();
    let read = deciphered.read(buf.initialize_unfilled()).ok().filter(|read| *read > 0)?;
    buf.advance(read);
    Some(())
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
