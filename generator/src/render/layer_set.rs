//! The files of a layer set in addition to its units: the program that checks and times them, build file, README.

use super::activation::{host_activation, host_activations};
use super::architectures::Architectures;
use super::banner::{CommentStyle, banner};
use super::cuda_version::cuda_versions;
use super::device_header::device_header_name;
use super::engine::{RenderError, render};
use super::text::{literal, markdown_cell};
use super::unit::{has_batch_strides, packer_names};
use super::wrap::wrap_list;
use crate::ir::{ConvProblem, Layout, Problem};
use crate::plan::{LayerSetPlan, PlannedUnit};
use serde::Serialize;

#[derive(Serialize)]
struct LayerSetContext {
    banner: String,
    name: String,
    prefix: String,
    nvcc_arch: String,
    cmake_arch: String,
    /// The CUDA toolkits that support it.
    cuda_versions: &'static str,
    device_header: String,
    /// Functions of the host.
    activations: Vec<String>,
    units: Vec<String>,
    layers: Vec<SetLayerContext>,
}

/// The row of a layer in a table.
#[derive(Serialize)]
struct SetLayerContext {
    row: String,
    /// The name in a table of the README.
    markdown: String,
    scheme: &'static str,
    /// The name of its unit.
    unit: String,
}

/// A file of a layer set that one template renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerSetFile {
    /// The program.
    Main,
    /// The build file.
    CMake,
    /// The README.
    Readme,
}

/// The text of one of a layer set's files.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn layer_set_text(plan: &LayerSetPlan, file: LayerSetFile) -> Result<String, RenderError> {
    let (template, comment) = match file {
        LayerSetFile::Main => ("layers/main.cu", CommentStyle::Cpp),
        LayerSetFile::CMake => ("layers/CMakeLists.txt", CommentStyle::CMake),
        LayerSetFile::Readme => ("layers/README.md", CommentStyle::Prose),
    };
    let title = match comment {
        CommentStyle::Prose => Vec::new(),
        _ => vec![format!("Layer set {}.", plan.name)],
    };
    let archs = Architectures::new(&[plan.gpu], &plan.units);
    let context = LayerSetContext {
        banner: banner(comment, &title, &[plan.gpu]),
        name: plan.name.clone(),
        prefix: plan.prefix.clone(),
        nvcc_arch: archs.nvcc(),
        cmake_arch: archs.cmake(),
        cuda_versions: cuda_versions([plan.gpu.arch.sm]),
        device_header: device_header_name(&plan.prefix),
        activations: host_activations(plan.units.iter().map(|unit| &unit.problem))?,
        units: plan
            .units
            .iter()
            .map(|unit| unit.unit.name.to_string())
            .collect(),
        layers: plan
            .layers
            .iter()
            .map(|layer| {
                let unit = &plan.units[layer.unit];
                SetLayerContext {
                    row: row(&layer.name, &layer.problem, unit, &plan.prefix),
                    markdown: markdown_cell(&layer.name),
                    scheme: unit.scheme,
                    unit: unit.unit.name.to_string(),
                }
            })
            .collect(),
    };
    render(template, &context)
}

/// The error bound of precision and tolerance, without its growth with the number of terms. Independent errors of several factors are
/// added.
fn min_tolerance(unit: &PlannedUnit, conv: &ConvProblem) -> f64 {
    let factors = unit.problem.weights().len().max(1) as f64;
    factors.sqrt() * conv.min_tolerance()
}

/// The rank of a CP layer, 0 of any other.
fn cp_rank(problem: &Problem) -> u32 {
    match problem {
        Problem::Cp(cp) => cp.rank,
        _ => 0,
    }
}

/// A function that packs all weights of a layer, which are consecutive in memory.
fn packer(unit: &PlannedUnit, unit_name: &str) -> String {
    let variant = unit.variant();
    if variant.extra_weight_layouts.is_empty() {
        return format!("{unit_name}_pack");
    }
    let indent = " ".repeat(9);
    let mut text =
        "[](const float* weights, const float* scale, const float* shift, float* packed) {\n"
            .to_owned();
    let mut from = 0;
    let namespace = unit_name.strip_suffix(&*unit.unit.name).unwrap_or_default();
    for ((to, layout), name) in variant.packed_layouts().zip(packer_names(unit)) {
        let at = |block: &str, place: usize| match place {
            0 => block.to_owned(),
            _ => format!("{block} + {place}"),
        };
        let (weights, packed) = (at("weights", from), at("packed", to));
        text += &format!("{indent}{namespace}{name}(\n");
        text += &format!("{indent}    {weights}, scale, shift, {packed});\n");
        from += layout.source_len();
    }
    text + "     }"
}

fn row(name: &str, conv: &ConvProblem, unit: &PlannedUnit, namespace: &str) -> String {
    let shape = &conv.shape;
    let unit_name = format!("{namespace}::{}", unit.unit.name);
    let mut values = vec![format!("{{\"{}\"", literal(name))];
    let sizes = [
        shape.batch,
        shape.c,
        shape.h,
        shape.w,
        shape.n,
        shape.out_h(),
        shape.out_w(),
        shape.r,
        shape.s,
        shape.stride[0],
        shape.stride[1],
        shape.padding.top,
        shape.padding.left,
        shape.dilation[0],
        shape.dilation[1],
        shape.groups,
        cp_rank(&unit.problem),
    ];
    values.extend(sizes.map(|size| size.to_string()));
    let is_hwcn = unit.problem.x_layout() == Layout::Hwcn;
    let flags = [is_hwcn, conv.prologue.is_some()];
    values.extend(flags.map(|flag| flag.to_string()));
    let function = |activation| host_activation(activation).unwrap_or("nullptr".to_owned());
    let prologue_activation = conv.prologue.map(|prologue| prologue.activation);
    values.push(function(prologue_activation.unwrap_or_default()));
    let flags = [conv.epilogue.bias, conv.epilogue.residual];
    values.extend(flags.map(|flag| flag.to_string()));
    values.push(function(conv.epilogue.activation));
    values.push(format!("{:e}", min_tolerance(unit, conv)));
    values.push(format!("{unit_name}_packed_floats()"));
    values.push(format!("{unit_name}_workspace_bytes()"));
    values.push(packer(unit, &unit_name));
    // A pointer to the launcher has no default strides.
    values.push(if has_batch_strides(&unit.problem) {
        let indent = " ".repeat(9);
        format!(
            "[](const float* x, const float* packed, const float* bias, const float* residual, float* y,\n\
             {indent}void* workspace, cudaStream_t stream) {{\n\
             {indent}return {unit_name}_launch(\n\
             {indent}    x, packed, bias, residual, y, workspace, stream);\n     }}}}"
        )
    } else {
        format!("{unit_name}_launch}}")
    });
    wrap_list(&values, 4, 5)
}
