//! Which fixed extra headers a tenant may have sent with its deliveries (C9.9).
//!
//! Invariant: none that the hub sets itself, none that steers the connection or tells where the message ends, and none that opens a
//! cloud's metadata service. Names compare without case.

use crate::model::limits::EXTRA_HEADER_VALUE_BYTES;

/// Name of an extra header.
const NAME_BYTES: usize = 128;

/// Whether a tenant may have that fixed header sent (C9.9); else why not.
///
/// # Errors
/// The reason, for people.
pub fn check(name: &str, value: &str) -> Result<(), &'static str> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(token) {
        return Err("not a header name");
    }
    let name = name.to_ascii_lowercase();
    if OURS.contains(&name.as_str()) || OUR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err("the hub itself sets this header");
    }
    if FRAMING.contains(&name.as_str()) {
        return Err("this header steers the connection or the framing of the message");
    }
    if METADATA.contains(&name.as_str()) || METADATA_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err("this header opens cloud metadata services");
    }
    if value.len() > EXTRA_HEADER_VALUE_BYTES {
        return Err("the value is too long");
    }
    if !value.bytes().all(|b| matches!(b, b' '..=b'~')) || value != value.trim() {
        return Err("the value must be printable ASCII without spaces around it");
    }
    Ok(())
}

const OURS: &[&str] = &["content-type", "user-agent", "traceparent", "tracestate"];
const OUR_PREFIXES: &[&str] = &["x-lerian-", "x-webhook-", "webhook-"];
const FRAMING: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
const METADATA: &[&str] = &["metadata", "metadata-flavor", "x-google-metadata-request", "x-metadata-token"];
const METADATA_PREFIXES: &[&str] = &["x-aws-ec2-metadata-", "x-aliyun-ecs-metadata-"];

#[cfg(test)]
mod tests {
    use super::*;

    // C9.9
    #[test]
    fn extra_headers_may_not_be_ours_nor_steer_the_connection_nor_open_metadata() {
        let long = "x".repeat(EXTRA_HEADER_VALUE_BYTES + 1);
        for (name, value, good) in [
            ("X-Env", "prod", true),
            ("Authorization", "Bearer abc", true),
            ("X-Empty", "", true),
            ("X-Lerian-Anything", "1", false),
            ("x-webhook-signature", "1", false),
            ("Webhook-Id", "1", false),
            ("User-Agent", "me", false),
            ("Content-Type", "text/plain", false),
            ("TraceParent", "00", false),
            ("Host", "a", false),
            ("Content-Length", "0", false),
            ("Transfer-Encoding", "chunked", false),
            ("Connection", "close", false),
            ("Proxy-Authorization", "x", false),
            ("Upgrade", "h2c", false),
            ("Metadata-Flavor", "Google", false),
            ("Metadata", "true", false),
            ("X-aws-ec2-metadata-token", "t", false),
            ("X-aws-ec2-metadata-token-ttl-seconds", "60", false),
            ("", "1", false),
            ("X Y", "1", false),
            (":authority", "a", false),
            ("X-Ç", "1", false),
            ("X-A", "a\r\nX-B: c", false),
            ("X-A", " a", false),
            ("X-A", "ç", false),
            ("X-A", &long, false),
        ] {
            assert_eq!(check(name, value).is_ok(), good, "{name}: {value}");
        }
    }
}
