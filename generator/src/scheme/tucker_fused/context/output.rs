//! The output tile, the epilogue, and the output of the next factor.

use crate::ir::TuckerProblem;
use crate::scheme::activation_function;
use crate::scheme::tiling::vector_type;
use crate::scheme::tucker_fused::geometry::{TuckerFusedGeometry, core_problem};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct OutputContext {
    batched: bool,
    min_blocks: u32,
    tiles: u32,
    tiles_w: u32,
    th: u32,
    tw: u32,
    n: u32,
    out_h: u32,
    out_w: u32,
    /// Output channels of the blocks with the same pixels, padded.
    tn: u32,
    /// Vectors of the output: of a block, of a thread, of a channel, and of a channel in one lane.
    outputs: u32,
    output_items: u32,
    pixel_vectors: u32,
    lane_row: u32,
    y_vector: u32,
    y_type: &'static str,
    y_elements: &'static [&'static str],
    /// The condition for a position outside the output.
    outside: String,
    /// Weights and input are quantised.
    scaled: bool,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    #[serde(flatten)]
    next: NextOutputContext,
}

/// The output of the next factor.
#[derive(Serialize)]
struct NextOutputContext {
    next_n: u32,
    next_output_at: u32,
    outside_next_output: String,
    /// Whether the layer's own output is not stored.
    skips_output: bool,
}

impl OutputContext {
    pub(super) fn new(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Self {
        let (shape, tile, last) = (&problem.core, &sizes.tile, &sizes.factors.last);
        let conv = core_problem(problem);
        let [tiles, tiles_w] = sizes.output.tiles(&conv);
        // A lane holds pairs of adjacent pixels.
        let in_registers = sizes.sums.last_in_registers;
        let most = if in_registers { 2 } else { 4 };
        let y_vector = sizes.output.y_vector(&conv).min(most);
        let (y_type, y_elements) = vector_type(y_vector);
        let outputs = last.rows * sizes.split.block_pixels / y_vector;
        let lane_row = last.p_tiles * 2 / y_vector.min(2);
        let epilogue = problem.epilogue;
        Self {
            batched: shape.batch > 1,
            min_blocks: sizes.source_blocks_per_sm().min(2),
            tiles,
            tiles_w,
            th: tile.th,
            tw: tile.tw,
            n: problem.n,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            tn: tile.blocks_n * last.rows,
            outputs,
            output_items: match in_registers {
                true => 2 * last.m_tiles * lane_row,
                false => outputs.div_ceil(32 * tile.warps),
            },
            pixel_vectors: sizes.split.block_pixels / y_vector,
            lane_row,
            y_vector,
            y_type,
            y_elements,
            outside: outside_output(problem, sizes, outputs),
            scaled: true,
            bias: epilogue.bias,
            residual: epilogue.residual,
            activation: activation_function(epilogue.activation),
            next: NextOutputContext::new(problem, sizes),
        }
    }
}

impl NextOutputContext {
    fn new(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Self {
        let next_n = problem.next.map_or(0, |next| next.n);
        let next_rows = sizes.factors.next.as_ref().map_or(0, |next| next.rows);
        let skips_output = problem.next.is_some_and(|next| !next.stores_layer_output);
        let mut bounds = outside_image(problem, sizes);
        bounds.extend((next_rows > next_n).then_some("n >= NEXT_N"));
        Self {
            next_n,
            next_output_at: match skips_output {
                true => 0,
                false => problem.n * problem.core.out_h() * problem.core.out_w(),
            },
            outside_next_output: any_of(&bounds),
            skips_output,
        }
    }
}

/// The condition for an item outside the output.
fn outside_output(problem: &TuckerProblem, sizes: &TuckerFusedGeometry, outputs: u32) -> String {
    let last = &sizes.factors.last;
    let in_registers = sizes.sums.last_in_registers;
    let n_rows = sizes.tile.blocks_n * last.rows;
    let has_idle_threads = !outputs.is_multiple_of(32 * sizes.tile.warps);
    let has_idle_pixels = last.columns > sizes.split.block_pixels;
    let mut bounds = outside_image(problem, sizes);
    bounds.extend((n_rows > problem.n).then_some("n0 + n >= N"));
    bounds.extend((!in_registers && has_idle_threads).then_some("item >= OUTPUTS"));
    let idle_warps = in_registers && last.has_idle_warps;
    bounds.extend(idle_warps.then_some("last_k >= LAST_WARPS_K"));
    bounds.extend((in_registers && has_idle_pixels).then_some("block_pixel >= BLOCK_PIXELS"));
    any_of(&bounds)
}

/// Conditions for a pixel outside the image.
fn outside_image(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Vec<&'static str> {
    let (tile, core) = (&sizes.tile, &problem.core);
    let bounds = [
        (
            sizes.split.cluster_pixels > tile.th * tile.tw,
            "pixel >= TH * TW",
        ),
        (!core.out_h().is_multiple_of(tile.th), "row >= OUT_H"),
        (!core.out_w().is_multiple_of(tile.tw), "column >= OUT_W"),
    ];
    let needed = bounds.into_iter().filter(|(needed, _)| *needed);
    needed.map(|(_, bound)| bound).collect()
}

fn any_of(bounds: &[&str]) -> String {
    match bounds {
        [] => "false".to_owned(),
        _ => bounds.join(" || "),
    }
}
