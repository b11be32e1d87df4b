//! The work of a launch, from which the cost model predicts its time.

use super::geometry::MmaNhwcGeometry;
use crate::cost::{KernelWork, occupancy, overlapped};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, products};

/// Partitions of an SM, each with its own tensor core and issue slot.
const PARTITIONS: f64 = 4.0;

/// Bytes of a cache line.
const LINE: f64 = 128.0;

impl MmaNhwcGeometry {
    /// Work of the launch, for the cost model.
    pub(super) fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let work = KernelWork {
            blocks: self.blocks,
            threads: self.threads(),
            registers: self.registers.allocated,
            shared_bytes: 4 * self.shared_floats,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            // Arithmetic is part of the block's clocks.
            fma_fraction: 1.0,
            pdl: true,
            products: products(problem.precision),
            ..KernelWork::default()
        };
        let busiest = (self.blocks as f64 / f64::from(gpu.sms)).ceil();
        let resident = f64::from(occupancy(&work, gpu).blocks_per_sm).clamp(1.0, busiest);
        let waves = (busiest / resident).ceil();
        let blocks_clocks = waves * self.block_clocks(problem, gpu, resident);
        // Reads and writes of global memory overlap with the blocks' work, but not completely.
        let pixel_bytes = f64::from(16 * self.pixel_runs * self.chunks);
        let narrow = gpu.cost_model().mma_nhwc.narrow * ((LINE / pixel_bytes).max(1.0) - 1.0);
        let dram_clocks = (1.0 + narrow) * work.dram_bytes / (f64::from(gpu.dram_gbs) * 1e3)
            * f64::from(gpu.clock_mhz);
        KernelWork {
            latency_clocks: blocks_clocks.hypot(dram_clocks) / waves,
            ..work
        }
    }

    /// Clocks of a block that shares its SM with others, `resident` in all.
    fn block_clocks(&self, problem: &ConvProblem, gpu: &Gpu, resident: f64) -> f64 {
        let model = gpu.cost_model().mma_nhwc;
        let tile = &self.tile;
        let [m_tiles, p_tiles] = [tile.m_tiles, self.p_tiles].map(f64::from);
        let warps = f64::from(tile.warps_m * tile.warps_p);
        let k_steps = f64::from(tile.chunk_groups * tile.taps);
        let chunk_stages = f64::from(self.chunk_stages);
        let per_partition = warps / PARTITIONS;
        // Of a warp and stage: products, matrix loads and copies.
        let macs = m_tiles * p_tiles * k_steps * f64::from(MMA_M * MMA_N * MMA_K);
        let products = model.product * macs / (f64::from(gpu.tensor_flops) / 2.0 / PARTITIONS);
        // With a stride, reads of neighbouring pixels conflict in shared-memory banks.
        let stride = problem.shape.stride[1];
        let conflicts = f64::from((stride & stride.wrapping_neg()).min(4));
        let loads = k_steps * (m_tiles + conflicts * p_tiles / 2.0);
        let copies = f64::from(self.items) / chunk_stages
            + f64::from(self.stage_weights) / 4.0 / (32.0 * warps);
        let instructions = k_steps * (m_tiles * p_tiles + m_tiles + model.load * p_tiles / 2.0)
            + model.copy * copies;
        // What all warps of the SM share.
        let bytes =
            16.0 * f64::from(self.input_runs) / chunk_stages + 4.0 * f64::from(self.stage_weights);
        let shared = (per_partition * products)
            .max(per_partition * model.instruction * instructions)
            .max(4.0 * model.shared_wavefront * warps * loads)
            .max(bytes / model.l2_bytes_per_clock)
            * resident;
        // A block on its own waits for its copies, and for barriers.
        let in_flight = f64::from(self.prefetched);
        let alone = (model.load_latency / in_flight).max(per_partition.max(1.0) * products);
        let step = overlapped(shared, alone) + model.step;
        let outputs = f64::from(self.sums.tile.iter().product::<u32>());
        let runs = outputs / 8.0 * if problem.epilogue.residual { 1.5 } else { 1.0 };
        model.start
            + model.load_latency
            + f64::from(self.steps) * step
            + runs * model.stored_run * resident
    }
}
