//! Text of kernels and units.

use super::engine::{RenderError, render};
use super::wrap::wrapped;
use crate::plan::{PlannedKernel, PlannedUnit};
use tdc_runtime::Arg;

/// The text of one kernel: a self-contained `extern "C" __global__` function.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn kernel_text(kernel: &PlannedKernel) -> Result<String, RenderError> {
    let blueprint = &kernel.blueprint;
    let mut context = blueprint.context.clone();
    if let Some(map) = context.as_object_mut() {
        let parameters: Vec<_> = blueprint.args.iter().map(|&arg| parameter(arg)).collect();
        let parameters = wrapped(&parameters, kernel.symbol.len() + 1, 4);
        map.insert("symbol".to_owned(), kernel.symbol.clone().into());
        map.insert("parameters".to_owned(), parameters.into());
        let threads: u32 = blueprint.block.iter().product();
        map.insert("threads".to_owned(), threads.into());
    }
    render(blueprint.template, &context)
}

/// The text of all kernels of a unit.
///
/// # Errors
/// As [`kernel_text`].
pub fn unit_text(unit: &PlannedUnit) -> Result<String, RenderError> {
    let kernels: Result<Vec<_>, _> = unit.kernels.iter().map(kernel_text).collect();
    Ok(kernels?.join("\n"))
}

/// A kernel's parameter, declared.
fn parameter(arg: Arg) -> &'static str {
    match arg {
        Arg::X => "const float* __restrict__ x",
        Arg::Residual => "const float* __restrict__ residual",
        Arg::Packed => "const float* __restrict__ packed",
        Arg::Bias => "const float* __restrict__ bias",
        Arg::Y => "float* __restrict__ y",
        Arg::Workspace { .. } => "float* __restrict__ workspace",
        Arg::XBatchStride => "long long x_batch_stride",
        Arg::ResidualBatchStride => "long long residual_batch_stride",
        Arg::YBatchStride => "long long y_batch_stride",
    }
}
