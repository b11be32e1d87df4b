//! Errors of a config or request, with their locations.

use std::fmt;

/// Location of an error. The caller that has parsed a file can translate it to a position in that file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecLocation {
    /// The complete network or layer set, or one of its own keys (`name`, `input`).
    TopLevel(&'static str),
    /// The op with this index, in the order of the request.
    Op(usize),
    /// A key of that op.
    Key(usize, &'static str),
    /// An item of the list at that key.
    Item(usize, &'static str, usize),
}

/// One error in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// Location of the error.
    pub location: SpecLocation,
    /// The error, with the invalid value.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl SpecError {
    /// An error at `location`.
    pub fn new(
        location: SpecLocation,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            location,
            message: message.into(),
            help: help.into(),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.help)
    }
}

impl std::error::Error for SpecError {}
