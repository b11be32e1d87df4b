//! The work of a launch, from which the cost model predicts its time.

use super::sizes::TuckerFusedGeometry;
use crate::cost::{CostModel, KernelWork, resident_blocks};
use crate::gpu::Gpu;
use crate::ir::{Problem, TuckerProblem};

impl TuckerFusedGeometry {
    /// The work of a launch, for the cost model.
    pub(super) fn work(&self, problem: &TuckerProblem, gpu: &Gpu) -> KernelWork {
        let model = &CostModel::for_gpu(gpu).tucker_fused;
        let blocks = self.blocks as f64;
        let threads = 32 * self.tile.warps;
        let with_next = || self.factors().chain(&self.next);
        let products: f64 = with_next().map(|factor| f64::from(factor.mma_count)).sum();
        let clocks: f64 = with_next().map(|factor| factor.latency_clocks).sum();
        let pointwise = with_next().count() - 2;
        let exchanges = match (self.tile.cluster, self.tile.blocks_n, &self.next) {
            (1, _, _) => 0.0,
            (_, 1, _) => 1.0,
            (_, _, None) => 2.0,
            (_, _, Some(_)) => 3.0,
        };
        let exchanged = f64::from(self.d2_rows_per_block * self.block_pixels * self.d1_splits);
        // Blocks of the launch on the busiest SM.
        let busiest = (blocks / resident_blocks(self.tile.cluster, 1.0, gpu)).ceil();
        let other_blocks = busiest.min(f64::from(self.blocks_per_sm(gpu))) - 1.0;
        let latency = model.steps * clocks
            + model.pointwise_factor * pointwise as f64
            + model.chunk * f64::from(self.chunks())
            + model.exchange * exchanges
            + model.exchanged_value * exchanged
            + model.core_partials * f64::from(u8::from(self.core_partials()))
            + model.warp * f64::from(self.tile.warps)
            + model.co_resident_block * other_blocks;
        // Throughput that co-resident blocks share: staging instructions, and 32-byte sectors that are stored, or read for a residual.
        let staged = self.first.as_ref().map_or(1, |first| first.chunks);
        let staging = model.staged_load * f64::from(self.tile.warps * staged * self.items);
        let sectors_of_row = match self.tile.tw % 8 {
            0 => f64::from(self.tile.tw / 8),
            _ => f64::from(self.tile.tw / 8) + 1.5,
        };
        let channels =
            f64::from(self.last.rows * self.tile.blocks_n) / f64::from(self.tile.cluster);
        let sectors = sectors_of_row * f64::from(self.tile.th) * channels;
        let moved = match problem.epilogue.residual {
            true => 2.0 * sectors,
            false => sectors,
        };
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.shared_floats,
            // Staging instructions as multiply-adds, of which an SM issues 128 per clock. Sectors as bytes, of which it moves 32 per clock.
            flops: 256.0 * blocks * staging,
            fma_fraction: 1.0,
            l2_bytes: 32.0 * model.stored_sector * blocks * moved,
            mma: blocks * products,
            dram_bytes: Problem::Tucker(*problem).bytes() as f64,
            latency_clocks: latency,
            cluster: self.tile.cluster,
            pdl: true,
            ..KernelWork::default()
        }
    }
}
