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
    /// Those with different predicted times: these depend on the stages only by the number of blocks that an SM holds.
    Different,
}

/// The tiles that fit the GPU, with their predicted times. Empty if the scheme does not support the problem, or the GPU has no wgmma.
pub(super) fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, WgmmaTile)> {
    let Some(problem) = supported(problem, gpu) else {
        return Vec::new();
    };
    let without_stages = tiles_without_stages(problem, gpu).into_iter();
    without_stages
        .flat_map(|tile| with_stages(tile, Stages::All, problem, gpu))
        .collect()
}

/// The convolution of a problem that the scheme supports on this GPU.
pub(super) fn supported<'a>(problem: &'a Problem, gpu: &Gpu) -> Option<&'a ConvProblem> {
    let supported = problem.conv().filter(|conv| supports_problem(conv));
    supported.filter(|_| gpu.has_wgmma())
}

/// The tiles with the numbers of `tile` and the stages of `which`, with their predicted times.
pub(super) fn with_stages(
    tile: WgmmaTile,
    which: Stages,
    problem: &ConvProblem,
    gpu: &Gpu,
) -> Vec<(f64, WgmmaTile)> {
    let mut found = Vec::new();
    let mut most_blocks = 0;
    for stages in STAGES {
        let tile = WgmmaTile { stages, ..tile };
        let Some(sizes) = WgmmaGeometry::new(problem, tile, gpu) else {
            continue;
        };
        let blocks_per_sm = sizes.registers.blocks_per_sm;
        if which == Stages::All || blocks_per_sm > most_blocks {
            found.push((sizes.us(problem, gpu), tile));
        }
        most_blocks = most_blocks.max(blocks_per_sm);
    }
    found
}

/// All combinations of the other numbers of a tile. `stages` is 0.
pub(super) fn tiles_without_stages(problem: &ConvProblem, gpu: &Gpu) -> Vec<WgmmaTile> {
    let shape = &problem.shape;
    let groups = shape.c.div_ceil(MMA_K);
    // No more output channels than are needed.
    let widest = shape.n.next_multiple_of(32);
    let widths = [32, 64, 96, 128, 192, 256].into_iter();
    let widths: Vec<u32> = widths.filter(|&tn| tn < widest + 32).collect();
    let mut found = Vec::new();
    for warpgroups in 1..=4 {
        for (th, tw) in pixel_tiles(problem, WGMMA_M * warpgroups) {
            for &tn in &widths {
                let counts = block_tiles(problem, [th, tw, tn], gpu);
                for chunk_groups in (1..=4).filter(|count| groups.is_multiple_of(*count)) {
                    for (producers, load_stages) in LOADERS {
                        found.extend(counts.iter().map(|&block_tiles| WgmmaTile {
                            th,
                            tw,
                            tn,
                            warpgroups,
                            chunk_groups,
                            stages: 0,
                            producers,
                            load_stages,
                            block_tiles,
                        }));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::Precision;
    use tdc_runtime::{ConvShape, Padding};

    /// No tile is faster than the bound of tiles with other chunks, producers and stages.
    #[test]
    fn bounds_are_not_above_predicted_times() {
        let h200 = gpu("h200").unwrap();
        let strided = ConvShape {
            stride: [2, 2],
            batch: 3,
            ..ConvShape::new(67, 131, 29, 23, 3, 3)
        };
        let shapes = [
            strided,
            ConvShape {
                padding: Padding::all(1),
                ..ConvShape::new(256, 320, 28, 28, 3, 3)
            },
            ConvShape::new(512, 96, 7, 7, 1, 1),
        ];
        let mut count = 0;
        for shape in shapes {
            for precision in [Precision::Fp32, Precision::Fp16] {
                let problem = ConvProblem {
                    precision,
                    ..ConvProblem::new(shape)
                };
                for (us, tile) in tiles(&Problem::Conv(problem), h200) {
                    let bound = tile.least_us(&problem, h200);
                    assert!(bound <= us * (1.0 + 1e-9), "{tile:?}: {bound}, {us}");
                    count += 1;
                }
            }
        }
        assert!(count > 1000, "{count}");
    }
}
