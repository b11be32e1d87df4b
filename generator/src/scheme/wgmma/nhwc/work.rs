//! The work of a launch, from which the cost model predicts its time.

use super::geometry::{NhwcGeometry, received};
use super::terms;
use super::tile_space::TileGroup;
use crate::cost::{KernelWork, kernel_us, occupancy, overlapped, resident_blocks};
use crate::gpu::{Gpu, Products};
use crate::ir::{ConvProblem, Format, Problem};
use crate::scheme::tensor_core::{MMA_K, PROMOTION_INTERVAL, products};
use crate::scheme::wgmma::WGMMA_M;
use crate::scheme::wgmma::geometry::wgmma_n;
use crate::scheme::wgmma::work::{SHARED_BYTES_PER_CLOCK, least_us};

/// Clocks of a warpgroup's products of a K step for `tn` output channels, without the promotion. They occupy all tensor cores of the SM.
fn step_clocks(tn: u32, terms: u32, products: Products, gpu: &Gpu) -> f64 {
    let model = gpu.cost_model().wgmma_nhwc(products);
    let slices = wgmma_n(tn).map_or(1.0, |columns| f64::from(tn / columns));
    let tn = f64::from(tn);
    let macs = f64::from(WGMMA_M * MMA_K) * tn;
    let mma = model.product * macs / (f64::from(gpu.tensor_flops) / 2.0);
    // Operands from shared memory: the rows of a warpgroup for each product, and its weights.
    let operands = 32.0 * (f64::from(WGMMA_M) * slices + tn) / SHARED_BYTES_PER_CLOCK;
    let product = mma.max(operands * model.shared_memory);
    match terms {
        1 => product,
        _ => 3.0 * product,
    }
}

/// Clocks to add the partial sums of a warpgroup after a stage of weights.
fn promoted_clocks(tn: u32, products: Products, gpu: &Gpu) -> f64 {
    gpu.cost_model().wgmma_nhwc(products).promoted_value * f64::from(tn) / 2.0
}

/// Clocks to store the outputs of a tile, in a cluster those of one block, and to read as many of a residual if there is one.
fn stored_clocks(problem: &ConvProblem, [rows, tn, cluster]: [u32; 3], gpu: &Gpu) -> f64 {
    let model = gpu.cost_model().wgmma_nhwc(products(problem.precision));
    let stored = f64::from(tn) * f64::from(rows) / f64::from(cluster);
    let runs = stored / 8.0 * if problem.epilogue.residual { 2.0 } else { 1.0 };
    let run = match problem.output.dense() {
        Format::FP16_NHWC | Format::BF16_NHWC => model.stored_run,
        Format::SPLIT_NHWC => 2.0 * model.stored_run,
        _ => model.stored_run_nchw,
    };
    runs * run
}

/// Clocks to exchange the partial sums of a tile in a cluster.
fn exchange_clocks(problem: &ConvProblem, [rows, tn, cluster]: [u32; 3], gpu: &Gpu) -> f64 {
    let model = gpu.cost_model().wgmma_nhwc(products(problem.precision));
    match cluster {
        1 => 0.0,
        _ => model.exchange + model.exchanged_value * f64::from(received(rows, tn, cluster)),
    }
}

/// Clocks to move bytes to and from device memory.
fn dram_clocks(bytes: f64, gpu: &Gpu) -> f64 {
    bytes / (f64::from(gpu.dram_gbs) * 1e3) * f64::from(gpu.clock_mhz)
}

impl TileGroup {
    /// A lower bound of the predicted times of its tiles, microseconds. `all_cells` are the cells of all images to the last output, and
    /// `dram_bytes` what the launch moves to and from device memory.
    ///
    /// It follows the SM with the most blocks, whose products and stores take as long whether it holds several blocks at a time or not.
    /// Copies hide at most half of a tile's epilogue; if warpgroups take turns, all of it may be hidden.
    pub(super) fn least_us(
        &self,
        problem: &ConvProblem,
        all_cells: u32,
        dram_bytes: f64,
        gpu: &Gpu,
    ) -> f64 {
        let Self {
            warpgroups,
            tn,
            block_tiles,
            cluster,
        } = *self;
        let products = products(problem.precision);
        let model = gpu.cost_model().wgmma_nhwc(products);
        let shape = &problem.shape;
        let terms = terms(problem);
        let rows = WGMMA_M * warpgroups;
        let columns = f64::from(shape.n.div_ceil(tn));
        let tile_step = all_cells.div_ceil(rows).div_ceil(block_tiles);
        let blocks = columns * f64::from(tile_step * cluster);
        let busiest = (blocks / resident_blocks(cluster, 1.0, gpu)).ceil();
        let steps = f64::from(shape.c / MMA_K * shape.r * shape.s) / f64::from(cluster);
        let promoted = match terms {
            1 => 0.0,
            _ => promoted_clocks(tn, products, gpu) / f64::from(PROMOTION_INTERVAL),
        };
        let of_warpgroup = steps * (step_clocks(tn, terms, products, gpu) + promoted);
        let all = busiest * of_warpgroup * f64::from(warpgroups);
        let multiplied = overlapped(all, of_warpgroup + model.chunk);
        let may_take_turns = terms == 1 && warpgroups > 1 && block_tiles > 1;
        let sizes = [rows, tn, cluster];
        let epilogue = match may_take_turns {
            true => 0.0,
            false => 0.5 * (model.tile + busiest * stored_clocks(problem, sizes, gpu)),
        };
        let of_tiles = f64::from(block_tiles) * (multiplied + epilogue);
        let clocks = model.start + of_tiles + exchange_clocks(problem, sizes, gpu);
        least_us(clocks.hypot(dram_clocks(dram_bytes, gpu)), gpu)
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
        let dram_clocks = dram_clocks(work.dram_bytes, gpu);
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
        let sizes = [self.rows(), tile.tn, tile.cluster];
        let stored = stored_clocks(problem, sizes, gpu);
        let residuals = match problem.epilogue.residual {
            true => f64::from(tile.tn / self.exchange.channels) * model.residual_latency,
            false => 0.0,
        };
        let epilogue = model.tile + overlapped(stored * resident, residuals);
        let tile_clocks = if self.takes_turns() {
            // Outputs are stored while other warpgroups multiply.
            let of_warpgroup = overlapped(stored / warpgroups, residuals);
            let of_warpgroup = chunks * consumer + model.tile + of_warpgroup;
            overlapped(overlapped(chunks * chunk, of_warpgroup), epilogue)
        } else {
            // The first chunks of a tile are copied while the outputs of the tile before are stored.
            let hidden = f64::from(tile.input_stages).min(chunks) / chunks;
            chunks * chunk + epilogue * (1.0 - 0.5 * hidden)
        };
        let exchange = exchange_clocks(problem, sizes, gpu);
        model.start + f64::from(tile.block_tiles) * tile_clocks + exchange
    }

    /// Clocks of a warpgroup's products of a chunk.
    fn product_clocks(&self, gpu: &Gpu) -> f64 {
        let step = step_clocks(self.tile.tn, self.terms, self.products, gpu);
        let steps = f64::from(self.sum.steps) * step;
        let promoted = match self.terms {
            1 => 0.0,
            _ => {
                f64::from(self.sum.chunk_stages())
                    * promoted_clocks(self.tile.tn, self.products, gpu)
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
