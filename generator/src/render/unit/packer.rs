//! The packers of a unit: functions that bring OIHW weights into the weight layouts of its kernels.

use super::named;
use crate::ir::{Problem, TuckerProblem};
use crate::plan::PlannedUnit;
use crate::render::wrap::wrap_call;
use serde::Serialize;
use tdc_runtime::{Axis, Filter, Transform, WeightLayout};

/// A packer with its body, in the template context.
#[derive(Serialize)]
pub(super) struct PackerContext {
    signature: String,
    loops: Vec<Loop>,
    /// The statements in the innermost loop, indented.
    body: Vec<String>,
    fp16: Option<Fp16Context>,
    bf16: bool,
    winograd: Option<WinogradContext>,
    /// Names of the arrays that are copied after the weights.
    prologue: Vec<&'static str>,
    prologue_channels: u32,
}

/// One loop of a packer.
#[derive(Serialize)]
struct Loop {
    indent: String,
    variable: String,
    end: u64,
    /// The expression that advances the variable.
    step: String,
}

/// Weights as fp16 values, each output channel with a dequantisation scale.
#[derive(Serialize)]
struct Fp16Context {
    run: u32,
    /// Fp16 values for each weight: 2 with a hi/lo split.
    terms: u32,
    /// 32-bit words before the dequantisation scales.
    packed_words: usize,
    /// Output channels, without and with padding, and weights of one channel.
    n: usize,
    padded_n: usize,
    channel_len: usize,
}

/// The filter transform of Winograd's algorithm, which is applied before packing.
#[derive(Serialize)]
struct WinogradContext {
    /// Points along each axis.
    points: u32,
    /// The matrix G as integers over `denominator`: a row of three for each point.
    matrix: &'static [[i8; 3]],
    denominator: u8,
    /// Number of 3x3 filters.
    filters: usize,
}

impl PackerContext {
    pub(super) fn new(name: &str, layout: &WeightLayout) -> Self {
        let (loops, body) = packer(layout);
        let channels = layout.prologue_channels;
        Self {
            signature: pack_signature(name, layout, false),
            loops,
            body,
            fp16: Fp16Context::new(layout),
            bf16: layout.transform == Transform::Bf16,
            winograd: WinogradContext::new(layout),
            prologue: match channels {
                0 => Vec::new(),
                _ => vec!["scale", "shift"],
            },
            prologue_channels: channels,
        }
    }
}

impl Fp16Context {
    fn new(layout: &WeightLayout) -> Option<Self> {
        let Transform::Fp16 { run, terms } = layout.transform else {
            return None;
        };
        let [n, i, r, s] = layout.indexed_shape().map(|size| size as usize);
        Some(Self {
            run,
            terms,
            packed_words: layout.weight_len() - layout.dequant_scale_len(),
            n,
            padded_n: layout.dequant_scale_len(),
            channel_len: i * r * s,
        })
    }
}

impl WinogradContext {
    fn new(layout: &WeightLayout) -> Option<Self> {
        let Filter::Winograd(winograd) = layout.filter else {
            return None;
        };
        let (matrix, denominator) = winograd.filter();
        Some(Self {
            points: winograd.points(),
            matrix,
            denominator,
            filters: layout.source_len() / 9,
        })
    }
}

/// The names of a unit's packers, one for each of its layouts: one, or one for each weight of a unit of several layers or factors.
pub fn packer_names(unit: &PlannedUnit) -> Vec<String> {
    let parts: &[&str] = match &unit.problem {
        Problem::Tucker(TuckerProblem { first, next, .. }) => {
            let factors: &[&str] = &["_first", "_core", "_last", "_next"];
            &factors[usize::from(first.is_none())..factors.len() - usize::from(next.is_none())]
        }
        Problem::Cp(_) => &["_first", "_vertical", "_horizontal", "_last"],
        Problem::InvertedResidual(problem) => {
            let weights = ["_expand", "_depthwise", "_project"].into_iter();
            let biases = [
                ("_expand_bias", problem.expand.bias),
                ("_depthwise_bias", problem.filter.bias),
            ];
            let biases = biases.into_iter().filter(|&(_, has_bias)| has_bias);
            &weights
                .chain(biases.map(|(name, _)| name))
                .collect::<Vec<_>>()
        }
        Problem::DenseStep(problem) => {
            let weights: &[&str] = &["_growth", "_pointwise", "_growth_bias"];
            &weights[..weights.len() - usize::from(!problem.grown.bias)]
        }
        Problem::SqueezeExcite(problem) => {
            let weights: &[&str] = &["_squeeze", "_excite", "_squeeze_bias"];
            &weights[..weights.len() - usize::from(!problem.squeeze.bias)]
        }
        _ => &[""],
    };
    let name = &unit.unit.name;
    let names = parts.iter().map(|part| format!("{name}_pack{part}"));
    names.collect()
}

/// A packer's signature; a definition leaves out the names of parameters that it does not read.
pub(super) fn pack_signature(name: &str, layout: &WeightLayout, declaration: bool) -> String {
    let named = |name: &str, read: bool| named(name, declaration || read);
    let prologue = layout.prologue_channels > 0;
    let parameters = [
        format!("const float* {}", named("weight", layout.weight_len() > 0)),
        format!("const float* {}", named("scale", prologue)),
        format!("const float* {}", named("shift", prologue)),
        format!("float* {}", named("packed", !layout.is_empty())),
    ];
    wrap_call(&format!("void {name}"), &parameters, 0, 4)
}

/// The nested loops that walk a layout's dimensions, and the statements inside.
fn packer(layout: &WeightLayout) -> (Vec<Loop>, Vec<String>) {
    if layout.weight_len() == 0 {
        return (Vec::new(), Vec::new());
    }
    let nest = LoopNest::new(layout);
    let indent = " ".repeat(4 + 4 * nest.loops.len());
    let source = SourceElement::new(layout, &nest);
    let statements = source.statements.iter().cloned();
    let body = statements.chain(stores(layout.transform, &source.value(layout)));
    let body = body
        .map(|statement| format!("{indent}{statement}"))
        .collect();
    (nest.loops, body)
}

/// The loops over a layout's dimensions.
#[derive(Default)]
struct LoopNest {
    loops: Vec<Loop>,
    /// For each axis of the source, the variables whose sum is its index.
    variables: [Vec<String>; 4],
    /// The largest value of each sum.
    last: [u64; 4],
}

impl LoopNest {
    fn new(layout: &WeightLayout) -> Self {
        let mut nest = Self::default();
        let dims = layout.dims.iter().filter(|dim| dim.count > 1);
        for dim in dims.clone() {
            let axis = dim.axis.index();
            let letter = axis_letter(dim.axis);
            let variables = &mut nest.variables[axis];
            let variable = match dims.clone().filter(|other| other.axis == dim.axis).count() {
                1 => letter.to_owned(),
                _ => format!("{letter}{}", variables.len()),
            };
            nest.loops.push(Loop {
                indent: " ".repeat(4 + 4 * nest.loops.len()),
                end: u64::from(dim.count) * u64::from(dim.step),
                step: match dim.step {
                    1 => format!("++{variable}"),
                    step => format!("{variable} += {step}"),
                },
                variable: variable.clone(),
            });
            variables.push(variable);
            nest.last[axis] += u64::from(dim.count - 1) * u64::from(dim.step);
        }
        nest
    }
}

/// The element of the source that the innermost loop reads.
#[derive(Default)]
struct SourceElement {
    /// What computes the indices.
    statements: Vec<String>,
    /// The index along each axis that has one.
    indices: [Option<String>; 4],
    /// The conditions under which the element exists; the layout may be larger.
    conditions: Vec<String>,
}

impl SourceElement {
    fn new(layout: &WeightLayout, nest: &LoopNest) -> Self {
        let mut element = Self::default();
        let sizes = layout.indexed_shape();
        for axis in [Axis::O, Axis::I, Axis::R, Axis::S] {
            let at = axis.index();
            let index = match &nest.variables[at][..] {
                [] => continue,
                [only] => only.clone(),
                several => element.named(axis_letter(axis), &several.join(" + ")),
            };
            let output_channel = &element.indices[Axis::O.index()];
            let index = match (axis, layout.filter, output_channel) {
                (Axis::I, Filter::MergedGroups { merged, n }, Some(o)) => {
                    let size = sizes[at];
                    let in_group = format!("{index} - {o} / {n} % {merged} * {size}");
                    let comment = "// within the group; huge for channels of preceding groups";
                    element.statements.push(comment.to_owned());
                    element.named("group_i", &in_group)
                }
                _ => index,
            };
            if nest.last[at] >= u64::from(sizes[at]) {
                element.conditions.push(format!("{index} < {}", sizes[at]));
            }
            element.indices[at] = Some(index);
        }
        element
    }

    /// Declares an index; returns its name.
    fn named(&mut self, name: &str, value: &str) -> String {
        self.statements
            .push(format!("const std::size_t {name} = {value};"));
        name.to_owned()
    }

    /// The value that is packed: the weight, scaled if the layout has scales, or 0 in padding.
    fn value(&self, layout: &WeightLayout) -> String {
        let index = source_index(&self.indices, layout.indexed_shape());
        let mut weight = format!("weight[{index}]");
        if layout.dequant_scale_len() > 0 {
            let channel = self.indices[Axis::O.index()].as_deref();
            weight += &format!(" / dequant_scales[{}]", channel.unwrap_or("0"));
        }
        match &self.conditions[..] {
            [] => weight,
            conditions => format!("{} ? {weight} : 0.0f", conditions.join(" && ")),
        }
    }
}

/// The statements that append a value; those of 16 bits are collected in an array first.
fn stores(transform: Transform, value: &str) -> Vec<String> {
    let (array, len, store) = match transform {
        Transform::None => return vec![format!("*packed++ = {value};")],
        Transform::Fp16 { run, terms } => ("run", run, format!("store_fp16<{terms}>")),
        Transform::Bf16 => ("pair", 2, "store_bf16".to_owned()),
    };
    vec![
        format!("{array}[filled++] = {value};"),
        format!("if (filled == {len}) {{"),
        format!("    packed = {store}({array}, packed);"),
        "    filled = 0;".to_owned(),
        "}".to_owned(),
    ]
}

fn axis_letter(axis: Axis) -> &'static str {
    ["o", "i", "r", "s"][axis.index()]
}

/// `((o * I + i) * R + r) * S + s` without the axes that have one element.
fn source_index(indices: &[Option<String>; 4], source: [u32; 4]) -> String {
    let mut text = String::new();
    for (index, size) in indices.iter().zip(source) {
        if !text.is_empty() && size > 1 {
            // A sum needs brackets before it is multiplied.
            text = match text.contains('+') {
                true => format!("({text}) * {size}"),
                false => format!("{text} * {size}"),
            };
        }
        if let Some(index) = index {
            if text.is_empty() {
                text.clone_from(index);
            } else {
                text += &format!(" + {index}");
            }
        }
    }
    if text.is_empty() {
        text.push('0');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::plan::{Planner, plan_problem, problem_of_label};

    #[test]
    fn each_layout_has_a_packer() {
        for label in [
            "globalavgpool_c5_h7_w7",
            "conv_c5_n7_h9_w9_k3x3_bias",
            "tucker_c32_d8x8_n32_h9_w9_k3x3_p1",
            "densestep_c16_grow8_before16_n16_h9_w9_k3x3_p1_bias_concat_prologuerelu_bias",
            "densestep_c16_grow8_before16_n16_h9_w9_k3x3_p1_concat_bias",
            "invertedresidual_c16_e32_n16_h9_w9_k3x3_p1_bias_depthwise_bias_project_bias",
            "invertedresidual_c16_e32_n16_h9_w9_k3x3_p1_depthwise_bias_project",
            "squeezeexcite_c5_h9_w9_n3_gate",
            "squeezeexcite_c5_h9_w9_n3_bias_gate_bias",
        ] {
            let Some(problem) = problem_of_label(label) else {
                panic!("{label}");
            };
            let mut planner = Planner::new(gpu("h200").unwrap());
            let unit = plan_problem(&mut planner, "net", "layer", &problem, None, None).unwrap();
            let mut names = packer_names(&unit);
            let layouts = unit.variant().packed_layouts().count();
            assert_eq!(names.len(), layouts, "{label}");
            names.dedup();
            assert_eq!(names.len(), layouts, "{label}");
        }
    }
}
