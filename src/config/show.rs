//! The effective settings for people and for machines: value, and where it came from; secrets masked.

use super::table::{self, Kind};
use super::typed::{From, Typed};
use std::fmt::Write as _;

/// What stands in the place of a secret.
const MASK: &str = "***";
/// Longest value shown; certificates are longer.
const SHOWN_CHARS: usize = 120;

/// A table for a terminal.
pub fn as_text(typed: &Typed) -> String {
    let width = table::settings().map(|s| s.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for setting in table::settings() {
        let from = typed.get(setting.name).map_or(From::Default, |given| given.from.clone());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {:32}  ({from})", setting.name, shown(typed, setting.name));
    }
    text
}

/// One JSON object: name to value and origin.
pub fn as_json(typed: &Typed) -> serde_json::Value {
    let row = |setting: &table::Setting| {
        let from = typed.get(setting.name).map_or(From::Default, |given| given.from.clone());
        let value = serde_json::json!({ "value": shown(typed, setting.name), "from": from.to_string() });
        (setting.name.to_owned(), value)
    };
    serde_json::Value::Object(table::settings().map(row).collect())
}

/// A setting's value as it may be shown.
pub(super) fn shown(typed: &Typed, name: &str) -> String {
    let text = typed.get(name).map_or("", |given| given.text.as_str());
    let secret = table::settings().any(|s| s.name == name && s.kind == Kind::Secret);
    if secret && !text.is_empty() {
        return MASK.to_owned();
    }
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((cut, _)) => format!("{}...", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}
