//! Loads and quantisation of the input.

use crate::ir::{Problem, TuckerProblem};
use crate::scheme::activation_function;
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::tucker_fused::geometry::TuckerFusedGeometry;
use serde::Serialize;
use tdc_runtime::WeightLayout;

#[derive(Serialize)]
pub(super) struct InputContext {
    c: u32,
    h: u32,
    w: u32,
    /// Rows of the core's filter.
    r: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    positions: u32,
    row_len: u32,
    quads: u32,
    plane: u32,
    loaders: u32,
    items: u32,
    chunks_per_load: u32,
    has_idle_loaders: bool,
    checks_items: bool,
    /// The condition for a value inside the input.
    loads_value: String,
    prologue: bool,
    prologue_activation: Option<String>,
    scale_at: usize,
}

impl InputContext {
    pub(super) fn new(
        problem: &TuckerProblem,
        sizes: &TuckerFusedGeometry,
        layouts: &[WeightLayout],
    ) -> Self {
        let (shape, input, split) = (&problem.core, &sizes.input, &sizes.split);
        let c = Problem::Tucker(*problem).x().c;
        let padded_c = match problem.first {
            Some(_) => c.next_multiple_of(MMA_K),
            None => split.d1_splits * split.block_d1_groups * MMA_K,
        };
        let checks_items = !input.quads.is_multiple_of(input.loaders);
        let mut bounds = vec!["inside"];
        bounds.extend(checks_items.then_some("first_quad + i * LOADERS < QUADS"));
        bounds.extend((padded_c != c).then_some("first_c + c < C"));
        let prologue = problem.prologue;
        Self {
            c,
            h: shape.h,
            w: shape.w,
            r: shape.r,
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            positions: input.positions(),
            row_len: input.row_len,
            quads: input.quads,
            plane: input.plane,
            loaders: input.loaders,
            items: input.items,
            chunks_per_load: sizes.chunks_per_load,
            has_idle_loaders: input.loaders * input.positions() != 32 * sizes.tile.warps,
            checks_items,
            loads_value: bounds.join(" && "),
            prologue: prologue.is_some(),
            prologue_activation: prologue
                .and_then(|prologue| activation_function(prologue.activation)),
            scale_at: layouts.first().map_or(0, WeightLayout::weight_len),
        }
    }
}
