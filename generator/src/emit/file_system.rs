//! The file operations for changing a folder, as a trait, so that tests can let each of them fail.

use std::io;
use std::path::Path;

/// File operations.
pub(super) trait FileSystem {
    /// Creates a folder and its parents.
    fn create_folder(&mut self, path: &Path) -> io::Result<()>;
    /// Writes a new file.
    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<()>;
    /// Renames a file, replacing the target.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which it keeps when the first name is replaced.
    fn back_up(&mut self, path: &Path, name: &Path) -> io::Result<()>;
}

/// The disk.
pub(super) struct Disk;

impl FileSystem for Disk {
    fn create_folder(&mut self, path: &Path) -> io::Result<()> {
        std::fs::create_dir_all(path)
    }

    fn write(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        std::fs::write(path, content)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn back_up(&mut self, path: &Path, name: &Path) -> io::Result<()> {
        // Some file systems have no hard links.
        std::fs::hard_link(path, name).or_else(|_| std::fs::copy(path, name).map(drop))
    }
}
