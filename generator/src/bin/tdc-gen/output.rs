//! Printing that survives a reader who goes away: `tdc-gen --stdout ... | head`.

use crate::failure::Failure;
use std::fmt;
use std::io::{ErrorKind, Write};

/// Prints to standard output. When nobody reads any more the work goes on in silence.
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
    // Where it cannot be told there is nobody to tell that to.
    drop(writeln!(std::io::stderr(), "{text}"));
}
