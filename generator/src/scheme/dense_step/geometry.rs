//! A tile with everything that follows from it.

use super::DenseStepTile;
use super::channels::{BlockQuads, STEP_QUADS};
use super::products::{Products, registers};
use super::shared_memory::{Contents, SharedMemory};
use crate::gpu::{Gpu, PORTABLE_CLUSTER};
use crate::ir::DenseStepProblem;
use crate::scheme::Tile;
use crate::scheme::factor::{Arrangements, BlockResources, Factor, Rectangle};
use crate::scheme::tensor_core::{MAX_WARPS, MMA_K, quad_plane, split_terms};

/// Channel quads of a thread at most, of the input and of the concatenation: they are in registers at the same time. Also of the new
/// channels, and outputs.
const MAX_ITEMS: u32 = 12;

/// A tile with the sizes that follow from it.
pub(super) struct Geometry {
    pub(super) tile: DenseStepTile,
    /// What a cluster computes.
    pub(super) rectangle: Rectangle,
    /// Input channels of a block, and the distance of two of their quads.
    pub(super) slice: u32,
    pub(super) input_plane: u32,
    /// Quads of the concatenation, and the distance of two in shared memory.
    pub(super) quads: BlockQuads,
    pub(super) plane: u32,
    /// Output channels that a block adds and stores.
    pub(super) block_n: u32,
    pub(super) growth: Factor,
    pub(super) pointwise: Factor,
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
        problem: &DenseStepProblem,
        tile: DenseStepTile,
        gpu: &Gpu,
        arrangements: &mut Arrangements,
    ) -> Option<Self> {
        if !is_valid(&tile) || !supports_channels(problem) {
            return None;
        }
        let shape = &problem.growth;
        let split_terms = split_terms(problem.precision);
        let rectangle = Rectangle::new(shape, [tile.th, tile.tw])?;
        let (positions, pixels) = (rectangle.position_count(), rectangle.pixels());
        let threads = 32 * tile.warps;
        let groups = shape.c.div_ceil(MMA_K);
        let block_groups = groups.div_ceil(tile.cluster);
        if (tile.cluster - 1) * block_groups >= groups {
            return None;
        }
        let slice = block_groups * MMA_K;
        let quads = BlockQuads::new(problem, tile.cluster)?;
        let block_n = problem.n.div_ceil(tile.cluster);
        let items = [
            (slice / 4).checked_mul(positions)?,
            STEP_QUADS * quads.before_steps * pixels,
            4 * STEP_QUADS * quads.grown_steps * pixels,
            block_n * pixels,
        ]
        .map(|all| all.div_ceil(threads));
        let loads = items[0] + items[1];
        if loads.max(items[2]).max(items[3]) > MAX_ITEMS {
            return None;
        }
        let input_plane = quad_plane(positions, split_terms);
        let plane = quad_plane(pixels, split_terms);
        let products = Products {
            problem,
            tile: &tile,
            split_terms,
            pixels,
        };
        let b = [
            4 * input_plane,
            rectangle.positions[1] * shape.dilation[0],
            shape.dilation[1],
        ];
        let growth = products.growth(block_groups, b, arrangements)?;
        let pointwise = products.pointwise(&quads, plane, arrangements)?;
        let own_rows = own_rows(&tile, &quads, &growth);
        let slots = tile.cluster * growth.warps_k;
        let operands = |quads: u32, plane: u32| 2 * split_terms * quads * plane;
        let memory = SharedMemory::new(&Contents {
            growth_weights: growth.weights(),
            pointwise_weights: pointwise.weights(),
            input: operands(slice / 4, input_plane),
            before: operands(STEP_QUADS * quads.before_steps, plane),
            grown: operands(STEP_QUADS * quads.grown_steps, plane),
            grown_sums: slots * own_rows * growth.partial_pitch,
            new_values: own_rows * pixels,
            received: tile.cluster * pointwise.warps_k * block_n * pointwise.partial_pitch,
            warps: tile.warps,
        });
        let registers = registers([&growth, &pointwise], loads);
        let block = BlockResources {
            warps: tile.warps,
            registers,
            shared_floats: memory.floats,
        };
        let mut sizes = Self {
            tile,
            rectangle,
            slice,
            input_plane,
            quads,
            plane,
            block_n,
            growth,
            pointwise,
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
    pub(super) fn from_tile(problem: &DenseStepProblem, tile: &Tile, gpu: &Gpu) -> Option<Self> {
        let tile = DenseStepTile::from_tile(tile)?;
        Self::new(problem, tile, gpu, &mut Arrangements::default())
    }

    /// The sizes of a supported tile.
    pub(super) fn of_supported(problem: &DenseStepProblem, tile: &Tile, gpu: &Gpu) -> Self {
        Self::from_tile(problem, tile, gpu).expect("a supported tile")
    }

    /// Rows of partial sums of new channels in a block.
    pub(super) fn own_rows(&self) -> u32 {
        own_rows(&self.tile, &self.quads, &self.growth)
    }
}

fn own_rows(tile: &DenseStepTile, quads: &BlockQuads, growth: &Factor) -> u32 {
    match tile.cluster {
        1 => growth.rows,
        _ => 4 * quads.own,
    }
}

/// Whether the numbers of a tile are in the ranges that every problem supports.
fn is_valid(tile: &DenseStepTile) -> bool {
    let DenseStepTile {
        cluster,
        warps,
        warp_groups,
        ..
    } = *tile;
    // Without a cluster the sums of the first convolution are complete only when all of its warps are.
    let most_groups = if cluster > 1 && warps.is_multiple_of(2) {
        2
    } else {
        1
    };
    ![cluster, warps, warp_groups].contains(&0)
        && warp_groups <= most_groups
        && cluster <= PORTABLE_CLUSTER
        && warps <= MAX_WARPS
}

/// Whether the numbers of channels are far from any limit of the kernel's integers.
fn supports_channels(problem: &DenseStepProblem) -> bool {
    let channels = problem
        .n
        .max(problem.before)
        .max(problem.growth.c.max(problem.growth.n));
    channels <= 1 << 14
}
