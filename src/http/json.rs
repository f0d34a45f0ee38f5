//! Strict JSON: one document, no repeated keys, bounded nesting; merge patches (RFC 7396); durations as text.
//!
//! Invariant: what cannot be read in one way only is refused with 400, so no two readers of one body ever disagree.

use crate::error::Code;
use crate::http::problem::Problem;
use crate::model::limits::JSON_DEPTH;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::fmt;

/// Reads a body that holds exactly one JSON value.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    Strict { depth: JSON_DEPTH }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| Problem::new(Code::BadRequest, format!("the body is not valid JSON: {error}")))
}

/// Changes `target` as a merge patch says (RFC 7396): null removes, objects merge, all else replaces.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

/// Shows a duration in its largest whole unit: `250ms`, `5s`, `2h` (A1.10).
pub(crate) fn show_duration(ms: u64) -> String {
    for (unit, name) in [(3_600_000, "h"), (60_000, "m"), (1000, "s")] {
        if ms >= unit && ms.is_multiple_of(unit) {
            return format!("{}{name}", ms / unit);
        }
    }
    if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") }
}

/// Reads a duration of whole milliseconds, like `5s` or `1h 30m`.
pub(crate) fn parse_duration(text: &str) -> Option<u64> {
    let duration = humantime::parse_duration(text).ok()?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return None;
    }
    u64::try_from(duration.as_millis()).ok()
}

/// Reads one value with at most that much nesting below it.
struct Strict {
    depth: usize,
}

impl Strict {
    fn below<E: Error>(&self) -> Result<Strict, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))?;
        Ok(Strict { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.below()?)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(self.below()?)?;
            if map.insert(name, value).is_some() {
                return Err(A::Error::custom("a key is repeated in one object"));
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_one_reading_is_accepted() {
        let deep = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels)).into_bytes();
        let rows: Vec<(Vec<u8>, bool)> = vec![
            (br#"{"a": [1, -2, 1.5, true, null, "x"]}"#.to_vec(), true),
            (b" 1 ".to_vec(), true),
            (deep(JSON_DEPTH), true),
            (deep(JSON_DEPTH + 1), false),
            (deep(100_000), false),
            (b"".to_vec(), false),
            (br#"{"a": 1, "a": 1}"#.to_vec(), false),
            (br#"{"a": {"b": 1, "b": 2}}"#.to_vec(), false),
            (br#"{"a": 1} x"#.to_vec(), false),
            (br#"{"a": 1}{"a": 1}"#.to_vec(), false),
            (br#"{"a": 1e400}"#.to_vec(), false),
            (br#"{"a": "\ud800"}"#.to_vec(), false),
            (b"{\"a\": \"\xff\"}".to_vec(), false),
            (b"\xef\xbb\xbf{}".to_vec(), false),
            (br#"{"a": NaN}"#.to_vec(), false),
            (br#"{"a": 01}"#.to_vec(), false),
            (b"{'a': 1}".to_vec(), false),
            (br#"{"a": 1,}"#.to_vec(), false),
        ];
        for (body, good) in rows {
            let read = parse(&body);
            let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
            assert_eq!(read.is_ok(), good, "{shown}");
            if let Err(problem) = read {
                assert_eq!((problem.status(), problem.code()), (400, "bad_request"), "{shown}");
            }
        }
    }

    // RFC 7396, appendix A
    #[test]
    fn merge_patches_are_those_of_the_rfc() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "b"}), json!(["c"]), json!(["c"])),
            (json!({"a": "foo"}), json!(null), json!(null)),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut merged = target.clone();
            merge(&mut merged, &patch);
            assert_eq!(merged, result, "{target} + {patch}");
        }
    }

    // A1.10
    #[test]
    fn durations_are_text() {
        for (text, ms, shown) in [
            ("0s", 0, "0s"),
            ("250ms", 250, "250ms"),
            ("5s", 5000, "5s"),
            ("90s", 90_000, "90s"),
            ("120s", 120_000, "2m"),
            ("1h 30m", 5_400_000, "90m"),
            ("10h", 36_000_000, "10h"),
        ] {
            assert_eq!(parse_duration(text), Some(ms), "{text}");
            assert_eq!(show_duration(ms), shown, "{text}");
        }
        for text in ["", "5", "-1s", "1us", "s", "1e3s", "99999999999999999999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
