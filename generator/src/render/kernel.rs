//! Text of kernels and units.

use super::engine::{RenderError, render};
use super::wrap::wrap_list;
use crate::plan::{PlannedKernel, PlannedUnit};
use crate::scheme::DevicePart;
use std::collections::BTreeSet;
use tdc_runtime::Arg;
use tdc_templates::device;

/// The text of one kernel: an `extern "C" __global__` function, complete but for the parts of the device prelude that it uses.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn kernel_text(kernel: &PlannedKernel) -> Result<String, RenderError> {
    let blueprint = &kernel.blueprint;
    let mut context = blueprint.context.clone();
    if let Some(map) = context.as_object_mut() {
        let parameter = |&arg| parameter(arg, blueprint.pdl);
        let parameters: Vec<_> = blueprint.args.iter().map(parameter).collect();
        let parameters = wrap_list(&parameters, kernel.symbol.len() + 1, 4);
        map.insert("symbol".to_owned(), kernel.symbol.clone().into());
        map.insert("parameters".to_owned(), parameters.into());
        let threads: u32 = blueprint.block.iter().product();
        map.insert("threads".to_owned(), threads.into());
    }
    render(blueprint.template, &context)
}

/// The text of all kernels of a unit, behind the parts of the device prelude that they use: a self-contained text.
///
/// # Errors
/// As [`kernel_text`].
pub fn unit_text(unit: &PlannedUnit) -> Result<String, RenderError> {
    units_text(std::slice::from_ref(unit))
}

/// The text of all kernels of some units, each once, behind the parts of the device prelude that they use: a self-contained text.
///
/// # Errors
/// As [`kernel_text`].
pub fn units_text(units: &[PlannedUnit]) -> Result<String, RenderError> {
    let mut kernels: Vec<&PlannedKernel> = Vec::new();
    for kernel in units.iter().flat_map(|unit| &unit.kernels) {
        // Two factors of a layer may be the same problem.
        if kernels.iter().all(|known| known.symbol != kernel.symbol) {
            kernels.push(kernel);
        }
    }
    let parts: BTreeSet<DevicePart> = kernels
        .iter()
        .flat_map(|kernel| kernel.blueprint.device.iter().copied())
        .collect();
    let mut texts: Vec<String> = parts
        .into_iter()
        .map(|part| device_text(part).to_owned())
        .collect();
    for kernel in kernels {
        texts.push(kernel_text(kernel)?);
    }
    Ok(texts.join("\n"))
}

/// The text of a part of the device prelude.
fn device_text(part: DevicePart) -> &'static str {
    match part {
        DevicePart::DynamicShared => device::DYNAMIC_SHARED,
        DevicePart::AsyncCopy => device::ASYNC_COPY,
        DevicePart::BulkCopy => device::BULK_COPY,
        DevicePart::Cluster => device::CLUSTER,
        DevicePart::Pdl => device::PDL,
        DevicePart::Fp16 => device::FP16,
        DevicePart::Bf16 => device::BF16,
        DevicePart::Mma => device::MMA,
        DevicePart::SplitTf32 => device::SPLIT_TF32,
        DevicePart::MmaSteps => device::MMA_STEPS,
        DevicePart::AccumulatorOperands => device::ACCUMULATOR_OPERANDS,
    }
}

/// A kernel's parameter, declared. A launch that overlaps the one ahead may find its inputs being written: that nobody else writes
/// to them must not be promised then, or the compiler reads them past the coherent caches, or before the wait.
fn parameter(arg: Arg, pdl: bool) -> &'static str {
    match arg {
        Arg::X if pdl => "const float* x",
        Arg::Residual if pdl => "const float* residual",
        Arg::Y if pdl => "float* y",
        Arg::Workspace { .. } if pdl => "float* workspace",
        Arg::X => "const float* __restrict__ x",
        Arg::Residual => "const float* __restrict__ residual",
        Arg::Packed | Arg::PackedAt { .. } => "const float* __restrict__ packed",
        Arg::Bias => "const float* __restrict__ bias",
        Arg::Y => "float* __restrict__ y",
        Arg::Workspace { .. } => "float* __restrict__ workspace",
        Arg::XBatchStride => "long long x_batch_stride",
        Arg::ResidualBatchStride => "long long residual_batch_stride",
        Arg::YBatchStride => "long long y_batch_stride",
        Arg::Elements { .. } => "long long elements",
    }
}
