//! Record headers to verdict (C2), and what is sent of an accepted event (C9.3, C9.4).
//!
//! The input is text: a line with the topic's source (empty: over HTTP), a line for each header (`name: value`, without `: ` a null
//! value), an empty line, and the body.

use super::tenant;
use bytes::Bytes;
use std::sync::Arc;
use streaming_hub::model::event::Event;
use streaming_hub::model::ids::{DeliveryId, Seq};
use streaming_hub::model::job::Cause;
use streaming_hub::model::limits::{
    CONTENT_TYPE_BYTES, DATA_SCHEMA_BYTES, EXTENSION_VALUE_BYTES, EXTENSIONS, POISON_BODY_BYTES, POISON_HEADERS_BYTES,
    SCHEMA_VERSION_BYTES, SOURCE_BYTES, SUBJECT_BYTES, TENANT_BYTES, TYPE_PART_BYTES,
};
use streaming_hub::model::record::{Origin, RawRecord, Reason, Verdict};
use streaming_hub::rules::classify::{Policy, classify, is_source, poison};
use streaming_hub::sink::doors::lines;
use streaming_hub::sink::{Delivery, TenantVisibility};

const POLICY: Policy = Policy { max_body_bytes: 64, accept_ce_underscore: false };

pub(super) fn run(data: &[u8]) {
    let (speaker, record) = read(data);
    let verdict = classify(&POLICY, speaker, &record);
    assert_eq!(classify(&POLICY, speaker, &record), verdict, "one record, one verdict");
    // C2.6: names compare without case, and what is no attribute of the envelope changes nothing.
    let changed = |change: &dyn Fn(&mut RawRecord)| {
        let mut other = record.clone();
        change(&mut other);
        classify(&POLICY, speaker, &other)
    };
    let shouted = changed(&|other| {
        for (name, _) in &mut other.headers {
            *name = Bytes::from(name.to_ascii_uppercase());
        }
    });
    assert_eq!(shouted, verdict, "the case of names");
    let more = changed(&|other| other.headers.push((Bytes::from_static(b"x-more"), Some(Bytes::from_static(b"\xff")))));
    assert_eq!(more, verdict, "a header that is no attribute");
    let underscored = Policy { accept_ce_underscore: true, ..POLICY };
    classify(&underscored, speaker, &record);
    match verdict {
        Verdict::Accept(event) => accepted(&event, speaker, &record),
        Verdict::Drop => {}
        Verdict::Quarantine(reason) => quarantined(reason, &record),
    }
}

fn read(data: &[u8]) -> (Option<&str>, RawRecord) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let speaker = lines.next().and_then(|line| std::str::from_utf8(line).ok()).filter(|line| !line.is_empty());
    let mut headers = Vec::new();
    for line in lines.by_ref().take_while(|line| !line.is_empty()) {
        let (name, value) = match line.windows(2).position(|window| window == b": ") {
            Some(at) => (&line[..at], Some(Bytes::copy_from_slice(&line[at + 2..]))),
            None => (line, None),
        };
        headers.push((Bytes::copy_from_slice(name), value));
    }
    let body = Bytes::from(lines.collect::<Vec<_>>().join(&b'\n'));
    (speaker, RawRecord { headers, body })
}

/// C2.2, C2.3: accepted means within the limits.
fn accepted(event: &Event, speaker: Option<&str>, record: &RawRecord) {
    let plain = |text: &str, most: usize| {
        assert!(!text.is_empty() && text.len() <= most, "{} bytes: {text:?}", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
    };
    plain(&event.tenant, TENANT_BYTES);
    plain(&event.source, SOURCE_BYTES);
    assert!(is_source(&event.source) && speaker.is_none_or(|speaker| speaker == &*event.source));
    for part in [&event.resource, &event.event] {
        plain(part, TYPE_PART_BYTES);
        assert!(!part.contains('.'));
    }
    plain(&event.schema_version, SCHEMA_VERSION_BYTES);
    plain(&event.content_type, CONTENT_TYPE_BYTES);
    plain(&event.time, 64);
    event.subject.iter().for_each(|text| plain(text, SUBJECT_BYTES));
    event.data_schema.iter().for_each(|text| plain(text, DATA_SCHEMA_BYTES));
    assert!(event.extensions.len() <= EXTENSIONS);
    event.extensions.iter().for_each(|(_, value)| assert!(value.len() <= EXTENSION_VALUE_BYTES));
    assert_eq!(event.body, record.body);
    assert!(event.body.len() <= POLICY.max_body_bytes);
    let last = |wanted: &[u8]| {
        let named = record.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named
            .filter_map(|(_, value)| value.as_ref())
            .next_back()
            .map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    assert_eq!(last(b"ce-tenantid").as_deref(), Some(&*event.tenant), "the only source of the tenant");
    assert_eq!(last(b"ce-type"), Some(event.ce_type()));
    assert_eq!(last(b"ce-id").map(|id| id.to_ascii_lowercase()), Some(event.id.to_string()));
    sent(event);
}

/// C9.3, C9.4: every accepted event can be sent, and a single-tenant hub names no tenant.
fn sent(event: &Event) {
    let body = br#"{"event_types":["*"],"sink":{"kind":"webhook","url":"https://example.com/"}}"#;
    let subscription = tenant().create(body).unwrap();
    let delivery = Delivery {
        subscription: Arc::new(subscription),
        event: Arc::new(event.clone()),
        seq: Seq(1),
        delivery: DeliveryId([9; 16]),
        attempt: 1,
        cause: Cause::Match,
        timeout: std::time::Duration::from_secs(1),
    };
    for visibility in [TenantVisibility::Shown, TenantVisibility::Hidden] {
        let lines = lines(&delivery, visibility);
        for (name, value) in &lines {
            // The content type and the trace context go as they came; the rest is encoded.
            let as_it_came = matches!(name.as_str(), "content-type" | "traceparent" | "tracestate");
            let fits = |byte: &u8| (as_it_came && *byte >= b' ' && *byte != 0x7f) || matches!(byte, b'!'..=b'~');
            assert!(value.as_bytes().iter().all(fits), "{name}: {value:?}");
        }
        for (name, text) in [("x-lerian-event-time", &event.time), ("x-lerian-tenant-id", &event.tenant)] {
            let given = lines.get(name).map(|value| decoded(value.as_bytes()));
            let wanted = name != "x-lerian-tenant-id" || visibility == TenantVisibility::Shown;
            assert_eq!(given, wanted.then(|| text.as_bytes().to_vec()), "{name}");
        }
    }
}

/// What a receiver reads of a percent-encoded value.
fn decoded(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = value;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                out.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => out.push(*first),
        }
    }
    out
}

/// C2.7: what is kept of it is bounded, and begins as it came.
fn quarantined(reason: Reason, record: &RawRecord) {
    assert_eq!(Reason::from_number(reason.number()), Some(reason));
    let kept = poison(reason, record, Origin::Http);
    assert_eq!(kept.body_bytes, record.body.len() as u64);
    assert!(record.body.starts_with(&kept.body) && kept.body.len() <= POISON_BODY_BYTES);
    let sizes = kept.headers.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len));
    assert!(sizes.sum::<usize>() <= POISON_HEADERS_BYTES);
}
