//! Every result, on disk as soon as it is known.

use crate::measure::journal::{JournalError, JournalFile, read_journal_file};
use crate::plan::{
    Environment, MeasuredTile, TuningError, TuningTable, parse_microseconds, text_checksum,
};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// What came of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Right, and timed in full: quick time, full time, microseconds.
    Timed(f64, f64),
    /// Right, and its quick time was too long for more, microseconds.
    QuickOnly(f64),
    /// A wrong result.
    Wrong(String),
    /// It was not compiled.
    CompileFailed(String),
    /// The device refused it.
    LaunchFailed(String),
    /// It broke the device; it is not tried again.
    DeviceLost(String),
}

/// A candidate with its outcome: one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Key of the problem.
    pub problem: String,
    /// The scheme.
    pub scheme: String,
    /// The tile with its letters.
    pub tile: String,
    /// Checksum of the kernels' text without its comments, and of the launches: whether the candidate is still what was measured.
    pub text: u64,
    /// What came of it.
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

/// The first words of a message, which may be a compiler's log.
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
    /// What was measured: problem, scheme and tile. Of several rows of one candidate the last counts.
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

/// The rows of every candidate that was measured in one environment, and their file, a line for each, which one process at a time has.
#[derive(Debug)]
pub struct Journal {
    file: JournalFile,
    environment: Environment,
    rows: BTreeMap<Key, Row>,
}

impl Journal {
    /// Opens the journal of a file, or begins one.
    ///
    /// # Errors
    /// [`JournalError`]; the file is as it was then.
    pub fn open(path: &Path, environment: &Environment) -> Result<Self, JournalError> {
        let mut rows = BTreeMap::new();
        let mut read = |line: usize, row: &str| {
            let row = Row::parse(line, row)?;
            // Of a candidate that was measured again, the last.
            rows.insert(row.candidate(), row);
            Ok(())
        };
        Ok(Self {
            file: JournalFile::open(path, TITLE, environment, COLUMNS, &mut read)?,
            environment: environment.clone(),
            rows,
        })
    }

    /// Adds a row; it takes the place of an earlier one of the same candidate.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, row: Row) -> Result<(), JournalError> {
        self.file.append(&row)?;
        self.rows.insert(row.candidate(), row);
        Ok(())
    }

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.file.sync()
    }

    /// What came of a candidate.
    pub fn get(&self, problem: &str, scheme: &str, tile: &str) -> Option<&Row> {
        let key = (problem.to_owned(), scheme.to_owned(), tile.to_owned());
        self.rows.get(&key)
    }

    /// The last row of every candidate, sorted.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// Forgets rows that do not hold any more; the file keeps them.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| keep(row));
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

/// What a journal was begun with, and the last row of every candidate, sorted, without taking it.
///
/// # Errors
/// [`JournalError`] when it cannot be read or is none.
pub fn read_journal(path: &Path) -> Result<(Environment, Vec<Row>), JournalError> {
    let mut rows = BTreeMap::new();
    let environment = read_journal_file(path, &mut |line, row| {
        let row = Row::parse(line, row)?;
        rows.insert(row.candidate(), row);
        Ok(())
    })?;
    Ok((environment, rows.into_values().collect()))
}
