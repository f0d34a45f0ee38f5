//! Which live subscriptions want an event. An index over exact event types; everything else is asked one by one.
//!
//! Invariant: it holds exactly the subscriptions that are enabled and active (C4.2); `rules::matching` has the last word on each.

use crate::model::event::Event;
use crate::model::ids::{SubNo, TenantNo};
use crate::model::subscription::{EventPattern, Subscription};
use crate::rules::matching;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Live subscriptions by tenant.
#[derive(Debug, Default)]
pub(super) struct Matcher {
    tenants: HashMap<TenantNo, OfTenant>,
}

#[derive(Debug, Default)]
struct OfTenant {
    exact: HashMap<Box<str>, HashMap<Box<str>, BTreeSet<SubNo>>>,
    patterns: BTreeSet<SubNo>,
    subs: HashMap<SubNo, Arc<Subscription>>,
}

impl Matcher {
    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.tenants.clear();
    }

    /// Takes a live subscription in, in place of what it was before.
    pub(super) fn add(&mut self, subscription: &Arc<Subscription>) {
        self.remove(subscription.tenant_no, subscription.no);
        let tenant = self.tenants.entry(subscription.tenant_no).or_default();
        for pattern in &subscription.spec.event_types {
            match pattern {
                EventPattern::Exact(resource, event) => {
                    let of_resource = tenant.exact.entry(resource.as_str().into()).or_default();
                    of_resource.entry(event.as_str().into()).or_default().insert(subscription.no);
                }
                EventPattern::Resource(_) | EventPattern::Event(_) | EventPattern::All => {
                    tenant.patterns.insert(subscription.no);
                }
            }
        }
        tenant.subs.insert(subscription.no, subscription.clone());
    }

    /// Lets a subscription go.
    pub(super) fn remove(&mut self, tenant_no: TenantNo, no: SubNo) {
        let Some(tenant) = self.tenants.get_mut(&tenant_no) else { return };
        let Some(subscription) = tenant.subs.remove(&no) else { return };
        tenant.patterns.remove(&no);
        for pattern in &subscription.spec.event_types {
            if let EventPattern::Exact(resource, event) = pattern
                && let Some(of_resource) = tenant.exact.get_mut(resource.as_str())
            {
                if let Some(subs) = of_resource.get_mut(event.as_str()) {
                    subs.remove(&no);
                }
                of_resource.retain(|_, subs| !subs.is_empty());
                if of_resource.is_empty() {
                    tenant.exact.remove(resource.as_str());
                }
            }
        }
        if tenant.subs.is_empty() {
            self.tenants.remove(&tenant_no);
        }
    }

    /// The subscriptions that want an event of that tenant, each once (C4.1, C4.4).
    pub(super) fn matching(&self, tenant: TenantNo, event: &Event) -> Vec<Arc<Subscription>> {
        let Some(tenant) = self.tenants.get(&tenant) else { return Vec::new() };
        let exact = tenant.exact.get(&event.resource).and_then(|of_resource| of_resource.get(&event.event));
        let candidates: BTreeSet<SubNo> = exact.into_iter().flatten().chain(&tenant.patterns).copied().collect();
        let subs = candidates.iter().filter_map(|no| tenant.subs.get(no));
        subs.filter(|sub| matching::matches(&sub.spec, event)).cloned().collect()
    }
}
