//! Reads what a tenant says about a subscription, from a whole object or from a merge patch laid over the stored one.
//!
//! Everything wrong is found in one pass (A1.4). Invariant: a [`Spec`] that leaves here keeps every ceiling of `model::limits`, its
//! URL is in its canonical spelling and has passed the address policy, and its private key is sealed.

use crate::error::{Code, FieldCode};
use crate::http::destination;
use crate::http::form::{Faults, Form, check_duration, check_text};
use crate::http::problem::Problem;
use crate::http::shape::{DELIVERY_ORDERS, SIGNATURE_FORMATS};
use crate::model::ids::SubscriptionId;
use crate::model::limits::{
    ATTEMPT_TIMEOUT_MAX_MS, DESCRIPTION_BYTES, EVENT_TYPES_PER_SUBSCRIPTION, EXTRA_HEADERS, MAX_IN_FLIGHT,
    METADATA_ENTRIES, METADATA_KEY_BYTES, METADATA_VALUE_BYTES, NAME_BYTES, PEM_BYTES, RATE_LIMIT_MAX,
    RETRY_STEP_MAX_MS, RETRY_STEPS, SOURCE_BYTES, TYPE_PART_BYTES, URL_BYTES,
};
use crate::model::subscription::{
    CLIENT_KEY_FIELD, ClientCertificate, DeliveryOrder, EventPattern, RateLimit, SignatureFormat, Sink, Spec,
    StartFrom, WebhookSink,
};
use crate::rules::address::AddressPolicy;
use crate::rules::classify::is_source;
use crate::rules::extra_header;
use crate::rules::matching::parse_pattern;
use crate::secrets::{Envelope, Scope};
use crate::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields that a tenant may set.
pub(crate) const FIELDS: [&str; 13] = [
    "name",
    "description",
    "event_types",
    "origin",
    "schema_major",
    "sink",
    "start_from",
    "retry_schedule",
    "verification_echo",
    "delivery_order",
    "max_in_flight",
    "rate_limit",
    "metadata",
];

/// The fields that are shown and not to be set.
pub(crate) const READ_ONLY: [&str; 7] =
    ["id", "enabled", "disabled_reason", "verification_state", "created_at", "updated_at", "health"];

/// Who asks, and by what it is judged.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    /// Their tenant.
    pub(crate) tenant: &'a str,
    /// Where webhooks may go.
    pub(crate) destinations: &'a AddressPolicy,
    /// Seals what they keep secret.
    pub(crate) envelope: &'a Envelope,
    /// Now.
    pub(crate) at: Timestamp,
}

/// For which subscription a specification is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// Its id, which its sealed key is bound to.
    pub(crate) id: SubscriptionId,
    /// What is stored of it, where it exists already.
    pub(crate) stored: Option<&'a Spec>,
}

/// Reads a whole specification. Unknown fields have been noted by the caller, who knows what else may stand beside it.
pub(crate) fn read(
    asker: Asker<'_>,
    subject: Subject<'_>,
    form: &Form<'_>,
    mut faults: Faults,
) -> Result<Spec, Problem> {
    let faults = &mut faults;
    let name = form.name(subject.stored.map(|spec| &*spec.name), faults);
    let description = form.prose("description", 0..=DESCRIPTION_BYTES, faults);
    form.required("event_types", faults);
    let event_types = event_types(form, "event_types", faults);
    let origin = origin(form, faults);
    let schema_major = form.integer("schema_major", 0..=u64::from(u32::MAX), faults);
    form.required("sink", faults);
    let sink = form.form("sink", faults).and_then(|sink| read_sink(asker, subject, &sink, faults));
    let start_from = start_from(form, faults);
    let retry_schedule = retry_schedule(form, faults);
    let verification_echo = form.flag("verification_echo", faults);
    let delivery_order = form.choice("delivery_order", &DELIVERY_ORDERS, faults);
    let max_in_flight = form.integer("max_in_flight", 1..=u64::from(MAX_IN_FLIGHT), faults);
    let rate_limit = rate_limit(form, faults);
    let metadata = metadata(form, faults);

    let delivery_order = delivery_order.unwrap_or(DeliveryOrder::Fifo);
    let max_in_flight = max_in_flight.and_then(|number| u16::try_from(number).ok()).unwrap_or(1);
    if max_in_flight > 1 && delivery_order != DeliveryOrder::Parallel {
        let detail = "only a parallel subscription may have more than 1 in flight";
        faults.add(form.pointer("max_in_flight"), FieldCode::Conflict, detail);
    }
    let start_from = start_from.unwrap_or(StartFrom::Now);
    std::mem::take(faults).check()?;
    let (Some(event_types), Some(sink)) = (event_types, sink) else {
        return Err(Problem::new(Code::Internal, "the hub failed"));
    };
    Ok(Spec {
        name: name.map_or_else(|| default_name(&sink), str::to_owned),
        description: description.map(str::to_owned),
        event_types,
        origin,
        schema_major: schema_major.and_then(|major| u32::try_from(major).ok()),
        sink,
        start_from,
        retry_schedule,
        verification_echo: verification_echo.unwrap_or(true),
        delivery_order,
        max_in_flight,
        rate_limit,
        metadata: metadata.unwrap_or_default(),
    })
}

/// A nameless subscription is called by its destination, which is ASCII.
fn default_name(sink: &Sink) -> String {
    sink.destination().chars().take(NAME_BYTES).collect()
}

/// A list of event types, each once (C4.1).
pub(crate) fn event_types(form: &Form<'_>, name: &str, faults: &mut Faults) -> Option<Vec<EventPattern>> {
    let list = form.list(name, 1..=EVENT_TYPES_PER_SUBSCRIPTION, faults)?;
    let mut patterns: Vec<EventPattern> = Vec::with_capacity(list.len());
    for (pointer, item) in list {
        let Some(text) = check_text(item, pointer.clone(), 1..=2 * TYPE_PART_BYTES + 1, char::is_control, faults)
        else {
            continue;
        };
        match parse_pattern(text) {
            Ok(pattern) if patterns.contains(&pattern) => {
                faults.add(pointer, FieldCode::Duplicate, "this event type is in the list already");
            }
            Ok(pattern) => patterns.push(pattern),
            Err(error) => faults.add(pointer, FieldCode::InvalidValue, error.to_string()),
        }
    }
    Some(patterns)
}

fn origin(form: &Form<'_>, faults: &mut Faults) -> Option<String> {
    let text = form.text("origin", 1..=SOURCE_BYTES, faults)?;
    if !is_source(text) {
        let detail = "this must be the name of a producing application: a-z, 0-9, _ and -, a letter or digit first";
        faults.add(form.pointer("origin"), FieldCode::InvalidValue, detail);
        return None;
    }
    Some(text.to_owned())
}

fn start_from(form: &Form<'_>, faults: &mut Faults) -> Option<StartFrom> {
    let value = form.get("start_from")?;
    let read = match value {
        Value::String(text) if text == "now" => Some(StartFrom::Now),
        Value::String(text) if text == "earliest" => Some(StartFrom::Earliest),
        Value::String(text) => Timestamp::parse(text).map(StartFrom::Time),
        Value::Number(number) => number.as_u64().filter(|seq| (1..SEQ_END).contains(seq)).map(StartFrom::Seq),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    if read.is_none() {
        let detail = "this must be \"now\", \"earliest\", a seq, or a time like \"2026-01-31T12:00:00Z\"";
        faults.add(form.pointer("start_from"), FieldCode::InvalidValue, detail);
    }
    read
}

fn retry_schedule(form: &Form<'_>, faults: &mut Faults) -> Option<Vec<u64>> {
    let list = form.list("retry_schedule", 1..=RETRY_STEPS, faults)?;
    let steps = list.into_iter().map(|(pointer, step)| check_duration(step, pointer, 0..=RETRY_STEP_MAX_MS, faults));
    // All of them are read before the first that is wrong ends the list.
    steps.collect::<Vec<_>>().into_iter().collect()
}

fn rate_limit(form: &Form<'_>, faults: &mut Faults) -> Option<RateLimit> {
    let limit = form.form("rate_limit", faults)?;
    limit.only(&["per_second", "burst"], &[], faults);
    limit.required("per_second", faults);
    let per_second = limit.integer("per_second", 1..=u64::from(RATE_LIMIT_MAX), faults);
    let burst = limit.integer("burst", 1..=u64::from(RATE_LIMIT_MAX), faults);
    let per_second = u32::try_from(per_second?).ok()?;
    Some(RateLimit { per_second, burst: burst.and_then(|burst| u32::try_from(burst).ok()).unwrap_or(per_second) })
}

fn metadata(form: &Form<'_>, faults: &mut Faults) -> Option<BTreeMap<String, String>> {
    let labels = form.form("metadata", faults)?;
    if labels.fields().len() > METADATA_ENTRIES {
        let detail = format!("there may be at most {METADATA_ENTRIES} labels");
        faults.add(form.pointer("metadata"), FieldCode::TooLong, detail);
        return None;
    }
    let mut read = BTreeMap::new();
    for name in labels.fields().keys() {
        if name.is_empty() || name.len() > METADATA_KEY_BYTES || name.chars().any(char::is_control) {
            let detail = format!("a label's name has 1 to {METADATA_KEY_BYTES} bytes and no control characters");
            faults.add(labels.pointer(name), FieldCode::InvalidValue, detail);
        } else if let Some(value) = labels.text(name, 0..=METADATA_VALUE_BYTES, faults) {
            read.insert(name.clone(), value.to_owned());
        }
    }
    Some(read)
}

/// A seq is a JSON integer below 2^53 (A1.10).
const SEQ_END: u64 = 1 << 53;

fn read_sink(asker: Asker<'_>, subject: Subject<'_>, sink: &Form<'_>, faults: &mut Faults) -> Option<Sink> {
    sink.required("kind", faults);
    let kind = sink.text("kind", 0..=64, faults)?;
    if kind != "webhook" {
        let detail = "the only kind of sink that this hub has is \"webhook\"";
        faults.add(sink.pointer("kind"), FieldCode::UnsupportedSinkKind, detail);
        return None;
    }
    let known = ["kind", "url", "headers", "timeout", "signature_format", "client_certificate"];
    sink.only(&known, &[], faults);
    sink.required("url", faults);
    let url = sink.text("url", 1..=URL_BYTES, faults).and_then(|url| match subject.stored.map(|spec| &spec.sink) {
        // What was allowed when it was set is left alone: the dial judges it anyway.
        Some(Sink::Webhook(stored)) if stored.url == url => Some(url.to_owned()),
        Some(Sink::Webhook(_)) | None => destination::check(asker, url, sink.pointer("url"), faults),
    });
    let headers = headers(sink, faults);
    let timeout = sink.duration("timeout", 1000..=ATTEMPT_TIMEOUT_MAX_MS, faults);
    let signature_format = sink.choice("signature_format", &SIGNATURE_FORMATS, faults);
    let client_certificate = client_certificate(asker, subject, sink, faults);
    Some(Sink::Webhook(WebhookSink {
        url: url?,
        headers,
        timeout_ms: timeout.and_then(|ms| u32::try_from(ms).ok()),
        signature_format: signature_format.unwrap_or(SignatureFormat::Lerian),
        client_certificate,
    }))
}

fn headers(sink: &Form<'_>, faults: &mut Faults) -> Vec<(String, String)> {
    let Some(given) = sink.form("headers", faults) else { return Vec::new() };
    if given.fields().len() > EXTRA_HEADERS {
        let detail = format!("there may be at most {EXTRA_HEADERS} extra headers");
        faults.add(sink.pointer("headers"), FieldCode::TooLong, detail);
        return Vec::new();
    }
    let mut read: Vec<(String, String)> = Vec::new();
    for (name, value) in given.fields() {
        let Some(value) = value.as_str() else {
            faults.add(given.pointer(name), FieldCode::WrongType, "this must be a text");
            continue;
        };
        if read.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            faults.add(given.pointer(name), FieldCode::Duplicate, "this header is there already in another spelling");
        } else if let Err(reason) = extra_header::check(name, value) {
            faults.add(given.pointer(name), FieldCode::HeaderNotAllowed, reason);
        } else {
            read.push((name.clone(), value.to_owned()));
        }
    }
    read
}

/// A new certificate, or the stored one where what is shown of it came back unchanged.
fn client_certificate(
    asker: Asker<'_>,
    subject: Subject<'_>,
    sink: &Form<'_>,
    faults: &mut Faults,
) -> Option<ClientCertificate> {
    let given = sink.form("client_certificate", faults)?;
    given.only(&["certificate_pem", "private_key_pem", "set", "updated_at"], &[], faults);
    let stored = subject.stored.and_then(|spec| match &spec.sink {
        Sink::Webhook(webhook) => webhook.client_certificate.clone(),
    });
    if let (None, None, Some(stored)) = (given.get("certificate_pem"), given.get("private_key_pem"), stored) {
        return Some(stored);
    }
    for name in ["certificate_pem", "private_key_pem"] {
        given.required(name, faults);
    }
    let chain = given.prose("certificate_pem", 1..=PEM_BYTES, faults)?;
    let key = given.prose("private_key_pem", 1..=PEM_BYTES, faults)?;
    if let Err(reason) = destination::check_certificate(chain, key) {
        faults.add(given.pointer("certificate_pem"), FieldCode::InvalidValue, reason);
        return None;
    }
    let owner = subject.id.to_string();
    let scope = Scope { tenant: asker.tenant, owner: &owner, field: CLIENT_KEY_FIELD };
    match asker.envelope.seal(scope, key.as_bytes()) {
        Ok(key) => Some(ClientCertificate { chain_pem: chain.to_owned(), key, updated_at: asker.at }),
        Err(_) => {
            faults.add(given.pointer("private_key_pem"), FieldCode::InvalidValue, "the key could not be sealed");
            None
        }
    }
}
