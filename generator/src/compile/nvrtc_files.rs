//! The files of an NVRTC in a directory.

use super::CompilerVersion;
use std::fs;
use std::path::{Path, PathBuf};

/// The two libraries of an NVRTC.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NvrtcFiles {
    /// The version in the name of the builtins.
    pub version: CompilerVersion,
    /// `libnvrtc.so.13`.
    pub library: PathBuf,
    /// `libnvrtc-builtins.so.13.0`, which the library opens when it compiles.
    pub builtins: PathBuf,
}

impl NvrtcFiles {
    /// The newest NVRTC in `dir`, of the given major version if there is one.
    pub fn in_dir(dir: &Path, major: Option<u32>) -> Option<Self> {
        let entries = fs::read_dir(dir).ok()?;
        entries
            .filter_map(|entry| {
                let version = builtins_version(entry.ok()?.file_name().to_str()?)?;
                let files = Self {
                    version,
                    library: dir.join(format!("libnvrtc.so.{}", version.major)),
                    builtins: dir.join(format!("libnvrtc-builtins.so.{version}")),
                };
                let is_requested = major.is_none_or(|major| major == version.major);
                (is_requested && files.library.is_file()).then_some(files)
            })
            .max_by_key(|files| files.version)
    }
}

/// `13.0` of `libnvrtc-builtins.so.13.0`. Names with `.alt.` or a third number belong to other files or
/// links.
fn builtins_version(file: &str) -> Option<CompilerVersion> {
    let (major, minor) = file
        .strip_prefix("libnvrtc-builtins.so.")?
        .split_once('.')?;
    Some(CompilerVersion {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_pair_is_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let found =
            |major| NvrtcFiles::in_dir(dir.path(), major).map(|files| files.version.to_string());
        assert_eq!(found(None), None);
        let touch = |file: &str| fs::write(dir.path().join(file), "").unwrap();
        touch("libnvrtc-builtins.so.13.0");
        touch("libnvrtc-builtins.alt.so.13.0");
        touch("libnvrtc.alt.so.13");
        assert_eq!(found(None), None, "the library itself is missing");
        touch("libnvrtc.so.13");
        touch("libnvrtc-builtins.so");
        touch("libnvrtc-builtins.so.13.0.88");
        assert_eq!(found(None).as_deref(), Some("13.0"));
        touch("libnvrtc.so.12");
        touch("libnvrtc-builtins.so.12.9");
        touch("libnvrtc-builtins.so.13.10");
        assert_eq!(found(Some(12)).as_deref(), Some("12.9"));
        assert_eq!(found(None).as_deref(), Some("13.10"));
        assert_eq!(found(Some(14)), None);
    }
}
