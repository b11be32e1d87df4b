//! Settings for embedded kernels from the environment.

use std::path::{Path, PathBuf};
use tdc_runtime::Arch;

/// The variable for the kernel mode: `auto`, `offline` or `stub`.
pub const KERNELS_VARIABLE: &str = "TDC_KERNELS";

/// The variable for the architectures of calls that specify neither architecture nor GPU, such as
/// `sm_80,sm_90`.
pub const ARCH_VARIABLE: &str = "TDC_ARCH";

/// The variable for the folder where calls are recorded instead of being compiled; set by `tdc-gen prepare`.
pub const PREPARE_VARIABLE: &str = "TDC_PREPARE";

/// All variables that an expansion depends on; a change of one must cause a new expansion.
pub const VARIABLES: [&str; 5] = [
    KERNELS_VARIABLE,
    ARCH_VARIABLE,
    PREPARE_VARIABLE,
    "TDC_CACHE_DIR",
    "TDC_NVRTC_DIR",
];

/// The default architectures: machine code for Ampere and Ada, and for Hopper; PTX for newer ones.
pub const DEFAULT_ARCHS: [Arch; 2] = [Arch::new(80), Arch::new(90)];

/// The folder of prepared kernels in a crate or workspace.
pub const PREPARED_DIR: &str = "generated/kernels";

/// How kernels are provided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelMode {
    /// Prepared, else cached, else compiled.
    #[default]
    Auto,
    /// Prepared or cached, never compiled.
    Offline,
    /// Types only: documentation and editors.
    Stub,
}

/// The settings of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The crate's folder: paths in calls are relative to it.
    pub base: PathBuf,
    /// How kernels are provided.
    pub mode: KernelMode,
    /// If a kernel is not in a store, use a stub instead of compiling: a language server must not block.
    pub stub_on_miss: bool,
    /// Architectures of calls that specify none.
    pub archs: Vec<Arch>,
    /// The folder of prepared kernels.
    pub prepared: Option<PathBuf>,
    /// The folder of the cache, or why there is none.
    pub cache: Result<PathBuf, String>,
    /// The folder in which calls are recorded.
    pub record: Option<PathBuf>,
}

impl Settings {
    /// Reads the variables, for a crate in the folder `base`.
    ///
    /// # Errors
    /// A variable with an invalid value.
    pub fn from_env(base: &Path) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let mode = match variable(KERNELS_VARIABLE).as_deref() {
            // docs.rs has neither network access nor a writable cache.
            None if variable("DOCS_RS").is_some() => KernelMode::Stub,
            None | Some("auto") => KernelMode::Auto,
            Some("offline") => KernelMode::Offline,
            Some("stub") => KernelMode::Stub,
            Some(other) => {
                return Err(format!(
                    "{KERNELS_VARIABLE}={other} is unknown; set it to auto, offline or stub"
                ));
            }
        };
        let archs = match variable(ARCH_VARIABLE) {
            None => DEFAULT_ARCHS.to_vec(),
            Some(list) => named_archs(&list)?,
        };
        let server = std::env::current_exe().is_ok_and(|program| {
            let name = program.file_stem().unwrap_or_default().to_string_lossy();
            name.contains("rust-analyzer")
        });
        Ok(Self {
            base: base.to_owned(),
            mode,
            stub_on_miss: server,
            archs,
            prepared: prepared_folder(base),
            cache: cache_folder(),
            record: variable(PREPARE_VARIABLE).map(PathBuf::from),
        })
    }
}

/// Parses `sm_80,sm_90`: ascending, without duplicates.
fn named_archs(list: &str) -> Result<Vec<Arch>, String> {
    let read = |word: &str| {
        let arch = word.trim().parse::<Arch>().map_err(|e| e.to_string())?;
        crate::config::text::check_compilable(arch)
    };
    let archs: Result<Vec<_>, _> = list.split(',').map(read).collect();
    let mut archs = archs.map_err(|error| format!("{ARCH_VARIABLE}={list}: {error}"))?;
    archs.sort_unstable();
    archs.dedup();
    Ok(archs)
}

/// The folder of prepared kernels in the crate or its nearest parent folder.
fn prepared_folder(base: &Path) -> Option<PathBuf> {
    let mut folders = base.ancestors().map(|folder| folder.join(PREPARED_DIR));
    folders.find(|folder| folder.is_dir())
}

#[cfg(feature = "kernels")]
fn cache_folder() -> Result<PathBuf, String> {
    let folder = crate::compile::cache::cache_dir();
    folder
        .map(|folder| folder.join("kernels"))
        .map_err(|error| error.to_string())
}

#[cfg(not(feature = "kernels"))]
fn cache_folder() -> Result<PathBuf, String> {
    Err("only prepared kernels can be used, because the feature `nvrtc` of tdc is off; run `tdc-gen prepare`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_sorted_and_checked() {
        let archs = |list| named_archs(list);
        assert_eq!(
            archs("sm_90, 80,sm_90"),
            Ok(vec![Arch::new(80), Arch::new(90)])
        );
        assert_eq!(
            archs("sm_90,hopper").unwrap_err(),
            "TDC_ARCH=sm_90,hopper: `hopper` is not an architecture; write it as sm_90 or 90"
        );
        assert!(
            archs("sm_61")
                .unwrap_err()
                .contains("not compiled for sm_61")
        );
        assert!(archs("").is_err());
    }

    #[test]
    fn prepared_kernels_are_found_above() {
        let top = tempfile::tempdir().unwrap();
        let base = top.path().join("a/b");
        std::fs::create_dir_all(&base).unwrap();
        assert_eq!(prepared_folder(&base), None);
        let outer = top.path().join(PREPARED_DIR);
        std::fs::create_dir_all(&outer).unwrap();
        assert_eq!(prepared_folder(&base), Some(outer));
        let own = base.join(PREPARED_DIR);
        std::fs::create_dir_all(&own).unwrap();
        assert_eq!(prepared_folder(&base), Some(own));
    }
}
