//! What an answer means: delivered, failed, told to wait, or beyond mending (C9.5, C9.6, C6.4).
//!
//! Invariant: a 2xx whose head arrived is a delivery, whatever happened to its body, unless the sink itself found the
//! answer to be a refusal (a wrong challenge, a rejected entry).

use crate::model::attempt::ErrorClass;
use crate::model::job::DeadReason;
use crate::model::limits::HOLD_MAX_MS;
use crate::time::Timestamp;

/// How long a 429 holds that says nothing we can read (C9.6).
const HOLD_DEFAULT_MS: u64 = 30_000;
/// The shortest hold (C9.6).
const HOLD_MIN_MS: u64 = 1_000;
const _: () = assert!(HOLD_MIN_MS <= HOLD_DEFAULT_MS && HOLD_DEFAULT_MS <= HOLD_MAX_MS);

/// What an attempt was told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// HTTP status, where an answer's head came.
    pub status: Option<u16>,
    /// What went wrong beside the status.
    pub error: Option<ErrorClass>,
    /// The `Retry-After` header's value.
    pub retry_after: Option<Vec<u8>>,
}

/// What that means for the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// It is done.
    Delivered,
    /// A failed attempt: a step is used.
    Failed {
        /// Of which class.
        error: ErrorClass,
        /// The receiver asked for at least this wait; at most an hour.
        not_before_ms: Option<u64>,
    },
    /// 429: the subscription waits so long, no step is used.
    Held {
        /// How long, clamped.
        hold_ms: u64,
    },
    /// No retry can mend it.
    Hopeless {
        /// Of which class.
        error: ErrorClass,
        /// What is written on the dead letter.
        reason: DeadReason,
    },
}

/// Judges one attempt. `wall_now` is needed where `Retry-After` is a date.
pub fn judge(told: &Told, wall_now: Timestamp) -> Judged {
    let asked = || told.retry_after.as_deref().and_then(|value| retry_after_ms(value, wall_now));
    let Some(error) = class(told.status, told.error) else { return Judged::Delivered };
    match error {
        ErrorClass::RateLimited => {
            Judged::Held { hold_ms: asked().unwrap_or(HOLD_DEFAULT_MS).clamp(HOLD_MIN_MS, HOLD_MAX_MS) }
        }
        ErrorClass::TooLarge => Judged::Hopeless { error, reason: DeadReason::TooLarge },
        ErrorClass::NotRepresentable => Judged::Hopeless { error, reason: DeadReason::NotRepresentable },
        ErrorClass::ServerError if told.status == Some(503) => {
            Judged::Failed { error, not_before_ms: asked().map(|ms| ms.min(HOLD_MAX_MS)) }
        }
        ErrorClass::ServerError
        | ErrorClass::ClientError
        | ErrorClass::Gone
        | ErrorClass::Redirect
        | ErrorClass::UnexpectedUpgrade
        | ErrorClass::DestinationBlocked
        | ErrorClass::Dns
        | ErrorClass::DnsTimeout
        | ErrorClass::Connect
        | ErrorClass::ConnectTimeout
        | ErrorClass::Tls
        | ErrorClass::Certificate
        | ErrorClass::Timeout
        | ErrorClass::Reset
        | ErrorClass::Protocol
        | ErrorClass::Challenge
        | ErrorClass::SecretUnreadable
        | ErrorClass::Crashed => Judged::Failed { error, not_before_ms: None },
    }
}

/// What went wrong; none for a success.
pub fn class(status: Option<u16>, error: Option<ErrorClass>) -> Option<ErrorClass> {
    match (status, error) {
        // What breaks after the head is the body's reading, and that is for the log only (C9.5).
        (Some(status), None | Some(ErrorClass::Timeout | ErrorClass::Reset | ErrorClass::Protocol)) => {
            of_status(status)
        }
        (_, Some(error)) => Some(error),
        // Neither an answer nor a fault: nothing that could be called delivered.
        (None, None) => Some(ErrorClass::Protocol),
    }
}

fn of_status(status: u16) -> Option<ErrorClass> {
    match status {
        200..=299 => None,
        101 => Some(ErrorClass::UnexpectedUpgrade),
        0..=199 => Some(ErrorClass::Protocol),
        300..=399 => Some(ErrorClass::Redirect),
        410 => Some(ErrorClass::Gone),
        429 => Some(ErrorClass::RateLimited),
        400..=499 => Some(ErrorClass::ClientError),
        500.. => Some(ErrorClass::ServerError),
    }
}

/// How long a `Retry-After` asks to wait, in milliseconds and not yet clamped: whole seconds or an HTTP date. None for
/// whatever else it says, and for a date that has passed: a negative wait (C9.6).
pub fn retry_after_ms(value: &[u8], wall_now: Timestamp) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?.trim_matches([' ', '\t']);
    if text.is_empty() {
        return None;
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits only, so the sole failure is a number beyond 64 bits: very long, and clamped later like any.
        return Some(text.parse().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    // Dates have whole seconds: one of this very second has not passed.
    if at.as_secs() < wall_now.unix_seconds() {
        return None;
    }
    Some(crate::time::millis(at).saturating_sub(wall_now.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Tue, 14 Nov 2023 22:13:20.500 GMT
    const NOW: Timestamp = Timestamp(1_700_000_000_500);

    fn failed(error: ErrorClass) -> Judged {
        Judged::Failed { error, not_before_ms: None }
    }

    fn told(status: impl Into<Option<u16>>, error: impl Into<Option<ErrorClass>>, retry_after: &str) -> Told {
        let retry_after = (!retry_after.is_empty()).then(|| retry_after.as_bytes().to_vec());
        Told { status: status.into(), error: error.into(), retry_after }
    }

    // C9.5 C9.6 C6.4
    #[test]
    fn every_answer_has_one_meaning() {
        use ErrorClass as E;
        for (status, expected) in [
            (200, Judged::Delivered),
            (201, Judged::Delivered),
            (204, Judged::Delivered),
            (299, Judged::Delivered),
            (0, failed(E::Protocol)),
            (99, failed(E::Protocol)),
            (100, failed(E::Protocol)),
            (101, failed(E::UnexpectedUpgrade)),
            (199, failed(E::Protocol)),
            (300, failed(E::Redirect)),
            (301, failed(E::Redirect)),
            (304, failed(E::Redirect)),
            (308, failed(E::Redirect)),
            (400, failed(E::ClientError)),
            (401, failed(E::ClientError)),
            (403, failed(E::ClientError)),
            (404, failed(E::ClientError)),
            (408, failed(E::ClientError)),
            (409, failed(E::ClientError)),
            (410, failed(E::Gone)),
            (413, failed(E::ClientError)),
            (429, Judged::Held { hold_ms: 30_000 }),
            (499, failed(E::ClientError)),
            (500, failed(E::ServerError)),
            (503, failed(E::ServerError)),
            (504, failed(E::ServerError)),
            (599, failed(E::ServerError)),
            (600, failed(E::ServerError)),
            (999, failed(E::ServerError)),
            (u16::MAX, failed(E::ServerError)),
        ] {
            assert_eq!(judge(&told(status, None, ""), NOW), expected, "{status}");
        }
    }

    // C9.5: a fault beside or instead of an answer.
    #[test]
    fn faults_count_unless_only_the_body_broke() {
        use ErrorClass as E;
        for (status, error, expected) in [
            (Some(200), E::Reset, Judged::Delivered),
            (Some(200), E::Timeout, Judged::Delivered),
            (Some(202), E::Protocol, Judged::Delivered),
            (Some(200), E::Challenge, failed(E::Challenge)),
            (Some(200), E::ServerError, failed(E::ServerError)),
            (Some(200), E::RateLimited, Judged::Held { hold_ms: 30_000 }),
            (Some(404), E::Reset, failed(E::ClientError)),
            (Some(429), E::Timeout, Judged::Held { hold_ms: 30_000 }),
            (None, E::Timeout, failed(E::Timeout)),
            (None, E::Connect, failed(E::Connect)),
            (None, E::DestinationBlocked, failed(E::DestinationBlocked)),
            (None, E::SecretUnreadable, failed(E::SecretUnreadable)),
            (None, E::TooLarge, Judged::Hopeless { error: E::TooLarge, reason: DeadReason::TooLarge }),
            (Some(413), E::TooLarge, Judged::Hopeless { error: E::TooLarge, reason: DeadReason::TooLarge }),
            (
                None,
                E::NotRepresentable,
                Judged::Hopeless { error: E::NotRepresentable, reason: DeadReason::NotRepresentable },
            ),
        ] {
            assert_eq!(judge(&told(status, error, ""), NOW), expected, "{status:?} {error:?}");
        }
        assert_eq!(judge(&Told::default(), NOW), failed(E::Protocol), "nothing at all is no delivery");
        for &error in E::ALL {
            assert_ne!(judge(&told(None, error, ""), NOW), Judged::Delivered, "{error:?}");
        }
    }

    // C9.6
    #[test]
    fn retry_after_is_seconds_or_a_date() {
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120_000)),
            ("007", Some(7_000)),
            (" 5\t", Some(5_000)),
            ("1000000000", Some(1_000_000_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("99999999999999999999999999999999", Some(u64::MAX)),
            ("Tue, 14 Nov 2023 22:14:20 GMT", Some(59_500)),
            ("Tuesday, 14-Nov-23 22:14:20 GMT", Some(59_500)),
            ("Tue Nov 14 22:14:20 2023", Some(59_500)),
            ("Tue, 14 Nov 2023 22:13:20 GMT", Some(0)),
            ("Tue, 14 Nov 2023 22:13:19 GMT", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
            ("", None),
            ("  ", None),
            ("-1", None),
            ("+1", None),
            ("1.5", None),
            ("1e300", None),
            ("1e9", None),
            ("0x10", None),
            ("NaN", None),
            ("inf", None),
            ("5s", None),
            ("5, 6", None),
            ("5, 5", None),
            ("5,", None),
            (",5", None),
            ("-0", None),
            ("-18446744073709551616", None),
            ("1_000", None),
            ("1 000", None),
            ("1e+300", None),
            ("-1e300", None),
            ("1E300", None),
            (".5", None),
            ("0.0", None),
            ("∞", None),
            ("５", None),
            ("5;q=1", None),
            ("\"5\"", None),
            ("5\r\n", None),
            ("Tue, 14 Nov 2023 22:14:20 GMT, Tue, 14 Nov 2023 22:14:20 GMT", None),
            ("Tue, 14 Nov 2023 22:14:20 +0000", None),
            ("Tue, 14 Nov 2023 22:14:20", None),
            ("Tue, 14 Nov 2023 24:14:20 GMT", None),
            ("Tue, 31 Feb 2023 22:14:20 GMT", None),
            ("Sun, 06-Nov-94 08:49:37 GMT", None),
            ("Sunday, 06-Nov-94 08:49:37 GMT", None),
            ("Sun Nov  6 08:49:37 1994", None),
            ("Thu, 01 Jan 1970 00:00:00 GMT", None),
            ("١", None),
            ("soon", None),
            ("2023-11-14T22:14:20Z", None),
        ] {
            assert_eq!(retry_after_ms(value.as_bytes(), NOW), expected, "{value}");
        }
        assert_eq!(retry_after_ms(b"\xff", NOW), None);
        assert!(retry_after_ms(b"Fri, 31 Dec 9999 23:59:59 GMT", NOW).is_some_and(|ms| ms > HOLD_MAX_MS));
    }

    // C9.6: what is done with it, in every form: the hold of a 429, and the least wait of a 503.
    #[test]
    fn holds_and_waits_are_clamped() {
        let huge = "9".repeat(30_000);
        for (value, hold_ms, not_before_ms) in [
            ("0", 1_000, Some(0)),
            ("1", 1_000, Some(1_000)),
            ("45", 45_000, Some(45_000)),
            ("3600", 3_600_000, Some(3_600_000)),
            ("3601", 3_600_000, Some(3_600_000)),
            ("86400", 3_600_000, Some(3_600_000)),
            ("18446744073709551615", 3_600_000, Some(3_600_000)),
            ("18446744073709551616", 3_600_000, Some(3_600_000)),
            (huge.as_str(), 3_600_000, Some(3_600_000)),
            ("Tue, 14 Nov 2023 22:13:20 GMT", 1_000, Some(0)),
            ("Tue, 14 Nov 2023 22:14:20 GMT", 59_500, Some(59_500)),
            ("Tuesday, 14-Nov-23 22:14:20 GMT", 59_500, Some(59_500)),
            ("Tue Nov 14 22:14:20 2023", 59_500, Some(59_500)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 3_600_000, Some(3_600_000)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 30_000, None),
            ("-1", 30_000, None),
            ("-99999999999999999999", 30_000, None),
            ("1e300", 30_000, None),
            ("1.5", 30_000, None),
            ("NaN", 30_000, None),
            ("soon", 30_000, None),
            ("5, 6", 30_000, None),
            (" ", 30_000, None),
            ("", 30_000, None),
        ] {
            let shown = &value[..value.len().min(40)];
            assert_eq!(judge(&told(429, None, value), NOW), Judged::Held { hold_ms }, "429 {shown}");
            let failed = Judged::Failed { error: ErrorClass::ServerError, not_before_ms };
            assert_eq!(judge(&told(503, None, value), NOW), failed, "503 {shown}");
        }
        for bytes in [&b"\xff"[..], b"5\xff", b"\x005", b"\n"] {
            let told = |status| Told { status: Some(status), error: None, retry_after: Some(bytes.to_vec()) };
            assert_eq!(judge(&told(429), NOW), Judged::Held { hold_ms: 30_000 }, "{bytes:?}");
            assert_eq!(judge(&told(503), NOW), failed(ErrorClass::ServerError), "{bytes:?}");
        }
        for status in [500, 502, 504, 404, 408, 301] {
            let waits = matches!(judge(&told(status, None, "45"), NOW), Judged::Failed { not_before_ms: Some(_), .. });
            assert!(!waits, "only 503 delays by it: {status}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_makes_it_panic(
            status in proptest::option::of(any::<u16>()),
            error in proptest::option::of(proptest::sample::select(ErrorClass::ALL)),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)), now: u64,
        ) {
            match judge(&Told { status, error, retry_after: value }, Timestamp(now)) {
                Judged::Held { hold_ms } => prop_assert!((HOLD_MIN_MS..=HOLD_MAX_MS).contains(&hold_ms)),
                Judged::Failed { not_before_ms, .. } => prop_assert!(not_before_ms.is_none_or(|ms| ms <= HOLD_MAX_MS)),
                Judged::Delivered => prop_assert!(status.is_some_and(|status| (200..300).contains(&status))),
                Judged::Hopeless { .. } => prop_assert!(error.is_some()),
            }
        }

        #[test]
        fn no_text_like_a_date_makes_it_panic(
            value in "[MTWFS][a-z]{2,8},? [0-9]{1,3}[ -][A-Z][a-z]{2}[ -][0-9]{1,5} [0-9:]{1,9} GMT", now: u64,
        ) {
            let _ = retry_after_ms(value.as_bytes(), Timestamp(now));
        }
    }
}
