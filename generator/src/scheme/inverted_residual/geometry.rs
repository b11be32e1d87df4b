//! A tile with everything that follows from it.

use super::InvertedResidualTile;
use crate::cost::{KernelWork, resident_blocks};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu, MAX_REGISTERS, PORTABLE_CLUSTER};
use crate::ir::{InvertedResidualProblem, Problem};
use crate::scheme::factor::{Arrangements, Factor, FactorProduct};
use crate::scheme::tensor_core::{
    MAX_WARPS, MMA_K, MMA_M, MMA_N, products, quad_plane, split_terms,
};
use crate::scheme::{MAX_GRID, Tile};
use tdc_runtime::ConvShape;

/// Channel quads of a position that a thread loads, and quads of a pixel that it filters, at most: they are in registers at the same time.
const MAX_ITEMS: u32 = 12;

/// Bulk copies of weights, each with an mbarrier: those of the expansion, of the depthwise convolution, and of the projection.
pub(super) const WEIGHT_COPIES: u32 = 3;

/// Floats of an mbarrier.
pub(super) const BARRIER_FLOATS: u32 = 2;

/// A tile with the sizes that follow from it.
pub(super) struct Geometry {
    pub(super) tile: InvertedResidualTile,
    /// Rows and columns of the input tile.
    pub(super) rows: u32,
    pub(super) row_len: u32,
    /// Channel quads of the input, and the distance of two in shared memory.
    pub(super) input_quads: u32,
    pub(super) input_plane: u32,
    /// Expanded channels of a block, and the distance of two of their quads: as expanded values and as operands of the projection.
    pub(super) slice: u32,
    pub(super) expanded_plane: u32,
    pub(super) filtered_plane: u32,
    /// Adjacent pixels of a channel quad that a thread filters at a time.
    pub(super) run: u32,
    /// Output channels that a block adds and stores.
    pub(super) block_n: u32,
    pub(super) expand: Factor,
    pub(super) project: Factor,
    pub(super) memory: SharedMemory,
    /// Blocks of the launch.
    pub(super) blocks: u64,
    /// Estimated registers of a thread.
    pub(super) registers: u32,
    /// 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
}

/// Offsets in shared memory, in floats.
pub(super) struct SharedMemory {
    pub(super) expand_weights_at: u32,
    pub(super) depthwise_weights_at: u32,
    pub(super) project_weights_at: u32,
    pub(super) input_at: u32,
    pub(super) expanded_at: u32,
    pub(super) filtered_at: u32,
    /// Partial sums from the blocks of the cluster.
    pub(super) received_at: u32,
    /// For each expanded channel of the block: dequantisation scale and bias of the expansion, bias of the depthwise convolution.
    pub(super) channel_values_at: u32,
    pub(super) warp_max_at: u32,
    pub(super) sums_barrier_at: u32,
    pub(super) copy_barriers_at: u32,
    /// All floats.
    pub(super) floats: u32,
}

impl Geometry {
    /// `None` if the tile is not valid, or not for this problem.
    pub(super) fn new(
        problem: &InvertedResidualProblem,
        tile: InvertedResidualTile,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<Self> {
        if !is_valid(&tile) || !supports_problem(problem) {
            return None;
        }
        let shape = &problem.depthwise;
        let split_terms = split_terms(problem.precision);
        let reach = |axis: usize, outputs: u32, taps: u32| {
            (outputs - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        let (rows, row_len) = (reach(0, tile.th, shape.r), reach(1, tile.tw, shape.s));
        let (positions, pixels) = (rows.checked_mul(row_len)?, tile.th * tile.tw);
        let threads = 32 * tile.warps;
        let groups = shape.c.div_ceil(MMA_K);
        let block_groups = groups.div_ceil(tile.cluster);
        let block_n = problem.n.div_ceil(tile.cluster);
        let is_divided = (tile.cluster - 1) * block_groups < groups;
        let slice = block_groups * MMA_K;
        let input_groups = problem.c.div_ceil(MMA_K);
        let input_quads = input_groups * MMA_K / 4;
        let run = run(shape, tile.tw, (slice / 4 * pixels, threads));
        let input_items = input_quads.checked_mul(positions)?.div_ceil(threads);
        let filtered_items = (slice / 4 * pixels / run).div_ceil(threads);
        let items = [
            input_items,
            filtered_items * run,
            (block_n * pixels).div_ceil(threads),
        ];
        if !is_divided || items.iter().any(|&items| items > MAX_ITEMS) {
            return None;
        }
        let (input_plane, filtered_plane) = (
            quad_plane(positions, split_terms),
            quad_plane(pixels, split_terms),
        );
        let mut product = |tiles: [u32; 2], steps: u32, plane: u32, max_warps_k: u32| {
            let product = FactorProduct {
                tiles,
                counts: [steps, 1, 1],
                steps,
                warps: tile.warps,
                max_warps_k,
                split_terms,
            };
            if product.needs_more_registers() {
                return None;
            }
            Factor::new(arrangements, product, 1, [4 * plane, 1, 1])
        };
        let expand = product(
            [block_groups, positions.div_ceil(MMA_N)],
            input_groups,
            input_plane,
            1,
        )?;
        // With clusters the blocks split K already. Steps that warps save there are lost again, because more partial sums are exchanged.
        let max_warps_k = if tile.cluster > 1 { 1 } else { 4 };
        let project = product(
            [problem.n.div_ceil(MMA_M), pixels.div_ceil(MMA_N)],
            block_groups,
            filtered_plane,
            max_warps_k,
        )?;
        // Odd multiples of 16 bytes: rows of accumulators are stored to different banks.
        let expanded_plane = positions.next_multiple_of(8) + 1;
        let memory = SharedMemory::new(&Contents {
            expand_weights: expand.weights(),
            depthwise_weights: slice * shape.r * shape.s,
            project_weights: project.weights(),
            input: 2 * split_terms * input_quads * input_plane,
            expanded: slice * expanded_plane,
            filtered: 2 * split_terms * slice / 4 * filtered_plane,
            received: tile.cluster * project.warps_k * block_n * project.partial_pitch,
            slice,
            warps: tile.warps,
        });
        let operands = [&expand, &project].map(|factor| {
            // Accumulators, and those of the products that are added separately.
            let accumulators = match factor.separate_accumulators {
                true => 16,
                false => 8,
            };
            accumulators * factor.m_tiles * factor.p_tiles + 8 * factor.m_tiles + 5 * factor.p_tiles
        });
        let loaded = 4 * items[0].max(items[1] + run_reach(shape, run));
        let registers = operands[0].max(operands[1]).max(loaded) + 36;
        let fits = registers * threads <= gpu.registers_per_sm
            && registers <= MAX_REGISTERS
            && memory.floats <= gpu.shared_per_block.min(FIRST_CLUSTER_GPU.shared_per_block) / 4;
        let mut sizes = Self {
            tile,
            rows,
            row_len,
            input_quads,
            input_plane,
            slice,
            expanded_plane,
            filtered_plane,
            run,
            block_n,
            expand,
            project,
            memory,
            blocks: 0,
            registers,
            split_terms,
        };
        let [tiles, _] = sizes.tiles(problem);
        sizes.blocks = u64::from(tiles) * u64::from(shape.batch) * u64::from(tile.cluster);
        let has_grid = sizes.blocks <= i32::MAX as u64;
        (fits && has_grid).then_some(sizes)
    }

    /// As [`new`](Self::new), of the numbers of a tile.
    pub(super) fn from_tile(
        problem: &InvertedResidualProblem,
        tile: &Tile,
        gpu: &Gpu,
    ) -> Option<Self> {
        let tile = InvertedResidualTile::from_tile(tile)?;
        Self::new(problem, tile, gpu, &mut Arrangements::default())
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &InvertedResidualProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// Rectangles of an image, and of a row of rectangles.
    pub(super) fn tiles(&self, problem: &InvertedResidualProblem) -> [u32; 2] {
        let shape = &problem.depthwise;
        let tiles_w = shape.out_w().div_ceil(self.tile.tw);
        [shape.out_h().div_ceil(self.tile.th) * tiles_w, tiles_w]
    }

    pub(super) fn positions(&self) -> u32 {
        self.rows * self.row_len
    }

    pub(super) fn pixels(&self) -> u32 {
        self.tile.th * self.tile.tw
    }

    /// Pixels with padding to whole MMA tiles.
    pub(super) fn columns(&self) -> u32 {
        self.pixels().next_multiple_of(MMA_N)
    }

    /// Whether the copies of the weights that are needed last start after the loads of the input. If the blocks leave few SMs to the successor,
    /// its blocks cannot start early, and nothing hides the time until the copies have been issued.
    pub(super) fn copies_late(&self) -> bool {
        2 * self.blocks > u64::from(FIRST_CLUSTER_GPU.sms)
    }

    /// Items of each thread if all threads of the block have `all`.
    pub(super) fn items(&self, all: u32) -> u32 {
        all.div_ceil(32 * self.tile.warps)
    }

    /// Resident blocks of an SM.
    fn blocks_per_sm(&self, gpu: &Gpu) -> u32 {
        let threads = 32 * self.tile.warps;
        (gpu.shared_per_sm / (4 * self.memory.floats + gpu.shared_reserved))
            .min(gpu.threads_per_sm / threads)
            .min(gpu.registers_per_sm / (self.registers * threads))
            .max(1)
    }

    /// The work of a launch, for the cost model.
    pub(super) fn work(&self, problem: &InvertedResidualProblem, gpu: &Gpu) -> KernelWork {
        let products = products(problem.precision);
        let model = gpu.cost_model().inverted_residual(products);
        let shape = &problem.depthwise;
        let (blocks, warps) = (self.blocks as f64, f64::from(self.tile.warps));
        let taps = f64::from(shape.r * shape.s);
        let quads = f64::from(self.slice / 4);
        let loads = f64::from(self.items(self.input_quads * self.positions()));
        let filtered = f64::from(self.items(self.slice / 4 * self.pixels() / self.run));
        let filter_reads = f64::from(shape.r * (run_reach(shape, self.run) + shape.s));
        let mma = f64::from(self.expand.mma_count + self.project.mma_count);
        let slots = self.tile.cluster * self.project.warps_k;
        let exchanged = f64::from(self.block_n * self.columns() * slots);
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
        let other_blocks = busiest.min(f64::from(self.blocks_per_sm(gpu))) - 1.0;
        let latency = model.block
            + model.exchange * is_exchanged
            + busy * (1.0 + model.co_resident_block * other_blocks);
        KernelWork {
            blocks: self.blocks,
            threads: 32 * self.tile.warps,
            registers: self.registers,
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

/// Positions of a row that a thread reads for `run` adjacent pixels.
pub(super) fn run_reach(shape: &ConvShape, run: u32) -> u32 {
    (run - 1) * shape.stride[1] + (shape.s - 1) * shape.dilation[1] + 1
}

/// Adjacent pixels of a channel quad that a thread filters at a time, of a rectangle with rows of `tw`. With several it reads fewer weights and
/// positions, but fewer threads have work. `all` are the quads of all pixels, and the threads.
fn run(shape: &ConvShape, tw: u32, (quads, threads): (u32, u32)) -> u32 {
    // Estimated clocks: shared memory delivers 16 bytes for eight threads per clock; one thread waits for its reads and multiply-adds.
    let clocks = |&run: &u32| {
        let reads = u64::from(shape.r * (run_reach(shape, run) + shape.s));
        let [items, threads, run, taps] =
            [quads / run, threads, run, shape.r * shape.s].map(u64::from);
        let of_block = items.div_ceil(32) * 4 * reads;
        let of_thread = items.div_ceil(threads) * (8 * reads + 4 * run * taps);
        of_block.max(of_thread)
    };
    let runs = [1, 2, 4, 7].into_iter();
    let runs = runs.filter(|&run| tw.is_multiple_of(run) && run_reach(shape, run) <= 12);
    runs.min_by_key(clocks).unwrap_or(1)
}

/// Floats of the data in shared memory.
struct Contents {
    expand_weights: u32,
    depthwise_weights: u32,
    project_weights: u32,
    input: u32,
    expanded: u32,
    filtered: u32,
    received: u32,
    slice: u32,
    warps: u32,
}

impl SharedMemory {
    fn new(contents: &Contents) -> Self {
        let mut end = 0;
        let mut place = |floats: u32| {
            let at = end;
            end = (end + floats).next_multiple_of(4);
            at
        };
        let mut memory = Self {
            expand_weights_at: place(contents.expand_weights),
            depthwise_weights_at: place(contents.depthwise_weights),
            project_weights_at: place(contents.project_weights),
            input_at: place(contents.input),
            expanded_at: place(contents.expanded),
            filtered_at: place(contents.filtered),
            received_at: place(contents.received),
            channel_values_at: place(3 * contents.slice),
            // Of the input and of the filtered values.
            warp_max_at: place(2 * contents.warps),
            sums_barrier_at: place(BARRIER_FLOATS),
            copy_barriers_at: place(WEIGHT_COPIES * BARRIER_FLOATS),
            floats: 0,
        };
        memory.floats = end;
        memory
    }
}

/// Whether the numbers of a tile are in the ranges that every problem supports.
fn is_valid(tile: &InvertedResidualTile) -> bool {
    let InvertedResidualTile {
        th,
        tw,
        cluster,
        warps,
    } = *tile;
    ![th, tw, cluster, warps].contains(&0)
        && th.max(tw) <= 256
        && cluster <= PORTABLE_CLUSTER
        && warps <= MAX_WARPS
}

/// Whether the sizes of a problem are far from any limit of its kernel's integers.
fn supports_problem(problem: &InvertedResidualProblem) -> bool {
    let shape = &problem.depthwise;
    let channels = problem.c.max(problem.n).max(shape.c);
    let reach = |axis: usize, taps: u32| (taps - 1).saturating_mul(shape.dilation[axis]);
    let paddings = shape.padding;
    let padding = paddings.top.max(paddings.left).max(paddings.bottom);
    channels <= 1 << 14
        && shape.h.max(shape.w) <= 1 << 14
        && reach(0, shape.r).max(reach(1, shape.s)) <= 1 << 10
        && shape.stride.iter().all(|&stride| stride <= 1 << 10)
        && padding.max(paddings.right) <= 1 << 14
        && shape.out_h().max(shape.out_w()) <= MAX_GRID
}
