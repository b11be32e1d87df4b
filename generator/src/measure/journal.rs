//! Append-only files with one result per line, so that an interrupted run can be resumed.
//!
//! The header has the [`Environment`] in which times were measured; each line after it is one result.

use crate::plan::{Environment, TuningError};
use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A journal that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// An I/O error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The journal's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: another process is using this journal; wait for it, or choose another file", path.display())]
    Busy {
        /// The journal's path.
        path: PathBuf,
    },
    /// Not a valid journal.
    #[error("{}: {error}", path.display())]
    Parse {
        /// The journal's path.
        path: PathBuf,
        /// The error.
        error: TuningError,
    },
    /// It has a different environment.
    #[error("{}: cannot resume from this journal: {error}, or choose another file", path.display())]
    Environment {
        /// The journal's path.
        path: PathBuf,
        /// The difference.
        error: TuningError,
    },
}

/// Path of the journal of a results file, next to it.
pub fn journal_path(results: &Path) -> PathBuf {
    let mut path = results.as_os_str().to_owned();
    path.push(".journal");
    path.into()
}

/// Longest time before an appended result is synced to disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The results of one environment, one line each; appended to, never rewritten. It is locked by one process
/// at a time.
///
/// When [`append`](Self::append) returns, the line has been handed to the operating system and survives the
/// end of the process; it is on disk a second later. A truncated last line is ignored when the journal is
/// opened again.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl JournalFile {
    /// Opens the journal at a path, or creates one with a `title` and the `columns` of its rows. `row` is
    /// called for every existing row, with its line number (from 1).
    ///
    /// # Errors
    /// [`JournalError`], errors of `row` included; the file is unchanged then.
    pub fn open(
        path: &Path,
        title: &str,
        environment: &Environment,
        columns: &str,
        row: &mut dyn FnMut(usize, &str) -> Result<(), TuningError>,
    ) -> Result<Self, JournalError> {
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
        let header = format!("# {title}\n{environment}# {columns}\n");
        // Empty, or a truncated header.
        let is_new = header.as_bytes().starts_with(&bytes);
        if !is_new {
            let check_environment = |found: &Environment| {
                let same = environment.check_same(found);
                same.map_err(|error| JournalError::Environment {
                    path: path.to_owned(),
                    error,
                })
            };
            read_lines(
                path,
                &String::from_utf8_lossy(&bytes),
                check_environment,
                row,
            )?;
        }
        let end = if is_new {
            0
        } else {
            whole_lines(&bytes) as u64
        };
        file.set_len(end)
            .and_then(|()| file.seek(SeekFrom::Start(end)))
            .map_err(io("shorten"))?;
        if is_new {
            file.write_all(header.as_bytes()).map_err(io("write"))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            synced: Instant::now(),
        })
    }

    /// Appends a row, which is one line.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn append(&mut self, row: &dyn Display) -> Result<(), JournalError> {
        let written = self.file.write_all(format!("{row}\n").as_bytes());
        written.map_err(|source| self.write_error(source))?;
        if self.synced.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    /// Waits until all rows are on disk.
    ///
    /// # Errors
    /// [`JournalError::Io`].
    pub fn sync(&mut self) -> Result<(), JournalError> {
        let synced = self.file.sync_data();
        synced.map_err(|source| self.write_error(source))?;
        self.synced = Instant::now();
        Ok(())
    }

    fn write_error(&self, source: io::Error) -> JournalError {
        JournalError::Io {
            action: "write",
            path: self.path.clone(),
            source,
        }
    }
}

/// Reads a journal without locking it; returns its environment. `row` is as in [`JournalFile::open`].
///
/// # Errors
/// [`JournalError`] if it cannot be read or is not a journal.
pub fn read_journal_file(
    path: &Path,
    row: &mut dyn FnMut(usize, &str) -> Result<(), TuningError>,
) -> Result<Environment, JournalError> {
    let text = std::fs::read_to_string(path).map_err(|source| JournalError::Io {
        action: "read",
        path: path.to_owned(),
        source,
    })?;
    read_lines(path, &text, |_| Ok(()), row)
}

/// Reads the complete lines of a journal. Rows are parsed only if the environment is accepted: they may be of
/// another version.
fn read_lines(
    path: &Path,
    text: &str,
    accept: impl FnOnce(&Environment) -> Result<(), JournalError>,
    row: &mut dyn FnMut(usize, &str) -> Result<(), TuningError>,
) -> Result<Environment, JournalError> {
    let wrong = |error| JournalError::Parse {
        path: path.to_owned(),
        error,
    };
    let whole = &text[..whole_lines(text.as_bytes())];
    let (environment, lines) = Environment::read(whole).map_err(wrong)?;
    accept(&environment)?;
    for (number, line) in lines {
        row(number, line).map_err(wrong)?;
    }
    Ok(environment)
}

/// Bytes up to the last line end: the rest was being written when its process ended.
fn whole_lines(text: &[u8]) -> usize {
    let end = text.iter().rposition(|&byte| byte == b'\n');
    end.map_or(0, |at| at + 1)
}
