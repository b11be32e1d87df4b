//! What single launches are expected to cost.

use super::PlannedUnit;
use super::resources::known_resources;
use crate::cost::{KernelWork, Model, Occupancy, Terms, kernel_us, occupancy, tiled_terms};
use crate::gpu::Gpu;
use crate::scheme::LaunchWork;

/// What one launch is expected to cost on one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchEstimate {
    /// How it fills the multiprocessors.
    pub occupancy: Occupancy,
    /// Time in a CUDA graph, microseconds; infinite when a block does not fit.
    pub us: f64,
    /// Where the time of a tiled kernel goes.
    pub terms: Option<Terms>,
}

impl LaunchEstimate {
    /// A launch of the unit of a name, with the registers that the compiler needed where that is known.
    pub fn new(unit: &str, launch: &LaunchWork, gpu: &Gpu) -> Self {
        let known = known_resources(unit, launch.role, gpu.arch);
        let work = KernelWork {
            registers: known.map_or(launch.work.registers, |known| known.registers),
            ..launch.work
        };
        Self {
            occupancy: occupancy(&work, gpu),
            us: kernel_us(&work, gpu),
            terms: work
                .tiled
                .filter(|_| occupancy(&work, gpu).blocks_per_sm > 0)
                .map(|tiled| tiled_terms(&work, &tiled, gpu, Model::of(gpu))),
        }
    }

    /// Every launch of a unit, in order.
    pub fn of_unit(unit: &PlannedUnit, gpu: &Gpu) -> Vec<Self> {
        unit.kernels
            .iter()
            .map(|kernel| {
                let launch = LaunchWork {
                    role: kernel.blueprint.role,
                    work: kernel.blueprint.work,
                };
                Self::new(&unit.unit.name, &launch, gpu)
            })
            .collect()
    }
}
