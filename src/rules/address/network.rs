//! What an address is: public, private, special, or never to be connected to.
//!
//! An IPv6 address can carry an IPv4 one. Forms that the kernel itself would connect as IPv4 are never taken; those
//! that a gateway would translate are special, and as hard as what they carry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is. The word says which block it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Anybody's to reach.
    Public,
    /// Of a private network, or of this machine: opened by a rule, or with all private ones.
    Private(&'static str),
    /// Set aside for other uses: opened by a rule only.
    Special(&'static str),
    /// Opened by nothing.
    Hard(&'static str),
}

/// The addresses by which this machine calls itself.
pub(super) const LOOPBACKS: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Where an address stands.
pub(super) fn standing(addr: IpAddr) -> Standing {
    match addr {
        IpAddr::V4(v4) => standing_v4(v4),
        IpAddr::V6(v6) => standing_v6(v6),
    }
}

/// Whether it is this machine under any loopback address.
pub(super) fn is_loopback(addr: IpAddr) -> bool {
    addr.to_canonical().is_loopback()
}

/// The IPv4 addresses that a gateway or tunnel would read out of it; empty for all but transition forms.
pub(super) fn embedded_v4(addr: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(v6) = addr else { return Vec::new() };
    let bits = v6.to_bits();
    let v4_at = |low_bit: u32| Ipv4Addr::from_bits(u32::try_from((bits >> low_bit) & 0xffff_ffff).unwrap_or(0));
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![v4_at(0)],
        // RFC 8215: the operator chooses the length; /48 leaves the last 40 bits zero and jumps over bits 64 to 71 (RFC
        // 6052).
        [0x64, 0xff9b, 1, high, ..] if bits & 0xff_ffff_ffff == 0 => {
            let low = u32::try_from((bits >> 40) & 0xffff).unwrap_or(0);
            vec![Ipv4Addr::from_bits(u32::from(high) << 16 | low)]
        }
        [0x64, 0xff9b, 1, ..] => vec![v4_at(0)],
        [0x2002, ..] => vec![v4_at(80)],
        // Teredo: the server in clear, the client inverted.
        [0x2001, 0, ..] => vec![v4_at(64), Ipv4Addr::from_bits(!v4_at(0).to_bits())],
        _ => Vec::new(),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u32) -> (u32, u32) {
    (Ipv4Addr::new(a, b, c, d).to_bits(), prefix)
}

/// First match counts.
const V4_BLOCKS: &[((u32, u32), Standing)] = &[
    (v4(0, 0, 0, 0, 8), Standing::Hard("unspecified")),
    (v4(169, 254, 0, 0, 16), Standing::Hard("link_local")),
    (v4(224, 0, 0, 0, 4), Standing::Hard("multicast")),
    (v4(255, 255, 255, 255, 32), Standing::Hard("broadcast")),
    // Metadata services outside of the link-local block: Alibaba, Oracle (old), Azure's wire server.
    (v4(100, 100, 100, 200, 32), Standing::Hard("metadata")),
    (v4(192, 0, 0, 192, 32), Standing::Hard("metadata")),
    (v4(168, 63, 129, 16, 32), Standing::Hard("metadata")),
    (v4(10, 0, 0, 0, 8), Standing::Private("private")),
    (v4(172, 16, 0, 0, 12), Standing::Private("private")),
    (v4(192, 168, 0, 0, 16), Standing::Private("private")),
    (v4(127, 0, 0, 0, 8), Standing::Private("loopback")),
    (v4(100, 64, 0, 0, 10), Standing::Private("shared")),
    (v4(198, 18, 0, 0, 15), Standing::Private("benchmarking")),
    (v4(192, 0, 0, 0, 24), Standing::Special("protocol_assignments")),
    (v4(192, 0, 2, 0, 24), Standing::Special("documentation")),
    (v4(198, 51, 100, 0, 24), Standing::Special("documentation")),
    (v4(203, 0, 113, 0, 24), Standing::Special("documentation")),
    (v4(192, 88, 99, 0, 24), Standing::Special("6to4")),
    (v4(240, 0, 0, 0, 4), Standing::Special("reserved")),
];

fn standing_v4(addr: Ipv4Addr) -> Standing {
    let within = |(net, prefix): (u32, u32)| (addr.to_bits() ^ net) >> (32 - prefix) == 0;
    V4_BLOCKS.iter().find(|(block, _)| within(*block)).map_or(Standing::Public, |(_, standing)| *standing)
}

const fn v6(segments: [u16; 8], prefix: u32) -> (u128, u32) {
    let [a, b, c, d, e, f, g, h] = segments;
    (Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits(), prefix)
}

/// First match counts; what is in none of them is public inside of 2000::/3 and reserved elsewhere.
const V6_BLOCKS: &[((u128, u32), Standing)] = &[
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), Standing::Hard("unspecified")),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), Standing::Private("loopback")),
    // IPv4-compatible, -mapped and -translated: no use that an IPv4 address would not serve.
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), Standing::Hard("embedded_ipv4")),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Standing::Hard("embedded_ipv4")),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), Standing::Hard("embedded_ipv4")),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Standing::Hard("link_local")),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Standing::Hard("multicast")),
    // Metadata services: Amazon (instances, pods, clock and names), Google, Oracle, Scaleway.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), Standing::Hard("metadata")),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Standing::Hard("metadata")),
    (v6([0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe], 128), Standing::Hard("metadata")),
    (v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128), Standing::Hard("metadata")),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), Standing::Private("private")),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Standing::Private("site_local")),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), Standing::Special("nat64")),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Standing::Special("nat64")),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Standing::Special("6to4")),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Standing::Special("teredo")),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), Standing::Special("protocol_assignments")),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), Standing::Special("documentation")),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), Standing::Special("documentation")),
    (v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3), Standing::Public),
];

fn standing_v6(addr: Ipv6Addr) -> Standing {
    let within = |(net, prefix): (u128, u32)| (addr.to_bits() ^ net) >> (128 - prefix) == 0;
    let found = V6_BLOCKS.iter().find(|(block, _)| within(*block));
    let standing = found.map_or(Standing::Special("reserved"), |(_, standing)| *standing);
    let inside = embedded_v4(IpAddr::V6(addr)).into_iter().map(standing_v4);
    inside.into_iter().find(|inner| matches!(inner, Standing::Hard(_))).unwrap_or(standing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // C9.8
    #[test]
    fn every_block_at_its_edges() {
        for (text, expected) in [
            ("0.0.0.0", Standing::Hard("unspecified")),
            ("0.255.255.255", Standing::Hard("unspecified")),
            ("1.0.0.0", Standing::Public),
            ("9.255.255.255", Standing::Public),
            ("10.0.0.0", Standing::Private("private")),
            ("10.255.255.255", Standing::Private("private")),
            ("11.0.0.0", Standing::Public),
            ("100.63.255.255", Standing::Public),
            ("100.64.0.0", Standing::Private("shared")),
            ("100.100.100.199", Standing::Private("shared")),
            ("100.100.100.200", Standing::Hard("metadata")),
            ("100.127.255.255", Standing::Private("shared")),
            ("100.128.0.0", Standing::Public),
            ("126.255.255.255", Standing::Public),
            ("127.0.0.0", Standing::Private("loopback")),
            ("127.255.255.255", Standing::Private("loopback")),
            ("128.0.0.0", Standing::Public),
            ("168.63.129.15", Standing::Public),
            ("168.63.129.16", Standing::Hard("metadata")),
            ("169.253.255.255", Standing::Public),
            ("169.254.0.0", Standing::Hard("link_local")),
            ("169.254.255.255", Standing::Hard("link_local")),
            ("169.255.0.0", Standing::Public),
            ("172.15.255.255", Standing::Public),
            ("172.16.0.0", Standing::Private("private")),
            ("172.31.255.255", Standing::Private("private")),
            ("172.32.0.0", Standing::Public),
            ("192.0.0.0", Standing::Special("protocol_assignments")),
            ("192.0.0.192", Standing::Hard("metadata")),
            ("192.0.1.0", Standing::Public),
            ("192.0.2.255", Standing::Special("documentation")),
            ("192.88.99.1", Standing::Special("6to4")),
            ("192.167.255.255", Standing::Public),
            ("192.168.0.0", Standing::Private("private")),
            ("192.169.0.0", Standing::Public),
            ("198.17.255.255", Standing::Public),
            ("198.18.0.0", Standing::Private("benchmarking")),
            ("198.19.255.255", Standing::Private("benchmarking")),
            ("198.20.0.0", Standing::Public),
            ("198.51.100.7", Standing::Special("documentation")),
            ("203.0.113.7", Standing::Special("documentation")),
            ("223.255.255.255", Standing::Public),
            ("224.0.0.0", Standing::Hard("multicast")),
            ("239.255.255.255", Standing::Hard("multicast")),
            ("240.0.0.0", Standing::Special("reserved")),
            ("255.255.255.254", Standing::Special("reserved")),
            ("255.255.255.255", Standing::Hard("broadcast")),
            ("::", Standing::Hard("unspecified")),
            ("::1", Standing::Private("loopback")),
            ("::2", Standing::Hard("embedded_ipv4")),
            ("::7f00:1", Standing::Hard("embedded_ipv4")),
            ("::ffff:8.8.8.8", Standing::Hard("embedded_ipv4")),
            ("::ffff:0:8.8.8.8", Standing::Hard("embedded_ipv4")),
            ("::1:0:0:0:0", Standing::Special("reserved")),
            ("100::1", Standing::Special("reserved")),
            ("64:ff9b::8.8.8.8", Standing::Special("nat64")),
            ("64:ff9b::169.254.169.254", Standing::Hard("link_local")),
            ("64:ff9b::100.100.100.200", Standing::Hard("metadata")),
            ("64:ff9b:1::a00:1", Standing::Special("nat64")),
            ("64:ff9b:1::a9fe:a9fe", Standing::Hard("link_local")),
            ("64:ff9b:1:a9fe:a9:fe00::", Standing::Hard("link_local")),
            ("64:ff9b:1:808:8:800::", Standing::Special("nat64")),
            ("1fff:ffff::", Standing::Special("reserved")),
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Standing::Special("teredo")),
            ("2001:0:a9fe:a9fe::", Standing::Hard("link_local")),
            // The client is 169.254.169.254, inverted.
            ("2001:0:4136:e378:8000:63bf:5601:5601", Standing::Hard("link_local")),
            ("2001:20::1", Standing::Special("protocol_assignments")),
            ("2001:1ff:ffff::", Standing::Special("protocol_assignments")),
            ("2001:200::", Standing::Public),
            ("2001:db8::1", Standing::Special("documentation")),
            ("2001:db9::1", Standing::Public),
            ("2002:808:808::", Standing::Special("6to4")),
            ("2002:7f00:1::", Standing::Special("6to4")),
            ("2002:a9fe:a9fe::1", Standing::Hard("link_local")),
            ("2606:4700:4700::1111", Standing::Public),
            ("3ffe:ffff::", Standing::Public),
            ("3fff::1", Standing::Special("documentation")),
            ("3fff:1000::", Standing::Public),
            ("4000::", Standing::Special("reserved")),
            ("5f00::1", Standing::Special("reserved")),
            ("fbff::", Standing::Special("reserved")),
            ("fc00::", Standing::Private("private")),
            ("fd00:ec2::254", Standing::Hard("metadata")),
            ("fd00:ec2::23", Standing::Hard("metadata")),
            ("fd20:ce::254", Standing::Hard("metadata")),
            ("fd20:ce::253", Standing::Private("private")),
            ("fdff:ffff::", Standing::Private("private")),
            ("fe00::", Standing::Special("reserved")),
            ("fe80::", Standing::Hard("link_local")),
            ("febf::", Standing::Hard("link_local")),
            ("fec0::1", Standing::Private("site_local")),
            ("ff02::1", Standing::Hard("multicast")),
        ] {
            assert_eq!(standing(text.parse().unwrap()), expected, "{text}");
        }
    }

    proptest! {
        // No form of IPv6 hides an IPv4 address that is never connected to.
        #[test]
        fn what_is_carried_is_never_softer_than_itself(bits: u32, rest: u16) {
            let v4 = Ipv4Addr::from_bits(bits);
            let [high, low] = [bits >> 16, bits & 0xffff].map(|half| u16::try_from(half).unwrap());
            let inverted = [high, low].map(|half| !half);
            for v6 in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, rest, 0, 0, high, low | 1),
                Ipv6Addr::new(0x2002, high, low, rest, 0, 0, 0, rest),
                Ipv6Addr::new(0x2001, 0, high, low, rest, rest, rest, rest),
                Ipv6Addr::new(0x2001, 0, 0x808, 0x808, rest, rest, inverted[0], inverted[1]),
            ] {
                let outer = standing(IpAddr::V6(v6));
                prop_assert!(matches!(outer, Standing::Hard(_) | Standing::Special(_)), "{} {:?}", v6, outer);
                if matches!(standing_v4(v4), Standing::Hard(_)) && v6.segments()[2] != 1 {
                    prop_assert!(matches!(outer, Standing::Hard(_)), "{} {:?}", v6, outer);
                }
            }
        }
    }
}
