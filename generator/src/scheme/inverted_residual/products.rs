//! The matrix products of a block.

use super::InvertedResidualTile;
use crate::ir::InvertedResidualProblem;
use crate::scheme::factor::{Arrangements, Factor, FactorProduct};
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N};

/// What the matrix products of the expansion and the projection depend on.
pub(super) struct Products<'a> {
    pub(super) problem: &'a InvertedResidualProblem,
    pub(super) tile: &'a InvertedResidualTile,
    pub(super) split_terms: u32,
}

impl Products<'_> {
    /// The two products. `columns` are the positions of the input with the distance of two of its channel quads, and the pixels with that of
    /// the filtered values. `None` if the warps cannot hold the accumulators.
    pub(super) fn factors(
        &self,
        columns: [(u32, u32); 2],
        arrangements: &mut Arrangements,
    ) -> Option<[Factor; 2]> {
        let [(positions, input_plane), (pixels, filtered_plane)] = columns;
        let cluster = self.tile.cluster;
        let block_groups = self.problem.depthwise.c.div_ceil(MMA_K).div_ceil(cluster);
        let tiles = [block_groups, positions.div_ceil(MMA_N)];
        let expand = self.product(tiles, self.problem.c.div_ceil(MMA_K), 1);
        // With clusters the blocks split K already. Steps that warps save there are lost again, because more partial sums are exchanged.
        let max_warps_k = if cluster > 1 { 1 } else { 4 };
        let tiles = [self.problem.n.div_ceil(MMA_M), pixels.div_ceil(MMA_N)];
        let project = self.product(tiles, block_groups, max_warps_k);
        let mut factor = |product: FactorProduct, plane: u32| match product.needs_more_registers() {
            true => None,
            false => Factor::new(arrangements, product, 1, [4 * plane, 1, 1]),
        };
        Some([
            factor(expand, input_plane)?,
            factor(project, filtered_plane)?,
        ])
    }

    /// A product of one chunk with `steps` K steps.
    fn product(&self, tiles: [u32; 2], steps: u32, max_warps_k: u32) -> FactorProduct {
        FactorProduct {
            tiles,
            counts: [steps, 1, 1],
            steps,
            warps: self.tile.warps,
            max_warps_k,
            split_terms: self.split_terms,
        }
    }
}

/// Estimated registers of a thread that holds `quads` channel quads at the same time.
pub(super) fn registers(factors: [&Factor; 2], quads: u32) -> u32 {
    let operands = factors.map(|factor| {
        // Accumulators, and those of the products that are added separately.
        let accumulators = match factor.separate_accumulators {
            true => 16,
            false => 8,
        };
        accumulators * factor.m_tiles * factor.p_tiles + 8 * factor.m_tiles + 5 * factor.p_tiles
    });
    operands[0].max(operands[1]).max(4 * quads) + 36
}
