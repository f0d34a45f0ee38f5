//! `streaming-hub send`: records of JSON lines to a hub's HTTP ingest, one after the other, each with its verdict.

use super::hub::{Hub, text};
use super::lines::each_line;
use super::output::Output;
use super::{Ended, Failure, serve};
use crate::rules::explain::read_record;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Records to send.
#[derive(clap::Args)]
pub(super) struct Send {
    /// Files of JSON lines {"name","headers":[[name,text]],"value"}; none, or -, reads standard input
    files: Vec<PathBuf>,
    /// The hub
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A key of role ingest
    #[arg(long, env = "HUB_API_KEY", hide_env_values = true)]
    key: String,
}

impl Send {
    pub(super) fn run(self, output: &mut Output) -> Result<Ended, Failure> {
        let hub = Hub::at_url(&self.url, Some(self.key))?;
        let runtime = serve::runtime()?;
        let mut ended = Ended::Fine;
        each_line(&self.files, |place, line| {
            let record = match read_record(line) {
                Ok(record) => record,
                Err(error) => {
                    output.complain(&format!("{place}: {error}"));
                    ended = Ended::Failed;
                    return Ok(());
                }
            };
            let answered = runtime.block_on(hub.ingest(&record))?;
            let verdict = match answered.status {
                202 => text(&answered.body, "verdict").unwrap_or("accept"),
                422 => "quarantine",
                _ => return Err(answered.failed()),
            };
            if answered.status == 422 && ended == Ended::Fine {
                ended = Ended::Found;
            }
            output.json(&json!({
                "name": record.name,
                "verdict": verdict,
                "reason": if answered.status == 422 { answered.body.get("code").cloned() } else { None },
                "seq": answered.body.get("seq"),
                "duplicate": answered.body.get("duplicate").unwrap_or(&Value::Bool(false)),
            }))
        })?;
        Ok(ended)
    }
}
