//! The work of a launch, from which the cost model predicts its time.

use super::channels::STEP_QUADS;
use super::geometry::Geometry;
use super::products::warps_of_products;
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::Gpu;
use crate::ir::{DenseStepProblem, Problem};
use crate::scheme::tensor_core::products;

impl Geometry {
    /// The work of a launch, for the cost model.
    pub(super) fn work(&self, problem: &DenseStepProblem, gpu: &Gpu) -> KernelWork {
        let precision = products(problem.precision);
        let model = gpu.cost_model().dense_step(precision);
        let (blocks, warps) = (self.blocks as f64, f64::from(self.tile.warps));
        let quads = &self.quads;
        let loads = self
            .block
            .items(self.slice / 4 * self.rectangle.position_count())
            + self
                .block
                .items(STEP_QUADS * quads.before_steps * self.rectangle.pixels());
        let grown = self
            .block
            .items(STEP_QUADS * quads.grown_steps * self.rectangle.pixels());
        let mma = f64::from(self.growth.mma_count + self.pointwise.mma_count);
        let is_exchanged = f64::from(u8::from(self.tile.cluster > 1));
        let exchanged =
            f64::from((self.growth.rows + self.pointwise.rows) * self.rectangle.columns());
        let weights = f64::from(self.growth.weights() + self.pointwise.weights());
        let [growth, pointwise] =
            [&self.growth, &self.pointwise].map(|factor| factor.latency_clocks);
        let products = match warps_of_products(&self.tile)[0] < self.tile.warps {
            true => growth.max(pointwise),
            false => growth + pointwise,
        };
        let busy = model.steps * products
            + model.staged_load * f64::from(loads) * warps
            + model.grown_quad * f64::from(grown) * warps
            + is_exchanged * (model.exchange + model.exchanged_value * exchanged)
            + model.weight * weights;
        // Blocks of the launch on the busiest SM.
        let busiest = (blocks / resident_blocks(self.tile.cluster, 1.0, gpu)).ceil();
        let other_blocks = busiest.min(f64::from(self.block.blocks_per_sm(gpu))) - 1.0;
        let latency = model.block + busy * (1.0 + model.co_resident_block * other_blocks);
        KernelWork {
            blocks: self.blocks,
            threads: self.block.threads(),
            registers: self.block.registers,
            shared_bytes: 4 * self.memory.floats,
            fma_fraction: 1.0,
            mma: blocks * mma,
            dram_bytes: Problem::DenseStep(*problem).bytes() as f64,
            latency_clocks: latency,
            cluster: self.tile.cluster,
            pdl: true,
            products: precision,
            ..KernelWork::default()
        }
    }
}
