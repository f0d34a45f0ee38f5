//! Which verdict would this get, and why: a JSON line in, a JSON line out, from the daemon's own functions.
//!
//! The lines have the shape of the given cases, so that a file of cases, or of records taken from a topic, can be piped
//! through.

use crate::model::record::{RawRecord, Verdict};
use crate::rules::address::{self, AddressPolicy, judge_target, parse_host, parse_webhook_url};
use crate::rules::classify::{Policy, classify, topic_source};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a line cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No JSON, or not of the shape.
    #[error("not a line to explain: {0}")]
    Shape(#[from] serde_json::Error),
    /// A base64 text that is none.
    #[error("{field} is not base64: {source}")]
    Base64 {
        /// Where it stands.
        field: String,
        /// Why.
        source: base64::DecodeError,
    },
    /// The body is given twice.
    #[error("give value or value_base64, not both")]
    TwoBodies,
    /// A kind of destination that is not known.
    #[error("kind must be webhook or rabbitmq")]
    Kind,
}

/// Judges one record: `{"name", "topic", "headers": [[name, text | null | {"base64"}]], "value" | "value_base64"}` in,
/// and `{"name", "verdict", "reason", "schema_major"}` out, null where there is none. Without a topic the record is judged
/// like one of HTTP ingest. A topic that is not followed for delivery (C1.1) makes the verdict `ignored`, since no
/// record of it is ever read.
///
/// # Errors
/// When the line is not such a record.
pub fn explain_record(line: &str, policy: &Policy, prefix: &str) -> Result<String, ExplainError> {
    let LineRecord { name, topic, record } = read_record(line)?;
    let said = |verdict, reason, schema_major| ExplainedRecord { name, verdict, reason, schema_major };
    let explained = match topic.as_deref().map(|topic| topic_source(prefix, topic)) {
        Some(None) => said("ignored", Some("topic_not_followed"), None),
        Some(Some(source)) => told(classify(policy, Some(source), &record), said),
        None => told(classify(policy, None, &record), said),
    };
    Ok(serde_json::to_string(&explained)?)
}

/// A record as such a line gives it.
#[derive(Debug, Clone)]
pub struct LineRecord {
    /// Its name, for people.
    pub name: Option<String>,
    /// The topic it stands in.
    pub topic: Option<String>,
    /// Headers and body.
    pub record: RawRecord,
}

/// Reads one line without judging it.
///
/// # Errors
/// When the line is not such a record.
pub fn read_record(line: &str) -> Result<LineRecord, ExplainError> {
    let given: GivenRecord = serde_json::from_str(line)?;
    let record = RawRecord { headers: headers(given.headers)?, body: body(given.value, given.value_base64)? };
    Ok(LineRecord { name: given.name, topic: given.topic, record })
}

#[derive(Deserialize)]
struct GivenRecord {
    name: Option<String>,
    topic: Option<String>,
    #[serde(default)]
    headers: Vec<(String, Option<GivenBytes>)>,
    value: Option<String>,
    value_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GivenBytes {
    Text(String),
    Base64 { base64: String },
}

#[derive(Serialize)]
struct ExplainedRecord {
    name: Option<String>,
    verdict: &'static str,
    reason: Option<&'static str>,
    schema_major: Option<u32>,
}

fn told<T>(verdict: Verdict, said: impl FnOnce(&'static str, Option<&'static str>, Option<u32>) -> T) -> T {
    match verdict {
        Verdict::Accept(event) => said("accept", None, Some(event.schema_major)),
        Verdict::Drop => said("drop", None, None),
        Verdict::Quarantine(reason) => said("quarantine", Some(reason.code()), None),
    }
}

fn headers(given: Vec<(String, Option<GivenBytes>)>) -> Result<Vec<(Bytes, Option<Bytes>)>, ExplainError> {
    let value = |name: &str, value: Option<GivenBytes>| match value {
        None => Ok(None),
        Some(GivenBytes::Text(text)) => Ok(Some(Bytes::from(text))),
        Some(GivenBytes::Base64 { base64 }) => decoded(name, &base64).map(Some),
    };
    given.into_iter().map(|(name, given)| Ok((Bytes::from(name.clone()), value(&name, given)?))).collect()
}

fn body(text: Option<String>, base64: Option<String>) -> Result<Bytes, ExplainError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(ExplainError::TwoBodies),
        (Some(text), None) => Ok(Bytes::from(text)),
        (None, Some(base64)) => decoded("value_base64", &base64),
        (None, None) => Ok(Bytes::new()),
    }
}

/// Judges one destination without resolving its name: `{"kind", "input"}` in, and `{"kind", "input", "verdict",
/// "rule"}` out, where `verdict` is `allow` or `reject` and `rule` is null for `allow`. The input is a webhook's URL,
/// or a RabbitMQ sink's JSON (as an object, or as text).
///
/// # Errors
/// When the line is not such a destination.
pub fn explain_destination(line: &str, policy: &AddressPolicy, tenant: &str) -> Result<String, ExplainError> {
    let given: GivenDestination = serde_json::from_str(line)?;
    let judged = match (given.kind.as_str(), &given.input) {
        ("webhook", Value::String(url)) => webhook(url, policy, tenant),
        ("rabbitmq", Value::String(text)) => broker(serde_json::from_str(text)?, policy, tenant),
        ("rabbitmq", object) => broker(serde_json::from_value(object.clone())?, policy, tenant),
        _ => return Err(ExplainError::Kind),
    };
    let (verdict, rule) = match judged {
        Ok(address::Verdict::Allow) => ("allow", None),
        Ok(address::Verdict::Reject { rule, .. }) | Err(rule) => ("reject", Some(rule)),
    };
    Ok(serde_json::to_string(&ExplainedDestination { kind: given.kind, input: given.input, verdict, rule })?)
}

#[derive(Deserialize)]
struct GivenDestination {
    kind: String,
    input: Value,
}

#[derive(Serialize)]
struct ExplainedDestination {
    kind: String,
    input: Value,
    verdict: &'static str,
    rule: Option<&'static str>,
}

fn webhook(url: &str, policy: &AddressPolicy, tenant: &str) -> Result<address::Verdict, &'static str> {
    let target = parse_webhook_url(url).map_err(|refusal| refusal.rule())?;
    Ok(judge_target(policy, tenant, target.https, &target.host, target.port))
}

/// What of a RabbitMQ sink says where it is.
#[derive(Deserialize)]
struct GivenBroker {
    host: String,
    port: Option<u16>,
    tls: Option<bool>,
    vhost: Option<String>,
}

fn broker(given: GivenBroker, policy: &AddressPolicy, tenant: &str) -> Result<address::Verdict, &'static str> {
    let host = parse_host(&given.host).map_err(|refusal| refusal.rule())?;
    if given.vhost.is_some_and(|vhost| vhost.contains(char::is_control)) {
        return Err("vhost");
    }
    let tls = given.tls.unwrap_or(true);
    Ok(judge_target(policy, tenant, tls, &host, given.port.unwrap_or(if tls { 5671 } else { 5672 })))
}

fn decoded(field: &str, base64: &str) -> Result<Bytes, ExplainError> {
    let bytes = STANDARD.decode(base64).map_err(|source| ExplainError::Base64 { field: field.to_owned(), source })?;
    Ok(Bytes::from(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const POLICY: Policy = Policy { max_body_bytes: 1 << 20, accept_ce_underscore: false };

    fn explain(line: &str) -> Value {
        let told = explain_record(line, &POLICY, "lerian.streaming.").unwrap();
        assert!(!told.contains('\n'), "one line in, one line out");
        serde_json::from_str(&told).unwrap()
    }

    // C2: every given case.
    #[test]
    fn the_given_records_get_the_given_verdicts() {
        let cases = include_str!("../../tests/cases/records.jsonl");
        let mut count = 0;
        for line in cases.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let told = explain(line);
            assert_eq!(told["name"], case["name"]);
            assert_eq!(told["verdict"], case["verdict"], "{}", case["name"]);
            assert_eq!(told["reason"], case["reason"], "{}", case["name"]);
            if case["schema_major"].is_number() {
                assert_eq!(told["schema_major"], case["schema_major"], "{}", case["name"]);
            }
            assert_eq!(told["schema_major"].is_number(), case["verdict"] == "accept", "{}", case["name"]);
            count += 1;
        }
        assert_eq!(count, 30);
    }

    #[test]
    fn the_answer_has_four_fields_in_order() {
        let told = explain_record(r#"{"name":"n","headers":[]}"#, &POLICY, "p.").unwrap();
        assert_eq!(told, r#"{"name":"n","verdict":"quarantine","reason":"missing_header","schema_major":null}"#);
        let drop = r#"{"headers":[["ce-systemevent","true"]],"value":null,"further":[1]}"#;
        let told = explain_record(drop, &POLICY, "p.").unwrap();
        assert_eq!(told, r#"{"name":null,"verdict":"drop","reason":null,"schema_major":null}"#);
    }

    // C1.1
    #[test]
    fn a_topic_that_is_not_followed_is_said_to_be_ignored() {
        for topic in ["lerian.streaming.lender.commands", "lerian.streaming.lender.dlq", "orders"] {
            let told = explain(&format!(r#"{{"topic":"{topic}","headers":[["ce-systemevent","true"]]}}"#));
            assert_eq!(
                (told["verdict"].as_str(), told["reason"].as_str()),
                (Some("ignored"), Some("topic_not_followed"))
            );
        }
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error() {
        for (line, part) in [
            ("", "EOF"),
            ("[]", "not a line"),
            (r#"{"headers":[["a",1]]}"#, "not a line"),
            (r#"{"headers":[["a"]]}"#, "not a line"),
            (r#"{"headers":[["ce-id",{"base64":"*"}]]}"#, "ce-id is not base64"),
            (r#"{"value_base64":"*"}"#, "value_base64 is not base64"),
            (r#"{"value":"a","value_base64":"YQ=="}"#, "not both"),
        ] {
            let error = explain_record(line, &POLICY, "p.").unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
    // C9.8: every given webhook and RabbitMQ destination. `block` ones are found out by their addresses only.
    #[test]
    fn the_given_destinations_get_the_given_verdicts() {
        let policy = AddressPolicy {
            allow_http: true,
            ports: vec![80, 443, 1900, 5671, 8080, 8443],
            ..AddressPolicy::default()
        };
        let mut count = 0;
        for line in include_str!("../../tests/cases/ssrf.tsv").lines().filter(|line| !line.starts_with('#')) {
            let mut fields = line.split('\t');
            let (kind, input, verdict) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
            if kind == "aws" {
                continue;
            }
            let input = if kind == "webhook" {
                input.replace("\\t", "\t").replace("\\r", "\r").replace("\\n", "\n")
            } else {
                input.to_owned()
            };
            let expected = if verdict == "block" { "allow" } else { verdict };
            let asked = json!({"kind": kind, "input": input}).to_string();
            let told: Value = serde_json::from_str(&explain_destination(&asked, &policy, "t").unwrap()).unwrap();
            assert_eq!(told["verdict"], expected, "{told}");
            assert_eq!(told["rule"].is_string(), expected == "reject", "{told}");
            assert_eq!((&told["kind"], &told["input"]), (&json!(kind), &json!(input)));
            count += 1;
        }
        assert_eq!(count, 107);
    }

    // C9.8
    #[test]
    fn destinations_are_explained_by_the_rule_that_forbids_them() {
        let policy = AddressPolicy::default();
        for (line, expected) in [
            (json!({"kind": "webhook", "input": "https://10.0.0.1/"}), json!("private")),
            (json!({"kind": "webhook", "input": "https://a@b.com/"}), json!("userinfo")),
            (json!({"kind": "webhook", "input": "http://example.com:443/"}), json!("plain")),
            (json!({"kind": "webhook", "input": "https://example.com/"}), json!(null)),
            (json!({"kind": "rabbitmq", "input": {"host": "mq.example.com"}}), json!(null)),
            (json!({"kind": "rabbitmq", "input": {"host": "mq.example.com", "tls": false}}), json!("port")),
            (json!({"kind": "rabbitmq", "input": {"host": "mq.example.com", "vhost": "\n"}}), json!("vhost")),
        ] {
            let told = explain_destination(&line.to_string(), &policy, "t").unwrap();
            assert_eq!(serde_json::from_str::<Value>(&told).unwrap()["rule"], expected, "{line}");
        }
        for line in [
            r#"{"kind":"webhook","input":1}"#,
            r#"{"kind":"pull","input":""}"#,
            r#"{"kind":"rabbitmq","input":"x"}"#,
            "{}",
        ] {
            assert!(explain_destination(line, &policy, "t").is_err(), "{line}");
        }
    }
}
