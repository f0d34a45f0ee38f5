//! Doors for the fuzz targets: what a tenant's JSON makes of a subscription, without a server around it.
//!
//! Built with the feature `fuzz-doors` only. Nothing is decided here: each door leads to the function that the handler calls.

use crate::http::change::{patched, settable};
use crate::http::create::{as_it_will_be, wanted};
use crate::http::json;
use crate::http::spec::Asker;
use crate::model::ids::SubscriptionId;
use crate::model::subscription::{Sealed, SigningSecrets, Spec, Subscription};
use crate::rules::address::AddressPolicy;
use crate::secrets::Envelope;
use crate::time::Timestamp;
use serde_json::Value;
use std::fmt;

/// A tenant at the API.
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Where its webhooks may go.
    pub destinations: AddressPolicy,
    /// Seals its client keys.
    pub envelope: Envelope,
    /// Now.
    pub at: Timestamp,
}

impl Tenant {
    /// What a `POST /v1/subscriptions` with that body makes; none where it is refused.
    pub fn create(&self, body: &[u8]) -> Option<Subscription> {
        let body = json::parse(body).ok()?;
        let (spec, _) = wanted(self.asker(), ID, &body).ok()?;
        Some(self.of(spec))
    }

    /// What a `PATCH` with that body makes of it; none where it is refused.
    pub fn patch(&self, stored: &Subscription, patch: &[u8]) -> Option<Subscription> {
        let patch = json::parse(patch).ok()?;
        let (spec, _) = patched(self.asker(), stored, &patch).ok()?;
        Some(self.of(spec))
    }

    /// What is shown of it, as far as a tenant may set it.
    pub fn shown(&self, subscription: &Subscription) -> Value {
        settable(subscription)
    }

    fn of(&self, spec: Spec) -> Subscription {
        let secrets = SigningSecrets { current: Sealed(Vec::new()), previous: None };
        as_it_will_be(&self.name, ID, spec, secrets, self.at)
    }

    fn asker(&self) -> Asker<'_> {
        let Self { name, destinations, envelope, at } = self;
        Asker { tenant: name, destinations, envelope, at: *at }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.name).finish_non_exhaustive()
    }
}

const ID: SubscriptionId = SubscriptionId([7; 16]);
