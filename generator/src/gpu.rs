//! The GPUs that code is planned for, with their properties.

mod table;
mod targets;

pub use table::{
    ARCHS, DEFAULT_GPU, GPUS, Gpu, OLDEST_ARCH, PORTABLE_CLUSTER, PlanningOnly, Sustained,
    UnknownGpu, gpu, gpu_for_arch, gpu_for_device,
};
pub use targets::{Targets, TargetsError};
