//! Plans and renders CUDA code for convolutional networks.

/// From text to something that runs.
pub mod compile {
    #[cfg(feature = "check")]
    pub mod cpu;
}
