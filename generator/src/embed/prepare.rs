//! The kernels of a crate or workspace in a folder of their own, so that it builds without a compiler of CUDA.
//!
//! Calls are found by building: while `cargo check` runs with the variable [`PREPARE_VARIABLE`](super::PREPARE_VARIABLE), each
//! expansion writes its call down and gives a stub. Then all kernels are made together, on all cores, and copied to the folder.

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

/// A kernel that some call asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// Its key.
    pub key: CacheKey,
    requested: RequestedKernel,
}

/// Kernels cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Calls that are wrong; the build told where they stand.
    #[error("{0}")]
    Calls(String),
    /// Kernels that are not prepared, where none is to be made.
    #[error("{0}")]
    Missing(String),
    /// No compiler, or no place for what it makes.
    #[error("{0}")]
    Compiler(String),
}

/// The kernels that the calls written down in `folder` ask for, by key, each once.
///
/// # Errors
/// A record that cannot be read, or a call that is wrong.
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

/// The files of the folder of prepared kernels at `folder`: as they are there or in the cache, else, if `make`, made in the cache.
/// `on_done` is told how many of how many are finished.
///
/// # Errors
/// What keeps a kernel from being made.
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
                "{missing_names} is not in {}, or of another version; run the same without --check",
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
        let refused: Vec<String> = made
            .into_iter()
            .filter_map(|made| made.err().map(|error| error.message))
            .collect();
        if !refused.is_empty() {
            return Err(PrepareError::Calls(refused.join("\n")));
        }
    }
    let mut files = Files::new();
    // Line ends that git changes would change keys and images.
    files.insert(".gitattributes".to_owned(), b"* -text\n".to_vec());
    for call in calls {
        let (store, entry) = find(&call.key).ok_or_else(|| {
            let name = call.key.name();
            PrepareError::Compiler(format!(
                "{name} was removed from the cache meanwhile; run again"
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
