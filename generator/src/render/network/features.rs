//! What only some networks need: columns of tables, and code of the driver.

use super::plan_tables::awaited;
use crate::ir::{DType, Format, Layout};
use crate::plan::NetworkPlan;
use serde::Serialize;
use std::collections::HashSet;

/// The formats of layers' outputs, in the order of the driver's enumeration.
const STORED_FORMATS: [Format; 8] = [
    Format::fp32(Layout::Nchw),
    Format::fp32(Layout::Nhwc),
    Format::fp32(Layout::Hwcn),
    Format::FP16_NCHW,
    Format::FP16_NHWC,
    Format::BF16_NCHW,
    Format::BF16_NHWC,
    Format::SPLIT_NHWC,
];

/// The name of a format in the driver: `fp16_nhwc`.
pub(super) fn storage(format: Format) -> String {
    let layout = format.layout.name().to_lowercase();
    format!("{}_{layout}", format.dtype.as_str())
}

/// How a layer's output is stored.
#[derive(Serialize)]
struct StorageContext {
    name: String,
    dtype: &'static str,
    /// In lower case.
    layout: String,
}

/// What only some networks need: columns of tables, and code of the driver.
#[derive(Serialize)]
pub(super) struct Features {
    /// Whether any variant has parameters.
    pub(super) has_slots: bool,
    /// Whether any layer's output is not fp32 NCHW.
    pub(super) has_storages: bool,
    /// How layers' outputs are stored, fp32 NCHW first.
    storages: Vec<StorageContext>,
    /// Whether any of them is HWCN.
    has_hwcn: bool,
    /// Whether any of them is NHWC.
    has_nhwc: bool,
    /// The types of 16-bit numbers that they have: `fp16`, `bf16`.
    number_types: Vec<&'static str>,
    /// Whether any layer's output is a view in NHWC.
    has_views: bool,
    /// Whether any of them is split NHWC.
    has_split: bool,
    /// Bytes of the header of a split tensor.
    split_header_bytes: u64,
    /// Whether any variant has several branches.
    pub(super) has_branches: bool,
    /// Number of branches beside the caller's stream, and of events, of the variant that has the most.
    side_branches: usize,
    events: usize,
}

impl Features {
    pub(super) fn new(plans: &[NetworkPlan]) -> Self {
        let layers = plans.iter().flat_map(|plan| &plan.layers);
        let written: HashSet<Format> = layers.clone().map(|layer| layer.y.format.dense()).collect();
        let is_stored =
            |format: &&Format| written.contains(*format) || **format == Format::default();
        let formats = || STORED_FORMATS.iter().filter(is_stored);
        let number_types = [
            ("fp16", &[DType::Fp16, DType::Split] as &[DType]),
            ("bf16", &[DType::Bf16]),
        ]
        .into_iter();
        let side_branches = plans.iter().map(|plan| plan.branches() - 1).max();
        let side_branches = side_branches.unwrap_or(0);
        let events = plans.iter().map(|plan| awaited(plan).len()).max();
        Self {
            has_slots: plans
                .iter()
                .any(|plan| plan.weights.iter().next().is_some()),
            has_storages: formats().any(|&format| format != Format::default()),
            storages: formats()
                .map(|&format| StorageContext {
                    name: storage(format),
                    dtype: format.dtype.as_str(),
                    layout: format.layout.name().to_lowercase(),
                })
                .collect(),
            has_hwcn: formats().any(|format| format.layout == Layout::Hwcn),
            has_nhwc: formats().any(|format| format.layout == Layout::Nhwc),
            number_types: number_types
                .filter(|(_, stored)| formats().any(|format| stored.contains(&format.dtype)))
                .map(|(name, _)| name)
                .collect(),
            has_views: layers
                .clone()
                .any(|layer| layer.y.format.pixel_stride.is_some()),
            has_split: formats().any(|format| format.dtype == DType::Split),
            split_header_bytes: Format::SPLIT_HEADER_BYTES,
            has_branches: side_branches > 0,
            side_branches,
            events: events.unwrap_or(0),
        }
    }
}
