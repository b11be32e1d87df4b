//! The tile space, and a lower bound of the predicted times of its parts.

use super::geometry::{ImplicitGemmGeometry, MAX_SUMS, max_cluster};
use super::k_step::{KStep, chunks};
use super::work::StepWork;
use super::{ImplicitGemmTile, supports_problem};
use crate::cost::{TiledTotals, TiledWork};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Problem};
use crate::scheme::merged_groups::MergedGroups;
use crate::scheme::step_order::split_steps_over_warps;
use crate::scheme::tensor_core::{
    MAX_WARPS, MMA_M, MMA_N, PROMOTION_INTERVAL, channel_tiles, divisors, products, split_terms,
    stages,
};
use crate::scheme::tiling::{BlockOutput, InputTraffic, RoughTime};

/// The tiles with the same output of a block, of its warps, and the same cluster size.
#[derive(Clone, Copy)]
pub(super) struct TileGroup {
    pub(super) th: u32,
    pub(super) tw: u32,
    pub(super) m_tiles: u32,
    pub(super) warps_m: u32,
    pub(super) warps_p: u32,
    pub(super) cluster: u32,
}

impl TileGroup {
    /// Every group of a problem. Empty if the scheme does not support it, or the GPU runs only the kernel's fallback.
    pub(super) fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Self> {
        if !gpu.has_mma() || !supports_problem(problem) {
            return Vec::new();
        }
        let shape = &problem.shape;
        let split_terms = split_terms(problem.precision);
        let clusters = 1..=gpu.max_cluster().min(max_cluster(problem));
        let channel_tiles = channel_tiles(MergedGroups::for_shape(shape).n, 5 - split_terms);
        let mut found = Vec::new();
        for (th, tw) in tile_shapes(shape.out_h(), shape.out_w(), 512 / split_terms) {
            let pixel_tiles = (th * tw).div_ceil(MMA_N);
            for &(m_tiles, warps_m) in &channel_tiles {
                for warps_p in divisors(pixel_tiles, &[1, 2, 4, 7, 8]) {
                    let sums = m_tiles * pixel_tiles / warps_p * split_terms;
                    if warps_m * warps_p > MAX_WARPS || sums > MAX_SUMS {
                        continue;
                    }
                    found.extend(clusters.clone().map(|cluster| Self {
                        th,
                        tw,
                        m_tiles,
                        warps_m,
                        warps_p,
                        cluster,
                    }));
                }
            }
        }
        found
    }

    /// Its tiles with a split that fit the GPU.
    pub(super) fn tiles(
        self,
        split: Split,
        problem: &ConvProblem,
        gpu: &Gpu,
    ) -> impl Iterator<Item = ImplicitGemmGeometry> {
        let tiles = stages(split.chunks).map(move |stages| ImplicitGemmTile {
            th: self.th,
            tw: self.tw,
            m_tiles: self.m_tiles,
            warps_m: self.warps_m,
            warps_p: self.warps_p,
            warps_k: split.warps_k,
            cluster: self.cluster,
            chunk_groups: split.chunk_groups,
            stages,
        });
        // If a tile does not fit, neither does one with more stages: it needs more shared memory and the same registers.
        tiles
            .map_while(|tile| ImplicitGemmGeometry::new(problem, tile, gpu))
            .take_while(|sizes| sizes.warps() > 1 && !sizes.registers.spills)
    }

    /// The least work of its tiles. `dram_bytes` are those of the problem.
    pub(super) fn totals(self, problem: &ConvProblem, dram_bytes: f64) -> TiledTotals {
        let shape = &problem.shape;
        let step = KStep::for_shape(shape);
        let merged = MergedGroups::for_shape(shape);
        let [groups, filter_rows, filter_columns] = step.counts(
            merged.c.div_ceil(step.channels).div_ceil(self.cluster),
            shape,
        );
        let steps = groups * filter_rows * filter_columns;
        let pixel_tiles = (self.th * self.tw).div_ceil(MMA_N);
        let step_work = StepWork::new(
            problem,
            self.m_tiles,
            pixel_tiles / self.warps_p,
            PROMOTION_INTERVAL,
        );
        let tn = MMA_M * self.m_tiles * self.warps_m;
        let reach = |axis: usize, tile: u32, taps: u32| {
            (tile - 1) * shape.stride[axis] + (taps - 1) * shape.dilation[axis] + 1
        };
        let rows = reach(0, self.th, shape.r);
        let columns = reach(1, self.tw, shape.s);
        // Staged elements of four channels, loaded by the widest vectors.
        let elements = f64::from(groups * step.channels / 4) * f64::from(rows * columns);
        let traffic = InputTraffic::new(problem, [self.th, self.tw], groups * step.channels, 0.0);
        let sums = BlockOutput {
            tile: [self.th, self.tw, tn],
            group_n: merged.n,
            threads: 32 * self.warps_m * self.warps_p,
            cluster: self.cluster,
            k_splits: 1,
            partial_rows: 0,
            partial_pitch: 0,
        };
        let (outputs, _) = sums.outputs(problem);
        let output_warps = self.warps_m * self.warps_p;
        let split_terms = split_terms(problem.precision);
        let weights = f64::from(self.m_tiles * self.warps_m) * f64::from(steps * 128 * split_terms);
        TiledTotals {
            blocks: sums
                .grid(problem)
                .iter()
                .map(|&size| u64::from(size))
                .product(),
            cluster: self.cluster,
            dram_bytes,
            outputs: f64::from(outputs),
            products: products(problem.precision),
            work: TiledWork {
                k_steps: f64::from(steps * output_warps),
                mma_per_step: step_work.products,
                dependent_mma: step_work.dependent_products,
                instructions_per_step: step_work.instructions,
                wavefronts_per_step: step_work.wavefronts,
                positions: elements / 4.0,
                loads_per_position: 4.0,
                values_per_position: 16.0,
                cache_lines: traffic.lines,
                staged_wavefronts: elements * f64::from(split_terms) / 16.0,
                input_bytes: traffic.bytes,
                weight_bytes: 4.0 * weights,
                accumulators: f64::from(4 * self.m_tiles * (pixel_tiles / self.warps_p)),
                sent_bytes: sums.sent_bytes(),
                stored_sectors: sums.stored_sectors(problem),
                residual: problem.epilogue.residual,
                ..TiledWork::default()
            },
        }
    }
}

/// How the sum of a block is split.
#[derive(Clone, Copy)]
pub(super) struct Split {
    /// Channel groups of a chunk.
    pub(super) chunk_groups: u32,
    pub(super) chunks: u32,
    pub(super) warps_k: u32,
}

impl Split {
    /// The splits for each cluster size, from 1.
    pub(super) fn all(problem: &ConvProblem, gpu: &Gpu) -> Vec<Vec<Self>> {
        let step = KStep::for_shape(&problem.shape);
        let all_groups = MergedGroups::for_shape(&problem.shape)
            .c
            .div_ceil(step.channels);
        let of_cluster = |cluster| {
            let mut found = Vec::new();
            for chunk_groups in [1, 2, 3, 4, 5, 6, 8] {
                let Some(chunks) = chunks(all_groups, cluster, chunk_groups) else {
                    continue;
                };
                let counts = step.counts(chunk_groups, &problem.shape);
                for &warps_k in step.warps_k() {
                    if split_steps_over_warps(counts, warps_k).is_some() {
                        found.push(Self {
                            chunk_groups,
                            chunks,
                            warps_k,
                        });
                    }
                }
            }
            found
        };
        (1..=gpu.max_cluster()).map(of_cluster).collect()
    }
}

/// Every tile that fits the GPU, with its rough time.
pub(super) fn rated_tiles(problem: &Problem, gpu: &Gpu) -> Vec<(f64, ImplicitGemmTile)> {
    let Some(problem) = problem.conv() else {
        return Vec::new();
    };
    let rough = RoughTime::new(gpu);
    let dram_bytes = Problem::Conv(*problem).bytes() as f64;
    let groups = TileGroup::all(problem, gpu).into_iter();
    let splits = Split::all(problem, gpu);
    let tiles = groups.flat_map(|group| {
        let splits = splits[group.cluster as usize - 1].iter();
        splits.flat_map(move |&split| group.tiles(split, problem, gpu))
    });
    tiles
        .map(|sizes| (rough.of(&sizes.work(problem, dram_bytes)), sizes.tile))
        .collect()
}

/// Heights and widths of output tiles of at most `most` pixels that waste few of them: entire rows, halves of rows, and small
/// rectangles.
pub(in crate::scheme) fn tile_shapes(out_h: u32, out_w: u32, most: u32) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    for tw in [4, 7, 8, 14, 16, 28, 32, 56] {
        if tw > out_w.next_multiple_of(8).max(8) {
            continue;
        }
        for th in [1, 2, 3, 4, 7, 8, 14, 16] {
            let pixels = th * tw;
            if th > out_h || !(4..=most).contains(&pixels) {
                continue;
            }
            let computed = u64::from(out_h.div_ceil(th))
                * u64::from(out_w.div_ceil(tw))
                * u64::from(pixels.next_multiple_of(MMA_N));
            found.push((computed, (th, tw)));
        }
    }
    let least = found
        .iter()
        .map(|&(computed, _)| computed)
        .min()
        .unwrap_or(0);
    found
        .into_iter()
        .filter(|&(computed, _)| computed * 10 <= least * 16)
        .map(|(_, tile)| tile)
        .collect()
}
