//! Plans and renders CUDA code for convolutional networks.
//!
//! Data flows in one direction: [`config`] (user input) -> [`ir`] (networks of typed ops) -> [`plan`] (units,
//! launches, memory) -> render (source) -> emit (files) or [`compile`] (machine code). [`scheme`] has the
//! algorithms; [`cost`] predicts their times on the GPUs of [`gpu`]. `verify` compares generated code with a
//! float64 reference, and `measure` times it and writes the tables that [`plan`] reads.

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
