//! The way out: the one dialler with its policy and roots, and the sinks over it.

use super::{DaemonError, addresses, visibility};
use crate::config::Settings;
use crate::net::dial::Dialler;
use crate::net::resolve::SystemResolver;
use crate::net::tls::Roots;
use crate::rules::address::AddressPolicy;
use crate::secrets::Envelope;
use crate::sink::{self, Sinks};
use crate::time::Clock;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where destinations may be: as the operator says, and never the hub itself, which listens at `own`.
pub(super) fn policy(settings: &Settings, own: Option<SocketAddr>) -> AddressPolicy {
    let own_listeners = own.map(addresses::reachable_as).unwrap_or_default();
    AddressPolicy { own_listeners, ..settings.sinks.policy.clone() }
}

/// Sinks under that policy.
pub(super) fn sinks(
    settings: &Settings,
    resting_max: usize,
    policy: AddressPolicy,
    envelope: Arc<Envelope>,
    clock: Arc<dyn Clock>,
) -> Result<Arc<Sinks>, DaemonError> {
    let mut roots = Roots::system();
    if let Some(pem) = &settings.sinks.ca_pem {
        roots
            .add_pem(pem.as_bytes())
            .map_err(|refusal| DaemonError::Setting { setting: "SINK_CA_CERT", why: refusal.to_string() })?;
    }
    let wrong = |why: String| DaemonError::Setting { setting: "SINK_CA_CERT", why };
    let resolver = Arc::new(SystemResolver::new(clock.clone()));
    let dialler = Dialler::new(Arc::new(policy), resolver, roots).map_err(|error| wrong(error.to_string()))?;
    let mut said = sink::Settings::new(visibility(&settings.tenancy), settings.sinks.attempt_timeout);
    said.resting_max = resting_max;
    let sinks = Sinks::new(envelope, Arc::new(dialler), clock, said).map_err(|error| wrong(error.to_string()))?;
    Ok(Arc::new(sinks))
}
