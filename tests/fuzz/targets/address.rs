//! Destination URL to address policy (C9.8): what is in the hard tier is opened by nothing, and one spelling means one thing.
//!
//! The input: a byte of switches, 16 bytes of an address, and a text that is a URL, or a `SINK_ALLOW`.

use super::take;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use streaming_hub::rules::address::{
    AddressPolicy, TargetHost, judge_address, judge_target, parse_sink_allow, parse_webhook_url,
};

const TENANT: &str = "acme";
/// The address is an IPv4 one, its first four bytes.
const V4: u8 = 1;

/// Everything that an operator can open is open.
static OPEN: LazyLock<AddressPolicy> = LazyLock::new(|| AddressPolicy {
    allow_private: true,
    allow_http: true,
    rules: parse_sink_allow("0.0.0.0/0+plain; ::/0+plain").unwrap(),
    ports: vec![80, 443, 5671, 8080, 8443, 9090],
    own_listeners: vec![SocketAddr::from(([127, 0, 0, 1], 8080)), SocketAddr::from(([0, 0, 0, 0], 9090))],
});
static CLOSED: LazyLock<AddressPolicy> = LazyLock::new(AddressPolicy::default);

pub(super) fn run(mut data: &[u8]) {
    let [switches] = take(&mut data);
    let bytes: [u8; 16] = take(&mut data);
    let ip = match switches & V4 {
        0 => IpAddr::from(bytes),
        _ => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
    };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let name = TargetHost::Name("receiver.example".to_owned());
    for host in [TargetHost::Ip(ip), name] {
        judged(ip, &host, 443);
    }
    let _ = parse_sink_allow(text).map(|rules| {
        let ruled = AddressPolicy { rules, ..CLOSED.clone() };
        for plain in [true, false] {
            let verdict = judge_address(&ruled, TENANT, &TargetHost::Ip(ip), 443, plain, ip);
            assert!(!(verdict.is_allowed() && is_hard(ip)), "{text} opens {ip}");
        }
    });
    url(text);
}

fn judged(ip: IpAddr, host: &TargetHost, port: u16) {
    for (policy, plain) in [(&*OPEN, true), (&*OPEN, false), (&*CLOSED, true), (&*CLOSED, false)] {
        let allowed = judge_address(policy, TENANT, host, port, plain, ip).is_allowed();
        assert!(!(allowed && is_hard(ip)), "{ip} is allowed");
        let by_default = std::ptr::eq(policy, &raw const *CLOSED);
        assert!(!(allowed && by_default && (plain || !is_public(ip))), "{ip} is allowed by default");
    }
    for own in &OPEN.own_listeners {
        let here = if own.ip().is_unspecified() { IpAddr::from([127, 0, 0, 1]) } else { own.ip() };
        assert!(!judge_address(&OPEN, TENANT, host, own.port(), false, here).is_allowed(), "the hub itself");
    }
}

fn url(text: &str) {
    let Ok(target) = parse_webhook_url(text) else { return };
    let again = parse_webhook_url(&target.url).unwrap();
    assert_eq!(again, target, "the canonical spelling stays as it is");
    // Another reader of URLs finds the same place in either spelling.
    for spelling in [text, &target.url] {
        let other = url::Url::parse(spelling).unwrap_or_else(|error| panic!("{spelling}: {error}"));
        assert_eq!(other.scheme() == "https", target.https, "{spelling}");
        assert_eq!(other.port_or_known_default(), Some(target.port), "{spelling}");
        assert!(other.username().is_empty() && other.password().is_none() && other.fragment().is_none(), "{spelling}");
        match (other.host().unwrap(), &target.host) {
            (url::Host::Domain(name), TargetHost::Name(own)) => assert_eq!(name, own, "{spelling}"),
            (url::Host::Ipv4(ip), TargetHost::Ip(own)) => assert_eq!(IpAddr::V4(ip), *own, "{spelling}"),
            (url::Host::Ipv6(ip), TargetHost::Ip(own)) => assert_eq!(IpAddr::V6(ip), *own, "{spelling}"),
            (host, own) => panic!("{spelling}: {host:?} is not {own:?}"),
        }
    }
    let uri: http::Uri = target.url.parse().unwrap();
    assert_eq!(uri.authority().unwrap().as_str(), target.authority, "what is sent over HTTP/2");
    assert_eq!(uri.path_and_query().unwrap().as_str(), target.path_and_query, "what is sent over HTTP/1.1");
    http::HeaderValue::from_str(&target.authority).unwrap();
    for policy in [&*OPEN, &*CLOSED] {
        let allowed = judge_target(policy, TENANT, target.https, &target.host, target.port).is_allowed();
        if let TargetHost::Ip(ip) = target.host {
            let whole = judge_address(policy, TENANT, &target.host, target.port, !target.https, ip).is_allowed();
            assert_eq!(allowed, whole, "a literal is judged in one way");
            assert!(!(allowed && is_hard(ip)), "{text} is allowed");
        }
    }
}

/// The hard tier, written down once more and in another way.
fn is_hard(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let names = ["100.100.100.200", "192.0.0.192", "168.63.129.16"];
            let metadata = names.map(|text| text.parse::<Ipv4Addr>().unwrap());
            ip.octets()[0] == 0
                || ip.is_link_local()
                || ip.is_multicast()
                || ip.is_broadcast()
                || metadata.contains(&ip)
        }
        IpAddr::V6(ip) => {
            let names = ["fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"];
            let metadata = names.map(|text| text.parse::<Ipv6Addr>().unwrap());
            ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unicast_link_local()
                || ip.to_ipv4_mapped().is_some()
                || (ip.to_ipv4().is_some() && !ip.is_loopback())
                || ip.segments()[..2] == [0xfd00, 0xec2]
                || metadata.contains(&ip)
                || carried(ip).is_some_and(|inner| is_hard(IpAddr::V4(inner)))
        }
    }
}

/// The IPv4 address that a gateway reads out of the best known forms: NAT64 and 6to4.
fn carried(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let octets = ip.octets();
    let at = |from: usize| Some(Ipv4Addr::new(octets[from], octets[from + 1], octets[from + 2], octets[from + 3]));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => at(12),
        [0x2002, ..] => at(2),
        _ => None,
    }
}

/// Not known to be anything but public.
fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            !(ip.is_private() || ip.is_loopback() || ip.is_documentation() || (a == 100 && b & 0xc0 == 64) || a >= 224)
        }
        IpAddr::V6(ip) => ip.segments()[0] & 0xe000 == 0x2000 && carried(ip).is_none(),
    }
}
