//! Lines of files, or of standard input, for commands that take JSON lines.

use super::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader, stdin};
use std::path::PathBuf;

/// Hands every line that is neither empty nor a comment to `each`, with its place for messages.
pub(super) fn each_line(
    files: &[PathBuf],
    mut each: impl FnMut(&str, &str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let standard_input = [PathBuf::from("-")];
    for path in if files.is_empty() { &standard_input } else { files } {
        let name = path.display().to_string();
        let lines: Box<dyn BufRead> = if name == "-" {
            Box::new(stdin().lock())
        } else {
            Box::new(BufReader::new(File::open(path).map_err(Failure::io(&name))?))
        };
        for (number, line) in lines.lines().enumerate() {
            let line = line.map_err(Failure::io(&name))?;
            if !line.trim().is_empty() && !line.starts_with('#') {
                each(&format!("{name}:{}", number + 1), &line)?;
            }
        }
    }
    Ok(())
}
