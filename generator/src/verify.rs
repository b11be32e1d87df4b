//! Numeric checks: generated kernels against an independent float64 reference, on the CPU or on a GPU.
//!
//! Nothing here shares code with schemes or templates, except the plain data that describes launches.

mod checkpoint_parameters;
mod cpu_device;
mod device;
#[cfg(feature = "gpu")]
mod gpu_device;
#[cfg(feature = "gpu")]
mod graph_time;
mod random;
pub mod reference;
mod verify;

pub use checkpoint_parameters::CheckpointParameters;
pub use cpu_device::{CpuDevice, CpuDeviceError};
pub use device::{Device, DeviceError, run_variant};
#[cfg(feature = "gpu")]
pub use gpu_device::{GpuDevice, GpuDeviceError};
#[cfg(feature = "gpu")]
pub use graph_time::Repeats;
pub use random::Random;
pub use tdc_runtime::Bindings;
#[cfg(feature = "gpu")]
pub use verify::time_unit;
pub use verify::{
    CheckFailure, Deviation, NetworkCheck, ProblemData, UnitCheck, check_network, check_unit,
    check_unit_on, network_tolerance,
};
