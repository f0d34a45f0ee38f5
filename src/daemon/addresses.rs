//! Under which addresses this machine reaches the hub's own listener, so that no subscription may lead back into it (C9.8).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A listener's addresses: its own; for one on all addresses this machine's as well, as far as the kernel tells them.
pub(super) fn reachable_as(listener: SocketAddr) -> Vec<SocketAddr> {
    if !listener.ip().is_unspecified() {
        return vec![listener];
    }
    let v4 = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap_or_default();
    let v6 = std::fs::read_to_string("/proc/self/net/if_inet6").unwrap_or_default();
    let own = local_v4(&v4).into_iter().map(IpAddr::V4).chain(local_v6(&v6).into_iter().map(IpAddr::V6));
    let all = own.map(|ip| SocketAddr::new(ip, listener.port()));
    std::iter::once(listener).chain(all).collect()
}

// A leaf of the table is a line `|-- <address>`, and the line after it says what it is: `/32 host LOCAL`.
fn local_v4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut leaf = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line.ends_with("host LOCAL")
            && let Some(address) = leaf
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

// A line begins with the address as 32 hex digits.
fn local_v6(if_inet6: &str) -> Vec<Ipv6Addr> {
    let address = |line: &str| u128::from_str_radix(line.split_whitespace().next()?, 16).ok();
    if_inet6.lines().filter_map(address).map(Ipv6Addr::from_bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // C9.8
    #[test]
    fn local_addresses_are_read_from_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.0\n        /24 link UNICAST\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\nLocal:\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(local_v4(trie), ["10.1.0.7", "127.0.0.1"].map(|text| text.parse::<Ipv4Addr>().unwrap()));
        let inet6 = "00000000000000000000000000000001 01 80 10 80       lo\nfd000000000000000000000000000002 02 40 00 80 eth0\n";
        assert_eq!(local_v6(inet6), ["::1", "fd00::2"].map(|text| text.parse::<Ipv6Addr>().unwrap()));
    }

    // C9.8
    #[test]
    fn a_listener_on_one_address_is_only_that() {
        let listener: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(reachable_as(listener), [listener]);
        let everywhere: SocketAddr = "0.0.0.0:8080".parse().unwrap();
        let all = reachable_as(everywhere);
        assert!(all.contains(&everywhere) && all.contains(&listener), "{all:?}");
    }
}
