//! Times measured on a GPU: [`tune`] writes the tables that planning reads, [`mod@bench`] compares with cuDNN.

#[cfg(feature = "bench")]
pub mod bench;
mod journal;
pub mod tune;
