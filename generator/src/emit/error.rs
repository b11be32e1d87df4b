//! Errors of writing or comparing a folder.

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a folder cannot be written or compared; it is unchanged.
#[derive(Debug, Error)]
pub enum EmitError {
    /// The folder, or one above it, is not a folder.
    #[error("cannot write to {}: {} is not a folder; choose another folder", folder.display(), obstacle.display())]
    NotAFolder {
        /// The requested folder.
        folder: PathBuf,
        /// The path that is not a folder.
        obstacle: PathBuf,
    },
    /// A path that is a folder, a device, a pipe or a dangling link.
    #[error("cannot write to {}: it is not a regular file; choose another path", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Files that the generator did not write, or that were edited since.
    #[error(
        "{} of {} would be overwritten but {} not what the generator wrote: {}; move them away, or overwrite them with --force",
        if paths.len() == 1 { "1 file".to_owned() } else { format!("{} files", paths.len()) },
        folder.display(),
        if paths.len() == 1 { "is" } else { "are" },
        paths.join(", ")
    )]
    WouldOverwrite {
        /// The folder.
        folder: PathBuf,
        /// The files, by their paths in the folder.
        paths: Vec<String>,
    },
    /// Another process is writing the same folder.
    #[error("{} is being written by another process; wait for it and try again", folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
    /// An I/O error.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The action that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
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
