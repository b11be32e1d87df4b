//! The header that the units of a folder share: device functions of kernels, host functions of packers and launchers.

use super::activation::device_activations;
use super::banner::{CommentStyle, banner};
use super::engine::{RenderError, render};
use super::kernel::{device_parts, device_text};
use crate::gpu::Gpu;
use crate::plan::PlannedUnit;
use serde::Serialize;
use tdc_runtime::{Filter, Launch, Step, Transform};

#[derive(Serialize)]
struct DeviceHeaderContext {
    banner: String,
    guard: String,
    namespace: String,
    /// Groups of device functions.
    parts: Vec<String>,
    /// Whether any packer writes fp16 values, writes bf16 values, or applies Winograd's filter transform.
    fp16: bool,
    bf16: bool,
    winograd: bool,
    /// Whether any launch has attributes.
    attributes: bool,
    /// Whether any kernel has a carve-out.
    carveouts: bool,
    /// The oldest architecture whose kernels have attributes, as `ptxVersion` reports it.
    attribute_arch: u16,
    /// Its major version.
    attribute_major: u16,
    /// Cluster size that every GPU with clusters supports.
    portable_cluster: u32,
}

/// The name of the header of a folder whose symbols have the prefix `prefix`.
pub fn device_header_name(prefix: &str) -> String {
    format!("{prefix}_device.cuh")
}

/// The header that the sources of a folder's units include. Its functions are in the namespace `prefix`, so that a program
/// may contain several folders.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn device_header(
    prefix: &str,
    units: &[&PlannedUnit],
    gpus: &[&Gpu],
) -> Result<String, RenderError> {
    let title = format!("Functions that the kernels, packers and launchers of {prefix} share.");
    let layouts = || {
        let layouts = units
            .iter()
            .flat_map(|unit| unit.variant().packed_layouts());
        layouts.map(|(_, layout)| layout)
    };
    let transforms = |wanted: fn(&Transform) -> bool| layouts().any(|l| wanted(&l.transform));
    let has_attributes = |step: &Step| match step {
        Step::Launch(launch) => launch.pdl || launch.cluster_blocks() > 1,
        Step::Memset { .. } => false,
    };
    let activations = device_activations(units.iter().map(|unit| &unit.problem))?;
    render(
        "folder/device.cuh",
        &DeviceHeaderContext {
            banner: banner(CommentStyle::Cpp, &[title], gpus),
            guard: format!("{}_DEVICE_CUH", prefix.to_ascii_uppercase()),
            namespace: prefix.to_owned(),
            parts: device_parts(units.iter().copied())
                .into_iter()
                .map(|part| undefined_guard(device_text(part)))
                .chain(activations.iter().map(|text| undefined_guard(text)))
                .collect(),
            fp16: transforms(|transform| matches!(transform, Transform::Fp16 { .. })),
            bf16: transforms(|&transform| transform == Transform::Bf16),
            winograd: layouts().any(|layout| matches!(layout.filter, Filter::Winograd(_))),
            attributes: units
                .iter()
                .any(|unit| unit.variant().steps.iter().any(has_attributes)),
            carveouts: units
                .iter()
                .flat_map(|unit| &unit.kernels)
                .any(|kernel| kernel.carveout.is_some()),
            attribute_arch: Launch::MIN_ATTRIBUTE_ARCH.sm,
            attribute_major: Launch::MIN_ATTRIBUTE_ARCH.sm / 10,
            portable_cluster: Launch::MAX_PORTABLE_CLUSTER,
        },
    )
}

/// A group of device functions that does not define the macro of its guard: the functions are in the folder's namespace, and
/// another folder's header in the same source file must still declare its own.
fn undefined_guard(text: &str) -> String {
    let is_guard = |(index, line): &(usize, &str)| *index == 1 && line.starts_with("#define TDC_");
    let lines = text.lines().enumerate().filter(|line| !is_guard(line));
    lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
}
