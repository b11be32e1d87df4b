//! Times measured on a GPU: [`tune`] writes the tables that planning reads, [`mod@bench`] compares with cuDNN,
//! and [`mod@network_bench`] compares complete networks with PyTorch.

#[cfg(feature = "bench")]
pub mod bench;
mod journal;
#[cfg(feature = "bench")]
pub mod network_bench;
pub mod tune;
