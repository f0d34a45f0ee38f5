//! What the writer shows to readers: subscriptions and API keys as they were last committed.
//!
//! Invariant: an entry is written before the answer of the command that changed it is given, so a change is obeyed by every
//! attempt that starts after its call returned (C5.5).

use crate::model::api_key::ApiKey;
use crate::model::ids::{KeyId, SubNo, SubscriptionId};
use crate::model::subscription::Subscription;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

/// Shared by the writer (who changes it) and everybody else (who reads it).
#[derive(Debug, Default)]
pub struct Board {
    shown: RwLock<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    by_no: HashMap<SubNo, Arc<Subscription>>,
    by_tenant: BTreeMap<String, BTreeMap<SubscriptionId, Arc<Subscription>>>,
    keys: BTreeMap<KeyId, Arc<ApiKey>>,
}

impl Board {
    /// The subscription of that number.
    pub fn subscription(&self, no: SubNo) -> Option<Arc<Subscription>> {
        self.read(|shown| shown.by_no.get(&no).cloned())
    }

    /// A tenant's subscription by its public id.
    pub fn subscription_of(&self, tenant: &str, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.read(|shown| shown.by_tenant.get(tenant)?.get(&id).cloned())
    }

    /// A subscription by its public id, whosever it is: for operators.
    pub fn subscription_by_id(&self, id: SubscriptionId) -> Option<Arc<Subscription>> {
        self.read(|shown| shown.by_tenant.values().find_map(|of_tenant| of_tenant.get(&id)).cloned())
    }

    /// A tenant's subscriptions, newest first, those made before `before`, at most `limit`.
    pub fn subscriptions_of(
        &self,
        tenant: &str,
        before: Option<SubscriptionId>,
        limit: usize,
    ) -> Vec<Arc<Subscription>> {
        self.read(|shown| {
            let Some(all) = shown.by_tenant.get(tenant) else { return Vec::new() };
            let upto = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            all.range((std::ops::Bound::Unbounded, upto)).rev().take(limit).map(|(_, s)| s.clone()).collect()
        })
    }

    /// How many subscriptions a tenant has.
    pub fn subscription_count(&self, tenant: &str) -> usize {
        self.read(|shown| shown.by_tenant.get(tenant).map_or(0, BTreeMap::len))
    }

    /// An API key by its id.
    pub fn api_key(&self, id: KeyId) -> Option<Arc<ApiKey>> {
        self.read(|shown| shown.keys.get(&id).cloned())
    }

    /// All API keys, newest first, those made before `before`, at most `limit`.
    pub fn api_keys(&self, before: Option<KeyId>, limit: usize) -> Vec<Arc<ApiKey>> {
        self.read(|shown| {
            let upto = before.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            shown.keys.range((std::ops::Bound::Unbounded, upto)).rev().take(limit).map(|(_, k)| k.clone()).collect()
        })
    }

    /// Shows a subscription as it is now.
    pub(crate) fn show(&self, subscription: &Arc<Subscription>) {
        self.write(|shown| {
            shown.by_no.insert(subscription.no, subscription.clone());
            let of_tenant = shown.by_tenant.entry(subscription.tenant.clone()).or_default();
            of_tenant.insert(subscription.id, subscription.clone());
        });
    }

    /// Shows a subscription no more.
    pub(crate) fn hide(&self, subscription: &Subscription) {
        self.write(|shown| {
            shown.by_no.remove(&subscription.no);
            if let Some(of_tenant) = shown.by_tenant.get_mut(&subscription.tenant) {
                of_tenant.remove(&subscription.id);
                if of_tenant.is_empty() {
                    shown.by_tenant.remove(&subscription.tenant);
                }
            }
        });
    }

    /// Shows an API key as it is now.
    pub(crate) fn show_key(&self, key: ApiKey) {
        self.write(|shown| {
            shown.keys.insert(key.id, Arc::new(key));
        });
    }

    /// Forgets everything, before a reload from the store.
    pub(crate) fn clear(&self) {
        self.write(|shown| *shown = Shown::default());
    }

    // A reader that panicked leaves the maps whole: each change is one insert or remove.
    fn read<T>(&self, f: impl FnOnce(&Shown) -> T) -> T {
        f(&self.shown.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, f: impl FnOnce(&mut Shown) -> T) -> T {
        f(&mut self.shown.write().unwrap_or_else(PoisonError::into_inner))
    }
}
