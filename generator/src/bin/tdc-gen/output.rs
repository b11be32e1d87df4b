//! Printing to a reader that may close the pipe: `tdc-gen --stdout ... | head`.

use crate::failure::Failure;
use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints to standard output. If the reader has closed the pipe, the work continues without output.
pub fn print(text: impl fmt::Display) -> Result<(), Failure> {
    let mut output = std::io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::Input(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Prints a line to standard error: progress, notes and the reason of a failure.
pub fn note(text: impl fmt::Display) {
    // If standard error cannot be written to, there is nowhere to report that.
    drop(writeln!(std::io::stderr(), "{text}"));
}
