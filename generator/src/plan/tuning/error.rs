//! Errors of reading and merging tables and journals of measured times.

use crate::wording::counted;
use thiserror::Error;

/// Error of a text that is not a table of measured times, or of two tables that cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TuningError {
    /// The header lacks a key.
    #[error("the header has no line `{key}: ...`; a table that `tdc-gen tune` wrote has one")]
    MissingHeaderKey {
        /// The key.
        key: &'static str,
    },
    /// A line of the header has an unknown or duplicate key.
    #[error("line {line}: `{key}:` is unknown or there twice; remove the line")]
    HeaderKey {
        /// Line of the text, from 1.
        line: usize,
        /// The key.
        key: String,
    },
    /// A row has too few or too many fields.
    #[error("line {line}: {} where `{columns}` are needed", counted(*found, "field"))]
    Fields {
        /// Line of the text, from 1.
        line: usize,
        /// Fields found.
        found: usize,
        /// The fields of a row.
        columns: &'static str,
    },
    /// A field cannot be read.
    #[error("line {line}: {column} cannot be `{text}`; it is {expected}")]
    Field {
        /// Line of the text, from 1.
        line: usize,
        /// The column's name.
        column: &'static str,
        /// The field's text.
        text: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The last line does not end in a newline, so it may be truncated.
    #[error("line {line}: the line has no end, and may be cut; end it, if all of it is there")]
    Truncated {
        /// Line of the text, from 1.
        line: usize,
    },
    /// A row repeats the problem and scheme of an earlier one.
    #[error("line {line}: `{problem} {scheme}` has a line already; remove one of the two")]
    Duplicate {
        /// Line of the text, from 1.
        line: usize,
        /// The key of the problem.
        problem: String,
        /// The scheme.
        scheme: String,
    },
    /// Two texts have different machines or versions.
    #[error(
        "{key} is `{here}` here and `{there}` there; times of different environments cannot be mixed: measure one of them again"
    )]
    Environment {
        /// The first key of the header that differs.
        key: &'static str,
        /// The one value.
        here: String,
        /// The other.
        there: String,
    },
}
