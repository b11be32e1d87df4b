//! A factor in the context of a kernel's template.

use super::Factor;
use crate::scheme::step_order::{StepNames, StepOrder};
use crate::scheme::tensor_core::{MMA_K, PartialSum, truncated};
use serde::Serialize;
use tdc_runtime::WeightLayout;

/// What the templates in `kernel/factor` read of a factor.
#[derive(Serialize)]
pub(in crate::scheme) struct FactorContext {
    #[serde(flatten)]
    factor: Factor,
    #[serde(flatten)]
    order: StepOrder,
    /// The condition under which a warp has work, as the start of a statement; empty if all warps have.
    if_active: String,
    /// Channel quads of one position that a chunk multiplies; 0 if a chunk is one row of a filter.
    pub(in crate::scheme) chunk_quads: u32,
    /// The fraction of a sum that tensor cores truncate on average, for schemes that add it; without a hi/lo split it does not count.
    truncated: Option<String>,
    /// Indentation of the code inside the loops over K steps.
    loop_indent: u32,
    /// Offsets of the factor's block and of its dequantisation scales in the packed parameters.
    at: usize,
    dequant_scale_at: usize,
}

impl FactorContext {
    /// For a factor whose packed weights have this layout and start at `at`.
    pub(in crate::scheme) fn new(
        factor: &Factor,
        names: StepNames,
        layout: &WeightLayout,
        at: usize,
    ) -> Self {
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
            truncated: (factor.steps.split_terms == 2).then(|| {
                let sum = match factor.separate_accumulators {
                    true => PartialSum::OnlyLarge,
                    false => PartialSum::Interleaved,
                };
                format!("{:.3e}f", truncated(order.promotion_interval(), sum))
            }),
            loop_indent: if order.has_loops() { 4 } else { 0 },
            order,
            at,
            dequant_scale_at: at + layout.weight_len() - layout.dequant_scale_len(),
        }
    }
}
