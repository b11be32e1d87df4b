//! Plans and renders CUDA code for convolutional networks.
//!
//! Data goes one way: [`spec`] (what is asked) -> [`plan`] (units, launches, memory) -> render (text) -> [`emit`] (files) or
//! [`compile`] (machine code). [`scheme`] holds the algorithms, [`gpu`] the figures they are chosen by; `check` runs what was
//! rendered against float64, and `tune` measures it into tables that [`plan`] reads.

#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "check")]
pub mod check;
pub mod compile;
pub mod embed;
#[cfg(feature = "emit")]
pub mod emit;
pub mod gpu;
#[cfg(feature = "tune")]
mod journal;
pub mod plan;
#[cfg(feature = "render")]
pub mod render;
pub mod scheme;
pub mod sequence;
pub mod spec;
#[cfg(feature = "tune")]
pub mod tune;
