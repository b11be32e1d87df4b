//! One writer of a folder at a time: the folder for new files holds a locked file and vanishes with its lock.

use super::EmitError;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// Name of the folder for new files.
pub(super) const STAGING: &str = ".tdc-new";

const LOCK: &str = "lock";

/// The right to change a folder. Dropping it removes what was staged.
#[derive(Debug)]
pub(super) struct Lock {
    staging: PathBuf,
    _file: File,
}

impl Lock {
    /// Takes the lock of a folder that exists.
    pub(super) fn take(folder: &Path) -> Result<Self, EmitError> {
        let staging = folder.join(STAGING);
        let path = staging.join(LOCK);
        loop {
            std::fs::create_dir_all(&staging)
                .map_err(|error| EmitError::io("create", &staging, error))?;
            let file = match open(&path) {
                Ok(file) => file,
                // Its last owner has just removed it.
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
            // The locked file may have been removed between opening and locking: then the path leads to another one or to
            // none, which can be locked again.
            let same = open(&path).is_ok_and(|again| again.try_lock().is_err());
            if same {
                return Ok(Self {
                    staging,
                    _file: file,
                });
            }
        }
    }

    /// Where a new file waits for its place.
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
        // Nothing to be done about a folder that cannot be removed; the next writer uses it again.
        drop(std::fs::remove_dir_all(&self.staging));
    }
}
