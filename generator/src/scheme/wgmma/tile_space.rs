//! The tile space.

use super::geometry::WgmmaGeometry;
use super::{WGMMA_M, WgmmaTile, supports_problem};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::tensor_core::MMA_K;

/// Pipeline stages of the weights, in the order of preference.
const STAGES: [u32; 4] = [4, 3, 2, 6];

/// Warpgroups of producers, and chunks that they hold.
const LOADERS: [(u32, u32); 4] = [(1, 1), (2, 1), (1, 2), (2, 2)];

/// The stages that a tile space has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stages {
    /// All that fit.
    All,
    /// The first ones that fit: predicted times hardly depend on them.
    Preferred,
}

/// The tiles that fit the GPU, with their predicted times. Empty if the scheme does not support the problem, or the GPU has no wgmma.
pub(super) fn tiles(problem: &Problem, gpu: &Gpu, stages: Stages) -> Vec<(f64, WgmmaTile)> {
    let Some(problem) = problem.nchw_conv() else {
        return Vec::new();
    };
    let shape = &problem.shape;
    if !gpu.has_wgmma() || !supports_problem(problem) {
        return Vec::new();
    }
    let groups = shape.c.div_ceil(MMA_K);
    let mut found = Vec::new();
    for warpgroups in 1..=4 {
        for (th, tw) in pixel_tiles(problem, WGMMA_M * warpgroups) {
            for tn in [32, 64, 96, 128, 192, 256] {
                // No more channels than are needed.
                if tn > 32 && tn >= shape.n.next_multiple_of(32) + 32 {
                    continue;
                }
                for chunk_groups in (1..=4).filter(|count| groups.is_multiple_of(*count)) {
                    let rest = LOADERS.into_iter().flat_map(|loaders| {
                        let counts = block_tiles(problem, [th, tw, tn], gpu);
                        counts.into_iter().map(move |count| (loaders, count))
                    });
                    for ((producers, load_stages), block_tiles) in rest {
                        let sized = STAGES.iter().filter_map(|&stages| {
                            let tile = WgmmaTile {
                                th,
                                tw,
                                tn,
                                warpgroups,
                                chunk_groups,
                                stages,
                                producers,
                                load_stages,
                                block_tiles,
                            };
                            WgmmaGeometry::new(problem, tile, gpu)
                        });
                        let most = if stages == Stages::All {
                            STAGES.len()
                        } else {
                            1
                        };
                        let rated = sized.take(most);
                        found.extend(rated.map(|sizes| (sizes.us(problem, gpu), sizes.tile)));
                    }
                }
            }
        }
    }
    found
}

/// Heights and widths of tiles of at most `most` pixels that waste few rows of the product.
fn pixel_tiles(problem: &ConvProblem, most: u32) -> Vec<(u32, u32)> {
    let shape = &problem.shape;
    let (out_w, rows) = (shape.out_w(), shape.batch * shape.out_h());
    let mut found = Vec::new();
    for tw in [4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, out_w] {
        if tw > most || tw > out_w.next_multiple_of(8) {
            continue;
        }
        let tallest = (most / tw).min(rows);
        for th in [tallest, tallest / 2 * 2, tallest / 4 * 4] {
            if th == 0 {
                continue;
            }
            let tiles = u64::from(rows.div_ceil(th)) * u64::from(out_w.div_ceil(tw));
            found.push((tiles, (th, tw)));
        }
    }
    let least = found.iter().map(|&(tiles, _)| tiles).min().unwrap_or(0);
    found.retain(|&(tiles, _)| tiles * 10 <= least * 13);
    let mut found: Vec<_> = found.into_iter().map(|(_, tile)| tile).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Numbers of tiles of a block, so that blocks fill the SMs a few times or once.
fn block_tiles(problem: &ConvProblem, [th, tw, tn]: [u32; 3], gpu: &Gpu) -> Vec<u32> {
    let shape = &problem.shape;
    let tiles = (shape.batch * shape.out_h()).div_ceil(th) * shape.out_w().div_ceil(tw);
    let columns = shape.n.div_ceil(tn);
    let mut found: Vec<u32> = [1, 2, 4]
        .into_iter()
        // One block on each SM, or two.
        .chain([1, 2].map(|blocks| tiles.div_ceil((blocks * gpu.sms / columns).max(1))))
        .map(|count| tiles.div_ceil(tiles.div_ceil(count.clamp(1, tiles))))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
