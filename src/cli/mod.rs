//! The command line: what may be typed, and where it goes. Every command ends with one of the exit codes of `Ended`.

mod dev;
mod explain;
mod hub;
mod keys;
mod lines;
mod logging;
mod output;
mod reach;
mod send;
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
    match cli.command.run(Output::of_process()) {
        Ok(ended) => ended.into(),
        // Like `| head`: whoever read the result has seen enough.
        Err(Failure::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => Ended::Failed.into(),
        Err(failure) => {
            Output::of_process().complain(&failure.to_string());
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
    /// Run the hub with nothing installed: sample events, a receiver, and demo subscriptions
    Dev(Box<dev::Dev>),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Keys(keys::Keys),
    /// Send records of JSON lines to a hub's HTTP ingest
    Send(send::Send),
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
    fn run(self, mut output: Output) -> Result<Ended, Failure> {
        match self {
            Command::Serve(typed) => serve::run(*typed),
            Command::Dev(dev) => dev.run(output),
            Command::Keys(keys) => keys.run(&mut output),
            Command::Send(send) => send.run(&mut output),
            Command::Explain(explain) => explain.run(&mut output),
            Command::Config(config) => config.run(&mut output),
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
    /// 3: what was asked about is not as it should be.
    Found,
    /// 78: a newer program wrote the store.
    NewerStore,
}

impl From<Ended> for ExitCode {
    fn from(ended: Ended) -> Self {
        ExitCode::from(match ended {
            Ended::Fine => 0,
            Ended::Failed => 1,
            Ended::Usage => 2,
            Ended::Found => 3,
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
    /// Wrong use that clap cannot see.
    #[error("{0}")]
    Usage(String),
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
    /// A line of a file that is no record.
    #[error("{file}:{line}: {error}")]
    Line {
        /// Which file.
        file: String,
        /// Counted from 1.
        line: usize,
        /// Why.
        error: crate::rules::explain::ExplainError,
    },
    /// A hub has the store, and does not answer commands.
    #[error(
        "a hub runs on this store, but its command socket {0} does not answer; is it starting, or of another user?"
    )]
    NoSocket(String),
    /// No hub runs there, and none ever did.
    #[error(
        "no hub runs on {0}, and there is no store; start the hub first, or name its folder with --data-dir (an installed service's is /var/lib/streaming-hub)"
    )]
    NoStore(String),
    /// No hub runs, and its store is another user's.
    #[error("no hub runs on {store}, which belongs to user {owner}; start the hub first, or run this as that user")]
    OthersStore {
        /// Which.
        store: String,
        /// Whose.
        owner: u32,
    },
    /// No answer came from the hub.
    #[error("the hub cannot be reached: {}", causes(.0))]
    Unreachable(reqwest::Error),
    /// The hub refused.
    #[error("the hub answered {status} {code}: {said}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Its stable code.
        code: String,
        /// In words.
        said: String,
    },
    /// A header that HTTP cannot carry.
    #[error("{0} has a header that HTTP cannot carry")]
    NotHttp(String),
    /// A demo subscription did not become active.
    #[error("the demo subscription of {tenant} was not proven: {seen}")]
    NotProven {
        /// Whose.
        tenant: String,
        /// What the probe saw.
        seen: String,
    },
    /// Something that must not be.
    #[error("{0}")]
    Odd(&'static str),
}

// reqwest's own text leaves out what lies beneath.
fn causes(error: &reqwest::Error) -> String {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Failure {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The same in the words of the command line: whoever typed a flag knows nothing of the API's fields.
    fn in_flags(mut self, flags: &[(&str, &str)]) -> Self {
        if let Failure::Refused { said, .. } = &mut self {
            for (pointer, flag) in flags {
                *said = said.replace(&format!("{pointer}:"), &format!("{flag}:"));
            }
        }
        self
    }

    fn ended(&self) -> Ended {
        match self {
            Failure::Settings(_) | Failure::Usage(_) => Ended::Usage,
            Failure::Daemon(error) if error.is_newer_store() => Ended::NewerStore,
            Failure::Daemon(error) if error.is_setting() => Ended::Usage,
            Failure::Daemon(_)
            | Failure::Io { .. }
            | Failure::Line { .. }
            | Failure::NoSocket(_)
            | Failure::NoStore(_)
            | Failure::OthersStore { .. }
            | Failure::Unreachable(_)
            | Failure::Refused { .. }
            | Failure::NotHttp(_)
            | Failure::NotProven { .. }
            | Failure::Odd(_) => Ended::Failed,
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
