//! What a request's head must be like before anything is done for it: sizes, media types, and the bounded body (A1.5, A1.9, A1.11).

use crate::error::Code;
use crate::http::problem::Problem;
use crate::http::routes::{Op, Route, Takes};
use crate::model::limits::{REFUSED_BODY_BYTES, REQUEST_HEADERS_BYTES, REQUEST_ID_BYTES, REQUEST_TARGET_BYTES};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use http::uri::Authority;
use http::{Uri, Version};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use std::error::Error;
use std::time::Duration;

/// The client's own request id, where it is one that may be repeated in a header and a log (A1.5).
pub(crate) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    let sane = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    ((1..=REQUEST_ID_BYTES).contains(&id.len()) && id.bytes().all(sane)).then(|| id.to_owned())
}

/// 414 and 431.
pub(crate) fn check_size(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let target = uri.path_and_query().map_or(0, |target| target.as_str().len());
    if target > REQUEST_TARGET_BYTES {
        let detail = format!("path and query may have at most {REQUEST_TARGET_BYTES} bytes");
        return Err(Problem::new(Code::UriTooLong, detail));
    }
    // As HTTP/1 writes them: name, colon, space, value, line end.
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > REQUEST_HEADERS_BYTES {
        let detail = format!("the headers may have at most {REQUEST_HEADERS_BYTES} bytes together");
        return Err(Problem::new(Code::HeadersTooLarge, detail));
    }
    Ok(())
}

/// 400 for a request that does not say once, and in one way, which host it is for (RFC 9112, section 3.2).
pub(crate) fn check_host(version: Version, headers: &HeaderMap) -> Result<(), Problem> {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let fault = match (first, second) {
        (_, Some(_)) => "the request has more than one Host header",
        // HTTP/1.0 knows no Host, HTTP/2 has `:authority` instead.
        (None, None) if version == Version::HTTP_11 => "the request has no Host header",
        (None, None) => return Ok(()),
        (Some(host), None) if is_host(host.as_bytes()) => return Ok(()),
        (Some(_), None) => "the Host header holds no host",
    };
    Err(Problem::new(Code::BadRequest, fault))
}

/// A host with or without a port; an empty one is that of a client that does not know it.
fn is_host(host: &[u8]) -> bool {
    host.is_empty() || Authority::try_from(host).is_ok_and(|host| !host.as_str().contains('@'))
}

/// 406 and 415.
pub(crate) fn check_types(route: &Route, headers: &HeaderMap, body: &impl Body) -> Result<(), Problem> {
    let offered = if route.op == Op::Metrics {
        ["application/openmetrics-text", "text/plain"]
    } else {
        ["application/json", "application/problem+json"]
    };
    if !accepts(headers, &offered) {
        return Err(Problem::new(Code::NotAcceptable, format!("this is answered as {} only", offered[0])));
    }
    if route.takes == Takes::Nothing || body.is_end_stream() {
        return Ok(());
    }
    if headers.get(CONTENT_ENCODING).is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Problem::new(Code::UnsupportedMediaType, "the body must not be compressed: no Content-Encoding"));
    }
    let given = essence(headers.get(CONTENT_TYPE));
    if route.takes != Takes::Event && !is_utf_8(headers.get(CONTENT_TYPE)) {
        return Err(Problem::new(Code::UnsupportedMediaType, "JSON is taken in UTF-8 only (RFC 8259, section 8.1)"));
    }
    let (fits, wanted) = match route.takes {
        Takes::Nothing => (true, ""),
        Takes::Json | Takes::OptionalJson => (given == "application/json", "Content-Type must be application/json"),
        Takes::MergePatch => (
            given == "application/merge-patch+json" || given == "application/json",
            "Content-Type must be application/merge-patch+json",
        ),
        Takes::Event => (
            !given.starts_with("application/cloudevents"),
            "one event in binary mode: its data as the body, its attributes as ce-* headers; batches and structured mode are not taken",
        ),
    };
    if fits { Ok(()) } else { Err(Problem::new(Code::UnsupportedMediaType, wanted)) }
}

/// The whole body, or 413 and 408. A length that is told and too large is refused before anything is read.
pub(crate) async fn read_body<B>(
    route: &Route,
    headers: &HeaderMap,
    body: B,
    ceiling: usize,
    left: Duration,
) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if route.takes == Takes::Nothing || body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let told = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|length| length > ceiling as u64) {
        return Err(too_large(ceiling));
    }
    match tokio::time::timeout(left, Limited::new(body, ceiling).collect()).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(ceiling)),
        Ok(Err(_)) => Err(Problem::new(Code::BadRequest, "the body broke off")),
        Err(_) => Err(Problem::new(Code::RequestTimeout, "the request did not arrive whole in 30 s")),
    }
}

/// Reads a refused body for a moment and throws it away.
pub(crate) async fn drain<B>(body: B)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut rest = Limited::new(body, REFUSED_BODY_BYTES);
    let reading = async { while let Some(Ok(_)) = rest.frame().await {} };
    // A client that goes on sending for longer is cut off.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

/// How long what a refused client still sends is read.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(5);

fn too_large(ceiling: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge, format!("the body may have at most {ceiling} bytes"))
}

/// The media type without its parameters, in lower case; empty without one.
fn essence(value: Option<&HeaderValue>) -> String {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether no other charset than UTF-8 is said.
fn is_utf_8(value: Option<&HeaderValue>) -> bool {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').skip(1).filter_map(|parameter| parameter.split_once('=')).all(|(name, value)| {
        let value = value.trim().trim_matches('"');
        !name.trim().eq_ignore_ascii_case("charset")
            || ["utf-8", "utf8"].iter().any(|utf| value.eq_ignore_ascii_case(utf))
    })
}

/// Whether one of the offered types is wanted; without an `Accept` every type is.
fn accepts(headers: &HeaderMap, offered: &[&str]) -> bool {
    let mut any_range = false;
    for value in headers.get_all(ACCEPT) {
        // A header that is no text wants nothing that we could know.
        for range in value.to_str().unwrap_or_default().split(',') {
            any_range |= !range.trim().is_empty();
            if wants(range, offered) {
                return true;
            }
        }
    }
    !any_range
}

fn wants(range: &str, offered: &[&str]) -> bool {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
    let refused = parts.any(|parameter| {
        parameter.split_once('=').is_some_and(|(name, value)| {
            name.trim().eq_ignore_ascii_case("q") && value.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0)
        })
    });
    let matches = |offer: &&str| {
        let group = offer.split('/').next().unwrap_or_default();
        kind == "*/*" || kind == **offer || kind.strip_suffix("/*") == Some(group)
    };
    !refused && offered.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes::ROUTES;
    use http::HeaderName;
    use http_body_util::Full;

    fn head(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn route(op: Op) -> &'static Route {
        ROUTES.iter().find(|route| route.op == op).unwrap()
    }

    // A1.5
    #[test]
    fn only_a_sane_request_id_is_repeated() {
        for (given, sane) in
            [("abc-1.2_Z", true), (&*"a".repeat(64), true), (&*"a".repeat(65), false), ("a b", false), ("", false)]
        {
            assert_eq!(request_id(&head(&[("x-request-id", given)])).is_some(), sane, "{given}");
        }
        assert_eq!(request_id(&head(&[])), None);
    }

    // A1.11
    #[test]
    fn a_request_is_for_one_host() {
        let hosts = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, HeaderValue::from_static(host));
            }
            headers
        };
        let (one, two) = (Version::HTTP_11, Version::HTTP_2);
        for (version, given, good) in [
            (one, &["hub"][..], true),
            (one, &["hub.example.com:8080"], true),
            (one, &["127.0.0.1:8080"], true),
            (one, &["[::1]:8080"], true),
            (one, &[""], true),
            (one, &[], false),
            (one, &["hub", "hub"], false),
            (one, &["a b"], false),
            (one, &["hub/path"], false),
            (one, &["user@hub"], false),
            (Version::HTTP_10, &[], true),
            (Version::HTTP_10, &["a", "b"], false),
            (two, &[], true),
            (two, &["hub"], true),
            (two, &["a", "b"], false),
        ] {
            let status = check_host(version, &hosts(given)).err().map(|problem| problem.status());
            assert_eq!(status, (!good).then_some(400), "{version:?} {given:?}");
        }
    }

    // A1.11
    #[test]
    fn media_types_are_checked_before_the_body_is_read() {
        let full = Full::new(Bytes::from_static(b"{}"));
        for (op, headers, code) in [
            (Op::CreateSubscription, head(&[("content-type", "application/json; charset=utf-8")]), None),
            (Op::CreateSubscription, head(&[("content-type", "Application/JSON")]), None),
            (Op::CreateSubscription, head(&[("content-type", "application/json; Charset=\"UTF-8\"")]), None),
            (Op::CreateSubscription, head(&[("content-type", "application/json;v=1;charset=utf-8")]), None),
            (Op::CreateSubscription, head(&[("content-type", "application/json; charset=iso-8859-1")]), Some(415)),
            (Op::CreateSubscription, head(&[("content-type", "application/json;charset=\"utf-16\"")]), Some(415)),
            (
                Op::PatchSubscription,
                head(&[("content-type", "application/merge-patch+json; charset=latin1")]),
                Some(415),
            ),
            (Op::IngestEvent, head(&[("content-type", "text/csv; charset=iso-8859-1")]), None),
            (Op::CreateSubscription, head(&[]), Some(415)),
            (Op::CreateSubscription, head(&[("content-type", "application/x-www-form-urlencoded")]), Some(415)),
            (Op::CreateSubscription, head(&[("content-type", "application/jsonx")]), Some(415)),
            (
                Op::CreateSubscription,
                head(&[("content-type", "application/json"), ("content-encoding", "gzip")]),
                Some(415),
            ),
            (Op::PatchSubscription, head(&[("content-type", "application/merge-patch+json")]), None),
            (Op::PatchSubscription, head(&[("content-type", "application/json")]), None),
            (Op::PatchSubscription, head(&[("content-type", "application/json-patch+json")]), Some(415)),
            (Op::IngestEvent, head(&[("content-type", "text/csv")]), None),
            (Op::IngestEvent, head(&[("content-type", "application/cloudevents+json")]), Some(415)),
            (Op::IngestEvent, head(&[("content-type", "application/cloudevents-batch+json")]), Some(415)),
            (Op::ListPoison, head(&[("content-type", "text/plain")]), None),
            (Op::ListPoison, head(&[("accept", "text/html, */*;q=0.1")]), None),
            (Op::ListPoison, head(&[("accept", "application/*")]), None),
            (Op::ListPoison, head(&[("accept", "application/problem+json")]), None),
            (Op::ListPoison, head(&[("accept", "")]), None),
            (Op::ListPoison, head(&[("accept", "text/html")]), Some(406)),
            (Op::ListPoison, head(&[("accept", "application/json;q=0")]), Some(406)),
            (Op::Metrics, head(&[("accept", "text/plain")]), None),
            (Op::Metrics, head(&[("accept", "application/json")]), Some(406)),
        ] {
            let result = check_types(route(op), &headers, &full);
            assert_eq!(result.err().map(|problem| problem.status()), code, "{op:?} {headers:?}");
        }
    }

    // A1.9
    #[tokio::test]
    async fn bodies_are_bounded_and_due() {
        let read = |bytes: usize, told: Option<&str>| {
            let headers = told.map_or_else(HeaderMap::new, |told| head(&[("content-length", told)]));
            let body = Full::new(Bytes::from(vec![b' '; bytes]));
            async move { read_body(route(Op::CreateSubscription), &headers, body, 10, Duration::from_secs(30)).await }
        };
        assert_eq!(read(10, None).await.unwrap().len(), 10);
        assert_eq!(read(11, None).await.unwrap_err().status(), 413);
        assert_eq!(read(1, Some("11")).await.unwrap_err().status(), 413);
        let hanging = Hanging;
        let late =
            read_body(route(Op::CreateSubscription), &HeaderMap::new(), hanging, 10, Duration::from_millis(10)).await;
        assert_eq!(late.unwrap_err().status(), 408);
    }

    /// A body that never comes.
    struct Hanging;

    impl Body for Hanging {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, std::io::Error>>> {
            std::task::Poll::Pending
        }
    }
}
