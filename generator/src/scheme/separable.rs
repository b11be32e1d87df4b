//! `separable`: a depthwise convolution and the 1x1 convolution that follows, in one launch on the fp32 lanes.
//!
//! A block computes the depthwise convolution of a tile of pixels for its channels, keeps it in shared memory, and multiplies it by
//! weights. The blocks of a cluster share the channels and add their sums.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, activation_function,
    batch_stride_args, context, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Problem, SeparableProblem};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, LayoutDim, WeightFile, WeightLayout};

/// See the [module](self).
pub struct Separable;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct SeparableTile {
        /// Output rows of a block.
        th: "h",
        /// Output columns of a block.
        tw: "w",
        /// Output channels of a block.
        tn: "n",
        /// Output channels of a thread.
        rn: "rn",
        /// Columns of a strip of the depthwise convolution, which a thread computes at a time.
        rw: "rw",
        /// Threads that share the channels of a block.
        threads_k: "xk",
        /// Blocks of a cluster, which share the input channels.
        cluster: "cl",
    }
}

/// Pixels of a thread: a vector of four.
const RP: u32 = 4;
/// Shared memory of a block at most, so that an SM holds two.
const MAX_SHARED_BYTES: u32 = 96 * 1024;
/// Greatest number of a tile.
const MAX_NUMBER: u32 = 64;

#[derive(Serialize)]
struct SeparableContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    r: u32,
    s: u32,
    stride_h: u32,
    stride_w: u32,
    dilation_h: u32,
    dilation_w: u32,
    pad_top: u32,
    pad_left: u32,
    th: u32,
    tw: u32,
    tn: u32,
    rn: u32,
    rp: u32,
    rw: u32,
    threads_k: u32,
    cluster: u32,
    /// Channels of a block.
    block_c: u32,
    blocks_n: u32,
    tiles_w: u32,
    /// Columns of the input that a strip reads.
    columns: u32,
    /// Packed numbers of a channel's filter.
    filter: u32,
    padded_n: u32,
    /// Offset of the 1x1 convolution's weight in the packed weights, in floats.
    pointwise_at: u64,
    /// Offset of the staged weights in shared memory, in floats.
    weights_at: u32,
    checks_channel: bool,
    checks_n: bool,
    between_bias: bool,
    between: Option<String>,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    batched: bool,
}

impl SeparableTile {
    fn pixels(&self) -> u32 {
        self.th * self.tw
    }

    fn threads(&self) -> u32 {
        self.tn / self.rn * (self.pixels() / RP) * self.threads_k
    }

    /// Channels of a block.
    fn block_c(&self, p: &SeparableProblem) -> u32 {
        p.depthwise.c.div_ceil(self.cluster)
    }

    /// Floats of shared memory: depthwise outputs and weights, then partial sums in their place.
    fn shared_floats(&self, p: &SeparableProblem) -> u32 {
        let staged = self.block_c(p).saturating_mul(self.pixels() + self.tn);
        staged.max(self.threads_k * self.tn * self.pixels())
    }

    /// Whether the numbers fit each other, the problem and the GPU.
    fn is_valid(&self, p: &SeparableProblem, gpu: &Gpu) -> bool {
        let Self {
            tw,
            tn,
            rn,
            rw,
            threads_k,
            cluster,
            ..
        } = *self;
        let divides =
            tn.is_multiple_of(rn) && self.pixels().is_multiple_of(RP) && tw.is_multiple_of(rw);
        if !divides || cluster > gpu.max_cluster() {
            return false;
        }
        let threads = self.threads();
        let is_block = threads.is_multiple_of(32) && (64..=512).contains(&threads);
        let has_work = (cluster - 1) * self.block_c(p) < p.depthwise.c
            && threads_k <= self.block_c(p)
            && tn < p.n + 16;
        is_block
            && has_work
            && self.shared_floats(p) <= gpu.shared_per_block.min(MAX_SHARED_BYTES) / 4
    }

    fn blocks_n(&self, p: &SeparableProblem) -> u32 {
        p.n.div_ceil(self.tn)
    }

    /// Tiles along rows and columns.
    fn tiles(&self, p: &SeparableProblem) -> [u32; 2] {
        let shape = &p.depthwise;
        [
            shape.out_h().div_ceil(self.th),
            shape.out_w().div_ceil(self.tw),
        ]
    }

    fn grid(&self, p: &SeparableProblem) -> [u32; 3] {
        let [tiles_h, tiles_w] = self.tiles(p);
        let n = self.blocks_n(p) * p.depthwise.batch;
        [tiles_h * tiles_w, n, self.cluster]
    }

    /// Columns of the input that a strip reads.
    fn columns(&self, p: &SeparableProblem) -> u32 {
        let shape = &p.depthwise;
        (self.rw - 1) * shape.stride[1] + (shape.s - 1) * shape.dilation[1] + 1
    }

    /// The layouts of the weights: filters with their biases, and the 1x1 convolution's with output channels innermost.
    fn layouts(&self, p: &SeparableProblem) -> [WeightLayout; 2] {
        let (c, padded_n) = (p.depthwise.c, self.blocks_n(p) * self.tn);
        let dim = |axis, count| LayoutDim {
            axis,
            count,
            step: 1,
        };
        let pointwise = WeightLayout {
            dims: vec![dim(Axis::I, c), dim(Axis::O, padded_n)].into(),
            ..WeightLayout::oihw([p.n, c, 1, 1])
        };
        [WeightLayout::oihw([c, 1, 1, p.filter_len()]), pointwise]
    }

    fn context(&self, p: &SeparableProblem) -> SeparableContext {
        let shape = &p.depthwise;
        let [filters, _] = self.layouts(p);
        let alignment = WeightFile::ALIGNMENT / 4;
        let block_c = self.block_c(p);
        SeparableContext {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            n: p.n,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            r: shape.r,
            s: shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            th: self.th,
            tw: self.tw,
            tn: self.tn,
            rn: self.rn,
            rp: RP,
            rw: self.rw,
            threads_k: self.threads_k,
            cluster: self.cluster,
            block_c,
            blocks_n: self.blocks_n(p),
            tiles_w: self.tiles(p)[1],
            columns: self.columns(p),
            filter: p.filter_len(),
            padded_n: self.blocks_n(p) * self.tn,
            pointwise_at: (filters.len() as u64).next_multiple_of(alignment),
            weights_at: block_c * self.pixels(),
            checks_channel: block_c * self.cluster != shape.c,
            checks_n: !p.n.is_multiple_of(self.tn),
            between_bias: p.between.bias,
            between: activation_function(p.between.activation),
            bias: p.epilogue.bias,
            residual: p.epilogue.residual,
            activation: activation_function(p.epilogue.activation),
            batched: shape.batch > 1,
        }
    }

    fn work(&self, p: &SeparableProblem) -> KernelWork {
        let shape = &p.depthwise;
        let threads = self.threads();
        let blocks: u64 = self.grid(p).map(u64::from).iter().product();
        let [block_c, pixels, tn, rn, rw, threads_k] = [
            self.block_c(p),
            self.pixels(),
            self.tn,
            self.rn,
            self.rw,
            self.threads_k,
        ]
        .map(f64::from);
        let (r, columns) = (f64::from(shape.r), f64::from(self.columns(p)));
        let taps = f64::from(shape.r * shape.s);
        // Instructions of a warp: for a strip two for each load, one for each product; for a channel's products the loads and multiply-adds.
        let strip = 40.0 + 2.5 * r * columns + taps * (rw + 1.0);
        let strips = (block_c * pixels / rw / f64::from(threads)).ceil();
        let channels = (block_c / threads_k).ceil();
        let products = channels * (4.0 * rn + rn + 3.0);
        let outputs = (tn * pixels / f64::from(threads * self.cluster)).ceil();
        let parts = threads_k * f64::from(self.cluster);
        let reduction = outputs * (20.0 + 4.0 * parts);
        let warps = f64::from(threads) / 32.0;
        let instructions = (strips * strip + products + reduction) * warps;
        // The tile of the input with its border.
        let rows_in = f64::from((self.th - 1) * shape.stride[0]) + r;
        let columns_in = f64::from((self.tw - 1) * shape.stride[1]) + f64::from(shape.s);
        let floats = block_c * (rows_in * columns_in + tn + taps) + tn * pixels;
        KernelWork {
            blocks,
            threads,
            registers: 40 + 4 * self.rn + self.rw + self.columns(p),
            shared_bytes: 4 * self.shared_floats(p),
            // As multiply-adds: an instruction of a warp is 64 operations.
            flops: 64.0 * instructions * blocks as f64,
            fma_fraction: 0.7,
            l2_bytes: 4.0 * floats * blocks as f64,
            dram_bytes: Problem::Separable(*p).bytes() as f64,
            l2_round_trips: 2.0,
            // Dependent loads of a strip, of a channel, of a sum.
            latency_clocks: 300.0 + 80.0 * strips + 8.0 * channels + 40.0 * outputs,
            cluster: self.cluster,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

/// Whether kernels can index all tensors.
fn is_small(p: &SeparableProblem) -> bool {
    let problem = Problem::Separable(*p);
    let padded = u64::from(p.depthwise.c) * u64::from(p.n + 64);
    [problem.x().len(), problem.y().len(), padded]
        .iter()
        .all(|&len| len <= MAX_ELEMENTS)
}

impl Scheme for Separable {
    fn name(&self) -> &'static str {
        "separable"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("a depthwise convolution followed by a 1x1 convolution")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        SeparableTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, gpu: &Gpu) -> Vec<Tile> {
        let Problem::Separable(p) = problem else {
            return Vec::new();
        };
        if !is_small(p) {
            return Vec::new();
        }
        let mut tiles = Vec::new();
        for (th, tw) in [
            (2, 8),
            (4, 8),
            (8, 8),
            (2, 16),
            (4, 16),
            (2, 14),
            (4, 14),
            (7, 8),
            (1, 28),
            (2, 28),
            (1, 56),
        ] {
            for tn in [8, 16, 24, 32, 48, 64] {
                for rn in [1, 2, 4, 8] {
                    for rw in [2, 4] {
                        for threads_k in [1, 2, 4, 8] {
                            for cluster in [1, 2, 4, 8] {
                                let tile = SeparableTile {
                                    th,
                                    tw,
                                    tn,
                                    rn,
                                    rw,
                                    threads_k,
                                    cluster,
                                };
                                if tile.is_valid(p, gpu) {
                                    tiles.push(tile.into());
                                }
                            }
                        }
                    }
                }
            }
        }
        tiles
    }

    fn supports(&self, problem: &Problem, tile: &Tile, gpu: &Gpu) -> bool {
        let Problem::Separable(p) = problem else {
            return false;
        };
        let Some(tile) = SeparableTile::from_tile(tile) else {
            return false;
        };
        let numbers = tile.numbers();
        is_small(p)
            && numbers
                .iter()
                .all(|number| (1..=MAX_NUMBER).contains(number))
            && tile.is_valid(p, gpu)
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::Separable(p) = problem else {
            unreachable!("separable has tiles for separable convolutions only");
        };
        let tile = SeparableTile::from_tile(tile).expect("a supported tile");
        let mut args = vec![Arg::X, Arg::Packed];
        args.extend(p.epilogue.bias.then_some(Arg::Bias));
        args.extend(p.epilogue.residual.then_some(Arg::Residual));
        args.push(Arg::Y);
        args.extend(batch_stride_args(p.depthwise.batch, p.epilogue.residual));
        let device: &[DevicePart] = match tile.cluster {
            1 => &[DevicePart::DynamicShared, DevicePart::Pdl],
            _ => &[
                DevicePart::DynamicShared,
                DevicePart::Cluster,
                DevicePart::Pdl,
            ],
        };
        let [filters, pointwise] = tile.layouts(p);
        Blueprint {
            kernels: vec![KernelBlueprint {
                role: "kernel",
                template: "kernel/separable.cu",
                context: context(&tile.context(p)),
                grid: tile.grid(p),
                block: [tile.threads(), 1, 1],
                cluster: [1, 1, tile.cluster],
                shared_bytes: 4 * tile.shared_floats(p),
                pdl: true,
                device,
                args,
                work: tile.work(p),
            }],
            zeroed: None,
            workspace_bytes: 0,
            weights: filters,
            extra_weight_layouts: vec![pointwise],
        }
    }
}
