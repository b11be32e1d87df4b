//! A tile with everything that follows from it.

use super::InvertedResidualTile;
use super::products::{Products, registers};
use super::shared_memory::{Contents, SharedMemory};
use crate::gpu::{Gpu, PORTABLE_CLUSTER};
use crate::ir::InvertedResidualProblem;
use crate::scheme::Tile;
use crate::scheme::factor::{Arrangements, BlockResources, Factor, Rectangle};
use crate::scheme::tensor_core::{MAX_WARPS, MMA_K, quad_plane, split_terms};
use tdc_runtime::ConvShape;

/// Channel quads of a position that a thread loads, and quads of a pixel that it filters, at most: they are in registers at the same time.
const MAX_ITEMS: u32 = 12;

/// A tile with the sizes that follow from it.
pub(super) struct Geometry {
    pub(super) tile: InvertedResidualTile,
    /// What a cluster computes.
    pub(super) rectangle: Rectangle,
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
    pub(super) block: BlockResources,
    /// 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
}

impl Geometry {
    /// `None` if the tile is not valid, or not for this problem.
    pub(super) fn new(
        problem: &InvertedResidualProblem,
        tile: InvertedResidualTile,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<Self> {
        if !is_valid(&tile) || !supports_channels(problem) {
            return None;
        }
        let shape = &problem.depthwise;
        let split_terms = split_terms(problem.precision);
        let rectangle = Rectangle::new(shape, [tile.th, tile.tw])?;
        let (positions, pixels) = (rectangle.position_count(), rectangle.pixels());
        let threads = 32 * tile.warps;
        let groups = shape.c.div_ceil(MMA_K);
        let block_groups = groups.div_ceil(tile.cluster);
        let block_n = problem.n.div_ceil(tile.cluster);
        let is_divided = (tile.cluster - 1) * block_groups < groups;
        let slice = block_groups * MMA_K;
        let input_quads = problem.c.div_ceil(MMA_K) * MMA_K / 4;
        let run = run(shape, tile.tw, (slice / 4 * pixels, threads));
        let filtered_items = (slice / 4 * pixels / run).div_ceil(threads);
        let items = [
            input_quads.checked_mul(positions)?.div_ceil(threads),
            filtered_items * run,
            (block_n * pixels).div_ceil(threads),
        ];
        if !is_divided || items.iter().any(|&items| items > MAX_ITEMS) {
            return None;
        }
        let input_plane = quad_plane(positions, split_terms);
        let filtered_plane = quad_plane(pixels, split_terms);
        let [expand, project] = Products {
            problem,
            tile: &tile,
            split_terms,
        }
        .factors(
            [(positions, input_plane), (pixels, filtered_plane)],
            arrangements,
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
        let quads = items[0].max(items[1] + run_reach(shape, run));
        let registers = registers([&expand, &project], quads);
        let block = BlockResources {
            warps: tile.warps,
            registers,
            shared_floats: memory.floats,
        };
        let mut sizes = Self {
            tile,
            rectangle,
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
            block,
            split_terms,
        };
        let [tiles, _] = sizes.rectangle.tiles();
        sizes.blocks = u64::from(tiles) * u64::from(shape.batch) * u64::from(tile.cluster);
        let has_grid = sizes.blocks <= i32::MAX as u64;
        (block.fits(gpu) && has_grid).then_some(sizes)
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

/// Whether the numbers of a tile are in the ranges that every problem supports.
fn is_valid(tile: &InvertedResidualTile) -> bool {
    let InvertedResidualTile { cluster, warps, .. } = *tile;
    ![cluster, warps].contains(&0) && cluster <= PORTABLE_CLUSTER && warps <= MAX_WARPS
}

/// Whether the numbers of channels are far from any limit of the kernel's integers.
fn supports_channels(problem: &InvertedResidualProblem) -> bool {
    let channels = problem.c.max(problem.n).max(problem.depthwise.c);
    channels <= 1 << 14
}
