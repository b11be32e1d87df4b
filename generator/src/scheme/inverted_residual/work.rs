//! The work of a launch, from which the cost model predicts its time.

use super::geometry::{Geometry, run_reach};
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::Gpu;
use crate::ir::{InvertedResidualProblem, Problem};
use crate::scheme::tensor_core::products;

impl Geometry {
    /// The work of a launch, for the cost model.
    pub(super) fn work(&self, problem: &InvertedResidualProblem, gpu: &Gpu) -> KernelWork {
        let products = products(problem.precision);
        let model = gpu.cost_model().inverted_residual(products);
        let shape = &problem.depthwise;
        let (blocks, warps) = (self.blocks as f64, f64::from(self.tile.warps));
        let taps = f64::from(shape.r * shape.s);
        let quads = f64::from(self.slice / 4);
        let loads = f64::from(
            self.block
                .items(self.input_quads * self.rectangle.position_count()),
        );
        let filtered = f64::from(
            self.block
                .items(self.slice / 4 * self.rectangle.pixels() / self.run),
        );
        let filter_reads = f64::from(shape.r * (run_reach(shape, self.run) + shape.s));
        let mma = f64::from(self.expand.mma_count + self.project.mma_count);
        let slots = self.tile.cluster * self.project.warps_k;
        let exchanged = f64::from(self.block_n * self.rectangle.columns() * slots);
        let weights =
            f64::from(self.expand.weights() + self.project.weights()) + quads * 4.0 * taps;
        let is_exchanged = f64::from(u8::from(self.tile.cluster > 1));
        let expanded = f64::from(self.slice * self.expand.columns) / 32.0;
        let busy = model.steps * (self.expand.latency_clocks + self.project.latency_clocks)
            + model.staged_load * loads * warps
            + model.expanded_value * expanded
            + model.filter_read * filtered * warps * filter_reads
            + model.exchanged_value * exchanged
            + model.weight * weights;
        // Blocks of the launch on the busiest SM.
        let busiest = (blocks / resident_blocks(self.tile.cluster, 1.0, gpu)).ceil();
        let other_blocks = busiest.min(f64::from(self.block.blocks_per_sm(gpu))) - 1.0;
        let latency = model.block
            + model.exchange * is_exchanged
            + busy * (1.0 + model.co_resident_block * other_blocks);
        KernelWork {
            blocks: self.blocks,
            threads: self.block.threads(),
            registers: self.block.registers,
            shared_bytes: 4 * self.memory.floats,
            fma_fraction: 1.0,
            mma: blocks * mma,
            dram_bytes: Problem::InvertedResidual(*problem).bytes() as f64,
            latency_clocks: latency,
            cluster: self.tile.cluster,
            pdl: true,
            products,
            ..KernelWork::default()
        }
    }
}
