//! Computes a checksum of everything that determines generated code, for the keys of cached kernels.
//!
//! In a checkout it covers the sources of this crate, the templates, the tables and the plain-data types. A
//! crate from a registry has no access to the other crates' sources; their versions, which are in the keys
//! too, identify them there.

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let parts = [
        "src",
        "../templates",
        "../runtime/src",
        "../generated/lib.rs",
        "../generated/resources.txt",
        "../generated/model",
        "../generated/tuning",
    ];
    // FNV-1a with 64 bits.
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for part in parts {
        let path = here.join(part);
        if !path.exists() {
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        for file in files(&path) {
            // The path inside the checkout, which is independent of the checkout's own path.
            let name = file.strip_prefix(&path).unwrap_or(&file);
            add(name.to_string_lossy().replace('\\', "/").as_bytes());
            add(&fs::read(&file).unwrap_or_default());
        }
    }
    println!("cargo::rustc-env=TDC_GENERATOR_SOURCES={sum:016x}");
}

/// The files in a path, sorted.
fn files(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else {
        return vec![path.to_owned()];
    };
    let mut entries: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries.iter().flat_map(|entry| files(entry)).collect()
}
