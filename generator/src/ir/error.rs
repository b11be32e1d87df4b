//! What is wrong with a request, and where.

use std::fmt;

/// The part of a request that an error is about. Whoever read the request knows where that part stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecLocation {
    /// The network or layer set as a whole, or one of its own keys (`name`, `input`).
    TopLevel(&'static str),
    /// The op at an index in the order it was asked for.
    Op(usize),
    /// A key of that op.
    Key(usize, &'static str),
    /// An item of that key's list, where it was asked for as a list.
    Item(usize, &'static str, usize),
}

/// One mistake in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    /// What it is about.
    pub location: SpecLocation,
    /// What is wrong, with the value that is.
    pub message: String,
    /// What to do about it.
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
