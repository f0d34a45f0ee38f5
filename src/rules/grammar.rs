//! The spellings that a record's attributes must have, where a text has a grammar of its own.
//!
//! Written by hand because they stand on the hot path, and because a parser's leniency must not become part of the
//! contract.

use crate::model::limits::{SOURCE_BYTES, TRACE_BYTES, TYPE_PART_BYTES};

/// The source that a fact topic carries; none for a topic that is not followed for delivery (C1.1, C1.2).
pub fn topic_source<'a>(prefix: &str, topic: &'a str) -> Option<&'a str> {
    if topic.ends_with(".commands") || topic.ends_with(".dlq") {
        return None;
    }
    topic.strip_prefix(prefix).filter(|source| is_source(source))
}

/// Whether the text is a source: `^[a-z0-9][a-z0-9_-]*$`, at most 223 bytes (C1.1, C1.2).
pub fn is_source(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= SOURCE_BYTES
        && bytes.first().is_some_and(|first| !matches!(first, b'_' | b'-'))
        && bytes.iter().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Within its limit and without control characters (C2.3).
pub(super) fn is_plain(text: &str, limit: usize) -> bool {
    text.len() <= limit && !has_control(text)
}

fn has_control(text: &str) -> bool {
    // Bytes first: nearly all texts are ASCII, and the controls beyond ASCII all begin with the byte C2.
    text.bytes().any(|byte| byte < 0x20 || byte == 0x7f || byte == 0xc2) && text.chars().any(char::is_control)
}

/// Whether the text may be a resource type or an event type (C2.3).
pub(super) fn is_type_part(text: &str) -> bool {
    !text.is_empty() && is_plain(text, TYPE_PART_BYTES) && !text.contains('.')
}

/// Longest `ce-time` that is taken: nine digits of a second and an offset make 35 bytes.
const TIME_BYTES: usize = 64;

/// Whether the text is a date-time of RFC 3339, section 5.6, with a day and an offset that exist.
///
/// A leap second is taken where one can be: in the last minute, by UTC, of a month.
pub(super) fn is_rfc3339(text: &str) -> bool {
    date_time(text.as_bytes()).is_some()
}

fn date_time(text: &[u8]) -> Option<()> {
    if text.len() > TIME_BYTES {
        return None;
    }
    let [y0, y1, y2, y3, b'-', m0, m1, b'-', d0, d1, b'T' | b't', h0, h1, b':', i0, i1, b':', s0, s1, rest @ ..] = text
    else {
        return None;
    };
    let year = u32::from(pair(*y0, *y1)?) * 100 + u32::from(pair(*y2, *y3)?);
    let (month, day) = (pair(*m0, *m1)?, pair(*d0, *d1)?);
    let (hour, minute, second) = (pair(*h0, *h1)?, pair(*i0, *i1)?, pair(*s0, *s1)?);
    let days = days_in(year, month)?;
    if day == 0 || day > days || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let offset = offset_minutes(after_fraction(rest)?)?;
    if second == 60 {
        leap_second_may_be(i32::from(hour) * 60 + i32::from(minute) - offset, day, days)?;
    }
    Some(())
}

/// In UTC it must be 23:59 of a month's last day; the minute is of the day as written, less the offset.
fn leap_second_may_be(utc_minute: i32, day: u8, days: u8) -> Option<()> {
    const LAST_MINUTE: i32 = 24 * 60 - 1;
    let as_written = utc_minute == LAST_MINUTE && day == days;
    let the_day_before = utc_minute == LAST_MINUTE - 24 * 60 && day == 1;
    (as_written || the_day_before).then_some(())
}

/// What follows a fraction of a second, which needs a digit where there is a point.
fn after_fraction(text: &[u8]) -> Option<&[u8]> {
    let [b'.', digits @ ..] = text else { return Some(text) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| &digits[count..])
}

fn offset_minutes(text: &[u8]) -> Option<i32> {
    match text {
        [b'Z' | b'z'] => Some(0),
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let (hours, minutes) = (pair(*h0, *h1)?, pair(*m0, *m1)?);
            let total = i32::from(hours) * 60 + i32::from(minutes);
            (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -total } else { total })
        }
        _ => None,
    }
}

/// The number of two digits.
fn pair(tens: u8, ones: u8) -> Option<u8> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| (tens - b'0') * 10 + (ones - b'0'))
}

fn days_in(year: u32, month: u8) -> Option<u8> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
        4 | 6 | 9 | 11 => Some(30),
        2 => Some(if leap { 29 } else { 28 }),
        _ => None,
    }
}

/// The MAJOR of a schema version: `MAJOR`, `MAJOR.MINOR` or `MAJOR.MINOR.PATCH`, with or without a leading `v` (C2.4).
pub(super) fn schema_major(text: &str) -> Option<u32> {
    let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
    let major = parts.next().filter(|part| is_number(part))?;
    if parts.clone().count() > 2 || !parts.all(is_number) {
        return None;
    }
    // Digits only were let through, so the sole failure left is a number of more than 32 bits.
    major.parse().ok()
}

fn is_number(part: &str) -> bool {
    !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the text is a W3C `traceparent` that a receiver would believe.
pub(super) fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 55 || bytes.len() > TRACE_BYTES {
        return false;
    }
    let (fixed, further) = bytes.split_at(55);
    let version = &fixed[..2];
    // Later versions may append fields; version 00 may not, and ff is no version.
    let known_end = further.is_empty() || (version != b"00" && further[0] == b'-' && further.iter().all(is_visible));
    let parts = [(0, 2), (3, 35), (36, 52), (53, 55)];
    known_end
        && version != b"ff"
        && [2, 35, 52].iter().all(|&at| fixed[at] == b'-')
        && parts.iter().all(|&(from, to)| fixed[from..to].iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
        && fixed[3..35].iter().any(|&b| b != b'0')
        && fixed[36..52].iter().any(|&b| b != b'0')
}

fn is_visible(byte: &u8) -> bool {
    matches!(byte, 0x21..=0x7e)
}

/// Whether the text may stand in a `tracestate` header.
pub(super) fn is_tracestate(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= TRACE_BYTES && text.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // C1.1 C1.2
    #[test]
    fn only_fact_topics_carry_a_source() {
        let longest = "a".repeat(SOURCE_BYTES);
        for (topic, source) in [
            ("lerian.streaming.lender", Some("lender")),
            ("lerian.streaming.loan-core_2", Some("loan-core_2")),
            ("lerian.streaming.0", Some("0")),
            (&format!("lerian.streaming.{longest}"), Some(longest.as_str())),
            (&format!("lerian.streaming.{longest}a"), None),
            ("lerian.streaming.lender.commands", None),
            ("lerian.streaming.lender.dlq", None),
            ("lerian.streaming.commands", None),
            ("lerian.streaming.dlq", None),
            ("lerian.streaming.lender.v2", None),
            ("lerian.streaming.", None),
            ("lerian.streaming", None),
            ("lerian.streaming.Lender", None),
            ("lerian.streaming._lender", None),
            ("lerian.streaming.-lender", None),
            ("lerian.streaming.len der", None),
            ("lerian.streaming.lénder", None),
            ("xlerian.streaming.lender", None),
            ("Lerian.streaming.lender", None),
            ("__consumer_offsets", None),
            ("", None),
        ] {
            assert_eq!(topic_source("lerian.streaming.", topic), source, "{topic}");
        }
        assert_eq!(topic_source("other.", "other.lender"), Some("lender"));
        assert_eq!(topic_source("", "lender"), Some("lender"));
    }

    // C2.2 `ce-time`
    #[test]
    fn times_are_rfc_3339() {
        for (text, good) in [
            ("2026-11-30T12:00:00Z", true),
            ("2026-11-30T12:00:00.1Z", true),
            ("2026-11-30T12:00:00.123456789Z", true),
            ("2026-11-30T09:00:00-03:00", true),
            ("2026-11-30t09:00:00.5+23:59", true),
            ("2026-11-30T12:00:00z", true),
            ("2026-11-30T12:00:00-00:00", true),
            ("0000-01-01T00:00:00Z", true),
            ("9999-12-31T23:59:59.999999999Z", true),
            ("2024-02-29T00:00:00Z", true),
            ("2000-02-29T00:00:00Z", true),
            ("2023-02-29T00:00:00Z", false),
            ("1900-02-29T00:00:00Z", false),
            ("2026-04-31T00:00:00Z", false),
            ("2026-00-10T00:00:00Z", false),
            ("2026-13-10T00:00:00Z", false),
            ("2026-11-00T00:00:00Z", false),
            ("2026-11-30T24:00:00Z", false),
            ("2026-11-30T12:60:00Z", false),
            ("2026-11-30T12:00:61Z", false),
            // Leap seconds: at the end of a month by UTC only.
            ("2016-12-31T23:59:60Z", true),
            ("2016-12-31T23:59:60.25Z", true),
            ("2017-01-01T00:59:60+01:00", true),
            ("2016-12-31T20:59:60-03:00", true),
            ("2016-12-31T12:00:60Z", false),
            ("2016-12-30T23:59:60Z", false),
            ("2016-12-31T23:59:60+01:00", false),
            ("2026-11-30T12:00:00", false),
            ("2026-11-30 12:00:00Z", false),
            ("2026-11-30T12:00Z", false),
            ("2026-11-30", false),
            ("2026-11-30T12:00:00.Z", false),
            ("2026-11-30T12:00:00,5Z", false),
            ("2026-11-30T12:00:00+0300", false),
            ("2026-11-30T12:00:00+03", false),
            ("2026-11-30T12:00:00+24:00", false),
            ("2026-11-30T12:00:00+03:60", false),
            ("2026-11-30T12:00:00Z ", false),
            (" 2026-11-30T12:00:00Z", false),
            ("+2026-11-30T12:00:00Z", false),
            ("20261130T120000Z", false),
            ("２026-11-30T12:00:00Z", false),
            ("30/11/2026 12:00", false),
            ("1764504000", false),
            ("", false),
        ] {
            assert_eq!(is_rfc3339(text), good, "{text}");
        }
        let long = format!("2026-11-30T12:00:00.{}Z", "1".repeat(TIME_BYTES));
        assert!(!is_rfc3339(&long), "a fraction without end is not carried to receivers");
    }

    // C2.4
    #[test]
    fn the_schema_major_is_a_32_bit_number() {
        for (text, major) in [
            ("1", Some(1)),
            ("0", Some(0)),
            ("1.0.0", Some(1)),
            ("v3.1", Some(3)),
            ("v2", Some(2)),
            ("4294967295.1", Some(u32::MAX)),
            ("4294967296", None),
            ("99999999999999999999999", None),
            ("1.99999999999999999999999", Some(1)),
            ("latest", None),
            ("V1", None),
            ("vv1", None),
            ("v", None),
            ("", None),
            ("1.", None),
            (".1", None),
            ("1..2", None),
            ("1.2.3.4", None),
            ("1.0.0-beta", None),
            ("1.0+build", None),
            ("+1", None),
            ("-1", None),
            (" 1", None),
            ("1 ", None),
            ("1.x", None),
            ("١", None),
        ] {
            assert_eq!(schema_major(text), major, "{text}");
        }
    }

    // C2.6
    #[test]
    fn a_traceparent_is_carried_when_it_can_be_believed() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert!(is_traceparent(good));
        assert!(is_traceparent(&format!("cc{}-what-comes", &good[2..])));
        for bad in [
            "",
            &good[..54],
            &format!("{good}-more"),
            &good.to_uppercase(),
            &format!("ff{}", &good[2..]),
            &format!("cc{}x", &good[2..]),
            &good.replace('-', "_"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            &format!("cc{}-{}", &good[2..], "x".repeat(TRACE_BYTES)),
            &format!("cc{}-a\r\nb", &good[2..]),
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
        assert!(is_tracestate("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
        for bad in ["", "  ", "a=b\r\nx: y", "a=é", &"a".repeat(TRACE_BYTES + 1)] {
            assert!(!is_tracestate(bad), "{bad}");
        }
    }

    proptest! {
        // Whatever we take, the time crate takes, and the other way round where it is written as we want it.
        #[test]
        fn times_agree_with_another_reader(
            year in 0u32..=9999, month in 0u32..=13, day in 0u32..=32, hour in 0u32..=25, minute in 0u32..=61,
            second in 0u32..=61, fraction in "(\\.[0-9]{0,9})?", offset in "(Z|[+-][012][0-9]:[0-6][0-9])",
        ) {
            let text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}");
            let other = time::OffsetDateTime::parse(&text, &time::format_description::well_known::Rfc3339);
            prop_assert_eq!(is_rfc3339(&text), other.is_ok(), "{} {:?}", text, other);
        }

        #[test]
        fn sources_have_one_grammar(text in "\\PC{0,6}|[a-z0-9_-]{0,6}") {
            let first = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            let plain = text.starts_with(first) && text.chars().all(|c| first(c) || c == '_' || c == '-');
            prop_assert_eq!(is_source(&text), plain);
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "\\PC{0,70}", bytes in "[-0-9a-fTZv.:+]{0,64}") {
            for text in [text, bytes] {
                let _ = (is_rfc3339(&text), schema_major(&text), is_traceparent(&text), is_tracestate(&text));
            }
        }
    }
}
