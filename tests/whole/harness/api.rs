//! A client of the hub's API: over the command socket, where the same user is operator, and over TCP for what is open to everybody.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// The longest that a call may take.
pub(crate) const CALL: Duration = Duration::from_secs(30);

/// Where a hub's API is.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    socket: PathBuf,
    port: u16,
}

/// A subscription that was made.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    /// Its id.
    pub(crate) id: String,
    /// Its signing secret.
    pub(crate) secret: String,
}

impl Api {
    /// At that socket and that port of loopback.
    pub(crate) fn new(socket: PathBuf, port: u16) -> Self {
        Self { socket, port }
    }

    /// A call as operator; its status and its JSON.
    pub(crate) fn call(&self, method: &str, path: &str, tenant: Option<&str>, body: Option<&Value>) -> (u16, Value) {
        let tenant = tenant.map(|tenant| format!("x-tenant-id: {tenant}\r\n")).unwrap_or_default();
        let body = body.map(Value::to_string);
        let typed = body.as_ref().map_or("", |_| "content-type: application/json\r\n");
        let body = body.unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n{tenant}{typed}content-length: {}\r\n\r\n",
            body.len()
        );
        let stream = UnixStream::connect(&self.socket).unwrap_or_else(|why| panic!("{}: {why}", self.socket.display()));
        stream.set_read_timeout(Some(CALL)).unwrap();
        let (status, answer) = exchange(stream, &format!("{head}{body}")).unwrap_or_else(|why| panic!("{path}: {why}"));
        (status, serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    /// A call that must succeed.
    pub(crate) fn done(&self, method: &str, path: &str, tenant: Option<&str>, body: Option<&Value>) -> Value {
        let (status, answer) = self.call(method, path, tenant, body);
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Makes a subscription of that tenant to everything, proven at once. `more` is laid over what is asked.
    pub(crate) fn subscribe(&self, tenant: &str, url: &str, more: &Value) -> Made {
        let mut asked = json!({
            "name": tenant, "event_types": ["*"], "sink": {"kind": "webhook", "url": url}, "verify": true,
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            asked[name] = value.clone();
        }
        let made = self.done("POST", "/v1/subscriptions", Some(tenant), Some(&asked));
        assert_eq!(made["verification_state"], "active", "{made}");
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("no {name} in {made}")).to_owned();
        Made { id: text("id"), secret: text("signing_secret") }
    }

    /// Everything in a list, newest first.
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        let mut items = Vec::new();
        let mut next = format!("{path}?limit=200");
        loop {
            let page = self.done("GET", &next, None, None);
            items.extend(page["items"].as_array().unwrap_or_else(|| panic!("no items in {page}")).iter().cloned());
            let Some(cursor) = page["next_cursor"].as_str() else { return items };
            next = format!("{path}?limit=200&cursor={cursor}");
        }
    }

    /// The answer of `/readyz`, where there is one.
    pub(crate) fn readyz(&self) -> Option<(u16, Value)> {
        let (status, answer) = self.open("/readyz")?;
        Some((status, serde_json::from_slice(&answer).unwrap_or(Value::Null)))
    }

    /// The sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.metrics();
        let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        text.lines().filter(of_it).map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// All metrics as text.
    pub(crate) fn metrics(&self) -> String {
        let (status, text) = self.open("/metrics").expect("the hub answers");
        assert_eq!(status, 200);
        String::from_utf8(text).unwrap()
    }

    /// The answer of `/healthz`, where there is one.
    pub(crate) fn is_alive(&self) -> bool {
        self.open("/healthz").is_some_and(|(status, _)| status == 200)
    }

    /// A whole request over TCP, and the answer's status and body.
    pub(crate) fn raw(&self, request: &str, within: Duration) -> std::io::Result<(u16, Vec<u8>)> {
        let stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(within))?;
        exchange(stream, request)
    }

    fn open(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        self.raw(&format!("GET {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n\r\n"), CALL).ok()
    }
}

fn exchange(mut stream: impl Read + Write, request: &str) -> std::io::Result<(u16, Vec<u8>)> {
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let odd = || std::io::Error::new(std::io::ErrorKind::InvalidData, String::from_utf8_lossy(&answer).into_owned());
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or_else(odd)?;
    let status = answer.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok()).ok_or_else(odd)?;
    Ok((status, answer.split_off(end + 4)))
}
