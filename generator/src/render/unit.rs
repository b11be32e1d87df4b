//! A unit's header and source: the kernels, their packer and their launcher.

use super::banner::{CommentStyle, banner, unit_title};
use super::engine::{RenderError, render};
use super::kernel::unit_text;
use super::wrap::{MAX_COLUMNS, wrap_call};
use crate::gpu::{Gpu, gpu};
use crate::ir::{Layout, Problem, TensorShape, TuckerProblem};
use crate::plan::PlannedUnit;
use serde::Serialize;
use tdc_runtime::{Arg, Axis, Filter, Launch, Step, Transform, WeightLayout};

/// The function of a unit's source that sets the attributes of a launch.
const SET_ATTRIBUTES: &str = "set_attributes";

#[derive(Serialize)]
struct UnitHeaderContext {
    banner: String,
    namespace: String,
    packed_floats: String,
    workspace_bytes: String,
    packers: Vec<PackerDeclaration>,
    launch: String,
    launch_parameters: Vec<ParameterDoc>,
}

/// A packer as the header has it.
#[derive(Serialize)]
struct PackerDeclaration {
    signature: String,
    parameters: Vec<ParameterDoc>,
}

/// A line of documentation.
#[derive(Serialize)]
struct ParameterDoc {
    /// Padded to the longest name.
    name: String,
    text: String,
}

#[derive(Serialize)]
struct UnitSourceContext {
    banner: String,
    namespace: String,
    header: String,
    kernels: String,
    /// One for each layout; all round weights in the same way.
    packers: Vec<PackerContext>,
    /// Whether weights are rounded to fp16 or bf16.
    fp16: Option<Fp16RunContext>,
    /// Whether filters are taken to Winograd's points, and how.
    winograd: Option<WinogradContext>,
    bf16: bool,
    launch: String,
    /// Whether any step is a launch.
    launches: bool,
    /// Most attributes of a launch; 0 when none has any.
    attributes: usize,
    /// Whether any launch has clusters.
    clusters: bool,
    /// Whether any cluster is larger than `portable_cluster`, what every GPU with clusters forms.
    large_clusters: bool,
    portable_cluster: u32,
    /// The oldest architecture whose kernels have attributes, as `ptxVersion` says it.
    attribute_arch: u16,
    statements: Vec<LauncherCall>,
}

/// What takes filters to Winograd's points, ahead of the packer.
#[derive(Serialize)]
struct WinogradContext {
    /// Outputs of a tile, and points, along each axis.
    m: u32,
    points: u32,
    /// One row of three a point, over `denominator`.
    matrix: &'static [[i8; 3]],
    denominator: u8,
}

impl WinogradContext {
    fn new(layout: &WeightLayout) -> Option<Self> {
        let Filter::Winograd(winograd) = layout.filter else {
            return None;
        };
        let (matrix, denominator) = winograd.filter();
        Some(Self {
            m: winograd.m(),
            points: winograd.points(),
            matrix,
            denominator,
        })
    }
}

/// A packer with its body.
#[derive(Serialize)]
struct PackerContext {
    signature: String,
    loops: Vec<Loop>,
    /// Inside the loops, indented.
    body: Vec<String>,
    fp16: Option<Fp16PackerContext>,
    /// Filters that are taken to Winograd's points.
    winograd: Option<usize>,
    /// Names of the arrays copied behind the weights.
    prologue: Vec<&'static str>,
    prologue_channels: u32,
}

/// A run of fp16 halves.
#[derive(Serialize)]
struct Fp16RunContext {
    run: u32,
    terms: u32,
}

/// What the packer of fp16 halves is made of.
#[derive(Serialize)]
struct Fp16PackerContext {
    run: u32,
    /// Words before the factors.
    packed_words: usize,
    /// Output channels, those covered with padding, weights of one.
    n: usize,
    padded_n: usize,
    channel_len: usize,
}

impl Fp16PackerContext {
    fn new(layout: &WeightLayout) -> Option<Self> {
        let Transform::Fp16 { run, .. } = layout.transform else {
            return None;
        };
        let [n, i, r, s] = layout.indexed_shape().map(|size| size as usize);
        Some(Self {
            run,
            packed_words: layout.weight_len() - layout.dequant_scale_len(),
            n,
            padded_n: layout.dequant_scale_len(),
            channel_len: i * r * s,
        })
    }
}

/// One loop of the packer.
#[derive(Serialize)]
struct Loop {
    indent: String,
    variable: String,
    end: u64,
    /// How the variable is advanced.
    step: String,
}

/// A call of the launcher that can fail, and what is set before it.
#[derive(Serialize)]
struct LauncherCall {
    setup: Vec<String>,
    /// What becomes of the result: `return`, or an assignment that is checked.
    prefix: &'static str,
    call: String,
    last: bool,
}

/// The header of a unit: sizes, packer and launcher, documented.
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

/// The source of a unit, which includes `header`.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn unit_source(unit: &PlannedUnit, header: &str) -> Result<String, RenderError> {
    let variant = unit.variant();
    let launches: Vec<&Launch> = variant.steps.iter().filter_map(launch_of).collect();
    let clusters = launches.iter().map(|launch| launch.cluster_blocks());
    let largest_cluster = clusters.max().unwrap_or(1);
    render(
        "unit/unit.cu",
        &UnitSourceContext {
            banner: unit_banner(unit)?,
            namespace: unit.prefix.clone(),
            header: header.to_owned(),
            kernels: unit_text(unit)?,
            packers: variant
                .packed_layouts()
                .zip(packer_names(unit))
                .map(|((_, layout), name)| packer_context(&name, layout))
                .collect(),
            fp16: match variant.weights.transform {
                Transform::Fp16 { run, terms } => Some(Fp16RunContext { run, terms }),
                _ => None,
            },
            bf16: variant.weights.transform == Transform::Bf16,
            winograd: WinogradContext::new(&variant.weights),
            launch: launch_signature(unit, false),
            launches: !launches.is_empty(),
            attributes: launches.iter().map(|&l| attributes(l)).max().unwrap_or(0),
            clusters: largest_cluster > 1,
            large_clusters: largest_cluster > Launch::MAX_PORTABLE_CLUSTER,
            portable_cluster: Launch::MAX_PORTABLE_CLUSTER,
            attribute_arch: Launch::MIN_ATTRIBUTE_ARCH.sm,
            statements: statements(&variant.steps, largest_cluster > 1),
        },
    )
}

fn unit_banner(unit: &PlannedUnit) -> Result<String, RenderError> {
    let gpus: Result<Vec<&Gpu>, _> = unit
        .unit
        .variants
        .iter()
        .map(|variant| gpu(&variant.gpu))
        .collect();
    let gpus = gpus.map_err(|error| RenderError::new("unit/unit.h", error))?;
    Ok(banner(CommentStyle::Cpp, &unit_title(unit), &gpus))
}

/// A function that returns a number.
fn constant(unit: &str, what: &str, value: u64) -> String {
    let function = format!("{unit}_{what}() {{ return {value}; }}");
    let kind = "constexpr std::size_t";
    if kind.len() + 1 + function.len() <= MAX_COLUMNS {
        format!("{kind} {function}")
    } else {
        format!("{kind}\n{function}")
    }
}

/// Whether a unit's launcher takes batch strides.
pub fn has_batch_strides(problem: &Problem) -> bool {
    problem.x().batch > 1
        && !(problem.conv().is_some() && problem.x_layout() == Layout::Hwcn)
}

/// The names of a unit's packers: one, or one for each factor of a Tucker or CP layer.
pub fn packer_names(unit: &PlannedUnit) -> Vec<String> {
    let parts: &[&str] = match &unit.problem {
        Problem::Tucker(TuckerProblem { first, next, .. }) => {
            let factors: &[&str] = &["_first", "_core", "_last", "_next"];
            &factors[usize::from(first.is_none())..factors.len() - usize::from(next.is_none())]
        }
        Problem::Cp(_) => &["_first", "_vertical", "_horizontal", "_last"],
        _ => &[""],
    };
    let name = &unit.unit.name;
    let names = parts.iter().map(|part| format!("{name}_pack{part}"));
    names.collect()
}

fn packer_context(name: &str, layout: &WeightLayout) -> PackerContext {
    let (loops, body) = packer(layout);
    let channels = layout.prologue_channels;
    PackerContext {
        signature: pack_signature(name, layout, false),
        loops,
        body,
        fp16: Fp16PackerContext::new(layout),
        winograd: WinogradContext::new(layout).map(|_| layout.source_len() / 9),
        prologue: if channels > 0 {
            vec!["scale", "shift"]
        } else {
            Vec::new()
        },
        prologue_channels: channels,
    }
}

/// A packer's signature; a definition leaves out the names of parameters that it does not read.
fn pack_signature(name: &str, layout: &WeightLayout, declaration: bool) -> String {
    let named = |name: &str, read: bool| match declaration || read {
        true => name.to_owned(),
        false => format!("/*{name}*/"),
    };
    let prologue = layout.prologue_channels > 0;
    let parameters = [
        format!("const float* {}", named("weight", layout.weight_len() > 0)),
        format!("const float* {}", named("scale", prologue)),
        format!("const float* {}", named("shift", prologue)),
        format!("float* {}", named("packed", !layout.is_empty())),
    ];
    wrap_call(&format!("void {name}"), &parameters, 0, 4)
}

/// The launcher's signature, likewise.
fn launch_signature(unit: &PlannedUnit, declaration: bool) -> String {
    let variant = unit.variant();
    let problem = &unit.problem;
    let mut args = Vec::new();
    for step in variant.steps.iter() {
        match step {
            Step::Launch(launch) => args.extend(launch.args.iter().copied()),
            Step::Memset { target, .. } => args.push(*target),
        }
    }
    let uses_workspace = args.iter().any(|arg| matches!(arg, Arg::Workspace { .. }));
    let named = |name: &str, read: bool| match declaration || read {
        true => name.to_owned(),
        false => format!("/*{name}*/"),
    };
    let pointer =
        |kind: &str, name: &str, arg: Arg| format!("{kind}* {}", named(name, args.contains(&arg)));
    let mut parameters = vec![
        pointer("const float", "x", Arg::X),
        pointer("const float", "packed", Arg::Packed),
        pointer("const float", "bias", Arg::Bias),
        pointer("const float", "residual", Arg::Residual),
        pointer("float", "y", Arg::Y),
        format!("void* {}", named("workspace", uses_workspace)),
        "cudaStream_t stream".to_owned(),
    ];
    if has_batch_strides(problem) {
        let strides = [
            ("x_batch_stride", Arg::XBatchStride, problem.x()),
            (
                "residual_batch_stride",
                Arg::ResidualBatchStride,
                problem.epilogue_shape(),
            ),
            ("y_batch_stride", Arg::YBatchStride, problem.y()),
        ];
        for (name, arg, shape) in strides {
            let name = named(name, args.contains(&arg));
            parameters.push(if declaration {
                format!("long long {name} = {}", shape.image_len())
            } else {
                format!("long long {name}")
            });
        }
    }
    wrap_call(
        &format!("cudaError_t {}_launch", unit.unit.name),
        &parameters,
        0,
        4,
    )
}

fn aligned_docs(rows: Vec<(&str, String)>) -> Vec<ParameterDoc> {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let padded = |(name, text)| ParameterDoc {
        name: format!("{name:width$}"),
        text,
    };
    rows.into_iter().map(padded).collect()
}

/// Of a layout whose block begins so many values into what the kernel is given.
fn pack_parameters(layout: &WeightLayout, at: usize) -> Vec<ParameterDoc> {
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
            "{} values, written: from {at} on of what the kernel reads",
            layout.len()
        ),
    };
    aligned_docs(vec![
        ("weight", weight),
        ("scale, shift", prologue),
        ("packed", packed),
    ])
}

/// The order of a tensor's elements, behind its sizes.
fn layout_text(layout: Layout) -> &'static str {
    match layout {
        Layout::Nchw => "NCHW",
        Layout::Hwcn => "lying HWCN, dense",
    }
}

fn launch_parameters(unit: &PlannedUnit) -> Vec<ParameterDoc> {
    let problem = &unit.problem;
    let variant = unit.variant();
    let tensor = |shape: TensorShape, layout: Layout| format!("{shape}, {}", layout_text(layout));
    let unless_zero = |count: u64, text: String| match count {
        0 => "not used".to_owned(),
        _ => text,
    };
    let packed = variant.packed_len() as u64;
    let bias = u64::from(variant.bias_len);
    let mut rows = vec![
        (
            "x",
            format!(
                "{}, aligned to 16 bytes",
                tensor(problem.x(), problem.x_layout())
            ),
        ),
        (
            "packed",
            unless_zero(
                packed,
                format!("{packed} values as the packer wrote them, aligned to 16 bytes"),
            ),
        ),
        ("bias", unless_zero(bias, format!("{bias} values"))),
        (
            "residual",
            unless_zero(
                u64::from(problem.reads_residual()),
                format!(
                    "{}, added; aligned likewise",
                    tensor(problem.epilogue_shape(), problem.y_layout())
                ),
            ),
        ),
        (
            "y",
            format!(
                "{}, written; aligned likewise, overlaps nothing that is read",
                tensor(problem.y(), problem.y_layout())
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

/// The nested loops that walk a layout's dimensions, and the statements inside.
fn packer(layout: &WeightLayout) -> (Vec<Loop>, Vec<String>) {
    if layout.weight_len() == 0 {
        return (Vec::new(), Vec::new());
    }
    let sizes = layout.indexed_shape();
    let mut loops: Vec<Loop> = Vec::new();
    // For each axis of the source the variables that add up to its index, and the largest index they reach.
    let mut variables: [Vec<String>; 4] = Default::default();
    let mut last = [0u64; 4];
    for dim in layout.dims.iter().filter(|dim| dim.count > 1) {
        let axis = dim.axis.index();
        let letter = axis_letter(dim.axis);
        let splits = layout
            .dims
            .iter()
            .filter(|other| other.axis == dim.axis && other.count > 1)
            .count();
        let variable = match splits {
            1 => letter.to_owned(),
            _ => format!("{letter}{}", variables[axis].len()),
        };
        loops.push(Loop {
            indent: " ".repeat(4 + 4 * loops.len()),
            end: u64::from(dim.count) * u64::from(dim.step),
            step: match dim.step {
                1 => format!("++{variable}"),
                step => format!("{variable} += {step}"),
            },
            variable: variable.clone(),
        });
        variables[axis].push(variable);
        last[axis] += u64::from(dim.count - 1) * u64::from(dim.step);
    }
    let indent = " ".repeat(4 + 4 * loops.len());
    let mut body = Vec::new();
    let mut indices: [Option<String>; 4] = Default::default();
    let mut inside = Vec::new();
    for axis in [Axis::O, Axis::I, Axis::R, Axis::S] {
        let parts = &variables[axis.index()];
        let index = match &parts[..] {
            [] => continue,
            [only] => only.clone(),
            several => {
                let name = axis_letter(axis).to_owned();
                body.push(format!(
                    "{indent}const std::size_t {name} = {};",
                    several.join(" + ")
                ));
                name
            }
        };
        let size = sizes[axis.index()];
        if last[axis.index()] >= u64::from(size) {
            inside.push(format!("{index} < {size}"));
        }
        indices[axis.index()] = Some(index);
    }
    let mut element = format!("weight[{}]", source_index(&indices, sizes));
    if layout.dequant_scale_len() > 0 {
        element += &match &indices[Axis::O.index()] {
            Some(o) => format!(" / dequant_scales[{o}]"),
            None => " / dequant_scales[0]".to_owned(),
        };
    }
    let value = if inside.is_empty() {
        element
    } else {
        format!("{} ? {element} : 0.0f", inside.join(" && "))
    };
    let store_when_full = |array, len: u32, store| {
        [
            format!("{indent}{array}[filled++] = {value};"),
            format!("{indent}if (filled == {len}) {{"),
            format!("{indent}    packed = {store}({array}, packed);"),
            format!("{indent}    filled = 0;"),
            format!("{indent}}}"),
        ]
    };
    match layout.transform {
        Transform::None => body.push(format!("{indent}*packed++ = {value};")),
        Transform::Fp16 { run, .. } => body.extend(store_when_full("run", run, "store_fp16")),
        Transform::Bf16 => body.extend(store_when_full("pair", 2, "store_bf16")),
    }
    (loops, body)
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

fn launch_of(step: &Step) -> Option<&Launch> {
    match step {
        Step::Launch(launch) => Some(launch),
        Step::Memset { .. } => None,
    }
}

/// How many attributes a launch has.
fn attributes(launch: &Launch) -> usize {
    usize::from(launch.pdl) + usize::from(launch.cluster_blocks() > 1)
}

/// The calls of the launcher. `clusters` says whether the function that sets attributes takes a cluster.
fn statements(steps: &[Step], clusters: bool) -> Vec<LauncherCall> {
    let mut calls: Vec<(Vec<String>, &str, Vec<String>)> = Vec::new();
    let mut shared = 0;
    let mut attributes_set = false;
    for step in steps {
        match step {
            Step::Memset { target, bytes } => {
                let memory = match *target {
                    Arg::Workspace { offset } => workspace("void", offset),
                    target => argument(target),
                };
                let arguments = vec![
                    memory,
                    "0".to_owned(),
                    bytes.to_string(),
                    "stream".to_owned(),
                ];
                calls.push((Vec::new(), "cudaMemsetAsync", arguments));
            }
            Step::Launch(launch) => {
                if launch.shared_bytes > Launch::DEFAULT_MAX_SHARED_BYTES {
                    calls.push((
                        Vec::new(),
                        "cudaFuncSetAttribute",
                        shared_memory_arguments(launch),
                    ));
                }
                let mut setup = Vec::new();
                if attributes(launch) > 0 {
                    let arguments = attribute_arguments(launch, clusters);
                    calls.push((Vec::new(), SET_ATTRIBUTES, arguments));
                    attributes_set = true;
                } else if attributes_set {
                    setup.push("config.numAttrs = 0;".to_owned());
                    attributes_set = false;
                }
                setup.extend([
                    format!("config.gridDim = {};", dim3(launch.grid)),
                    format!("config.blockDim = {};", dim3(launch.block)),
                ]);
                if launch.shared_bytes != shared {
                    shared = launch.shared_bytes;
                    setup.push(format!("config.dynamicSmemBytes = {shared};"));
                }
                let mut arguments = vec!["&config".to_owned(), launch.kernel.to_string()];
                arguments.extend(launch.args.iter().map(|&arg| argument(arg)));
                calls.push((setup, "cudaLaunchKernelEx", arguments));
            }
        }
    }
    let count = calls.len();
    let statement =
        |(index, (setup, function, arguments)): (usize, (Vec<String>, &str, Vec<String>))| {
            let last = index + 1 == count;
            let prefix = match (last, index) {
                (true, _) => "return ",
                (false, 0) => "cudaError_t error = ",
                _ => "error = ",
            };
            LauncherCall {
                setup,
                prefix,
                call: wrap_call(function, &arguments, 4 + prefix.len(), 8),
                last,
            }
        };
    calls.into_iter().enumerate().map(statement).collect()
}

/// Arguments of the call that lets a kernel have more shared memory than all may.
fn shared_memory_arguments(launch: &Launch) -> Vec<String> {
    vec![
        launch.kernel.to_string(),
        "cudaFuncAttributeMaxDynamicSharedMemorySize".to_owned(),
        launch.shared_bytes.to_string(),
    ]
}

/// Arguments of the call that sets the attributes of a launch.
fn attribute_arguments(launch: &Launch, clusters: bool) -> Vec<String> {
    let mut arguments = vec!["&config".to_owned(), launch.kernel.to_string()];
    if clusters {
        arguments.push(launch.pdl.to_string());
        arguments.push(dim3(launch.cluster));
    }
    arguments
}

fn dim3([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => format!("dim3({x})"),
        (_, 1) => format!("dim3({x}, {y})"),
        _ => format!("dim3({x}, {y}, {z})"),
    }
}

/// What a kernel's parameter is given.
fn argument(arg: Arg) -> String {
    match arg {
        Arg::X => "x".to_owned(),
        Arg::Residual => "residual".to_owned(),
        Arg::Packed => "packed".to_owned(),
        Arg::PackedAt { offset } => format!("packed + {}", offset / 4),
        Arg::Bias => "bias".to_owned(),
        Arg::Y => "y".to_owned(),
        Arg::Workspace { offset } => workspace("float", offset),
        Arg::XBatchStride => "x_batch_stride".to_owned(),
        Arg::ResidualBatchStride => "residual_batch_stride".to_owned(),
        Arg::YBatchStride => "y_batch_stride".to_owned(),
        Arg::Elements { count } => count.to_string(),
    }
}

/// A pointer into the workspace, `offset` bytes in.
fn workspace(element: &str, offset: u64) -> String {
    match (element, offset) {
        ("void", 0) => "workspace".to_owned(),
        ("void", _) => format!("static_cast<char*>(workspace) + {offset}"),
        // Offsets are multiples of 256.
        (_, 0) => format!("static_cast<{element}*>(workspace)"),
        _ => format!("static_cast<{element}*>(workspace) + {}", offset / 4),
    }
}
