//! `streaming-hub config`: the effective settings, and the common way from what was typed to what is meant.

use super::output::Output;
use super::{Ended, Failure};
use crate::config::{self, Settings, Strange, Surroundings, Typed};

/// Judges what was typed, in the surroundings of this process.
pub(super) fn meant(typed: &mut Typed) -> Result<Settings, Failure> {
    Ok(config::mean(typed, &Surroundings::of_process())?)
}

/// Says once in the log which environment names mean nothing.
pub(super) fn warn_of_strange_names() {
    for strange in config::strange_names(&Surroundings::of_process()) {
        match strange {
            Strange::WithoutEffect(_) => tracing::info!("{strange}"),
            Strange::Unknown { .. } => tracing::warn!("{strange}"),
        }
    }
}

/// The same where the settings are wrong and nothing is logged yet: a misspelt name is often why.
pub(super) fn complain_of_strange_names() {
    for strange in config::strange_names(&Surroundings::of_process()) {
        if matches!(strange, Strange::Unknown { .. }) {
            Output::of_process().remark(&format!("note: {strange}"));
        }
    }
}

/// `streaming-hub config`
#[derive(clap::Args)]
pub(super) struct Config {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    typed: Typed,
}

impl Config {
    pub(super) fn run(mut self, output: &mut Output) -> Result<Ended, Failure> {
        let settings = meant(&mut self.typed);
        if self.json {
            output.json(&config::as_json(&self.typed))?;
        } else {
            output.raw(config::as_text(&self.typed).as_bytes())?;
        }
        for strange in config::strange_names(&Surroundings::of_process()) {
            output.remark(&format!("note: {strange}"));
        }
        settings.map(|_| Ended::Fine)
    }
}
