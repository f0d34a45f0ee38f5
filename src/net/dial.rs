//! The dialler: every connection to a place that a tenant named is made here (C9.8).
//!
//! In this order, and within one deadline: judge the target as it is written; resolve its name once; judge every address; connect
//! only to addresses that passed; check the peer of the open socket again; TLS. What was judged is what is connected to: nothing
//! resolves a second time, so an answer that changes between the two looks has no second look to change in.

use crate::model::attempt::ErrorClass;
use crate::net::Deadline;
use crate::net::resolve::{Resolve, ResolveError};
use crate::net::stream::{Conn, Stream};
use crate::net::tls::{self, Alpn, ClientIdentity, Roots, TlsClient};
use crate::rules::address::{self, AddressPolicy, TargetHost, Verdict};
use rustls::pki_types::ServerName;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// Addresses of one answer that are used; the rest of a longer answer is not looked at.
pub const ADDRESSES_USED: usize = 16;
/// How long an address has the field to itself before the next one is tried beside it.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Dials destinations under one address policy.
pub struct Dialler {
    policy: Arc<AddressPolicy>,
    resolver: Arc<dyn Resolve>,
    tls: TlsClient,
}

/// Where to, and how.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The host as it was named.
    pub host: &'a TargetHost,
    /// The port.
    pub port: u16,
    /// Plain, or under TLS.
    pub security: Security<'a>,
}

/// Plain, or under TLS.
#[derive(Debug, Clone, Copy)]
pub enum Security<'a> {
    /// Plain; the policy must allow it.
    Plain,
    /// TLS.
    Tls {
        /// What ALPN offers.
        alpn: Alpn,
        /// The tenant's client certificate.
        identity: Option<&'a ClientIdentity>,
    },
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The policy forbids the target, or every address of it. Not one packet was sent.
    #[error("the address policy forbids it: {rule}")]
    Blocked {
        /// Which rule of it.
        rule: &'static str,
    },
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// No address took the connection.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// The deadline passed before the connection, or its TLS handshake, was made.
    #[error("connecting took too long")]
    ConnectTimeout,
    /// The TLS handshake failed.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The name cannot stand in a certificate, or the client certificate cannot be used.
    #[error("TLS: {0}")]
    TlsSetup(rustls::Error),
}

impl DialError {
    /// Its class in attempts and metrics.
    pub fn class(&self) -> ErrorClass {
        match self {
            DialError::Blocked { .. } => ErrorClass::DestinationBlocked,
            DialError::Resolve(ResolveError::Failed) => ErrorClass::Dns,
            DialError::Resolve(ResolveError::TimedOut) => ErrorClass::DnsTimeout,
            DialError::Connect(_) => ErrorClass::Connect,
            DialError::ConnectTimeout => ErrorClass::ConnectTimeout,
            DialError::Tls(error) => tls::classify(error).unwrap_or(ErrorClass::Tls),
            DialError::TlsSetup(_) => ErrorClass::Tls,
        }
    }
}

impl Dialler {
    /// A dialler under that policy.
    ///
    /// # Errors
    /// When TLS cannot be set up at all.
    pub fn new(policy: Arc<AddressPolicy>, resolver: Arc<dyn Resolve>, roots: Roots) -> Result<Self, rustls::Error> {
        Ok(Self { policy, resolver, tls: TlsClient::new(roots)? })
    }

    /// Connects for that tenant. Dropping the future gives everything up at once.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial(&self, tenant: &str, place: Place<'_>, deadline: Deadline) -> Result<Conn, DialError> {
        let plain = matches!(place.security, Security::Plain);
        allowed(address::judge_target(&self.policy, tenant, !plain, place.host, place.port))?;
        let judge = |ip| allowed(address::judge_address(&self.policy, tenant, place.host, place.port, plain, ip));
        let (mut targets, mut forbidden) = (Vec::with_capacity(2), None);
        for ip in self.addresses(place.host, deadline).await? {
            match judge(ip) {
                Ok(()) => targets.push(SocketAddr::new(ip, place.port)),
                Err(blocked) => forbidden = Some(blocked),
            }
        }
        if let (true, Some(blocked)) = (targets.is_empty(), forbidden) {
            return Err(blocked);
        }
        let connecting = deadline.bound(connect(targets)).await;
        let tcp = connecting.ok_or(DialError::ConnectTimeout)?.map_err(DialError::Connect)?;
        let peer = tcp.peer_addr().map_err(DialError::Connect)?;
        // The address is one that was judged above: whatever the socket may say, it is judged as what it is.
        judge(peer.ip())?;
        let stream = match place.security {
            Security::Plain => Stream::Plain(tcp),
            Security::Tls { alpn, identity } => {
                let connector = self.tls.connector(alpn, identity).map_err(DialError::TlsSetup)?;
                let handshake = connector.connect(server_name(place.host)?, tcp);
                let shaken = deadline.bound(handshake).await;
                Stream::Tls(Box::new(shaken.ok_or(DialError::ConnectTimeout)?.map_err(DialError::Tls)?))
            }
        };
        Ok(Conn { stream, peer })
    }

    async fn addresses(&self, host: &TargetHost, deadline: Deadline) -> Result<Vec<IpAddr>, DialError> {
        match host {
            TargetHost::Ip(ip) => Ok(vec![*ip]),
            TargetHost::Name(name) => {
                let looking = deadline.bound(self.resolver.resolve(name)).await;
                let mut found = Vec::with_capacity(2);
                for ip in looking.ok_or(ResolveError::TimedOut)?? {
                    if found.len() == ADDRESSES_USED {
                        break;
                    }
                    if !found.contains(&ip) {
                        found.push(ip);
                    }
                }
                if found.is_empty() { Err(ResolveError::Failed.into()) } else { Ok(found) }
            }
        }
    }
}

fn allowed(verdict: Verdict) -> Result<(), DialError> {
    match verdict {
        Verdict::Allow => Ok(()),
        Verdict::Reject { rule, .. } => Err(DialError::Blocked { rule }),
    }
}

/// Connects to the first address that answers: each in its order, the next one beside it when it fails or is slow.
async fn connect(targets: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut waiting = targets.into_iter();
    let mut trying: Vec<Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>> = Vec::new();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        match waiting.next() {
            Some(address) => trying.push(Box::pin(connect_one(address))),
            None if trying.is_empty() => return Err(last),
            None => {}
        }
        let first = poll_fn(|cx| {
            for at in 0..trying.len() {
                if let Poll::Ready(done) = trying[at].as_mut().poll(cx) {
                    drop(trying.swap_remove(at));
                    return Poll::Ready(done);
                }
            }
            Poll::Pending
        });
        let ended = if waiting.len() == 0 {
            first.await
        } else {
            match tokio::time::timeout(NEXT_ADDRESS_AFTER, first).await {
                Ok(ended) => ended,
                Err(_) => continue,
            }
        };
        match ended {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last = error,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that connects")]
async fn connect_one(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    // A socket that reached itself: on loopback the kernel may hand out the wanted port as our own.
    if tcp.local_addr()? == tcp.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

fn server_name(host: &TargetHost) -> Result<ServerName<'static>, DialError> {
    match host {
        TargetHost::Ip(ip) => Ok(ServerName::from(*ip)),
        TargetHost::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| DialError::TlsSetup(rustls::Error::General("the name cannot stand in a certificate".into()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    /// Listens and never accepts: with its queue full, further connects hang.
    fn full(port: u16) -> (Socket, Vec<Socket>) {
        let address = SocketAddr::from(([127, 0, 0, 2], port)).into();
        let socket = |_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let listener = socket(0);
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let filling: Vec<_> = (0..4).map(socket).collect();
        for one in &filling {
            one.set_nonblocking(true).unwrap();
            let _ = one.connect(&address);
        }
        (listener, filling)
    }

    // C9.8
    #[tokio::test]
    async fn addresses_are_tried_in_order_and_a_dead_one_does_not_hold_up_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let _hanging = full(port);
        let target = |last| SocketAddr::from(([127, 0, 0, last], port));
        for (order, wanted) in [(&[1][..], 1), (&[3, 1], 1), (&[2, 1], 1), (&[3, 2, 4, 1], 1)] {
            let tcp = connect(order.iter().map(|last| target(*last)).collect()).await.unwrap();
            assert_eq!(tcp.peer_addr().unwrap(), target(wanted), "{order:?}");
        }
        assert_eq!(connect(vec![target(3), target(4)]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
