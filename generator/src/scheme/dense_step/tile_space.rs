//! The tile space.

use super::DenseStepTile;
use super::geometry::Geometry;
use crate::gpu::Gpu;
use crate::ir::DenseStepProblem;
use crate::scheme::factor::Arrangements;
use crate::scheme::implicit_gemm::tile_shapes;
use crate::scheme::tiling::RoughTime;

/// Most pixels of a tile.
const MAX_PIXELS: u32 = 128;

/// Every tile with its rough time. Empty if the GPU supports only the kernel's fallback.
pub(super) fn rated_tiles(problem: &DenseStepProblem, gpu: &Gpu) -> Vec<(f64, DenseStepTile)> {
    if !gpu.has_mma() {
        return Vec::new();
    }
    let shape = &problem.growth;
    let rough = RoughTime::new(gpu);
    let mut arrangements = Arrangements::default();
    let mut found = Vec::new();
    for (th, tw) in tile_shapes(shape.out_h(), shape.out_w(), MAX_PIXELS) {
        for cluster in 1..=gpu.max_cluster() {
            for (warps, warp_groups) in [(4, 1), (8, 1), (12, 1), (16, 1), (8, 2), (12, 2), (16, 2)]
            {
                let tile = DenseStepTile {
                    th,
                    tw,
                    cluster,
                    warps,
                    warp_groups,
                };
                if let Some(sizes) = Geometry::new(problem, tile, gpu, &mut arrangements) {
                    found.push((rough.of(&sizes.work(problem, gpu)), tile));
                }
            }
        }
    }
    found
}
