//! A tile with everything that follows from it.

use super::cluster_split::ClusterSplit;
use super::factors::Factors;
use super::input_tile::InputTile;
use super::shared_memory::{Contents, SharedMemory};
use super::sums::Sums;
use super::{MAX_CHUNK_KIB, TuckerFusedTile};
use crate::gpu::{FIRST_CLUSTER_GPU, Gpu, MAX_REGISTERS, PORTABLE_CLUSTER};
use crate::ir::{ConvProblem, TuckerProblem};
use crate::scheme::Tile;
use crate::scheme::factor::{Arrangements, Factor};
use crate::scheme::tensor_core::{MAX_WARPS, quad_plane, split_terms};
use crate::scheme::tiling::BlockOutput;

/// Bytes of shared memory that the ring of weight buffers may fill. The kernel's source depends on it, and one source serves all GPUs that
/// have the same tile; a tile that needs more than a GPU has is not in the GPU's tile space.
pub(super) const MAX_SHARED: u32 = FIRST_CLUSTER_GPU.shared_per_block;

/// A tile with the sizes that follow from it.
pub(super) struct TuckerFusedGeometry {
    pub(super) tile: TuckerFusedTile,
    pub(super) split: ClusterSplit,
    pub(super) input: InputTile,
    pub(super) factors: Factors,
    pub(super) sums: Sums,
    pub(super) memory: SharedMemory,
    pub(super) output: BlockOutput,
    /// Distance in shared memory of two channel quads of the core's output.
    pub(super) d2_plane: u32,
    /// Chunks of the first factor's input that are loaded together.
    pub(super) chunks_per_load: u32,
    /// Estimated registers of a thread.
    pub(super) registers: u32,
    /// Blocks of the launch.
    pub(super) blocks: u64,
    /// 2 with a hi/lo split, else 1.
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
        if !is_valid(&tile) {
            return None;
        }
        let split_terms = split_terms(problem.precision);
        let split = ClusterSplit::new(problem, &tile)?;
        let input = InputTile::new(problem, &tile, &split)?;
        let d2_plane = quad_plane(split.block_pixels, split_terms);
        let mut factors = Factors::new(problem, &tile, (&split, &input, d2_plane), arrangements)?;
        let sums = Sums::new(&tile, &split, &factors);
        let contents = Contents {
            tile: &tile,
            split: &split,
            input: &input,
            sums: &sums,
            d2_plane,
            split_terms,
        };
        let memory = SharedMemory::new(&mut factors, &contents, MAX_SHARED / 4)?;
        let first_chunks = factors.first.as_ref().map_or(1, |first| first.chunks);
        let chunks_per_load = input.chunks_per_load(first_chunks);
        let registers = registers(&factors, chunks_per_load * input.items)?;
        let threads = 32 * tile.warps;
        let output = BlockOutput {
            tile: [tile.th, tile.tw, factors.last.rows],
            group_n: problem.core.n,
            threads,
            cluster: tile.cluster,
            k_splits: factors.last.warps_k,
            partial_rows: factors.last.rows,
            partial_pitch: factors.last.partial_pitch,
        };
        let [tiles, _] = output.tiles(&core_problem(problem));
        let tiles = u64::from(tiles) * u64::from(problem.core.batch);
        let fits = registers * threads <= gpu.registers_per_sm
            && registers <= MAX_REGISTERS
            && memory.floats <= gpu.shared_per_block / 4;
        fits.then_some(Self {
            tile,
            split,
            input,
            factors,
            sums,
            memory,
            output,
            d2_plane,
            chunks_per_load,
            registers,
            blocks: tiles * u64::from(tile.cluster),
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
            self.sums.first_in_registers,
            self.sums.core_sent_from_registers,
            self.sums.core_in_registers,
            self.sums.last_in_registers,
        ];
        let Factors {
            first, core, last, ..
        } = &self.factors;
        let first_warps_k = first.as_ref().map_or(0, |first| first.warps_k);
        (
            in_registers,
            [core.chunks, last.chunks],
            [first_warps_k, core.warps_k, last.warps_k],
        )
    }

    /// Resident blocks of an SM of a GPU.
    pub(super) fn blocks_per_sm(&self, gpu: &Gpu) -> u32 {
        let block_threads = 32 * self.tile.warps;
        (gpu.shared_per_sm / (4 * self.memory.floats + gpu.shared_reserved))
            .min(gpu.threads_per_sm / block_threads)
            .min(gpu.registers_per_sm / (self.registers * block_threads))
            .max(1)
    }

    /// Resident blocks of an SM of the first architecture with clusters and programmatic dependent launch. The kernel's source depends on
    /// this number, because one source serves all GPUs that have the same tile.
    pub(super) fn source_blocks_per_sm(&self) -> u32 {
        self.blocks_per_sm(&FIRST_CLUSTER_GPU)
    }

    /// Packed weights of the layer's factors.
    pub(super) fn layer_weights(&self) -> u32 {
        self.factors.of_layer().map(Factor::weights).sum()
    }

    /// Packed weights that are copied to a buffer of the ring which another chunk had before; 0 if every chunk has its own memory.
    pub(super) fn streamed_weights(&self) -> u32 {
        let ring = &self.memory.weights;
        match ring.resident {
            true => 0,
            false => self
                .layer_weights()
                .saturating_sub(ring.stages * ring.stage_floats),
        }
    }

    /// Chunks of weights whose copies start before the kernel waits for its predecessor. All chunks, if a block can start while blocks of
    /// the predecessor run. Otherwise the wait ends at once, and the weights of the core and the last factor would delay the input.
    pub(super) fn prefetched_chunks(&self) -> u32 {
        match &self.factors.first {
            Some(first) if self.memory.weights.resident && self.source_blocks_per_sm() == 1 => {
                first.chunks
            }
            _ => self.factors.chunks(),
        }
    }
}

/// Whether the numbers of a tile are in the ranges that every problem supports.
fn is_valid(tile: &TuckerFusedTile) -> bool {
    let TuckerFusedTile {
        th,
        tw,
        cluster,
        blocks_n,
        d2_splits,
        warps,
        chunk_groups,
        chunk_kib,
        ..
    } = *tile;
    ![th, tw, cluster, blocks_n, d2_splits].contains(&0)
        && ![warps, chunk_groups, chunk_kib].contains(&0)
        && th.max(tw) <= 256
        && cluster <= PORTABLE_CLUSTER
        && cluster.is_multiple_of(blocks_n)
        && cluster.is_multiple_of(d2_splits)
        && warps <= MAX_WARPS
        && chunk_groups <= 32
        && chunk_kib <= MAX_CHUNK_KIB
}

/// Estimated registers of a thread that loads `quads` channel quads at once.
fn registers(factors: &Factors, quads: u32) -> Option<u32> {
    let operands = factors.all().map(|factor| {
        8 * factor.m_tiles * factor.p_tiles + 8 * factor.m_tiles + 5 * factor.p_tiles
    });
    Some(operands.max()?.max(4 * quads) + 28)
}
