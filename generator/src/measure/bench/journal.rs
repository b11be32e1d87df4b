//! The journal of `bench`: the report of each problem, on disk as soon as it is measured.

use super::{Environment, ProblemReport};
use crate::measure::journal::{JournalError, JournalFile};
use crate::plan::{self, TuningError};
use std::collections::HashMap;
use std::path::Path;

const TITLE: &str = "Journal of `tdc-gen bench`; times in microseconds.";
const COLUMNS: &str = "checksum report";

/// Reports by the checksum of their inputs, and the file, which is locked by one process at a time. A line is
/// a checksum and a report as JSON.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    reports: HashMap<u64, ProblemReport>,
}

impl Journal {
    /// Opens the journal at a path, or creates one.
    ///
    /// # Errors
    /// [`JournalError`]; the file is unchanged then.
    pub fn open(path: &Path, environment: &Environment) -> Result<Self, JournalError> {
        let environment = plan::Environment {
            gpu: environment.gpu.clone(),
            device: environment.device.clone(),
            driver: environment.driver.clone(),
            nvrtc: environment.nvrtc.clone(),
            generator: environment.generator.clone(),
        };
        let mut reports = HashMap::new();
        let file = JournalFile::open(path, TITLE, &environment, COLUMNS, &mut |line, row| {
            let (checksum, report) = parse(line, row)?;
            reports.insert(checksum, report);
            Ok(())
        })?;
        Ok(Self { file, reports })
    }

    /// The report for the inputs with the given checksum.
    pub fn get(&self, checksum: u64) -> Option<&ProblemReport> {
        self.reports.get(&checksum)
    }

    /// Adds a report.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, checksum: u64, report: &ProblemReport) -> Result<(), JournalError> {
        let json = serde_json::json!(report);
        self.file.append(&format_args!("{checksum:016x} {json}"))?;
        // A problem takes seconds, so the cost of the sync does not matter.
        self.file.sync()
    }
}

fn parse(line: usize, row: &str) -> Result<(u64, ProblemReport), TuningError> {
    let (checksum, report) = row.split_once(' ').ok_or(TuningError::Fields {
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
    let checksum = u64::from_str_radix(checksum, 16).map_err(|_| {
        let expected = "16 hexadecimal digits";
        field("checksum", checksum, expected)
    })?;
    let report = serde_json::from_str(report).map_err(|_| {
        let expected = "the times of a problem as JSON; remove the line to measure it again";
        field("report", report, expected)
    })?;
    Ok((checksum, report))
}
