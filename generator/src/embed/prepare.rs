//! Collects the kernels of a crate or workspace in a folder, so that it builds without a CUDA compiler.
//!
//! Calls are found by building: while `cargo check` runs with the variable
//! [`PREPARE_VARIABLE`](super::PREPARE_VARIABLE), each expansion records its call and returns a stub. Then
//! all kernels are compiled together, on all cores, and copied to the folder.

use super::build::{build, shared_compiler};
use super::entry::{CacheKey, StoreEntry};
use super::expand::{CallError, kernels_of_call};
use super::request::RequestedKernel;
use super::{KERNELS_VARIABLE, KernelMode, Settings};
use crate::emit::Files;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A kernel that a recorded call requests.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// Its key.
    pub key: CacheKey,
    requested: RequestedKernel,
}

/// Why kernels cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Invalid calls; the build has reported their positions.
    #[error("{0}")]
    Calls(String),
    /// Kernels that are not prepared and must not be compiled.
    #[error("{0}")]
    Missing(String),
    /// No compiler, or no writable directory for its output.
    #[error("{0}")]
    Compiler(String),
}

/// The kernels that the calls recorded in `folder` request, by key, without duplicates.
///
/// # Errors
/// A record that cannot be read, or an invalid call.
pub fn recorded(folder: &Path) -> Result<Vec<RecordedCall>, PrepareError> {
    let io = |path: &Path, source| PrepareError::Io {
        path: path.to_owned(),
        source,
    };
    let mut calls = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(|source| io(folder, source))? {
        let path = entry.map_err(|source| io(folder, source))?.path();
        let text = fs::read_to_string(&path).map_err(|source| io(&path, source))?;
        let mut parts = text.splitn(3, '\n');
        let (Some(base), Some(kind), Some(call)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let settings = Settings::from_env(Path::new(base)).map_err(PrepareError::Calls)?;
        let requested = kernels_of_call(kind, call, &settings).map_err(|call_errors| {
            let messages = call_errors
                .into_iter()
                .map(|CallError { message, .. }| message);
            PrepareError::Calls(messages.collect::<Vec<_>>().join("\n"))
        })?;
        for requested in requested {
            let key = CacheKey::new(&requested);
            calls
                .entry(key.file())
                .or_insert(RecordedCall { key, requested });
        }
    }
    Ok(calls.into_values().collect())
}

/// The files for the folder of prepared kernels at `folder`: kernels that are already there or in the cache,
/// and, if `make` is true, those that are compiled into the cache. `on_done` is called with the number of
/// finished kernels and their total.
///
/// # Errors
/// Why a kernel cannot be compiled.
pub fn prepared_files(
    calls: &[RecordedCall],
    folder: &Path,
    make: bool,
    settings: &Settings,
    on_done: impl Fn(usize, usize) + Sync,
) -> Result<Files, PrepareError> {
    let cache = settings.cache.clone().map_err(PrepareError::Compiler)?;
    let stores: &[&Path] = if make { &[folder, &cache] } else { &[folder] };
    let find = |key: &CacheKey| {
        let mut found = stores.iter();
        found.find_map(|store| Some((*store, StoreEntry::find(store, key)?)))
    };
    let missing = calls.iter().filter(|call| find(&call.key).is_none());
    let missing: Vec<(&RequestedKernel, &CacheKey)> =
        missing.map(|call| (&call.requested, &call.key)).collect();
    if let Some((_, first)) = missing.first() {
        let others = match missing.len() - 1 {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        let missing_names = format!("`{}`{others}", first.name());
        if !make {
            return Err(PrepareError::Missing(format!(
                "{missing_names} is not in {}, or was prepared by a different version; run the same command without --check",
                folder.display()
            )));
        }
        if settings.mode == KernelMode::Offline {
            return Err(PrepareError::Compiler(format!(
                "{missing_names} must be compiled, which {KERNELS_VARIABLE}=offline forbids; unset it"
            )));
        }
        let finished = AtomicUsize::new(0);
        let made = build(&missing, &cache, &shared_compiler, |_| {
            on_done(finished.fetch_add(1, Ordering::Relaxed) + 1, missing.len());
        });
        let failures: Vec<String> = made
            .into_iter()
            .filter_map(|made| made.err().map(|error| error.message))
            .collect();
        if !failures.is_empty() {
            return Err(PrepareError::Calls(failures.join("\n")));
        }
    }
    let mut files = Files::new();
    // Changed line ends would change keys and images.
    files.insert(".gitattributes".to_owned(), b"* -text\n".to_vec());
    for call in calls {
        let (store, entry) = find(&call.key).ok_or_else(|| {
            let name = call.key.name();
            PrepareError::Compiler(format!(
                "{name} was removed from the cache during the run; run the same command again"
            ))
        })?;
        for name in entry.includes.iter().cloned().chain([call.key.file()]) {
            let path = store.join(&name);
            let content = fs::read(&path).map_err(|source| PrepareError::Io { path, source })?;
            files.insert(name, content);
        }
    }
    Ok(files)
}
