//! From a call of `kernel!` to Rust text that a program includes, with machine code beside it.
//!
//! A kernel is a file of its own: an expression of type `tdc::Kernel`, made once and then only included, with the files that it
//! includes itself (CUDA text and images) beside it. So an expansion that finds its file is the reading of one line's worth of
//! keys, whatever the kernel. There are two stores of the same form:
//!
//! - *prepared*: `generated/kernels` of the crate or of a folder above it, written by `tdc-gen prepare` and committed;
//! - the *cache*: `kernels` in tdc's cache directory, written by whoever needs a kernel first.
//!
//! Both are found by two keys. The first is of what is asked for: layer, GPUs, architectures, the generator's sources, a table of
//! measured times; [`entry::CacheKey`]. The second is of what the compiler is given: the CUDA text, the architecture, the compiler's
//! version; it is part of the images' names, so that what another call or an older version of the planner had compiled already is
//! not compiled again.

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
