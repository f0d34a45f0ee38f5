//! TLS to destinations: which roots are trusted, a tenant's client certificate, and what a failed handshake means.
//!
//! rustls with the ring provider, passed by hand: nothing depends on which provider a process installed first. TLS 1.2 and 1.3
//! only, and no plaintext fallback of any kind.

use crate::model::attempt::ErrorClass;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Which authorities a destination's certificate may come from.
#[derive(Debug, Clone)]
pub struct Roots(RootCertStore);

/// Why a PEM text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PemRefusal {
    /// Not PEM, or nothing in it.
    #[error("no PEM certificate can be read")]
    NoCertificate,
    /// A certificate that is no valid authority.
    #[error("a certificate in it cannot be used as an authority")]
    NotAnAuthority,
    /// Not one PEM private key.
    #[error("no PEM private key can be read")]
    NoKey,
    /// The key and the certificate do not belong together, or the key is of a kind that is not supported.
    #[error("the private key does not fit the certificate")]
    Mismatch,
}

impl Roots {
    /// No authority at all.
    pub fn none() -> Self {
        Self(RootCertStore::empty())
    }

    /// The machine's own authorities. Files that cannot be read are logged and left out.
    pub fn system() -> Self {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a system certificate file cannot be read");
        }
        let mut store = RootCertStore::empty();
        let (added, ignored) = store.add_parsable_certificates(found.certs);
        if added == 0 {
            tracing::warn!("the machine has no certificate authorities: https destinations need SINK_CA_CERT");
        }
        tracing::debug!(added, ignored, "system certificate authorities read");
        Self(store)
    }

    /// Adds every certificate of a PEM text (`SINK_CA_CERT`).
    ///
    /// # Errors
    /// When there is none, or one cannot be used.
    pub fn add_pem(&mut self, pem: &[u8]) -> Result<(), PemRefusal> {
        for certificate in certificates(pem)? {
            self.0.add(certificate).map_err(|_| PemRefusal::NotAnAuthority)?;
        }
        Ok(())
    }
}

/// What a tenant proves itself with to its receiver (C9.9). Made for one handshake and dropped after it.
#[derive(Debug, Clone)]
pub struct ClientIdentity(Arc<SingleCertAndKey>);

impl ClientIdentity {
    /// Reads a chain, leaf first, and its private key.
    ///
    /// # Errors
    /// When either cannot be read, or they do not belong together.
    pub fn from_pem(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, PemRefusal> {
        let chain = certificates(chain_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| PemRefusal::NoKey)?;
        let pair = CertifiedKey::from_der(chain, key, &provider()).map_err(|_| PemRefusal::Mismatch)?;
        Ok(Self(Arc::new(SingleCertAndKey::from(pair))))
    }
}

/// Which protocols are offered by ALPN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2, then HTTP/1.1.
    Http,
    /// None.
    Nothing,
}

impl Alpn {
    fn offered(self) -> Vec<Vec<u8>> {
        match self {
            Alpn::Http => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            Alpn::Nothing => Vec::new(),
        }
    }
}

/// Makes TLS sessions towards destinations.
pub(super) struct TlsClient {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    http: Arc<ClientConfig>,
    nothing: Arc<ClientConfig>,
}

impl TlsClient {
    /// With those roots. With none at all every handshake fails as [`ErrorClass::Certificate`].
    pub(super) fn new(roots: Roots) -> Result<Self, rustls::Error> {
        let (provider, roots) = (provider(), Arc::new(roots.0));
        let http = anonymous(&provider, &roots, Alpn::Http)?;
        let nothing = anonymous(&provider, &roots, Alpn::Nothing)?;
        Ok(Self { provider, roots, http, nothing })
    }

    /// A connector that shows that identity, if any.
    pub(super) fn connector(
        &self,
        alpn: Alpn,
        identity: Option<&ClientIdentity>,
    ) -> Result<TlsConnector, rustls::Error> {
        let config = match (identity, alpn) {
            (None, Alpn::Http) => self.http.clone(),
            (None, Alpn::Nothing) => self.nothing.clone(),
            // Its own configuration: sessions resumed under one tenant's certificate are never another's.
            (Some(identity), alpn) => {
                let mut config = ClientConfig::builder_with_provider(self.provider.clone())
                    .with_safe_default_protocol_versions()?
                    .with_root_certificates(self.roots.clone())
                    .with_client_cert_resolver(identity.0.clone());
                config.alpn_protocols = alpn.offered();
                Arc::new(config)
            }
        };
        Ok(TlsConnector::from(config))
    }
}

/// What went wrong under TLS, where that is what it was: a certificate, or the handshake or the records themselves.
pub fn classify(error: &io::Error) -> Option<ErrorClass> {
    let tls = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match tls {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => ErrorClass::Certificate,
        // Not our enum: whatever else rustls says is TLS going wrong.
        _ => ErrorClass::Tls,
    })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn anonymous(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    alpn: Alpn,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = alpn.offered();
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemRefusal> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or(PemRefusal::NoCertificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["receiver.test".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    // C9.9
    #[test]
    fn client_certificates_and_roots_are_read_or_refused_with_a_reason() {
        let ((chain, key), (_, other)) = (pair(), pair());
        let identity = |chain: &str, key: &str| ClientIdentity::from_pem(chain.as_bytes(), key.as_bytes()).err();
        assert_eq!(identity(&chain, &key), None);
        assert_eq!(identity(&chain, &other), Some(PemRefusal::Mismatch));
        assert_eq!(identity("", &key), Some(PemRefusal::NoCertificate));
        assert_eq!(identity(&chain, "not a key"), Some(PemRefusal::NoKey));
        assert_eq!(identity(&key, &key), Some(PemRefusal::NoCertificate));

        let mut roots = Roots::none();
        assert_eq!(roots.add_pem(chain.as_bytes()), Ok(()));
        assert_eq!(roots.add_pem(b""), Err(PemRefusal::NoCertificate));
        let nonsense = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(roots.add_pem(nonsense), Err(PemRefusal::NotAnAuthority));
    }

    #[test]
    fn only_tls_errors_are_classified_as_tls() {
        let tls = |error: rustls::Error| classify(&io::Error::new(io::ErrorKind::InvalidData, error));
        assert_eq!(tls(rustls::CertificateError::Expired.into()), Some(ErrorClass::Certificate));
        assert_eq!(tls(rustls::Error::NoCertificatesPresented), Some(ErrorClass::Certificate));
        assert_eq!(tls(rustls::Error::DecryptError), Some(ErrorClass::Tls));
        assert_eq!(classify(&io::ErrorKind::ConnectionReset.into()), None);
    }
}
