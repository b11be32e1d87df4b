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
        // The last wave may have fewer blocks on an SM, which then take less time.
        let (full_waves, rest) = ((busiest / resident).floor(), busiest % resident);
        let last = match rest > 0.0 {
            true => self.block_clocks(problem, gpu, rest),
            false => 0.0,
        };
        let model = gpu.cost_model().mma_nhwc;
        let blocks_clocks = full_waves * self.block_clocks(problem, gpu, resident) + last;
        let memory_clocks = model.memory * self.memory_clocks(work.dram_bytes, gpu);
        let clocks = model.start + blocks_clocks.hypot(memory_clocks);
        KernelWork {
            // The cost model multiplies them by the waves.
            latency_clocks: clocks / (busiest / resident).ceil(),
            ..work
        }
    }

    /// Clocks in which L2 and DRAM deliver what all blocks read and write.
    fn memory_clocks(&self, dram_bytes: f64, gpu: &Gpu) -> f64 {
        let model = gpu.cost_model().mma_nhwc;
        let dram = dram_bytes / (f64::from(gpu.dram_gbs) * 1e3) * f64::from(gpu.clock_mhz);
        let l2_bytes = self.blocks as f64 * f64::from(self.steps) * self.stage_bytes();
        let l2 = l2_bytes / (f64::from(gpu.sms) * model.l2_bytes_per_clock);
        let lines = (LINE / f64::from(16 * self.pixel_runs)).max(1.0);
        (1.0 + model.narrow * (lines - 1.0)) * dram.hypot(l2)
    }

    /// Bytes that a block reads for a stage.
    fn stage_bytes(&self) -> f64 {
        let input = 16.0 * f64::from(self.input_runs) / f64::from(self.chunk_stages);
        input + 4.0 * f64::from(self.stage_weights)
    }

    /// Clocks of a block that shares its SM with others, `resident` in all.
    fn block_clocks(&self, problem: &ConvProblem, gpu: &Gpu, resident: f64) -> f64 {
        let model = gpu.cost_model().mma_nhwc;
        let tile = &self.tile;
        let [m_tiles, p_tiles] = [tile.m_tiles, self.p_tiles].map(f64::from);
        let warps = f64::from(tile.warps_m * tile.warps_p);
        let k_steps = f64::from(tile.chunk_groups * tile.taps);
        // Of a warp and stage: products and matrix loads.
        let macs = m_tiles * p_tiles * k_steps * f64::from(MMA_M * MMA_N * MMA_K);
        let products = model.product * macs / (f64::from(gpu.tensor_flops) / 2.0 / PARTITIONS);
        // With a stride, reads of neighbouring pixels conflict in shared-memory banks.
        let stride = problem.shape.stride[1];
        let conflicts = f64::from((stride & stride.wrapping_neg()).min(4));
        let loads = k_steps * (m_tiles + conflicts * p_tiles / 2.0);
        let instructions = k_steps * (m_tiles * p_tiles + m_tiles + model.load * p_tiles / 2.0);
        // What all warps of a partition share, and all of the SM.
        let of_partition = (warps * resident / PARTITIONS).ceil();
        let shared = (of_partition * products.max(model.instruction * instructions))
            .max(4.0 * model.shared_wavefront * warps * resident * loads);
        // A warp on its own waits for the matrices of each K step.
        let own_warps = (warps / PARTITIONS).ceil();
        let alone = k_steps * model.load_latency + own_warps * products;
        let step = overlapped(shared, alone) + model.step;
        let stage_copies = f64::from(self.stage_weights) / 4.0 / (32.0 * warps);
        let first_copies = f64::from(self.items) + f64::from(self.prefetched) * stage_copies;
        let outputs = f64::from(self.sums.tile.iter().product::<u32>());
        let runs = outputs / 8.0 * if problem.epilogue.residual { 1.5 } else { 1.0 };
        let stores = overlapped(
            runs * model.stored_run * resident,
            runs / (32.0 * warps) * model.store_latency,
        );
        model.first_copy * first_copies + f64::from(self.steps) * step + stores
    }
}
