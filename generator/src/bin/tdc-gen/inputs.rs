//! Input files of a command: outputs must not overwrite them, and errors in them name the file.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Rejects an output path that is an input or another output.
pub fn reject_overwriting<'a>(
    inputs: impl IntoIterator<Item = &'a Path>,
    outputs: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let inputs: Vec<_> = inputs.into_iter().map(place).collect();
    let mut known = Vec::new();
    for output in outputs {
        let place = place(output);
        if inputs.contains(&place) {
            return Err(Failure::Input(format!(
                "{} is an input and would be overwritten; choose another output file",
                output.display()
            )));
        }
        if known.contains(&place) {
            return Err(Failure::Input(format!(
                "two outputs would be written to {}; choose different files",
                output.display()
            )));
        }
        known.push(place);
    }
    Ok(())
}

/// Errors, one per line, with the name of the file if they are in one.
pub fn in_file(file: Option<&Path>, error: &dyn Display) -> Failure {
    let error = error.to_string();
    let lines = error.lines().map(|line| match file {
        Some(file) => format!("{}: {line}", file.display()),
        None => line.to_owned(),
    });
    Failure::Input(lines.collect::<Vec<_>>().join("\nerror: "))
}

/// The path with links resolved; also that of a file that does not exist yet.
fn place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let folder = match path.parent() {
            Some(folder) if folder != OsStr::new("") => folder,
            _ => Path::new("."),
        };
        let folder = folder.canonicalize();
        folder.map_or_else(
            |_| path.to_owned(),
            |folder| folder.join(path.file_name().unwrap_or_default()),
        )
    })
}
