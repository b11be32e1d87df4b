//! The sizes that follow from a tile.

use super::cells::Cells;
use super::{WgmmaNhwcTile, terms};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu, Products};
use crate::ir::{ConvProblem, Format};
use crate::scheme::tensor_core::{MMA_K, PROMOTION_INTERVAL, products, step_weights_of};
use crate::scheme::wgmma::geometry::{Exchange, PLANE_CHANNELS, Registers, wgmma_n};
use crate::scheme::wgmma::sum::Sum;
use crate::scheme::wgmma::{WARPGROUP, WGMMA_M};
use crate::scheme::{MAX_GRID, Tile};
use std::sync::Arc;

/// Maximum number of K steps of a chunk, which are unrolled.
const MAX_STEPS: u32 = 64;

/// Maximum size of a stage of weights, in 32-bit words. Large stages keep the tensor cores busy while the consumers wait at the end of
/// one, but two or more of them take shared memory from the input.
const MAX_STAGE_WEIGHTS: u32 = 9 * 1024;

/// Maximum number of cells, far from overflow when those of an image and a tile are added.
const MAX_CELLS: u64 = 1 << 30;

/// More staged cells do not fit shared memory.
const MAX_STAGED: u64 = 1 << 14;

/// Maximum number of copies of a thread in a chunk, which are unrolled.
const MAX_ITEMS: u32 = 64;

/// Period of the swizzle, in runs of 16 bytes.
const SWIZZLE_RUNS: u32 = 64;

/// Most blocks of a cluster: a warpgroup has eight groups of rows, and each block adds at least one.
const MAX_CLUSTER: u32 = 8;

/// Registers of a consumer thread beyond its accumulators, and of a loader thread beyond those for the pixels that it finds.
const CONSUMER_REGISTERS: u32 = 56;
const LOADER_REGISTERS: u32 = 56;

/// A tile and the sizes that follow from it for a problem.
pub(super) struct NhwcGeometry {
    pub(super) tile: WgmmaNhwcTile,
    pub(super) cells: Arc<Cells>,
    /// Cells of all images, to the last output.
    pub(super) all_cells: u32,
    /// Terms of each operand: hi and lo, or one number.
    pub(super) terms: u32,
    pub(super) products: Products,
    /// Columns of one product.
    pub(super) wgmma_n: u32,
    pub(super) sum: Sum,
    /// First staged cell of each phase, and staged cells.
    pub(super) phases_at: Vec<u32>,
    pub(super) staged: u32,
    /// Runs of eight channels of a cell in a row of shared memory: 2, 4 or 8. A chunk has one or several slabs of such rows for each term.
    pub(super) row_runs: u32,
    /// Rows from one slab to the next.
    pub(super) slab_rows: u32,
    /// Copies of a loader thread in a chunk.
    pub(super) items: u32,
    pub(super) exchange: Exchange,
    /// Tiles of all images, and the distance of the tiles of a block: blocks along the cells.
    pub(super) tiles: u32,
    pub(super) tile_step: u32,
    pub(super) registers: Registers,
    pub(super) memory: SharedMemory,
}

/// Offsets in shared memory, in floats. The buffers of the weights come first.
#[derive(Debug, Clone, Copy)]
pub(super) struct SharedMemory {
    pub(super) input_at: u32,
    /// Outputs that pass to the lanes that store them.
    pub(super) exchange_at: u32,
    /// Dequantisation scales and biases of the output channels.
    pub(super) epilogue_at: u32,
    pub(super) barriers_at: u32,
    /// Maxima of each warp that multiplies, from which the scale of a split output follows.
    pub(super) maxima_at: u32,
    /// Their barrier, that of the scale, and its inverse.
    pub(super) output_scale_at: u32,
    /// The barrier of the exchange in a cluster.
    pub(super) sums_barrier_at: u32,
    /// The partial sums that the other blocks send.
    pub(super) partial_sums_at: u32,
    pub(super) floats: u32,
}

/// Sizes of the parts of shared memory, in floats; of barriers, their number.
struct SharedMemorySizes {
    weights: u32,
    input: u32,
    exchange: u32,
    tn: u32,
    barriers: u32,
    maxima: u32,
    partial_sums: u32,
}

impl NhwcGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    pub(super) fn new(problem: &ConvProblem, tile: WgmmaNhwcTile, gpu: &Gpu) -> Option<Self> {
        Self::with_cells(problem, tile, gpu, &Arc::new(Cells::new(&problem.shape)))
    }

    /// The same with the cells of the problem, which do not depend on the tile.
    pub(super) fn with_cells(
        problem: &ConvProblem,
        tile: WgmmaNhwcTile,
        gpu: &Gpu,
        cells: &Arc<Cells>,
    ) -> Option<Self> {
        let WgmmaNhwcTile {
            warpgroups,
            tn,
            chunk_groups,
            stages,
            input_stages,
            producers,
            block_tiles,
            cluster,
        } = tile;
        let limits = [
            (warpgroups, 4),
            (tn, 256),
            (chunk_groups, 16),
            (stages, 64),
            (input_stages, 16),
            (producers, 2),
            (block_tiles, 1 << 16),
            (cluster, MAX_CLUSTER),
        ];
        if !limits
            .into_iter()
            .all(|(number, most)| (1..=most).contains(&number))
        {
            return None;
        }
        let shape = &problem.shape;
        let wgmma_n = wgmma_n(tn)?;
        let groups = shape.c / MMA_K;
        let steps = chunk_groups * shape.r * shape.s;
        let terms = terms(problem);
        let term_runs = chunk_groups * MMA_K / PLANE_CHANNELS;
        let runs = terms * term_runs;
        let loaders = 32 * (WARPGROUP * producers - 1);
        // A thread copies the same run of several cells, and a warp all runs of its cells.
        let is_divided =
            groups.is_multiple_of(chunk_groups * cluster) && 32_u32.is_multiple_of(runs);
        if !is_divided || steps > MAX_STEPS {
            return None;
        }
        let stage_steps = (1..=steps)
            .rev()
            .filter(|&count| steps.is_multiple_of(count))
            // With two terms, partial sums of a stage are promoted.
            .filter(|&count| terms == 1 || count <= PROMOTION_INTERVAL)
            .find(|&count| count * step_weights_of(tn, terms) <= MAX_STAGE_WEIGHTS)?;
        let sum = Sum {
            chunks: groups / (chunk_groups * cluster),
            steps,
            stage_steps,
            step_weights: step_weights_of(tn, terms),
            stages,
        };
        let rows = WGMMA_M * warpgroups;
        let all_cells = cells.with_outputs(shape);
        let spans = cells.phases.iter().map(|phase| u64::from(phase.span));
        if all_cells.max(cells.of_image()) > MAX_CELLS || spans.sum::<u64>() > MAX_STAGED {
            return None;
        }
        let all_cells = all_cells as u32;
        let mut staged = 0;
        let phases_at = cells.phases.iter().map(|phase| {
            let at = staged;
            staged += rows + phase.span;
            at
        });
        let phases_at = phases_at.collect();
        let items = staged.div_ceil(loaders / runs);
        let row_runs = [8, 4, 2]
            .into_iter()
            .find(|count| term_runs.is_multiple_of(*count))?;
        let slab_rows = staged.next_multiple_of(SWIZZLE_RUNS / row_runs);
        let exchange = Exchange::new(problem, tn);
        let memory = SharedMemory::new(SharedMemorySizes {
            weights: stages * sum.stage_weights(),
            // Four words of a run.
            input: 4 * input_stages * runs * slab_rows,
            exchange: warpgroups * exchange.words,
            tn,
            // Two of each buffer, and one of each warpgroup for its turns.
            barriers: 2 * (stages + input_stages) + warpgroups,
            maxima: match problem.writes_split_nhwc() {
                // Of scales, biases and outputs.
                true => 3 * WARPGROUP * warpgroups,
                false => 0,
            },
            partial_sums: received(rows, tn, cluster),
        });
        let tiles = all_cells.div_ceil(rows);
        let tile_step = tiles.div_ceil(block_tiles);
        // The source is the same for all GPUs.
        let of_source = &FIRST_CLUSTER_GPU;
        let by_shared = of_source.shared_per_sm / (4 * memory.floats + of_source.shared_reserved);
        let registers = Registers::new(
            [warpgroups, producers],
            terms * tn / 2 + CONSUMER_REGISTERS,
            items.div_ceil(runs) + LOADER_REGISTERS,
            by_shared,
        )?;
        let fits = memory.floats <= gpu.shared_per_block / 4
            && items <= MAX_ITEMS
            && tile_step <= MAX_GRID
            && block_tiles <= tiles
            // A barrier of the exchange is used once.
            && (cluster == 1 || cluster.is_power_of_two() && block_tiles == 1)
            && (!problem.writes_split_nhwc()
                || cluster * shape.n.div_ceil(tn) * tile_step <= Format::SPLIT_MAXIMA);
        fits.then_some(Self {
            tile,
            cells: cells.clone(),
            all_cells,
            terms,
            products: products(problem.precision),
            wgmma_n,
            sum,
            phases_at,
            staged,
            row_runs,
            slab_rows,
            items,
            exchange,
            tiles,
            tile_step,
            registers,
            memory,
        })
    }

    pub(super) fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, WgmmaNhwcTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    pub(super) fn consumer_warps(&self) -> u32 {
        WARPGROUP * self.tile.warpgroups
    }

    /// Warps that copy the input. One more of the producers copies the weights.
    pub(super) fn loader_warps(&self) -> u32 {
        WARPGROUP * self.tile.producers - 1
    }

    pub(super) fn threads(&self) -> u32 {
        32 * (self.consumer_warps() + 1 + self.loader_warps())
    }

    /// Cells of a tile, which are rows of the product.
    pub(super) fn rows(&self) -> u32 {
        WGMMA_M * self.tile.warpgroups
    }

    /// Runs of eight channels of a chunk, of all terms.
    pub(super) fn runs(&self) -> u32 {
        self.terms * self.tile.chunk_groups * MMA_K / PLANE_CHANNELS
    }

    /// Cells from a copy of a thread to its next one.
    pub(super) fn thread_step(&self) -> u32 {
        32 * self.loader_warps() / self.runs()
    }

    /// Copies after which the places of a thread's cells repeat in the swizzle, which has a period of eight rows.
    pub(super) fn swizzle_period(&self) -> u32 {
        let rows = 1 << self.thread_step().trailing_zeros().min(3);
        8 / rows
    }

    /// Whether warpgroups multiply one after the other, so that one stores its outputs while the next one multiplies. The input must
    /// have room for the chunks of a tile and more: a warpgroup begins a tile when another one still multiplies the tile before. With two
    /// terms another one multiplies while partial sums are promoted.
    pub(super) fn takes_turns(&self) -> bool {
        let tile = &self.tile;
        tile.warpgroups > 1
            && self.terms == 1
            && tile.block_tiles > 1
            && self.sum.keeps_weights()
            && tile.input_stages > self.sum.chunks
    }

    /// Blocks of the grid: tiles of output channels, each by the blocks of a cluster, then of cells.
    pub(super) fn grid(&self, problem: &ConvProblem) -> [u32; 3] {
        let columns = problem.shape.n.div_ceil(self.tile.tn);
        [columns * self.tile.cluster, self.tile_step, 1]
    }
}

/// Partial sums that a block receives from the others of its cluster.
pub(super) fn received(rows: u32, tn: u32, cluster: u32) -> u32 {
    rows * tn / cluster * (cluster - 1)
}

impl SharedMemory {
    fn new(sizes: SharedMemorySizes) -> Self {
        let input_at = sizes.weights;
        let exchange_at = input_at + sizes.input;
        let epilogue_at = exchange_at + sizes.exchange;
        let barriers_at = epilogue_at + 2 * sizes.tn;
        // A barrier has 8 bytes.
        let maxima_at = barriers_at + 2 * sizes.barriers;
        let output_scale_at = (maxima_at + sizes.maxima).next_multiple_of(2);
        let sums_barrier_at = match sizes.maxima {
            0 => output_scale_at,
            // Two barriers, the inverse scale, and padding.
            _ => output_scale_at + 6,
        };
        // Sums are sent 16 bytes at a time.
        let partial_sums_at = (sums_barrier_at + 2).next_multiple_of(4);
        Self {
            input_at,
            exchange_at,
            epilogue_at,
            barriers_at,
            maxima_at,
            output_scale_at,
            sums_barrier_at,
            partial_sums_at,
            floats: match sizes.partial_sums {
                0 => sums_barrier_at,
                sums => partial_sums_at + sums,
            },
        }
    }
}
