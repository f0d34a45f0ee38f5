//! JSON bodies of the API (A1.4, A1.9): what a subscription is created and patched with, and how it is shown.
//!
//! The input is two JSON texts, the second behind a line `---`: a body of a create, and a patch of what it made.

use super::tenant;
use streaming_hub::http::doors::Tenant;
use streaming_hub::model::limits::{
    EVENT_TYPES_PER_SUBSCRIPTION, EXTRA_HEADERS, MAX_IN_FLIGHT, METADATA_ENTRIES, NAME_BYTES, RETRY_STEP_MAX_MS,
    RETRY_STEPS, URL_BYTES,
};
use streaming_hub::model::subscription::{DeliveryOrder, Sink, StartFrom, Subscription};
use streaming_hub::rules::address::{judge_target, parse_webhook_url};
use streaming_hub::rules::extra_header;

pub(super) fn run(data: &[u8]) {
    let tenant = tenant();
    let (body, patch) = match data.windows(5).position(|window| window == b"\n---\n") {
        Some(at) => (&data[..at], &data[at + 5..]),
        None => (data, &b"{}"[..]),
    };
    let Some(created) = tenant.create(body) else { return };
    settled(tenant, &created);
    if let Some(patched) = tenant.patch(&created, patch) {
        settled(tenant, &patched);
        let twice = tenant.patch(&patched, patch).expect("a patch that was taken is taken again");
        assert_eq!(bare(twice), bare(patched), "a merge patch laid over its own work changes nothing");
    }
}

/// What was accepted keeps every ceiling, and what is shown of it makes it again.
fn settled(tenant: &Tenant, subscription: &Subscription) {
    within_limits(tenant, subscription);
    let shown = tenant.shown(subscription);
    let text = serde_json::to_vec(&shown).unwrap();
    for patch in [&b"{}"[..], &text] {
        let same = tenant.patch(subscription, patch).unwrap_or_else(|| panic!("{shown}"));
        assert_eq!(same.spec, subscription.spec, "{}", String::from_utf8_lossy(patch));
    }
    // A client key is never shown, so what is shown can be created again only without one.
    let Sink::Webhook(webhook) = &subscription.spec.sink;
    if webhook.client_certificate.is_none() {
        let again = tenant.create(&text).unwrap_or_else(|| panic!("{shown}"));
        assert_eq!(again.spec, subscription.spec, "{shown}");
    }
}

fn within_limits(tenant: &Tenant, subscription: &Subscription) {
    let spec = &subscription.spec;
    assert!((1..=NAME_BYTES).contains(&spec.name.len()), "{:?}", spec.name);
    assert!((1..=EVENT_TYPES_PER_SUBSCRIPTION).contains(&spec.event_types.len()));
    assert!((1..=MAX_IN_FLIGHT).contains(&spec.max_in_flight));
    assert!(spec.max_in_flight == 1 || spec.delivery_order == DeliveryOrder::Parallel);
    assert!(spec.metadata.len() <= METADATA_ENTRIES);
    if let Some(steps) = &spec.retry_schedule {
        assert!((1..=RETRY_STEPS).contains(&steps.len()) && steps.iter().all(|step| *step <= RETRY_STEP_MAX_MS));
    }
    assert!(!matches!(spec.start_from, StartFrom::Seq(0)));
    let Sink::Webhook(webhook) = &spec.sink;
    assert!(webhook.url.len() <= URL_BYTES && webhook.headers.len() <= EXTRA_HEADERS);
    assert!(webhook.timeout_ms.is_none_or(|ms| (1000..=60_000).contains(&ms)));
    assert!(webhook.headers.iter().all(|(name, value)| extra_header::check(name, value).is_ok()));
    let target = parse_webhook_url(&webhook.url).unwrap();
    assert_eq!(target.url, webhook.url);
    assert!(judge_target(&tenant.destinations, &tenant.name, target.https, &target.host, target.port).is_allowed());
}

/// Without the sealed key, which is sealed anew each time.
fn bare(subscription: Subscription) -> Subscription {
    let mut bare = subscription;
    let Sink::Webhook(webhook) = &mut bare.spec.sink;
    webhook.client_certificate = None;
    bare
}
