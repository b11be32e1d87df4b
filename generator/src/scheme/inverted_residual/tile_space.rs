//! The tile space.

use super::InvertedResidualTile;
use super::geometry::Geometry;
use crate::gpu::Gpu;
use crate::ir::InvertedResidualProblem;
use crate::scheme::factor::Arrangements;
use crate::scheme::implicit_gemm::tile_shapes;
use crate::scheme::tiling::RoughTime;

/// Most pixels of a tile.
const MAX_PIXELS: u32 = 256;

/// Every tile with its rough time. Empty if the GPU supports only the kernel's fallback.
pub(super) fn rated_tiles(
    problem: &InvertedResidualProblem,
    gpu: &Gpu,
) -> Vec<(f64, InvertedResidualTile)> {
    if !gpu.has_mma() {
        return Vec::new();
    }
    let shape = &problem.depthwise;
    let rough = RoughTime::new(gpu);
    let mut arrangements = Arrangements::default();
    let mut found = Vec::new();
    for (th, tw) in tile_shapes(shape.out_h(), shape.out_w(), MAX_PIXELS) {
        for cluster in 1..=gpu.max_cluster() {
            for warps in [4, 8, 12, 16] {
                let tile = InvertedResidualTile {
                    th,
                    tw,
                    cluster,
                    warps,
                };
                if let Some(sizes) = Geometry::new(problem, tile, gpu, &mut arrangements) {
                    found.push((rough.of(&sizes.work(problem, gpu)), tile));
                }
            }
        }
    }
    found
}
