//! Expands calls of the macros.

use super::entry::{CacheKey, StoreEntry, has_other_version};
use super::request::{RequestedKernel, requested_kernels};
use super::{KERNELS_VARIABLE, KernelMode, Settings, expression};
use crate::config::{ConfigErrors, KernelRequest, Position, text};
use crate::plan::KernelOp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tdc_runtime::{Checksum, Conv, ConvShape, FusedOps, LowRank, Tucker};

/// An error in a call, with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError {
    /// Its position; `None` concerns the complete call.
    pub at: Option<Position>,
    /// The error and its remedy.
    pub message: String,
}

/// The expansion of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// A file with the kernel's expression, or the expression.
    pub kernel: Result<PathBuf, String>,
    /// The layer's name.
    pub layer: String,
    /// The kernel's type as Rust source.
    pub kind: &'static str,
    /// Files to watch, absolute.
    pub tracked: Vec<PathBuf>,
}

/// The errors of a config text, with positions.
pub(super) fn call_errors(errors: &ConfigErrors) -> Vec<CallError> {
    let mut call_errors: Vec<CallError> = errors
        .first
        .iter()
        .map(|error| CallError {
            at: error.position,
            message: error.message.clone(),
        })
        .collect();
    if errors.omitted > 0 {
        call_errors.push(CallError {
            at: None,
            message: format!("and {} more errors", errors.omitted),
        });
    }
    call_errors
}

/// Expands a call of `kernel!`.
///
/// # Errors
/// All errors in the call and in the files that it names, or why its kernel cannot be compiled.
pub fn expand(call: &str, settings: &Settings) -> Result<Expansion, Vec<CallError>> {
    let request = text::parse(call, "kernel!").map_err(|errors| call_errors(&errors))?;
    let requested = requested_kernels(&request, settings)?;
    record(settings, "kernel", call).map_err(whole)?;
    let found = resolve(&requested, settings).map_err(|error| error.at(&request))?;
    let found = found.into_iter().next();
    found.ok_or_else(|| whole("empty call".to_owned()))
}

/// Expands a call of `kernels!`, without the name of its module: the constants by the names of their layers.
///
/// # Errors
/// As [`expand`].
pub fn expand_config(
    call: &str,
    settings: &Settings,
) -> Result<Vec<(String, Expansion)>, Vec<CallError>> {
    let request = text::parse_config(call, "kernels!").map_err(|errors| call_errors(&errors))?;
    let requested = requested_kernels(&request, settings)?;
    let mut layer_of: BTreeMap<String, &str> = BTreeMap::new();
    for requested in &requested {
        let layer = &requested.layer.name[..];
        if let Some(other) = layer_of.insert(constant_name(layer), layer) {
            let name = constant_name(layer);
            let error = KernelError::new(format!(
                "the layers `{other}` and `{layer}` would both be the constant {name}; rename one of them"
            ));
            return Err(error.at(&request));
        }
    }
    record(settings, "kernels", call).map_err(whole)?;
    let found = resolve(&requested, settings).map_err(|error| error.at(&request))?;
    let names = requested
        .iter()
        .map(|requested| constant_name(&requested.layer.name));
    Ok(names.zip(found).collect())
}

/// The expression of a kernel without code, of the type that an invalid call was probably meant to have. It
/// replaces the call, so that the compiler reports the call's own errors only.
pub fn placeholder_kernel(call: &str) -> String {
    let shape = ConvShape::new(1, 1, 1, 1, 1, 1);
    let fused = FusedOps::default();
    let op = match text::op_word(call) {
        "tucker" => KernelOp::Tucker(Tucker {
            shape,
            ranks: [1, 1],
            fused,
        }),
        "low_rank" => KernelOp::LowRank(LowRank {
            shape,
            rank: 1,
            fused,
        }),
        _ => KernelOp::Conv(Conv { shape, fused }),
    };
    expression::stub("", &op)
}

/// The kernels that a recorded call requests.
///
/// # Errors
/// As [`expand`].
#[cfg(all(feature = "emit", feature = "kernels"))]
pub(super) fn kernels_of_call(
    kind: &str,
    call: &str,
    settings: &Settings,
) -> Result<Vec<RequestedKernel>, Vec<CallError>> {
    let parse = match kind {
        "kernels" => text::parse_config,
        _ => text::parse,
    };
    let request = parse(call, kind).map_err(|errors| call_errors(&errors))?;
    requested_kernels(&request, settings)
}

/// Why a kernel is not available.
#[derive(Debug)]
pub(super) struct KernelError {
    /// The key of the call that causes it.
    pub key: Option<&'static str>,
    /// The error and its remedy.
    pub message: String,
}

impl KernelError {
    pub fn new(message: String) -> Self {
        Self { key: None, message }
    }

    fn at(self, request: &KernelRequest) -> Vec<CallError> {
        vec![CallError {
            at: Some(request.position(self.key)),
            message: self.message,
        }]
    }
}

fn whole(message: String) -> Vec<CallError> {
    vec![CallError { at: None, message }]
}

/// `layer1.0.conv1` as `LAYER1_0_CONV1`.
fn constant_name(layer: &str) -> String {
    let upper = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_uppercase(),
        false => '_',
    };
    let name: String = layer.chars().map(upper).collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// Finds the requested kernels in the stores and compiles those that are missing.
fn resolve(
    requested: &[RequestedKernel],
    settings: &Settings,
) -> Result<Vec<Expansion>, KernelError> {
    let stub = settings.mode == KernelMode::Stub || settings.record.is_some();
    let keys: Vec<CacheKey> = requested.iter().map(CacheKey::new).collect();
    let mut found: Vec<Option<StoreEntry>> = keys
        .iter()
        .map(|key| if stub { None } else { find(key, settings) })
        .collect();
    if found.iter().any(Option::is_none) && !stub && !settings.stub_on_miss {
        make(requested, &keys, &mut found, settings)?;
    }
    let all = requested.iter().zip(&keys).zip(found);
    let expansions = all.map(|((requested, key), entry)| {
        let op = KernelOp::of(&requested.layer);
        Expansion {
            kernel: match entry {
                Some(entry) => Ok(entry.file),
                None => Err(expression::stub(key.name(), &op)),
            },
            layer: requested.layer.name.clone(),
            kind: expression::kernel_type(&op),
            tracked: requested.tracked.clone(),
        }
    });
    Ok(expansions.collect())
}

/// Finds a kernel in the stores.
fn find(key: &CacheKey, settings: &Settings) -> Option<StoreEntry> {
    let folders = [settings.prepared.as_deref(), settings.cache.as_deref().ok()];
    let mut folders = folders.into_iter().flatten();
    folders.find_map(|folder| StoreEntry::find(folder, key))
}

/// Compiles the missing kernels.
#[cfg(feature = "kernels")]
fn make(
    requested: &[RequestedKernel],
    keys: &[CacheKey],
    found: &mut [Option<StoreEntry>],
    settings: &Settings,
) -> Result<(), KernelError> {
    use super::build::{build, shared_compiler};
    if settings.mode == KernelMode::Offline {
        return Err(not_prepared(keys, found, settings));
    }
    let cache = settings.cache.as_deref();
    let cache = cache.map_err(|error| KernelError::new(error.clone()))?;
    let names = missing(keys, found);
    let compiler = || {
        shared_compiler().map_err(|error| {
            format!(
                "{names} must be compiled, and {error}; or run `tdc-gen prepare` on a machine with a CUDA compiler and commit {}, or set \
                 {KERNELS_VARIABLE}=stub to build without kernels",
                super::settings::PREPARED_DIR
            )
        })
    };
    let indices: Vec<usize> = (0..found.len())
        .filter(|&index| found[index].is_none())
        .collect();
    let missing: Vec<_> = indices
        .iter()
        .map(|&index| (&requested[index], &keys[index]))
        .collect();
    let made = build(&missing, cache, &compiler, |_| ());
    for (index, entry) in indices.into_iter().zip(made) {
        found[index] = Some(entry?);
    }
    Ok(())
}

/// Without a compiler a missing kernel is an error.
#[cfg(not(feature = "kernels"))]
fn make(
    _: &[RequestedKernel],
    keys: &[CacheKey],
    found: &mut [Option<StoreEntry>],
    settings: &Settings,
) -> Result<(), KernelError> {
    Err(not_prepared(keys, found, settings))
}

fn not_prepared(
    keys: &[CacheKey],
    found: &[Option<StoreEntry>],
    settings: &Settings,
) -> KernelError {
    let place = match &settings.prepared {
        Some(folder) => folder.display().to_string(),
        None => format!(
            "{} of this crate or of a folder above it",
            super::settings::PREPARED_DIR
        ),
    };
    let mut absent = keys.iter().zip(found).filter(|(_, entry)| entry.is_none());
    if let Some(folder) = &settings.prepared
        && absent.any(|(key, _)| has_other_version(folder, key))
    {
        return KernelError::new(format!(
            "{} in {place} was prepared by another version of tdc-gen than this tdc; install tdc-gen {} from the same sources, \
             run `tdc-gen prepare` and commit what it writes",
            missing(keys, found),
            env!("CARGO_PKG_VERSION"),
        ));
    }
    let why = match settings.mode {
        KernelMode::Offline => format!("{KERNELS_VARIABLE}=offline forbids compiling"),
        _ => "the feature `nvrtc` of tdc is off".to_owned(),
    };
    KernelError::new(format!(
        "{} is not in {place}, and {why}; run `tdc-gen prepare` and commit what it writes",
        missing(keys, found)
    ))
}

/// The names of missing kernels, for messages.
fn missing(keys: &[CacheKey], found: &[Option<StoreEntry>]) -> String {
    let mut missing = keys.iter().zip(found).filter(|(_, entry)| entry.is_none());
    let first = missing.next().map_or("a kernel", |(key, _)| key.name());
    match missing.count() {
        0 => format!("`{first}`"),
        others => format!("`{first}` and {others} others"),
    }
}

/// Records the call for `tdc-gen prepare`, if it is running: the crate's folder, the macro, the call.
fn record(settings: &Settings, kind: &str, call: &str) -> Result<(), String> {
    let Some(folder) = &settings.record else {
        return Ok(());
    };
    let text = format!("{}\n{kind}\n{call}", settings.base.display());
    let file = folder.join(format!("{:016x}.call", Checksum::of(text.as_bytes())));
    std::fs::write(&file, text).map_err(|error| {
        format!(
            "{}: cannot be written: {error}; run `tdc-gen prepare` again",
            file.display()
        )
    })
}
