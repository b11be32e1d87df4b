//! The factors of a tile.

use super::TuckerFusedTile;
use super::cluster_split::ClusterSplit;
use super::input_tile::InputTile;
use crate::ir::TuckerProblem;
use crate::scheme::factor::{Arrangements, Factor, FactorProduct};
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, split_terms};

/// The factors that a block computes.
pub(super) struct Factors {
    pub(super) first: Option<Factor>,
    pub(super) core: Factor,
    pub(super) last: Factor,
    /// The first factor of the next layer.
    pub(super) next: Option<Factor>,
}

impl Factors {
    /// `None` if the first factor's channels are not a multiple of its chunks, or no warp can hold the accumulators of a factor.
    pub(super) fn new(
        problem: &TuckerProblem,
        tile: &TuckerFusedTile,
        (split, input, d2_plane): (&ClusterSplit, &InputTile, u32),
        arrangements: &mut Arrangements,
    ) -> Option<Self> {
        let products = Products {
            problem,
            tile,
            split,
            input,
            d2_plane,
        };
        if problem.first.is_none() && tile.chunk_groups > 1 {
            return None;
        }
        let mut factors = Self {
            first: match problem.first {
                Some(c) => Some(products.first(c, arrangements)?),
                None => None,
            },
            core: products.core(arrangements)?,
            last: products.last(arrangements)?,
            next: match problem.next {
                Some(next) => Some(products.next(next.n, arrangements)?),
                None => None,
            },
        };
        factors.number_chunks();
        Some(factors)
    }

    /// Numbers the chunks of weights in the order of use, and places them in shared memory, those of the last factor first.
    fn number_chunks(&mut self) {
        let mut chunks = 0;
        let in_order = self
            .first
            .iter_mut()
            .chain([&mut self.core, &mut self.last]);
        for factor in in_order.chain(&mut self.next) {
            factor.first_chunk = chunks;
            chunks += factor.chunks;
        }
        let mut floats = 0;
        for factor in [&mut self.last, &mut self.core]
            .into_iter()
            .chain(&mut self.first)
        {
            factor.shared_at = floats;
            floats += factor.weights();
        }
    }

    /// The layer's factors, without that of the next layer.
    pub(super) fn of_layer(&self) -> impl Iterator<Item = &Factor> {
        self.first.iter().chain([&self.core, &self.last])
    }

    /// All factors.
    pub(super) fn all(&self) -> impl Iterator<Item = &Factor> {
        self.of_layer().chain(&self.next)
    }

    /// Chunks of weights of the layer's factors.
    pub(super) fn chunks(&self) -> u32 {
        self.of_layer().map(|factor| factor.chunks).sum()
    }
}

/// What the matrix products of the factors depend on.
struct Products<'a> {
    problem: &'a TuckerProblem,
    tile: &'a TuckerFusedTile,
    split: &'a ClusterSplit,
    input: &'a InputTile,
    d2_plane: u32,
}

impl Products<'_> {
    /// The product of a factor with `tiles` MMA tiles and chunks of `counts` K steps, `steps` in all.
    fn product(&self, tiles: [u32; 2], counts: [u32; 3], steps: u32) -> FactorProduct {
        FactorProduct {
            tiles,
            counts,
            steps,
            warps: self.tile.warps,
            max_warps_k: self.tile.max_warps_k,
            split_terms: split_terms(self.problem.precision),
        }
    }

    /// K steps of a chunk of `m_tiles` MMA tiles of channels, by the limit of the tile; at least one.
    fn most_steps(&self, m_tiles: u32) -> u32 {
        let step_floats = 128 * split_terms(self.problem.precision) * m_tiles;
        (self.tile.chunk_kib * 256 / step_floats).max(1)
    }

    fn first(&self, c: u32, arrangements: &mut Arrangements) -> Option<Factor> {
        let (groups, chunk_groups) = (c.div_ceil(MMA_K), self.tile.chunk_groups);
        if !groups.is_multiple_of(chunk_groups) {
            return None;
        }
        let tiles = [
            self.split.block_d1_groups,
            self.input.positions().div_ceil(MMA_N),
        ];
        let product = self.product(tiles, [chunk_groups, 1, 1], groups);
        let b = [4 * self.input.plane, 1, 1];
        Factor::new(arrangements, product, groups / chunk_groups, b)
    }

    /// A chunk is one row of the filter, the complete filter, or the filters of several groups of channels.
    fn core(&self, arrangements: &mut Arrangements) -> Option<Factor> {
        let core = &self.problem.core;
        let groups = self.split.block_d1_groups;
        let (taps, m_tiles) = (core.r * core.s, self.split.block_d2_tiles);
        let parts = (1..=groups).filter(|&part| groups.is_multiple_of(part));
        let largest = parts
            .filter(|part| part * taps <= self.most_steps(m_tiles))
            .max();
        let counts = largest.map_or([1, 1, core.s], |part| [part, core.r, core.s]);
        let pixel_tiles = (self.tile.th * self.tile.tw).div_ceil(MMA_N);
        let product = self.product([m_tiles, pixel_tiles], counts, taps * groups);
        let chunks = taps * groups / counts.iter().product::<u32>();
        let b = [
            4 * self.input.plane,
            self.input.row_len * core.dilation[0],
            core.dilation[1],
        ];
        Factor::new(arrangements, product, chunks, b)
    }

    fn last(&self, arrangements: &mut Arrangements) -> Option<Factor> {
        let (d2_tiles, m_tiles) = (self.split.d2_rows / MMA_M, self.split.block_n_tiles);
        let parts = (1..=d2_tiles).filter(|&part| d2_tiles.is_multiple_of(part));
        let steps = parts
            .filter(|&part| part <= self.most_steps(m_tiles))
            .max()
            .unwrap_or(1);
        let tiles = [m_tiles, self.split.block_pixels / MMA_N];
        let mut product = self.product(tiles, [steps, 1, 1], d2_tiles);
        if self.problem.next.is_some() {
            product.max_warps_k = 1;
        }
        Factor::new(
            arrangements,
            product,
            d2_tiles / steps,
            [4 * self.d2_plane, 1, 1],
        )
    }

    /// Its operands are the registers that hold the output: all of a block's channels in one chunk.
    fn next(&self, n: u32, arrangements: &mut Arrangements) -> Option<Factor> {
        let steps = self.split.block_n_tiles;
        let tiles = [n.div_ceil(MMA_M), self.split.block_pixels / MMA_N];
        let product = FactorProduct {
            max_warps_k: 1,
            ..self.product(tiles, [steps, 1, 1], steps)
        };
        Factor::new(arrangements, product, 1, [4 * self.d2_plane, 1, 1])
    }
}
