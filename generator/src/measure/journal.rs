//! Files of results that grow line by line, so that a run that was cut off goes on behind the last one.
//!
//! A heading tells where the times were taken ([`Environment`]); each line behind it is one result.

use crate::plan::{Environment, TuningError};
use std::fmt::Display;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    #[error("{}: another process is using this journal; wait for it, or choose another file", path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
    },
    /// It is no journal.
    #[error("{}: {error}", path.display())]
    Parse {
        /// The journal.
        path: PathBuf,
        /// What is wrong.
        error: TuningError,
    },
    /// It was begun elsewhere or with other versions.
    #[error("{}: cannot resume from this journal: {error}, or choose another file", path.display())]
    Environment {
        /// The journal.
        path: PathBuf,
        /// What differs.
        error: TuningError,
    },
}

/// The journal of a file of results: it lies beside that.
pub fn journal_path(results: &Path) -> PathBuf {
    let mut path = results.as_os_str().to_owned();
    path.push(".journal");
    path.into()
}

/// How long a result may be in the system's hands before it must be on the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The file of all results of one environment, a line for each, appended to and never rewritten. One process at a time has it.
///
/// A line is in the system's hands when [`append`](Self::append) returns, and survives the end of the process; it is on the disk a
/// second later. A last line that was torn is forgotten when the journal is opened again.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl JournalFile {
    /// Opens the journal of a file, or begins one with a `title` and the `columns` of its rows. `row` is given every row that is there,
    /// with the number of its line from 1.
    ///
    /// # Errors
    /// [`JournalError`], of `row` too; the file is as it was then.
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
        let heading = format!("# {title}\n{environment}# {columns}\n");
        // Empty, or a heading that was torn.
        let is_new = heading.as_bytes().starts_with(&bytes);
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
            file.write_all(heading.as_bytes()).map_err(io("write"))?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            synced: Instant::now(),
        })
    }

    /// Adds a row, which is one line.
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

    /// Waits until everything is on the disk.
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

/// Reads a journal without taking it: what it was begun with. `row` is as in [`JournalFile::open`].
///
/// # Errors
/// [`JournalError`] when it cannot be read or is none.
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

/// Reads the whole lines of a journal; the rows, which may be of another version, only where the environment is accepted.
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

/// Bytes up to the last end of a line: what stands behind it was being written when its process ended.
fn whole_lines(text: &[u8]) -> usize {
    let end = text.iter().rposition(|&byte| byte == b'\n');
    end.map_or(0, |at| at + 1)
}
