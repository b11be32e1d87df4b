//! What a call becomes.

use super::entry::{Entry, Key, is_of_another_version};
use super::request::{Wanted, wanted};
use super::{KERNELS_VARIABLE, Mode, Settings, expression};
use crate::config::{ConfigErrors, KernelRequest, Position, text};
use crate::plan::KernelOp;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tdc_runtime::{Checksum, Conv, ConvShape, Fused, Tucker};

/// What is wrong with a call and where in its text; the whole call where it has no place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The place.
    pub at: Option<Position>,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// What a call becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expansion {
    /// A file with the kernel's expression, or the expression itself.
    pub kernel: Result<PathBuf, String>,
    /// The layer's name.
    pub layer: String,
    /// The kernel's type, as text.
    pub kind: &'static str,
    /// Files to be watched, absolute.
    pub tracked: Vec<PathBuf>,
}

/// The mistakes of a text, with their places in it.
pub(super) fn mistakes(errors: &ConfigErrors) -> Vec<Mistake> {
    let mut mistakes: Vec<Mistake> = errors
        .first
        .iter()
        .map(|error| Mistake {
            at: error.position,
            message: error.message.clone(),
        })
        .collect();
    if errors.more > 0 {
        mistakes.push(Mistake {
            at: None,
            message: format!("and {} more mistakes", errors.more),
        });
    }
    mistakes
}

/// What a call of `kernel!` becomes.
///
/// # Errors
/// Every mistake in the call and in the files that it names, and what keeps its kernel from being compiled.
pub fn expand(call: &str, settings: &Settings) -> Result<Expansion, Vec<Mistake>> {
    let request = text::parse(call, "kernel!").map_err(|errors| mistakes(&errors))?;
    let wanted = wanted(&request, settings)?;
    record(settings, "kernel", call).map_err(whole)?;
    let found = resolve(&wanted, settings).map_err(|refusal| refusal.at(&request))?;
    let found = found.into_iter().next();
    found.ok_or_else(|| whole("nothing is asked for".to_owned()))
}

/// What a call of `kernels!` becomes, behind the name of its module: the constants, by the names of their layers.
///
/// # Errors
/// As of [`expand`].
pub fn expand_config(
    call: &str,
    settings: &Settings,
) -> Result<Vec<(String, Expansion)>, Vec<Mistake>> {
    let request = text::parse_config(call, "kernels!").map_err(|errors| mistakes(&errors))?;
    let wanted = wanted(&request, settings)?;
    let mut layer_of: BTreeMap<String, &str> = BTreeMap::new();
    for wanted in &wanted {
        let layer = &wanted.layer.name[..];
        if let Some(other) = layer_of.insert(constant_name(layer), layer) {
            let name = constant_name(layer);
            let refusal = Refusal::new(format!(
                "the layers `{other}` and `{layer}` would both be the constant {name}; rename one of them"
            ));
            return Err(refusal.at(&request));
        }
    }
    record(settings, "kernels", call).map_err(whole)?;
    let found = resolve(&wanted, settings).map_err(|refusal| refusal.at(&request))?;
    let names = wanted
        .iter()
        .map(|wanted| constant_name(&wanted.layer.name));
    Ok(names.zip(found).collect())
}

/// The expression of a kernel of nothing, of the type that a wrong call was meant to have as far as that can be told: with it in
/// the call's place only the call's own mistakes are errors.
pub fn refused_kernel(call: &str) -> String {
    let shape = ConvShape::new(1, 1, 1, 1, 1, 1);
    let fused = Fused::default();
    let op = match text::op_word(call) {
        "tucker" => KernelOp::Tucker(Tucker {
            shape,
            ranks: [1, 1],
            fused,
        }),
        _ => KernelOp::Conv(Conv { shape, fused }),
    };
    expression::stub("", &op)
}

/// What a recorded call wants.
///
/// # Errors
/// As of [`expand`].
#[cfg(all(feature = "emit", feature = "kernels"))]
pub(super) fn wanted_of_call(
    kind: &str,
    call: &str,
    settings: &Settings,
) -> Result<Vec<Wanted>, Vec<Mistake>> {
    let parse = match kind {
        "kernels" => text::parse_config,
        _ => text::parse,
    };
    let request = parse(call, kind).map_err(|errors| mistakes(&errors))?;
    wanted(&request, settings)
}

/// Why a kernel cannot be had.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The key of the call that is the cause.
    pub key: Option<&'static str>,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Refusal {
    pub fn new(message: String) -> Self {
        Self { key: None, message }
    }

    fn at(self, request: &KernelRequest) -> Vec<Mistake> {
        vec![Mistake {
            at: Some(request.position(self.key)),
            message: self.message,
        }]
    }
}

fn whole(message: String) -> Vec<Mistake> {
    vec![Mistake { at: None, message }]
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

/// The kernels that are wanted: as they are prepared or cached, else compiled together.
fn resolve(wanted: &[Wanted], settings: &Settings) -> Result<Vec<Expansion>, Refusal> {
    let stub = settings.mode == Mode::Stub || settings.record.is_some();
    let keys: Vec<Key> = wanted.iter().map(Key::new).collect();
    let mut found: Vec<Option<Entry>> = keys
        .iter()
        .map(|key| if stub { None } else { find(key, settings) })
        .collect();
    if found.iter().any(Option::is_none) && !stub && !settings.impatient {
        make(wanted, &keys, &mut found, settings)?;
    }
    let all = wanted.iter().zip(&keys).zip(found);
    let expansions = all.map(|((wanted, key), entry)| {
        let op = KernelOp::of(&wanted.layer);
        Expansion {
            kernel: match entry {
                Some(entry) => Ok(entry.file),
                None => Err(expression::stub(key.name(), &op)),
            },
            layer: wanted.layer.name.clone(),
            kind: expression::kernel_type(&op),
            tracked: wanted.tracked.clone(),
        }
    });
    Ok(expansions.collect())
}

/// A kernel that is prepared or cached.
fn find(key: &Key, settings: &Settings) -> Option<Entry> {
    let folders = [settings.prepared.as_deref(), settings.cache.as_deref().ok()];
    let mut folders = folders.into_iter().flatten();
    folders.find_map(|folder| Entry::find(folder, key))
}

/// Compiles what was not found.
#[cfg(feature = "kernels")]
fn make(
    wanted: &[Wanted],
    keys: &[Key],
    found: &mut [Option<Entry>],
    settings: &Settings,
) -> Result<(), Refusal> {
    use super::build::{build, shared_compiler};
    if settings.mode == Mode::Offline {
        return Err(not_prepared(keys, found, settings));
    }
    let cache = settings.cache.as_deref();
    let cache = cache.map_err(|error| Refusal::new(error.clone()))?;
    let names = missing(keys, found);
    let compiler = || {
        shared_compiler().map_err(|error| {
            format!(
                "{names} must be compiled, and {error}; or run `tdc-gen prepare` where there is one and commit {}, or set \
                 {KERNELS_VARIABLE}=stub to build without kernels",
                super::settings::PREPARED
            )
        })
    };
    let indices: Vec<usize> = (0..found.len())
        .filter(|&index| found[index].is_none())
        .collect();
    let missing: Vec<_> = indices
        .iter()
        .map(|&index| (&wanted[index], &keys[index]))
        .collect();
    let made = build(&missing, cache, &compiler, |_| ());
    for (index, entry) in indices.into_iter().zip(made) {
        found[index] = Some(entry?);
    }
    Ok(())
}

/// Without a compiler what was not found is an error.
#[cfg(not(feature = "kernels"))]
fn make(
    _: &[Wanted],
    keys: &[Key],
    found: &mut [Option<Entry>],
    settings: &Settings,
) -> Result<(), Refusal> {
    Err(not_prepared(keys, found, settings))
}

fn not_prepared(keys: &[Key], found: &[Option<Entry>], settings: &Settings) -> Refusal {
    let place = match &settings.prepared {
        Some(folder) => folder.display().to_string(),
        None => format!(
            "{} of this crate or of a folder above it",
            super::settings::PREPARED
        ),
    };
    let mut absent = keys.iter().zip(found).filter(|(_, entry)| entry.is_none());
    if let Some(folder) = &settings.prepared
        && absent.any(|(key, _)| is_of_another_version(folder, key))
    {
        return Refusal::new(format!(
            "{} in {place} was prepared by another version of tdc-gen than this tdc; install tdc-gen {} from the same sources, \
             run `tdc-gen prepare` and commit what it writes",
            missing(keys, found),
            env!("CARGO_PKG_VERSION"),
        ));
    }
    let why = match settings.mode {
        Mode::Offline => format!("{KERNELS_VARIABLE}=offline forbids compiling"),
        _ => "the feature `nvrtc` of tdc is off".to_owned(),
    };
    Refusal::new(format!(
        "{} is not in {place}, and {why}; run `tdc-gen prepare` and commit what it writes",
        missing(keys, found)
    ))
}

/// The kernels that were not found, as a message names them.
fn missing(keys: &[Key], found: &[Option<Entry>]) -> String {
    let mut missing = keys.iter().zip(found).filter(|(_, entry)| entry.is_none());
    let first = missing.next().map_or("a kernel", |(key, _)| key.name());
    match missing.count() {
        0 => format!("`{first}`"),
        others => format!("`{first}` and {others} others"),
    }
}

/// Writes a call down for `tdc-gen prepare`, if it listens: the crate's folder, the macro, the call.
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
