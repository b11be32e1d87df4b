//! Source of kernels and units.

use super::activation::device_activations;
use super::constants::declare_constants;
use super::engine::{RenderError, render};
use super::wrap::wrap_list;
use crate::ir::DType;
use crate::plan::{PlannedKernel, PlannedUnit};
use crate::scheme::DevicePart;
use std::collections::BTreeSet;
use tdc_runtime::Arg;
use tdc_templates::device;

/// The source of one kernel: an `extern "C" __global__` function, without the device functions that it uses.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn kernel_text(kernel: &PlannedKernel) -> Result<String, RenderError> {
    let blueprint = &kernel.blueprint;
    let mut context = blueprint.context.clone();
    if let Some(map) = context.as_object_mut() {
        let parameter = |&arg| parameter(arg, kernel);
        let parameters: Vec<_> = blueprint.args.iter().map(parameter).collect();
        let parameters = wrap_list(&parameters, kernel.symbol.len() + 1, 4);
        map.insert("symbol".to_owned(), kernel.symbol.clone().into());
        map.insert("parameters".to_owned(), parameters.into());
        let threads: u32 = blueprint.block.iter().product();
        map.insert("threads".to_owned(), threads.into());
    }
    let text = render(blueprint.template, &context)?;
    Ok(declare_constants(&text, &context))
}

/// The kernels of a unit, preceded by the device functions that they use: self-contained source.
///
/// # Errors
/// As [`kernel_text`].
pub fn unit_text(unit: &PlannedUnit) -> Result<String, RenderError> {
    units_text(std::slice::from_ref(unit))
}

/// The kernels of several units, each once, preceded by the device functions that they use: self-contained source.
///
/// # Errors
/// As [`kernel_text`].
pub fn units_text(units: &[PlannedUnit]) -> Result<String, RenderError> {
    let mut texts: Vec<String> = device_parts(units)
        .into_iter()
        .map(|part| device_text(part).to_owned())
        .collect();
    texts.extend(device_activations(units.iter().map(|unit| &unit.problem))?);
    texts.push(kernels_text(units)?);
    Ok(texts.join("\n"))
}

/// The kernels of several units, each once.
///
/// # Errors
/// As [`kernel_text`].
pub(super) fn kernels_text(units: &[PlannedUnit]) -> Result<String, RenderError> {
    let mut kernels: Vec<&PlannedKernel> = Vec::new();
    for kernel in units.iter().flat_map(|unit| &unit.kernels) {
        // Two factors of a layer may be the same problem.
        if kernels.iter().all(|known| known.symbol != kernel.symbol) {
            kernels.push(kernel);
        }
    }
    let texts: Result<Vec<String>, _> = kernels.into_iter().map(kernel_text).collect();
    Ok(texts?.join("\n"))
}

/// The groups of device functions that the kernels of several units use.
pub(super) fn device_parts<'a>(
    units: impl IntoIterator<Item = &'a PlannedUnit>,
) -> BTreeSet<DevicePart> {
    let kernels = units.into_iter().flat_map(|unit| &unit.kernels);
    kernels
        .flat_map(|kernel| kernel.blueprint.device.iter().copied())
        .collect()
}

/// The source of a group of device functions, in the guard of its macro.
pub(super) fn device_text(part: DevicePart) -> &'static str {
    match part {
        DevicePart::DynamicShared => device::DYNAMIC_SHARED,
        DevicePart::AsyncCopy => device::ASYNC_COPY,
        DevicePart::BulkCopy => device::BULK_COPY,
        DevicePart::Cluster => device::CLUSTER,
        DevicePart::Prefetch => device::PREFETCH,
        DevicePart::Pdl => device::PDL,
        DevicePart::Fp16 => device::FP16,
        DevicePart::SaturatedFp16 => device::SATURATED_FP16,
        DevicePart::SplitTensor => device::SPLIT_TENSOR,
        DevicePart::Bf16 => device::BF16,
        DevicePart::MaxFp16 => device::MAX_FP16,
        DevicePart::MaxBf16 => device::MAX_BF16,
        DevicePart::Mma => device::MMA,
        DevicePart::SplitTf32 => device::SPLIT_TF32,
        DevicePart::MmaSteps => device::MMA_STEPS,
        DevicePart::AccumulatorOperands => device::ACCUMULATOR_OPERANDS,
        DevicePart::Pipeline => device::PIPELINE,
        DevicePart::Wgmma => device::WGMMA,
        DevicePart::Swizzle => device::SWIZZLE,
        DevicePart::LoadMatrices => device::LOAD_MATRICES,
        DevicePart::WgmmaShared => device::WGMMA_SHARED,
    }
}

/// Declaration of a parameter that points to a tensor. With PDL the predecessor kernel may still write the inputs. They must not be
/// `__restrict__` then, because the compiler would read them through the non-coherent cache or before the wait.
fn tensor_parameter(qualifier: &str, dtype: DType, name: &str, pdl: bool) -> String {
    let restrict = if pdl { "" } else { "__restrict__ " };
    format!("{qualifier}{}* {restrict}{name}", pointee(dtype))
}

/// The C++ type by which kernels and launchers point to elements of a tensor.
pub(super) fn pointee(dtype: DType) -> &'static str {
    match dtype {
        DType::Fp32 => "float",
        DType::Uint8 => "unsigned char",
        // Eight values, as they are loaded and stored.
        DType::Fp16 | DType::Bf16 | DType::Split => "uint4",
    }
}

/// Declaration of a kernel's parameter.
fn parameter(arg: Arg, kernel: &PlannedKernel) -> String {
    let pdl = kernel.blueprint.pdl;
    let declaration = match arg {
        Arg::X => return tensor_parameter("const ", kernel.x_dtype, "x", pdl),
        Arg::Residual => return tensor_parameter("const ", kernel.y_dtype, "residual", pdl),
        Arg::Concatenation => {
            return tensor_parameter("", kernel.y_dtype, "concatenation", pdl);
        }
        Arg::Y => return tensor_parameter("", kernel.y_dtype, "y", pdl),
        Arg::Workspace { .. } => return tensor_parameter("", DType::Fp32, "workspace", pdl),
        Arg::Packed | Arg::PackedAt { .. } => "const float* __restrict__ packed",
        Arg::Bias => "const float* __restrict__ bias",
        Arg::XBatchStride => "long long x_batch_stride",
        Arg::ResidualBatchStride => "long long residual_batch_stride",
        Arg::YBatchStride => "long long y_batch_stride",
        Arg::Elements { .. } => "long long elements",
    };
    declaration.to_owned()
}
