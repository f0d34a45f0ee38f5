//! How a destination may be spelt: one spelling, read from the raw text before any parser could make something else of
//! it (C9.8).
//!
//! Invariant: what is let through here has the same meaning for every parser that reads it later. So whatever two
//! parsers could read differently is refused: odd spellings of addresses, percent signs and characters beyond ASCII in
//! a host, user names, fragments, backslashes, spaces and control characters. Capitals of scheme and host, and a
//! default port, are the only things that are rewritten.

use crate::model::limits::URL_BYTES;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A host: an address or a name, the name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetHost {
    /// To be resolved.
    Name(String),
    /// Given as such.
    Ip(IpAddr),
}

impl fmt::Display for TargetHost {
    /// As it stands in an authority: IPv6 in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetHost::Name(name) => f.write_str(name),
            TargetHost::Ip(IpAddr::V4(addr)) => addr.fmt(f),
            TargetHost::Ip(IpAddr::V6(addr)) => write!(f, "[{addr}]"),
        }
    }
}

/// A webhook's destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpTarget {
    /// The whole URL in its canonical spelling.
    pub url: String,
    /// With TLS.
    pub https: bool,
    /// The host.
    pub host: TargetHost,
    /// The port, also where it is the scheme's own.
    pub port: u16,
    /// Path and query as they were given; at least `/`.
    pub path_and_query: String,
    /// What the `Host` header says: host, and port where it is not the scheme's own.
    pub authority: String,
}

/// Why a text is no destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    /// Longer than is kept.
    #[error("must have at most {URL_BYTES} bytes")]
    TooLong,
    /// A character that no URL has.
    #[error("has a character that must be percent-encoded, or (in the host) written as an A-label")]
    Character,
    /// A percent sign that does not encode.
    #[error("has a % that is not followed by two hex digits")]
    Percent,
    /// Not absolute, or of another scheme.
    #[error("must begin with https:// or http://")]
    Scheme,
    /// User name or password.
    #[error("must not hold a user name or password")]
    Userinfo,
    /// A fragment is never sent.
    #[error("must not hold a fragment")]
    Fragment,
    /// Port 0, beyond 65535, empty, or with leading zeros.
    #[error("the port must be a number from 1 to 65535")]
    Port,
    /// Nothing to connect to.
    #[error("the host is missing")]
    NoHost,
    /// An address in another spelling than its own.
    #[error("an address must be written in its usual spelling, such as 192.0.2.1 or [2001:db8::1]")]
    AddressSpelling,
    /// Not a host name of DNS.
    #[error("the host name must be labels of letters, digits and hyphens, without a dot at its end")]
    HostName,
}

impl UrlRefusal {
    /// A stable word for it.
    pub fn rule(self) -> &'static str {
        match self {
            UrlRefusal::TooLong => "too_long",
            UrlRefusal::Character => "character",
            UrlRefusal::Percent => "percent",
            UrlRefusal::Scheme => "scheme",
            UrlRefusal::Userinfo => "userinfo",
            UrlRefusal::Fragment => "fragment",
            UrlRefusal::Port => "port",
            UrlRefusal::NoHost => "no_host",
            UrlRefusal::AddressSpelling => "address_spelling",
            UrlRefusal::HostName => "host_name",
        }
    }
}

/// Reads a webhook's URL. Only its spelling is judged: whether the hub may connect there is [`super::judge_target`]'s
/// to say.
///
/// # Errors
/// When the text is no absolute http or https URL, or could be read in two ways.
pub fn parse_webhook_url(text: &str) -> Result<HttpTarget, UrlRefusal> {
    if text.len() > URL_BYTES {
        return Err(UrlRefusal::TooLong);
    }
    if !text.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && !br#""<>\^`{|}"#.contains(&byte)) {
        return Err(UrlRefusal::Character);
    }
    let (scheme, rest) = text.split_once("://").ok_or(UrlRefusal::Scheme)?;
    let https = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(UrlRefusal::Scheme),
    };
    if rest.contains('#') {
        return Err(UrlRefusal::Fragment);
    }
    let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(UrlRefusal::Userinfo);
    }
    if !percent_signs_encode(path_and_query) {
        return Err(UrlRefusal::Percent);
    }
    let (host, given_port) = host_and_port(authority)?;
    let usual_port = if https { 443 } else { 80 };
    let port = given_port.unwrap_or(usual_port);
    let authority = if port == usual_port { host.to_string() } else { format!("{host}:{port}") };
    let slash = if path_and_query.starts_with('/') { "" } else { "/" };
    let path_and_query = format!("{slash}{path_and_query}");
    let scheme = if https { "https" } else { "http" };
    let url = format!("{scheme}://{authority}{path_and_query}");
    // The canonical spelling can be longer than what was given, and must be readable again.
    if url.len() > URL_BYTES {
        return Err(UrlRefusal::TooLong);
    }
    Ok(HttpTarget { url, https, host, port, path_and_query, authority })
}

/// Reads a host that stands alone (a broker's, or in the operator's rules): a name, or an address without brackets.
///
/// # Errors
/// When it is neither, or in an odd spelling.
pub fn parse_host(text: &str) -> Result<TargetHost, UrlRefusal> {
    if text.contains(':') {
        return text.parse().map(|addr: Ipv6Addr| TargetHost::Ip(addr.into())).map_err(|_| UrlRefusal::AddressSpelling);
    }
    if text.is_empty() {
        return Err(UrlRefusal::NoHost);
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-')) {
        return Err(UrlRefusal::HostName);
    }
    let name = text.to_ascii_lowercase();
    if ends_in_a_number(&name) {
        // The standard library reads four decimal numbers without leading zeros, and nothing else.
        return name.parse().map(|addr: Ipv4Addr| TargetHost::Ip(addr.into())).map_err(|_| UrlRefusal::AddressSpelling);
    }
    if is_host_name(&name) { Ok(TargetHost::Name(name)) } else { Err(UrlRefusal::HostName) }
}

fn host_and_port(authority: &str) -> Result<(TargetHost, Option<u16>), UrlRefusal> {
    if let Some(bracketed) = authority.strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']').ok_or(UrlRefusal::AddressSpelling)?;
        let addr: Ipv6Addr = inside.parse().map_err(|_| UrlRefusal::AddressSpelling)?;
        let given = match after.strip_prefix(':') {
            Some(digits) => Some(port(digits)?),
            None if after.is_empty() => None,
            None => return Err(UrlRefusal::AddressSpelling),
        };
        return Ok((TargetHost::Ip(addr.into()), given));
    }
    let (host, digits) = match authority.split_once(':') {
        Some((host, digits)) => (host, Some(digits)),
        None => (authority, None),
    };
    Ok((parse_host(host)?, digits.map(port).transpose()?))
}

/// A port as it is written: digits without leading zeros, from 1 to 65535.
pub(super) fn port(digits: &str) -> Result<u16, UrlRefusal> {
    if digits.starts_with('0') || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UrlRefusal::Port);
    }
    digits.parse().map_err(|_| UrlRefusal::Port)
}

fn percent_signs_encode(text: &str) -> bool {
    let hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (hex(bytes.get(at + 1)) && hex(bytes.get(at + 2))))
}

/// What browsers take for an IPv4 address, well or badly spelt: the last label is a number, decimal or hexadecimal.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.strip_suffix('.').unwrap_or(name).rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    hex || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
    if name.len() > 253 || !name.split('.').all(label) {
        return false;
    }
    // An A-label must be one that encodes back to itself; the URL standard's own reader knows the tables.
    let has_a_label = name.split('.').any(|label| label.starts_with("xn--"));
    !has_a_label || matches!(url::Host::parse(name), Ok(url::Host::Domain(same)) if same == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // C9.8: what is taken, and its one spelling.
    #[test]
    fn urls_get_one_spelling() {
        for (text, url, authority, path) in [
            ("https://example.com", "https://example.com/", "example.com", "/"),
            ("HTTPS://Example.COM:443/Hook", "https://example.com/Hook", "example.com", "/Hook"),
            ("http://example.com:80/", "http://example.com/", "example.com", "/"),
            ("http://example.com:443/", "http://example.com:443/", "example.com:443", "/"),
            ("https://example.com:8443?a=b", "https://example.com:8443/?a=b", "example.com:8443", "/?a=b"),
            ("https://example.com?@b/c", "https://example.com/?@b/c", "example.com", "/?@b/c"),
            (
                "https://example.com/a/../b;c%2f?d=%C3%A9&e",
                "https://example.com/a/../b;c%2f?d=%C3%A9&e",
                "example.com",
                "/a/../b;c%2f?d=%C3%A9&e",
            ),
            (
                "https://[2606:4700:4700:0:0::1111]:8443/",
                "https://[2606:4700:4700::1111]:8443/",
                "[2606:4700:4700::1111]:8443",
                "/",
            ),
            ("https://[2606:4700::ABCD]", "https://[2606:4700::abcd]/", "[2606:4700::abcd]", "/"),
            ("https://1.1.1.1/", "https://1.1.1.1/", "1.1.1.1", "/"),
            ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
            ("https://r3---sn-4g5e.example.com/", "https://r3---sn-4g5e.example.com/", "r3---sn-4g5e.example.com", "/"),
            ("https://1password.com/", "https://1password.com/", "1password.com", "/"),
            ("https://0x.example/", "https://0x.example/", "0x.example", "/"),
        ] {
            let target = parse_webhook_url(text).unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
            assert_eq!(
                (target.url.as_str(), target.authority.as_str(), target.path_and_query.as_str()),
                (url, authority, path)
            );
            assert_eq!(parse_webhook_url(&target.url), Ok(target), "the canonical spelling stays as it is");
        }
    }

    // C9.8
    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        use UrlRefusal as R;
        let long = format!("https://example.com/{}", "a".repeat(URL_BYTES));
        let long_in_full = format!("https://example.com?{}", "a".repeat(URL_BYTES - 20));
        assert_eq!(long_in_full.len(), URL_BYTES);
        let label = format!("https://{}.com/", "a".repeat(64));
        let name = format!("https://{}com/", "abcdefg.".repeat(32));
        for (text, expected) in [
            ("", R::Scheme),
            ("example.com", R::Scheme),
            ("//example.com/", R::Scheme),
            ("https:example.com", R::Scheme),
            ("https:/example.com", R::Scheme),
            ("wss://example.com/", R::Scheme),
            ("https ://example.com/", R::Character),
            (" https://example.com/", R::Character),
            ("https://example.com/ ", R::Character),
            ("https://example.com/\u{e9}", R::Character),
            ("https://b\u{fc}cher.example/", R::Character),
            ("https://example.com/\n", R::Character),
            ("https://exam\u{ad}ple.com/", R::Character),
            ("https://example.com\u{0}/", R::Character),
            ("https://example.com\\@evil.com/", R::Character),
            ("https://example.com/{id}", R::Character),
            ("https:///example.com/", R::NoHost),
            ("https://", R::NoHost),
            ("https://?a", R::NoHost),
            ("https://:443/", R::NoHost),
            ("https://user@example.com/", R::Userinfo),
            ("https://:@example.com/", R::Userinfo),
            ("https://@example.com/", R::Userinfo),
            ("https://example.com/#", R::Fragment),
            ("https://example.com#a", R::Fragment),
            ("https://example.com:/", R::Port),
            ("https://example.com:0/", R::Port),
            ("https://example.com:0443/", R::Port),
            ("https://example.com:+443/", R::Port),
            ("https://example.com:65536/", R::Port),
            ("https://example.com:443:443/", R::Port),
            ("https://[::1]:/", R::Port),
            ("https://example.com/%", R::Percent),
            ("https://example.com/%4", R::Percent),
            ("https://example.com/?a=%zz", R::Percent),
            ("https://exam%70le.com/", R::HostName),
            ("https://ex_ample.com/", R::HostName),
            ("https://example.com./", R::HostName),
            ("https://./", R::HostName),
            ("https://.example.com/", R::HostName),
            ("https://a..b/", R::HostName),
            ("https://-a.com/", R::HostName),
            ("https://a-.com/", R::HostName),
            ("https://a,b/", R::HostName),
            ("https://a!b.com/", R::HostName),
            ("https://xn--lcalhost-54f/", R::HostName),
            ("https://xn--.com/", R::HostName),
            ("https://XN--A.com/", R::HostName),
            (&label, R::HostName),
            (&name, R::HostName),
            ("https://1.2.3/", R::AddressSpelling),
            ("https://1.2.3.4./", R::AddressSpelling),
            ("https://0x7f.0.0.1/", R::AddressSpelling),
            ("https://a.0X1F/", R::AddressSpelling),
            ("https://1.2.3.04/", R::AddressSpelling),
            ("https://256.1.1.1/", R::AddressSpelling),
            ("https://[1.2.3.4]/", R::AddressSpelling),
            ("https://[::1/", R::AddressSpelling),
            ("https://[::1]a/", R::AddressSpelling),
            ("https://[[::1]]/", R::AddressSpelling),
            ("https://[]/", R::AddressSpelling),
            ("https://[fe80::1%25eth0]/", R::AddressSpelling),
            ("https://[v1.a]/", R::AddressSpelling),
            ("https://::1/", R::NoHost),
            (&long, R::TooLong),
            (&long_in_full, R::TooLong),
        ] {
            assert_eq!(parse_webhook_url(text).map(|target| target.url), Err(expected), "{text:?}");
        }
    }

    proptest! {
        // Whatever is taken, the URL standard's reader and hyper's read the same out of it.
        #[test]
        fn other_readers_read_the_same(
            scheme in "https?|HTTPS", host in "[a-zA-Z0-9.-]{1,20}|\\[[0-9a-f:]{2,20}\\]", port in "(:[0-9]{1,5})?",
            rest in "(/[!-~]{0,12})?",
        ) {
            if let Ok(target) = parse_webhook_url(&format!("{scheme}://{host}{port}{rest}")) {
                let other = url::Url::parse(&target.url).unwrap();
                let others_host = match other.host().unwrap() {
                    url::Host::Domain(name) => TargetHost::Name(name.to_owned()),
                    url::Host::Ipv4(addr) => TargetHost::Ip(addr.into()),
                    url::Host::Ipv6(addr) => TargetHost::Ip(addr.into()),
                };
                prop_assert_eq!(&others_host, &target.host);
                prop_assert_eq!(other.port_or_known_default(), Some(target.port));
                prop_assert_eq!(other.scheme() == "https", target.https);
                let uri: http::Uri = target.url.parse().unwrap();
                prop_assert_eq!(uri.authority().unwrap().as_str(), &target.authority);
                prop_assert_eq!(uri.path_and_query().unwrap().as_str(), &target.path_and_query);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "(https?://)?\\PC{0,40}", host in "\\PC{0,20}") {
            if let Ok(target) = parse_webhook_url(&text) {
                prop_assert_eq!(parse_webhook_url(&target.url), Ok(target.clone()));
            }
            let _ = parse_host(&host);
        }
    }
}
