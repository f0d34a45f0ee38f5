//! Runs the program as a user would: arguments, environment and standard input in; output and exit code out.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// One run of the program.
pub(crate) struct Run {
    command: Command,
    input: String,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run with these arguments, in an environment that says nothing.
pub(crate) fn hub(args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streaming-hub"));
    command.args(args).env_clear();
    Run { command, input: String::new() }
}

impl Run {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    pub(crate) fn end(mut self) -> Ended {
        let mut child =
            self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // From another thread, since a program that answers while it reads could else wait for us for ever.
        let input = std::mem::take(&mut self.input);
        let writing = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        // A program that refuses its arguments does not read its input.
        let _ = writing.join().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}
