//! What the build files and the README say about compilers.

use crate::gpu::Gpu;
use crate::plan::NetworkPlan;
use crate::render::architectures::Architectures;
use crate::render::cuda_version::cuda_versions;
use serde::Serialize;

/// The compilers that a network needs, and their options.
#[derive(Serialize)]
pub(super) struct BuildContext {
    /// The CUDA toolkits that support it.
    cuda_versions: &'static str,
    /// nvcc options for the architectures.
    nvcc_arch: String,
    /// The same, one by one.
    nvcc_options: Vec<String>,
    /// CMake options for the architectures.
    cmake_arch: String,
}

impl BuildContext {
    pub(super) fn new(plans: &[NetworkPlan], gpus: &[&Gpu]) -> Self {
        let archs = Architectures::new(gpus, plans.iter().flat_map(|plan| &plan.units));
        Self {
            cuda_versions: cuda_versions(gpus.iter().map(|gpu| gpu.arch.sm)),
            nvcc_options: archs.nvcc().split(' ').map(str::to_owned).collect(),
            nvcc_arch: archs.nvcc(),
            cmake_arch: archs.cmake(),
        }
    }
}
