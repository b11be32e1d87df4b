//! The tile space.

use super::cells::Cells;
use super::geometry::NhwcGeometry;
use super::{WgmmaNhwcTile, supports_problem};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::search::{TileSearch, is_at_most};
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::wgmma::WGMMA_M;
use std::sync::Arc;

/// Pipeline stages of the weights, and of the input.
const STAGES: [u32; 3] = [3, 4, 6];
const INPUT_STAGES: [u32; 5] = [2, 3, 4, 6, 8];

/// Blocks of a cluster, if the GPU has an SM for each block of the launch.
const CLUSTERS: [u32; 3] = [2, 4, 8];

/// Most stages of weights that a block keeps.
const MAX_KEPT_STAGES: u32 = 24;

/// The tiles that fit the GPU, with their predicted times. Empty if the scheme does not support the problem, or the GPU has no wgmma.
pub(super) fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
    supported(problem, gpu).map_or_else(Vec::new, |problem| tiles_of(problem, gpu))
}

/// The convolution of a problem that the scheme supports on this GPU.
pub(super) fn supported<'a>(problem: &'a Problem, gpu: &Gpu) -> Option<&'a ConvProblem> {
    let supported = problem.conv().filter(|conv| supports_problem(conv));
    supported.filter(|_| gpu.has_wgmma())
}

/// The [`tiles`] of a convolution that the scheme supports, on a GPU that has wgmma.
pub(super) fn tiles_of(problem: &ConvProblem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
    let Some(space) = TileSpace::new(problem, gpu) else {
        return Vec::new();
    };
    let groups = space.groups().into_iter();
    in_order(groups.map(|group| space.tiles(group)).collect())
}

/// Some of [`tiles_of`], in the same order: the fastest ones, if these take less than the best tile of a search or its limit, where each takes
/// `before_us` more; and others. All of them if the search knows registers.
pub(super) fn improving_tiles(
    problem: &ConvProblem,
    search: &TileSearch<'_>,
    before_us: f64,
) -> Vec<(f64, WgmmaNhwcTile)> {
    // With the registers that the compiler allocated, more blocks may be resident than predicted, and launches may take less than their bound.
    if search.knows_registers() {
        return tiles_of(problem, search.gpu());
    }
    let Some(space) = TileSpace::new(problem, search.gpu()) else {
        return Vec::new();
    };
    let groups = space.groups().into_iter();
    let mut groups: Vec<_> = groups.map(|group| (space.least_us(group), group)).collect();
    groups.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut found = Vec::new();
    let mut best_us = f64::INFINITY;
    for (bound, group) in groups {
        // Of equally fast tiles the first one wins, so a group whose bound is the best time is visited too.
        if !is_at_most(bound, best_us) || !search.can_improve(before_us + bound) {
            break;
        }
        let tiles = space.tiles(group);
        best_us = tiles.iter().map(|(us, _)| *us).fold(best_us, f64::min);
        found.push(tiles);
    }
    in_order(found)
}

/// The tiles of groups in an order that does not depend on that of the groups: of equally fast tiles the first one is chosen.
fn in_order(groups: Vec<Vec<(f64, WgmmaNhwcTile)>>) -> Vec<(f64, WgmmaNhwcTile)> {
    let mut tiles: Vec<_> = groups.into_iter().flatten().collect();
    tiles.sort_unstable_by_key(|&(_, tile)| {
        [
            tile.warpgroups,
            tile.tn,
            tile.chunk_groups,
            tile.producers,
            tile.cluster,
            tile.block_tiles,
            tile.input_stages,
            tile.stages,
        ]
    });
    tiles
}

/// The tiles with the same division of the outputs among blocks; the numbers as in [`WgmmaNhwcTile`].
#[derive(Clone, Copy)]
pub(super) struct TileGroup {
    pub(super) warpgroups: u32,
    pub(super) tn: u32,
    pub(super) block_tiles: u32,
    pub(super) cluster: u32,
}

/// The tiles of a problem.
struct TileSpace<'a> {
    problem: &'a ConvProblem,
    gpu: &'a Gpu,
    cells: Arc<Cells>,
    all_cells: u32,
    dram_bytes: f64,
}

impl<'a> TileSpace<'a> {
    /// `None` if the problem has more cells than any tile supports.
    fn new(problem: &'a ConvProblem, gpu: &'a Gpu) -> Option<Self> {
        let cells = Cells::new(&problem.shape);
        Some(Self {
            problem,
            gpu,
            all_cells: u32::try_from(cells.with_outputs(&problem.shape)).ok()?,
            cells: Arc::new(cells),
            dram_bytes: Problem::Conv(*problem).bytes() as f64,
        })
    }

    fn least_us(&self, group: TileGroup) -> f64 {
        group.least_us(self.problem, self.all_cells, self.dram_bytes, self.gpu)
    }

    fn groups(&self) -> Vec<TileGroup> {
        let shape = &self.problem.shape;
        // No more output channels than are needed.
        let widest = shape.n.next_multiple_of(32);
        let widths = [32, 64, 96, 128, 192, 256].into_iter();
        let widths: Vec<u32> = widths.filter(|&tn| tn < widest + 32).collect();
        let mut found = Vec::new();
        for warpgroups in 1..=4 {
            let tiles = self.all_cells.div_ceil(WGMMA_M * warpgroups);
            for &tn in &widths {
                let blocks = u64::from(tiles) * u64::from(shape.n.div_ceil(tn));
                let sms = u64::from(self.gpu.sms);
                let fit = |&cluster: &u32| blocks * u64::from(cluster) <= sms;
                let clusters = CLUSTERS.into_iter().filter(fit);
                let several = block_tiles(self.problem, tiles, tn, self.gpu).into_iter();
                let divisions = several.map(|count| [count, 1]);
                let divisions = divisions.chain(clusters.map(|cluster| [1, cluster]));
                found.extend(divisions.map(|[block_tiles, cluster]| TileGroup {
                    warpgroups,
                    tn,
                    block_tiles,
                    cluster,
                }));
            }
        }
        found
    }

    /// The tiles of a group that fit the GPU, with their predicted times.
    fn tiles(&self, group: TileGroup) -> Vec<(f64, WgmmaNhwcTile)> {
        let TileGroup {
            warpgroups,
            tn,
            block_tiles,
            cluster,
        } = group;
        let groups = self.problem.shape.c / MMA_K;
        let chunks = [1, 2, 4, 8].into_iter();
        let chunks = chunks.filter(|count| groups.is_multiple_of(*count));
        let mut found = Vec::new();
        for chunk_groups in chunks {
            for producers in 1..=2 {
                self.with_stages(
                    WgmmaNhwcTile {
                        warpgroups,
                        tn,
                        chunk_groups,
                        // `with_stages` sets both.
                        stages: 0,
                        input_stages: 0,
                        producers,
                        block_tiles,
                        cluster,
                    },
                    &mut found,
                );
            }
        }
        found
    }

    /// Adds the tiles that differ from `tile` in their stages only.
    fn with_stages(&self, tile: WgmmaNhwcTile, found: &mut Vec<(f64, WgmmaNhwcTile)>) {
        let with = |stages, input_stages| {
            let tile = WgmmaNhwcTile {
                stages,
                input_stages,
                ..tile
            };
            NhwcGeometry::with_cells(self.problem, tile, self.gpu, &self.cells)
        };
        let mut fitting = INPUT_STAGES.into_iter();
        let Some(sizes) = fitting.find_map(|input_stages| with(1, input_stages)) else {
            return;
        };
        let all = sizes.sum.tile_stages();
        let kept = (all <= MAX_KEPT_STAGES).then_some(all);
        let streamed = STAGES.into_iter().filter(|&stages| stages < all);
        let stages: Vec<u32> = streamed.chain(kept).collect();
        for input_stages in INPUT_STAGES {
            let geometries = stages
                .iter()
                .filter_map(|&stages| with(stages, input_stages));
            let times = geometries.map(|sizes| (sizes.us(self.problem, self.gpu), sizes.tile));
            found.extend(times);
        }
    }
}

/// Numbers of tiles of a block, so that blocks fill the SMs a few times or once.
fn block_tiles(problem: &ConvProblem, tiles: u32, tn: u32, gpu: &Gpu) -> Vec<u32> {
    let columns = problem.shape.n.div_ceil(tn);
    let mut found: Vec<u32> = [1, 2, 4]
        .into_iter()
        // One to three blocks on each SM.
        .chain([1, 2, 3].map(|blocks| tiles.div_ceil((blocks * gpu.sms / columns).max(1))))
        .map(|count| tiles.div_ceil(tiles.div_ceil(count.clamp(1, tiles))))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{Epilogue, Format, Precision};
    use tdc_runtime::{ConvShape, Padding};

    /// Convolutions with clusters and without, with and without a residual, in all formats.
    fn problems() -> Vec<ConvProblem> {
        let strided = ConvShape {
            stride: [2, 2],
            batch: 3,
            ..ConvShape::new(80, 131, 29, 23, 3, 3)
        };
        let shapes = [
            strided,
            ConvShape {
                padding: Padding::all(1),
                ..ConvShape::new(256, 96, 14, 14, 3, 3)
            },
            ConvShape::new(512, 320, 7, 7, 1, 1),
            ConvShape {
                batch: 32,
                ..ConvShape::new(64, 64, 28, 28, 1, 1)
            },
        ];
        let formats = [
            (Format::SPLIT_NHWC, Format::default(), Precision::Fp32),
            (Format::SPLIT_NHWC, Format::SPLIT_NHWC, Precision::Fp32),
            (Format::FP16_NHWC, Format::default(), Precision::Fp16),
            (Format::FP16_NHWC, Format::FP16_NHWC, Precision::Fp16),
        ];
        let mut problems = Vec::new();
        for shape in shapes {
            for (input, output, precision) in formats {
                for residual in [false, true] {
                    problems.push(ConvProblem {
                        precision,
                        input,
                        output,
                        epilogue: Epilogue {
                            residual,
                            ..Epilogue::default()
                        },
                        ..ConvProblem::new(shape)
                    });
                }
            }
        }
        problems.retain(supports_problem);
        assert!(problems.len() >= 16, "{}", problems.len());
        problems
    }

    /// No tile is faster than the bound of tiles with other chunks, producers and stages.
    #[test]
    fn bounds_are_not_above_predicted_times() {
        let h200 = gpu("h200").unwrap();
        let (mut count, mut clusters, mut turns) = (0, 0, 0);
        for problem in problems() {
            let space = TileSpace::new(&problem, h200).unwrap();
            for group in space.groups() {
                let bound = space.least_us(group);
                for (us, tile) in space.tiles(group) {
                    assert!(bound <= us * (1.0 + 1e-9), "{tile:?}: {bound}, {us}");
                    count += 1;
                    clusters += usize::from(tile.cluster > 1);
                    let sizes = NhwcGeometry::new(&problem, tile, h200).unwrap();
                    turns += usize::from(sizes.takes_turns());
                }
            }
        }
        assert!(count > 1000 && clusters > 100, "{count}, {clusters}");
        assert!(turns > 10, "{turns}");
    }

    /// The first of the fastest tiles is that of all tiles, if it is below the limit; with launches before it, too.
    #[test]
    fn the_fastest_tile_is_found() {
        let h200 = gpu("h200").unwrap();
        let first_of_fastest = |tiles: &[(f64, WgmmaNhwcTile)]| {
            let mut best: Option<(f64, WgmmaNhwcTile)> = None;
            for &(us, tile) in tiles {
                if best.is_none_or(|(best_us, _)| us < best_us) {
                    best = Some((us, tile));
                }
            }
            best
        };
        let mut fewer = 0;
        for problem in problems() {
            let all = tiles_of(&problem, h200);
            let best = first_of_fastest(&all);
            let (best_us, _) = best.unwrap();
            for before_us in [0.0, 2.0] {
                for limit_us in [f64::INFINITY, before_us + best_us * 1.001] {
                    let search = TileSearch::new(h200, &[], limit_us);
                    let found = improving_tiles(&problem, &search, before_us);
                    assert_eq!(first_of_fastest(&found), best, "{problem:?}");
                    fewer += usize::from(2 * found.len() < all.len());
                }
            }
            let search = TileSearch::new(h200, &[], 0.5 * best_us);
            let found = improving_tiles(&problem, &search, best_us);
            assert!(found.is_empty(), "{problem:?}");
        }
        assert!(fewer > 10, "{fewer}");
    }
}
