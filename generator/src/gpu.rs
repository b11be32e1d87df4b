//! The GPUs that code is planned for: figures, occupancy and a first estimate of time.

mod estimate;
mod table;
mod targets;

pub use estimate::{KernelWork, Occupancy, floor_us, kernel_us, memset_us, occupancy};
pub use table::{
    DEFAULT_GPU, GPUS, Gpu, OLDEST_ARCH, PlanningOnly, Sustained, UnknownGpu, gpu, gpu_of_device,
};
pub use targets::{Targets, TargetsError};
