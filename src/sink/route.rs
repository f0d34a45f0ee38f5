//! A webhook destination made ready: its URL read, its fixed header lines checked, the key of its connections.
//!
//! Reading a URL for every attempt would cost more than signing does, so a route is kept while the subscription is the very same
//! object. A change makes a new object and thereby a new route: nothing is remembered beyond a change.

use crate::model::attempt::ErrorClass;
use crate::model::ids::SubscriptionId;
use crate::model::subscription::{ClientCertificate, Subscription, WebhookSink};
use crate::rules::address::{HttpTarget, parse_webhook_url};
use crate::rules::extra_header;
use crate::sink::pool::Key;
use http::{HeaderName, HeaderValue, Uri};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Routes kept. Beyond it all are forgotten, which costs reading them again.
const ROUTES: usize = 16_384;

/// A destination made ready.
pub(super) struct Route {
    pub(super) target: HttpTarget,
    pub(super) key: Arc<Key>,
    /// As HTTP/1.1 sends it: path and query.
    pub(super) path: Uri,
    /// As HTTP/2 sends it: whole.
    pub(super) whole: Uri,
    pub(super) host: HeaderValue,
    pub(super) extra: Vec<(HeaderName, HeaderValue)>,
}

impl Route {
    /// Reads a destination. One that cannot be read was stored under other rules: it is blocked like any other forbidden place.
    pub(super) fn read(tenant: &str, webhook: &WebhookSink) -> Result<Self, ErrorClass> {
        let target = parse_webhook_url(&webhook.url).map_err(|_| ErrorClass::DestinationBlocked)?;
        let scheme = if target.https { "https" } else { "http" };
        let whole = format!("{scheme}://{}{}", target.authority, target.path_and_query);
        let readable = |text: &str| text.parse::<Uri>().map_err(|_| ErrorClass::DestinationBlocked);
        Ok(Self {
            key: Arc::new(Key {
                tenant: tenant.to_owned(),
                origin: format!("{scheme}://{}:{}", target.authority, target.port),
                identity: webhook.client_certificate.as_ref().map(digest),
            }),
            path: readable(&target.path_and_query)?,
            whole: readable(&whole)?,
            host: HeaderValue::from_str(&target.authority).map_err(|_| ErrorClass::DestinationBlocked)?,
            extra: webhook.headers.iter().filter_map(|(name, value)| extra(name, value)).collect(),
            target,
        })
    }
}

/// The routes in use.
#[derive(Default)]
pub(super) struct Routes {
    known: Mutex<HashMap<SubscriptionId, Known>>,
}

struct Known {
    /// Of which object. A weak pointer keeps the address from being given to another one, so that equal addresses mean the same.
    of: Weak<Subscription>,
    route: Arc<Route>,
}

impl Routes {
    /// The route of that very subscription object.
    pub(super) fn of(&self, subscription: &Arc<Subscription>, webhook: &WebhookSink) -> Result<Arc<Route>, ErrorClass> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&subscription.id)
            && std::ptr::eq(known.of.as_ptr(), Arc::as_ptr(subscription))
        {
            return Ok(known.route.clone());
        }
        let route = Arc::new(Route::read(&subscription.tenant, webhook)?);
        if known.len() >= ROUTES {
            known.clear();
        }
        known.insert(subscription.id, Known { of: Arc::downgrade(subscription), route: route.clone() });
        Ok(route)
    }
}

/// A stored line that today's rules refuse is left out rather than sent. Its value may be a credential: no log and no compression
/// state may hold it.
fn extra(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    extra_header::check(name, value).ok()?;
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
}

fn digest(certificate: &ClientCertificate) -> [u8; 32] {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    context.update(&(certificate.chain_pem.len() as u64).to_be_bytes());
    context.update(certificate.chain_pem.as_bytes());
    context.update(&certificate.key.0);
    let mut out = [0u8; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}
