//! `squeeze_excite`: squeeze-and-excite in two launches.
//!
//! A block of the first launch averages some channels and multiplies their averages by their columns of the first layer's weight: partial
//! sums of all squeezed features. A block of the second launch adds these in a fixed order, computes the factors of some channels, and
//! multiplies their elements. So both layers' weights are read once, by all SMs, and before the launch waits for its predecessor.

use super::info::SchemeInfo;
use super::{
    Blueprint, DevicePart, KernelBlueprint, Scheme, Tile, TileField, activation_function,
    batch_stride_args, context, packed_offsets, tile_numbers,
};
use crate::cost::KernelWork;
use crate::gpu::Gpu;
use crate::ir::{MAX_ELEMENTS, Problem, SqueezeExciteProblem, is_transcendental};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, LayoutDim, WeightLayout};

/// See the [module](self).
pub struct SqueezeExcite;

tile_numbers! {
    /// A tile of the [module](self)'s scheme.
    struct SqueezeExciteTile {
        /// Warps of a block, in both launches.
        warps: "wt",
        /// Channels of a block of the first launch.
        tc: "c",
        /// Channels of a block of the second launch.
        tn: "n",
        /// Slices of a channel's pixels in the second launch, each for a separate block.
        slices: "sl",
    }
}

/// Weights that a thread keeps in registers, in the first and in the second launch.
const MAX_WEIGHTS: [u32; 2] = [64, 32];
/// Threads that share the partial sums of a squeezed feature, at most.
const MAX_SHARES: u32 = 8;
/// Elements that a thread keeps in registers.
const MAX_ELEMENTS_OF_THREAD: u32 = 16;

#[derive(Serialize)]
struct SqueezeContext {
    c: u32,
    pixels: u64,
    squeezed: u32,
    tc: u32,
    /// Blocks of an image.
    groups: u32,
    warps_per_channel: u32,
    channels_per_warp: u32,
    /// Squeezed features of a thread.
    features: u32,
    checks_channel: bool,
    checks_feature: bool,
    batched: bool,
}

#[derive(Serialize)]
struct ExciteContext {
    c: u32,
    pixels: u64,
    squeezed: u32,
    tn: u32,
    slices: u32,
    /// Pixels of a slice.
    slice: u32,
    /// Partial sums of a squeezed feature.
    groups: u32,
    /// Threads that share the partial sums of a squeezed feature.
    shares: u32,
    /// Blocks that share the channels of an image.
    blocks_c: u32,
    channels_per_warp: u32,
    features_per_lane: u32,
    /// Elements of a thread.
    elements: u32,
    /// Offsets in the packed weights, in floats.
    excite_at: usize,
    squeeze_bias_at: usize,
    checks_channel: bool,
    checks_slice: bool,
    checks_lane: bool,
    /// Whether there are more warps than channels.
    idle_warps: bool,
    /// Whether a warp may have a channel that the block or the tensor does not have.
    checks_gate: bool,
    squeeze_bias: bool,
    squeeze_activation: Option<String>,
    bias: bool,
    excite_activation: Option<String>,
    after: Option<String>,
    batched: bool,
}

impl SqueezeExciteTile {
    /// Whether the numbers of registers are limited, and no block is empty.
    fn is_valid(&self, p: &SqueezeExciteProblem) -> bool {
        let threads = 32 * self.warps;
        let Ok(pixels) = u32::try_from(p.x.pixels()) else {
            return false;
        };
        let Some(elements) = self.tn.checked_mul(pixels.div_ceil(self.slices)) else {
            return false;
        };
        let slice = pixels.div_ceil(self.slices);
        let padded = u64::from(self.tc) * u64::from(p.squeezed);
        p.squeezed.div_ceil(threads) * self.tc <= MAX_WEIGHTS[0]
            && self.excite_channels_per_warp() * p.squeezed.div_ceil(32) <= MAX_WEIGHTS[1]
            && elements.div_ceil(threads) <= MAX_ELEMENTS_OF_THREAD
            && (self.slices == 1 || self.tn == 1 && (self.slices - 1) * slice < pixels)
            && self.workspace_len(p) <= MAX_ELEMENTS
            && u64::from(p.x.c) * u64::from(p.squeezed) + padded <= MAX_ELEMENTS
    }

    fn groups(&self, p: &SqueezeExciteProblem) -> u32 {
        p.x.c.div_ceil(self.tc)
    }

    /// Threads of the second launch that share the partial sums of a squeezed feature.
    fn shares(&self, p: &SqueezeExciteProblem) -> u32 {
        let shares = 32 * self.warps / p.squeezed;
        shares.clamp(1, MAX_SHARES).min(self.groups(p))
    }

    /// L2 round trips of the sums of a squeezed feature: a thread has the loads of eight partial sums in flight, and those that are left over
    /// one after the other.
    fn partial_sum_round_trips(&self, p: &SqueezeExciteProblem) -> u32 {
        let (groups, shares) = (self.groups(p), self.shares(p));
        let round_trips = |partial_sums: u32| partial_sums / 8 + partial_sums % 8;
        round_trips(groups.div_ceil(shares)).max(round_trips(groups / shares))
    }

    fn excite_channels_per_warp(&self) -> u32 {
        (self.tn / self.warps).max(1)
    }

    /// Floats of the partial sums of all images.
    fn workspace_len(&self, p: &SqueezeExciteProblem) -> u64 {
        u64::from(p.x.batch) * u64::from(self.groups(p)) * u64::from(p.squeezed)
    }

    /// The layouts of the weights: columns of the first layer, rows of the second, and the first layer's bias.
    fn layouts(&self, p: &SqueezeExciteProblem) -> Vec<WeightLayout> {
        let (c, squeezed) = (p.x.c, p.squeezed);
        let dim = |axis, count| LayoutDim {
            axis,
            count,
            step: 1,
        };
        let columns = WeightLayout {
            dims: vec![
                dim(Axis::I, self.groups(p) * self.tc),
                dim(Axis::O, squeezed),
            ]
            .into(),
            ..WeightLayout::oihw([squeezed, c, 1, 1])
        };
        let mut layouts = vec![columns, WeightLayout::oihw([c, squeezed, 1, 1])];
        let bias = WeightLayout::oihw([squeezed, 1, 1, 1]);
        layouts.extend(p.squeeze.bias.then_some(bias));
        layouts
    }

    fn squeeze(&self, p: &SqueezeExciteProblem) -> KernelBlueprint {
        let threads = 32 * self.warps;
        let features = p.squeezed.div_ceil(threads);
        let mut args = vec![Arg::X, Arg::Packed, Arg::Workspace { offset: 0 }];
        args.extend((p.x.batch > 1).then_some(Arg::XBatchStride));
        KernelBlueprint {
            role: "squeeze",
            template: "kernel/squeeze.cu",
            context: context(&SqueezeContext {
                c: p.x.c,
                pixels: p.x.pixels(),
                squeezed: p.squeezed,
                tc: self.tc,
                groups: self.groups(p),
                warps_per_channel: (self.warps / self.tc).max(1),
                channels_per_warp: (self.tc / self.warps).max(1),
                features,
                checks_channel: !p.x.c.is_multiple_of(self.tc),
                checks_feature: !p.squeezed.is_multiple_of(threads),
                batched: p.x.batch > 1,
            }),
            grid: [p.x.batch * self.groups(p), 1, 1],
            block: [32, self.warps, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            pdl: true,
            device: &[DevicePart::Pdl],
            args,
            work: self.squeeze_work(p),
        }
    }

    fn excite(&self, p: &SqueezeExciteProblem) -> KernelBlueprint {
        let pixels = p.x.pixels() as u32;
        let slice = pixels.div_ceil(self.slices);
        let checks_channel = !p.x.c.is_multiple_of(self.tn);
        let idle_warps = self.tn < self.warps;
        let blocks_c = p.x.c.div_ceil(self.tn);
        let offsets = packed_offsets(&self.layouts(p));
        let mut args = vec![Arg::X, Arg::Packed];
        args.extend(p.excite.bias.then_some(Arg::Bias));
        args.extend([Arg::Workspace { offset: 0 }, Arg::Y]);
        args.extend(batch_stride_args(p.x.batch, false));
        KernelBlueprint {
            role: "excite",
            template: "kernel/excite.cu",
            context: context(&ExciteContext {
                c: p.x.c,
                pixels: p.x.pixels(),
                squeezed: p.squeezed,
                tn: self.tn,
                slices: self.slices,
                slice,
                groups: self.groups(p),
                shares: self.shares(p),
                blocks_c,
                channels_per_warp: self.excite_channels_per_warp(),
                features_per_lane: p.squeezed.div_ceil(32),
                elements: self.elements(p),
                excite_at: offsets[1],
                squeeze_bias_at: offsets.get(2).copied().unwrap_or_default(),
                checks_channel,
                checks_slice: !pixels.is_multiple_of(self.slices),
                checks_lane: !p.squeezed.is_multiple_of(32),
                idle_warps,
                checks_gate: checks_channel || idle_warps,
                squeeze_bias: p.squeeze.bias,
                squeeze_activation: activation_function(p.squeeze.activation),
                bias: p.excite.bias,
                excite_activation: activation_function(p.excite.activation),
                after: activation_function(p.after),
                batched: p.x.batch > 1,
            }),
            grid: [p.x.batch * blocks_c, self.slices, 1],
            block: [32, self.warps, 1],
            cluster: [1; 3],
            shared_bytes: 0,
            pdl: true,
            device: &[DevicePart::Pdl],
            args,
            work: self.excite_work(p),
        }
    }

    /// Elements of a thread of the second launch.
    fn elements(&self, p: &SqueezeExciteProblem) -> u32 {
        let slice = (p.x.pixels() as u32).div_ceil(self.slices);
        (self.tn * slice).div_ceil(32 * self.warps)
    }

    /// The work of the first launch. The constants of both launches were fitted on an H200: those that multiply loads, weights and elements to 176
    /// tiles of 16 problems, the others to the 24 layers of MobileNet-v3-large and EfficientNet-B0. Only sums of two launches were measured, so
    /// both have the same constant part.
    fn squeeze_work(&self, p: &SqueezeExciteProblem) -> KernelWork {
        let [pixels, squeezed, warps, tc] = [
            p.x.pixels() as f64,
            f64::from(p.squeezed),
            f64::from(self.warps),
            f64::from(self.tc),
        ];
        let blocks = u64::from(p.x.batch) * u64::from(self.groups(p));
        let weights = tc * squeezed;
        let floats = tc * pixels + weights + squeezed;
        // Loads of a lane.
        let loads = (pixels * tc / warps / 32.0).max(pixels / warps / 32.0);
        KernelWork {
            blocks,
            threads: 32 * self.warps,
            registers: 32 + self.tc * p.squeezed.div_ceil(32 * self.warps),
            shared_bytes: 4 * self.tc.max(self.warps),
            flops: blocks as f64 * (tc * pixels + 2.0 * weights),
            fma_fraction: 0.1,
            l2_bytes: 4.0 * floats * blocks as f64,
            dram_bytes: 4.0 * floats * blocks as f64,
            l2_round_trips: 4.6 + loads / 40.0,
            pdl: true,
            ..KernelWork::default()
        }
    }

    fn excite_work(&self, p: &SqueezeExciteProblem) -> KernelWork {
        let [squeezed, groups, tn] = [p.squeezed, self.groups(p), self.tn].map(f64::from);
        let threads = 32 * self.warps;
        let elements = f64::from(self.elements(p));
        let blocks =
            u64::from(p.x.batch) * u64::from(p.x.c.div_ceil(self.tn)) * u64::from(self.slices);
        let len = p.x.len() as f64;
        let floats = blocks as f64 * squeezed * (groups + tn) + 2.0 * len;
        let steps = f64::from(p.squeezed.div_ceil(threads) * self.partial_sum_round_trips(p));
        let activations = [p.squeeze.activation, p.excite.activation];
        let slow_activations = activations.into_iter().filter(|&a| is_transcendental(a));
        let weights = f64::from(self.excite_channels_per_warp() * p.squeezed.div_ceil(32));
        KernelWork {
            blocks,
            threads,
            registers: 32
                + self.excite_channels_per_warp() * p.squeezed.div_ceil(32)
                + self.elements(p),
            shared_bytes: 4 * (p.squeezed * (1 + self.shares(p)) + self.tn),
            flops: blocks as f64 * squeezed * (groups + 2.0 * tn) + len,
            fma_fraction: 0.1,
            l2_bytes: 4.0 * floats,
            dram_bytes: 8.0 * len,
            l2_round_trips: 4.6
                + 2.05 * steps
                + 0.3 * weights
                + 0.4 * elements
                + 1.4 * slow_activations.count() as f64,
            pdl: true,
            ..KernelWork::default()
        }
    }
}

impl Scheme for SqueezeExcite {
    fn name(&self) -> &'static str {
        "squeeze_excite"
    }

    fn info(&self) -> SchemeInfo {
        SchemeInfo::own("squeeze-and-excite")
    }

    fn tile_fields(&self) -> &'static [TileField] {
        SqueezeExciteTile::FIELDS
    }

    fn tiles(&self, problem: &Problem, _gpu: &Gpu) -> Vec<Tile> {
        let Problem::SqueezeExcite(p) = problem else {
            return Vec::new();
        };
        const CHANNELS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
        const SLICES: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
        let tiles = [4, 8, 16].into_iter().flat_map(|warps| {
            CHANNELS.into_iter().flat_map(move |tc| {
                let channels = CHANNELS.map(|tn| (tn, 1)).into_iter();
                let slices = SLICES[1..].iter().map(|&slices| (1, slices));
                channels
                    .chain(slices)
                    .map(move |(tn, slices)| SqueezeExciteTile {
                        warps,
                        tc,
                        tn,
                        slices,
                    })
            })
        });
        let valid = tiles.filter(|tile| tile.is_valid(p));
        valid.map(Tile::from).collect()
    }

    fn blueprint(&self, problem: &Problem, tile: &Tile, _gpu: &Gpu) -> Blueprint {
        let Problem::SqueezeExcite(p) = problem else {
            unreachable!("squeeze_excite has tiles for squeeze-and-excite only");
        };
        let tile = SqueezeExciteTile::from_tile(tile).expect("a supported tile");
        Blueprint {
            workspace_bytes: 4 * tile.workspace_len(p),
            ..Blueprint::new(vec![tile.squeeze(p), tile.excite(p)], tile.layouts(p))
        }
    }
}
