//! `linear`: a fully connected layer. Warps share the input features of an output feature, and keep its sums for several images, so that
//! weights, which are most of the traffic, are read once for all of these images.
//!
//! The lanes of a warp add their partial sums by a butterfly of shuffles, and the warps theirs in shared memory, both in a fixed order. The
//! first weights are prefetched into L2 before the input is waited for.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, activation_function,
    batch_stride_args, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{LinearProblem, MAX_ELEMENTS, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, LayoutDim, WeightLayout};

/// See the [module](self).
pub struct Linear;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct LinearTile {
        /// Output features of a block.
        tn: "n",
        /// Warps that share the input features of an output feature.
        warps_k: "wk",
        /// Images whose sums a warp keeps.
        tb: "b",
    }
}

/// Input features of a chunk: four for each lane.
const CHUNK: u32 = 128;
/// Warps of a block.
const MAX_WARPS: u32 = 16;

#[derive(Serialize)]
struct LinearContext {
    c: u32,
    n: u32,
    batch: u32,
    tn: u32,
    warps_k: u32,
    tb: u32,
    image_groups: u32,
    /// Whether the lanes read four weights at once.
    vector: bool,
    chunks: u32,
    /// Chunks of a warp.
    chunks_k: u32,
    batched: bool,
    checks_c: bool,
    checks_n: bool,
    checks_image: bool,
    bias: bool,
    activation: Option<String>,
}

/// The packed weights: rows of whole chunks whose lanes have four adjacent weights, or rows as they are for few input features.
fn layout(p: &LinearProblem) -> WeightLayout {
    let source = [p.n, p.c, 1, 1];
    if !is_vector(p) {
        return WeightLayout::oihw(source);
    }
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        dims: vec![
            dim(Axis::O, p.n, 1),
            dim(Axis::I, p.c.div_ceil(CHUNK), CHUNK),
            dim(Axis::I, 32, 1),
            dim(Axis::I, 4, 32),
        ]
        .into(),
        ..WeightLayout::oihw(source)
    }
}

/// Whether rows are long enough to be padded to whole chunks.
fn is_vector(p: &LinearProblem) -> bool {
    let padded = u64::from(p.n) * u64::from(p.c.next_multiple_of(CHUNK));
    p.c >= CHUNK && padded <= MAX_ELEMENTS
}

impl Scheme for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("fully connected layers")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        LinearTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Problem::Linear(p) = problem else {
            return Vec::new();
        };
        if u64::from(p.batch) * u64::from(p.n) > MAX_ELEMENTS {
            return Vec::new();
        }
        let splits = match is_vector(p) {
            true => p.c.div_ceil(CHUNK),
            false => 1,
        };
        let powers = |most: u32| [1, 2, 4, 8, 16].into_iter().filter(move |&i| i <= most);
        let tiles = powers(8.min(p.batch.next_power_of_two())).flat_map(|tb| {
            powers(MAX_WARPS.min(splits)).flat_map(move |warps_k| {
                powers(MAX_WARPS / warps_k).map(move |tn| LinearTile { tn, warps_k, tb }.into())
            })
        });
        tiles.collect()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Linear(p) = problem else {
            unreachable!("linear has tiles for linear layers only");
        };
        let tile = LinearTile::from_tile(tile).expect("a supported tile");
        let LinearTile { tn, warps_k, tb } = tile;
        let image_groups = p.batch.div_ceil(tb);
        let chunks = p.c.div_ceil(CHUNK);
        let mut args = vec![Arg::X, Arg::Packed];
        args.extend(p.epilogue.bias.then_some(Arg::Bias));
        args.push(Arg::Y);
        args.extend(batch_stride_args(p.batch, false));
        let device: &[DevicePart] = match is_vector(p) {
            true => &[DevicePart::Prefetch, DevicePart::Pdl],
            false => &[DevicePart::Pdl],
        };
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/linear.cu",
                context: context(&LinearContext {
                    c: p.c,
                    n: p.n,
                    batch: p.batch,
                    tn,
                    warps_k,
                    tb,
                    image_groups,
                    vector: is_vector(p),
                    chunks,
                    chunks_k: chunks.div_ceil(warps_k),
                    batched: p.batch > 1,
                    checks_c: !p.c.is_multiple_of(CHUNK),
                    checks_n: !p.n.is_multiple_of(tn),
                    checks_image: !p.batch.is_multiple_of(tb),
                    bias: p.epilogue.bias,
                    activation: activation_function(p.epilogue.activation),
                }),
                grid: [p.n.div_ceil(tn) * image_groups, 1, 1],
                block: [32, tn * warps_k, 1],
                cluster: [1; 3],
                shared_bytes: 0,
                pdl: true,
                device,
                args,
                work: work(problem, p, tile),
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: layout(p),
            extra_weight_layouts: Vec::new(),
        }
    }
}

/// The work, whose constants were fitted to 564 tiles of 20 layers, batches 1 and 32, on an H200: the chosen tile takes 1.03 and 1.14 times
/// as long as the fastest in the geometric mean.
fn work(problem: &Problem, p: &LinearProblem, tile: LinearTile) -> KernelWork {
    let LinearTile { tn, warps_k, tb } = tile;
    let [rows, images] = [tn, tb].map(f64::from);
    let blocks = u64::from(p.n.div_ceil(tn)) * u64::from(p.batch.div_ceil(tb));
    // A block reads its rows of weights and its images, of which a quarter of what further rows read has left L1.
    let floats = f64::from(p.c) * (rows + images * (1.0 + 0.25 * (rows - 1.0)));
    let steps = match is_vector(p) {
        true => p.c.div_ceil(CHUNK).div_ceil(warps_k),
        false => p.c.div_ceil(32),
    };
    KernelWork {
        blocks,
        threads: 32 * tn * warps_k,
        registers: 40 + 4 * tb,
        shared_bytes: match warps_k {
            1 => 0,
            _ => 4 * tn * warps_k * tb,
        },
        flops: problem.flops() as f64,
        // A chunk takes four wavefronts of L1 for its weights and four for each image, and four multiply-adds for each image.
        fma_fraction: images / (4.0 * (1.0 + images)),
        l2_bytes: 4.0 * floats * blocks as f64,
        dram_bytes: problem.bytes() as f64,
        // A warp has the loads of about four steps in flight.
        l2_round_trips: 1.0 + f64::from(steps) * (6.0 + images) / 28.0,
        pdl: true,
        ..KernelWork::default()
    }
}
