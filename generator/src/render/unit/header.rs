//! The header of a unit: sizes, packers and launcher, documented.

use super::launcher::launch_signature;
use super::packer::{pack_signature, packer_names};
use super::{has_batch_strides, unit_banner};
use crate::ir::{DType, Format, Layout, Problem, TensorShape};
use crate::plan::PlannedUnit;
use crate::render::engine::{RenderError, render};
use crate::render::wrap::{MAX_COLUMNS, wrap_words};
use serde::Serialize;
use tdc_runtime::WeightLayout;

#[derive(Serialize)]
struct UnitHeaderContext {
    banner: String,
    namespace: String,
    packed_floats: String,
    workspace_bytes: String,
    packers: Vec<PackerDeclaration>,
    launch: String,
    /// Lines of documentation.
    launch_parameters: Vec<String>,
}

/// A packer's declaration.
#[derive(Serialize)]
struct PackerDeclaration {
    signature: String,
    /// Lines of documentation.
    parameters: Vec<String>,
}

/// The header of a unit: sizes, packers and launcher, documented.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn unit_header(unit: &PlannedUnit) -> Result<String, RenderError> {
    let name = &unit.unit.name;
    let variant = unit.variant();
    render(
        "unit/unit.h",
        &UnitHeaderContext {
            banner: unit_banner(unit)?,
            namespace: unit.prefix.clone(),
            packed_floats: constant(name, "packed_floats", variant.packed_len() as u64),
            workspace_bytes: constant(name, "workspace_bytes", variant.workspace_bytes),
            packers: variant
                .packed_layouts()
                .zip(packer_names(unit))
                .map(|((at, layout), name)| PackerDeclaration {
                    signature: pack_signature(&name, layout, true),
                    parameters: pack_parameters(layout, at),
                })
                .collect(),
            launch: launch_signature(unit, true),
            launch_parameters: launch_parameters(unit),
        },
    )
}

/// A function that returns a constant.
fn constant(unit: &str, what: &str, value: u64) -> String {
    let function = format!("{unit}_{what}() {{ return {value}; }}");
    let kind = "constexpr std::size_t";
    if kind.len() + 1 + function.len() <= MAX_COLUMNS {
        format!("{kind} {function}")
    } else {
        format!("{kind}\n{function}")
    }
}

/// Parameters and their documentation in two columns, in lines that fit the margin.
fn aligned_docs(rows: Vec<(&str, String)>) -> Vec<String> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let comment = "//   ".len();
    let lines = rows.into_iter().flat_map(|(name, text)| {
        let wrapped = wrap_words(&text, MAX_COLUMNS - comment - width - 1);
        let names = std::iter::once(name).chain(std::iter::repeat(""));
        let line = |(name, line)| format!("{name:width$} {line}");
        names.zip(wrapped).map(line).collect::<Vec<_>>()
    });
    lines.collect()
}

/// Documentation of a packer whose values start at index `at` of the kernel's `packed` parameter.
fn pack_parameters(layout: &WeightLayout, at: usize) -> Vec<String> {
    let [o, i, r, s] = layout.source;
    let weight = match o {
        0 => "not read".to_owned(),
        _ => format!("{o} x {i} x {r} x {s}, PyTorch's order (OIHW)"),
    };
    let prologue = match layout.prologue_channels {
        0 => "not read".to_owned(),
        channels => format!("{channels} values each, applied to the input: scale * x + shift"),
    };
    let packed = match at {
        0 => format!("{} values, written", layout.len()),
        _ => format!(
            "{} values, written: those from index {at} on of the kernel's",
            layout.len()
        ),
    };
    aligned_docs(vec![
        ("weight", weight),
        ("scale, shift", prologue),
        ("packed", packed),
    ])
}

/// The format of a tensor, as it follows its sizes.
fn format_text(format: Format) -> String {
    match format.layout {
        Layout::Nchw if format.dtype != DType::Fp32 => {
            format!("stored as NCHW in {}, dense", format.dtype.as_str())
        }
        Layout::Nchw => "NCHW".to_owned(),
        Layout::Nhwc => format!(
            "stored as NHWC in {}, {}",
            format.dtype.as_str(),
            match format.pixel_stride {
                Some(stride) => format!("pixels {stride} elements apart"),
                None => "dense".to_owned(),
            }
        ),
        Layout::Hwcn => "stored as HWCN, dense".to_owned(),
    }
}

fn launch_parameters(unit: &PlannedUnit) -> Vec<String> {
    let problem = &unit.problem;
    let variant = unit.variant();
    let tensor = |shape: TensorShape, format: Format| format!("{shape}, {}", format_text(format));
    let (x, y) = (problem.kind().input(), problem.kind().output());
    let unless_zero = |count: u64, text: String| match count {
        0 => "not used".to_owned(),
        _ => text,
    };
    let appended = problem.kind().appended_channels();
    let packed = variant.packed_len() as u64;
    let bias = u64::from(variant.bias_len);
    let mut rows = vec![
        (
            "x",
            format!("{}, aligned to 16 bytes", tensor(x.shape, x.format)),
        ),
        (
            "packed",
            unless_zero(
                packed,
                format!("{packed} values that the packers wrote, aligned to 16 bytes"),
            ),
        ),
        ("bias", unless_zero(bias, format!("{bias} values"))),
        (
            if appended > 0 {
                "concatenation"
            } else {
                "residual"
            },
            unless_zero(
                u64::from(problem.reads_residual()),
                format!(
                    "{}, {}; aligned to 16 bytes",
                    tensor(problem.residual_shape(), y.format),
                    match problem {
                        Problem::Projected(_) => "the input of the projection shortcut".to_owned(),
                        _ if appended > 0 =>
                            format!("of which the last {appended} channels are written"),
                        _ => "added".to_owned(),
                    }
                ),
            ),
        ),
        (
            "y",
            format!(
                "{}, written; aligned to 16 bytes, overlaps no input",
                tensor(y.shape, y.format)
            ),
        ),
        (
            "workspace",
            unless_zero(
                variant.workspace_bytes,
                format!("{} bytes", variant.workspace_bytes),
            ),
        ),
    ];
    if has_batch_strides(problem) {
        rows.push((
            "strides",
            "elements from one image of the batch to the next".to_owned(),
        ));
    }
    aligned_docs(rows)
}
