//! `Retry-After` in every form (C9.6), and what an answer means.
//!
//! The input: two bytes of the status, eight of the time, and the header's value.

use super::take;
use std::time::{Duration, UNIX_EPOCH};
use streaming_hub::model::limits::HOLD_MAX_MS;
use streaming_hub::rules::outcome::{Judged, Told, judge, retry_after_ms};
use streaming_hub::time::Timestamp;

pub(super) fn run(mut data: &[u8]) {
    let status = u16::from_be_bytes(take(&mut data)) % 1000;
    let now = Timestamp(u64::from_be_bytes(take(&mut data)));
    let asked = retry_after_ms(data, now);
    as_it_is_written(data, now, asked);
    let told = |status| Told { status: Some(status), error: None, retry_after: Some(data.to_vec()) };
    match judge(&told(429), now) {
        Judged::Held { hold_ms } => {
            assert!((1000..=HOLD_MAX_MS).contains(&hold_ms));
            assert_eq!(hold_ms, asked.unwrap_or(30_000).clamp(1000, HOLD_MAX_MS));
        }
        other => panic!("{other:?}"),
    }
    match judge(&told(503), now) {
        Judged::Failed { not_before_ms, .. } => assert_eq!(not_before_ms, asked.map(|ms| ms.min(HOLD_MAX_MS))),
        other => panic!("{other:?}"),
    }
    match judge(&told(status), now) {
        Judged::Delivered => assert!((200..300).contains(&status)),
        Judged::Held { .. } => assert_eq!(status, 429),
        Judged::Failed { not_before_ms, .. } => {
            assert!(!(200..300).contains(&status) && status != 429);
            assert!(not_before_ms.is_none() || status == 503);
        }
        Judged::Hopeless { .. } => panic!("no status is beyond mending"),
    }
}

/// Read in another way: seconds by their digits, and dates by writing them.
fn as_it_is_written(value: &[u8], now: Timestamp, asked: Option<u64>) {
    let text = String::from_utf8_lossy(value);
    let text = text.trim_matches([' ', '\t']);
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits {
        let seconds = text.trim_start_matches('0');
        let wanted = match (seconds.len(), seconds.parse::<u64>()) {
            (0, _) => 0,
            (_, Ok(seconds)) => seconds.saturating_mul(1000),
            (_, Err(_)) => u64::MAX,
        };
        assert!(asked == Some(wanted) || (wanted == u64::MAX && asked.is_some_and(|ms| ms > HOLD_MAX_MS)), "{text}");
    } else if let Some(ms) = asked {
        // A date: when it comes is a whole second, and written out it says the same.
        let at = now.0 + ms;
        let second = UNIX_EPOCH + Duration::from_secs(at / 1000);
        assert!(ms == 0 || at.is_multiple_of(1000), "{text} {at}");
        let date = httpdate::parse_http_date(text).unwrap();
        if ms > 0 {
            assert_eq!(httpdate::fmt_http_date(second), httpdate::fmt_http_date(date), "{text}");
        }
    }
}
