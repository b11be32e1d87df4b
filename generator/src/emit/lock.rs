//! A lock that allows one writer of a folder at a time: a locked file in the staging folder, which is removed
//! with the lock.

use super::EmitError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// Name of the staging folder.
pub(super) const STAGING: &str = ".tdc-new";

const LOCK: &str = "lock";

/// The lock of a folder. Dropping it removes the staged files.
#[derive(Debug)]
pub(super) struct Lock {
    staging: PathBuf,
    _file: File,
}

impl Lock {
    /// Locks an existing folder.
    pub(super) fn take(folder: &Path) -> Result<Self, EmitError> {
        let staging = folder.join(STAGING);
        let path = staging.join(LOCK);
        loop {
            std::fs::create_dir_all(&staging)
                .map_err(|error| EmitError::io("create", &staging, error))?;
            let file = match open(&path) {
                Ok(file) => file,
                // The previous owner has just removed it.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(EmitError::io("create", &path, error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(EmitError::Busy {
                        folder: folder.to_owned(),
                    });
                }
                Err(TryLockError::Error(error)) => {
                    return Err(EmitError::io("lock", &path, error));
                }
            }
            // The locked file may have been removed between opening and locking; then the path refers to
            // another file or to none, and can be locked again.
            let same = open(&path).is_ok_and(|again| again.try_lock().is_err());
            if same {
                return Ok(Self {
                    staging,
                    _file: file,
                });
            }
        }
    }

    /// The staging path of a new file.
    pub(super) fn staged(&self, index: usize) -> PathBuf {
        self.staging.join(index.to_string())
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
}

impl Drop for Lock {
    fn drop(&mut self) {
        // An error is ignored: the next writer uses the folder again.
        drop(std::fs::remove_dir_all(&self.staging));
    }
}
