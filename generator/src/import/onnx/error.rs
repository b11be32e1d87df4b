//! Errors of an import, with the nodes that they concern.

use super::message::Node;
use super::names;
use crate::ir::SpecError;
use std::fmt;

/// Where a node comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodePlace {
    /// Its name; that of its first output if it has none.
    pub name: String,
    /// Its op type.
    pub op: String,
    /// The module of the exporting program, such as `layer1.0.conv1`, if the file has it.
    pub scope: Option<String>,
    /// File and line of the exporting program, if the file has them.
    pub source: Option<String>,
}

impl fmt::Display for NodePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node `{}` ({}",
            self.name.escape_debug(),
            self.op.escape_debug()
        )?;
        if let Some(scope) = self.scope.as_ref().filter(|scope| !scope.is_empty()) {
            write!(f, " of {}", scope.escape_debug())?;
        }
        if let Some(source) = &self.source {
            write!(f, ", {}", source.escape_debug())?;
        }
        write!(f, ")")
    }
}

/// The remedy for operations that the project does not have.
pub const REPLACE: &str = "leave it out of the export, or replace it by supported operations";

/// The remedy for files that do not follow the format.
pub const EXPORT_AGAIN: &str = "export the network again";

/// An error, before the file's name is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportError {
    /// The node; `None` if the error concerns the whole file.
    pub node: Option<NodePlace>,
    /// What is wrong or unsupported.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl ImportError {
    /// An error of the whole file.
    pub(super) fn of_file(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            node: None,
            message: message.into(),
            help: help.into(),
        }
    }

    /// An error at a node.
    pub(super) fn of_node(
        node: &Node,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            node: Some(names::place(node)),
            message: message.into(),
            help: help.into(),
        }
    }

    /// Errors of the network that was made of the nodes.
    pub(super) fn of_network(errors: Vec<SpecError>) -> Vec<Self> {
        let errors = errors.into_iter();
        errors
            .map(|error| Self::of_file(error.message, error.help))
            .collect()
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "{node}: ")?;
        }
        write!(f, "{}; {}", self.message, self.help)
    }
}

/// The errors of a file, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportErrors {
    /// The file, as given by the user.
    pub file: String,
    /// The first errors, in the order of the nodes.
    pub first: Vec<ImportError>,
    /// Number of further errors.
    pub omitted: usize,
}

/// Most errors that are kept.
const MAX_ERRORS: usize = 50;

impl ImportErrors {
    pub(super) fn new(file: &str, mut errors: Vec<ImportError>) -> Self {
        let omitted = errors.len().saturating_sub(MAX_ERRORS);
        errors.truncate(MAX_ERRORS);
        Self {
            file: file.to_owned(),
            first: errors,
            omitted,
        }
    }

    pub(super) fn of_file(file: &str, message: String, help: &str) -> Self {
        Self::new(file, vec![ImportError::of_file(message, help)])
    }
}

/// One error per line, each with the file's name and, from the second one on, `error: ` before it.
impl fmt::Display for ImportErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.first.iter().enumerate() {
            let start = if index > 0 { "\nerror: " } else { "" };
            write!(f, "{start}{}: {error}", self.file)?;
        }
        match self.omitted {
            0 => Ok(()),
            1 => write!(f, "\nerror: {}: 1 more error", self.file),
            more => write!(f, "\nerror: {}: {more} more errors", self.file),
        }
    }
}

impl std::error::Error for ImportErrors {}
