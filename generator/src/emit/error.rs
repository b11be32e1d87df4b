//! Why a folder cannot be written or compared.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A folder that was left as it was.
#[derive(Debug, Error)]
pub enum EmitError {
    /// The folder, or one above it, is something else.
    #[error("cannot write to {}: {} is not a folder; name another folder", folder.display(), obstacle.display())]
    NotAFolder {
        /// The folder asked for.
        folder: PathBuf,
        /// What stands in its way.
        obstacle: PathBuf,
    },
    /// A path that leads to a folder, a device, a pipe or nowhere.
    #[error("cannot write to {}: it is no ordinary file; name another", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Files that the generator did not write, or that were changed since.
    #[error(
        "{} of {} would be overwritten but {} not what the generator wrote: {}; move them away, or pass --force to lose them",
        if paths.len() == 1 { "1 file".to_owned() } else { format!("{} files", paths.len()) },
        folder.display(),
        if paths.len() == 1 { "is" } else { "are" },
        paths.join(", ")
    )]
    WouldOverwrite {
        /// The folder.
        folder: PathBuf,
        /// The files, relative to it.
        paths: Vec<String>,
    },
    /// Another process is writing the same folder.
    #[error("{} is being written by another process; wait for it and try again", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl EmitError {
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }
}
