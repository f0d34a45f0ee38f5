//! `streaming-hub keys`: API keys, made, listed and revoked through the hub's own API.

use super::hub::{Hub, text};
use super::output::Output;
use super::reach;
use super::{Ended, Failure};
use crate::config::Typed;
use crate::time::{Clock as _, SystemClock, Timestamp};
use http::Method;
use serde_json::{Value, json};

/// What can be done with keys.
#[derive(clap::Subcommand)]
pub(super) enum Keys {
    /// Make a key; it is printed this once
    Create(Create),
    /// List keys, newest first, the revoked ones too; never the keys themselves
    List(List),
    /// Revoke a key
    Revoke(Revoke),
}

/// A new key.
#[derive(clap::Args)]
pub(super) struct Create {
    /// What it may do
    #[arg(long, value_parser = ["tenant", "operator", "ingest", "viewer"])]
    role: String,
    /// A name for people
    #[arg(long, default_value = "made by streaming-hub keys")]
    name: String,
    /// The tenant of a tenant key; of an ingest key the tenants that it may write (more than once; none: all)
    #[arg(long = "tenant", value_name = "TENANT")]
    tenants: Vec<String>,
    /// The sources that an ingest key may speak for (more than once; none: all)
    #[arg(long = "source", value_name = "SOURCE")]
    sources: Vec<String>,
    /// Not valid from then on: a duration like 90d, or a time like 2027-01-31T00:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = expiry)]
    expires: Option<Timestamp>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    typed: Box<Typed>,
}

/// All keys.
#[derive(clap::Args)]
pub(super) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    typed: Box<Typed>,
}

/// One key to revoke.
#[derive(clap::Args)]
pub(super) struct Revoke {
    /// Its id, key_…
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    typed: Box<Typed>,
}

/// Fields of the API and the flags that give them.
const FLAGS: [(&str, &str); 5] = [
    ("/tenant_id", "--tenant"),
    ("/tenants", "--tenant"),
    ("/sources", "--source"),
    ("/expires_at", "--expires"),
    ("/name", "--name"),
];

fn expiry(text: &str) -> Result<Timestamp, String> {
    let later = |after| SystemClock::new().wall().plus(after);
    humantime::parse_duration(text)
        .ok()
        .map(later)
        .or_else(|| Timestamp::parse(text))
        .ok_or_else(|| "a duration like 90d, or a time like 2027-01-31T00:00:00Z".to_owned())
}

impl Keys {
    pub(super) fn run(self, output: &mut Output) -> Result<Ended, Failure> {
        match self {
            Keys::Create(create) => create.run(output),
            Keys::List(list) => list.run(output),
            Keys::Revoke(revoke) => revoke.run(output),
        }
    }
}

impl Create {
    fn run(mut self, output: &mut Output) -> Result<Ended, Failure> {
        let mut body = json!({ "name": self.name, "role": self.role });
        match (self.role.as_str(), self.tenants.as_slice()) {
            ("tenant", [tenant]) => body["tenant_id"] = json!(tenant),
            // A single-tenant hub knows which.
            ("tenant", []) => {}
            ("tenant", _) => return Err(Failure::Usage("a tenant key is for one --tenant".to_owned())),
            ("ingest", tenants) => {
                body["tenants"] = json!(tenants);
                body["sources"] = json!(self.sources);
            }
            (_, []) => {}
            (role, _) => return Err(Failure::Usage(format!("a key of role {role} takes no --tenant"))),
        }
        if self.role != "ingest" && !self.sources.is_empty() {
            return Err(Failure::Usage(format!("a key of role {} takes no --source", self.role)));
        }
        if let Some(expires) = self.expires {
            body["expires_at"] = json!(expires);
        }
        let made = reach::with_hub(&mut self.typed, async |hub: &Hub| {
            let made = hub.call(Method::POST, "/admin/api-keys", None, Some(&body)).await?;
            made.done().map_err(|failure| failure.in_flags(&FLAGS))
        })?;
        if self.json {
            output.json(&made)?;
        } else {
            let key = text(&made, "key").ok_or(Failure::Odd("a new API key came without its text"))?;
            output.line(key)?;
            output.remark(&format!("{}: keep the key now, it is not shown again", text(&made, "id").unwrap_or("-")));
        }
        Ok(Ended::Fine)
    }
}

impl List {
    fn run(mut self, output: &mut Output) -> Result<Ended, Failure> {
        let keys = reach::with_hub(&mut self.typed, async |hub: &Hub| hub.list("/admin/api-keys", None).await)?;
        if self.json {
            output.json(&Value::Array(keys))?;
            return Ok(Ended::Fine);
        }
        for key in &keys {
            let shown = |name| text(key, name).unwrap_or("-");
            let state = match (text(key, "revoked_at"), text(key, "expires_at")) {
                (Some(at), _) => format!("revoked {at}"),
                (None, Some(at)) => format!("until {at}"),
                (None, None) => "valid".to_owned(),
            };
            let tenant = shown("tenant_id");
            let line = format!("{:<40} {:<8} {tenant:<24} {state:<32} {}", shown("id"), shown("role"), shown("name"));
            output.line(&line)?;
        }
        Ok(Ended::Fine)
    }
}

impl Revoke {
    fn run(mut self, output: &mut Output) -> Result<Ended, Failure> {
        let path = format!("/admin/api-keys/{}", self.id);
        if !self.id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
            return Err(Failure::Usage(format!("{:?} is no id of a key; they look like key_0198…", self.id)));
        }
        reach::with_hub(&mut self.typed, async |hub: &Hub| hub.call(Method::DELETE, &path, None, None).await?.done())?;
        if self.json {
            output.json(&json!({ "revoked": self.id }))?;
        } else {
            output.line(&format!("{} is revoked", self.id))?;
        }
        Ok(Ended::Fine)
    }
}
