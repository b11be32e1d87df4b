//! The tile space.

use super::geometry::MmaNhwcGeometry;
use super::{MmaNhwcTile, supports_problem};
use crate::cost::kernel_us;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::candidates_up_to;
use crate::scheme::merged_groups::MergedGroups;
use crate::scheme::tensor_core::{MMA_K, MMA_M, MMA_N, channel_tiles};

/// Output pixels of a block.
const PIXELS: std::ops::RangeInclusive<u32> = 32..=256;

/// The tiles that fit the GPU, with their predicted times. Empty if the scheme does not support the problem, or the GPU has no `mma.sync`.
pub(super) fn tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, MmaNhwcTile)> {
    let supported = problem.conv().filter(|conv| supports_problem(conv));
    let Some(problem) = supported.filter(|_| gpu.has_mma()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for pixels in rectangles(problem) {
        for (m_tiles, warps_m, block_groups) in channels(problem) {
            for (chunk_groups, taps, stages) in pipelines(problem) {
                for warps_p in warps_p(pixels) {
                    let [th, tw] = pixels;
                    let tile = MmaNhwcTile {
                        th,
                        tw,
                        m_tiles,
                        warps_m,
                        warps_p,
                        chunk_groups,
                        block_groups,
                        taps,
                        stages,
                    };
                    let sizes = MmaNhwcGeometry::new(problem, tile, gpu);
                    found.extend(sizes.map(|sizes| {
                        let work = sizes.work(problem, gpu);
                        (kernel_us(&work, gpu), tile)
                    }));
                }
            }
        }
    }
    found
}

/// MMA tiles and warps along the output channels, and merged groups of a block.
fn channels(problem: &ConvProblem) -> Vec<(u32, u32, u32)> {
    let shape = &problem.shape;
    let groups = MergedGroups::for_shape(shape);
    let of_group = channel_tiles(groups.n, 4).into_iter();
    let one = of_group.map(|(m_tiles, warps_m)| (m_tiles, warps_m, 1));
    let several = [2, 4].into_iter().filter(|_| shape.groups > 1);
    one.chain(several.map(|count| (groups.n.div_ceil(MMA_M), count, count)))
        .collect()
}

/// Output rows and columns of a block. Small images are one rectangle.
fn rectangles(problem: &ConvProblem) -> Vec<[u32; 2]> {
    let shape = &problem.shape;
    let (out_h, out_w) = (shape.out_h(), shape.out_w());
    let sizes = |size| candidates_up_to(size, &[1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 128, 256]);
    let all = out_h * out_w;
    let mut found = Vec::new();
    for th in sizes(out_h) {
        for tw in sizes(out_w) {
            let pixels = th.min(out_h) * tw.min(out_w);
            let is_useful = PIXELS.contains(&pixels) || all < *PIXELS.start() && pixels == all;
            if is_useful && PIXELS.contains(&(th * tw).max(*PIXELS.start())) {
                found.push([th.min(out_h), tw.min(out_w)]);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// Warps along the pixels; at most a fifth of the MMA tiles has no pixel, or one tile.
fn warps_p([th, tw]: [u32; 2]) -> impl Iterator<Item = u32> {
    let needed = (th * tw).div_ceil(MMA_N);
    [1, 2, 4, 8].into_iter().filter(move |&warps| {
        let all = needed.div_ceil(warps).next_multiple_of(2) * warps;
        all <= (needed + needed / 5).max(needed + 1)
    })
}

/// Channel groups of a chunk, taps of a stage, and stages.
fn pipelines(problem: &ConvProblem) -> Vec<(u32, u32, u32)> {
    let shape = &problem.shape;
    let all_taps = shape.r * shape.s;
    let channel_groups = MergedGroups::for_shape(shape).c.div_ceil(MMA_K);
    let mut taps = vec![1, shape.s, all_taps];
    taps.dedup();
    let mut found = Vec::new();
    for chunk_groups in candidates_up_to(channel_groups, &[1, 2, 4]) {
        for &taps in &taps {
            let steps = channel_groups.div_ceil(chunk_groups) * (all_taps / taps);
            let stages: &[u32] = if steps == 1 { &[1] } else { &[2, 3, 4] };
            let stages = stages.iter().filter(|&&stages| stages <= steps);
            found.extend(stages.map(|&stages| (chunk_groups, taps, stages)));
        }
    }
    found
}
