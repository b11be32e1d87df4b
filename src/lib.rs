//! `tdc` generates specialised CUDA kernels and whole networks offline.
//!
//! This crate is the facade: it re-exports the types of `tdc-runtime`. The work is done by the `tdc-gen` command line, built
//! from `tdc-generator`.

pub use tdc_runtime::*;
