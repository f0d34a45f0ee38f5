//! A running hub's API, as a tenant with its keys calls it.

use crate::command::{Serving, hub};
use serde_json::{Value, json};
use std::path::Path;

/// The API of a single-tenant hub whose store is in a folder.
pub(crate) struct Api {
    client: reqwest::Client,
    url: String,
    tenant: String,
    ingest: String,
}

/// Whether a probe's answer must repeat the challenge (C4.7).
pub(crate) enum Echo {
    Wanted,
    Waived,
}

impl Api {
    /// With keys made over the command socket.
    pub(crate) fn of(running: &Serving, folder: &Path) -> Self {
        // The client wants a TLS provider even for plain HTTP; whoever comes second is refused, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let key = |role| {
            let made = hub(&["keys", "create", "--role", role, "--data-dir", folder.to_str().unwrap()]).end();
            assert_eq!(made.code, Some(0), "{}", made.stderr);
            made.stdout.trim().to_owned()
        };
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { client, url: running.url(), tenant: key("tenant"), ingest: key("ingest") }
    }

    /// The key of a producer.
    pub(crate) fn ingest_key(&self) -> &str {
        &self.ingest
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        let answer = self.client.get(format!("{}{path}", self.url)).bearer_auth(&self.tenant).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.url)).bearer_auth(&self.tenant).json(body);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// What may be an event, with the key for that.
    pub(crate) async fn ingest(&self, body: &Value) -> Value {
        let request = self.client.post(format!("{}/ingest/events", self.url)).bearer_auth(&self.ingest).json(body);
        request.send().await.unwrap().json().await.unwrap()
    }

    /// A subscription to everything, not proven yet: its id and secret.
    pub(crate) async fn subscribe(&self, url: &str, echo: Echo) -> (String, String) {
        let sink = json!({ "kind": "webhook", "url": url });
        let echo = matches!(echo, Echo::Wanted);
        let body = json!({ "name": "all", "event_types": ["*"], "sink": sink, "verification_echo": echo });
        let made = self.post("/v1/subscriptions", &body).await;
        let text = |name: &str| made[name].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        (text("id"), text("signing_secret"))
    }

    /// Probes it: what the hub answers.
    pub(crate) async fn verify(&self, id: &str) -> Value {
        self.post(&format!("/v1/subscriptions/{id}/verify"), &json!({})).await
    }

    /// Sends the first of the given records, which is well formed, of tenant `t-abc`.
    pub(crate) fn send_one(&self) {
        let cases = format!("{}/tests/cases/records.jsonl", env!("CARGO_MANIFEST_DIR"));
        let cases = std::fs::read_to_string(cases).unwrap();
        let first = cases.lines().next().unwrap();
        let sent = hub(&["send", "--url", &self.url, "--key", &self.ingest]).input(first).end();
        assert_eq!(sent.code, Some(0), "{}{}", sent.stdout, sent.stderr);
    }
}
