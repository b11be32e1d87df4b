//! The predicted time of a single launch.

use super::resources::known_resources;
use crate::cost::{KernelWork, Occupancy, kernel_us, occupancy};
use crate::gpu::Gpu;
use crate::scheme::LaunchWork;

/// The prediction for one launch on one GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LaunchPrediction {
    /// Occupancy of the SMs.
    pub occupancy: Occupancy,
    /// Time in a CUDA graph, microseconds; infinite if a block does not fit the GPU.
    pub us: f64,
}

impl LaunchPrediction {
    /// Prediction for a launch of the unit with this name, with the registers that the compiler allocated if the resource table has them.
    pub fn new(unit: &str, launch: &LaunchWork, gpu: &Gpu) -> Self {
        let work = launch.with_known_registers(unit, gpu);
        Self {
            occupancy: occupancy(&work, gpu),
            us: kernel_us(&work, gpu),
        }
    }
}

impl LaunchWork {
    /// The work of a launch of the unit with this name, with the registers of the resource table instead of estimated ones.
    pub(super) fn with_known_registers(&self, unit: &str, gpu: &Gpu) -> KernelWork {
        let known = known_resources(unit, self.role, gpu.arch);
        KernelWork {
            registers: known.map_or(self.work.registers, |known| known.registers),
            ..self.work
        }
    }
}
