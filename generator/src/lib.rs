//! Plans and renders CUDA code for convolutional networks.

pub mod compile;
