//! Plans and renders CUDA code for convolutional networks.
//!
//! Data goes one way: [`spec`] (what is asked) -> plan -> render -> emit or compile.

pub mod spec;
