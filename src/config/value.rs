//! How single values are read: switches, durations, sizes, addresses, lists, schedules, certificates. `None` is all they say of
//! a wrong one; the caller knows what is allowed.

use crate::rules::backoff::Schedule;
use crate::rules::room::Reserve;
use crate::time::millis;
use base64::Engine as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// `true` or `false`, and the spellings that environment files know.
pub(super) fn switch(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// `10s`, `1h 30m`, `0s`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text.trim()).ok()
}

/// `1048576`, `1MiB`, `2 GB`.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "t" | "tb" => 1_000_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        "ti" | "tib" => 1 << 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// `10GiB`, `5%`, `0`.
pub(super) fn reserve(text: &str) -> Option<Reserve> {
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            percent.trim_end().parse().ok().filter(|percent| *percent <= RESERVE_PERCENT_MAX).map(Reserve::Percent)
        }
        None => size(text).map(Reserve::Bytes),
    }
}

/// The largest part of a disk that may be kept free.
const RESERVE_PERCENT_MAX: u8 = 50;

/// `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, and `:8080` for every address.
pub(super) fn listen(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    let port = |text: &str| text.parse::<u16>().ok();
    if let Some(rest) = text.strip_prefix(':') {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port(rest)?));
    }
    if let Some(rest) = text.strip_prefix("localhost:") {
        return Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port(rest)?));
    }
    text.parse().ok()
}

/// `host:port`, where the host may be a bracketed IPv6 literal.
pub(super) fn broker(text: &str) -> Option<String> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let host_is_good = match bare {
        Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)),
    };
    let port_is_good = port.parse::<u16>().is_ok_and(|port| port > 0);
    (host_is_good && port_is_good).then(|| text.to_owned())
}

/// Whether a broker is this machine itself.
pub(super) fn is_loopback(broker: &str) -> bool {
    let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host).trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A comma separated list; empty parts are passed over.
pub(super) fn list<T>(text: &str, one: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(one).collect()
}

/// Ports, and ranges of them: `443,8000-8080`.
pub(super) fn ports(text: &str) -> Option<Vec<u16>> {
    let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let parts = list(text, |part| match part.split_once('-') {
        Some((first, last)) => Some(port(first)?..=port(last)?).filter(|range| !range.is_empty()),
        None => port(part).map(|port| port..=port),
    })?;
    Some(parts.into_iter().flatten().collect())
}

/// Steps of a retry schedule (C6.2).
pub(super) fn schedule(text: &str) -> Option<Schedule> {
    Schedule::from_steps_ms(&list(text, |step| duration(step).map(millis))?).ok()
}

/// A level, or `target=level` and a level, comma separated. A bare target is refused: a level that was mistyped would be one.
pub(super) fn log_filter(text: &str) -> Option<String> {
    let level = |text: &str| text.trim().parse::<tracing::level_filters::LevelFilter>().is_ok();
    let directives = list(text, |part| match part.rsplit_once('=') {
        Some((target, wanted)) => (!target.trim().is_empty() && level(wanted)).then(|| part.to_owned()),
        None => level(part).then(|| part.to_owned()),
    })?;
    (!directives.is_empty()).then(|| directives.join(","))
}

/// Certificates as PEM, base64 of PEM, or the path of a file of either.
pub(super) fn pem(text: &str) -> Option<String> {
    const MARK: &str = "-----BEGIN CERTIFICATE-----";
    let of_text = |text: &str| {
        if text.contains(MARK) {
            return Some(text.to_owned());
        }
        let packed: String = text.split_ascii_whitespace().collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(packed).ok()?;
        String::from_utf8(bytes).ok().filter(|text| text.contains(MARK))
    };
    of_text(text).or_else(|| of_text(&std::fs::read_to_string(text.trim()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // C13.4
    #[test]
    fn a_reserve_is_a_size_or_a_part_of_the_disk() {
        for (text, expected) in [
            ("5%", Some(Reserve::Percent(5))),
            ("50 %", Some(Reserve::Percent(50))),
            ("10GiB", Some(Reserve::Bytes(10 << 30))),
            ("0", Some(Reserve::Bytes(0))),
            ("51%", None),
            ("5.5%", None),
            ("%", None),
            ("much", None),
        ] {
            assert_eq!(reserve(text), expected, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", Some(0)),
            ("1048576", Some(1 << 20)),
            ("1MiB", Some(1 << 20)),
            ("1 MB", Some(1_000_000)),
            ("2gib", Some(2 << 30)),
            ("7 t", Some(7_000_000_000_000)),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("1.5MiB", None),
            ("1MiBs", None),
            ("99999999999999999999", None),
            ("18446744073709551615k", None),
        ] {
            assert_eq!(size(text), bytes, "{text}");
        }
    }

    #[test]
    fn listen_addresses_may_leave_the_host_out() {
        for (text, address) in [
            (":8080", Some("0.0.0.0:8080")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("localhost:81", Some("127.0.0.1:81")),
            ("[::1]:8080", Some("[::1]:8080")),
            ("8080", None),
            ("127.0.0.1", None),
            (":99999", None),
            ("hub.example:80", None),
        ] {
            assert_eq!(listen(text).map(|a| a.to_string()).as_deref(), address, "{text}");
        }
    }

    #[test]
    fn brokers_are_host_and_port() {
        for (text, good, loopback) in [
            ("kafka-1.internal:9092", true, false),
            ("127.0.0.1:9092", true, true),
            ("localhost:9092", true, true),
            ("[::1]:9092", true, true),
            ("[::1:9092", false, false),
            ("kafka:0", false, false),
            ("kafka", false, false),
            ("ka fka:1", false, false),
            (":9092", false, false),
        ] {
            assert_eq!(broker(text).is_some(), good, "{text}");
            assert!(!good || is_loopback(text) == loopback, "{text}");
        }
    }

    #[test]
    fn log_filters_have_levels() {
        for (text, expected) in [
            ("info", Some("info")),
            ("WARN, streaming_hub::kafka=debug", Some("WARN,streaming_hub::kafka=debug")),
            ("off", Some("off")),
            ("inof", None),
            ("streaming_hub", None),
            ("=debug", None),
            ("", None),
        ] {
            assert_eq!(log_filter(text).as_deref(), expected, "{text}");
            assert!(expected.is_none_or(|text| text.parse::<tracing_subscriber::filter::Targets>().is_ok()));
        }
    }

    #[test]
    fn ports_may_be_ranges() {
        for (text, expected) in [
            ("443, 8443", Some(vec![443, 8443])),
            ("80,8000-8002", Some(vec![80, 8000, 8001, 8002])),
            ("0", None),
            ("65536", None),
            ("9-8", None),
            ("https", None),
        ] {
            assert_eq!(ports(text), expected, "{text}");
        }
    }

    // C6.2
    #[test]
    fn schedules_are_durations_within_the_limits() {
        let same = |text, steps: &[u64]| schedule(text) == Schedule::from_steps_ms(steps).ok();
        assert!(same("0s, 1s,2m", &[0, 1_000, 120_000]));
        assert_eq!(schedule("0s,5s,5m,30m,2h,5h,10h,10h"), Some(Schedule::default_curve()));
        for wrong in ["11h", "", "1s,soon", &["1s"; 13].join(",")] {
            assert_eq!(schedule(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn certificates_come_as_pem_or_base64_or_file() {
        let text = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert_eq!(pem(text).as_deref(), Some(text));
        let packed = base64::engine::general_purpose::STANDARD.encode(text);
        assert_eq!(pem(&packed).as_deref(), Some(text));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &packed).unwrap();
        assert_eq!(pem(file.path().to_str().unwrap()).as_deref(), Some(text));
        assert_eq!(pem("no such file"), None);
    }
}
