//! The API's listeners: TCP, with TLS where it is on, and the command socket.

use super::DaemonError;
use crate::config::{HttpSettings, Settings, Tenancy, TlsFiles};
use crate::http::{self, Api, Ingest, MetricsAccess};
use crate::rules::address::AddressPolicy;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long connections and handlers may finish when the hub stops.
const FINISH: Duration = Duration::from_secs(5);

/// The API and what listens for it.
pub(super) struct Listening {
    api: Arc<Api>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Listening {
    /// An API that nobody listens for yet.
    pub(super) fn new(api: Arc<Api>) -> Self {
        Self { api, stop: CancellationToken::new(), tasks: TaskTracker::new() }
    }

    /// Serves at the command socket.
    pub(super) fn unix(&mut self, listener: UnixListener) {
        self.tasks.spawn(http::serve_unix(self.api.clone(), listener, self.stop.clone()));
    }

    /// Serves on a port.
    pub(super) fn tcp(&mut self, listener: TcpListener, tls: Option<TlsAcceptor>) {
        self.tasks.spawn(http::serve(self.api.clone(), listener, tls, self.stop.clone()));
    }

    /// Answers only what reads.
    pub(super) fn stop_writes(&self) {
        self.api.stop_writes();
    }

    /// Takes no new connections, and lets those that are there finish what they began.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        let finished = async {
            self.tasks.wait().await;
            self.api.finished().await;
        };
        if tokio::time::timeout(FINISH, finished).await.is_err() {
            tracing::warn!("some requests did not finish in time and are cut off");
        }
    }
}

/// Binds the API's port.
///
/// # Errors
/// When it is taken, or not ours to have.
pub fn bind(settings: &HttpSettings) -> Result<std::net::TcpListener, DaemonError> {
    let what = format!("HTTP_LISTEN_ADDR {}", settings.listen);
    http::bind_tcp(settings.listen).map_err(DaemonError::io(what))
}

/// Takes a bound port into the runtime.
pub(super) fn taken(port: std::net::TcpListener) -> std::io::Result<TcpListener> {
    port.set_nonblocking(true)?;
    TcpListener::from_std(port)
}

/// TLS of the API: 1.2 and 1.3, HTTP/2 and HTTP/1.1.
pub(super) fn tls(files: &TlsFiles) -> Result<TlsAcceptor, DaemonError> {
    let wrong = |setting, why: String| DaemonError::Setting { setting, why };
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect);
    let chain = chain.map_err(|error| wrong("HTTP_TLS_CERT", error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| wrong("HTTP_TLS_KEY", error.to_string()))?;
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong("HTTP_TLS_KEY", error.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What the API is told of the settings.
pub(super) fn api_settings(settings: &Settings, destinations: AddressPolicy) -> http::Settings {
    http::Settings {
        tenancy: match &settings.tenancy {
            Tenancy::Single(tenant) => http::Tenancy::Single(tenant.as_str().into()),
            Tenancy::Multi => http::Tenancy::Multi,
        },
        ingest: if settings.http.ingest { Ingest::On } else { Ingest::Off },
        metrics: match (settings.http.metrics, settings.http.metrics_public, settings.http.behind_proxy) {
            (false, _, _) => MetricsAccess::Off,
            (true, true, _) => MetricsAccess::Public,
            // Behind a proxy everybody comes from loopback.
            (true, false, true) => MetricsAccess::Key,
            (true, false, false) => MetricsAccess::LoopbackOrKey,
        },
        records: settings.records,
        destinations,
        secret_overlap: settings.secret_overlap,
        idempotency_ttl: settings.http.idempotency_ttl,
    }
}
