//! Plans and renders CUDA code for convolutional networks.
//!
//! Data goes one way: [`config`] (what users write) -> [`ir`] (networks of typed ops) -> [`plan`] (units, launches, memory) -> render
//! (text) -> emit (files) or [`compile`] (machine code). [`scheme`] holds the algorithms, [`cost`] predicts their times on the GPUs of
//! [`gpu`]; `verify` runs what was rendered against float64, and `measure` times it into tables that [`plan`] reads.
//!
//! ```
//! use tdc_generator::config::{Config, Overrides, yaml};
//! use tdc_generator::gpu::gpu;
//! use tdc_generator::plan::plan_network;
//!
//! let text = "
//! name: small
//! input: 1x16x28x28
//! ops:
//!   - {op: conv, name: conv1, n: 32, activation: relu}
//!   - {op: global_avg_pool, name: pool}
//! ";
//! let config = yaml::parse(text, "small.yaml", &Overrides::default()).unwrap();
//! let Config::Network(network) = config else { unreachable!() };
//! let plan = plan_network(&network, gpu("h200").unwrap()).unwrap();
//! assert_eq!(plan.layers.len(), 2);
//! for unit in &plan.units {
//!     println!("{}", unit.unit.name);
//! }
//! ```

pub mod compile;
#[cfg(feature = "compress")]
pub mod compress;
pub mod config;
pub mod cost;
pub mod embed;
#[cfg(feature = "emit")]
pub mod emit;
pub mod gpu;
pub mod import;
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
