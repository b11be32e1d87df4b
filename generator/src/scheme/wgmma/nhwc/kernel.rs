//! The context of the kernel's template.

use super::cells::{Cells, Phase};
use super::geometry::{NhwcGeometry, received};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, Format, Layout, Problem, ProjectedProblem};
use crate::scheme::convolution::{self, FusedOpsContext};
use crate::scheme::stored_pairs::StoredPairs;
use crate::scheme::tensor_core::{MMA_K, PartialSum, truncated};
use crate::scheme::wgmma::sum::SumContext;
use crate::scheme::{DevicePart, KernelBlueprint, context, without_nhwc_strides};
use serde::Serialize;
use tdc_runtime::{Arg, ConvShape, WeightLayout};

#[derive(Serialize)]
struct WgmmaNhwcContext {
    c: u32,
    h: u32,
    w: u32,
    n: u32,
    batch: u32,
    out_h: u32,
    out_w: u32,
    stride_h: u32,
    stride_w: u32,
    /// Cells of a tile.
    rows: u32,
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
    tiles: u32,
    tile_step: u32,
    #[serde(flatten)]
    sum: SumContext,
    /// Warpgroups multiply one after the other.
    takes_turns: bool,
    /// Blocks of a cluster, which divide the input channels.
    cluster: u32,
    /// Bytes of partial sums that a block receives.
    received_bytes: u32,
    #[serde(flatten)]
    input: InputContext,
    /// Offsets in shared memory, in floats.
    input_at: u32,
    exchange_at: u32,
    exchange_channels: u32,
    exchange_pitch: u32,
    epilogue_at: u32,
    barriers_at: u32,
    /// Maxima of each warp that multiplies, and the scale that follows from them.
    maxima_at: u32,
    output_scale_at: u32,
    /// The barrier of the partial sums, and these.
    sums_barrier_at: u32,
    partial_sums_at: u32,
    /// Input, and output with residual, are split NHWC; runs from hi to lo of each.
    reads_split: bool,
    writes_split: bool,
    x_plane: u64,
    y_plane: u64,
    /// Runs from one pixel of the input, and of the output, in NHWC to the next.
    x_pixel_runs: u32,
    y_pixel_runs: u32,
    /// The input is in the workspace.
    reads_workspace: bool,
    /// The first chunks are of the input, the others of a projection shortcut's.
    projects: bool,
    #[serde(flatten)]
    shortcut: Option<ShortcutContext>,
    /// Products read hi and lo.
    hi_lo: bool,
    /// Output and residual are NHWC.
    writes_nhwc: bool,
    /// Products that are added for an output.
    products_of_sum: u32,
    /// The weights are scaled, and sums are multiplied by the dequantisation scale.
    scaled: bool,
    /// Products are of bf16 numbers.
    bf16: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    dequant_scale_at: usize,
    checks_n: bool,
    #[serde(flatten)]
    fused_ops: FusedOpsContext,
}

/// The staged input.
#[derive(Serialize)]
struct InputContext {
    input_stages: u32,
    /// Rows of the product are cells, not pixels of the output; cells to the last output, of an image, and of a row.
    rows_are_cells: bool,
    cells: u32,
    image_cells: u64,
    row_cells: u32,
    /// An image has grids of several residues modulo the dilation: cells of one, and residues of rows and columns.
    has_residues: bool,
    residue_cells: u64,
    residues_h: u32,
    residues_w: u32,
    /// Expressions for the row and the column of a cell's pixel or output, without stride.
    cell_row: String,
    cell_column: String,
    /// Each cell has an output and one pixel.
    are_pixels: bool,
    phases: Vec<PhaseContext>,
    /// First staged cell of each filter tap.
    taps: Vec<u32>,
    /// Runs of eight channels of a chunk, and of a row of shared memory.
    chunk_runs: u32,
    row_runs: u32,
    /// Staged cells, and rows from one slab of a chunk to the next.
    staged: u32,
    slab_rows: u32,
    /// Copies of a loader thread.
    items: u32,
    checks_items: bool,
    /// Copies after which the places of a thread's cells repeat in the swizzle.
    swizzle_period: u32,
}

/// The input of a projection shortcut.
#[derive(Serialize)]
struct ShortcutContext {
    /// Chunks of the other input.
    own_chunks: u32,
    shortcut_c: u32,
    shortcut_h: u32,
    shortcut_w: u32,
    shortcut_stride_h: u32,
    shortcut_stride_w: u32,
    /// Each cell has one pixel of it.
    shortcut_is_dense: bool,
    /// Runs from hi to lo.
    shortcut_plane: u64,
}

impl ShortcutContext {
    fn new(problem: &ProjectedProblem, sizes: &NhwcGeometry) -> Self {
        let [c, h, w] = problem.shortcut.image;
        let [stride_h, stride_w] = problem.shortcut.stride;
        Self {
            own_chunks: problem.x.c / (sizes.tile.chunk_groups * MMA_K),
            shortcut_c: c,
            shortcut_h: h,
            shortcut_w: w,
            shortcut_stride_h: stride_h,
            shortcut_stride_w: stride_w,
            shortcut_is_dense: [h, w] == [problem.x.h, problem.x.w],
            shortcut_plane: problem.shortcut_input().len() / u64::from(Format::RUN_CHANNELS),
        }
    }
}

/// A phase of the input.
#[derive(Serialize)]
struct PhaseContext {
    /// First staged cell.
    at: u32,
    /// Added to the number of a staged cell and the tile's first one, so that the result is counted from an image before the first one.
    ahead: i64,
    row: u32,
    column: u32,
}

impl PhaseContext {
    fn new(phase: &Phase, at: u32, cells: &Cells) -> Self {
        Self {
            at,
            ahead: cells.of_image() as i64 + phase.first - i64::from(at),
            row: phase.pixel[0],
            column: phase.pixel[1],
        }
    }
}

/// Where the kernel's input is.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// It is that of the unit.
    Given,
    /// In the workspace, where other kernels of the unit prepared it.
    Prepared(Arg),
    /// The concatenation of the inputs of a convolution and a projection shortcut.
    Projected(&'a ProjectedProblem),
}

/// The kernel for a convolution.
pub(super) fn kernel(
    problem: &ConvProblem,
    sizes: &NhwcGeometry,
    layout: &WeightLayout,
    input: Input<'_>,
    gpu: &Gpu,
) -> KernelBlueprint {
    let context = context(&WgmmaNhwcContext::new(problem, sizes, layout, input));
    let mut epilogue = problem.epilogue;
    // The shortcut's input takes the place of a residual.
    epilogue.residual |= matches!(input, Input::Projected(_));
    let mut args = convolution::args(
        &ConvProblem {
            epilogue,
            ..*problem
        },
        false,
    );
    if let Input::Prepared(at) = input {
        args[0] = at;
    }
    KernelBlueprint {
        role: convolution::role(false),
        template: "kernel/wgmma_nhwc.cu",
        context,
        grid: sizes.grid(problem),
        block: [sizes.threads(), 1, 1],
        cluster: [sizes.tile.cluster, 1, 1],
        shared_bytes: 4 * sizes.memory.floats,
        pdl: true,
        device: &device_parts(problem.input.dense())[usize::from(sizes.tile.cluster == 1)..],
        args: without_nhwc_strides(args, &Problem::Conv(*problem)),
        work: sizes.work(problem, gpu),
    }
}

/// What kernels with an input in this format use. The first part is for clusters only.
fn device_parts(input: Format) -> &'static [DevicePart] {
    match input {
        Format::SPLIT_NHWC => SPLIT_DEVICE_PARTS,
        Format::BF16_NHWC => BF16_DEVICE_PARTS,
        _ => DEVICE_PARTS,
    }
}

const DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Prefetch,
    DevicePart::Fp16,
    DevicePart::Mma,
    DevicePart::Pipeline,
    DevicePart::Wgmma,
    DevicePart::Swizzle,
    DevicePart::WgmmaShared,
    DevicePart::SaturatedFp16,
];

const BF16_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Prefetch,
    DevicePart::Bf16,
    DevicePart::Mma,
    DevicePart::Pipeline,
    DevicePart::Wgmma,
    DevicePart::Swizzle,
    DevicePart::WgmmaShared,
];

const SPLIT_DEVICE_PARTS: &[DevicePart] = &[
    DevicePart::Cluster,
    DevicePart::DynamicShared,
    DevicePart::AsyncCopy,
    DevicePart::Pdl,
    DevicePart::Prefetch,
    DevicePart::Fp16,
    DevicePart::SplitTensor,
    DevicePart::Mma,
    DevicePart::Pipeline,
    DevicePart::Wgmma,
    DevicePart::Swizzle,
    DevicePart::WgmmaShared,
];

impl WgmmaNhwcContext {
    fn new(
        problem: &ConvProblem,
        sizes: &NhwcGeometry,
        layout: &WeightLayout,
        input: Input<'_>,
    ) -> Self {
        let shape = &problem.shape;
        let projected = match input {
            Input::Projected(projected) => Some(projected),
            Input::Given | Input::Prepared(_) => None,
        };
        let own = projected.map_or(*shape, |projected| ConvShape {
            c: projected.x.c,
            ..*shape
        });
        let tile = sizes.tile;
        let [consumer_registers, loader_registers] = sizes.registers.moved.unwrap_or([0; 2]);
        let fused_ops = FusedOpsContext::new(problem, layout, false);
        Self {
            c: own.c,
            h: shape.h,
            w: shape.w,
            n: shape.n,
            batch: shape.batch,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            rows: sizes.rows(),
            tn: tile.tn,
            wgmma_n: sizes.wgmma_n,
            slices: tile.tn / sizes.wgmma_n,
            consumer_warps: sizes.consumer_warps(),
            loader_warps: sizes.loader_warps(),
            blocks_per_sm: sizes.registers.blocks_per_sm,
            moves_registers: sizes.registers.moved.is_some(),
            consumer_registers,
            loader_registers,
            tiles: sizes.tiles,
            tile_step: sizes.tile_step,
            sum: SumContext::new(sizes.sum, sizes.grid(problem)),
            takes_turns: sizes.takes_turns(),
            cluster: tile.cluster,
            received_bytes: 4 * received(sizes.rows(), tile.tn, tile.cluster),
            input: InputContext::new(problem, sizes),
            input_at: sizes.memory.input_at,
            exchange_at: sizes.memory.exchange_at,
            exchange_channels: sizes.exchange.channels,
            exchange_pitch: sizes.exchange.pitch,
            epilogue_at: sizes.memory.epilogue_at,
            barriers_at: sizes.memory.barriers_at,
            maxima_at: sizes.memory.maxima_at,
            output_scale_at: sizes.memory.output_scale_at,
            sums_barrier_at: sizes.memory.sums_barrier_at,
            partial_sums_at: sizes.memory.partial_sums_at,
            reads_split: problem.input == Format::SPLIT_NHWC,
            writes_split: problem.writes_split_nhwc(),
            x_plane: own.input_len() / u64::from(Format::RUN_CHANNELS),
            y_plane: shape.output_len() / u64::from(Format::RUN_CHANNELS),
            x_pixel_runs: problem.input.pixel_runs(own.c),
            y_pixel_runs: problem.output.pixel_runs(shape.n),
            reads_workspace: matches!(input, Input::Prepared(_)),
            projects: projected.is_some(),
            shortcut: projected.map(|projected| ShortcutContext::new(projected, sizes)),
            hi_lo: sizes.terms == 2,
            writes_nhwc: problem.output.layout == Layout::Nhwc,
            products_of_sum: shape.c * shape.r * shape.s,
            scaled: problem.input.dense() != Format::BF16_NHWC,
            bf16: problem.input.dense() == Format::BF16_NHWC,
            pairs: StoredPairs::of([problem.input.dtype, problem.output.dtype]),
            dequant_scale_at: layout.weight_len() - layout.dequant_scale_len(),
            checks_n: !shape.n.is_multiple_of(tile.tn),
            fused_ops: match sizes.terms == 2 {
                true => {
                    fused_ops.truncated(truncated(sizes.sum.stage_steps, PartialSum::Interleaved))
                }
                false => fused_ops,
            },
        }
    }
}

impl InputContext {
    fn new(problem: &ConvProblem, sizes: &NhwcGeometry) -> Self {
        let shape = &problem.shape;
        let cells = &sizes.cells;
        let phases = cells.phases.iter().zip(&sizes.phases_at);
        let thread_step = sizes.thread_step();
        Self {
            input_stages: sizes.tile.input_stages,
            rows_are_cells: true,
            cells: sizes.all_cells,
            image_cells: cells.of_image(),
            row_cells: cells.grid[1],
            has_residues: cells.have_residues(),
            residue_cells: cells.of_residue(),
            residues_h: cells.residues[0],
            residues_w: cells.residues[1],
            cell_row: cell_row(cells),
            cell_column: cell_column(cells),
            are_pixels: cells.are_pixels(shape),
            phases: phases
                .map(|(phase, &at)| PhaseContext::new(phase, at, cells))
                .collect(),
            taps: cells
                .taps
                .iter()
                .map(|tap| sizes.phases_at[tap.phase] + tap.offset)
                .collect(),
            chunk_runs: sizes.runs(),
            row_runs: sizes.row_runs,
            staged: sizes.staged,
            slab_rows: sizes.slab_rows,
            items: sizes.items,
            checks_items: !sizes.staged.is_multiple_of(thread_step),
            swizzle_period: sizes.swizzle_period(),
        }
    }
}

/// The row of `cell`, without stride. `residue` is that of the cell, if the image has several.
fn cell_row(cells: &Cells) -> String {
    let of_grid = match cells.have_residues() {
        true => "cell % RESIDUE_CELLS / ROW_CELLS",
        false => "cell % IMAGE_CELLS / ROW_CELLS",
    };
    let residue = match cells.residues {
        [1, _] => "",
        [_, 1] => " * RESIDUES_H + residue",
        _ => " * RESIDUES_H + residue / RESIDUES_W",
    };
    format!("{of_grid}{residue}")
}

/// The column of `cell`, without stride.
fn cell_column(cells: &Cells) -> String {
    let residue = match cells.residues {
        [_, 1] => "",
        [1, _] => " * RESIDUES_W + residue",
        _ => " * RESIDUES_W + residue % RESIDUES_W",
    };
    format!("cell % ROW_CELLS{residue}")
}
