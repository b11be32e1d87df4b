//! The tile space.

use super::cells::Cells;
use super::geometry::NhwcGeometry;
use super::{WgmmaNhwcTile, supports_problem};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
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
    improving_tiles(problem, gpu, |_| true)
}

/// The same without tiles whose lower bound of the predicted time, microseconds, `can_improve` refuses.
pub(super) fn improving_tiles(
    problem: &ConvProblem,
    gpu: &Gpu,
    can_improve: impl Fn(f64) -> bool,
) -> Vec<(f64, WgmmaNhwcTile)> {
    let cells = Arc::new(Cells::new(&problem.shape));
    let Ok(all_cells) = u32::try_from(cells.with_outputs(&problem.shape)) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for tile in tiles_without_stages(problem, all_cells, gpu) {
        let tiles = all_cells.div_ceil(WGMMA_M * tile.warpgroups);
        if !can_improve(tile.least_us(problem, tiles, gpu)) {
            continue;
        }
        let with = |stages, input_stages| {
            let tile = WgmmaNhwcTile {
                stages,
                input_stages,
                ..tile
            };
            NhwcGeometry::with_cells(problem, tile, gpu, &cells)
        };
        let mut fitting = INPUT_STAGES.into_iter();
        let Some(sizes) = fitting.find_map(|input_stages| with(1, input_stages)) else {
            continue;
        };
        let all = sizes.sum.tile_stages();
        let kept = (all <= MAX_KEPT_STAGES).then_some(all);
        let streamed = STAGES.into_iter().filter(|&stages| stages < all);
        let stages: Vec<u32> = streamed.chain(kept).collect();
        for input_stages in INPUT_STAGES {
            let geometries = stages
                .iter()
                .filter_map(|&stages| with(stages, input_stages));
            found.extend(geometries.map(|sizes| (sizes.us(problem, gpu), sizes.tile)));
        }
    }
    found
}

/// All combinations of the other numbers of a tile. Stages are 0.
fn tiles_without_stages(problem: &ConvProblem, all_cells: u32, gpu: &Gpu) -> Vec<WgmmaNhwcTile> {
    let shape = &problem.shape;
    let groups = shape.c / MMA_K;
    // No more output channels than are needed.
    let widest = shape.n.next_multiple_of(32);
    let widths = [32, 64, 96, 128, 192, 256].into_iter();
    let widths: Vec<u32> = widths.filter(|&tn| tn < widest + 32).collect();
    let chunks: Vec<u32> = [1, 2, 4, 8]
        .into_iter()
        .filter(|count| groups.is_multiple_of(*count))
        .collect();
    let mut found = Vec::new();
    for warpgroups in 1..=4 {
        for &tn in &widths {
            let tiles = all_cells.div_ceil(WGMMA_M * warpgroups);
            let mut divisions: Vec<[u32; 2]> = block_tiles(problem, tiles, tn, gpu)
                .into_iter()
                .map(|count| [count, 1])
                .collect();
            let blocks = u64::from(tiles) * u64::from(shape.n.div_ceil(tn));
            let fit = |&cluster: &u32| blocks * u64::from(cluster) <= u64::from(gpu.sms);
            let clusters = CLUSTERS.into_iter().filter(fit);
            divisions.extend(clusters.map(|cluster| [1, cluster]));
            for &chunk_groups in &chunks {
                for producers in 1..=2 {
                    found.extend(
                        divisions
                            .iter()
                            .map(|&[block_tiles, cluster]| WgmmaNhwcTile {
                                warpgroups,
                                tn,
                                chunk_groups,
                                stages: 0,
                                input_stages: 0,
                                producers,
                                block_tiles,
                                cluster,
                            }),
                    );
                }
            }
        }
    }
    found
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
    use crate::ir::{Format, Precision};
    use tdc_runtime::{ConvShape, Padding};

    /// No tile is faster than the bound of tiles with other chunks, producers and stages, with clusters and without.
    #[test]
    fn bounds_are_not_above_predicted_times() {
        let h200 = gpu("h200").unwrap();
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
        ];
        let formats = [
            (Format::SPLIT_NHWC, Precision::Fp32),
            (Format::FP16_NHWC, Precision::Fp16),
        ];
        let (mut count, mut clusters) = (0, 0);
        for shape in shapes {
            for (input, precision) in formats {
                let problem = ConvProblem {
                    precision,
                    input,
                    ..ConvProblem::new(shape)
                };
                let all_cells = Cells::new(&shape).with_outputs(&shape) as u32;
                for (us, tile) in tiles(&Problem::Conv(problem), h200) {
                    let tiles = all_cells.div_ceil(WGMMA_M * tile.warpgroups);
                    let bound = tile.least_us(&problem, tiles, h200);
                    assert!(bound <= us * (1.0 + 1e-9), "{tile:?}: {bound}, {us}");
                    count += 1;
                    clusters += usize::from(tile.cluster > 1);
                }
            }
        }
        assert!(count > 1000 && clusters > 100, "{count}, {clusters}");
    }
}
