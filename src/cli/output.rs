//! What commands print: results to stdout, everything else to stderr. A reader that went away ends the command quietly.

use super::Failure;
use std::io::{self, Write};

/// Where a command prints.
pub(super) struct Output {
    results: Box<dyn Write + Send>,
    remarks: Box<dyn Write + Send>,
}

impl Output {
    /// The process's own streams.
    pub(super) fn of_process() -> Self {
        Self { results: Box::new(io::stdout()), remarks: Box::new(io::stderr()) }
    }

    /// A line of the result.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Failure> {
        self.raw(format!("{line}\n").as_bytes())
    }

    /// A JSON value of the result, in one line.
    pub(super) fn json(&mut self, value: &serde_json::Value) -> Result<(), Failure> {
        self.line(&value.to_string())
    }

    /// Bytes of the result.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.results.write_all(bytes).and_then(|()| self.results.flush()).map_err(Failure::io("stdout"))
    }

    /// A remark for people, beside the result.
    pub(super) fn remark(&mut self, line: &str) {
        // Nobody is left to be told that stderr is closed.
        let _ = writeln!(self.remarks, "{line}");
    }

    /// A mistake, under the program's name.
    pub(super) fn complain(&mut self, text: &str) {
        self.remark(&format!("streaming-hub: {text}"));
    }
}
