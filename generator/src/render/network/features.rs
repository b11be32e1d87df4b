//! What only some networks need: columns of tables, and code of the driver.

use super::plan_tables::awaited;
use crate::ir::{Format, Layout};
use crate::plan::NetworkPlan;
use serde::Serialize;

/// What only some networks need: columns of tables, and code of the driver.
#[derive(Serialize)]
pub(super) struct Features {
    /// Whether any variant has parameters.
    pub(super) has_slots: bool,
    /// Whether any layer's output is stored as HWCN.
    pub(super) has_hwcn: bool,
    /// Whether any activation tensor is fp16 NHWC.
    pub(super) has_fp16: bool,
    /// Whether any activation tensor is split NHWC.
    pub(super) has_split: bool,
    /// Words of the header of such a tensor.
    split_header_words: u64,
    /// Whether any variant has several branches.
    pub(super) has_branches: bool,
    /// Number of branches beside the caller's stream, and of events, of the variant that has the most.
    side_branches: usize,
    events: usize,
}

impl Features {
    pub(super) fn new(plans: &[NetworkPlan]) -> Self {
        let mut formats = plans
            .iter()
            .flat_map(|plan| &plan.layers)
            .map(|layer| layer.y.format);
        let side_branches = plans.iter().map(|plan| plan.branches() - 1).max();
        let side_branches = side_branches.unwrap_or(0);
        let events = plans.iter().map(|plan| awaited(plan).len()).max();
        Self {
            has_slots: plans
                .iter()
                .any(|plan| plan.weights.iter().next().is_some()),
            has_hwcn: formats.clone().any(|format| format.layout == Layout::Hwcn),
            has_fp16: formats.clone().any(|format| format == Format::FP16_NHWC),
            has_split: formats.any(|format| format == Format::SPLIT_NHWC),
            split_header_words: Format::SPLIT_HEADER_BYTES / 4,
            has_branches: side_branches > 0,
            side_branches,
            events: events.unwrap_or(0),
        }
    }
}
