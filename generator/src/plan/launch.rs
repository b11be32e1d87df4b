//! What single launches are expected to cost.

use super::PlannedUnit;
use super::resources::known_resources;
use crate::cost::{CostTerms, KernelWork, Occupancy, kernel_terms, kernel_us, occupancy};
use crate::gpu::Gpu;
use crate::scheme::LaunchWork;

/// What one launch is expected to cost on one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchPrediction {
    /// How it fills the multiprocessors.
    pub occupancy: Occupancy,
    /// Time in a CUDA graph, microseconds; infinite when a block does not fit.
    pub us: f64,
}

impl LaunchPrediction {
    /// A launch of the unit of a name, with the registers that the compiler needed where that is known.
    pub fn new(unit: &str, launch: &LaunchWork, gpu: &Gpu) -> Self {
        let work = with_known_registers(unit, launch, gpu);
        Self {
            occupancy: occupancy(&work, gpu),
            us: kernel_us(&work, gpu),
        }
    }

    /// Every launch of a unit, in order.
    pub fn for_unit(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Self> {
        launches(unit)
            .map(|launch| Self::new(&unit.unit.name, &launch, gpu))
            .collect()
    }
}

/// Where the estimated time of every launch of a unit goes, in order; `None` of one whose blocks do not fit the GPU.
pub fn launch_terms(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Option<CostTerms>> {
    launches(unit)
        .map(|launch| kernel_terms(&with_known_registers(&unit.unit.name, &launch, gpu), gpu))
        .collect()
}

fn launches(unit: &PlannedUnit) -> impl Iterator<Item = LaunchWork> {
    unit.kernels.iter().map(|kernel| LaunchWork {
        role: kernel.blueprint.role,
        work: kernel.blueprint.work,
    })
}

fn with_known_registers(unit: &str, launch: &LaunchWork, gpu: &Gpu) -> KernelWork {
    let known = known_resources(unit, launch.role, gpu.arch);
    KernelWork {
        registers: known.map_or(launch.work.registers, |known| known.registers),
        ..launch.work
    }
}
