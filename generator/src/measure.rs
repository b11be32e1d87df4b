//! Times measured on a GPU: [`tune`] writes the tables that planning reads, [`bench`] compares with cuDNN.

#[cfg(feature = "bench")]
pub mod bench;
mod journal;
pub mod tune;
