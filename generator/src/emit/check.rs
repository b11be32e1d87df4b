//! Compares a folder with what would be written to it.

use super::manifest::{MANIFEST, Manifest, Origin, unix_lines};
use super::write::{check_folder, read_if_exists};
use super::{EmitError, Files};
use similar::TextDiff;
use std::fmt;
use std::path::Path;

/// Maximal number of lines of a diff.
const MAX_DIFF_LINES: usize = 24;

/// A file that differs from what would be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Its path in the folder.
    pub path: String,
    /// How it differs.
    pub kind: DifferenceKind,
}

/// How a file differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DifferenceKind {
    /// It is missing.
    Missing,
    /// It was written by an earlier run and would be removed.
    Stale,
    /// Only its line ends differ.
    LineEnds,
    /// Its content differs: the first lines of a unified diff from the folder to the new content.
    Content(String),
    /// Its content differs, and is not text.
    Bytes,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.kind {
            DifferenceKind::Missing => write!(f, "{path}: missing"),
            DifferenceKind::Stale => write!(f, "{path}: no longer generated"),
            DifferenceKind::LineEnds => write!(
                f,
                "{path}: only the line ends differ (CR LF); configure your version control to keep LF"
            ),
            DifferenceKind::Content(diff) => write!(f, "{path}: differs\n{diff}"),
            DifferenceKind::Bytes => write!(f, "{path}: differs"),
        }
    }
}

/// How a file beside the generated ones, such as the weights, differs from what would be written; `None` if it does not.
///
/// # Errors
/// [`EmitError`] if the file cannot be read.
pub fn check_bytes(
    path: &str,
    expected: &[u8],
    folder: &Path,
) -> Result<Option<Difference>, EmitError> {
    let kind = match read_if_exists(&folder.join(path))? {
        None => DifferenceKind::Missing,
        Some(found) if found == expected => return Ok(None),
        Some(_) => DifferenceKind::Bytes,
    };
    Ok(Some(Difference {
        path: path.to_owned(),
        kind,
    }))
}

/// Every file of `folder` that [`write`](super::write()) would change; empty if the folder is up to date.
///
/// # Errors
/// [`EmitError`] if the folder cannot be read.
pub fn check(files: &Files, folder: &Path) -> Result<Vec<Difference>, EmitError> {
    check_folder(folder)?;
    let old_manifest = Manifest::read(folder)?;
    let mut differences = Vec::new();
    let manifest = Manifest::of(files).text().into_bytes();
    let entries = files
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()));
    for (path, expected) in entries.chain([(MANIFEST, manifest.as_slice())]) {
        let kind = match read_if_exists(&folder.join(path))? {
            None => DifferenceKind::Missing,
            Some(found) if found == expected => continue,
            Some(found) if unix_lines(&found) == unix_lines(expected) => DifferenceKind::LineEnds,
            Some(found) => DifferenceKind::Content(diff(path, &found, expected)),
        };
        differences.push(Difference {
            path: path.to_owned(),
            kind,
        });
    }
    for path in old_manifest
        .paths()
        .filter(|path| !files.contains_key(*path))
    {
        if let Some(content) = read_if_exists(&folder.join(path))?
            && old_manifest.origin(path, &content) == Origin::Generated
        {
            differences.push(Difference {
                path: path.to_owned(),
                kind: DifferenceKind::Stale,
            });
        }
    }
    Ok(differences)
}

/// The first lines of a unified diff.
fn diff(path: &str, found: &[u8], expected: &[u8]) -> String {
    let (found, expected) = (
        String::from_utf8_lossy(found),
        String::from_utf8_lossy(expected),
    );
    let diff = TextDiff::from_lines(&found, &expected);
    let text = diff
        .unified_diff()
        .context_radius(2)
        .header(path, &format!("{path} (generated)"))
        .to_string();
    let lines: Vec<_> = text.lines().collect();
    let mut shown = lines[..lines.len().min(MAX_DIFF_LINES)].join("\n");
    if lines.len() > MAX_DIFF_LINES {
        shown += &format!("\n... {} more lines", lines.len() - MAX_DIFF_LINES);
    }
    shown
}
