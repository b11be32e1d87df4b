//! The work of a launch, from which the cost model predicts its time.

use super::geometry::NhwcGeometry;
use super::{WgmmaNhwcTile, terms};
use crate::cost::{KernelWork, kernel_us, occupancy, overlapped, resident_blocks};
use crate::gpu::{Gpu, Products};
use crate::ir::{ConvProblem, Format, Problem};
use crate::scheme::tensor_core::{MMA_K, PROMOTION_INTERVAL, products};
use crate::scheme::wgmma::WGMMA_M;
use crate::scheme::wgmma::geometry::wgmma_n;
use crate::scheme::wgmma::work::{SHARED_BYTES_PER_CLOCK, least_us};

/// Clocks of a warpgroup's products of a K step, without the promotion. They occupy all tensor cores of the SM.
fn step_clocks(tile: &WgmmaNhwcTile, terms: u32, products: Products, gpu: &Gpu) -> f64 {
    let model = gpu.cost_model().wgmma_nhwc(products);
    let tn = f64::from(tile.tn);
    let macs = f64::from(WGMMA_M * MMA_K) * tn;
    let mma = model.product * macs / (f64::from(gpu.tensor_flops) / 2.0);
    // Operands from shared memory: the rows of a warpgroup for each product, and its weights.
    let slices = wgmma_n(tile.tn).map_or(1.0, |columns| f64::from(tile.tn / columns));
    let operands = 32.0 * (f64::from(WGMMA_M) * slices + tn) / SHARED_BYTES_PER_CLOCK;
    let product = mma.max(operands * model.shared_memory);
    match terms {
        1 => product,
        _ => 3.0 * product,
    }
}

/// Clocks to add the partial sums of a warpgroup after a stage of weights.
fn promoted_clocks(tile: &WgmmaNhwcTile, products: Products, gpu: &Gpu) -> f64 {
    gpu.cost_model().wgmma_nhwc(products).promoted_value * f64::from(tile.tn) / 2.0
}

impl WgmmaNhwcTile {
    /// A lower bound of the predicted time with any chunks, producers and stages, microseconds: the products on the SM with the most blocks.
    /// `tiles` is the number of tiles along the cells.
    pub(super) fn least_us(&self, problem: &ConvProblem, tiles: u32, gpu: &Gpu) -> f64 {
        let products = products(problem.precision);
        let model = gpu.cost_model().wgmma_nhwc(products);
        let shape = &problem.shape;
        let terms = terms(problem);
        let columns = f64::from(shape.n.div_ceil(self.tn));
        let blocks = columns * f64::from(tiles.div_ceil(self.block_tiles) * self.cluster);
        let busiest = (blocks / resident_blocks(self.cluster, 1.0, gpu)).ceil();
        let steps = f64::from(shape.c / MMA_K * shape.r * shape.s) / f64::from(self.cluster);
        let promoted = match terms {
            1 => 0.0,
            _ => promoted_clocks(self, products, gpu) / f64::from(PROMOTION_INTERVAL),
        };
        let step = step_clocks(self, terms, products, gpu) + promoted;
        let of_tile = steps * step * f64::from(self.warpgroups);
        least_us(
            model.start + busiest * f64::from(self.block_tiles) * of_tile,
            gpu,
        )
    }
}

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
            cluster: self.tile.cluster,
            products: products(problem.precision),
            ..KernelWork::default()
        };
        let at_once = resident_blocks(self.tile.cluster, 1.0, gpu);
        let busiest = (blocks as f64 / at_once).ceil();
        let resident = f64::from(occupancy(&work, gpu).blocks_per_sm).clamp(1.0, busiest);
        let waves = (busiest / resident).ceil();
        let blocks_clocks = waves * self.block_clocks(problem, gpu, resident);
        // Reads and writes of global memory overlap with the blocks' work, but not completely.
        let dram_clocks =
            work.dram_bytes / (f64::from(gpu.dram_gbs) * 1e3) * f64::from(gpu.clock_mhz);
        KernelWork {
            latency_clocks: blocks_clocks.hypot(dram_clocks) / waves,
            ..work
        }
    }

    /// Clocks of a block that shares its SM with others, `resident` in all.
    fn block_clocks(&self, problem: &ConvProblem, gpu: &Gpu, resident: f64) -> f64 {
        let model = gpu.cost_model().wgmma_nhwc(self.products);
        let tile = &self.tile;
        let [warpgroups, chunks] = [tile.warpgroups, self.sum.chunks].map(f64::from);
        let products = self.product_clocks(gpu);
        // What the blocks of an SM share: its tensor cores and its bytes from L2.
        let shared = (products * warpgroups).max(self.chunk_bytes() / model.l2_bytes_per_clock);
        let consumer = products + model.chunk;
        let chunk = overlapped(
            overlapped(shared * resident, consumer),
            self.copy_clocks(gpu),
        );
        let outputs = f64::from(tile.tn) * f64::from(self.rows());
        let residual = problem.epilogue.residual;
        // Of the outputs of a tile a block stores its part.
        let stored = outputs / f64::from(tile.cluster);
        let runs = stored / 8.0 * if residual { 2.0 } else { 1.0 };
        let run = match problem.output.dense() {
            Format::FP16_NHWC | Format::BF16_NHWC => model.stored_run,
            Format::SPLIT_NHWC => 2.0 * model.stored_run,
            _ => model.stored_run_nchw,
        };
        let residuals = match residual {
            true => f64::from(tile.tn / self.exchange.channels) * model.residual_latency,
            false => 0.0,
        };
        let epilogue = model.tile + overlapped(runs * run * resident, residuals);
        let tile_clocks = if self.takes_turns() {
            // Outputs are stored while other warpgroups multiply.
            let of_warpgroup = overlapped(runs * run / warpgroups, residuals);
            let of_warpgroup = chunks * consumer + model.tile + of_warpgroup;
            overlapped(overlapped(chunks * chunk, of_warpgroup), epilogue)
        } else {
            // The first chunks of a tile are copied while the outputs of the tile before are stored.
            let hidden = f64::from(tile.input_stages).min(chunks) / chunks;
            chunks * chunk + epilogue * (1.0 - 0.5 * hidden)
        };
        let exchange = match tile.cluster {
            1 => 0.0,
            _ => model.exchange + model.exchanged_value * f64::from(self.received()),
        };
        model.start + f64::from(tile.block_tiles) * tile_clocks + exchange
    }

    /// Clocks of a warpgroup's products of a chunk.
    fn product_clocks(&self, gpu: &Gpu) -> f64 {
        let step = step_clocks(&self.tile, self.terms, self.products, gpu);
        let steps = f64::from(self.sum.steps) * step;
        let promoted = match self.terms {
            1 => 0.0,
            _ => {
                f64::from(self.sum.chunk_stages()) * promoted_clocks(&self.tile, self.products, gpu)
            }
        };
        steps + promoted
    }

    /// Bytes of input and weights that are copied for a chunk.
    fn chunk_bytes(&self) -> f64 {
        let copies = self.items * 32 * self.loader_warps();
        let weights = match self.sum.keeps_weights() {
            true => 0,
            false => self.sum.steps * self.sum.step_weights,
        };
        16.0 * f64::from(copies) + 4.0 * f64::from(weights)
    }

    /// Clocks from a chunk's copies to the next one's, if nothing else takes longer.
    fn copy_clocks(&self, gpu: &Gpu) -> f64 {
        let model = gpu.cost_model().wgmma_nhwc(self.products);
        let instructions = model.loaded_chunk + model.copy * f64::from(self.items);
        let in_flight = |stages: u32| f64::from(stages.max(2) - 1);
        let input = model.load_latency / in_flight(self.tile.input_stages);
        let weights = match self.sum.keeps_weights() {
            true => 0.0,
            false => {
                let stages = f64::from(self.sum.chunk_stages());
                stages * model.weights_latency / in_flight(self.tile.stages)
            }
        };
        instructions.max(input).max(weights)
    }
}
