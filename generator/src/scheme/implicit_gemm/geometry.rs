//! The sizes that follow from a tile.

use super::ImplicitGemmTile;
use super::k_step::{KStep, chunks};
use super::registers::RegisterModel;
use crate::gpu::{Gpu, PORTABLE_CLUSTER};
use crate::ir::ConvProblem;
use crate::scheme::merged_groups::MergedGroups;
use crate::scheme::step_order::split_steps_over_warps;
use crate::scheme::tensor_core::{
    MAX_WARPS, MMA_M, MMA_N, quad_plane, separate_accumulators, split_terms,
};
use crate::scheme::tiling::{BlockOutput, RegisterEstimate};
use crate::scheme::{MAX_GRID, Tile};

/// Maximum number of a warp's MMA tiles times the terms of an operand. The accumulator of an MMA tile (16 channels x 8 pixels) takes
/// four registers of a lane. With a hi/lo split there are two: the fp32 accumulator and the partial accumulator.
pub(super) const MAX_SUMS: u32 = 32;

/// A tile and the sizes that follow from it for a problem.
pub(super) struct ImplicitGemmGeometry {
    pub(super) tile: ImplicitGemmTile,
    pub(super) groups: MergedGroups,
    pub(super) p_tiles: u32,
    pub(super) chunks: u32,
    pub(super) rows: u32,
    pub(super) row_len: u32,
    pub(super) plane: u32,
    /// Columns of one load, and staged columns to the left of the output tile's first column.
    pub(super) x_vector: u32,
    pub(super) aligned_pad_left: u32,
    pub(super) items: u32,
    pub(super) sums: BlockOutput,
    /// Floats of shared memory: of the staging buffers, and in total.
    pub(super) staged: u32,
    pub(super) shared_floats: u32,
    /// Estimated registers of a thread.
    pub(super) registers: RegisterEstimate,
    pub(super) blocks: u64,
    /// Terms of each operand: 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
}

impl ImplicitGemmGeometry {
    /// `None` if the tile is invalid, or does not fit the problem or the GPU.
    pub(super) fn new(problem: &ConvProblem, tile: ImplicitGemmTile, gpu: &Gpu) -> Option<Self> {
        let ImplicitGemmTile {
            th,
            tw,
            m_tiles,
            warps_m,
            warps_p,
            warps_k,
            cluster,
            chunk_groups,
            stages,
        } = tile;
        if tile.numbers().contains(&0)
            || th.max(tw) > 256
            || tile.numbers()[2..].iter().any(|&number| number > 16)
        {
            return None;
        }
        let shape = &problem.shape;
        let pixel_tiles = (th * tw).div_ceil(MMA_N);
        let step = KStep::for_shape(shape);
        let groups = MergedGroups::for_shape(shape);
        let chunks = chunks(groups.c.div_ceil(step.channels), cluster, chunk_groups)?;
        let counts = step.counts(chunk_groups, shape);
        if !pixel_tiles.is_multiple_of(warps_p) || split_steps_over_warps(counts, warps_k).is_none()
        {
            return None;
        }
        let warps = warps_m * warps_p * warps_k;
        let p_tiles = pixel_tiles / warps_p;
        let split_terms = split_terms(problem.precision);
        if warps > MAX_WARPS
            || m_tiles * p_tiles * split_terms > MAX_SUMS
            || cluster > PORTABLE_CLUSTER
            || cluster > max_cluster(problem)
            || stages > chunks
        {
            return None;
        }
        let threads = 32 * warps;
        let quads = chunk_groups * step.channels / 4;
        let staging = Staging::new(problem, [th, tw], quads, threads);
        let [rows, row_len] = staging.input;
        if rows * row_len > 1 << 13 {
            return None;
        }
        let plane = quad_plane(rows * row_len, split_terms);
        let items = staging.items.div_ceil(threads);
        let chunk_weights = m_tiles * warps_m * counts.iter().product::<u32>() * 128 * split_terms;
        let staged = stages * chunk_weights + quads * plane * 2 * split_terms + 2 * warps;
        let tn = MMA_M * m_tiles * warps_m;
        let [partial_rows, partial_pitch] = partial_sums(problem, pixel_tiles, tn);
        let sums = BlockOutput {
            tile: [th, tw, tn],
            group_n: groups.n,
            threads,
            cluster,
            k_splits: warps_k,
            partial_rows,
            partial_pitch,
        };
        let shared_floats = sums.shared_floats(problem, staged);
        let grid = sums.grid(problem);
        let loaded = items * 4 * staging.x_vector;
        let register_model = RegisterModel {
            m_tiles,
            p_tiles,
            counts,
            warps_k,
            chunks,
            loaded,
            items,
            prologue: problem.prologue.is_some(),
        };
        let registers = if split_terms == 2 {
            let most = RegisterEstimate::max_per_thread(threads);
            let wanted = register_model.registers();
            // With this threshold few of the accepted tiles spill, and few of the rejected ones would not have spilled.
            RegisterEstimate {
                allocated: wanted.min(most),
                spills: 10 * wanted > 9 * most,
            }
        } else {
            RegisterEstimate::new(register_model.registers_without_split(), threads)
        };
        let fits = loaded <= 64 && shared_floats <= gpu.shared_per_block / 4 && grid[1] <= MAX_GRID;
        fits.then_some(Self {
            tile,
            groups,
            p_tiles,
            chunks,
            rows,
            row_len,
            plane,
            x_vector: staging.x_vector,
            aligned_pad_left: staging.aligned_pad_left,
            items,
            sums,
            staged,
            shared_floats,
            registers,
            blocks: grid.iter().map(|&size| u64::from(size)).product(),
            split_terms,
        })
    }

    pub(super) fn from_tile(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(problem, ImplicitGemmTile::from_tile(tile)?, gpu)
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &ConvProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    pub(super) fn tn(&self) -> u32 {
        MMA_M * self.tile.m_tiles * self.tile.warps_m
    }

    pub(super) fn warps(&self) -> u32 {
        self.tile.warps_m * self.tile.warps_p * self.tile.warps_k
    }

    /// K steps of a chunk along channel groups, filter rows and filter columns.
    pub(super) fn counts(&self, problem: &ConvProblem) -> [u32; 3] {
        KStep::for_shape(&problem.shape).counts(self.tile.chunk_groups, &problem.shape)
    }

    /// Channel quads of a chunk.
    pub(super) fn quads(&self, problem: &ConvProblem) -> u32 {
        self.tile.chunk_groups * KStep::for_shape(&problem.shape).channels / 4
    }

    /// Packed weights of a chunk for 16 output channels, in 32-bit words.
    pub(super) fn m_chunk_weights(&self, problem: &ConvProblem) -> u32 {
        self.counts(problem).iter().product::<u32>() * 128 * self.split_terms
    }

    /// Whether the cross terms have a separate accumulator.
    pub(super) fn separate_accumulators(&self) -> bool {
        separate_accumulators(self.tile.m_tiles * self.p_tiles, self.split_terms)
    }
}

/// The largest cluster. Blocks of a cluster exchange partial sums in NCHW only: 16-bit NHWC is for batches, where blocks fill the GPU without
/// a split.
pub(super) fn max_cluster(problem: &ConvProblem) -> u32 {
    if problem.writes_16_bit_nhwc() {
        1
    } else {
        PORTABLE_CLUSTER
    }
}

/// Rows of a block's partial sums in shared memory, and their distance in floats. The lanes of a warp store pairs of pixels of eight
/// channels without bank conflicts.
fn partial_sums(problem: &ConvProblem, pixel_tiles: u32, tn: u32) -> [u32; 2] {
    let pixels = pixel_tiles * MMA_N;
    if problem.writes_16_bit_nhwc() {
        // A pitch of 4 modulo 16: four pairs of pixels are 8 banks apart.
        [pixels, tn + 4]
    } else {
        // A pitch of 8 modulo 32: channels are 8 banks apart.
        [tn, (pixels + 23) / 32 * 32 + 8]
    }
}

/// How the input tile of a chunk is loaded.
struct Staging {
    /// Rows and columns of the input tile.
    input: [u32; 2],
    /// Columns of one load.
    x_vector: u32,
    /// Staged columns to the left of the output tile's first column; a multiple of `x_vector` to keep loads aligned.
    aligned_pad_left: u32,
    /// Load positions of all threads: `x_vector` columns of four channels each.
    items: u32,
}

impl Staging {
    /// Doubles the width of the loads while the narrower ones occupy more than half of the threads.
    fn new(problem: &ConvProblem, tile: [u32; 2], quads: u32, threads: u32) -> Self {
        let shape = &problem.shape;
        let reach = |axis: usize, taps: u32| {
            (tile[axis] - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        // Taps after the end of a filter row have zero weights.
        let filter_row = shape.s.next_multiple_of(KStep::for_shape(shape).columns);
        let (rows, columns) = (reach(0, shape.r), reach(1, filter_row));
        let staging = |x_vector: u32| {
            let aligned_pad_left = shape.padding.left.next_multiple_of(x_vector);
            let row_len =
                (columns + aligned_pad_left - shape.padding.left).next_multiple_of(x_vector);
            Self {
                input: [rows, row_len],
                x_vector,
                aligned_pad_left,
                items: quads * rows * row_len / x_vector,
            }
        };
        let aligned = |x_vector: u32| {
            shape.batch == 1
                && shape.w.is_multiple_of(x_vector)
                && (tile[1] * shape.stride[1]).is_multiple_of(x_vector)
        };
        let mut found = staging(1);
        for x_vector in [2, 4] {
            if aligned(x_vector) && 2 * found.items > threads {
                found = staging(x_vector);
            }
        }
        found
    }
}
