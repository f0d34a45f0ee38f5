//! Whether a subscription wants an event: by event type, producer and schema major, without a catalog (C4.1).
//!
//! The tenant is not looked at here: the engine asks only for subscriptions of the event's own tenant (C4.4), and only
//! for live ones (C4.2). Texts compare byte for byte.

use crate::model::event::Event;
use crate::model::limits::TYPE_PART_BYTES;
use crate::model::subscription::{EventPattern, Spec};
use crate::rules::grammar::is_type_part;

/// Whether an event is what the specification asks for.
pub fn matches(spec: &Spec, event: &Event) -> bool {
    spec.schema_major.is_none_or(|major| major == event.schema_major)
        && spec.origin.as_deref().is_none_or(|origin| origin == &*event.source)
        && spec.event_types.iter().any(|pattern| pattern_matches(pattern, &event.resource, &event.event))
}

/// Whether an event type fits one entry of the list.
pub fn pattern_matches(pattern: &EventPattern, resource: &str, event: &str) -> bool {
    match pattern {
        EventPattern::Exact(wanted_resource, wanted_event) => wanted_resource == resource && wanted_event == event,
        EventPattern::Resource(wanted) => wanted == resource,
        EventPattern::Event(wanted) => wanted == event,
        EventPattern::All => true,
    }
}

/// Why a text is no entry of an event-type list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not two parts around one dot, and not `*`.
    #[error("must be <resource>.<event>, <resource>.*, *.<event> or *")]
    Form,
    /// A `*` beside other characters.
    #[error("* stands for a whole part, not for some of its characters")]
    PartOfAPart,
    /// A part that no event can have.
    #[error(
        "each part must have 1 to {TYPE_PART_BYTES} bytes, without control characters and without spaces around it"
    )]
    Part,
}

/// Reads one entry of an event-type list.
///
/// # Errors
/// When it has none of the four forms, or could match no event.
pub fn parse_pattern(text: &str) -> Result<EventPattern, PatternError> {
    if text == "*" {
        return Ok(EventPattern::All);
    }
    let (resource, event) = text.split_once('.').ok_or(PatternError::Form)?;
    if event.contains('.') || (resource == "*" && event == "*") {
        return Err(PatternError::Form);
    }
    Ok(match (resource, event) {
        ("*", event) => EventPattern::Event(part(event)?),
        (resource, "*") => EventPattern::Resource(part(resource)?),
        (resource, event) => EventPattern::Exact(part(resource)?, part(event)?),
    })
}

/// The entry as it is written; [`parse_pattern`] reads it back.
pub fn pattern_text(pattern: &EventPattern) -> String {
    match pattern {
        EventPattern::Exact(resource, event) => format!("{resource}.{event}"),
        EventPattern::Resource(resource) => format!("{resource}.*"),
        EventPattern::Event(event) => format!("*.{event}"),
        EventPattern::All => "*".to_owned(),
    }
}

fn part(text: &str) -> Result<String, PatternError> {
    if text.contains('*') {
        return Err(PatternError::PartOfAPart);
    }
    // A space at an end is a slip of the pen: it would be a subscription that waits for ever.
    if !is_type_part(text) || text.trim() != text {
        return Err(PatternError::Part);
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::EventId;
    use crate::model::subscription::{DeliveryOrder, SignatureFormat, Sink, StartFrom, WebhookSink};
    use bytes::Bytes;
    use proptest::prelude::*;

    fn event(source: &str, resource: &str, event: &str, schema_major: u32) -> Event {
        Event {
            id: EventId([0; 16]),
            tenant: "t".into(),
            source: source.into(),
            resource: resource.into(),
            event: event.into(),
            time: "2026-11-30T12:00:00Z".into(),
            schema_version: schema_major.to_string().into(),
            schema_major,
            subject: None,
            content_type: "application/json".into(),
            data_schema: None,
            traceparent: None,
            tracestate: None,
            extensions: Vec::new(),
            body: Bytes::new(),
        }
    }

    fn spec(patterns: &[&str], origin: Option<&str>, schema_major: Option<u32>) -> Spec {
        Spec {
            name: "n".to_owned(),
            description: None,
            event_types: patterns.iter().map(|text| parse_pattern(text).unwrap()).collect(),
            origin: origin.map(str::to_owned),
            schema_major,
            sink: Sink::Webhook(WebhookSink {
                url: "https://example.com/".to_owned(),
                headers: Vec::new(),
                timeout_ms: None,
                signature_format: SignatureFormat::Lerian,
                client_certificate: None,
            }),
            start_from: StartFrom::Now,
            retry_schedule: None,
            verification_echo: true,
            delivery_order: DeliveryOrder::Fifo,
            max_in_flight: 1,
            rate_limit: None,
            metadata: std::collections::BTreeMap::new(),
        }
    }

    // C4.1
    #[test]
    fn a_subscription_matches_what_it_names() {
        let all: &[&str] = &["*"];
        for (patterns, origin, major, expected) in [
            (&["loan.paid"][..], None, None, true),
            (&["loan.*"], None, None, true),
            (&["*.paid"], None, None, true),
            (all, None, None, true),
            (&["loan.opened", "repayment.*", "loan.paid"], None, None, true),
            (&["loan.opened"], None, None, false),
            (&["loans.paid"], None, None, false),
            (&["loa.*"], None, None, false),
            (&["paid.*"], None, None, false),
            (&["*.pai"], None, None, false),
            (&["*.loan"], None, None, false),
            (&["Loan.paid"], None, None, false),
            (&[], None, None, false),
            (all, Some("lender"), None, true),
            (all, Some("matcher"), None, false),
            (all, Some("lend"), None, false),
            (all, Some("Lender"), None, false),
            (all, None, Some(2), true),
            (all, None, Some(1), false),
            (all, None, Some(0), false),
            (all, Some("lender"), Some(2), true),
            (all, Some("lender"), Some(3), false),
            (&["loan.opened"], Some("lender"), Some(2), false),
        ] {
            let got = matches(&spec(patterns, origin, major), &event("lender", "loan", "paid", 2));
            assert_eq!(got, expected, "{patterns:?} {origin:?} {major:?}");
        }
    }

    // C4.1
    #[test]
    fn patterns_have_four_forms() {
        let longest = "a".repeat(TYPE_PART_BYTES);
        for (text, expected) in [
            ("*", Ok(EventPattern::All)),
            ("loan.*", Ok(EventPattern::Resource("loan".to_owned()))),
            ("*.paid", Ok(EventPattern::Event("paid".to_owned()))),
            ("loan_application.approved-2", Ok(EventPattern::Exact("loan_application".into(), "approved-2".into()))),
            (&format!("{longest}.*"), Ok(EventPattern::Resource(longest.clone()))),
            (&format!("{longest}a.*"), Err(PatternError::Part)),
            ("", Err(PatternError::Form)),
            ("loan", Err(PatternError::Form)),
            ("**", Err(PatternError::Form)),
            ("*.*", Err(PatternError::Form)),
            ("studio.lerian.lender.loan.paid", Err(PatternError::Form)),
            ("loan.paid.", Err(PatternError::Form)),
            ("loan..paid", Err(PatternError::Form)),
            (".", Err(PatternError::Part)),
            ("loan.", Err(PatternError::Part)),
            (".paid", Err(PatternError::Part)),
            ("*.", Err(PatternError::Part)),
            (".*", Err(PatternError::Part)),
            (" loan.paid", Err(PatternError::Part)),
            ("loan.paid ", Err(PatternError::Part)),
            ("loan.pa\nid", Err(PatternError::Part)),
            ("lo*.paid", Err(PatternError::PartOfAPart)),
            ("loan.pa*", Err(PatternError::PartOfAPart)),
            ("**.paid", Err(PatternError::PartOfAPart)),
        ] {
            assert_eq!(parse_pattern(text), expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_is_written_as_it_was_read(text in "\\PC{0,9}|[ab.*]{0,5}") {
            if let Ok(pattern) = parse_pattern(&text) {
                prop_assert_eq!(pattern_text(&pattern), text);
            }
        }

        // Every accepted event's own type is a pattern that matches it, and no other type.
        #[test]
        fn an_exact_pattern_matches_its_own_type_only(
            resource in "[a-z_é-]{1,5}", event in "[a-z_-]{1,5}", other in "[a-z_é-]{1,5}",
        ) {
            let pattern = parse_pattern(&format!("{resource}.{event}")).unwrap();
            prop_assert!(pattern_matches(&pattern, &resource, &event));
            prop_assert_eq!(pattern_matches(&pattern, &other, &event), other == resource);
            prop_assert_eq!(pattern_matches(&pattern, &resource, &other), other == event);
        }
    }
}
