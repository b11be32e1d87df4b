//! The matrix products of a block.

use super::DenseStepTile;
use super::channels::BlockQuads;
use crate::ir::DenseStepProblem;
use crate::scheme::factor::{Arrangements, Factor, FactorProduct};
use crate::scheme::tensor_core::{MMA_M, MMA_N};

/// What the matrix products of both convolutions depend on.
pub(super) struct Products<'a> {
    pub(super) problem: &'a DenseStepProblem,
    pub(super) tile: &'a DenseStepTile,
    pub(super) split_terms: u32,
    /// Pixels of the rectangle.
    pub(super) pixels: u32,
}

impl Products<'_> {
    /// The product of a block's slice of the first convolution: `groups` groups of 16 input channels. `b` are the distances of two groups, rows
    /// and columns in the staged input. `None` if the warps cannot hold the accumulators.
    pub(super) fn growth(
        &self,
        groups: u32,
        b: [u32; 3],
        arrangements: &mut Arrangements,
    ) -> Option<Factor> {
        let shape = &self.problem.growth;
        let counts = [groups, shape.r, shape.s];
        // More sums are exchanged if warps split K too.
        let max_warps_k = if self.tile.cluster > 1 { 2 } else { 4 };
        let [warps, _] = warps_of_products(self.tile);
        self.factor(shape.n, counts, b, [warps, max_warps_k], arrangements)
    }

    /// The product of a block's quads of the concatenation before the new channels. The packed weights have the steps of the new ones, too.
    pub(super) fn pointwise(
        &self,
        quads: &BlockQuads,
        plane: u32,
        arrangements: &mut Arrangements,
    ) -> Option<Factor> {
        let (n, counts) = (self.problem.n, [quads.before_steps, 1, 1]);
        // With clusters the blocks split K already. Steps that warps save there are lost again, because more partial sums are exchanged.
        let max_warps_k = if self.tile.cluster > 1 { 1 } else { 4 };
        let [_, warps] = warps_of_products(self.tile);
        let b = [4 * plane, 1, 1];
        let mut factor = self.factor(n, counts, b, [warps, max_warps_k], arrangements)?;
        factor.tile_weights = quads.all_steps() * 128 * self.split_terms;
        factor.chunk_weights = factor.rows / MMA_M * factor.tile_weights;
        Some(factor)
    }

    /// A product of one chunk for `n` output channels.
    fn factor(
        &self,
        n: u32,
        counts: [u32; 3],
        b: [u32; 3],
        [warps, max_warps_k]: [u32; 2],
        arrangements: &mut Arrangements,
    ) -> Option<Factor> {
        let product = FactorProduct {
            tiles: [n.div_ceil(MMA_M), self.pixels.div_ceil(MMA_N)],
            counts,
            steps: counts.iter().product(),
            warps,
            max_warps_k,
            split_terms: self.split_terms,
        };
        if product.needs_more_registers() {
            return None;
        }
        let mut factor = Factor::new(arrangements, product, 1, b)?;
        factor.has_idle_warps |= warps < self.tile.warps;
        Some(factor)
    }
}

/// Warps that have parts of the first convolution, and of the 1x1 convolution.
pub(super) fn warps_of_products(tile: &DenseStepTile) -> [u32; 2] {
    [tile.warps / tile.warp_groups; 2]
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
    operands[0].max(operands[1]) + 4 * quads + 36
}
