//! The journal of measured networks: each time, on disk as soon as it is known.

use super::{Case, Row, Subject};
use crate::measure::journal::{JournalError, JournalFile};
use crate::plan::{Environment, TuningError};
use std::collections::HashMap;
use std::path::Path;

const TITLE: &str = "Journal of `tdc-gen bench --network`; times in microseconds.";
const COLUMNS: &str = "checksum row";

/// The rows by batch, subject and checksum of what ran, and the file, which is locked by one process at a time. A line is a checksum and
/// a row as JSON.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    rows: HashMap<(u32, Subject, u64), Row>,
}

impl Journal {
    /// Opens the journal at a path, or creates one.
    ///
    /// # Errors
    /// [`JournalError`]; the file is unchanged then.
    pub fn open(path: &Path, environment: &Environment) -> Result<Self, JournalError> {
        let mut rows = HashMap::new();
        let file = JournalFile::open(path, TITLE, environment, COLUMNS, &mut |line, text| {
            let (checksum, row) = parse(line, text)?;
            rows.insert((row.batch, row.subject, checksum), row);
            Ok(())
        })?;
        Ok(Self { file, rows })
    }

    /// The row of a subject in a case, if what runs has not changed since.
    pub fn get(&self, case: &Case, subject: Subject) -> Option<&Row> {
        self.rows
            .get(&(case.batch, subject, case.checksum(subject)))
    }

    /// Adds a row of a case.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, case: &Case, row: &Row) -> Result<(), JournalError> {
        let checksum = case.checksum(row.subject);
        let json = serde_json::json!(row);
        self.file.append(&format_args!("{checksum:016x} {json}"))?;
        self.file.sync()
    }
}

fn parse(line: usize, text: &str) -> Result<(u64, Row), TuningError> {
    let (checksum, row) = text.split_once(' ').ok_or(TuningError::Fields {
        line,
        found: 1,
        columns: COLUMNS,
    })?;
    let field = |column, text: &str, expected| TuningError::Field {
        line,
        column,
        text: text.chars().take(40).collect(),
        expected,
    };
    let checksum = u64::from_str_radix(checksum, 16)
        .map_err(|_| field("checksum", checksum, "16 hexadecimal digits"))?;
    let row = serde_json::from_str(row).map_err(|_| {
        let expected = "a time as JSON; remove the line to measure it again";
        field("row", row, expected)
    })?;
    Ok((checksum, row))
}
