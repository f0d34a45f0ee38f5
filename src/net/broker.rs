//! Connections to Kafka brokers: plain TCP, or TLS with the operator's CA or the system's.
//!
//! Brokers are named by the operator and by each other, not by tenants, so the address policy of sinks (C9.8) does not judge them.
//! Invariant: a dial ends within [`DIAL_LIMIT`], and a peer that vanishes without a word is noticed by the socket itself
//! (keepalive, and a limit on unacknowledged bytes), whatever the caller waits for.

use base64::Engine as _;
use rustls::ClientConfig;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A whole dial: lookup, TCP and TLS.
pub const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// Sent bytes that nobody acknowledged for so long end the connection.
const UNACKNOWLEDGED_LIMIT: Duration = Duration::from_secs(30);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The endpoint is no `host:port`.
    #[error("{0:?} is not host:port")]
    Endpoint(String),
    /// The name has no address.
    #[error("cannot look up {host}: {why}")]
    Lookup {
        /// The name.
        host: String,
        /// What the resolver said.
        why: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// It took longer than [`DIAL_LIMIT`].
    #[error("no connection within {} s", DIAL_LIMIT.as_secs())]
    Timeout,
    /// The certificate is not trusted, expired, or names another host.
    #[error("certificate refused: {0}")]
    Certificate(rustls::Error),
    /// TLS failed in another way: often the listener speaks no TLS.
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
}

/// How to speak TLS with brokers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BrokerTls {
    config: Arc<ClientConfig>,
}

/// Why the CA setting cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CaError {
    /// It is neither PEM nor base64 of PEM.
    #[error("neither PEM nor base64 of PEM with a certificate in it")]
    NotPem,
    /// A certificate in it cannot be a root.
    #[error("not a usable certificate: {0}")]
    NotRoot(String),
    /// The machine has no root certificates.
    #[error("no root certificates on this machine; give a CA")]
    NoSystemRoots,
}

impl BrokerTls {
    /// Trusts the given CA (PEM, or base64 of PEM), else the machine's roots.
    ///
    /// # Errors
    /// When the CA cannot be used, or the machine has no roots.
    pub fn new(ca: Option<&str>) -> Result<Self, CaError> {
        let mut roots = rustls::RootCertStore::empty();
        match ca {
            Some(ca) => {
                for certificate in certificates(ca)? {
                    roots.add(certificate).map_err(|why| CaError::NotRoot(why.to_string()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(CaError::NoSystemRoots);
                }
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| CaError::NotRoot(why.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { config: Arc::new(config) })
    }
}

fn certificates(ca: &str) -> Result<Vec<CertificateDer<'static>>, CaError> {
    let pem = if ca.contains("-----BEGIN") {
        ca.as_bytes().to_vec()
    } else {
        let compact: String = ca.split_whitespace().collect();
        base64::engine::general_purpose::STANDARD.decode(compact).map_err(|_| CaError::NotPem)?
    };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or(CaError::NotPem)
}

/// Connects to `host:port`, with TLS when given.
///
/// # Errors
/// See [`DialError`].
pub async fn dial(endpoint: &str, tls: Option<&BrokerTls>) -> Result<BrokerStream, DialError> {
    let (host, port) = split(endpoint).ok_or_else(|| DialError::Endpoint(endpoint.to_owned()))?;
    timeout(DIAL_LIMIT, async {
        let tcp = connect(host, port).await?;
        let Some(tls) = tls else { return Ok(BrokerStream::Plain(tcp)) };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| DialError::Endpoint(endpoint.to_owned()))?;
        let connector = tokio_rustls::TlsConnector::from(tls.config.clone());
        let stream = connector.connect(name, tcp).await.map_err(refused)?;
        Ok(BrokerStream::Tls(Box::new(stream)))
    })
    .await
    .unwrap_or(Err(DialError::Timeout))
}

fn split(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host, port.parse().ok()?))
}

#[expect(clippy::disallowed_methods, reason = "net/ is the one place that resolves and connects")]
async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let found = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = found.map_err(|why| DialError::Lookup { host: host.to_owned(), why })?.collect();
    let share = DIAL_LIMIT / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) if is_itself(&stream) => last = io::ErrorKind::ConnectionRefused.into(),
            Ok(Ok(stream)) => return tuned(stream).map_err(DialError::Connect),
            Ok(Err(why)) => last = why,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(DialError::Connect(last))
}

/// A dial to a dead port of the ephemeral range can meet its own socket.
fn is_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

fn tuned(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_LIMIT))?;
    Ok(stream)
}

fn refused(why: io::Error) -> DialError {
    match why.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => DialError::Certificate(error.clone()),
        _ => DialError::Tls(why),
    }
}

/// A connection to a broker.
#[derive(Debug)]
pub enum BrokerStream {
    /// Plain TCP.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl AsyncRead for BrokerStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for BrokerStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn endpoints_are_host_and_port() {
        for (endpoint, want) in [
            ("kafka-1.bank.local:9092", Some(("kafka-1.bank.local", 9092))),
            ("10.0.0.7:9092", Some(("10.0.0.7", 9092))),
            ("[::1]:9092", Some(("::1", 9092))),
            ("kafka", None),
            (":9092", None),
            ("kafka:port", None),
            ("kafka:70000", None),
        ] {
            assert_eq!(split(endpoint), want, "{endpoint}");
        }
    }

    struct Listening {
        endpoint: String,
        ca_pem: String,
    }

    /// A TLS listener with a certificate for `localhost` that says `hello` to each caller.
    async fn listening() -> Listening {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("localhost:{}", listener.local_addr().unwrap().port());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                if let Ok(mut stream) = acceptor.accept(tcp).await {
                    stream.write_all(b"hello").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            }
        });
        Listening { endpoint, ca_pem: made.cert.pem() }
    }

    #[tokio::test]
    async fn the_given_ca_is_trusted_for_its_own_name_only() {
        let Listening { endpoint, ca_pem } = listening().await;
        for ca in [ca_pem.clone(), base64::engine::general_purpose::STANDARD.encode(&ca_pem)] {
            let tls = BrokerTls::new(Some(&ca)).unwrap();
            let mut stream = dial(&endpoint, Some(&tls)).await.unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "hello");
        }
        let tls = BrokerTls::new(Some(&ca_pem)).unwrap();
        let other_name = endpoint.replace("localhost", "127.0.0.1");
        assert!(matches!(dial(&other_name, Some(&tls)).await, Err(DialError::Certificate(_))), "another name");
        let stranger = listening().await.ca_pem;
        let tls = BrokerTls::new(Some(&stranger)).unwrap();
        assert!(matches!(dial(&endpoint, Some(&tls)).await, Err(DialError::Certificate(_))), "another CA");
    }

    #[tokio::test]
    async fn what_is_not_there_is_told() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        assert!(matches!(dial(&gone.to_string(), None).await, Err(DialError::Connect(_))));
        assert!(matches!(dial("nonsense", None).await, Err(DialError::Endpoint(_))));
        assert_eq!(BrokerTls::new(Some("nonsense!")).unwrap_err(), CaError::NotPem);
        assert_eq!(BrokerTls::new(Some("")).unwrap_err(), CaError::NotPem);
    }
}
