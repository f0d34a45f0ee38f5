//! An answer before it goes on the wire: status, headers, and a body that is whole.
//!
//! Invariant: every body is bounded by a page or an object, so an answer is never streamed.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

/// What a handler answers.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: StatusCode,
    /// Its headers, without the request id.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
}

impl Answer {
    /// A JSON body.
    pub(crate) fn json(status: StatusCode, shown: &impl Serialize) -> Self {
        match serde_json::to_vec(shown) {
            Ok(body) => Self::of(status, HeaderValue::from_static("application/json"), body.into()),
            // Our own types always serialise: their maps have text keys.
            Err(_) => Self::empty(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// 200 with a JSON body.
    pub(crate) fn ok(shown: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, shown)
    }

    /// A body of that type.
    pub(crate) fn of(status: StatusCode, content_type: HeaderValue, body: Bytes) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, content_type);
        // Answers hold what a tenant may see, some of them a secret: no cache may keep them.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { status, headers, body }
    }

    /// No body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// The same with the `ETag` of that revision (A1.8).
    pub(crate) fn with_revision(mut self, revision: u64) -> Self {
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{revision}\"")) {
            self.headers.insert(ETAG, tag);
        }
        self
    }

    /// The same with another header.
    pub(crate) fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a header.
    pub(crate) fn set(&mut self, name: HeaderName, value: HeaderValue) {
        self.headers.insert(name, value);
    }

    /// As it goes on the wire.
    pub(crate) fn into_response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}
