//! What the operator opened: `SINK_ALLOW`, a list of names and networks with ports (C9.8).
//!
//! `10.20.0.0/16:443,8443; erp.local:8080+plain; 192.168.1.7/32:5671@tenant-a`: a name, an address or a network, then
//! ports (without any: the usual ones), then `+plain` where connections without TLS are allowed, then `@` and the only
//! tenant that may use it.

use super::target::{TargetHost, parse_host, port};
use std::net::IpAddr;

/// One entry of `SINK_ALLOW`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    what: What,
    /// The ports it opens; none: the usual ones.
    pub ports: Vec<u16>,
    /// Without TLS too.
    pub plain: bool,
    /// Only for that tenant.
    pub tenant: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Name(String),
    Network { addr: IpAddr, prefix: u8 },
}

impl AllowRule {
    /// Whether it opens that name.
    pub fn names(&self, name: &str) -> bool {
        matches!(&self.what, What::Name(own) if own == name)
    }

    /// Whether it opens a network, not a name.
    pub fn is_network(&self) -> bool {
        matches!(self.what, What::Network { .. })
    }

    /// Whether that address is in its network.
    pub fn contains(&self, addr: IpAddr) -> bool {
        match (&self.what, addr) {
            (What::Network { addr: IpAddr::V4(net), prefix }, IpAddr::V4(addr)) => {
                (net.to_bits() ^ addr.to_bits()).checked_shr(32 - u32::from(*prefix)).unwrap_or(0) == 0
            }
            (What::Network { addr: IpAddr::V6(net), prefix }, IpAddr::V6(addr)) => {
                (net.to_bits() ^ addr.to_bits()).checked_shr(128 - u32::from(*prefix)).unwrap_or(0) == 0
            }
            (What::Network { .. } | What::Name(_), _) => false,
        }
    }
}

/// Why an entry of `SINK_ALLOW` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?}: {fault}")]
pub struct AllowError {
    /// The entry.
    pub entry: String,
    /// What is wrong with it.
    pub fault: AllowFault,
}

/// What is wrong with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AllowFault {
    /// No host that can be read.
    #[error("must begin with a host name, an address or a network such as 10.20.0.0/16")]
    Host,
    /// A network that is none.
    #[error("the network's length is not a number from 0 to 32 (IPv4) or 128 (IPv6)")]
    Length,
    /// Bits beyond its length.
    #[error("the network has bits beyond its length; a single address has the length 32 (IPv4) or 128 (IPv6)")]
    BitsBeyond,
    /// Not ports.
    #[error("ports are numbers from 1 to 65535, separated by commas")]
    Ports,
    /// Nothing behind the `@`.
    #[error("the tenant behind @ is missing")]
    Tenant,
}

/// Reads `SINK_ALLOW`. Entries are separated by semicolons; empty ones are passed over.
///
/// # Errors
/// Names the first entry that cannot be read.
pub fn parse_sink_allow(text: &str) -> Result<Vec<AllowRule>, AllowError> {
    let entries = text.split(';').map(str::trim).filter(|entry| !entry.is_empty());
    entries.map(|entry| rule(entry).map_err(|fault| AllowError { entry: entry.to_owned(), fault })).collect()
}

fn rule(entry: &str) -> Result<AllowRule, AllowFault> {
    // `+plain` may stand before the tenant or at the end.
    let (entry, plain_at_end) = without_plain(entry);
    let (rest, tenant) = match entry.split_once('@') {
        Some((_, "")) => return Err(AllowFault::Tenant),
        Some((rest, tenant)) => (rest, Some(tenant.to_owned())),
        None => (entry, None),
    };
    let (rest, plain_before_tenant) = without_plain(rest);
    let plain = plain_at_end || plain_before_tenant;
    let (host, length, ports) = split(rest)?;
    let what = match (parse_host(host).map_err(|_| AllowFault::Host)?, length) {
        (TargetHost::Name(name), None) => What::Name(name),
        (TargetHost::Name(_), Some(_)) => return Err(AllowFault::Host),
        (TargetHost::Ip(addr), length) => network(addr, length)?,
    };
    let ports = match ports {
        None => Vec::new(),
        Some(list) => {
            list.split(',').map(|text| port(text.trim()).map_err(|_| AllowFault::Ports)).collect::<Result<_, _>>()?
        }
    };
    Ok(AllowRule { what, ports, plain, tenant })
}

fn without_plain(text: &str) -> (&str, bool) {
    text.strip_suffix("+plain").map_or((text, false), |rest| (rest, true))
}

/// Host, length of the network, ports. IPv6 may stand in brackets, and must where ports follow it without a length
/// between.
fn split(text: &str) -> Result<(&str, Option<&str>, Option<&str>), AllowFault> {
    let (host, after) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (inside, after) = bracketed.split_once(']').ok_or(AllowFault::Host)?;
            // Brackets belong to IPv6 alone.
            if !inside.contains(':') || !(after.is_empty() || after.starts_with(['/', ':'])) {
                return Err(AllowFault::Host);
            }
            (inside, after)
        }
        None if text.contains('/') => text.split_at(text.find('/').unwrap_or(text.len())),
        None if text.matches(':').count() > 1 => (text, ""),
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let (length, ports) = match after.strip_prefix('/') {
        Some(after) => match after.split_once(':') {
            Some((length, ports)) => (Some(length), Some(ports)),
            None => (Some(after), None),
        },
        None => (None, after.strip_prefix(':')),
    };
    Ok((host, length, ports))
}

fn network(addr: IpAddr, length: Option<&str>) -> Result<What, AllowFault> {
    let longest = if addr.is_ipv4() { 32 } else { 128 };
    let prefix = match length {
        None => longest,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|prefix| *prefix <= longest).ok_or(AllowFault::Length)?
        }
        Some(_) => return Err(AllowFault::Length),
    };
    let beyond = match addr {
        IpAddr::V4(v4) => v4.to_bits().checked_shl(u32::from(prefix)).unwrap_or(0) != 0,
        IpAddr::V6(v6) => v6.to_bits().checked_shl(u32::from(prefix)).unwrap_or(0) != 0,
    };
    // 10.20.1.1/16 is more likely a slip than a wish to open 65,536 addresses.
    if beyond { Err(AllowFault::BitsBeyond) } else { Ok(What::Network { addr, prefix }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(addr: &str, prefix: u8) -> What {
        What::Network { addr: addr.parse().unwrap(), prefix }
    }

    // C9.8, and the form in the settings' documentation.
    #[test]
    fn the_form_of_the_setting() {
        let text = " 10.20.0.0/16:443,8443; erp.local:8080+plain; 192.168.1.7/32:5671@tenant-a;; ";
        let name = |text: &str| What::Name(text.to_owned());
        assert_eq!(
            parse_sink_allow(text).unwrap(),
            [
                AllowRule { what: net("10.20.0.0", 16), ports: vec![443, 8443], plain: false, tenant: None },
                AllowRule { what: name("erp.local"), ports: vec![8080], plain: true, tenant: None },
                AllowRule {
                    what: net("192.168.1.7", 32),
                    ports: vec![5671],
                    plain: false,
                    tenant: Some("tenant-a".into())
                },
            ]
        );
        assert_eq!(parse_sink_allow(""), Ok(vec![]));
        for (entry, what, ports, plain, tenant) in [
            ("10.0.0.1", net("10.0.0.1", 32), &[][..], false, None),
            ("10.0.0.1:8080", net("10.0.0.1", 32), &[8080], false, None),
            ("0.0.0.0/0:9443", net("0.0.0.0", 0), &[9443], false, None),
            ("::/0", net("::", 0), &[], false, None),
            ("fd00::/8:443, 8443", net("fd00::", 8), &[443, 8443], false, None),
            ("[fd00::]/8:443", net("fd00::", 8), &[443], false, None),
            ("[fd00::1]:443+plain", net("fd00::1", 128), &[443], true, None),
            ("fd00::1", net("fd00::1", 128), &[], false, None),
            ("[fd00::1]", net("fd00::1", 128), &[], false, None),
            ("ERP", name("erp"), &[], false, None),
            ("localhost:1+plain@a@b", name("localhost"), &[1], true, Some("a@b")),
            ("localhost:1@a+plain", name("localhost"), &[1], true, Some("a")),
        ] {
            let rules = parse_sink_allow(entry).unwrap();
            let expected = AllowRule { what, ports: ports.into(), plain, tenant: tenant.map(str::to_owned) };
            assert_eq!(rules, [expected], "{entry}");
        }
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_named() {
        use AllowFault as F;
        for (entry, fault) in [
            ("10.20.1.1/16:443", F::BitsBeyond),
            ("fd00::1/8", F::BitsBeyond),
            ("10.0.0.0/33", F::Length),
            ("10.0.0.0/", F::Length),
            ("10.0.0.0/+8", F::Length),
            ("10.0.0.0/255.0.0.0", F::Length),
            ("fd00::/129", F::Length),
            ("erp.local:", F::Ports),
            ("erp.local:0", F::Ports),
            ("erp.local:443,", F::Ports),
            ("erp.local:65536", F::Ports),
            ("erp.local:https", F::Ports),
            ("erp.local:443+plaintext", F::Ports),
            ("erp.local/24", F::Host),
            ("10.1", F::Host),
            ("0x0a000001", F::Host),
            ("https://erp.local", F::Host),
            ("erp_local", F::Host),
            ("*.local", F::Host),
            (":443", F::Host),
            ("[10.0.0.1]:443", F::Host),
            ("[fd00::1]443", F::Host),
            ("[fd00::1", F::Host),
            ("+plain", F::Host),
            ("erp.local@", F::Tenant),
            ("erp.local@+plain", F::Tenant),
        ] {
            let error = parse_sink_allow(&format!("example.com; {entry}")).unwrap_err();
            assert_eq!(error, AllowError { entry: entry.to_owned(), fault }, "{entry}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses() {
        for (entry, addr, expected) in [
            ("10.20.0.0/16", "10.20.255.255", true),
            ("10.20.0.0/16", "10.21.0.0", false),
            ("10.20.0.0/16", "::ffff:10.20.0.1", false),
            ("10.20.0.7", "10.20.0.7", true),
            ("10.20.0.7", "10.20.0.6", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("::/0", "::1", true),
            ("::/0", "1.1.1.1", false),
            ("fd00::/8", "fdff::1", true),
            ("fd00::/8", "fc00::1", false),
            ("fd00::1", "fd00::2", false),
            ("erp.local", "10.0.0.1", false),
        ] {
            let rules = parse_sink_allow(entry).unwrap();
            assert_eq!(rules[0].contains(addr.parse().unwrap()), expected, "{entry} {addr}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}|[0-9a-f:./\\[\\]@+;,]{0,30}", addr: std::net::IpAddr) {
            if let Ok(rules) = parse_sink_allow(&text) {
                let _ = rules.iter().any(|rule| rule.contains(addr));
            }
        }
    }
}
