//! `streaming-hub explain`: the daemon's own rules on lines of JSON, without a daemon.

use super::lines::each_line;
use super::output::Output;
use super::settings::meant;
use super::{Ended, Failure};
use crate::config::Typed;
use crate::rules::explain::{explain_destination, explain_record};
use std::path::PathBuf;

/// What can be explained.
#[derive(clap::Subcommand)]
pub(super) enum Explain {
    /// Which verdict a record gets: JSON lines {"name","topic","headers":[[name,text]],"value"} in, one line {"name","verdict","reason","schema_major"} out for each
    Record(Lines),
    /// Whether a destination may be connected to: JSON lines {"kind","input"} in, one line with "verdict" and "rule" out for each
    Destination {
        /// The tenant that wants it
        #[arg(long, default_value = "default")]
        tenant: String,
        #[command(flatten)]
        lines: Lines,
    },
}

/// Lines to explain, under the settings of the hub.
#[derive(clap::Args)]
pub(super) struct Lines {
    /// Files of JSON lines; none, or -, reads standard input
    files: Vec<PathBuf>,
    #[command(flatten)]
    typed: Box<Typed>,
}

impl Explain {
    pub(super) fn run(self, output: &mut Output) -> Result<Ended, Failure> {
        match self {
            Explain::Record(mut lines) => {
                let settings = meant(&mut lines.typed)?;
                lines.each(output, |line| {
                    explain_record(line, &settings.records, &settings.topic_prefix).map_err(|error| error.to_string())
                })
            }
            Explain::Destination { tenant, mut lines } => {
                let policy = meant(&mut lines.typed)?.sinks.policy;
                lines
                    .each(output, |line| explain_destination(line, &policy, &tenant).map_err(|error| error.to_string()))
            }
        }
    }
}

impl Lines {
    fn each(self, output: &mut Output, explain: impl Fn(&str) -> Result<String, String>) -> Result<Ended, Failure> {
        let mut ended = Ended::Fine;
        each_line(&self.files, |place, line| match explain(line) {
            Ok(explained) => output.line(&explained),
            // One line that cannot be read hides none of the others.
            Err(error) => {
                output.complain(&format!("{place}: {error}"));
                ended = Ended::Failed;
                Ok(())
            }
        })?;
        Ok(ended)
    }
}
