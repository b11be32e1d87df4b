//! Tensors in other files than the model's. A model from elsewhere must not read files that its user did not mean, so their paths are
//! checked: no absolute path, no `..`, no links, symbolic or hard.

use super::message::Entry;
use std::fs::{File, Metadata};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The bytes of an external tensor with `size` bytes.
pub fn read(entries: &[Entry], folder: Option<&Path>, size: usize) -> Result<Vec<u8>, String> {
    let mut location = None;
    let (mut offset, mut length) = (0, None);
    for entry in entries {
        let value = entry.value.as_deref().unwrap_or_default();
        let number = |what: &str| {
            let number = value.parse::<u64>();
            number.map_err(|_| {
                format!(
                    "the {what} of its external data is `{}`",
                    value.escape_debug()
                )
            })
        };
        match entry.key.as_deref().unwrap_or_default() {
            "location" => location = Some(value),
            "offset" => offset = number("offset")?,
            "length" => length = Some(number("length")?),
            "checksum" => {}
            other => {
                return Err(format!(
                    "its external data have an unknown key `{}`",
                    other.escape_debug()
                ));
            }
        }
    }
    let location = location.ok_or("its external data have no location")?;
    if length.is_some_and(|length| length != size as u64) {
        return Err(format!(
            "its external data have another length than the {size} bytes of its shape"
        ));
    }
    let folder = folder.ok_or("external data are read from a folder only")?;
    let path = checked_path(location, folder)?;
    let shown = location.escape_debug().to_string();
    let cannot =
        |error: std::io::Error| format!("its external data `{shown}` cannot be read: {error}");
    let mut file = open(&path).map_err(cannot)?;
    let status = file.metadata().map_err(cannot)?;
    if !status.is_file() {
        return Err(format!("its external data `{shown}` are not a file"));
    }
    check_links(&status, &shown)?;
    let end = offset.checked_add(size as u64);
    if end.is_none_or(|end| end > status.len()) {
        return Err(format!(
            "its external data are {size} bytes at {offset} of `{shown}`, which has {} bytes",
            status.len()
        ));
    }
    file.seek(SeekFrom::Start(offset)).map_err(cannot)?;
    let mut bytes = vec![0; size];
    file.read_exact(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

/// Opens a file for reading. What was checked before may have been replaced: a link is not followed, and a pipe does not block.
#[cfg(unix)]
fn open(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = File::options();
    options.read(true);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

/// The path of a file in the folder, of which no part is a link.
fn checked_path(location: &str, folder: &Path) -> Result<PathBuf, String> {
    let shown = location.escape_debug();
    let relative = Path::new(location);
    let mut path = folder.to_owned();
    for part in relative.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                path.push(name);
                let status = path.symlink_metadata();
                let status = status.map_err(|error| {
                    format!("its external data `{shown}` cannot be read: {error}")
                })?;
                if status.is_symlink() {
                    return Err(format!(
                        "its external data `{shown}` are behind a symbolic link"
                    ));
                }
            }
            _ => {
                return Err(format!(
                    "its external data `{shown}` are outside the model's folder"
                ));
            }
        }
    }
    match path.is_file() {
        true => Ok(path),
        false => Err(format!("its external data `{shown}` are not a file")),
    }
}

/// A hard link to a file elsewhere looks like a file of the folder.
#[cfg(unix)]
fn check_links(status: &Metadata, shown: &str) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt as _;
    match status.nlink() {
        0 | 1 => Ok(()),
        _ => Err(format!(
            "its external data `{shown}` have several hard links; copy the file"
        )),
    }
}

#[cfg(not(unix))]
fn check_links(_: &Metadata, _: &str) -> Result<(), String> {
    Ok(())
}
