//! `manifest.txt`: the checksum of each file that the generator wrote, by which it recognises its files.

use super::{EmitError, Files};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use tdc_runtime::Checksum;

/// Name of the manifest in a folder.
pub const MANIFEST: &str = "manifest.txt";

const HEADER: &str = "# Files written by tdc, each with its checksum. A file that was changed since is not overwritten.\n";

/// Checksum by path.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Manifest(BTreeMap<String, u64>);

/// State of a file according to the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Unchanged since the generator wrote it, except that line ends may have been converted.
    Generated,
    /// Written by the generator and edited since.
    Edited,
    /// Not written by the generator.
    Foreign,
}

impl Manifest {
    /// The manifest of files to write.
    pub(super) fn of(files: &Files) -> Self {
        let sums = files
            .iter()
            .map(|(path, content)| (path.clone(), Checksum::of(content)));
        Self(sums.collect())
    }

    /// The manifest of a folder; empty if there is none, or if the file is not a manifest.
    pub(super) fn read(folder: &Path) -> Result<Self, EmitError> {
        let path = folder.join(MANIFEST);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Self::parse(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(EmitError::io("read", &path, error)),
        }
    }

    /// Parses a manifest; `None` if the text is not one.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(HEADER.trim_end()) {
            return None;
        }
        let sums = lines.map(|line| {
            let (sum, path) = line.split_once("  ")?;
            let inside = path.split('/').all(|part| {
                !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', ':'])
            });
            let sum = u64::from_str_radix(sum, 16).ok()?;
            inside.then(|| (path.to_owned(), sum))
        });
        sums.collect::<Option<_>>().map(Self)
    }

    /// The text of the manifest.
    pub(super) fn text(&self) -> String {
        let lines = self
            .0
            .iter()
            .map(|(path, sum)| format!("{sum:016x}  {path}\n"));
        std::iter::once(HEADER.to_owned()).chain(lines).collect()
    }

    /// Paths, in order.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The state of a file with the given content.
    pub(super) fn origin(&self, path: &str, content: &[u8]) -> Origin {
        match self.0.get(path) {
            None => Origin::Foreign,
            Some(&sum) if Checksum::of(content) == sum => Origin::Generated,
            Some(&sum) if Checksum::of(&unix_lines(content)) == sum => Origin::Generated,
            Some(_) => Origin::Edited,
        }
    }
}

/// The content with CR LF replaced by LF.
pub(super) fn unix_lines(content: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(content.len());
    for (index, &byte) in content.iter().enumerate() {
        if byte != b'\r' || content.get(index + 1) != Some(&b'\n') {
            lines.push(byte);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes() {
        let files = Files::from([
            ("a b.txt".to_owned(), b"x\n".to_vec()),
            ("src/c.cu".to_owned(), b"".to_vec()),
        ]);
        let manifest = Manifest::of(&files);
        assert_eq!(
            Manifest::parse(manifest.text().as_bytes()),
            Some(manifest.clone())
        );
        assert_eq!(manifest.origin("a b.txt", b"x\n"), Origin::Generated);
        assert_eq!(manifest.origin("a b.txt", b"x\r\n"), Origin::Generated);
        assert_eq!(manifest.origin("a b.txt", b"y\n"), Origin::Edited);
        assert_eq!(manifest.origin("other", b"x\n"), Origin::Foreign);
    }

    #[test]
    fn refuses_other_texts_and_paths_that_lead_out() {
        assert_eq!(Manifest::parse(b"notes\n"), None);
        for path in ["../x", "/etc/x", "a//b", "C:/x", "a\\..\\b", "."] {
            let text = format!("{HEADER}0000000000000000  {path}\n");
            assert_eq!(Manifest::parse(text.as_bytes()), None, "{path}");
        }
    }
}
