//! TLS of the API's listener, when the operator gives a certificate and its key.

use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Why a certificate and a key cannot be served with.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate file holds none.
    #[error("the certificate must be PEM, the leaf first, then those between it and the root")]
    Certificate,
    /// The key file holds none.
    #[error("the key must be PEM of one private key, not encrypted")]
    Key,
    /// They do not go together, or the key is of a kind that is not known.
    #[error("certificate and key cannot be used: {0}")]
    Pair(#[from] rustls::Error),
}

/// An acceptor for HTTP/2 and HTTP/1.1, TLS 1.2 and later.
///
/// # Errors
/// See [`TlsError`].
pub fn tls_acceptor(certificate_pem: &[u8], key_pem: &[u8]) -> Result<TlsAcceptor, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate_pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::Certificate)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
