//! Requests as they come over the wire: paths, methods, types and sizes that are wrong, bytes that are no HTTP, and clients that
//! take their time.

use super::http_hub::{Hub, new_subscription, read, settings};
use http::Method;
use serde_json::json;
use std::time::Duration;
use streaming_hub::http::{Tenancy, serve};
use streaming_hub::model::api_key::Role;
use streaming_hub::model::limits::CONNECTIONS;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Sends bytes and reads until the hub closes, or answers nothing for a while.
#[expect(clippy::disallowed_methods, reason = "a test's client")]
async fn exchange(hub: &Hub, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    // A hub that has refused already may have closed its side.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let reading = async {
        let mut piece = [0; 4096];
        while let Ok(count) = stream.read(&mut piece).await {
            if count == 0 {
                break;
            }
            answer.extend_from_slice(&piece[..count]);
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    String::from_utf8_lossy(&answer).into_owned()
}

// A1.4, A1.11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_failure_is_a_problem() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    for (method, path) in
        [("GET", "/"), ("GET", "/v2/subscriptions"), ("POST", "/healthz/"), ("GET", "/v1/subscriptions/")]
    {
        hub.call(method, path, &key, None).await.is_problem(404, "not_found");
    }
    for (method, path, allow) in [
        ("PUT", "/v1/subscriptions", "POST, GET, HEAD"),
        ("TRACE", "/healthz", "GET, HEAD"),
        ("OPTIONS", "/admin/api-keys", "GET, POST, HEAD"),
    ] {
        let answer = hub.call(method, path, &key, None).await;
        answer.is_problem(405, "method_not_allowed");
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
    let post = |kind: &str, body: &str| {
        let request = hub.request("POST", "/v1/subscriptions").bearer_auth(&key);
        read(request.header("content-type", kind).body(body.to_owned()))
    };
    post("text/plain", "{}").await.is_problem(415, "unsupported_media_type");
    post("application/x-www-form-urlencoded", "a=b").await.is_problem(415, "unsupported_media_type");
    for bad in ["", "{", "{\"a\":1,\"a\":2}", "{} {}", "\u{feff}{}", "{\"a\":1e400}", &"[".repeat(100_000)] {
        post("application/json", bad).await.is_problem(400, "bad_request");
    }
    let large = format!("{{\"name\":\"{}\"}}", "x".repeat(256 << 10));
    post("application/json", &large).await.is_problem(413, "payload_too_large");
    let html = hub.request("GET", "/v1/subscriptions").bearer_auth(&key).header("accept", "text/html");
    read(html).await.is_problem(406, "not_acceptable");
    let zipped = hub.request("POST", "/v1/subscriptions").bearer_auth(&key).header("content-type", "application/json");
    read(zipped.header("content-encoding", "gzip").body("x")).await.is_problem(415, "unsupported_media_type");
    let long = format!("/v1/subscriptions?cursor={}", "a".repeat(9000));
    hub.call("GET", &long, &key, None).await.is_problem(414, "uri_too_long");
    let heavy = hub.request("GET", "/healthz").header("x-heavy", "a".repeat(33 << 10));
    read(heavy).await.is_problem(431, "headers_too_large");
}

// A1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_a_request_id() {
    let hub = Hub::multi().await;
    for path in ["/healthz", "/nowhere", "/v1/subscriptions"] {
        let sane = hub.call_with("GET", path, "", None, &[("x-request-id", "my-1.id_X")]).await;
        assert_eq!(sane.header("x-request-id"), "my-1.id_X", "{path}");
        let long = "a".repeat(65);
        for odd in ["a b", "<script>", &long] {
            let answer = hub.call_with("GET", path, "", None, &[("x-request-id", odd)]).await;
            assert_eq!(answer.header("x-request-id").len(), 36, "{path} {odd}: a new one");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_answers_without_a_body() {
    let hub = Hub::multi().await;
    let answer = exchange(&hub, b"HEAD /healthz HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("content-length: 18"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "{answer}");
}

// Request smuggling: what could be read in two ways is refused, or only its first half is believed and the connection closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ambiguous_requests_are_refused() {
    let hub = Hub::multi().await;
    let smuggled = "GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n";
    for head in [
        "content-length: 5\r\ncontent-length: 6",
        "content-length: +5",
        "content-length: -1",
        "content-length: 0x5",
        "transfer-encoding: chunked, identity",
        "transfer-encoding: gzip",
        " obs-fold: x",
        "bad name: x",
        "x: a\0b",
    ] {
        let request = format!("POST /v1/subscriptions HTTP/1.1\r\nhost: hub\r\n{head}\r\n\r\n{smuggled}");
        let answer = exchange(&hub, request.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{head}: {answer}");
        assert!(answer.is_empty() || answer.contains("application/problem+json"), "{head}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 0, "{head}: {answer}");
    }
    let both = "POST /v1/subscriptions HTTP/1.1\r\nhost: hub\r\ncontent-length: 40\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    let answer = exchange(&hub, format!("{both}{smuggled}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 0, "{answer}");
    for bytes in ["\0\0\0\0", "GET / HTTP/9.9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "GET /\r\n\r\n"] {
        let answer = exchange(&hub, bytes.as_bytes()).await;
        assert!(!answer.contains("HTTP/1.1 200"), "{bytes:?}: {answer}");
    }
    assert_eq!(hub.call("GET", "/healthz", "", None).await.status, 200, "the hub lives");
}

// A1.4: what hyper refuses by itself is a problem like any other, and the client gets to read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_request_is_a_problem_too() {
    let hub = Hub::multi().await;
    let many = "x: y\r\n".repeat(129);
    let (long, heavy, endless) = ("a".repeat(65_600), "a".repeat(70_000), "a".repeat(3 << 20));
    for (request, status, code) in [
        ("nonsense\r\n\r\n".to_owned(), 400, "bad_request"),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400, "bad_request"),
        ("GET / HTTP/1.1\r\nbad name: x\r\n\r\n".to_owned(), 400, "bad_request"),
        (format!("GET /{long} HTTP/1.1\r\nhost: hub\r\n\r\n"), 431, "headers_too_large"),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, "headers_too_large"),
        (format!("GET / HTTP/1.1\r\nx: {heavy}\r\n\r\n"), 431, "headers_too_large"),
        (format!("GET / HTTP/1.1\r\nx: {endless}"), 431, "headers_too_large"),
        // One that was answered, and nonsense behind it.
        ("GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\nnonsense\r\n\r\n".to_owned(), 400, "bad_request"),
    ] {
        let answer = exchange(&hub, request.as_bytes()).await;
        let told = answer.rfind("HTTP/1.1 ").map_or("", |at| &answer[at..]);
        let (head, body) = told.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{:.60}: {answer}", request));
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{:.60}: {head}", request);
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        assert_eq!(header("content-type: "), "application/problem+json", "{head}");
        assert_eq!(header("content-length: "), body.len().to_string(), "{head}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((body["code"].as_str(), body["status"].as_u64()), (Some(code), Some(status)), "{body}");
        assert_eq!(body["request_id"], header("x-request-id: "), "{body}");
    }
}

// A1.9: told to be too large is refused before anything of it has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_told_too_large_is_not_waited_for() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let head = format!(
        "POST /v1/subscriptions HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: 300000\r\nexpect: 100-continue\r\n\r\n"
    );
    let answer = exchange(&hub, head.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("payload_too_large"), "{answer}");
}

// A1.9: a connection at rest ends after 75 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test's client")]
async fn an_idle_connection_is_closed() {
    let hub = Hub::multi().await;
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n").await.unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.unwrap();
    assert!(answer[..count].starts_with(b"HTTP/1.1 200"));
    hub.clock.jump(76);
    let end = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut answer)).await.unwrap();
    assert_eq!(end.unwrap(), 0, "closed without a word");
}

// A1.9: a head that comes byte by byte never makes the connection idle, and ends it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test's client")]
async fn a_slow_head_is_cut_off() {
    let hub = Hub::multi().await;
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await.unwrap();
    for _ in 0..100 {
        let sent = stream.write_all(b"x").await;
        let heard = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut [0; 64])).await;
        if sent.is_err() || heard.is_ok() {
            return;
        }
        hub.clock.jump(5);
    }
    panic!("500 s for one head");
}

// TLS with HTTP/2 by ALPN, as a client of the world outside comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_calls_are_served_over_tls() {
    let hub = Hub::multi().await;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
    let der = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], der)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/healthz", listener.local_addr().unwrap().port());
    tokio::spawn(serve(hub.api.clone(), listener, Some(acceptor), hub.stop.clone()));
    let root = reqwest::Certificate::from_pem(certificate.pem().as_bytes()).unwrap();
    for (version, client) in [
        (http::Version::HTTP_2, reqwest::Client::builder()),
        (http::Version::HTTP_11, reqwest::Client::builder().http1_only()),
    ] {
        let client = client.no_proxy().tls_certs_only([root.clone()]).build().unwrap();
        let answer = client.get(&url).send().await.unwrap();
        assert_eq!((answer.version(), answer.status().as_u16()), (version, 200));
    }
}

// A panic is answered, counted, and ends nothing but its own call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_handler_is_a_500() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    *hub.prober.panics.lock().unwrap() = true;
    let path = format!("/v1/subscriptions/{id}/verify");
    let answer = hub.call("POST", &path, &key, None).await;
    answer.is_problem(500, "internal");
    assert!(!answer.text.contains("as the test wants it"));
    *hub.prober.panics.lock().unwrap() = false;
    assert_eq!(hub.call("POST", &path, &key, None).await.status, 200);
    assert!(hub.call("GET", "/metrics", "", None).await.text.contains("streaming_hub_http_panics_total 1"));
}

/// Both ends of each connection are in this process, and many machines give it 1024 descriptors at first.
fn many_files() {
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, files).unwrap();
}

// A1.9: a peer that takes all places loses those that rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "a test's client")]
async fn one_peer_does_not_keep_others_out() {
    many_files();
    let hub = Hub::multi().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(TcpStream::connect(hub.address).await.unwrap());
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(hub.call("GET", path, "", None).await.status, 200, "{path}");
    }
    let mut served = held.pop().unwrap();
    served.write_all(b"GET /healthz HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    served.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let ended = tokio::time::timeout(Duration::from_secs(20), held[0].read(&mut [0; 8])).await.unwrap();
    assert!(matches!(ended, Ok(0) | Err(_)), "who came first rested longest: {ended:?}");
}

// A1.9: beyond the limit everybody is told to come back, and those who are served stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_over_the_limit_are_refused_with_words() {
    many_files();
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let closed = hub.prober.gate.lock().await;
    let verify = format!(
        "POST /v1/subscriptions/{id}/verify HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {key}\r\ncontent-length: 0\r\n\
         connection: close\r\n\r\n"
    );
    let mut held = Vec::new();
    let first = loop {
        let mut stream = begun(&hub, &verify).await;
        let mut first = [0; 1];
        // A served one waits for the probe; a refused one is told so.
        let wait = if held.len() < CONNECTIONS - 8 { Duration::ZERO } else { Duration::from_millis(200) };
        match tokio::time::timeout(wait, stream.read_exact(&mut first)).await {
            Err(_) => held.push(stream),
            Ok(read) => break read.map(|_| stream).unwrap(),
        }
        assert!(held.len() < CONNECTIONS + 8, "nobody was refused");
    };
    let mut refused = vec![first];
    for _ in 0..400 {
        refused.push(begun(&hub, "GET /healthz HTTP/1.1\r\nhost: hub\r\n\r\n").await);
    }
    for mut stream in refused {
        let mut said = String::new();
        stream.read_to_string(&mut said).await.unwrap();
        assert!(said.contains("503 Service Unavailable") && said.contains("overloaded"), "{said}");
        let id = said.split("x-request-id: ").nth(1).unwrap().split("\r\n").next().unwrap();
        assert!(id.len() == 36 && said.contains(&format!("\"request_id\":\"{id}\"")), "{said}");
        assert!(said.contains("retry-after: 1"), "{said}");
    }
    drop(closed);
    let mut answer = String::new();
    held[0].read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held);
    while read_status(&hub).await != Some(200) {}
}

#[expect(clippy::disallowed_methods, reason = "a test's client")]
async fn begun(hub: &Hub, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

// A1.11: RFC 9112, section 3.2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_for_one_host() {
    let hub = Hub::multi().await;
    for head in ["", "host: a\r\nhost: b\r\n", "host: a b\r\n"] {
        let answer = exchange(&hub, format!("GET /healthz HTTP/1.1\r\n{head}\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("bad_request"), "{head}: {answer}");
    }
    let answer = exchange(&hub, b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
}

// A1.9: many clients read nothing before all is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_refused_body_does_not_take_the_answer_with_it() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let body = vec![b' '; 20 << 20];
    let head =
        "POST /v1/subscriptions HTTP/1.1\r\nhost: hub\r\ncontent-type: application/json\r\nconnection: close\r\n";
    for (more, status) in [
        (format!("authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n", body.len()), 413),
        (format!("authorization: Bearer {key}\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n", body.len()), 413),
        (format!("content-length: {}\r\n\r\n", body.len()), 401),
    ] {
        let mut stream = begun(&hub, &format!("{head}{more}")).await;
        stream.write_all(&body).await.unwrap();
        if more.contains("chunked") {
            stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{more}: {answer}");
    }
}

async fn read_status(hub: &Hub) -> Option<u16> {
    hub.request("GET", "/healthz").send().await.ok().map(|answer| answer.status().as_u16())
}

// C13.2: what has begun is answered, then the connection ends; nobody new is let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_lets_calls_finish() {
    let hub = Hub::multi().await;
    let key = hub.tenant("a").await;
    let id = hub.subscribe(&key, "erp").await["id"].as_str().unwrap().to_owned();
    let closed = hub.prober.gate.lock().await;
    let path = format!("/v1/subscriptions/{id}/verify");
    let begun = hub.call("POST", &path, &key, None);
    let stopping = async {
        hub.probes_begun(1).await;
        hub.stop.cancel();
        while read_status(&hub).await.is_some() {}
        drop(closed);
    };
    let (begun, ()) = tokio::join!(begun, stopping);
    assert_eq!((begun.status, &begun.body["verification_state"]), (200, &json!("active")), "{}", begun.text);
}

// HTTP/2 without TLS, by prior knowledge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_2_is_served_too() {
    let hub = Hub::multi().await;
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/v1/subscriptions", hub.address);
    let key = hub.key(Role::Tenant("a".to_owned())).await;
    let made =
        client.request(Method::POST, &url).bearer_auth(&key).json(&new_subscription("erp")).send().await.unwrap();
    assert_eq!((made.version(), made.status().as_u16()), (http::Version::HTTP_2, 201));
    assert_eq!(client.get(&url).send().await.unwrap().status().as_u16(), 401);
}

// Secrets, keys and the store's own words are in no answer that did not make them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_answer_only_shows_a_secret() {
    let hub = Hub::start(settings(Tenancy::Multi)).await;
    let key = hub.tenant("a").await;
    let made = hub.subscribe(&key, "erp").await;
    let (id, secret) = (made["id"].as_str().unwrap(), made["signing_secret"].as_str().unwrap());
    let paths = ["", "/verify", "/pause", "/resume", "/test"].map(|rest| format!("/v1/subscriptions/{id}{rest}"));
    for path in paths {
        let method = if path.ends_with(id) { "PATCH" } else { "POST" };
        let answer = hub.call(method, &path, &key, Some(&json!({}))).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.text.contains(secret), "{path}");
    }
    for path in ["/v1/subscriptions", "/admin/api-keys", "/metrics", "/openapi.json"] {
        let caller = if path.starts_with("/admin") { &hub.operator } else { &key };
        let answer = hub.call("GET", path, caller, None).await;
        assert!(!answer.text.contains(secret) && !answer.text.contains(key.as_str()), "{path}");
    }
}
