//! The cache directory, for files that can be generated or downloaded again.

use etcetera::{BaseStrategy, choose_base_strategy};
use std::env;
use std::path::{PathBuf, absolute};

/// The environment variable that names the cache directory.
pub const CACHE_DIR_VARIABLE: &str = "TDC_CACHE_DIR";

/// Why there is no cache directory.
#[derive(Debug, thiserror::Error)]
pub enum CacheDirError {
    /// Neither the variable nor a home directory is set.
    #[error(
        "no cache directory: there is no home directory; set {CACHE_DIR_VARIABLE} to a writable directory"
    )]
    NoHome(#[from] etcetera::HomeDirError),
    /// The variable's path cannot be made absolute.
    #[error("{CACHE_DIR_VARIABLE}={path:?} cannot be resolved to an absolute path: {source}")]
    Path {
        /// The variable's value.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// `$TDC_CACHE_DIR`, else `tdc` in the platform's cache directory. It need not exist.
///
/// # Errors
/// [`CacheDirError`] if neither exists.
pub fn cache_dir() -> Result<PathBuf, CacheDirError> {
    match env::var_os(CACHE_DIR_VARIABLE).filter(|value| !value.is_empty()) {
        Some(path) => absolute(&path).map_err(|source| CacheDirError::Path {
            path: path.into(),
            source,
        }),
        None => Ok(choose_base_strategy()?.cache_dir().join("tdc")),
    }
}
