//! The effective settings for people and for machines: value, and where it came from; secrets masked.

use super::table::{self, Kind};
use super::typed::{From, Typed};
use crate::secrets::Kek;
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

/// Whether a value holds a secret that somebody put where none belongs: a key where its name should stand, a password in a URL or address,
/// a private key in place of its path. It is told that it is wrong, and not shown.
fn looks_secret(text: &str) -> bool {
    // `scheme://user:password@host`, and `user:password@host:port`; what stands behind the @ of a SINK_ALLOW is a tenant.
    let with_password = |part: &str| {
        let (is_url, authority) = part.split_once("://").map_or((false, part), |(_, rest)| (true, rest));
        let parts = authority.rsplit_once('@');
        parts.is_some_and(|(user, host)| user.contains(':') && (is_url || host.contains(':')))
    };
    Kek::parse(text).is_ok() || text.contains("PRIVATE KEY-----") || text.split([',', ';', ' ']).any(with_password)
}

/// A setting's value as it may be shown.
pub(super) fn shown(typed: &Typed, name: &str) -> String {
    let text = typed.get(name).map_or("", |given| given.text.as_str());
    let secret = table::settings().any(|s| s.name == name && s.kind == Kind::Secret);
    if !text.is_empty() && (secret || looks_secret(text)) {
        return MASK.to_owned();
    }
    let line = text.replace(['\n', '\r'], " ");
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((cut, _)) => format!("{}...", line.get(..cut).unwrap_or_default()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_the_wrong_place_is_not_shown() {
        let key = "zW/S3UcaK0bJ9q2vLh6yXo4tR8mPn1eFdGiHjQkTsVY=";
        for (name, text, is_shown) in [
            ("KEK_REF", key, false),
            ("KEK_REF", "4f1c9a70d2e85b3346aa917c0e5d82bb6fd0139e7a4c25f8813be96d07c4a25e", false),
            ("KEK_REF", "HUB_KEK", true),
            ("KEK_REF", "/etc/streaming-hub/kek", true),
            ("KAFKA_BROKERS", "a.example:9092,user:word@b.example:9092", false),
            ("KAFKA_BROKERS", "a.example:9092,[::1]:9093", true),
            ("SINK_ALLOW", "192.168.1.7/32:5671@tenant-a", true),
            ("SINK_ALLOW", "10.20.0.0/16:443; erp.local:8080+plain", true),
            ("HTTP_TLS_KEY", "-----BEGIN EC PRIVATE KEY-----\nMHcC", false),
            ("KAFKA_SCRAM_PASSWORD", "x", false),
        ] {
            let mut typed = Typed::defaults();
            typed.set(name, text, From::Flag);
            assert_eq!(shown(&typed, name) != MASK, is_shown, "{name} {text}");
        }
    }
}
