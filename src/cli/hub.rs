//! A hub as its clients see it: over `DATA_DIR/hub.sock` (C13.5), where the same user is operator, or over TCP with a key.

use super::Failure;
use crate::rules::explain::LineRecord;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A hub that can be called.
#[derive(Debug, Clone)]
pub(super) struct Hub {
    client: reqwest::Client,
    base: String,
    key: Option<String>,
}

/// What the hub answered.
#[derive(Debug)]
pub(super) struct Answered {
    /// HTTP status.
    pub(super) status: u16,
    /// Its JSON; null where there was none.
    pub(super) body: Value,
}

const CALL_TIMEOUT: Duration = Duration::from_secs(90);

impl Hub {
    /// Over the command socket; whether a hub listens there shows at the first call.
    pub(super) fn at_socket(path: &Path) -> Result<Self, Failure> {
        let client = builder().unix_socket(path.to_owned()).build().map_err(cannot)?;
        Ok(Self { client, base: "http://hub".to_owned(), key: None })
    }

    /// Over TCP, with a key.
    pub(super) fn at_url(url: &str, key: Option<String>) -> Result<Self, Failure> {
        let parsed = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if parsed.is_none() {
            return Err(Failure::Usage(format!(
                "{url:?} is no address of a hub; they look like http://127.0.0.1:8080"
            )));
        }
        let client = builder().build().map_err(cannot)?;
        Ok(Self { client, base: url.trim_end_matches('/').to_owned(), key })
    }

    /// Makes a call; `tenant` is named where the call is about one.
    pub(super) async fn call(
        &self,
        method: http::Method,
        path: &str,
        tenant: Option<&str>,
        body: Option<&Value>,
    ) -> Result<Answered, Failure> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        if let Some(tenant) = tenant {
            request = request.header("x-tenant-id", tenant);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        self.send(request).await
    }

    /// All items of a list, page after page.
    pub(super) async fn list(&self, path: &str, tenant: Option<&str>) -> Result<Vec<Value>, Failure> {
        let mut items = Vec::new();
        let mut page_path = format!("{path}?limit=200");
        loop {
            let mut page = self.call(http::Method::GET, &page_path, tenant, None).await?.done()?;
            match page.get_mut("items").map(Value::take) {
                Some(Value::Array(page)) => items.extend(page),
                Some(_) | None => return Err(Failure::Odd("a list came without items")),
            }
            let Some(cursor) = text(&page, "next_cursor") else { return Ok(items) };
            page_path = format!("{path}?limit=200&cursor={cursor}");
        }
    }

    /// Sends one record to HTTP ingest, in binary mode of the CloudEvents HTTP binding (C3.6).
    pub(super) async fn ingest(&self, line: &LineRecord) -> Result<Answered, Failure> {
        let record = &line.record;
        let mut headers = http::HeaderMap::new();
        for (name, value) in &record.headers {
            // A null header is an absent one (C2.6), and HTTP has no other way to write it.
            let Some(value) = value else { continue };
            // The content type has its own place in HTTP.
            let name: &[u8] = if name.eq_ignore_ascii_case(b"ce-datacontenttype") { b"content-type" } else { name };
            let name = http::HeaderName::from_bytes(name).map_err(|_| not_http(line))?;
            let value = http::HeaderValue::from_str(&percent_encoded(value)).map_err(|_| not_http(line))?;
            headers.append(name, value);
        }
        let request = self.client.post(format!("{}/ingest/events", self.base));
        self.send(request.headers(headers).body(record.body.clone())).await
    }

    async fn send(&self, mut request: reqwest::RequestBuilder) -> Result<Answered, Failure> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let answer = request.send().await.map_err(cannot)?;
        let status = answer.status().as_u16();
        let bytes = answer.bytes().await.map_err(cannot)?;
        Ok(Answered { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
    }
}

impl Answered {
    /// The answer's JSON, where the hub did what it was asked.
    pub(super) fn done(self) -> Result<Value, Failure> {
        if (200..300).contains(&self.status) { Ok(self.body) } else { Err(self.failed()) }
    }

    /// What went wrong, as the hub says it.
    pub(super) fn failed(&self) -> Failure {
        let errors = self.body.get("errors").and_then(Value::as_array).into_iter().flatten();
        let one =
            |error| format!("{}: {}", text(error, "pointer").unwrap_or("/"), text(error, "detail").unwrap_or("wrong"));
        let errors: Vec<String> = errors.map(one).collect();
        let said = if errors.is_empty() {
            text(&self.body, "detail").or(text(&self.body, "title")).unwrap_or("no reason given").to_owned()
        } else {
            errors.join("; ")
        };
        Failure::Refused { status: self.status, code: text(&self.body, "code").unwrap_or("unknown").to_owned(), said }
    }
}

/// A text of a JSON object.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name).and_then(Value::as_str)
}

fn builder() -> reqwest::ClientBuilder {
    // A proxy of the environment must never see keys and events.
    reqwest::Client::builder().no_proxy().timeout(CALL_TIMEOUT)
}

fn cannot(error: reqwest::Error) -> Failure {
    Failure::Unreachable(error)
}

fn not_http(line: &LineRecord) -> Failure {
    Failure::NotHttp(line.name.clone().unwrap_or_else(|| "the record".to_owned()))
}

// Of the CloudEvents HTTP binding: space, double quote, percent, and all that is not printable ASCII.
fn percent_encoded(value: &[u8]) -> String {
    value.iter().fold(String::with_capacity(value.len()), |mut text, byte| {
        match byte {
            b'"' | b'%' => text.push_str(&format!("%{byte:02X}")),
            0x21..=0x7e => text.push(char::from(*byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // C3.6
    #[test]
    fn header_values_are_percent_encoded() {
        for (value, text) in [
            (&b"contrato/7"[..], "contrato/7"),
            (b"a b\"c%d", "a%20b%22c%25d"),
            ("São".as_bytes(), "S%C3%A3o"),
            (b"\xff\n", "%FF%0A"),
        ] {
            assert_eq!(percent_encoded(value), text);
        }
    }
}
