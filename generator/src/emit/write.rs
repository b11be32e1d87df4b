//! Writes a folder atomically: only changed files, and never those of others.

use super::file_system::{Disk, FileSystem};
use super::lock::Lock;
use super::manifest::{MANIFEST, Manifest, Origin};
use super::{EmitError, Files};
use std::io::{ErrorKind, Write};
#[cfg(unix)]
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Result of writing; paths are relative to the folder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteSummary {
    /// Files that are new or changed.
    pub written: Vec<String>,
    /// Files that were up to date.
    pub unchanged: Vec<String>,
    /// Files of an earlier run that are no longer generated.
    pub removed: Vec<String>,
    /// Such files that were edited, and therefore kept.
    pub kept: Vec<String>,
}

impl WriteSummary {
    /// The number of files that the folder should have, with the manifest.
    pub fn files(&self) -> usize {
        self.written.len() + self.unchanged.len()
    }
}

/// Writes `files` and their manifest to `folder`, which is created if necessary: [`stage`] followed by
/// [`StagedWrite::commit`].
///
/// # Errors
/// [`EmitError`]; the folder is unchanged then.
pub fn write(files: &Files, folder: &Path, force: bool) -> Result<WriteSummary, EmitError> {
    stage(files, folder, force)?.commit()
}

/// Writes the new content of a folder to its staging folder. Existing files are not changed before
/// [`StagedWrite::commit`].
///
/// A file that the generator did not write, or that was edited since, is overwritten only with `force`. Files
/// of an earlier run that are no longer generated are removed unless they were edited.
///
/// # Errors
/// [`EmitError`]; the folder is unchanged then.
pub fn stage(files: &Files, folder: &Path, force: bool) -> Result<StagedWrite, EmitError> {
    stage_with(&mut Disk, files, folder, force)
}

/// A folder with staged new content. Dropped without a [`commit`](Self::commit) it leaves the folder
/// unchanged.
#[derive(Debug)]
pub struct StagedWrite {
    folder: PathBuf,
    /// Paths of new content, staged under their indices.
    changed: Vec<String>,
    /// Files to remove.
    stale: Vec<String>,
    outcome: WriteSummary,
    // Dropped in this order: the lock removes the staging folder, after which empty folders can be removed.
    lock: Lock,
    created: CreatedFolders,
}

impl StagedWrite {
    /// Moves the new files into place and removes the stale ones.
    ///
    /// # Errors
    /// [`EmitError::Io`] if a file cannot be moved; files that were moved before are moved back.
    pub fn commit(self) -> Result<WriteSummary, EmitError> {
        self.commit_with(&mut Disk)
    }

    fn commit_with(mut self, disk: &mut impl FileSystem) -> Result<WriteSummary, EmitError> {
        let mut moved = Vec::new();
        let mut created = Vec::new();
        if let Err(error) = self.move_all(disk, &mut moved, &mut created) {
            for Replaced { target, old } in moved.into_iter().rev() {
                // A failure to move a file back is ignored; the first error is reported.
                drop(match old {
                    Some(old) => std::fs::rename(old, target),
                    None => std::fs::remove_file(target),
                });
            }
            // Innermost folders first.
            while created.pop().is_some() {}
            return Err(error);
        }
        for path in &self.outcome.removed {
            remove_empty_parents(&self.folder.join(path), &self.folder);
        }
        created.iter_mut().for_each(CreatedFolders::keep);
        self.created.keep();
        Ok(std::mem::take(&mut self.outcome))
    }

    /// Records the files that it has moved and the folders that it has created, also if it fails. Old files
    /// are kept until all moves are done.
    fn move_all(
        &mut self,
        disk: &mut impl FileSystem,
        moved: &mut Vec<Replaced>,
        created: &mut Vec<CreatedFolders>,
    ) -> Result<(), EmitError> {
        for (index, path) in self.changed.iter().enumerate() {
            let target = self.folder.join(path);
            if let Some(parent) = target.parent() {
                created.push(CreatedFolders::of(parent));
                disk.create_folder(parent)
                    .map_err(|error| EmitError::io("create", parent, error))?;
            }
            let fail = |error| EmitError::io("write", &target, error);
            let old = self.lock.staged(self.changed.len() + index);
            let old = match target.exists() {
                true => Some(disk.back_up(&target, &old).map_err(fail).map(|()| old)?),
                false => None,
            };
            disk.rename(&self.lock.staged(index), &target)
                .map_err(fail)?;
            moved.push(Replaced { target, old });
            self.outcome.written.push(path.clone());
        }
        for (index, path) in self.stale.iter().enumerate() {
            let target = self.folder.join(path);
            let old = self.lock.staged(2 * self.changed.len() + index);
            disk.rename(&target, &old)
                .map_err(|error| EmitError::io("remove", &target, error))?;
            let old = Some(old);
            moved.push(Replaced { target, old });
            self.outcome.removed.push(path.clone());
        }
        Ok(())
    }
}

/// A path with a new file or without a file, and the backup of its old file.
struct Replaced {
    target: PathBuf,
    old: Option<PathBuf>,
}

fn stage_with(
    disk: &mut impl FileSystem,
    files: &Files,
    folder: &Path,
    force: bool,
) -> Result<StagedWrite, EmitError> {
    check_folder(folder)?;
    let created = CreatedFolders::of(folder);
    disk.create_folder(folder)
        .map_err(|error| EmitError::io("create", folder, error))?;
    let lock = Lock::take(folder)?;
    let new_manifest = Manifest::of(files).text().into_bytes();
    let old_manifest = Manifest::read(folder)?;
    let mut outcome = WriteSummary::default();
    let mut conflicts = Vec::new();
    let mut changed: Vec<(&str, &[u8])> = Vec::new();

    let manifest_entry = (MANIFEST, new_manifest.as_slice());
    let entries = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()));
    // The manifest is last: it must only list files that are in place.
    for (path, content) in entries.chain([manifest_entry]) {
        let old = read_if_exists(&folder.join(path))?;
        match old {
            Some(old) if old == content => {
                outcome.unchanged.push(path.to_owned());
                continue;
            }
            Some(old) if !is_generated(&old_manifest, path, &old) => {
                conflicts.push(path.to_owned())
            }
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
        match read_if_exists(&folder.join(path))? {
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
    Ok(StagedWrite {
        folder: folder.to_owned(),
        changed: changed
            .into_iter()
            .map(|(path, _)| path.to_owned())
            .collect(),
        stale,
        outcome,
        lock,
        created,
    })
}

/// Writes a file atomically: to a temporary file in its folder, then moved into place. The folder is created
/// if necessary.
///
/// # Errors
/// [`EmitError`] with the file.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<(), EmitError> {
    write_all_atomic(&[(path, content)])
}

/// Writes several files as [`write_atomic`] does; none is moved into place before all are written.
///
/// # Errors
/// [`EmitError`] with the first file that cannot be written.
pub fn write_all_atomic(files: &[(&Path, &[u8])]) -> Result<(), EmitError> {
    let mut created = Vec::new();
    let mut ready = Vec::new();
    for &(path, content) in files {
        let target = resolve_target(path)?;
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        check_folder(folder)?;
        let fail = |error| EmitError::io("write", path, error);
        created.push(CreatedFolders::of(folder));
        std::fs::create_dir_all(folder).map_err(fail)?;
        let mut staged = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
        staged.write_all(content).map_err(fail)?;
        // Temporary files are readable by their owner only; this one gets the usual permissions.
        #[cfg(unix)]
        staged
            .as_file()
            .set_permissions(PermissionsExt::from_mode(0o644))
            .map_err(fail)?;
        ready.push((target, staged));
    }
    for (path, staged) in ready {
        staged
            .persist(&path)
            .map_err(|error| EmitError::io("write", &path, error.error))?;
    }
    for created in &mut created {
        created.keep();
    }
    Ok(())
}

/// The file that a path refers to, through links, which are kept; it need not exist. Devices and pipes are
/// rejected, because renaming a file over them would remove them.
fn resolve_target(path: &Path) -> Result<PathBuf, EmitError> {
    let not_a_file = || EmitError::NotAFile {
        path: path.to_owned(),
    };
    match path.symlink_metadata() {
        Ok(there) if there.is_file() => Ok(path.to_owned()),
        Ok(there) if there.is_symlink() => match path.canonicalize() {
            Ok(target) if target.is_file() => Ok(target),
            _ => Err(not_a_file()),
        },
        Ok(_) => Err(not_a_file()),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Whether the generator wrote a file's content. A manifest is recognised by its format.
fn is_generated(manifest: &Manifest, path: &str, content: &[u8]) -> bool {
    if path == MANIFEST {
        Manifest::parse(content).is_some()
    } else {
        manifest.origin(path, content) == Origin::Generated
    }
}

/// A file's content; `None` if it does not exist.
pub(super) fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, EmitError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(EmitError::io("read", path, error)),
    }
}

/// Checks that neither the folder nor one above it is something other than a folder.
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

/// Folders that did not exist before. Dropping this removes the empty ones, so that a failure leaves none.
#[derive(Debug)]
struct CreatedFolders(Vec<PathBuf>);

impl CreatedFolders {
    /// The folders that creating `folder` will create, the innermost first.
    fn of(folder: &Path) -> Self {
        let missing = folder
            .ancestors()
            .take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        Self(missing.map(Path::to_owned).collect())
    }

    /// Keeps the folders.
    fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFolders {
    fn drop(&mut self) {
        for folder in &self.0 {
            // A folder that is not empty, because of another program, is kept.
            drop(std::fs::remove_dir(folder));
        }
    }
}

/// Removes parent folders that became empty with the removal of a file, up to `folder`.
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
