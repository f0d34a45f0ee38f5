//! The verdict on a record: accept, drop or quarantine, exactly one, from its headers alone (C2).
//!
//! The hot path of ingest: one pass over the headers finds what is known by name (`rules/headers`), and then each
//! attribute is judged in the order of C2.7, so that a record with several faults always gets the same reason. Nothing
//! here can panic, whatever the bytes.

use crate::model::event::Event;
use crate::model::ids::EventId;
use crate::model::limits::{
    CONTENT_TYPE_BYTES, DATA_SCHEMA_BYTES, EXTENSION_VALUE_BYTES, POISON_BODY_BYTES, POISON_HEADERS_BYTES,
    SCHEMA_VERSION_BYTES, SUBJECT_BYTES, TENANT_BYTES,
};
use crate::model::record::{Origin, PoisonRecord, RawRecord, Reason, Verdict};
use crate::rules::grammar::{is_plain, is_rfc3339, is_traceparent, is_tracestate, is_type_part, schema_major};
use crate::rules::headers::{Found, extensions, utf8};
use bytes::Bytes;

pub use crate::rules::grammar::{is_source, topic_source};

/// What the operator decides about records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// `MAX_BODY_BYTES`: a larger body is quarantined (C2.3).
    pub max_body_bytes: usize,
    /// `ACCEPT_CE_UNDERSCORE`: `ce_` is read like `ce-` (C2.6).
    pub accept_ce_underscore: bool,
}

/// The verdict on one record. `topic_source` is what [`topic_source`] gave for its topic; none for HTTP ingest, where
/// no topic says who may speak.
pub fn classify(policy: &Policy, topic_source: Option<&str>, record: &RawRecord) -> Verdict {
    let found = Found::by_name(policy, record);
    if found.systemevent.is_some_and(|value| value == b"true") {
        return Verdict::Drop;
    }
    match accepted(policy, topic_source, &found, record) {
        Ok(event) => Verdict::Accept(Box::new(event)),
        Err(reason) => Verdict::Quarantine(reason),
    }
}

/// What is kept of a quarantined record: whole headers while they fit, the one that does not fit cut, and the body's
/// beginning.
pub fn poison(reason: Reason, record: &RawRecord, origin: Origin) -> PoisonRecord {
    let mut room = POISON_HEADERS_BYTES;
    let mut headers = Vec::new();
    for (name, value) in &record.headers {
        // Each costs a few bytes beside its text, so that a record of a million empty headers is bounded as well.
        if room < HEADER_COST {
            break;
        }
        room -= HEADER_COST;
        let kept = |bytes: &Bytes, room: &mut usize| {
            let length = bytes.len().min(*room);
            *room -= length;
            bytes.slice(..length)
        };
        let name = kept(name, &mut room);
        headers.push((name, value.as_ref().map(|value| kept(value, &mut room))));
    }
    let body_bytes = record.body.len();
    let body = record.body.slice(..body_bytes.min(POISON_BODY_BYTES));
    PoisonRecord { origin, reason, headers, body, body_bytes: body_bytes as u64 }
}

/// What a header costs in the store beside its text.
const HEADER_COST: usize = 8;

/// The checks in the order of C2.7; the first that fails names the reason.
fn accepted(
    policy: &Policy,
    topic_source: Option<&str>,
    found: &Found<'_>,
    record: &RawRecord,
) -> Result<Event, Reason> {
    let specversion = utf8(found.specversion)?;
    let id = utf8(found.id)?;
    let source = utf8(found.source)?;
    let kind = utf8(found.kind)?;
    let time = utf8(found.time)?;
    let schema_version = utf8(found.schemaversion)?;
    let resource = utf8(found.resourcetype)?;
    let event = utf8(found.eventtype)?;
    let tenant = utf8(found.tenantid)?;
    let subject = utf8(found.subject)?.filter(|text| !text.is_empty());
    let content_type = content_type(found)?;
    let data_schema = utf8(found.dataschema)?.filter(|text| !text.is_empty());
    utf8(found.systemevent)?;
    let extensions = extensions(found)?;

    if specversion.is_some_and(|version| version != "1.0") {
        return Err(Reason::UnsupportedSpecversion);
    }
    let (Some(_), Some(id), Some(source), Some(kind), Some(time), Some(schema_version), Some(resource), Some(event)) =
        (specversion, id, source, kind, time, schema_version, resource, event)
    else {
        return Err(Reason::MissingHeader);
    };
    let tenant = tenant.filter(|tenant| !tenant.is_empty()).ok_or(Reason::MissingTenant)?;
    check(is_plain(tenant, TENANT_BYTES), Reason::InvalidTenant)?;
    let id: EventId = id.parse().map_err(|_| Reason::InvalidId)?;
    check(is_source(source), Reason::InvalidSource)?;
    check(topic_source.is_none_or(|speaker| speaker == source), Reason::SourceMismatch)?;
    check(is_type_part(resource), Reason::InvalidResourcetype)?;
    check(is_type_part(event), Reason::InvalidEventtype)?;
    check(is_ce_type(kind, [source, resource, event]), Reason::TypeMismatch)?;
    check(is_rfc3339(time), Reason::InvalidTime)?;
    let schema_major = schema_major(schema_version)
        .filter(|_| schema_version.len() <= SCHEMA_VERSION_BYTES)
        .ok_or(Reason::InvalidSchemaversion)?;
    check(subject.is_none_or(|text| is_plain(text, SUBJECT_BYTES)), Reason::InvalidAttribute)?;
    check(is_plain(content_type, CONTENT_TYPE_BYTES), Reason::InvalidAttribute)?;
    check(data_schema.is_none_or(|text| is_plain(text, DATA_SCHEMA_BYTES)), Reason::InvalidAttribute)?;
    check(extensions.iter().all(|(_, value)| is_plain(value, EXTENSION_VALUE_BYTES)), Reason::InvalidAttribute)?;
    check(record.body.len() <= policy.max_body_bytes, Reason::BodyTooLarge)?;

    let (traceparent, tracestate) = trace_context(found);
    Ok(Event {
        id,
        tenant: tenant.into(),
        source: source.into(),
        resource: resource.into(),
        event: event.into(),
        time: time.into(),
        schema_version: schema_version.into(),
        schema_major,
        subject: subject.map(Into::into),
        content_type: content_type.into(),
        data_schema: data_schema.map(Into::into),
        traceparent: traceparent.map(Into::into),
        tracestate: tracestate.map(Into::into),
        extensions: extensions.into_iter().map(|(name, value)| (name, value.into())).collect(),
        body: record.body.clone(),
    })
}

fn check(good: bool, reason: Reason) -> Result<(), Reason> {
    if good { Ok(()) } else { Err(reason) }
}

/// Exactly `studio.lerian.<source>.<resource>.<event>` (C2.2), compared without building it.
fn is_ce_type(kind: &str, parts: [&str; 3]) -> bool {
    let rest = parts.iter().try_fold(kind.strip_prefix("studio.lerian"), |rest, part| {
        rest.and_then(|text| text.strip_prefix('.')).map(|text| text.strip_prefix(*part))
    });
    rest.flatten() == Some("")
}

/// `ce-datacontenttype`, else the plain header, else `application/json` (C2.6). The plain one is read only where it
/// counts.
fn content_type<'a>(found: &Found<'a>) -> Result<&'a str, Reason> {
    let given = |value| utf8(value).map(|text| text.filter(|text| !text.is_empty()));
    Ok(match given(found.datacontenttype)? {
        Some(text) => text,
        None => given(found.content_type)?.unwrap_or("application/json"),
    })
}

/// Trace context that a receiver would not believe is not carried: it is no reason to withhold a business event.
fn trace_context<'a>(found: &Found<'a>) -> (Option<&'a str>, Option<&'a str>) {
    let text = |value: Option<&'a [u8]>| value.and_then(|bytes| std::str::from_utf8(bytes).ok());
    let traceparent = text(found.traceparent).filter(|text| is_traceparent(text));
    // W3C: a tracestate means nothing without its traceparent.
    let tracestate = text(found.tracestate).filter(|text| traceparent.is_some() && is_tracestate(text));
    (traceparent, tracestate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::limits::EXTENSIONS;
    use proptest::prelude::*;

    const POLICY: Policy = Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false };
    const GOOD: &[(&str, &str)] = &[
        ("ce-specversion", "1.0"),
        ("ce-id", "0198b0c2-7c1e-7d3a-9f10-2b6c5a4e8d01"),
        ("ce-source", "lender"),
        ("ce-type", "studio.lerian.lender.loan_application.approved"),
        ("ce-time", "2026-11-30T12:00:00Z"),
        ("ce-schemaversion", "1.0.0"),
        ("ce-resourcetype", "loan_application"),
        ("ce-eventtype", "approved"),
        ("ce-tenantid", "t-abc"),
    ];

    type Header = (Vec<u8>, Option<Vec<u8>>);

    fn good() -> Vec<Header> {
        GOOD.iter().map(|(name, value)| ((*name).into(), Some((*value).into()))).collect()
    }

    fn record(headers: &[Header]) -> RawRecord {
        let bytes = |bytes: &Vec<u8>| Bytes::from(bytes.clone());
        RawRecord {
            headers: headers.iter().map(|(name, value)| (bytes(name), value.as_ref().map(bytes))).collect(),
            body: Bytes::from_static(b"{}"),
        }
    }

    fn verdict(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Accept(_) => "accept",
            Verdict::Drop => "drop",
            Verdict::Quarantine(reason) => reason.code(),
        }
    }

    /// The verdict on the good record with these headers after its own.
    fn check(more: &[(&str, &[u8])], expected: &str) {
        let mut headers = good();
        headers.extend(more.iter().map(|(name, value)| (name.as_bytes().to_vec(), Some(value.to_vec()))));
        let got = classify(&POLICY, Some("lender"), &record(&headers));
        let shown: Vec<_> = more.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
        assert_eq!(verdict(&got), expected, "{shown:?}");
    }

    fn accept(more: &[(&str, Option<&str>)]) -> Event {
        let mut headers = good();
        let bytes = |text: &str| text.as_bytes().to_vec();
        headers.extend(more.iter().map(|(name, value)| (bytes(name), value.map(bytes))));
        match classify(&POLICY, Some("lender"), &record(&headers)) {
            Verdict::Accept(event) => *event,
            other => panic!("{more:?}: {other:?}"),
        }
    }

    // C2.2 C2.3 C2.4 C2.5: one fault a row, the last appearance of a header counts.
    #[test]
    fn one_fault_one_reason() {
        let text = |length: usize| "a".repeat(length).into_bytes();
        check(&[], "accept");
        for (name, value, expected) in [
            ("ce-specversion", &b"1"[..], "unsupported_specversion"),
            ("ce-specversion", b"1.0 ", "unsupported_specversion"),
            ("ce-specversion", b"", "unsupported_specversion"),
            ("ce-tenantid", b"", "missing_tenant"),
            ("ce-tenantid", b"a\nb", "invalid_tenant"),
            ("ce-tenantid", "a\u{85}b".as_bytes(), "invalid_tenant"),
            ("ce-tenantid", &text(256), "accept"),
            ("ce-tenantid", &text(257), "invalid_tenant"),
            ("ce-tenantid", "inquilino-ção-©".as_bytes(), "accept"),
            ("ce-id", b"", "invalid_id"),
            ("ce-id", b"0198b0c27c1e7d3a9f102b6c5a4e8d01", "invalid_id"),
            ("ce-source", b"", "invalid_source"),
            ("ce-source", b"matcher", "source_mismatch"),
            ("ce-source", &text(224), "invalid_source"),
            ("ce-resourcetype", b"", "invalid_resourcetype"),
            ("ce-resourcetype", b"a.b", "invalid_resourcetype"),
            ("ce-resourcetype", &text(129), "invalid_resourcetype"),
            ("ce-resourcetype", b"other", "type_mismatch"),
            ("ce-eventtype", b"", "invalid_eventtype"),
            ("ce-eventtype", b"a\x00b", "invalid_eventtype"),
            ("ce-eventtype", &text(129), "invalid_eventtype"),
            ("ce-type", b"", "type_mismatch"),
            ("ce-type", b"studio.lerian.lender.loan_application.approved.", "type_mismatch"),
            ("ce-type", b"studio.lerian.lender.loan_application.approve", "type_mismatch"),
            ("ce-type", b"Studio.lerian.lender.loan_application.approved", "type_mismatch"),
            ("ce-type", b"studio.lerianlender.loan_application.approved", "type_mismatch"),
            ("ce-time", b"", "invalid_time"),
            ("ce-time", b"2026-11-30", "invalid_time"),
            ("ce-schemaversion", b"", "invalid_schemaversion"),
            ("ce-schemaversion", &[b"1.".to_vec(), b"0".repeat(62)].concat(), "accept"),
            ("ce-schemaversion", &[b"1.".to_vec(), b"0".repeat(63)].concat(), "invalid_schemaversion"),
            ("ce-subject", &text(1024), "accept"),
            ("ce-subject", &text(1025), "invalid_attribute"),
            ("ce-subject", b"a\tb", "invalid_attribute"),
            ("ce-datacontenttype", &text(257), "invalid_attribute"),
            ("ce-datacontenttype", b"a/b\r\nx: y", "invalid_attribute"),
            ("content-type", &text(257), "invalid_attribute"),
            ("content-type", b"\xff", "header_not_utf8"),
            ("ce-dataschema", &text(2049), "invalid_attribute"),
            ("ce-region", &text(1025), "invalid_attribute"),
            ("ce-region", b"a\x7fb", "invalid_attribute"),
            ("ce-region", b"\xff", "header_not_utf8"),
            ("ce-subject", b"\xc3\x28", "header_not_utf8"),
            ("ce-systemevent", b"\xff", "header_not_utf8"),
            ("ce-systemevent", b"True", "accept"),
            ("ce-systemevent", b" true", "accept"),
            ("CE-SystemEvent", b"true", "drop"),
            ("x-other", b"\xff", "accept"),
            ("traceparent", b"\xff", "accept"),
            ("ce_tenantid", b"", "accept"),
        ] {
            check(&[(name, value)], expected);
        }
        check(&[("ce-source", b"\xff"), ("ce-source", b"lender")], "accept");
    }

    // C2.2: the absence of each.
    #[test]
    fn every_required_header_is_required() {
        for (absent, _) in GOOD {
            let headers: Vec<_> = good().into_iter().filter(|(name, _)| name != absent.as_bytes()).collect();
            let expected = if *absent == "ce-tenantid" { "missing_tenant" } else { "missing_header" };
            assert_eq!(verdict(&classify(&POLICY, Some("lender"), &record(&headers))), expected, "{absent}");
        }
    }

    // C2.7: of several faults the first in the list is named, and a drop comes before all.
    #[test]
    fn reasons_are_checked_in_their_order() {
        let faults: &[(&str, &[u8])] = &[
            ("ce-region", b"\xff"),
            ("ce-specversion", b"0.3"),
            ("ce-tenantid", b""),
            ("ce-id", b"x"),
            ("ce-source", b"X"),
            ("ce-resourcetype", b"a.b"),
            ("ce-eventtype", b"a.b"),
            ("ce-type", b"x"),
            ("ce-time", b"x"),
            ("ce-schemaversion", b"x"),
            ("ce-subject", b"\n"),
        ];
        let expected = [
            "header_not_utf8",
            "unsupported_specversion",
            "missing_tenant",
            "invalid_id",
            "invalid_source",
            "invalid_resourcetype",
            "invalid_eventtype",
            "type_mismatch",
            "invalid_time",
            "invalid_schemaversion",
            "invalid_attribute",
        ];
        for (at, expected) in expected.iter().enumerate() {
            check(&faults[at..], expected);
        }
        check(&[faults, &[("ce-systemevent", b"true")]].concat(), "drop");
    }

    // C2.3, and the place of `body_too_large` as the last reason.
    #[test]
    fn a_body_may_be_as_large_as_the_setting_says() {
        let policy = Policy { max_body_bytes: 2, ..POLICY };
        let mut whole = record(&good());
        assert_eq!(verdict(&classify(&policy, None, &whole)), "accept");
        whole.body = Bytes::from_static(b"{ }");
        assert_eq!(verdict(&classify(&policy, None, &whole)), "body_too_large");
        whole.headers.push((Bytes::from_static(b"ce-subject"), Some(Bytes::from_static(b"\n"))));
        assert_eq!(verdict(&classify(&policy, None, &whole)), "invalid_attribute");
    }

    // C2.5, C3.6: over HTTP no topic says who may speak.
    #[test]
    fn without_a_topic_any_source_may_speak() {
        let raw = record(&good());
        assert_eq!(verdict(&classify(&POLICY, None, &raw)), "accept");
        assert_eq!(verdict(&classify(&POLICY, Some("matcher"), &raw)), "source_mismatch");
    }

    // C2.6
    #[test]
    fn what_is_carried_of_an_event() {
        let plain = accept(&[]);
        assert_eq!((plain.subject, plain.data_schema, plain.content_type.as_ref()), (None, None, "application/json"));
        assert_eq!((plain.schema_major, plain.extensions.len()), (1, 0));
        let content_type = |more: &[_]| accept(more).content_type;
        let (ce, header) = (("ce-datacontenttype", Some("a/b")), ("Content-Type", Some("c/d")));
        assert_eq!(&*content_type(&[ce, header]), "a/b");
        assert_eq!(&*content_type(&[header]), "c/d");
        assert_eq!(&*content_type(&[ce, ("ce-datacontenttype", None), header]), "c/d");
        assert_eq!(&*content_type(&[("ce-datacontenttype", Some(""))]), "application/json");

        let trace = ("traceparent", Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        let state = ("tracestate", Some("a=b"));
        let of = |more: &[_]| {
            let event = accept(more);
            (event.traceparent.is_some(), event.tracestate.is_some())
        };
        assert_eq!(of(&[trace, state]), (true, true));
        assert_eq!(of(&[state]), (false, false));
        assert_eq!(of(&[("traceparent", Some("nonsense")), state]), (false, false));

        // A null after a value is an absent header; so is an empty subject.
        assert_eq!(accept(&[("ce-subject", Some("a")), ("CE-SUBJECT", None)]).subject, None);
        assert_eq!(accept(&[("ce-subject", None), ("Ce-Subject", Some("a"))]).subject.as_deref(), Some("a"));
        assert_eq!(accept(&[("ce-subject", Some(""))]).subject, None);
        assert_eq!(&*accept(&[("ce-tenantid", Some("other"))]).tenant, "other");
    }

    // C2.6
    #[test]
    fn sixteen_extensions_are_carried_in_order_of_arrival() {
        let names: Vec<String> = (0..20).map(|n| format!("ce-Ext{n}")).collect();
        let mut more: Vec<(&str, Option<&str>)> = names.iter().map(|name| (name.as_str(), Some("v"))).collect();
        more.push(("CE-EXT2", Some("last")));
        more.push(("ce-ext0", None));
        let event = accept(&more);
        let carried: Vec<_> = event.extensions.iter().map(|(name, value)| (&**name, &**value)).collect();
        let mut expected: Vec<(String, &str)> = (1..17).map(|n| (format!("ext{n}"), "v")).collect();
        expected[1].1 = "last";
        let expected: Vec<_> = expected.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(carried, expected);

        let long = format!("ce-{}", "n".repeat(65));
        let odd = accept(&[("ce-", Some("v")), ("ce-a b", Some("v")), (&long, Some("v")), ("ce-\u{e9}", Some("v"))]);
        assert!(odd.extensions.is_empty(), "{:?}", odd.extensions);
        assert!(accept(&[("ce-systemevent", Some("false"))]).extensions.is_empty());
    }

    // C2.6, C2.7: a name we would have to read is not UTF-8.
    #[test]
    fn an_attribute_whose_name_is_not_utf8_is_quarantined_where_it_has_a_value() {
        let named = |value: Option<&str>| {
            let mut headers = good();
            headers.push((b"ce-\xff".to_vec(), value.map(Into::into)));
            headers.push((b"\xff".to_vec(), Some(vec![0xff])));
            classify(&POLICY, Some("lender"), &record(&headers))
        };
        assert_eq!(verdict(&named(Some("v"))), "header_not_utf8");
        assert_eq!(verdict(&named(None)), "accept");
    }

    // C2.6
    #[test]
    fn the_underscore_prefix_is_read_where_it_is_accepted() {
        let policy = Policy { accept_ce_underscore: true, ..POLICY };
        let mut headers: Vec<_> = good()
            .into_iter()
            .map(|(name, value)| (String::from_utf8(name).unwrap().replace("ce-", "CE_").into_bytes(), value))
            .collect();
        let raw = record(&headers);
        assert_eq!(verdict(&classify(&policy, Some("lender"), &raw)), "accept");
        assert_eq!(verdict(&classify(&POLICY, Some("lender"), &raw)), "missing_header");
        headers.push((b"ce-tenantid".to_vec(), Some(Vec::new())));
        assert_eq!(verdict(&classify(&policy, Some("lender"), &record(&headers))), "missing_tenant");
    }

    // C2.7
    #[test]
    fn a_poison_record_is_cut_to_its_limits() {
        let origin = Origin::Kafka { topic: "t".into(), partition: 1, offset: 2 };
        let cut = |headers: Vec<Header>, body: usize| {
            let raw = RawRecord { body: Bytes::from(vec![7; body]), ..record(&headers) };
            poison(Reason::BodyTooLarge, &raw, origin.clone())
        };
        let small = cut(good(), 3);
        assert_eq!((small.headers.len(), small.body.len(), small.body_bytes), (GOOD.len(), 3, 3));
        assert_eq!((&small.origin, small.reason), (&origin, Reason::BodyTooLarge));

        let large = cut(vec![(b"a".to_vec(), Some(vec![1; 100_000])), (b"b".to_vec(), None)], 100_000);
        assert_eq!((large.body.len(), large.body_bytes), (POISON_BODY_BYTES, 100_000));
        assert_eq!(large.headers[0].1.as_ref().unwrap().len(), POISON_HEADERS_BYTES - HEADER_COST - 1);
        assert_eq!(large.headers.len(), 1);
        let many = cut(vec![(Vec::new(), None); 100_000], 0);
        assert_eq!(many.headers.len(), POISON_HEADERS_BYTES / HEADER_COST);
    }

    fn any_header() -> impl Strategy<Value = Header> {
        let names: Vec<Vec<u8>> = GOOD
            .iter()
            .map(|(name, _)| name.as_bytes().to_vec())
            .chain(["ce-x", "ce-", "CE_id", "ce-systemevent", "traceparent", "content-type"].map(Into::into))
            .collect();
        let values: Vec<Vec<u8>> = GOOD.iter().map(|(_, value)| value.as_bytes().to_vec()).collect();
        let bytes = || proptest::collection::vec(any::<u8>(), 0..40);
        (
            prop_oneof![proptest::sample::select(names), bytes()],
            proptest::option::of(prop_oneof![proptest::sample::select(values), bytes()]),
        )
    }

    proptest! {
        // C2.7: any record gets a verdict, and the same one again.
        #[test]
        fn no_record_makes_it_panic(
            more in proptest::collection::vec(any_header(), 0..60), from_good: bool, topic in "[a-z.-]{0,9}",
        ) {
            let headers = [if from_good { good() } else { Vec::new() }, more].concat();
            let raw = record(&headers);
            let first = classify(&POLICY, Some(&topic), &raw);
            prop_assert_eq!(verdict(&first), verdict(&classify(&POLICY, Some(&topic), &raw)));
            let kept = poison(Reason::MissingHeader, &raw, Origin::Http);
            prop_assert_eq!(kept.headers.len(), raw.headers.len());
        }

        // C2.2 C2.3: what was accepted is within every limit.
        #[test]
        fn what_is_accepted_is_within_the_limits(more in proptest::collection::vec(any_header(), 0..6)) {
            if let Verdict::Accept(event) = classify(&POLICY, None, &record(&[good(), more].concat())) {
                prop_assert!(is_source(&event.source) && !event.tenant.is_empty());
                let sent = event.extensions.iter().map(|(_, value)| value);
                let texts = [&event.tenant, &event.resource, &event.event, &event.content_type, &event.time];
                prop_assert!(texts.into_iter().chain(sent).all(|text| is_plain(text, 1024)));
                prop_assert!(event.extensions.len() <= EXTENSIONS);
                prop_assert!(!event.resource.contains('.') && !event.event.contains('.'));
            }
        }

    }
}
