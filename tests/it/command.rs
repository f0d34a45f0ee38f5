//! Runs the program as a user would: arguments, environment and standard input in; output and exit code out.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

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

    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// To its end.
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

    /// Until its log says `message`.
    pub(crate) fn until_logged(mut self, message: &str) -> Serving {
        let mut child = self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        let line = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended before it said {message:?}: {seen}");
            seen += &line;
            let said = serde_json::from_str::<Value>(&line).unwrap_or_default();
            if said["message"] == message {
                break said;
            }
        };
        Serving { child, log, line, seen }
    }
}

/// A hub that serves; killed when the test is over.
pub(crate) struct Serving {
    child: Child,
    log: BufReader<ChildStderr>,
    line: Value,
    seen: String,
}

/// A serving hub with its store in that folder, at a free port.
pub(crate) fn serve(folder: &Path) -> Run {
    let data = folder.to_str().unwrap();
    // What else fills the disk of this machine is no matter of the tests.
    hub(&["serve", "--data-dir", data, "--http-listen-addr", "127.0.0.1:0"])
        .env("STREAMING_HUB_STORE_RESERVE_BYTES", "0")
}

impl Serving {
    /// Where its API is.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.line["address"].as_str().unwrap())
    }

    /// What it logged up to then.
    pub(crate) fn seen(&self) -> &str {
        &self.seen
    }

    /// Tells it something.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; what it logged since.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended is fine as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The line of a log with that message.
pub(crate) fn json_line(log: &str, message: &str) -> Value {
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap_or_default());
    lines.into_iter().find(|line| line["message"] == message).unwrap_or_else(|| panic!("not said: {message}: {log}"))
}
