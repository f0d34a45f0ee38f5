//! The header lines of a delivery (C9.1 to C9.4, C9.7, C9.9).
//!
//! Values of ours that came from an event are percent-encoded as the CloudEvents HTTP binding does: a space, a quote, a percent sign
//! and whatever is not printable ASCII. So a receiver decodes every one of them in the same way, and no value can end a line.
//! No `Accept-Encoding` is sent and nothing is decompressed: the answer is read for the log only.

use crate::model::attempt::ErrorClass;
use crate::model::job::Cause;
use crate::model::subscription::{SIGNING_SECRET_FIELD, SignatureFormat, Subscription};
use crate::rules::signature;
use crate::secrets::{Envelope, Scope};
use crate::sink::{Delivery, TenantVisibility};
use crate::time::Timestamp;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;
use zeroize::Zeroizing;

macro_rules! names {
    ($($name:ident $text:literal,)*) => {
        $(const $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    WEBHOOK_TIMESTAMP "x-webhook-timestamp",
    WEBHOOK_SIGNATURE "x-webhook-signature",
    STANDARD_ID "webhook-id",
    STANDARD_TIMESTAMP "webhook-timestamp",
    STANDARD_SIGNATURE "webhook-signature",
    EVENT_ID "x-lerian-event-id",
    DELIVERY_ID "x-lerian-delivery-id",
    EVENT_TYPE "x-lerian-event-type",
    EVENT_TIME "x-lerian-event-time",
    SCHEMA_VERSION "x-lerian-schema-version",
    SUBJECT "x-lerian-subject",
    SCHEMA "x-lerian-schema",
    SUBSCRIPTION_ID "x-lerian-subscription-id",
    ATTEMPT "x-lerian-attempt",
    SEQ "x-lerian-seq",
    REDELIVERY "x-lerian-redelivery",
    TENANT_ID "x-lerian-tenant-id",
    TRACEPARENT "traceparent",
    TRACESTATE "tracestate",
}

/// Lines of an ordinary delivery, so that the map is made once in its size.
pub(super) const LINES: usize = 32;

/// Writes the lines of an event's delivery, signatures apart.
pub(super) fn write_event(lines: &mut HeaderMap, delivery: &Delivery, visibility: TenantVisibility) {
    let event = &delivery.event;
    lines.insert(CONTENT_TYPE, as_it_is(&event.content_type));
    lines.insert(EVENT_ID, prefixed(b"", event.id.0));
    lines.insert(DELIVERY_ID, prefixed(b"dlv_", delivery.delivery.0));
    lines.insert(EVENT_TYPE, encoded(&event.event_type()));
    lines.insert(EVENT_TIME, encoded(&event.time));
    lines.insert(SCHEMA_VERSION, encoded(&event.schema_version));
    lines.insert(SUBSCRIPTION_ID, prefixed(b"sub_", delivery.subscription.id.0));
    lines.insert(ATTEMPT, HeaderValue::from(delivery.attempt));
    lines.insert(SEQ, HeaderValue::from(delivery.seq.0));
    if let Some(subject) = &event.subject {
        lines.insert(SUBJECT, encoded(subject));
    }
    if let Some(schema) = &event.data_schema {
        lines.insert(SCHEMA, encoded(schema));
    }
    if let Some(why) = redelivery(delivery) {
        lines.insert(REDELIVERY, HeaderValue::from_static(why));
    }
    for (name, text) in [(TRACEPARENT, &event.traceparent), (TRACESTATE, &event.tracestate)] {
        // One that is no header value is no trace context either.
        if let Some(value) = text.as_ref().and_then(|text| HeaderValue::from_str(text).ok()) {
            lines.insert(name, value);
        }
    }
    match visibility {
        TenantVisibility::Shown => {
            lines.insert(TENANT_ID, encoded(&event.tenant));
        }
        TenantVisibility::Hidden => {}
    }
    for (name, value) in &event.extensions {
        if visibility == TenantVisibility::Hidden && tells_tenant(name, value, &event.tenant) {
            continue;
        }
        // A name that HTTP cannot carry is not carried.
        if let Ok(name) = HeaderName::try_from(format!("x-lerian-ext-{name}")) {
            lines.insert(name, encoded(value));
        }
    }
}

/// Writes the lines of a probe, signatures apart (C4.7).
pub(super) fn write_probe(lines: &mut HeaderMap, subscription: &Subscription) {
    lines.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    lines.insert(EVENT_TYPE, HeaderValue::from_static("subscription.verification"));
    lines.insert(SUBSCRIPTION_ID, prefixed(b"sub_", subscription.id.0));
}

/// What is signed, and when.
pub(super) struct Signing<'a> {
    pub(super) envelope: &'a Envelope,
    pub(super) subscription: &'a Subscription,
    pub(super) format: SignatureFormat,
    /// The id of the message under Standard Webhooks.
    pub(super) id: &'a str,
    pub(super) at: Timestamp,
    pub(super) body: &'a [u8],
}

impl Signing<'_> {
    /// Adds the signatures: the new secret's first, then the old one's while its overlap lasts (C9.2). The secrets are opened for
    /// this one message and wiped.
    pub(super) fn sign(&self, lines: &mut HeaderMap) -> Result<(), ErrorClass> {
        let owner = self.subscription.id.to_string();
        let scope = Scope { tenant: &self.subscription.tenant, owner: &owner, field: SIGNING_SECRET_FIELD };
        let secrets = &self.subscription.secrets;
        let previous = secrets.previous.as_ref().filter(|previous| self.at < previous.until);
        let open = |sealed| self.envelope.open(scope, sealed).map_err(|_| ErrorClass::SecretUnreadable);
        let current = open(&secrets.current)?;
        let previous = previous.map(|previous| open(&previous.secret)).transpose()?;
        let keys = [text(Some(&current))?, text(previous.as_ref())?];
        let keys = keys.into_iter().flatten();
        match self.format {
            SignatureFormat::Lerian => {
                self.lerian(keys, lines);
                Ok(())
            }
            SignatureFormat::Standard => self.standard(keys, lines),
            SignatureFormat::Both => {
                self.lerian(keys.clone(), lines);
                self.standard(keys, lines)
            }
        }
    }

    fn lerian<'s>(&self, secrets: impl Iterator<Item = &'s str>, lines: &mut HeaderMap) {
        let seconds = self.at.unix_seconds();
        lines.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(seconds));
        for secret in secrets {
            lines.append(WEBHOOK_SIGNATURE, as_it_is(&signature::lerian(secret, seconds, self.body)));
        }
    }

    fn standard<'s>(&self, secrets: impl Iterator<Item = &'s str>, lines: &mut HeaderMap) -> Result<(), ErrorClass> {
        let seconds = self.at.unix_seconds();
        let signatures: Result<Vec<_>, _> =
            secrets.map(|secret| signature::standard(secret, self.id, seconds, self.body)).collect();
        let signatures = signatures.map_err(|_| ErrorClass::SecretUnreadable)?;
        lines.insert(STANDARD_ID, as_it_is(self.id));
        lines.insert(STANDARD_TIMESTAMP, HeaderValue::from(seconds));
        lines.insert(STANDARD_SIGNATURE, as_it_is(&signatures.join(" ")));
        Ok(())
    }
}

/// A secret is text; other bytes are no secret of ours.
fn text(opened: Option<&Zeroizing<Vec<u8>>>) -> Result<Option<&str>, ErrorClass> {
    opened.map(|bytes| std::str::from_utf8(bytes).map_err(|_| ErrorClass::SecretUnreadable)).transpose()
}

/// Adds the tenant's fixed lines. Their names were checked when the subscription was written; what is ours stays ours all the same.
pub(super) fn add_extra(lines: &mut HeaderMap, extra: &[(HeaderName, HeaderValue)]) {
    for (name, value) in extra {
        if !lines.contains_key(name) {
            lines.insert(name.clone(), value.clone());
        }
    }
}

fn prefixed(prefix: &[u8], id: [u8; 16]) -> HeaderValue {
    let mut text = [0u8; 4 + uuid::fmt::Hyphenated::LENGTH];
    let (head, tail) = text.split_at_mut(prefix.len());
    head.copy_from_slice(prefix);
    let length = prefix.len() + Uuid::from_bytes(id).hyphenated().encode_lower(tail).len();
    HeaderValue::from_bytes(&text[..length]).unwrap_or(HeaderValue::from_static(""))
}

fn redelivery(delivery: &Delivery) -> Option<&'static str> {
    match delivery.cause {
        Cause::Match => (delivery.attempt > 1).then_some("retry"),
        Cause::Redrive => Some("redrive"),
        Cause::Replay => Some("replay"),
    }
}

/// Whether an extension would tell a single-tenant hub's receiver the tenant: by its name, or because it repeats the value (a
/// producer's partition key often does) (C9.4).
fn tells_tenant(name: &str, value: &str, tenant: &str) -> bool {
    let letters = name.bytes().filter(u8::is_ascii_alphanumeric).map(|b| b.to_ascii_lowercase());
    value == tenant || letters.clone().eq(*b"tenantid") || letters.eq(*b"tenant")
}

/// A value that goes as it is; should it hold what a header cannot carry, only that is encoded.
fn as_it_is(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).unwrap_or_else(|_| percent(value, |b| matches!(b, b' '..=b'~')))
}

/// A value encoded as in the CloudEvents HTTP binding.
fn encoded(value: &str) -> HeaderValue {
    let plain = |b: u8| matches!(b, b'!'..=b'~') && b != b'"' && b != b'%';
    if value.bytes().all(plain) { as_it_is_bytes(value.as_bytes()) } else { percent(value, plain) }
}

fn percent(value: &str, plain: impl Fn(u8) -> bool) -> HeaderValue {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut text = Vec::with_capacity(value.len() * 3);
    for b in value.bytes() {
        if plain(b) {
            text.push(b);
        } else {
            text.extend([b'%', HEX[usize::from(b >> 4)], HEX[usize::from(b & 15)]]);
        }
    }
    as_it_is_bytes(&text)
}

fn as_it_is_bytes(text: &[u8]) -> HeaderValue {
    // Only printable ASCII comes here, which is always a header value.
    HeaderValue::from_bytes(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    // C9.3
    #[test]
    fn values_are_encoded_as_the_http_binding_does() {
        for (value, wire) in [
            ("", ""),
            ("loan/42?x=1&y='2'", "loan/42?x=1&y='2'"),
            ("a b", "a%20b"),
            ("100%", "100%25"),
            ("say \"x\"", "say%20%22x%22"),
            ("João €", "Jo%C3%A3o%20%E2%82%AC"),
            ("a\r\nX-Evil: 1", "a%0D%0AX-Evil:%201"),
            ("😀\u{7f}", "%F0%9F%98%80%7F"),
        ] {
            assert_eq!(encoded(value), wire, "{value:?}");
        }
        assert_eq!(as_it_is("application/json; charset=\"utf-8\""), "application/json; charset=\"utf-8\"");
        assert_eq!(as_it_is("text/ç; a\n"), "text/%C3%A7; a%0A");
    }

    // C9.4
    #[test]
    fn an_extension_tells_the_tenant_by_name_or_by_value() {
        for (name, value, tells) in [
            ("tenantid", "other", true),
            ("tenant_id", "x", true),
            ("Tenant", "x", true),
            ("partitionkey", "acme", true),
            ("partitionkey", "acme2", false),
            ("tenants", "x", false),
        ] {
            assert_eq!(tells_tenant(name, value, "acme"), tells, "{name}={value}");
        }
    }
}
