//! Turns a call of `kernel!` into Rust source that the program includes, with the machine code next to it.
//!
//! Each kernel has a file: an expression of type `tdc::Kernel`, generated once and then only included,
//! together with the files that it includes in turn (CUDA source and images). An expansion that finds its
//! file only reads a few lines of keys. Files are in one of two stores of the same form:
//!
//! - *prepared*: `generated/kernels` of the crate or of a parent folder, written by `tdc-gen prepare` and
//!   committed;
//! - the *cache*: `kernels` in tdc's cache directory, written when a kernel is first needed.
//!
//! There are two keys. The first is computed from the request: layer, GPUs, architectures, the generator's
//! sources, the tuning table; see [`entry::CacheKey`]. The second is computed from the compiler's input: CUDA
//! source, architecture, compiler version. It is part of the images' file names, so that an image is not
//! compiled again for a different request or by a newer planner.

#[cfg(feature = "kernels")]
mod build;
mod entry;
mod expand;
mod expression;
#[cfg(feature = "kernels")]
mod kernel_file;
#[cfg(all(feature = "emit", feature = "kernels"))]
pub mod prepare;
mod request;
mod settings;

pub use entry::{CacheKey, StoreEntry};
pub use expand::{CallError, Expansion, expand, expand_config, placeholder_kernel};
pub use request::{RequestedKernel, requested_kernels};
pub use settings::{
    ARCH_VARIABLE, DEFAULT_ARCHS, KERNELS_VARIABLE, KernelMode, PREPARE_VARIABLE, PREPARED_DIR,
    Settings, VARIABLES,
};
