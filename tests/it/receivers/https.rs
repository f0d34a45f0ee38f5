//! Honest receivers: hyper over plain TCP or rustls, HTTP/1.1 and HTTP/2, recording every request that reaches them.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A certificate authority of a test.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for those names, valid now.
    pub(crate) fn certificate(&self, names: &[&str]) -> Certified {
        self.valid(names, 2019, 2099)
    }

    /// One that is valid from the first day of one year to that of another.
    pub(crate) fn valid(&self, names: &[&str], from: i32, until: i32) -> Certified {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certified { pem: certificate.pem(), der: certificate.der().clone(), key }
    }
}

/// A certificate and its key.
pub(crate) struct Certified {
    pub(crate) pem: String,
    pub(crate) der: CertificateDer<'static>,
    pub(crate) key: KeyPair,
}

/// One that nobody signed but itself.
pub(crate) fn self_signed(name: &str) -> Certified {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Certified { pem: made.cert.pem(), der: made.cert.der().clone(), key: made.signing_key }
}

/// A server's TLS settings: that certificate, those protocols, and whose clients it demands certificates of.
pub(crate) fn server_tls(own: &Certified, alpn: &[&str], clients_of: Option<&Authority>) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
    let builder = match clients_of {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(authority.0.der().clone()).unwrap();
            let verifier =
                rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_single_cert(vec![own.der.clone()], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A request as it came.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) version: http::Version,
    pub(crate) method: http::Method,
    pub(crate) uri: http::Uri,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    /// The socket it came from: one per connection.
    pub(crate) from: SocketAddr,
}

impl Got {
    /// Every value of a header, in order.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
    }

    /// The one value of a header.
    pub(crate) fn one(&self, name: &str) -> &str {
        match self.all(name)[..] {
            [one] => one,
            ref other => panic!("{name}: {other:?}"),
        }
    }
}

/// What a receiver answers; none keeps the asker waiting for ever.
pub(crate) type Answer = dyn Fn(&Got) -> Option<http::Response<Full<Bytes>>> + Send + Sync;

/// A running receiver; stops when dropped.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    pub(crate) requests: mpsc::UnboundedReceiver<Got>,
    _tasks: JoinSet<()>,
}

impl Receiver {
    /// Answers 200 to everything.
    pub(crate) async fn ok(tls: Option<Arc<ServerConfig>>) -> Self {
        Self::start(tls, |_| Some(http::Response::default())).await
    }

    pub(crate) async fn start(
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&Got) -> Option<http::Response<Full<Bytes>>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::unbounded_channel();
        let answer: Arc<Answer> = Arc::new(answer);
        let acceptor = tls.map(TlsAcceptor::from);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (tcp, from) = listener.accept().await.unwrap();
                tcp.set_nodelay(true).unwrap();
                let (sender, answer, acceptor) = (sender.clone(), answer.clone(), acceptor.clone());
                connections.spawn(async move {
                    let serve = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                        let (sender, answer) = (sender.clone(), answer.clone());
                        async move {
                            let (head, body) = request.into_parts();
                            let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                            let (version, method, uri) = (head.version, head.method, head.uri);
                            let got = Got { version, method, uri, headers: head.headers, body, from };
                            let answer = answer(&got);
                            let _ = sender.send(got);
                            match answer {
                                Some(answer) => Ok::<_, Infallible>(answer),
                                None => std::future::pending().await,
                            }
                        }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    match acceptor {
                        None => drop(server.serve_connection(TokioIo::new(tcp), serve).await),
                        Some(acceptor) => {
                            if let Ok(tls) = acceptor.accept(tcp).await {
                                drop(server.serve_connection(TokioIo::new(tls), serve).await);
                            }
                        }
                    }
                });
            }
        });
        Self { address, requests, _tasks: tasks }
    }

    pub(crate) async fn next(&mut self) -> Got {
        self.requests.recv().await.unwrap()
    }

    /// How many requests came and were not looked at.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.len()
    }
}
