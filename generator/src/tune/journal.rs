//! Every result, on disk as soon as it is known.

use crate::plan::{Environment, Measured, TuningError, TuningTable, microseconds};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What came of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Right, and timed in full: quick time, full time, microseconds.
    Timed(f64, f64),
    /// Right, and its quick time was too long for more, microseconds.
    Slow(f64),
    /// A wrong result.
    Wrong(String),
    /// It was not compiled.
    Uncompiled(String),
    /// The device refused it.
    Refused(String),
    /// It broke the device; it is not tried again.
    Crashed(String),
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
    /// Checksum of the kernels' text and launches: whether the candidate is still what was measured.
    pub text: u64,
    /// What came of it.
    pub outcome: Outcome,
}

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
            Outcome::Slow(quick) => write!(f, "slow {quick:.3}"),
            Outcome::Wrong(why) => write!(f, "wrong {}", one_line(why)),
            Outcome::Uncompiled(why) => write!(f, "uncompiled {}", one_line(why)),
            Outcome::Refused(why) => write!(f, "refused {}", one_line(why)),
            Outcome::Crashed(why) => write!(f, "crashed {}", one_line(why)),
        }
    }
}

/// The first words of a message, which may be a compiler's log.
fn one_line(message: &str) -> String {
    const MOST: usize = 300;
    let words: Vec<_> = message.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

impl Row {
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
        let text = u64::from_str_radix(text, 16).map_err(|_| TuningError::Field {
            line,
            column: "text",
            text: text.to_owned(),
            expected: "a checksum of 16 hexadecimal digits",
        })?;
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
                    microseconds(line, "quick_us", quick)?,
                    microseconds(line, "full_us", full)?,
                )
            }
            "slow" => Outcome::Slow(microseconds(line, "quick_us", rest)?),
            "wrong" => Outcome::Wrong(rest.to_owned()),
            "uncompiled" => Outcome::Uncompiled(rest.to_owned()),
            "refused" => Outcome::Refused(rest.to_owned()),
            "crashed" => Outcome::Crashed(rest.to_owned()),
            _ => {
                return Err(TuningError::Field {
                    line,
                    column: "outcome",
                    text: word.to_owned(),
                    expected: "one of timed, slow, wrong, uncompiled, refused and crashed",
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

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The journal.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process writes it.
    #[error("{}: another process is writing this journal; wait for it, or give each its own --out", path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// It is no journal.
    #[error("{}: {error}", path.display())]
    Text {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        error: TuningError,
    },
    /// It was begun elsewhere or with other versions.
    #[error("{}: this journal cannot be resumed here: {error}, or name another --out", path.display())]
    Environment {
        /// The journal.
        path: PathBuf,
        /// What differs.
        error: TuningError,
    },
}

/// How long a result may be in the system's hands before it must be on the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A candidate: problem, scheme, tile.
type Key = (String, String, String);

/// The file of all results of one environment, a line for each, appended to and never rewritten. One process at a time has it.
///
/// A line is in the system's hands when [`append`](Self::append) returns, and survives the end of the process; it is on the disk a
/// second later. A last line that was torn is forgotten when the journal is opened again.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    environment: Environment,
    rows: BTreeMap<Key, Row>,
    synced: Instant,
}

impl Journal {
    /// Opens the journal of a file, or begins one.
    ///
    /// # Errors
    /// [`JournalError`]; the file is as it was then.
    pub fn open(path: &Path, environment: &Environment) -> Result<Self, JournalError> {
        let io = |action| {
            let path = path.to_owned();
            move |source| JournalError::Io {
                action,
                path,
                source,
            }
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(io("create the folder of"))?;
        }
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path);
        let mut file = opened.map_err(io("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io("lock")(source)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read"))?;
        // What stands behind the last end of a line was being written when its process ended.
        let whole = bytes
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let heading = format!(
            "# Every result of `tdc-gen tune`; times in microseconds.\n{environment}# {COLUMNS}\n"
        );
        // Empty, or a heading that was torn.
        let is_new = heading.as_bytes().starts_with(&bytes);
        let mut rows = BTreeMap::new();
        if !is_new {
            let wrong = |error| JournalError::Text {
                path: path.to_owned(),
                error,
            };
            let (found, lines) = Environment::read(&text).map_err(wrong)?;
            environment
                .same_as(&found)
                .map_err(|error| JournalError::Environment {
                    path: path.to_owned(),
                    error,
                })?;
            for (line, row) in lines {
                let row = Row::parse(line, row).map_err(wrong)?;
                // Of a candidate that was measured again, the last.
                rows.insert(key(&row), row);
            }
        }
        let end = if is_new { 0 } else { whole as u64 };
        file.set_len(end)
            .and_then(|()| file.seek(SeekFrom::Start(end)))
            .map_err(io("shorten"))?;
        if is_new {
            file.write_all(heading.as_bytes()).map_err(io("write"))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            environment: environment.clone(),
            rows,
            synced: Instant::now(),
        })
    }

    /// Adds a row; it takes the place of an earlier one of the same candidate.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, row: Row) -> Result<(), JournalError> {
        let written = self.file.write_all(format!("{row}\n").as_bytes());
        written.map_err(|source| self.io("write", source))?;
        self.rows.insert(key(&row), row);
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until everything is on the disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.file
            .sync_data()
            .map_err(|source| self.io("write", source))?;
        self.synced = Instant::now();
        Ok(())
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
    pub(super) fn retain(&mut self, mut holds: impl FnMut(&Row) -> bool) {
        self.rows.retain(|_, row| holds(row));
    }

    /// The best tile of each scheme for each problem.
    pub fn table(&self) -> TuningTable {
        let mut table = TuningTable::new(self.environment.clone());
        for row in self.rows() {
            if let Outcome::Timed(_, us) = row.outcome {
                let tile = row.tile.clone();
                table.insert(&row.problem, &row.scheme, Measured { tile, us });
            }
        }
        table
    }

    fn io(&self, action: &'static str, source: io::Error) -> JournalError {
        JournalError::Io {
            action,
            path: self.path.clone(),
            source,
        }
    }
}

/// What a journal was begun with, and its rows, without taking it.
///
/// # Errors
/// [`JournalError`] when it cannot be read or is none.
pub fn read_journal(path: &Path) -> Result<(Environment, Vec<Row>), JournalError> {
    let text = std::fs::read_to_string(path).map_err(|source| JournalError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    let wrong = |error| JournalError::Text {
        path: path.to_owned(),
        error,
    };
    let whole = text.rfind('\n').map_or(0, |at| at + 1);
    let (environment, lines) = Environment::read(&text[..whole]).map_err(wrong)?;
    let rows = lines.into_iter().map(|(line, row)| Row::parse(line, row));
    let rows: Result<_, _> = rows.collect();
    Ok((environment, rows.map_err(wrong)?))
}

fn key(row: &Row) -> Key {
    (row.problem.clone(), row.scheme.clone(), row.tile.clone())
}
