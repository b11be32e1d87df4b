//! The GPUs that code is planned for, with their properties.

mod capability;
mod cost_model;
mod data;
mod table;
mod targets;

pub use cost_model::{
    CostModel, CostModelError, Products, RoughConstants, TiledConstants, TuckerFusedConstants,
    WinogradConstants,
};
pub use data::GPUS;
pub use table::{
    DEFAULT_GPU, FIRST_CLUSTER_GPU, Gpu, MAX_REGISTERS, MAX_THREADS, OLDEST_ARCH, PORTABLE_CLUSTER,
    PlanningOnly, Published, REGISTERS_PER_BLOCK, Sustained, UnknownGpu, archs, gpu, gpu_for_arch,
    gpu_for_device,
};
pub use targets::{Targets, TargetsError};
