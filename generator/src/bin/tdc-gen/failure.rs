//! How a command ends when it does not succeed.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Why a command failed; decides the exit code.
#[derive(Debug)]
pub enum Failure {
    /// What was checked does not hold: a stale folder, a wrong result. Exit code 1.
    Check(String),
    /// The input or the command line is wrong, or a file cannot be read or written. Exit code 2.
    Input(String),
    /// This machine lacks something: a compiler, a GPU. Exit code 3.
    Machine(String),
}

impl Failure {
    /// Wrong input, told by an error's text.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::Input(error.to_string())
    }

    /// Something missing on this machine, told by an error's text.
    pub fn machine(error: impl fmt::Display) -> Self {
        Self::Machine(error.to_string())
    }

    /// Several mistakes in what a file asks for, one a line.
    pub fn in_file<E: fmt::Display>(path: &Path, errors: &[E]) -> Self {
        let errors = errors.iter();
        let lines: Vec<_> = errors.map(|e| format!("{}: {e}", path.display())).collect();
        Self::list(&lines)
    }

    /// Several mistakes in the arguments, one a line.
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
