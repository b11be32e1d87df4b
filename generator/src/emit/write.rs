//! Writing a folder: only what changed, nothing of anybody else's, all or nothing.

use super::file_system::{Disk, FileSystem};
use super::lock::Lock;
use super::manifest::{MANIFEST, Manifest, Origin};
use super::{EmitError, Files};
use std::io::{ErrorKind, Write};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What writing did; paths are relative to the folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Written {
    /// Files that are new or changed.
    pub written: Vec<String>,
    /// Files that were already as they should be, and were not touched.
    pub unchanged: Vec<String>,
    /// Files of an earlier run that are not generated any more.
    pub removed: Vec<String>,
    /// Such files that were edited, and therefore stay.
    pub kept: Vec<String>,
}

/// Writes `files` and their manifest to `folder`, which is created if need be.
///
/// A file that the generator did not write, or that was edited since, is overwritten only with `force`. Files of an earlier
/// run that are not generated any more are removed unless they were edited. New content is written beside the old and moved
/// into place when all of it is there.
///
/// # Errors
/// [`EmitError`]; the folder is then as it was, unless the system refuses to move a finished file into its place.
pub fn write(files: &Files, folder: &Path, force: bool) -> Result<Written, EmitError> {
    write_with(&mut Disk, files, folder, force)
}

fn write_with(
    disk: &mut impl FileSystem,
    files: &Files,
    folder: &Path,
    force: bool,
) -> Result<Written, EmitError> {
    check_folder(folder)?;
    let made = missing_folders(folder);
    disk.create_folder(folder)
        .map_err(|error| EmitError::io("create", folder, error))?;
    let result = write_locked(disk, files, folder, force);
    if result.is_err() {
        // Leaves no empty folders behind; one that got content by someone else stays.
        for folder in made {
            drop(std::fs::remove_dir(folder));
        }
    }
    result
}

fn write_locked(
    disk: &mut impl FileSystem,
    files: &Files,
    folder: &Path,
    force: bool,
) -> Result<Written, EmitError> {
    let lock = Lock::take(folder)?;
    let new_manifest = Manifest::of(files).text().into_bytes();
    let old_manifest = Manifest::read(folder)?;
    let mut outcome = Written::default();
    let mut conflicts = Vec::new();
    let mut changed: Vec<(&str, &[u8])> = Vec::new();

    let manifest_entry = (MANIFEST, new_manifest.as_slice());
    let entries = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()));
    // The manifest goes last: it may only speak of files that are in place.
    for (path, content) in entries.chain([manifest_entry]) {
        let old = read_if_there(&folder.join(path))?;
        match old {
            Some(old) if old == content => {
                outcome.unchanged.push(path.to_owned());
                continue;
            }
            Some(old) if !is_ours(&old_manifest, path, &old) => conflicts.push(path.to_owned()),
            _ => {}
        }
        changed.push((path, content));
    }
    if !conflicts.is_empty() && !force {
        return Err(EmitError::WouldOverwrite {
            folder: folder.to_owned(),
            paths: conflicts,
        });
    }
    let mut stale = Vec::new();
    for path in old_manifest
        .paths()
        .filter(|path| !files.contains_key(*path))
    {
        match read_if_there(&folder.join(path))? {
            None => {}
            Some(content) if old_manifest.origin(path, &content) == Origin::Generated => {
                stale.push(path.to_owned());
            }
            Some(_) => outcome.kept.push(path.to_owned()),
        }
    }

    for (index, (_, content)) in changed.iter().enumerate() {
        let staged = lock.staged(index);
        disk.write(&staged, content)
            .map_err(|error| EmitError::io("write", &staged, error))?;
    }
    for (index, (path, _)) in changed.iter().enumerate() {
        let target = folder.join(path);
        if let Some(parent) = target.parent() {
            disk.create_folder(parent)
                .map_err(|error| EmitError::io("create", parent, error))?;
        }
        disk.rename(&lock.staged(index), &target)
            .map_err(|error| EmitError::io("write", &target, error))?;
        outcome.written.push((*path).to_owned());
    }
    for path in stale {
        let target = folder.join(&path);
        disk.remove_file(&target)
            .map_err(|error| EmitError::io("remove", &target, error))?;
        remove_empty_parents(&target, folder);
        outcome.removed.push(path);
    }
    Ok(outcome)
}

/// Writes one file whole or not at all: to a file beside it, then moved into place. Its folder is created if need be.
///
/// # Errors
/// [`EmitError::Io`] with the file.
pub fn write_whole(path: &Path, content: &[u8]) -> Result<(), EmitError> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    check_folder(folder)?;
    let fail = |error| EmitError::io("write", path, error);
    std::fs::create_dir_all(folder).map_err(fail)?;
    let mut staged = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    staged.write_all(content).map_err(fail)?;
    // Temporary files are their owner's alone; this one is to be an ordinary file.
    #[cfg(unix)]
    staged
        .as_file()
        .set_permissions(PermissionsExt::from_mode(0o644))
        .map_err(fail)?;
    staged.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

/// Whether the generator wrote a file's content. A manifest is the generator's when it reads as one.
fn is_ours(manifest: &Manifest, path: &str, content: &[u8]) -> bool {
    if path == MANIFEST {
        Manifest::parse(content).is_some()
    } else {
        manifest.origin(path, content) == Origin::Generated
    }
}

/// A file's content; `None` when there is none.
pub(super) fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, EmitError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EmitError::io("read", path, error)),
    }
}

/// Finds what stands in a folder's way: the folder itself or one above it that is something else.
pub(super) fn check_folder(folder: &Path) -> Result<(), EmitError> {
    let obstacle = folder
        .ancestors()
        .find(|path| path.exists())
        .filter(|path| !path.is_dir());
    match obstacle {
        None => Ok(()),
        Some(obstacle) => Err(EmitError::NotAFolder {
            folder: folder.to_owned(),
            obstacle: obstacle.to_owned(),
        }),
    }
}

/// The folders that creating `folder` will make, the innermost first.
fn missing_folders(folder: &Path) -> Vec<PathBuf> {
    folder
        .ancestors()
        .take_while(|path| !path.as_os_str().is_empty() && !path.exists())
        .map(Path::to_owned)
        .collect()
}

/// Removes the folders that the removal of a file left empty, up to `folder`.
fn remove_empty_parents(file: &Path, folder: &Path) {
    let parents = file.ancestors().skip(1);
    for parent in parents.take_while(|parent| *parent != folder) {
        if std::fs::remove_dir(parent).is_err() {
            break;
        }
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
