//! A lower bound of the predicted time of tiled kernels, by which tile spaces are searched.

use super::TiledWork;
use crate::gpu::{Gpu, Products};

/// The work of a block of a tiled kernel, whatever its chunks, stages and split-K: what all such tiles have in total, or at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct TiledTotals {
    /// Blocks of the grid.
    pub(crate) blocks: u64,
    /// Blocks of a cluster.
    pub(crate) cluster: u32,
    /// Bytes moved to and from device memory.
    pub(crate) dram_bytes: f64,
    /// How products are computed.
    pub(crate) products: Products,
    /// Output vectors of a block.
    pub(crate) outputs: f64,
    /// The totals of the block over all its chunks: `k_steps` of all warps, `positions` of all threads, wavefronts, cache lines and
    /// bytes. `chunks`, `refilled_chunks`, `loops`, `divisions_per_position`, `partial_sums`, `store_rounds` and `store_divisions` are
    /// not read.
    pub(crate) work: TiledWork,
}

/// A lower bound of the predicted time of launches with the same [`TiledTotals`].
///
/// The [prediction](super::tiled_terms) is `rounds * (sum of terms)`. A term is at least what the blocks resident on the busiest SM need
/// of its throughput, `resident * t`, and at least the latency `l` of a single block. There is at least one round, and `rounds * resident`
/// is at least the number of blocks on that SM (a partial wave counts as the square root of its fraction, which is not less than the
/// fraction). So each term contributes at least `max(blocks * t, l)`. Numbers are clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TiledBound {
    compute_throughput: f64,
    /// Latency of the K steps of all warps, one after the other.
    compute_latency: f64,
    stage_throughput: f64,
    stage_latency: f64,
    /// Costs of each chunk, and of each chunk for each warp.
    chunk: f64,
    chunk_warp: f64,
    later_chunk: f64,
    /// Costs of each warp that a launch has once.
    warp: f64,
    /// Everything else on the SM.
    rest: f64,
    us_per_clock: f64,
    launch_us: f64,
    /// Times of device memory and L2, microseconds, to the fourth power.
    memory: f64,
}

impl TiledTotals {
    /// The bound on a GPU.
    pub(crate) fn bound(&self, gpu: &Gpu) -> TiledBound {
        let model = gpu.cost_model().tiled(self.products);
        let work = &self.work;
        let (blocks, clock, sms) = (
            self.blocks as f64,
            f64::from(gpu.clock_mhz),
            f64::from(gpu.sms),
        );
        let busiest_blocks = (blocks / sms).ceil();
        // Clocks of an SM for an instruction of a warp: it has four partitions.
        let issue = model.instruction_issue / 4.0;

        let product = work.mma_per_step * model.mma_issue;
        let step_throughput = (product / 4.0)
            .max(issue * work.instructions_per_step)
            .max(work.wavefronts_per_step * model.shared_wavefront);
        let step_latency = product
            .max(work.dependent_mma * model.mma_latency)
            .max(model.instruction_latency * work.instructions_per_step);
        let first_operands =
            model.loop_start_reads * work.wavefronts_per_step * model.shared_wavefront;

        let staging = work.positions / 32.0
            * (model.staging_per_load * work.loads_per_position
                + model.staging_per_value * work.values_per_position);
        let shared =
            work.staged_wavefronts * model.shared_wavefront + work.cache_lines * model.cache_line;

        let rounds = self.outputs / 32.0 * (model.store_round + model.partial_add);
        let accumulators = issue * model.partial_add * work.accumulators;
        let exchange = if self.cluster > 1 {
            model.cluster_exchange_latency
                + busiest_blocks * work.sent_bytes / model.cluster_bytes_per_clock
        } else {
            0.0
        };
        let residual = if work.residual {
            model.residual_latency
        } else {
            0.0
        };
        let store = busiest_blocks * work.stored_sectors * model.stored_sector + residual;
        let slower = if self.cluster == 3 {
            model.cluster_of_3
        } else {
            1.0
        };
        let dram = gpu.launch_us + self.dram_bytes / gpu.sustained_bytes_per_us();
        let all_bytes = blocks * (work.input_bytes + work.weight_bytes);
        let l2 = gpu.launch_us + all_bytes / (sms * model.l2_bytes_per_clock_all_sms * clock);
        TiledBound {
            compute_throughput: busiest_blocks * work.k_steps * step_throughput,
            compute_latency: work.k_steps * step_latency,
            stage_throughput: busiest_blocks * (issue * staging).max(shared),
            stage_latency: model.instruction_latency * staging,
            chunk: model.chunk_barriers,
            chunk_warp: busiest_blocks * model.chunk_barriers_per_warp,
            later_chunk: model.later_chunk_latency,
            warp: busiest_blocks * (first_operands + accumulators),
            rest: model.first_chunk_latency + busiest_blocks * issue * rounds + exchange + store,
            us_per_clock: slower / clock,
            launch_us: gpu.launch_us,
            memory: dram.powi(4) + l2.powi(4),
        }
    }
}

impl TiledBound {
    /// At most the predicted time of a launch with at least `chunks` chunks and `[least, most]` warps in a block, microseconds.
    pub(crate) fn us(&self, chunks: u32, warps: [u32; 2]) -> f64 {
        let chunks = f64::from(chunks);
        let [min_warps, max_warps] = warps.map(f64::from);
        let compute = self
            .compute_throughput
            .max(self.compute_latency / max_warps);
        let stage = self.stage_throughput.max(self.stage_latency / max_warps)
            + chunks * (self.chunk + min_warps * self.chunk_warp);
        // The first chunk, then for each other one its computation or the wait for it.
        let work = compute + stage;
        let work = work.max(work / chunks + (chunks - 1.0) * self.later_chunk);
        let clocks = work + min_warps * self.warp + self.rest;
        let busy = self.launch_us + self.us_per_clock * clocks;
        (busy.powi(4) + self.memory).sqrt().sqrt()
    }
}

/// A lower bound of the predicted time of a tiled kernel that computes `flops` FLOP on the fp32 lanes, microseconds: the issue of its
/// multiply-adds on all SMs.
pub(crate) fn fp32_issue_us(flops: u64, gpu: &Gpu) -> f64 {
    let model = gpu.cost_model().tiled(Products::Fp32);
    let instructions = flops as f64 / (2.0 * 32.0);
    let sm_partitions = 4.0 * f64::from(gpu.sms);
    gpu.launch_us
        + model.instruction_issue * instructions / sm_partitions / f64::from(gpu.clock_mhz)
}
