//! The matrix products.

use crate::ir::TuckerProblem;
use crate::scheme::factor::{Factor, FactorContext};
use crate::scheme::packed_offsets;
use crate::scheme::step_order::StepNames;
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::tucker_fused::geometry::TuckerFusedGeometry;
use serde::Serialize;
use tdc_runtime::WeightLayout;

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
        let mut packed = layouts.iter().zip(packed_offsets(layouts));
        let mut context = |factor: &Factor, warp_k, prefix| {
            let (layout, at) = packed.next().expect("a layout per factor");
            FactorContext::new(factor, StepNames { warp_k, prefix }, layout, at)
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
