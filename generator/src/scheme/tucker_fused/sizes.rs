//! The sizes that follow from a tile: how a cluster divides the work, and the offsets in a block's shared memory.

use super::arrangement::{Arrangements, FactorProduct};
use super::factor::Factor;
use super::{MAX_CHUNK_KIB, TuckerFusedTile};
use crate::gpu::{Gpu, PORTABLE_CLUSTER};
use crate::ir::{ConvProblem, TuckerProblem};
use crate::scheme::Tile;
use crate::scheme::tensor_core::{MAX_WARPS, MMA_K, MMA_M, MMA_N, quad_plane, split_terms};
use crate::scheme::tiling::BlockOutput;

/// Bytes of shared memory that the ring of weight buffers may fill: the limit of a block on sm_90. The kernel's source depends on it, and
/// one source serves all GPUs that have the same tile; a tile that needs more than a GPU has is not in the GPU's tile space.
pub(super) const MAX_SHARED: u32 = 227 * 1024;

/// Maximum number of channel quads that a thread loads at once, if several chunks are loaded together.
const MAX_LOADS: u32 = 14;

/// Elements of four channels that a thread loads for a chunk, at most.
const MAX_ITEMS: u32 = 16;

/// A tile with the sizes that follow from it.
pub(super) struct TuckerFusedGeometry {
    pub(super) tile: TuckerFusedTile,
    pub(super) block_d1_groups: u32,
    pub(super) d1_splits: u32,
    pub(super) first: Option<Factor>,
    pub(super) core: Factor,
    pub(super) last: Factor,
    /// The first factor of the next layer, and the number of its output channels that a block adds.
    pub(super) next: Option<Factor>,
    pub(super) next_rows_per_block: u32,
    pub(super) rows: u32,
    pub(super) row_len: u32,
    /// Channel quads that are staged at once, their plane, loader threads of a position, and channel quads of a loader thread.
    pub(super) quads: u32,
    pub(super) plane: u32,
    pub(super) loaders: u32,
    pub(super) items: u32,
    /// Pixels that a block finishes, pixels of the cluster, and the plane of the core's output.
    pub(super) block_pixels: u32,
    pub(super) cluster_pixels: u32,
    pub(super) d2_plane: u32,
    /// Output channels of the core that a block adds.
    pub(super) d2_rows_per_block: u32,
    /// Whether every chunk of weights has its own shared memory; otherwise the number of buffers, and the floats of each (the largest
    /// chunk).
    pub(super) weights_resident: bool,
    pub(super) stages: u32,
    pub(super) stage_floats: u32,
    /// Chunks of the first factor's input that are loaded together.
    pub(super) chunks_per_load: u32,
    /// Whether the warps convert sums of the first factor, send or convert sums of the core, and store sums of the last factor from
    /// registers. They do if each warp holds complete sums.
    pub(super) first_in_registers: bool,
    pub(super) core_sent_from_registers: bool,
    pub(super) core_in_registers: bool,
    pub(super) last_in_registers: bool,
    /// Offsets in shared memory, in floats: staged input, partial sums of the first factor, partial sums of the other factors, output of
    /// the core. These reuse the memory of weights that are no longer needed.
    pub(super) input_at: u32,
    pub(super) first_partials_at: u32,
    pub(super) partials_at: u32,
    pub(super) core_output_at: u32,
    pub(super) core_input_at: u32,
    pub(super) received_at: u32,
    pub(super) scales_at: u32,
    pub(super) warp_max_at: u32,
    pub(super) exchange_barriers_at: u32,
    pub(super) copy_barriers_at: u32,
    pub(super) shared_floats: u32,
    pub(super) sums: BlockOutput,
    pub(super) registers: u32,
    pub(super) blocks: u64,
    pub(super) split_terms: u32,
}

/// The core as a convolution, which is what the code shared by the tiled schemes takes.
pub(super) fn core_problem(problem: &TuckerProblem) -> ConvProblem {
    ConvProblem {
        epilogue: problem.epilogue,
        precision: problem.precision,
        ..ConvProblem::new(problem.core)
    }
}

impl TuckerFusedGeometry {
    /// `None` if the tile is not valid, or not for this problem.
    pub(super) fn new(
        problem: &TuckerProblem,
        tile: TuckerFusedTile,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<Self> {
        let TuckerFusedTile {
            th,
            tw,
            cluster,
            blocks_n,
            d2_splits,
            warps,
            max_warps_k,
            chunk_groups,
            chunk_kib,
        } = tile;
        if [th, tw, cluster, blocks_n, d2_splits].contains(&0)
            || [warps, chunk_groups, chunk_kib].contains(&0)
            || th.max(tw) > 256
            || cluster > PORTABLE_CLUSTER
            || !cluster.is_multiple_of(blocks_n)
            || !cluster.is_multiple_of(d2_splits)
            || warps > MAX_WARPS
            || chunk_groups > 32
            || chunk_kib > MAX_CHUNK_KIB
        {
            return None;
        }
        let core = &problem.core;
        let (d1_groups, d2_tiles) = (core.c.div_ceil(MMA_K), core.n.div_ceil(MMA_M));
        let d1_splits = cluster / d2_splits;
        let block_d1_groups = d1_groups.div_ceil(d1_splits);
        if (d1_splits - 1) * block_d1_groups >= d1_groups || !d2_tiles.is_multiple_of(d2_splits) {
            return None;
        }
        let part_tiles = d2_tiles / d2_splits;
        let split_terms = split_terms(problem.precision);
        let threads = 32 * warps;
        let rows = (th - 1) * core.stride[0] + (core.r - 1) * core.dilation[0] + 1;
        let row_len = (tw - 1) * core.stride[1] + (core.s - 1) * core.dilation[1] + 1;
        let positions = rows * row_len;
        if positions > threads {
            return None;
        }
        let pixel_tiles = (th * tw).div_ceil(MMA_N);
        let block_pixels = pixel_tiles.div_ceil(cluster / blocks_n) * MMA_N;
        let cluster_pixels = block_pixels * (cluster / blocks_n);
        if block_pixels > threads {
            return None;
        }
        let quads = problem.first.map_or(block_d1_groups, |_| chunk_groups) * MMA_K / 4;
        let loaders = threads / positions;
        let items = quads.div_ceil(loaders);
        if items > MAX_ITEMS {
            return None;
        }
        let (plane, d2_plane) = (
            quad_plane(positions, split_terms),
            quad_plane(block_pixels, split_terms),
        );

        // K steps in `chunk_kib` of weights, at least one.
        let most = |rows_tiles: u32| (chunk_kib * 256 / (128 * split_terms * rows_tiles)).max(1);
        let first = match problem.first {
            Some(c) => {
                let groups = c.div_ceil(MMA_K);
                if !groups.is_multiple_of(chunk_groups) {
                    return None;
                }
                let chunks = groups / chunk_groups;
                let product = FactorProduct {
                    tiles: [block_d1_groups, positions.div_ceil(MMA_N)],
                    counts: [chunk_groups, 1, 1],
                    steps: groups,
                    warps,
                    max_warps_k,
                    split_terms,
                };
                Some(Factor::new(
                    arrangements,
                    product,
                    chunks,
                    [4 * plane, 1, 1],
                )?)
            }
            None if chunk_groups > 1 => return None,
            None => None,
        };
        // A chunk is one row of the filter, the complete filter, or the filters of several groups of channels.
        let (taps, share_steps) = (core.r * core.s, core.r * core.s * block_d1_groups);
        let several =
            (1..=block_d1_groups).filter(|&groups| block_d1_groups.is_multiple_of(groups));
        let whole = several.map(|groups| [groups, core.r, core.s]);
        let counts = whole
            .filter(|[groups, ..]| groups * taps <= most(part_tiles))
            .max()
            .unwrap_or([1, 1, core.s]);
        let core_steps = counts.iter().product::<u32>();
        let b = [4 * plane, row_len * core.dilation[0], core.dilation[1]];
        let product = FactorProduct {
            tiles: [part_tiles, pixel_tiles],
            counts,
            steps: share_steps,
            warps,
            max_warps_k,
            split_terms,
        };
        let core = Factor::new(arrangements, product, share_steps / core_steps, b)?;
        let n_tiles = problem.n.div_ceil(MMA_M).div_ceil(blocks_n);
        let mut parts_of_sum = (1..=d2_tiles)
            .rev()
            .filter(|&steps| d2_tiles.is_multiple_of(steps));
        let last_steps = parts_of_sum
            .find(|&steps| steps <= most(n_tiles))
            .unwrap_or(1);
        let product = FactorProduct {
            tiles: [n_tiles, block_pixels / MMA_N],
            counts: [last_steps, 1, 1],
            steps: d2_tiles,
            warps,
            max_warps_k: match problem.next {
                Some(_) => 1,
                None => max_warps_k,
            },
            split_terms,
        };
        let last_chunks = d2_tiles / last_steps;
        let last = Factor::new(arrangements, product, last_chunks, [4 * d2_plane, 1, 1])?;
        // Its operands are the registers that hold the output: all of a block's channels in one chunk.
        let mut next = match problem.next {
            Some(next) => {
                let product = FactorProduct {
                    tiles: [next.n.div_ceil(MMA_M), block_pixels / MMA_N],
                    counts: [n_tiles, 1, 1],
                    steps: n_tiles,
                    warps,
                    max_warps_k: 1,
                    split_terms,
                };
                Some(Factor::new(arrangements, product, 1, [4 * d2_plane, 1, 1])?)
            }
            None => None,
        };

        let middle_quads = block_d1_groups * MMA_K / 4;

        // Shared memory: the weights, those of the last factor first, then the staged input, then buffers that are not reused. Partial sums
        // of the first factor reuse the memory of its weights and input. Later data also reuse the memory of the core's weights.
        let (mut first, mut core, mut last) = (first, core, last);
        let mut chunks = 0;
        for factor in first.iter_mut().chain([&mut core, &mut last]) {
            factor.first_chunk = chunks;
            chunks += factor.chunks;
        }
        let mut all_weights = 0;
        for factor in [&mut last, &mut core].into_iter().chain(&mut first) {
            factor.shared_at = all_weights;
            all_weights += factor.weights();
        }
        let d2_rows = d2_splits * core.rows;
        let d2_rows_per_block = d2_rows.div_ceil(blocks_n);
        let if_clustered = |floats: u32| if cluster > 1 { floats } else { 0 };
        let staged = first
            .as_ref()
            .map_or(0, |_| 2 * quads * plane * split_terms);
        let in_registers = |factor: &Factor| max_warps_k > 0 && factor.warps_k == 1;
        let first_in_registers = first.as_ref().is_some_and(in_registers);
        let first_partials = first.as_ref().map_or(0, Factor::partials);
        let first_partials = if first_in_registers {
            0
        } else {
            first_partials
        };
        // The accumulators of the warps cover all pixels of the cluster, so every pixel is sent.
        let core_sent_from_registers =
            cluster > 1 && core.warps_k == 1 && core.columns >= cluster_pixels;
        let core_in_registers = cluster == 1 && in_registers(&core);
        let last_in_registers = next.is_some() || in_registers(&last);
        let core_partials = match core_sent_from_registers || core_in_registers {
            true => 0,
            false => core.partials(),
        };
        let last_partials = if last_in_registers {
            0
        } else {
            last.partials()
        };
        let output_rows = next.as_ref().map_or(0, |_| last.rows);
        let inner_floats = (2 * split_terms * (d2_rows.max(output_rows) / 4) * d2_plane)
            .max(if_clustered(d2_rows * block_pixels));
        let other_partials = core_partials.max(last_partials);
        // Other blocks may send the core's output while warps of this block still compute or send theirs. Blocks of another D2 split may
        // send even while this block stages its input, because it does not wait for any data of theirs before.
        let core_output_start = |[weights, first_partials_at, partials_at]: [u32; 3]| match cluster
        {
            1 => partials_at,
            _ if blocks_n > 1 && d2_splits > 1 => (weights + staged)
                .max(first_partials_at + first_partials)
                .max(partials_at + core_partials),
            _ => first_partials_at.max(partials_at + core_partials),
        };
        let first_place = first.as_ref().map_or(all_weights, |first| first.shared_at);
        let end_without_next = |places: [u32; 3]| {
            let [weights, first_partials_at, partials_at] = places;
            (weights + staged)
                .max(first_partials_at + first_partials)
                .max(partials_at + other_partials)
                .max(core_output_start(places) + inner_floats)
        };
        // In the memory of the core's weights, if the data after the core leave enough of it. Not in memory that threads have written: the
        // writes of a bulk copy are not ordered with those.
        let next_weights = next.as_ref().map_or(0, Factor::weights);
        let next_at = |places: [u32; 3]| {
            let [weights, first_partials_at, partials_at] = places;
            let read_only = if first_partials > 0 {
                first_partials_at
            } else {
                weights
            };
            let at = match core_output_start(places) {
                core_output_at if core_output_at < read_only => core_output_at + inner_floats,
                _ => partials_at,
            };
            match at.max(partials_at + other_partials) {
                at if at + next_weights <= read_only => at,
                _ => end_without_next(places),
            }
        };
        let end_of_reused =
            |places: [u32; 3]| end_without_next(places).max(next_at(places) + next_weights);
        let mut end = 0;
        let mut place = |floats: u32| {
            let at = end;
            end = (end + floats).next_multiple_of(4);
            at
        };
        let core_input_at = place(2 * split_terms * middle_quads * plane);
        let next_rows = next.as_ref().map_or(0, |next| next.rows);
        let next_rows_per_block = next_rows.div_ceil(blocks_n);
        let next_received = if blocks_n > 1 {
            blocks_n * next_rows_per_block
        } else {
            0
        };
        let received = (cluster * d2_rows_per_block).max(next_received) * block_pixels;
        let received_at = place(if_clustered(received));
        let first_factors = first.as_ref().map_or(0, |first| d1_splits * first.rows);
        let scales_at = place(first_factors + d2_rows + 2 * blocks_n * last.rows + next_rows);
        let has_next = u32::from(next.is_some());
        let warp_max_at = place((4 + has_next) * warps);
        let exchange_barriers_at = place(if_clustered(4 + 2 * has_next));
        let copy_barriers_at = place(2 * (chunks + has_next));
        let left = (MAX_SHARED / 4).checked_sub(end)?;
        let factors = first.iter().chain([&core, &last]);
        let stage_floats = factors.map(|factor| factor.chunk_weights).max()?;
        let stages = left.saturating_sub(end_of_reused([0; 3])) / stage_floats;
        let own_places = [all_weights, first_place, core.shared_at];
        let weights_resident = end_of_reused(own_places) <= left;
        if !weights_resident && (stages < 2 || d2_splits > 1 || next.is_some()) {
            return None;
        }
        let places = if weights_resident {
            own_places
        } else {
            [stages * stage_floats; 3]
        };
        let [input_at, first_partials_at, partials_at] = places;
        let core_output_at = core_output_start(places);
        if let Some(next) = &mut next {
            next.shared_at = next_at(places);
            next.first_chunk = chunks;
        }
        let end_of_reused = end_of_reused(places);
        let sums = BlockOutput {
            tile: [th, tw, last.rows],
            threads,
            cluster,
            k_splits: last.warps_k,
            partial_pitch: last.partial_pitch,
        };
        let [tiles, _] = sums.tiles(&core_problem(problem));
        let tiles = u64::from(tiles) * u64::from(problem.core.batch);
        let blocks = tiles * u64::from(cluster);
        let factors = [first.as_ref(), Some(&core), Some(&last), next.as_ref()];
        let operands = factors.iter().flatten().map(|factor| {
            8 * factor.m_tiles * factor.p_tiles + 8 * factor.m_tiles + 5 * factor.p_tiles
        });
        let first_chunks = first.as_ref().map_or(1, |first| first.chunks);
        let chunks_per_load = match first_chunks * items <= MAX_LOADS {
            true => first_chunks,
            false => 1,
        };
        let registers = operands.max()?.max(4 * chunks_per_load * items) + 28;
        let shared_floats = end_of_reused + end;
        let fits = registers * threads <= 65536
            && registers <= 255
            && shared_floats <= gpu.shared_per_block / 4;
        fits.then_some(Self {
            tile,
            block_d1_groups,
            d1_splits,
            first,
            core,
            last,
            next,
            next_rows_per_block,
            rows,
            row_len,
            quads,
            plane,
            loaders,
            items,
            block_pixels,
            cluster_pixels,
            d2_plane,
            d2_rows_per_block,
            weights_resident,
            stages,
            stage_floats,
            chunks_per_load,
            first_in_registers,
            core_sent_from_registers,
            core_in_registers,
            last_in_registers,
            input_at,
            first_partials_at,
            partials_at,
            core_output_at,
            core_input_at: end_of_reused + core_input_at,
            received_at: end_of_reused + received_at,
            scales_at: end_of_reused + scales_at,
            warp_max_at: end_of_reused + warp_max_at,
            exchange_barriers_at: end_of_reused + exchange_barriers_at,
            copy_barriers_at: end_of_reused + copy_barriers_at,
            shared_floats,
            sums,
            registers,
            blocks,
            split_terms,
        })
    }

    pub(super) fn from_tile(problem: &TuckerProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        Self::new(
            problem,
            TuckerFusedTile::from_tile(tile)?,
            gpu,
            &mut Arrangements::default(),
        )
    }

    /// The geometry of a supported tile.
    pub(super) fn of_supported(problem: &TuckerProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// What distinguishes kernels that differ only in the last two numbers of their tiles: sums in registers, chunks of the core and the last
    /// factor, and the warps that split K of each factor.
    pub(super) fn kernel_identity(&self) -> ([bool; 4], [u32; 2], [u32; 3]) {
        let in_registers = [
            self.first_in_registers,
            self.core_sent_from_registers,
            self.core_in_registers,
            self.last_in_registers,
        ];
        let first_warps_k = self.first.as_ref().map_or(0, |first| first.warps_k);
        (
            in_registers,
            [self.core.chunks, self.last.chunks],
            [first_warps_k, self.core.warps_k, self.last.warps_k],
        )
    }

    /// Chunks of weights that a block waits for, without those of the next layer.
    pub(super) fn chunks(&self) -> u32 {
        self.factors().map(|factor| factor.chunks).sum()
    }

    /// Whether partial sums of the core pass through shared memory.
    pub(super) fn core_partials(&self) -> bool {
        !self.core_sent_from_registers && !self.core_in_registers
    }

    pub(super) fn factors(&self) -> impl Iterator<Item = &Factor> {
        self.first.iter().chain([&self.core, &self.last])
    }

    /// Resident blocks of an SM of a GPU.
    pub(super) fn blocks_per_sm(&self, gpu: &Gpu) -> u32 {
        self.blocks_within([
            gpu.shared_per_sm,
            gpu.shared_reserved,
            gpu.threads_per_sm,
            gpu.registers_per_sm,
        ])
    }

    /// Resident blocks of an SM of sm_90, the first architecture with clusters and programmatic dependent launch. The kernel's source
    /// depends on this number, because one source serves all GPUs that have the same tile.
    pub(super) fn source_blocks_per_sm(&self) -> u32 {
        self.blocks_within([228 * 1024, 1024, 2048, 65536])
    }

    /// Resident blocks by an SM's shared memory, the part of it that is reserved for each block, its threads and its registers.
    fn blocks_within(&self, [shared, reserved, threads, registers]: [u32; 4]) -> u32 {
        let block_threads = 32 * self.tile.warps;
        (shared / (4 * self.shared_floats + reserved))
            .min(threads / block_threads)
            .min(registers / (self.registers * block_threads))
            .max(1)
    }

    /// Chunks of weights whose copies start before the kernel waits for its predecessor. All chunks, if a block can start while blocks of
    /// the predecessor run. Otherwise the wait ends at once, and the weights of the core and the last factor would delay the input.
    pub(super) fn prefetched_chunks(&self) -> u32 {
        match &self.first {
            Some(first) if self.weights_resident && self.source_blocks_per_sm() == 1 => {
                first.chunks
            }
            _ => self.chunks(),
        }
    }
}
