//! Numeric checks: generated kernels against an independent float64 reference, on the CPU or on a GPU.
//!
//! Nothing here shares code with schemes or templates, except the plain data that describes launches.

mod check_failure;
mod checkpoint_parameters;
mod cpu_device;
mod deviation;
mod device;
mod error_bound;
#[cfg(feature = "gpu")]
mod gpu_device;
#[cfg(feature = "gpu")]
mod graph_time;
mod guarded_buffer;
mod network_buffers;
mod network_check;
mod problem_data;
mod random;
pub mod reference;
mod stored_tensor;
mod unit_check;

pub use check_failure::CheckFailure;
pub use checkpoint_parameters::CheckpointParameters;
pub use cpu_device::{CpuDevice, CpuDeviceError};
pub use deviation::Deviation;
pub use device::{Device, DeviceError, run_variant};
pub use error_bound::network_tolerance;
#[cfg(feature = "gpu")]
pub use gpu_device::{GpuDevice, GpuDeviceError};
#[cfg(feature = "gpu")]
pub use graph_time::Repeats;
pub use network_check::{NetworkCheck, check_network, random_input};
pub use problem_data::ProblemData;
pub use random::Random;
pub use reference::{NetworkParameters, evaluate_network};
pub use tdc_runtime::Bindings;
#[cfg(feature = "gpu")]
pub use unit_check::time_unit;
pub use unit_check::{UnitCheck, check_unit, check_unit_on};
