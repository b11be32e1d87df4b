//! The matrix products.

use crate::ir::TuckerProblem;
use crate::scheme::step_order::{StepNames, StepOrder};
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::tucker_fused::factor::Factor;
use crate::scheme::tucker_fused::geometry::TuckerFusedGeometry;
use serde::Serialize;
use tdc_runtime::{WeightFile, WeightLayout};

#[derive(Serialize)]
pub(super) struct FactorsContext {
    first: Option<FactorContext>,
    core: FactorContext,
    last: FactorContext,
    next: Option<FactorContext>,
}

impl FactorsContext {
    pub(super) fn new(
        problem: &TuckerProblem,
        sizes: &TuckerFusedGeometry,
        layouts: &[WeightLayout],
    ) -> Self {
        let factors = &sizes.factors;
        let mut packed = Packed { layouts, end: 0 };
        let mut context = |factor: &Factor, warp_k, prefix| {
            FactorContext::new(factor, StepNames { warp_k, prefix }, &mut packed)
        };
        let first = factors.first.as_ref();
        let first = first.map(|first| context(first, "first_k", "FIRST_"));
        let mut core = context(&factors.core, "core_k", "CORE_");
        let taps = problem.core.r * problem.core.s;
        core.chunk_quads = factors.core.chunk_steps / taps * MMA_K / 4;
        let last = context(&factors.last, "last_k", "LAST_");
        let next = factors.next.as_ref();
        let next = next.map(|next| context(next, "next_k", "NEXT_"));
        Self {
            first,
            core,
            last,
            next,
        }
    }
}

/// The packed parameters that have no factor yet.
struct Packed<'a> {
    layouts: &'a [WeightLayout],
    end: usize,
}

impl<'a> Packed<'a> {
    /// The layout of the next factor, and its offset in floats.
    fn next(&mut self) -> (&'a WeightLayout, usize) {
        let (layout, rest) = self.layouts.split_first().expect("a layout per factor");
        let at = usize::next_multiple_of(self.end, WeightFile::ALIGNMENT as usize / 4);
        self.layouts = rest;
        self.end = at + layout.len();
        (layout, at)
    }
}

#[derive(Serialize)]
struct FactorContext {
    #[serde(flatten)]
    factor: Factor,
    #[serde(flatten)]
    order: StepOrder,
    /// The condition under which a warp has work, as the start of a statement; empty if all warps have.
    if_active: String,
    /// Channel quads of one position that a chunk multiplies; 0 if a chunk of the core is one row of a filter.
    chunk_quads: u32,
    /// Indentation of the code inside the loops over K steps.
    loop_indent: u32,
    /// Offsets of the factor's block and of its dequantisation scales in the packed parameters.
    at: usize,
    dequant_scale_at: usize,
}

impl FactorContext {
    fn new(factor: &Factor, names: StepNames, packed: &mut Packed<'_>) -> Self {
        let (layout, at) = packed.next();
        let unrolls = factor.steps.unroll(factor.m_tiles * factor.p_tiles);
        let order = StepOrder::new(factor.steps, names, unrolls);
        let StepNames { warp_k, prefix } = names;
        Self {
            factor: factor.clone(),
            if_active: match factor.has_idle_warps {
                true => format!("if ({warp_k} < {prefix}WARPS_K) "),
                false => String::new(),
            },
            chunk_quads: factor.chunk_steps * MMA_K / 4,
            loop_indent: if order.has_loops() { 4 } else { 0 },
            order,
            at,
            dequant_scale_at: at + layout.weight_len() - layout.dequant_scale_len(),
        }
    }
}
