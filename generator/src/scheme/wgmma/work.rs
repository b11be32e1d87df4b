//! The work of a launch, from which the cost model predicts its time.

use super::geometry::{INPUT_STAGES, PLANE_CHANNELS, WgmmaGeometry};
use super::{WGMMA_M, WgmmaTile};
use crate::cost::{KernelWork, kernel_us, occupancy};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::tensor_core::{MMA_K, products, scales_input, split_terms};
use crate::scheme::tiling::InputTraffic;

/// Bytes that an SM reads from shared memory in a clock.
pub(super) const SHARED_BYTES_PER_CLOCK: f64 = 128.0;

/// What a chunk of the input costs.
struct InputClocks {
    /// Clocks of what the blocks of an SM share: issue slots and cache lines.
    issue: f64,
    /// Bytes from L2.
    bytes: f64,
    /// Clocks that a block waits for it whatever the others do.
    wait: f64,
}

/// Products of a K step: three of hi and lo terms, or one.
fn products_of_step(split_terms: u32) -> f64 {
    if split_terms == 2 { 3.0 } else { 1.0 }
}

/// Clocks of a warpgroup's products of a K step with `tn` output channels. They occupy all tensor cores of the SM.
fn mma_clocks(tn: u32, split_terms: u32, gpu: &Gpu) -> f64 {
    let macs = f64::from(WGMMA_M * MMA_K) * f64::from(tn);
    macs * products_of_step(split_terms) / (f64::from(gpu.tensor_flops) / 2.0)
}

impl WgmmaTile {
    /// A lower bound of the predicted time with any chunks, producers and stages, microseconds: the products on the SM with the most blocks.
    pub(super) fn least_us(&self, problem: &ConvProblem, gpu: &Gpu) -> f64 {
        let model = gpu.cost_model().wgmma(products(problem.precision));
        let shape = &problem.shape;
        let rows = (shape.batch * shape.out_h()).div_ceil(self.th);
        let tile_step = (rows * shape.out_w().div_ceil(self.tw)).div_ceil(self.block_tiles);
        let blocks = f64::from(shape.n.div_ceil(self.tn)) * f64::from(tile_step);
        let steps = f64::from(shape.c.div_ceil(MMA_K) * shape.r * shape.s * self.block_tiles);
        let step = model.product * mma_clocks(self.tn, split_terms(problem.precision), gpu);
        let busiest = (blocks / f64::from(gpu.sms)).ceil() * f64::from(self.warpgroups);
        least_us(model.start + busiest * steps * step, gpu)
    }
}

/// The time of a launch whose blocks keep an SM busy for some clocks, if nothing else takes time, microseconds.
pub(super) fn least_us(clocks: f64, gpu: &Gpu) -> f64 {
    let work = KernelWork {
        blocks: 1,
        threads: 32,
        fma_fraction: 1.0,
        latency_clocks: clocks,
        pdl: true,
        ..KernelWork::default()
    };
    kernel_us(&work, gpu)
}

impl WgmmaGeometry {
    /// The predicted time of the launch, microseconds.
    pub(super) fn us(&self, problem: &ConvProblem, gpu: &Gpu) -> f64 {
        kernel_us(&self.work(problem, gpu), gpu)
    }

    /// Work of the launch, for the cost model.
    pub(super) fn work(&self, problem: &ConvProblem, gpu: &Gpu) -> KernelWork {
        let blocks = self
            .grid(problem)
            .iter()
            .map(|&size| u64::from(size))
            .product();
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
        let model = gpu.cost_model().wgmma(products(problem.precision));
        let tile = &self.tile;
        let warpgroups = f64::from(tile.warpgroups);
        let products_of_step = products_of_step(self.split_terms);
        let mma = mma_clocks(tile.tn, self.split_terms, gpu) * f64::from(self.sum.steps);
        let promoted = match scales_input(problem.precision) {
            true => f64::from(tile.tn) / 2.0 * model.promoted_value,
            false => 0.0,
        };
        let stages = f64::from(self.sum.chunk_stages());
        // A warpgroup waits for the product of the step before while it loads the operands of the next one.
        let steps = f64::from(self.sum.steps);
        // Without promotion products of different stages overlap.
        let stage = match scales_input(problem.precision) {
            true => model.stage + promoted,
            false => model.overlapped_stage,
        };
        let consumer = (model.product * mma).max(steps * model.step) + stages * stage;
        // Operands from shared memory: the pixels of a warpgroup for each step, the weights for each product.
        let operands = 32.0 * f64::from(WGMMA_M * self.split_terms)
            + 32.0 * f64::from(tile.tn) * products_of_step;
        let operands = operands * steps * warpgroups / SHARED_BYTES_PER_CLOCK * model.shared_memory;
        let channels = tile.chunk_groups * MMA_K;
        let weights = f64::from(4 * self.sum.steps * self.sum.step_weights);
        // What the blocks of an SM share: tensor cores, issue slots and cache lines of loads, bytes from L2.
        let tensor_cores = model.product * mma * warpgroups;
        let input = self.converted_input(problem, gpu);
        let bytes = (input.bytes + weights) / model.l2_bytes_per_clock;
        let shared = tensor_cores.max(operands).max(input.issue).max(bytes) * resident;
        let chunk = shared.max(consumer).max(input.wait);
        let outputs = f64::from(tile.tn) * f64::from(WGMMA_M * tile.warpgroups);
        let (per_sector, stored_sector) = match problem.writes_16_bit_nhwc() {
            true => (16.0, model.stored_sector_nhwc),
            false => (8.0, model.stored_sector),
        };
        let sectors = outputs / per_sector * if problem.epilogue.residual { 2.0 } else { 1.0 };
        let epilogue = model.tile + sectors * stored_sector * resident;
        // The first chunks of a tile are loaded while the last ones of the tile before are computed.
        let chunks = f64::from(self.sum.chunks);
        let hidden = f64::from(INPUT_STAGES).min(chunks) / chunks;
        let tile_clocks = f64::from(self.sum.chunks) * chunk + epilogue * (1.0 - 0.5 * hidden);
        let planes = f64::from(channels / PLANE_CHANNELS);
        model.start + model.load_latency + planes + f64::from(tile.block_tiles) * tile_clocks
    }

    /// A chunk of the input that is loaded, converted and stored to shared memory.
    fn converted_input(&self, problem: &ConvProblem, gpu: &Gpu) -> InputClocks {
        let model = gpu.cost_model().wgmma(products(problem.precision));
        let tile = &self.tile;
        let staged = f64::from(self.items * PLANE_CHANNELS * self.loader_warps());
        let channels = tile.chunk_groups * MMA_K;
        // Rows of different images are not contiguous.
        let out_h = problem.shape.out_h();
        let images = f64::from(tile.th.div_ceil(out_h));
        let traffic = InputTraffic::new(problem, [tile.th.min(out_h), tile.tw], channels, 0.0);
        let converting = model.chunk
            + f64::from(self.items * PLANE_CHANNELS)
                * f64::from(self.loader_warps().div_ceil(4))
                * model.loaded_value;
        InputClocks {
            issue: staged * model.staged_value
                + (images * traffic.lines).max(staged) * model.cache_line,
            bytes: images * traffic.bytes,
            wait: match tile.load_stages {
                1 => model.load_latency + converting,
                _ => model.load_latency.max(converting),
            },
        }
    }
}
