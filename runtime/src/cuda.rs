//! Runs kernels on a GPU through the CUDA driver, with `cudarc`. No CUDA toolkit is needed, neither to build
//! nor to run.
//!
//! [`Kernel::load`](crate::Kernel::load) selects the code for a context's device and loads it. A
//! [`LoadedKernel`] packs weights, on the host or on the device, and launches; a [`Session`] launches on one
//! stream with its own workspace, and can be captured into a CUDA graph. Code that manages its own pointers
//! and streams uses [`LoadedKernel::launch_raw`].
//!
//! ```no_run
//! use std::sync::Arc;
//! use tdc_runtime::Kernel;
//! use tdc_runtime::cudarc::driver::CudaContext;
//!
//! fn run(kernel: &'static Kernel, image: &[f32], weights: &[f32]) -> Result<Vec<f32>, Box<dyn std::error::Error>> {
//!     let context = CudaContext::new(0)?;
//!     let stream = context.default_stream();
//!     let kernel = kernel.load(&context)?;
//!     let weights = stream.clone_htod(&kernel.pack_weights(weights)?)?;
//!     let x = stream.clone_htod(image)?;
//!     let mut y = stream.alloc_zeros(kernel.y_len())?;
//!     kernel.launch(&stream, &x, &weights, None, None, &mut y)?;
//!     Ok(stream.clone_dtoh(&y)?)
//! }
//! ```

mod error;
mod loaded;
mod module;
mod packing;
mod session;

pub use error::{LaunchError, LoadError};
pub use loaded::{LoadedKernel, RawTensors};
pub use module::{LoadedLaunch, Module};
pub use session::Session;
