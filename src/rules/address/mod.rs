//! Where the hub may connect to: judged before a name is resolved, and again for each of its addresses (C9.8).
//!
//! Three layers, each in a file of its own: how a destination is spelt (`target`), what an address is (`network`), and
//! what the operator opened (`allow`). This file puts them together. Invariant: what is in the hard tier is opened by
//! nothing, in whatever form of an address it is hidden; and a name is never believed, only its addresses are.

mod allow;
mod network;
mod target;

pub use allow::{AllowError, AllowFault, AllowRule, parse_sink_allow};
pub use target::{HttpTarget, TargetHost, UrlRefusal, parse_host, parse_webhook_url};

use network::{Standing, embedded_v4, is_loopback, standing};
use std::net::{IpAddr, SocketAddr};

/// What the operator opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPolicy {
    /// `ALLOW_PRIVATE_SINKS`: all private addresses, and names that only a private network knows.
    pub allow_private: bool,
    /// `ALLOW_HTTP_SINKS`: plain connections, without TLS.
    pub allow_http: bool,
    /// `SINK_ALLOW`.
    pub rules: Vec<AllowRule>,
    /// `SINK_PORTS`: ports that are open everywhere.
    pub ports: Vec<u16>,
    /// Where the hub itself listens; of a listener on all addresses, this machine's own addresses beside it, except
    /// loopback, which is understood.
    pub own_listeners: Vec<SocketAddr>,
}

impl Default for AddressPolicy {
    /// Public addresses over TLS only.
    fn default() -> Self {
        let ports = vec![443, 8443, 5671];
        Self { allow_private: false, allow_http: false, rules: Vec::new(), ports, own_listeners: Vec::new() }
    }
}

/// Whether a destination may be connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow,
    /// It may not.
    Reject {
        /// A stable word for which rule forbids it.
        rule: &'static str,
        /// For people.
        detail: String,
    },
}

impl Verdict {
    /// Whether it may be connected to.
    pub fn is_allowed(&self) -> bool {
        *self == Verdict::Allow
    }

    fn reject(rule: &'static str, detail: impl Into<String>) -> Self {
        Verdict::Reject { rule, detail: detail.into() }
    }
}

/// Judges a destination before its name is resolved: refuses what no answer of a name server could make good. Port and
/// TLS of a name that only a network rule could open are let through here and judged with its addresses.
pub fn judge_target(policy: &AddressPolicy, tenant: &str, https: bool, host: &TargetHost, port: u16) -> Verdict {
    let name = match host {
        TargetHost::Ip(addr) => return judge_address(policy, tenant, host, port, !https, *addr),
        TargetHost::Name(name) => name.as_str(),
    };
    if METADATA_NAMES.contains(&name) {
        return Verdict::reject("metadata", format!("{name} is a cloud's metadata service"));
    }
    // Any network rule may be the one that the name's addresses fall under.
    let rules: Vec<_> = open_to(policy, tenant, port).filter(|rule| rule.names(name) || rule.is_network()).collect();
    if let Some(kind) = private_name(name)
        && !policy.allow_private
        && !rules.iter().any(|rule| rule.names(name) || (rule.is_network() && kind.may_lie_in(rule)))
    {
        return Verdict::reject("private_name", format!("{name} is a name of a private network"));
    }
    judge_port_and_plain(policy, port, !https, &rules)
}

/// Judges one address that a destination resolved to, or is. Whole by itself: nothing that [`judge_target`] said is
/// believed.
pub fn judge_address(
    policy: &AddressPolicy,
    tenant: &str,
    host: &TargetHost,
    port: u16,
    plain: bool,
    addr: IpAddr,
) -> Verdict {
    let rules: Vec<_> = open_to(policy, tenant, port)
        .filter(|rule| rule.contains(addr) || matches!(host, TargetHost::Name(name) if rule.names(name)))
        .collect();
    if is_own_listener(policy, addr, port) {
        return Verdict::reject("own_listener", "the hub itself listens there");
    }
    match standing(addr) {
        Standing::Public => {}
        Standing::Private(_) if policy.allow_private || !rules.is_empty() => {}
        Standing::Special(_) if !rules.is_empty() => {
            // What is inside a transition address must be open as well, or a rule for the outside would open all of it.
            let inside = embedded_v4(addr).into_iter().map(IpAddr::from);
            let mut judged = inside.map(|inner| judge_address(policy, tenant, host, port, plain, inner));
            if let Some(reject) = judged.find(|verdict| !verdict.is_allowed()) {
                return reject;
            }
        }
        Standing::Private(rule) | Standing::Special(rule) => {
            return Verdict::reject(rule, format!("{addr} is not public, and no rule of the operator opens it"));
        }
        Standing::Hard(rule) => return Verdict::reject(rule, format!("{addr} is never connected to")),
    }
    judge_port_and_plain(policy, port, plain, &rules)
}

/// `rules` are those that open the port for this destination.
fn judge_port_and_plain(policy: &AddressPolicy, port: u16, plain: bool, rules: &[&AllowRule]) -> Verdict {
    if port == 0 || (rules.is_empty() && !policy.ports.contains(&port)) {
        return Verdict::reject("port", format!("port {port} is not open"));
    }
    if plain && !policy.allow_http && !rules.iter().any(|rule| rule.plain) {
        return Verdict::reject("plain", "connections without TLS are not allowed");
    }
    Verdict::Allow
}

/// The operator's rules that open that port to that tenant; one that names no port opens the usual ones.
fn open_to<'a>(policy: &'a AddressPolicy, tenant: &'a str, port: u16) -> impl Iterator<Item = &'a AllowRule> {
    policy.rules.iter().filter(move |rule| {
        let ports = if rule.ports.is_empty() { &policy.ports } else { &rule.ports };
        ports.contains(&port) && rule.tenant.as_deref().is_none_or(|only| only == tenant)
    })
}

fn is_own_listener(policy: &AddressPolicy, addr: IpAddr, port: u16) -> bool {
    let here = |own: &SocketAddr| {
        own.port() == port && (own.ip().to_canonical() == addr || (own.ip().is_unspecified() && is_loopback(addr)))
    };
    policy.own_listeners.iter().any(here)
}

/// Defence in depth: their addresses are in the hard tier anyway.
const METADATA_NAMES: &[&str] = &[
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "metadata.tencentyun.com",
    "metadata.azure.internal",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Endings that no public name has.
const PRIVATE_SUFFIXES: &[&str] =
    &[".local", ".localdomain", ".internal", ".intranet", ".private", ".corp", ".home", ".lan", ".home.arpa", ".onion"];

/// A name that only this machine or a private network can know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrivateName {
    Loopback,
    Network,
}

fn private_name(name: &str) -> Option<PrivateName> {
    if name == "localhost" || name.ends_with(".localhost") || name == "localhost.localdomain" {
        return Some(PrivateName::Loopback);
    }
    let private = !name.contains('.') || PRIVATE_SUFFIXES.iter().any(|suffix| name.ends_with(suffix));
    private.then_some(PrivateName::Network)
}

impl PrivateName {
    /// Whether the addresses of such a name could be what a network rule opens.
    fn may_lie_in(self, rule: &AllowRule) -> bool {
        match self {
            PrivateName::Network => true,
            PrivateName::Loopback => network::LOOPBACKS.iter().any(|&addr| rule.contains(addr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn policy(allow: &str) -> AddressPolicy {
        AddressPolicy { rules: parse_sink_allow(allow).unwrap(), ..AddressPolicy::default() }
    }

    fn word(verdict: &Verdict) -> &'static str {
        match verdict {
            Verdict::Allow => "allow",
            Verdict::Reject { rule, .. } => rule,
        }
    }

    /// What is said of a URL before its name is resolved.
    fn judged(policy: &AddressPolicy, tenant: &str, url: &str) -> &'static str {
        match parse_webhook_url(url) {
            Ok(target) => word(&judge_target(policy, tenant, target.https, &target.host, target.port)),
            Err(refusal) => refusal.rule(),
        }
    }

    /// What is said of a URL whose name resolved to that address.
    fn resolved(policy: &AddressPolicy, tenant: &str, url: &str, addr: &str) -> &'static str {
        let target = parse_webhook_url(url).unwrap();
        let addr = addr.parse().unwrap();
        word(&judge_address(policy, tenant, &target.host, target.port, !target.https, addr))
    }

    // C9.8: without rules only public addresses, usual ports and TLS.
    #[test]
    fn what_is_open_without_rules() {
        let closed = AddressPolicy::default();
        for (url, expected) in [
            ("https://example.com/", "allow"),
            ("https://example.com:8443/", "allow"),
            ("http://example.com:443/", "plain"),
            ("http://example.com/", "port"),
            ("https://example.com:8080/", "port"),
            ("https://8.8.8.8/", "allow"),
            ("https://[2606:4700:4700::1111]/", "allow"),
            ("https://127.0.0.1/", "loopback"),
            ("https://10.0.0.1/", "private"),
            ("https://[::ffff:8.8.8.8]/", "embedded_ipv4"),
            ("https://localhost/", "private_name"),
            ("https://a.localhost/", "private_name"),
            ("https://erp/", "private_name"),
            ("https://erp.local/", "private_name"),
            ("https://svc.internal/", "private_name"),
            ("https://router.home.arpa/", "private_name"),
            ("https://locale.com/", "allow"),
            ("https://mylocal.com/", "allow"),
            ("https://metadata.google.internal/", "metadata"),
        ] {
            assert_eq!(judged(&closed, "t", url), expected, "{url}");
        }
        for (addr, expected) in [
            ("93.184.216.34", "allow"),
            ("10.0.0.1", "private"),
            ("127.0.0.1", "loopback"),
            ("169.254.169.254", "link_local"),
            ("fd00::1", "private"),
            ("::ffff:10.0.0.1", "embedded_ipv4"),
            ("64:ff9b::8.8.8.8", "nat64"),
        ] {
            assert_eq!(resolved(&closed, "t", "https://example.com/", addr), expected, "{addr}");
        }
    }

    // C9.8: what each kind of rule opens, and what it does not.
    #[test]
    fn rules_open_what_they_name() {
        let allow =
            "10.20.0.0/16:443,9443; erp.local:8080+plain; 192.168.1.7:5671@tenant-a; fd20::/16; api.example.com:9000";
        let open = policy(allow);
        for (tenant, url, addr, before, after) in [
            ("t", "https://10.20.3.4/", "10.20.3.4", "allow", "allow"),
            ("t", "https://10.20.3.4:9443/", "10.20.3.4", "allow", "allow"),
            ("t", "https://10.20.3.4:8443/", "10.20.3.4", "private", "private"),
            ("t", "https://10.21.3.4/", "10.21.3.4", "private", "private"),
            ("t", "http://10.20.3.4:443/", "10.20.3.4", "plain", "plain"),
            ("t", "http://erp.local:8080/", "10.99.0.1", "allow", "allow"),
            ("t", "https://erp.local:8080/", "127.0.0.1", "allow", "allow"),
            ("t", "https://ERP.local:8080/", "8.8.8.8", "allow", "allow"),
            ("t", "http://erp.local:8080/", "169.254.169.254", "allow", "link_local"),
            ("t", "https://erp.local/", "10.99.0.1", "allow", "private"),
            ("t", "https://erp.local/", "10.20.0.1", "allow", "allow"),
            ("t", "https://erp.local:8081/", "10.99.0.1", "private_name", "private"),
            ("t", "https://b.erp.local:8080/", "10.99.0.1", "private_name", "private"),
            ("t", "http://b.example.com:8080/", "10.99.0.1", "port", "private"),
            ("tenant-a", "https://192.168.1.7:5671/", "192.168.1.7", "allow", "allow"),
            ("tenant-b", "https://192.168.1.7:5671/", "192.168.1.7", "private", "private"),
            ("t", "https://[fd20::1]/", "fd20::1", "allow", "allow"),
            ("t", "https://[fd20::1]:9443/", "fd20::1", "private", "private"),
            // A name may be opened by what it resolves to: judged with its addresses.
            ("t", "https://svc.corp:9443/", "10.20.0.1", "allow", "allow"),
            ("t", "https://svc.corp:9443/", "10.21.0.1", "allow", "private"),
            ("t", "https://svc.example.com:9443/", "8.8.8.8", "allow", "port"),
            ("t", "https://api.example.com:9000/", "8.8.8.8", "allow", "allow"),
            ("t", "https://localhost:9443/", "127.0.0.1", "private_name", "loopback"),
        ] {
            assert_eq!(judged(&open, tenant, url), before, "{url}");
            assert_eq!(resolved(&open, tenant, url, addr), after, "{url} -> {addr}");
        }
        let loopback = policy("127.0.0.0/8:443,9443+plain");
        assert_eq!(judged(&loopback, "t", "http://localhost:9443/"), "allow");
        assert_eq!(resolved(&loopback, "t", "http://localhost:9443/", "127.0.0.1"), "allow");
        assert_eq!(resolved(&loopback, "t", "http://localhost:9443/", "::1"), "loopback");
    }

    // C9.8
    #[test]
    fn the_hard_tier_is_opened_by_nothing() {
        let all = AddressPolicy {
            allow_private: true,
            allow_http: true,
            own_listeners: vec!["0.0.0.0:9000".parse().unwrap(), "10.1.1.1:9001".parse().unwrap()],
            ..policy(
                "0.0.0.0/0:80,443,9000,9001+plain; ::/0:80,443,9000,9001+plain; metadata.google.internal; evil.com",
            )
        };
        for (addr, rule) in [
            ("0.0.0.0", "unspecified"),
            ("169.254.169.254", "link_local"),
            ("169.254.170.23", "link_local"),
            ("100.100.100.200", "metadata"),
            ("192.0.0.192", "metadata"),
            ("168.63.129.16", "metadata"),
            ("224.0.0.1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("fe80::1", "link_local"),
            ("ff02::1", "multicast"),
            ("fd00:ec2::254", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("::ffff:127.0.0.1", "embedded_ipv4"),
            ("64:ff9b::a9fe:a9fe", "link_local"),
            ("2002:a9fe:a9fe::", "link_local"),
            ("2002:6464:64c8::", "metadata"),
        ] {
            assert_eq!(resolved(&all, "t", "https://evil.com/", addr), rule, "{addr}");
            let host = TargetHost::Ip(addr.parse().unwrap());
            assert_eq!(word(&judge_target(&all, "t", true, &host, 443)), rule, "{addr}");
        }
        assert_eq!(judged(&all, "t", "https://metadata.google.internal/"), "metadata");
        for (url, expected) in [
            ("http://127.0.0.1:9000/", "own_listener"),
            ("http://127.8.8.8:9000/", "own_listener"),
            ("http://[::1]:9000/", "own_listener"),
            ("http://10.1.1.1:9001/", "own_listener"),
            ("http://[2002:7f00:1::]:9000/", "own_listener"),
            ("http://10.1.1.1:9000/", "allow"),
            ("http://10.1.1.2:9001/", "allow"),
            ("http://127.0.0.1/", "allow"),
            ("http://[2002:808:808::]/", "allow"),
            ("http://[64:ff9b::808:808]/", "allow"),
            ("http://127.0.0.1:0/", "port"),
            ("http://127.0.0.1:81/", "port"),
        ] {
            assert_eq!(judged(&all, "t", url), expected, "{url}");
        }
    }

    // C9.8: `ALLOW_PRIVATE_SINKS` and `ALLOW_HTTP_SINKS` open what they say and no more.
    #[test]
    fn the_switches_open_what_they_say() {
        let private = AddressPolicy { allow_private: true, ..AddressPolicy::default() };
        for (url, expected) in [
            ("https://127.0.0.1/", "allow"),
            ("https://10.0.0.1/", "allow"),
            ("https://[fd00::1]/", "allow"),
            ("https://localhost/", "allow"),
            ("https://receiver/", "allow"),
            ("https://10.0.0.1:9999/", "port"),
            ("http://10.0.0.1:443/", "plain"),
            ("https://203.0.113.1/", "documentation"),
            ("https://[64:ff9b::a00:1]/", "nat64"),
            ("https://metadata/", "metadata"),
        ] {
            assert_eq!(judged(&private, "t", url), expected, "{url}");
        }
        let plain = AddressPolicy { allow_http: true, ports: vec![80, 443], ..AddressPolicy::default() };
        assert_eq!(judged(&plain, "t", "http://example.com/"), "allow");
        assert_eq!(judged(&plain, "t", "http://10.0.0.1/"), "private");
        assert_eq!(word(&judge_target(&plain, "t", true, &TargetHost::Name("example.com".into()), 0)), "port");
    }

    // A rule for the outside of a transition address does not open what is inside.
    #[test]
    fn what_is_inside_must_be_open_too() {
        let nat64 = policy("64:ff9b::/96; 10.0.0.0/8");
        for (addr, expected) in
            [("64:ff9b::808:808", "allow"), ("64:ff9b::a00:1", "allow"), ("64:ff9b::c0a8:1", "private")]
        {
            assert_eq!(resolved(&nat64, "t", "https://example.com/", addr), expected, "{addr}");
        }
    }

    /// Every spelling of an IPv4 address that some parser has been seen to take.
    fn odd_spellings(addr: Ipv4Addr) -> Vec<String> {
        let [a, b, c, d] = addr.octets();
        let bits = addr.to_bits();
        let wide =
            |text: String| text.chars().map(|c| char::from_u32(0xfee0 + u32::from(c)).unwrap()).collect::<String>();
        vec![
            format!("{bits}"),
            format!("0x{bits:x}"),
            format!("0X{bits:08X}"),
            format!("0{bits:o}"),
            format!("{a}.{}", bits & 0xff_ffff),
            format!("{a}.{b}.{}", bits & 0xffff),
            format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
            format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
            format!("0{a}.{b}.{c}.{d}"),
            format!("{a}.{b}.{c}.{d}."),
            format!("{a}.{b}.{c}.00{d}"),
            format!("{a}.{b}.{c}.0x{d:x}"),
            format!("{a}。{b}。{c}。{d}"),
            wide(format!("{a}.{b}.{c}.{d}")),
            format!("%{:02x}{}", addr.to_string().as_bytes()[0], &addr.to_string()[1..]),
            format!("[{addr}]"),
            format!("[::ffff:{addr}]"),
            format!("[::{addr}]"),
            format!("[0:0:0:0:0:FFFF:{addr}]"),
            format!("user@{addr}"),
        ]
    }

    proptest! {
        // C9.8: all spellings of an IPv6 address get one verdict; all of an IPv4 address but its own are refused.
        #[test]
        fn all_spellings_get_one_verdict(
            v4: u32, v6 in prop_oneof![any::<u128>(), (any::<u16>()).prop_map(u128::from)],
        ) {
            let closed = AddressPolicy { allow_private: true, ..AddressPolicy::default() };
            let v4 = Ipv4Addr::from_bits(v4);
            for spelling in odd_spellings(v4) {
                prop_assert_ne!(judged(&closed, "t", &format!("https://{spelling}/")), "allow", "{}", spelling);
            }
            let v6 = Ipv6Addr::from_bits(v6);
            let s = v6.segments();
            let whole = s.map(|part| format!("{part:x}")).join(":");
            let padded = s.map(|part| format!("{part:04X}")).join(":");
            let dotted = format!("{}:{}", s[..6].iter().map(|part| format!("{part:x}")).collect::<Vec<_>>().join(":"), {
                Ipv4Addr::from_bits(u32::try_from(v6.to_bits() & 0xffff_ffff).unwrap())
            });
            let expected = word(&judge_address(&closed, "t", &TargetHost::Ip(v6.into()), 443, false, v6.into()));
            for spelling in [v6.to_string(), whole, padded, dotted] {
                prop_assert_eq!(judged(&closed, "t", &format!("https://[{spelling}]/")), expected, "{}", spelling);
            }
        }

        // Opening more never closes anything, and what the hard tier refuses stays refused.
        #[test]
        fn rules_only_open(addr: std::net::IpAddr, port in prop_oneof![Just(443u16), any::<u16>()], plain: bool) {
            let host = TargetHost::Ip(addr);
            let with = |policy: &AddressPolicy| judge_address(policy, "t", &host, port, plain, addr).is_allowed();
            let some = policy("0.0.0.0/1:443; 8000::/1+plain");
            let ports = vec![443, port];
            let all = AddressPolicy { allow_private: true, allow_http: true, ports, ..policy("0.0.0.0/0; ::/0") };
            prop_assert!(!with(&AddressPolicy::default()) || with(&some));
            prop_assert!(!with(&some) || with(&all));
            prop_assert_eq!(with(&all), port != 0 && !matches!(standing(addr), Standing::Hard(_)));
        }
    }
}
