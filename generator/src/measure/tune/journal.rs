//! The journal of `tune`: every result, on disk as soon as it is measured.

use crate::measure::journal::{JournalError, JournalFile, read_journal_file};
use crate::plan::{
    Environment, MeasuredTile, TuningError, TuningTable, parse_microseconds, text_checksum,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The outcome of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Correct and timed in full: quick time, full time, in microseconds.
    Timed(f64, f64),
    /// Correct, but too slow for a full time: quick time in microseconds.
    QuickOnly(f64),
    /// An incorrect result.
    Wrong(String),
    /// Compilation failed.
    CompileFailed(String),
    /// The launch failed.
    LaunchFailed(String),
    /// It left the device unusable; it is not tried again.
    DeviceLost(String),
}

/// A candidate with its outcome: one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Key of the problem.
    pub problem: String,
    /// The scheme.
    pub scheme: String,
    /// The tile's label.
    pub tile: String,
    /// Checksum of the kernels' source without comments, and of the launches; a row with a different one is
    /// stale.
    pub text: u64,
    /// The outcome.
    pub outcome: Outcome,
}

const TITLE: &str = "Journal of `tdc-gen tune`; times in microseconds.";
const COLUMNS: &str = "problem scheme tile text outcome";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            problem,
            scheme,
            tile,
            text,
            outcome,
        } = self;
        write!(f, "{problem} {scheme} {tile} {text:016x} ")?;
        match outcome {
            Outcome::Timed(quick, full) => write!(f, "timed {quick:.3} {full:.3}"),
            Outcome::QuickOnly(quick) => write!(f, "quick_only {quick:.3}"),
            Outcome::Wrong(why) => write!(f, "wrong {}", one_line(why)),
            Outcome::CompileFailed(why) => write!(f, "compile_failed {}", one_line(why)),
            Outcome::LaunchFailed(why) => write!(f, "launch_failed {}", one_line(why)),
            Outcome::DeviceLost(why) => write!(f, "device_lost {}", one_line(why)),
        }
    }
}

/// The first words of a message, which may be a compiler log.
fn one_line(message: &str) -> String {
    const MAX_CHARS: usize = 300;
    let words: Vec<_> = message.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

impl Row {
    /// Problem, scheme and tile. The last row of a candidate counts.
    pub fn candidate(&self) -> (String, String, String) {
        (self.problem.clone(), self.scheme.clone(), self.tile.clone())
    }

    fn parse(line: usize, row: &str) -> Result<Self, TuningError> {
        let mut fields = row.splitn(6, ' ');
        let mut field = |found| {
            fields.next().ok_or(TuningError::Fields {
                line,
                found,
                columns: COLUMNS,
            })
        };
        let [problem, scheme, tile] = [field(0)?, field(1)?, field(2)?].map(str::to_owned);
        let text = field(3)?;
        let text = text_checksum(line, text)?;
        let word = field(4)?;
        let rest = fields.next().unwrap_or_default();
        let outcome = match word {
            "timed" => {
                let (quick, full) = rest.split_once(' ').ok_or(TuningError::Fields {
                    line,
                    found: 6,
                    columns: "problem scheme tile text timed quick_us full_us",
                })?;
                Outcome::Timed(
                    parse_microseconds(line, "quick_us", quick)?,
                    parse_microseconds(line, "full_us", full)?,
                )
            }
            "quick_only" => Outcome::QuickOnly(parse_microseconds(line, "quick_us", rest)?),
            "wrong" => Outcome::Wrong(rest.to_owned()),
            "compile_failed" => Outcome::CompileFailed(rest.to_owned()),
            "launch_failed" => Outcome::LaunchFailed(rest.to_owned()),
            "device_lost" => Outcome::DeviceLost(rest.to_owned()),
            _ => {
                return Err(TuningError::Field {
                    line,
                    column: "outcome",
                    text: word.to_owned(),
                    expected: "one of timed, quick_only, wrong, compile_failed, launch_failed and device_lost",
                });
            }
        };
        Ok(Self {
            problem,
            scheme,
            tile,
            text,
            outcome,
        })
    }
}

/// A candidate: problem, scheme, tile.
type Key = (String, String, String);

/// The rows of all candidates measured in one environment, and their file, which is locked by one process at
/// a time.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    environment: Environment,
    rows: BTreeMap<Key, Row>,
}

impl Journal {
    /// Opens the journal at a path, or creates one.
    ///
    /// # Errors
    /// [`JournalError`]; the file is unchanged then.
    pub fn open(path: &Path, environment: &Environment) -> Result<Self, JournalError> {
        let mut rows = BTreeMap::new();
        let mut read = |line: usize, row: &str| {
            let row = Row::parse(line, row)?;
            // A later row of the same candidate replaces an earlier one.
            rows.insert(row.candidate(), row);
            Ok(())
        };
        Ok(Self {
            file: JournalFile::open(path, TITLE, environment, COLUMNS, &mut read)?,
            environment: environment.clone(),
            rows,
        })
    }

    /// Appends a row; it replaces an earlier one of the same candidate.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, row: Row) -> Result<(), JournalError> {
        self.file.append(&row)?;
        self.rows.insert(row.candidate(), row);
        Ok(())
    }

    /// Waits until all rows are on disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync()
    }

    /// The row of a candidate.
    pub fn get(&self, problem: &str, scheme: &str, tile: &str) -> Option<&Row> {
        let key = (problem.to_owned(), scheme.to_owned(), tile.to_owned());
        self.rows.get(&key)
    }

    /// The last row of every candidate, sorted.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Drops stale rows from memory; the file keeps them.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| keep(row));
    }

    /// The machine and the versions that measured the rows.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The best tile of each scheme for each problem.
    pub fn table(&self) -> TuningTable {
        let mut table = TuningTable::new(self.environment.clone());
        for row in self.rows() {
            if let Outcome::Timed(_, us) = row.outcome {
                let measured = MeasuredTile {
                    tile: row.tile.clone(),
                    us,
                    text: row.text,
                };
                table.insert(&row.problem, &row.scheme, measured);
            }
        }
        table
    }
}

/// The environment of a journal and the last row of every candidate, sorted, without locking it.
///
/// # Errors
/// [`JournalError`] if it cannot be read or is not a journal.
pub fn read_journal(path: &Path) -> Result<(Environment, Vec<Row>), JournalError> {
    let mut rows = BTreeMap::new();
    let environment = read_journal_file(path, &mut |line, row| {
        let row = Row::parse(line, row)?;
        rows.insert(row.candidate(), row);
        Ok(())
    })?;
    Ok((environment, rows.into_values().collect()))
}
