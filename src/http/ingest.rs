//! `POST /ingest/events`: one event over HTTP, in the binary mode of the CloudEvents HTTP binding (C3.6). The same verdicts as for a
//! Kafka record, by the same function.
//!
//! Invariant: 202 is answered only after the commit. What the key may not write is refused before anything is stored of it.

use crate::engine::command::{Admit, AdmitFrom, AdmitResult, Judged};
use crate::error::Code;
use crate::http::Ingest;
use crate::http::answer::Answer;
use crate::http::call::Call;
use crate::http::change::unexpected;
use crate::http::problem::Problem;
use crate::model::api_key::Role;
use crate::model::record::{Origin, RawRecord, Verdict};
use crate::rules::classify::{classify, poison};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

/// What became of an event.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ingested)]
pub(crate) struct IngestedShown {
    /// `accept`, or `drop` of a system event.
    verdict: &'static str,
    /// Its seq in its tenant; null of a dropped one, and of a duplicate whose event is no longer stored.
    seq: Option<u64>,
    /// The event was known already; nothing was written.
    duplicate: bool,
}

/// Stores one event.
pub(crate) async fn ingest(call: &Call) -> Result<Answer, Problem> {
    if call.parts().settings.ingest == Ingest::Off {
        return Err(Problem::new(Code::NotFound, "ingest over HTTP is turned off"));
    }
    let record = RawRecord { headers: attributes(&call.headers), body: call.body.clone() };
    check_allowed(call, &record)?;
    match classify(&call.parts().settings.records, None, &record) {
        Verdict::Accept(event) => match admit(call, Judged::Event(event)).await? {
            AdmitResult::Stored { seq, .. } => accepted(Some(seq.0), false),
            AdmitResult::Duplicate { seq, .. } => accepted(seq.map(|seq| seq.0), true),
            AdmitResult::Dropped | AdmitResult::Quarantined => Err(unexpected()),
        },
        Verdict::Drop => {
            call.parts().metrics.dropped();
            answered(&IngestedShown { verdict: "drop", seq: None, duplicate: false })
        }
        Verdict::Quarantine(reason) => {
            admit(call, Judged::Poison(Box::new(poison(reason, &record, Origin::Http)))).await?;
            Err(Problem::quarantined(reason))
        }
    }
}

async fn admit(call: &Call, judged: Judged) -> Result<AdmitResult, Problem> {
    let admit = Admit { from: AdmitFrom::Http, records: vec![judged] };
    let admitted = call.parts().writer.admit(admit).await?;
    admitted.results.first().copied().ok_or_else(unexpected)
}

fn accepted(seq: Option<u64>, duplicate: bool) -> Result<Answer, Problem> {
    answered(&IngestedShown { verdict: "accept", seq, duplicate })
}

fn answered(shown: &IngestedShown) -> Result<Answer, Problem> {
    Ok(Answer::json(StatusCode::ACCEPTED, shown))
}

/// The headers that a record would have: attributes decoded, and the plain ones that count beside them.
fn attributes(headers: &HeaderMap) -> Vec<(Bytes, Option<Bytes>)> {
    let plain = ["content-type", "traceparent", "tracestate"];
    let kept = headers.iter().filter_map(|(name, value)| {
        let value = if name.as_str().starts_with("ce-") {
            Bytes::from(decode(value.as_bytes()))
        } else if plain.contains(&name.as_str()) {
            Bytes::copy_from_slice(value.as_bytes())
        } else {
            return None;
        };
        Some((Bytes::copy_from_slice(name.as_str().as_bytes()), Some(value)))
    });
    kept.collect()
}

/// A header value as the binding writes it: perhaps quoted, then percent-encoded. A percent sign that encodes nothing stands for
/// itself.
fn decode(value: &[u8]) -> Vec<u8> {
    let unquoted = match value {
        [b'"', inner @ .., b'"'] => unquote(inner),
        plain => plain.to_vec(),
    };
    let mut decoded = Vec::with_capacity(unquoted.len());
    let mut rest = unquoted.as_slice();
    while let [byte, after @ ..] = rest {
        let encoded = match (byte, after) {
            (b'%', [high, low, more @ ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, more)),
            _ => None,
        };
        let (byte, more) = encoded.unwrap_or((*byte, after));
        decoded.push(byte);
        rest = more;
    }
    decoded
}

fn unquote(inner: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let plain = inner.iter().copied().filter(|byte| {
        escaped = !escaped && *byte == b'\\';
        !escaped
    });
    plain.collect()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// 403 where the key names tenants or sources and the event's is none of them. An absent one is the verdict's to judge.
fn check_allowed(call: &Call, record: &RawRecord) -> Result<(), Problem> {
    let Some(Role::Ingest { tenants, sources }) = call.identity.as_ref().map(|identity| &identity.role) else {
        return Err(Problem::new(Code::Forbidden, "only an ingest key may write events"));
    };
    let told = |name: &[u8]| {
        let mut same = record.headers.iter().rev().filter(|(known, _)| known.as_ref() == name);
        same.next().and_then(|(_, value)| value.as_deref())
    };
    for (name, allowed) in [("ce-source", sources), ("ce-tenantid", tenants)] {
        let refused = told(name.as_bytes())
            .is_some_and(|value| !allowed.is_empty() && !allowed.iter().any(|allowed| allowed.as_bytes() == value));
        if refused {
            return Err(Problem::new(Code::SourceNotAllowed, format!("the key may not write events with that {name}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // C3.6
    #[test]
    fn attribute_values_are_decoded_as_the_binding_says() {
        for (value, decoded) in [
            ("plain", "plain"),
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%25%34%31", "%41"),
            (r#""a \"b\" \\ %20c""#, r#"a "b" \  c"#),
            ("\"", "\""),
            ("", ""),
        ] {
            assert_eq!(String::from_utf8_lossy(&decode(value.as_bytes())), decoded, "{value}");
        }
        assert_eq!(decode(b"%ff"), [0xff]);
    }

    #[test]
    fn only_what_a_record_would_carry_is_kept() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("ce-id", "x"), ("content-type", "a/b"), ("authorization", "Bearer x"), ("ce-a", "%41")] {
            headers.append(name, value.parse().unwrap());
        }
        let kept: Vec<_> = attributes(&headers)
            .into_iter()
            .map(|(name, value)| (String::from_utf8(name.to_vec()).unwrap(), value.unwrap()))
            .collect();
        assert!(!kept.iter().any(|(name, _)| name == "authorization"), "a credential must not reach the store");
        assert!(kept.contains(&("ce-a".to_owned(), Bytes::from_static(b"A"))));
        assert_eq!(kept.len(), 3);
    }
}
