//! A kernel in a store: the file of its expression, found by the key of the request.

use super::RequestedKernel;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tdc_runtime::Checksum;

/// Length to which a kernel's name is truncated in file names.
const NAME_CHARS: usize = 120;

/// Upper limit of the length of a header in bytes.
const MAX_HEADER: u64 = 1 << 16;

/// Everything that determines a kernel's file, as text: equal keys give equal files. The compilers' output is
/// not included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey {
    name: String,
    text: String,
}

impl CacheKey {
    /// The key of a request.
    pub fn new(requested: &RequestedKernel) -> Self {
        let layer = &requested.layer;
        let name = crate::plan::kernel_name(layer);
        let gpus: Vec<_> = requested.gpus.iter().map(|gpu| gpu.name).collect();
        let images = requested.images.iter();
        let images: Vec<_> = images
            .map(|(arch, gpu)| format!("{arch}:{}", gpus[*gpu]))
            .collect();
        let table = requested
            .table
            .as_deref()
            .map_or("none".to_owned(), |text| {
                format!("{:016x}", Checksum::of(text.as_bytes()))
            });
        let text = format!(
            "tdc {} {}\nlayer {:?} {:?} {:?}\nscheme {:?} {:?} {:?}\ngpu {}\narch {}\ntable {table}\n",
            env!("CARGO_PKG_VERSION"),
            env!("TDC_GENERATOR_SOURCES"),
            layer.problem,
            layer.ranks,
            layer.rank,
            layer.scheme,
            layer.tile,
            requested.tiles,
            gpus.join(" "),
            images.join(" "),
        );
        Self { name, text }
    }

    /// The kernel's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of its file.
    pub fn file(&self) -> String {
        let sum = Checksum::of(self.text.as_bytes());
        format!("{}-{sum:016x}.rs", truncated(&self.name))
    }

    /// The first lines of its file: the key and the names of the files that it includes.
    #[cfg(feature = "kernels")]
    pub(super) fn header(&self, includes: &[String]) -> String {
        let lines = self.text.lines().map(|line| format!("// key {line}\n"));
        let includes = includes.iter().map(|file| format!("// file {file}\n"));
        format!(
            "// {}: made by tdc, do not edit.\n{}{}",
            self.name,
            lines.collect::<String>(),
            includes.collect::<String>()
        )
    }
}

/// A kernel's name, truncated for file names.
pub(super) fn truncated(name: &str) -> &str {
    // Names are ASCII.
    name.get(..NAME_CHARS).unwrap_or(name)
}

/// A kernel in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEntry {
    /// The file of its expression.
    pub file: PathBuf,
    /// Names of the files that it includes, in the same folder.
    pub includes: Vec<String>,
}

impl StoreEntry {
    /// The kernel for a key in the store at `folder`; `None` if it is missing, incomplete, or has a different
    /// key.
    pub fn find(folder: &Path, key: &CacheKey) -> Option<Self> {
        let file = folder.join(key.file());
        let text = header_of(&file).ok()?;
        let mut lines = text.lines().skip(1);
        for line in key.text.lines() {
            if lines.next()?.strip_prefix("// key ")? != line {
                return None;
            }
        }
        let includes: Vec<String> = lines
            .map_while(|line| line.strip_prefix("// file "))
            .map(str::to_owned)
            .collect();
        let is_whole = includes.iter().all(|name| folder.join(name).is_file());
        is_whole.then_some(Self { file, includes })
    }
}

/// Whether the store at `folder` has the kernel from a different version of this crate.
pub(super) fn has_other_version(folder: &Path, key: &CacheKey) -> bool {
    let Ok(files) = folder.read_dir() else {
        return false;
    };
    let prefix = format!("{}-", truncated(&key.name));
    files.flatten().any(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        let is_kernel = name.starts_with(&prefix) && name.ends_with(".rs");
        let is_same = |header: String| {
            let lines = header.lines().skip(1);
            let key_lines = lines.map_while(|line| line.strip_prefix("// key "));
            // The first line has the version.
            key_lines.skip(1).eq(key.text.lines().skip(1))
        };
        is_kernel && header_of(&file.path()).is_ok_and(is_same)
    })
}

/// The start of a file, up to the maximal length of a header.
fn header_of(file: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MAX_HEADER).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
