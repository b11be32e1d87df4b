//! The work of a launch, from which the cost model predicts its time.

use super::geometry::NhwcGeometry;
use crate::cost::{KernelWork, kernel_us, occupancy};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::tensor_core::{MMA_K, products};
use crate::scheme::wgmma::WGMMA_M;
use crate::scheme::wgmma::work::SHARED_BYTES_PER_CLOCK;

impl NhwcGeometry {
    /// The predicted time of the launch, microseconds.
    pub(super) fn us(&self, problem: &ConvProblem, gpu: &Gpu) -> f64 {
        kernel_us(&self.work(problem, gpu), gpu)
    }

    /// Work of the launch, for the cost model.
    pub(super) fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let grid = self.grid(problem).into_iter();
        let blocks = grid.map(u64::from).product();
        let work = KernelWork {
            blocks,
            threads: self.threads(),
            registers: self.registers.at_start,
            shared_bytes: 4 * self.memory.floats,
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
            // Arithmetic is part of the block's clocks.
            fma_fraction: 1.0,
            pdl: true,
            products: products(problem.precision),
            ..KernelWork::default()
        };
        let busiest = (blocks as f64 / f64::from(gpu.sms)).ceil();
        let resident = f64::from(occupancy(&work, gpu).blocks_per_sm).min(busiest);
        KernelWork {
            latency_clocks: self.block_clocks(problem, gpu, resident.max(1.0)),
            ..work
        }
    }

    /// Clocks of a block that shares its SM with others, `resident` in all.
    fn block_clocks(&self, problem: &ConvProblem, gpu: &Gpu, resident: f64) -> f64 {
        let model = &gpu.cost_model().wgmma_nhwc;
        let tile = &self.tile;
        let warpgroups = f64::from(tile.warpgroups);
        let steps = f64::from(self.steps);
        // A product of a warpgroup occupies all tensor cores of the SM.
        let macs = f64::from(WGMMA_M * MMA_K) * f64::from(tile.tn);
        let mma = model.product * macs / (f64::from(gpu.tensor_flops) / 2.0) * steps;
        let stages = f64::from(self.steps / self.stage_steps);
        let consumer = mma + model.chunk + stages * model.stage;
        // Operands from shared memory: the rows of a warpgroup for each product, and its weights.
        let slices = f64::from(tile.tn / self.wgmma_n);
        let operands = 32.0 * (f64::from(WGMMA_M) * slices + f64::from(tile.tn));
        let operands = operands * steps * warpgroups / SHARED_BYTES_PER_CLOCK * model.shared_memory;
        let copies = f64::from(self.items * 32 * self.loader_warps());
        let weights = match self.keeps_weights() {
            true => 0.0,
            false => f64::from(4 * self.steps * self.step_weights),
        };
        let bytes = (16.0 * copies + weights) / model.l2_bytes_per_clock;
        // What the blocks of an SM share: tensor cores, shared memory, issue slots of copies, bytes from L2.
        let shared = (mma * warpgroups)
            .max(operands)
            .max(copies * model.copied_item)
            .max(bytes);
        let in_flight = f64::from(tile.input_stages - 1).max(1.0);
        let chunk = (shared * resident)
            .max(consumer)
            .max(model.load_latency / in_flight);
        let outputs = f64::from(tile.tn) * f64::from(self.rows());
        let runs = outputs / 8.0 * if problem.epilogue.residual { 2.0 } else { 1.0 };
        let run = match problem.writes_fp16_nhwc() {
            true => model.stored_run,
            false => model.stored_run_nchw,
        };
        let epilogue = model.tile + runs * run * resident;
        let chunks = f64::from(self.chunks);
        let tile_clocks = if self.takes_turns() {
            // Outputs are stored while other warpgroups multiply.
            let of_warpgroup = chunks * consumer + model.tile + runs * run / warpgroups;
            (chunks * chunk).max(of_warpgroup).max(epilogue)
        } else {
            // The first chunks of a tile are copied while the outputs of the tile before are stored.
            let hidden = f64::from(tile.input_stages).min(chunks) / chunks;
            chunks * chunk + epilogue * (1.0 - 0.5 * hidden)
        };
        model.start + model.load_latency + f64::from(tile.block_tiles) * tile_clocks
    }
}
