//! The command line: what may be typed, and where it goes. Every command ends with one of the exit codes of [`Ended`].

mod explain;
mod logging;
mod output;
mod serve;
mod settings;

use crate::config::{Problems, Typed};
use clap::{CommandFactory as _, Parser, Subcommand};
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;

/// Runs what was typed, and says with which code the process ends.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // clap prints help to stdout and mistakes to stderr; where neither can be written, nobody is left to be told.
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Ended::Usage.into() } else { Ended::Fine.into() };
        }
    };
    let mut output = Output::of_process();
    match cli.command.run(&mut output) {
        Ok(ended) => ended.into(),
        // Like `| head`: whoever read the result has seen enough.
        Err(Failure::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => Ended::Failed.into(),
        Err(failure) => {
            output.complain(&failure.to_string());
            failure.ended().into()
        }
    }
}

/// Streaming Hub brings business events from Kafka to whoever subscribed, as signed webhooks.
#[derive(Parser)]
#[command(name = "streaming-hub", version, arg_required_else_help = true, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the hub
    Serve(Box<Typed>),
    /// Say which verdict a record would get, and why
    #[command(subcommand)]
    Explain(explain::Explain),
    /// Print the effective settings, where each came from, secrets masked
    Config(Box<settings::Config>),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    fn run(self, output: &mut Output) -> Result<Ended, Failure> {
        match self {
            Command::Serve(typed) => serve::run(*typed),
            Command::Explain(explain) => explain.run(output),
            Command::Config(config) => config.run(output),
            Command::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Cli::command(), "streaming-hub", &mut script);
                output.raw(&script)?;
                Ok(Ended::Fine)
            }
        }
    }
}

/// How a command ended: the exit codes that scripts may rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// 0
    Fine,
    /// 1
    Failed,
    /// 2: bad settings or usage.
    Usage,
    /// 78: a newer program wrote the store.
    NewerStore,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        ExitCode::from(match ended {
            Ended::Fine => 0,
            Ended::Failed => 1,
            Ended::Usage => 2,
            Ended::NewerStore => 78,
        })
    }
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// Wrong settings, all of them.
    #[error("{0}")]
    Settings(#[from] Problems),
    /// The daemon could not start, or did not end well.
    #[error("{0}")]
    Daemon(#[from] crate::daemon::DaemonError),
    /// A file or a stream.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Failure {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    fn ended(&self) -> Ended {
        match self {
            Failure::Settings(_) => Ended::Usage,
            Failure::Daemon(error) if error.is_newer_store() => Ended::NewerStore,
            Failure::Daemon(_) | Failure::Io { .. } => Ended::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
    }
}
