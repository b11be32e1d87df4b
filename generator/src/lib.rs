//! Plans and renders CUDA code for convolutional networks.
//!
//! Data goes one way: [`spec`] (what is asked) -> plan -> render -> emit or compile.

pub mod check;
pub mod compile;
pub mod gpu;
pub mod plan;
#[cfg(feature = "render")]
pub mod render;
pub mod scheme;
pub mod spec;
