//! Compiles kernels to machine code; needs no GPU.

mod compiler;
mod component;
mod fake;
mod parallel;
mod ptxas_log;

#[cfg(feature = "nvrtc")]
pub mod cache;
#[cfg(feature = "check")]
pub mod cpu;
#[cfg(feature = "nvrtc")]
pub mod install;
#[cfg(feature = "nvrtc")]
pub mod nvrtc;
#[cfg(feature = "nvrtc")]
mod nvrtc_files;
#[cfg(feature = "nvrtc")]
pub mod toolkit;

pub use compiler::{ByArch, CompileError, Compiler, CompilerVersion, Image};
pub use component::{Component, ParseComponentError};
pub use fake::FakeCompiler;
#[cfg(feature = "nvrtc")]
pub use nvrtc_files::NvrtcFiles;
pub use parallel::{Job, compile_all};
pub use ptxas_log::{KernelResources, kernel_resources};
