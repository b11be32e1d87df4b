//! Failures of a command and their exit codes.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why a command failed; decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// A check failed: a folder is out of date, a result is incorrect. Exit code 1.
    Check(String),
    /// The input or the command line is invalid, or a file cannot be read or written. Exit code 2.
    Input(String),
    /// Something is missing on this machine: a compiler, a GPU. Exit code 3.
    Machine(String),
}

impl Failure {
    /// Invalid input, with an error's message.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    /// Something missing on this machine, with an error's message.
    pub fn machine(error: impl fmt::Display) -> Self {
        Self::Machine(error.to_string())
    }

    /// Several errors in a file, one per line.
    pub fn in_file<E: fmt::Display>(path: &Path, errors: &[E]) -> Self {
        let errors = errors.iter();
        let lines: Vec<_> = errors.map(|e| format!("{}: {e}", path.display())).collect();
        Self::list(&lines)
    }

    /// Several errors in the arguments, one per line.
    pub fn list<E: fmt::Display>(errors: &[E]) -> Self {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Self::Input(lines.join("\nerror: "))
    }

    /// 1, 2 or 3.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Check(_) => 1,
            Self::Input(_) => 2,
            Self::Machine(_) => 3,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Check(text) => write!(f, "failed: {}", text.trim_end()),
            Self::Input(text) | Self::Machine(text) => write!(f, "error: {}", text.trim_end()),
        }
    }
}
