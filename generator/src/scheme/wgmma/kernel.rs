//! The kernel: its weight layout, and the context of its template.

use super::WGMMA_M;
use super::geometry::{INPUT_STAGES, PLANE_CHANNELS, WgmmaGeometry, crosses_images, image_rows};
use super::sum::SumContext;
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Precision, Problem};
use crate::scheme::convolution::{self, FusedOpsContext};
use crate::scheme::stored_pairs::StoredPairs;
use crate::scheme::tensor_core::{
    MMA_K, PartialSum, scales_input, split_terms, to_pair, truncated, weight_transform,
};
use crate::scheme::{DevicePart, KernelBlueprint, context, without_nhwc_strides};
use serde::Serialize;
use tdc_runtime::{Axis, Filter, LayoutDim, WeightLayout};

#[derive(Serialize)]
struct WgmmaContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    batch: u32,
    out_h: u32,
    out_w: u32,
    filter_h: u32,
    filter_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    dilation_h: u32,
    dilation_w: u32,
    th: u32,
    tw: u32,
    tn: u32,
    wgmma_n: u32,
    slices: u32,
    consumer_warps: u32,
    loader_warps: u32,
    blocks_per_sm: u32,
    /// Registers are moved from the loaders to the consumers.
    moves_registers: bool,
    consumer_registers: u32,
    loader_registers: u32,
    #[serde(flatten)]
    sum: SumContext,
    #[serde(flatten)]
    input: InputContext,
    tiles: u32,
    tiles_w: u32,
    tile_step: u32,
    /// Offsets in shared memory, in floats.
    input_at: u32,
    input_scales_at: u32,
    warp_max_at: u32,
    exchange_at: u32,
    prologue_at: u32,
    /// Channels with scale and shift, those of complete chunks.
    prologue_channels: u32,
    exchange_channels: u32,
    exchange_pitch: u32,
    epilogue_at: u32,
    barriers_at: u32,
    /// Output and residual are fp16 NHWC.
    writes_nhwc: bool,
    /// Runs from one pixel of an output in NHWC to the next.
    y_pixel_runs: u32,
    #[serde(flatten)]
    pairs: StoredPairs,
    hi_lo: bool,
    bf16: bool,
    split_terms: u32,
    /// Function of the device header that converts a pair of values to 16 bits each.
    to_pair: &'static str,
    /// The weights are scaled, and sums are multiplied by the dequantisation scale.
    scaled: bool,
    /// The input is scaled as well.
    scales_input: bool,
    dequant_scale_at: usize,
    checks_pixel: bool,
    checks_n: bool,
    /// The condition under which a pixel of the tile is outside of the output; empty if none is.
    outside: String,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// The staged input.
#[derive(Serialize)]
struct InputContext {
    input_stages: u32,
    load_stages: u32,
    /// Planes of eight channels of a chunk; pixels of a plane and of its rows.
    planes: u32,
    plane: u32,
    row_len: u32,
    /// Items of a loader thread: pixels in planes of eight channels.
    items: u32,
    checks_items: bool,
    checks_c: bool,
    /// Rows or columns between those that strides reach are staged, because other filter taps read them.
    stages_all_rows: bool,
    stages_all_columns: bool,
    /// They are not.
    skips_rows: bool,
    skips_columns: bool,
    /// Staged rows of an image with its padding.
    image_rows: u32,
    crosses_images: bool,
}

/// `[O/TN][I/chunk][chunk/16][R][S]` of K steps, each `[2][TN][8]` of the tile's output channels with runs of eight input channels, in
/// 16-bit numbers. The weights of a stage are contiguous.
///
/// For tiles of `tn` output channels and chunks of `chunk_groups` groups of channels.
pub(super) fn layout(problem: &ConvProblem, tn: u32, chunk_groups: u32) -> WeightLayout {
    let shape = &problem.shape;
    let dim = |axis, count, step| LayoutDim { axis, count, step };
    WeightLayout {
        source: shape.weight(),
        dims: vec![
            dim(Axis::O, shape.n.div_ceil(tn), tn),
            dim(
                Axis::I,
                shape.c.div_ceil(MMA_K) / chunk_groups,
                chunk_groups * MMA_K,
            ),
            dim(Axis::I, chunk_groups, MMA_K),
            dim(Axis::R, shape.r, 1),
            dim(Axis::S, shape.s, 1),
            dim(Axis::I, MMA_K / PLANE_CHANNELS, PLANE_CHANNELS),
            dim(Axis::O, tn, 1),
            dim(Axis::I, PLANE_CHANNELS, 1),
        ]
        .into(),
        filter: Filter::Taps,
        transform: weight_transform(problem.precision, tn * MMA_K),
        prologue_channels: Problem::Conv(*problem).scale_shift_channels(),
    }
}

pub(super) fn kernel(
    problem: &ConvProblem,
    sizes: &WgmmaGeometry,
    layout: &WeightLayout,
    gpu: &Gpu,
) -> KernelBlueprint {
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/wgmma.cu",
        context: context(&WgmmaContext::new(problem, sizes, layout)),
        grid: sizes.grid(problem),
        block: [sizes.threads(), 1, 1],
        cluster: [1; 3],
        shared_bytes: 4 * sizes.memory.floats,
        pdl: true,
        device: device_parts(problem.precision),
        args: without_nhwc_strides(convolution::args(problem, false), &Problem::Conv(*problem)),
        work: sizes.work(problem, gpu),
    }
}

/// The parts of the device header that a kernel uses.
fn device_parts(precision: Precision) -> &'static [DevicePart] {
    match precision {
        Precision::Bf16 => BF16_DEVICE_PARTS,
        Precision::Fp16 => FP16_DEVICE_PARTS,
        // Without the last one.
        Precision::Fp32 | Precision::Tf32 => &FP16_DEVICE_PARTS[..FP16_DEVICE_PARTS.len() - 1],
    }
}

const FP16_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::Pipeline,
    DevicePart::Wgmma,
    DevicePart::SaturatedFp16,
];

const BF16_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Bf16,
    DevicePart::Mma,
    DevicePart::Pipeline,
    DevicePart::Wgmma,
];

impl WgmmaContext {
    fn new(problem: &ConvProblem, sizes: &WgmmaGeometry, layout: &WeightLayout) -> Self {
        let shape = &problem.shape;
        let tile = sizes.tile;
        let bf16 = problem.precision == Precision::Bf16;
        let planes = tile.chunk_groups * MMA_K / PLANE_CHANNELS;
        let [consumer_registers, loader_registers] = sizes.registers.moved.unwrap_or([0; 2]);
        let checks_pixel = tile.th * tile.tw != WGMMA_M * tile.warpgroups;
        let fused_ops = FusedOpsContext::new(problem, layout, false);
        Self {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            n: shape.n,
            batch: shape.batch,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            filter_h: shape.r,
            filter_w: shape.s,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            dilation_h: shape.dilation[0],
            dilation_w: shape.dilation[1],
            th: tile.th,
            tw: tile.tw,
            tn: tile.tn,
            wgmma_n: sizes.wgmma_n,
            slices: tile.tn / sizes.wgmma_n,
            consumer_warps: sizes.consumer_warps(),
            loader_warps: sizes.loader_warps(),
            blocks_per_sm: sizes.registers.blocks_per_sm,
            moves_registers: sizes.registers.moved.is_some(),
            consumer_registers,
            loader_registers,
            sum: SumContext::new(sizes.sum, sizes.grid(problem)),
            input: InputContext {
                input_stages: INPUT_STAGES,
                load_stages: tile.load_stages,
                planes,
                plane: sizes.plane(),
                row_len: sizes.row_len,
                items: sizes.items,
                checks_items: sizes.items * 32 * sizes.loader_warps() != planes * sizes.plane(),
                checks_c: !shape.c.is_multiple_of(MMA_K),
                stages_all_rows: shape.stride[0] > 1 && shape.r > 1,
                stages_all_columns: shape.stride[1] > 1 && shape.s > 1,
                skips_rows: shape.stride[0] > 1 && shape.r == 1,
                skips_columns: shape.stride[1] > 1 && shape.s == 1,
                image_rows: image_rows(problem),
                crosses_images: crosses_images(problem, tile.th),
            },
            tiles: sizes.tiles,
            tiles_w: sizes.tiles_w,
            tile_step: sizes.tile_step,
            input_at: sizes.memory.input_at,
            input_scales_at: sizes.memory.input_scales_at,
            warp_max_at: sizes.memory.warp_max_at,
            exchange_at: sizes.memory.exchange_at,
            prologue_at: sizes.memory.prologue_at,
            prologue_channels: shape.c.next_multiple_of(MMA_K),
            exchange_channels: sizes.exchange.channels,
            exchange_pitch: sizes.exchange.pitch,
            epilogue_at: sizes.memory.epilogue_at,
            barriers_at: sizes.memory.barriers_at,
            writes_nhwc: problem.writes_16_bit_nhwc(),
            y_pixel_runs: problem.output.pixel_runs(shape.n),
            pairs: StoredPairs::of([problem.input.dtype, problem.output.dtype]),
            hi_lo: sizes.split_terms == 2,
            bf16,
            split_terms: split_terms(problem.precision),
            to_pair: to_pair(problem.precision, scales_input(problem.precision)),
            scaled: !bf16,
            scales_input: scales_input(problem.precision),
            dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
            checks_pixel,
            checks_n: !shape.n.is_multiple_of(tile.tn),
            outside: outside(problem, sizes, checks_pixel),
            fused_ops: match sizes.split_terms == 2 {
                true => {
                    fused_ops.truncated(truncated(sizes.sum.stage_steps, PartialSum::Interleaved))
                }
                false => fused_ops,
            },
        }
    }
}

/// The condition under which a pixel of the tile is outside of the output.
fn outside(problem: &ConvProblem, sizes: &WgmmaGeometry, checks_pixel: bool) -> String {
    let shape = &problem.shape;
    let rows = shape.batch * shape.out_h();
    let checks = [
        (checks_pixel, "pixel >= TH * TW".to_owned()),
        (!rows.is_multiple_of(sizes.tile.th), format!("v >= {rows}")),
        (
            !shape.out_w().is_multiple_of(sizes.tile.tw),
            "column >= OUT_W".to_owned(),
        ),
    ];
    let needed: Vec<_> = checks
        .into_iter()
        .filter_map(|(needed, check)| needed.then_some(check))
        .collect();
    needed.join(" || ")
}
