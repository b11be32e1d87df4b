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
    let supported = problem.conv().filter(|conv| supports_problem(conv));
    let Some(problem) = supported.filter(|_| gpu.has_wgmma()) else {
        return Vec::new();
    };
    tiles_of(problem, gpu)
}

/// The same for a convolution that the scheme supports, on a GPU that has wgmma.
pub(super) fn tiles_of(problem: &ConvProblem, gpu: &Gpu) -> Vec<(f64, WgmmaNhwcTile)> {
    let cells = Arc::new(Cells::new(&problem.shape));
    let mut found = Vec::new();
    for tile in tiles_without_stages(problem, &cells, gpu) {
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
fn tiles_without_stages(problem: &ConvProblem, cells: &Cells, gpu: &Gpu) -> Vec<WgmmaNhwcTile> {
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
    let Ok(cells) = u32::try_from(cells.with_outputs(shape)) else {
        return found;
    };
    for warpgroups in 1..=4 {
        for &tn in &widths {
            let tiles = cells.div_ceil(WGMMA_M * warpgroups);
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
