//! The GPUs that code is planned for: figures, occupancy and a first estimate of time.

mod estimate;
mod model;
mod table;
mod targets;

pub(crate) use estimate::slots;
pub use estimate::{
    KernelWork, Occupancy, Terms, TiledWork, floor_us, kernel_terms, kernel_us, memset_us,
    occupancy, tiled_terms,
};
pub use model::{Model, ModelError};
pub use table::{
    ARCHS, DEFAULT_GPU, GPUS, Gpu, OLDEST_ARCH, PlanningOnly, Sustained, UnknownGpu, gpu,
    gpu_of_arch, gpu_of_device,
};
pub use targets::{Targets, TargetsError};
