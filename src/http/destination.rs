//! Whether a destination may be what a tenant says: its URL's spelling, the address policy, and a client certificate's parts.
//!
//! A name is judged here without resolving it, so that a typing error is told at once; the one dial judges again, with addresses,
//! at every attempt (C9.8).

use crate::http::form::Faults;
use crate::http::spec::Asker;
use crate::rules::address::{Verdict, judge_target, parse_webhook_url};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A URL in its canonical spelling, if the hub may post there.
pub(crate) fn check(asker: Asker<'_>, url: &str, pointer: String, faults: &mut Faults) -> Option<String> {
    let target = match parse_webhook_url(url) {
        Ok(target) => target,
        Err(refusal) => {
            faults.add_rule(pointer, refusal.rule(), refusal.to_string());
            return None;
        }
    };
    match judge_target(asker.destinations, asker.tenant, target.https, &target.host, target.port) {
        Verdict::Allow => Some(target.url),
        Verdict::Reject { rule, detail } => {
            faults.add_rule(pointer, rule, detail);
            None
        }
    }
}

/// Whether a chain and a key belong together and could sign a handshake.
pub(crate) fn check_certificate(chain_pem: &str, key_pem: &str) -> Result<(), &'static str> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain_pem.as_bytes()).collect();
    let chain =
        chain.ok().filter(|chain| !chain.is_empty()).ok_or("this must be PEM of certificates, the leaf first")?;
    let key =
        PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| "the key must be PEM of one private key")?;
    let key = any_supported_type(&key).map_err(|_| "the key must be an RSA, ECDSA or Ed25519 key")?;
    CertifiedKey::new(chain, key).keys_match().map_err(|_| "the key must be that of the first certificate")
}

#[cfg(test)]
mod tests {
    use super::*;

    // C9.9
    #[test]
    fn a_client_certificate_needs_its_own_key() {
        let made = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let (chain, key) = made("client.example.com");
        let (_, other_key) = made("other.example.com");
        assert_eq!(check_certificate(&chain, &key), Ok(()));
        assert!(check_certificate(&chain, &other_key).is_err());
        assert!(check_certificate(&key, &chain).is_err());
        assert!(check_certificate("", "").is_err());
    }
}
