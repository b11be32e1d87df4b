//! The work of a launch, from which the cost model predicts its time.

use super::geometry::TuckerFusedGeometry;
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::Gpu;
use crate::ir::TuckerProblem;
use crate::scheme::tensor_core::products;

impl TuckerFusedGeometry {
    /// The work of a launch, for the cost model. `dram_bytes` are those of the problem.
    pub(super) fn work(&self, problem: &TuckerProblem, dram_bytes: f64, gpu: &Gpu) -> KernelWork {
        let products = products(problem.precision);
        let model = gpu.cost_model().tucker_fused(products);
        let blocks = self.blocks as f64;
        let threads = 32 * self.tile.warps;
        let all = || self.factors.all();
        let mma: f64 = all().map(|factor| f64::from(factor.mma_count)).sum();
        let clocks: f64 = all().map(|factor| factor.latency_clocks).sum();
        let pointwise = all().count() - 2;
        let exchanges = exchanges(
            self.tile.cluster,
            self.tile.blocks_n,
            self.factors.next.is_some(),
        );
        let exchanged = f64::from(
            self.split.d2_rows_per_block * self.split.block_pixels * self.split.d1_splits,
        );
        let visible_weights = visible_weights(problem, self.layer_weights(), self.blocks, gpu);
        // Blocks of the launch on the busiest SM.
        let busiest = (blocks / resident_blocks(self.tile.cluster, 1.0, gpu)).ceil();
        let other_blocks = busiest.min(f64::from(self.blocks_per_sm(gpu))) - 1.0;
        let latency = model.steps * clocks
            + model.pointwise_factor * pointwise as f64
            + model.chunk * f64::from(self.factors.chunks())
            + model.exchange * exchanges
            + model.exchanged_value * exchanged
            + model.weight * visible_weights
            + model.streamed_weight * f64::from(self.streamed_weights())
            + model.core_partials * f64::from(u8::from(self.sums.has_core_partials()))
            + model.warp * f64::from(self.tile.warps)
            + model.co_resident_block * other_blocks;
        // Throughput that co-resident blocks share: staging instructions, and 32-byte sectors that are stored, or read for a residual.
        let staged = self.factors.first.as_ref().map_or(1, |first| first.chunks);
        let staging = model.staged_load * f64::from(self.tile.warps * staged * self.input.items);
        let channels =
            f64::from(self.factors.last.rows * self.tile.blocks_n) / f64::from(self.tile.cluster);
        let moved = moved_sectors(problem, [self.tile.th, self.tile.tw], channels);
        KernelWork {
            blocks: self.blocks,
            threads,
            registers: self.registers,
            shared_bytes: 4 * self.memory.floats,
            // Staging instructions as multiply-adds, of which an SM issues 128 per clock. Sectors as bytes, of which it moves 32 per clock.
            flops: 256.0 * blocks * staging,
            fma_fraction: 1.0,
            l2_bytes: 32.0 * model.stored_sector * blocks * moved,
            // The instructions around an MMA as further MMAs.
            mma: model.product * blocks * mma,
            dram_bytes,
            latency_clocks: latency,
            cluster: self.tile.cluster,
            pdl: true,
            products,
            ..KernelWork::default()
        }
    }
}

/// The packed weights of a block that do not arrive before the block needs them, of `weights`. What L2 delivers is divided among the SMs
/// that have blocks.
pub(super) fn visible_weights(
    problem: &TuckerProblem,
    weights: u32,
    blocks: u64,
    gpu: &Gpu,
) -> f64 {
    let model = gpu.cost_model().tucker_fused(products(problem.precision));
    let busy_fraction = (blocks as f64 / f64::from(gpu.sms)).min(1.0);
    (f64::from(weights) * busy_fraction - model.hidden_weights).max(0.0)
}

/// Exchanges of partial sums in a cluster.
pub(super) fn exchanges(cluster: u32, blocks_n: u32, has_next: bool) -> f64 {
    match (cluster, blocks_n, has_next) {
        (1, _, _) => 0.0,
        (_, 1, _) => 1.0,
        (_, _, false) => 2.0,
        (_, _, true) => 3.0,
    }
}

/// Sectors of 32 bytes that a block stores, and reads of a residual, for `channels` output channels of the tile's pixels.
pub(super) fn moved_sectors(problem: &TuckerProblem, [th, tw]: [u32; 2], channels: f64) -> f64 {
    let of_row = match tw % 8 {
        0 => f64::from(tw / 8),
        _ => f64::from(tw / 8) + 1.5,
    };
    let stored = of_row * f64::from(th) * channels;
    match problem.epilogue.residual {
        true => 2.0 * stored,
        false => stored,
    }
}
