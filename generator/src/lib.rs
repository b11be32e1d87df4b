//! Plans and renders CUDA code for convolutional networks.
//!
//! Data goes one way: [`config`] (what users write) -> [`ir`] (networks of typed ops) -> [`plan`] (units, launches, memory) -> render
//! (text) -> emit (files) or [`compile`] (machine code). [`scheme`] holds the algorithms, [`cost`] predicts their times on the GPUs of
//! [`gpu`]; `verify` runs what was rendered against float64, and `measure` times it into tables that [`plan`] reads.

pub mod compile;
pub mod config;
pub mod cost;
pub mod embed;
#[cfg(feature = "emit")]
pub mod emit;
pub mod gpu;
pub mod ir;
#[cfg(feature = "tune")]
pub mod measure;
pub mod plan;
#[cfg(feature = "render")]
pub mod render;
pub mod scheme;
pub mod sequence;
mod suggest;
#[cfg(feature = "check")]
pub mod verify;
pub mod wording;
