//! The sizes that follow from a tile.

use super::MmaNhwcTile;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format};
use crate::scheme::merged_groups::MergedGroups;
use crate::scheme::tensor_core::{MAX_WARPS, MMA_K, MMA_M, MMA_N};
use crate::scheme::tiling::{BlockOutput, RegisterEstimate};
use crate::scheme::{MAX_GRID, Tile};

/// Maximum number of a warp's MMA tiles. The accumulator of one takes four registers of a lane.
const MAX_SUMS: u32 = 32;

/// Maximum number of MMA products of a warp and stage; their loops are unrolled.
const MAX_UNROLLED: u32 = 320;

/// Maximum number of copies of input by a thread for a chunk.
const MAX_ITEMS: u32 = 16;

/// A tile and the sizes that follow from it for a problem.
pub(super) struct MmaNhwcGeometry {
    pub(super) tile: MmaNhwcTile,
    pub(super) groups: MergedGroups,
    /// MMA tiles of a warp along the pixels; they come in pairs.
    pub(super) p_tiles: u32,
    pub(super) chunks: u32,
    /// Stages of a chunk, and of the sum.
    pub(super) chunk_stages: u32,
    pub(super) steps: u32,
    /// Stages of which the copies are started before the first products.
    pub(super) prefetched: u32,
    /// Buffers of the input.
    pub(super) input_stages: u32,
    /// Staged pixels of a row; runs of eight channels of a pixel, of all pixels, and of a buffer, which is a multiple of eight.
    pub(super) row_len: u32,
    pub(super) pixel_runs: u32,
    pub(super) copies: u32,
    pub(super) input_runs: u32,
    /// Copies by a thread for a chunk.
    pub(super) items: u32,
    /// Words of the packed weights of a stage.
    pub(super) stage_weights: u32,
    pub(super) sums: BlockOutput,
    /// Floats of shared memory: of the staging buffers, and in total.
    pub(super) staged: u32,
    pub(super) shared_floats: u32,
    /// Estimated registers of a thread.
    pub(super) registers: RegisterEstimate,
    pub(super) blocks: u64,
}

impl MmaNhwcGeometry {
    /// `None` if the tile is invalid, does not fit the problem or the GPU, or if the GPU has no `mma.sync`. The scheme must support the problem.
    pub(super) fn new(problem: &ConvProblem, tile: MmaNhwcTile, gpu: &Gpu) -> Option<Self> {
        let MmaNhwcTile {
            th,
            tw,
            m_tiles,
            warps_m,
            warps_p,
            chunk_groups,
            block_groups,
            taps,
            stages,
        } = tile;
        let shape = &problem.shape;
        let is_sane = gpu.has_mma()
            && tile.numbers().iter().all(|&number| number > 0)
            && th.max(tw) <= 256
            && [m_tiles, warps_m, warps_p, stages]
                .iter()
                .all(|&number| number <= 16)
            && [1, 2, 4].contains(&chunk_groups)
            && [1, 2, 4].contains(&block_groups)
            && [1, shape.s, shape.r * shape.s].contains(&taps);
        let warps = || warps_m * warps_p;
        if !is_sane || warps() > MAX_WARPS {
            return None;
        }
        let threads = 32 * warps();
        let groups = MergedGroups::for_shape(shape);
        let channels = MMA_K * chunk_groups;
        let chunks = groups.c.div_ceil(channels);
        let chunk_stages = shape.r * shape.s / taps;
        let steps = chunks * chunk_stages;
        if stages > steps || stages == 1 && steps > 1 {
            return None;
        }
        // Several groups have all their weights in one stage, and no tails; their warps have all channels of their group.
        let fills_block = || {
            [shape.c / groups.c, shape.n / groups.n]
                .iter()
                .all(|count| count.is_multiple_of(block_groups))
                && [groups.c, groups.n] == [channels, MMA_M * m_tiles]
                && shape.c.is_multiple_of(groups.c)
                && warps_m == block_groups
                && block_groups * chunk_groups <= 4
        };
        if block_groups > 1 && (steps > 1 || !fills_block()) {
            return None;
        }
        let prefetched = (stages - 1).max(1);
        // The chunks in which stages are copied while others are computed.
        let input_stages = chunks.min((stages - 1).div_ceil(chunk_stages) + 1);
        let p_tiles = (th * tw)
            .div_ceil(MMA_N)
            .div_ceil(warps_p)
            .next_multiple_of(2);
        let products = m_tiles * p_tiles * chunk_groups * taps;
        if m_tiles * p_tiles > MAX_SUMS || products > MAX_UNROLLED {
            return None;
        }
        let [rows, row_len] = shape.input_window([th, tw]);
        let pixel_runs = block_groups * channels / Format::RUN_CHANNELS;
        let copies = rows * row_len * pixel_runs;
        let items = copies.div_ceil(threads);
        let input_runs = copies.next_multiple_of(8);
        let stage_weights = m_tiles * warps_m * chunk_groups * taps * (MMA_M * MMA_K / 2);
        let staged = stages * stage_weights + 4 * input_stages * input_runs;
        let tn = MMA_M * m_tiles * warps_m;
        let sums = BlockOutput {
            tile: [th, tw, tn],
            group_n: block_groups * groups.n,
            threads,
            cluster: 1,
            k_splits: 1,
            partial_rows: MMA_N * p_tiles * warps_p,
            // Four pairs of pixels are 8 banks apart.
            partial_pitch: tn + 4,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        let wanted = 4 * m_tiles * p_tiles + 4 * m_tiles + 2 * p_tiles + p_tiles / 2 + items + 40;
        let registers = RegisterEstimate::new(wanted, threads);
        let fits = items <= MAX_ITEMS
            && shared_floats <= gpu.shared_per_block / 4
            && grid[1] <= MAX_GRID
            && !registers.spills;
        fits.then_some(Self {
            tile,
            groups,
            p_tiles,
            chunks,
            chunk_stages,
            steps,
            prefetched,
            input_stages,
            row_len,
            pixel_runs,
            copies,
            input_runs,
            items,
            stage_weights,
            sums,
            staged,
            shared_floats,
            registers,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
        })
    }

    pub(super) fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, MmaNhwcTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    pub(super) fn threads(&self) -> u32 {
        32 * self.tile.warps_m * self.tile.warps_p
    }

    /// MMA tiles of a block along the output channels.
    pub(super) fn all_m_tiles(&self) -> u32 {
        self.tile.m_tiles * self.tile.warps_m
    }
}
