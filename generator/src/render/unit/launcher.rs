//! The launcher of a unit: its signature, and the calls in its body.

use super::{has_batch_strides, named};
use crate::plan::PlannedUnit;
use crate::render::kernel::pointee;
use crate::render::wrap::wrap_call;
use serde::Serialize;
use tdc_runtime::{Arg, Launch, Step};

/// The function of the folder's device header that sets the attributes of a launch.
const SET_ATTRIBUTES: &str = "set_attributes";

/// The function of the folder's device header that sets the carve-out of a kernel.
const SET_CARVEOUT: &str = "set_carveout";

/// The launcher in the template context.
#[derive(Serialize)]
pub(super) struct LauncherContext {
    signature: String,
    /// Whether any step is a launch.
    launches: bool,
    /// Maximum number of attributes of a launch; 0 if none has any.
    attributes: usize,
    statements: Vec<LauncherCall>,
}

/// A call of the launcher that can fail, and the statements before it.
#[derive(Serialize)]
struct LauncherCall {
    setup: Vec<String>,
    /// Text before the call: `return`, or an assignment whose value is checked.
    prefix: &'static str,
    call: String,
    last: bool,
}

impl LauncherContext {
    pub(super) fn new(unit: &PlannedUnit) -> Self {
        let steps = &unit.variant().steps;
        let carveouts: Vec<_> = unit.kernels.iter().map(|kernel| kernel.carveout).collect();
        let launches: Vec<&Launch> = steps.iter().filter_map(launch_of).collect();
        Self {
            signature: launch_signature(unit, false),
            launches: !launches.is_empty(),
            attributes: launches.iter().map(|&l| attributes(l)).max().unwrap_or(0),
            statements: statements(steps, &carveouts),
        }
    }
}

/// The launcher's signature; a definition leaves out the names of parameters that it does not read.
pub(super) fn launch_signature(unit: &PlannedUnit, declaration: bool) -> String {
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
    let named = |name: &str, read: bool| named(name, declaration || read);
    let pointer =
        |kind: &str, name: &str, arg: Arg| format!("{kind}* {}", named(name, args.contains(&arg)));
    let [x_type, y_type] = [problem.kind().input(), problem.kind().output()]
        .map(|tensor| pointee(tensor.format.dtype));
    let mut parameters = vec![
        pointer(&format!("const {x_type}"), "x", Arg::X),
        pointer("const float", "packed", Arg::Packed),
        pointer("const float", "bias", Arg::Bias),
        match args.contains(&Arg::Concatenation) {
            true => pointer(y_type, "concatenation", Arg::Concatenation),
            false => pointer(&format!("const {y_type}"), "residual", Arg::Residual),
        },
        pointer(y_type, "y", Arg::Y),
        format!("void* {}", named("workspace", uses_workspace)),
        "cudaStream_t stream".to_owned(),
    ];
    if has_batch_strides(problem) {
        let strides = [
            ("x_batch_stride", Arg::XBatchStride, problem.x()),
            (
                "residual_batch_stride",
                Arg::ResidualBatchStride,
                problem.residual_shape(),
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

fn launch_of(step: &Step) -> Option<&Launch> {
    match step {
        Step::Launch(launch) => Some(launch),
        Step::Memset { .. } => None,
    }
}

/// The number of attributes that a launch has.
fn attributes(launch: &Launch) -> usize {
    usize::from(launch.pdl) + usize::from(launch.cluster_blocks() > 1)
}

/// The calls of the launcher; `carveouts` are those of its kernels, in the order of their launches.
fn statements(steps: &[Step], carveouts: &[Option<u32>]) -> Vec<LauncherCall> {
    let mut carveouts = carveouts.iter().copied();
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
                if let Some(kib) = carveouts.next().flatten() {
                    let arguments = vec![launch.kernel.to_string(), kib.to_string()];
                    calls.push((Vec::new(), SET_CARVEOUT, arguments));
                }
                let mut setup = Vec::new();
                if attributes(launch) > 0 {
                    let arguments = attribute_arguments(launch);
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

/// Arguments of the call that allows a kernel more dynamic shared memory than the default limit.
fn shared_memory_arguments(launch: &Launch) -> Vec<String> {
    vec![
        launch.kernel.to_string(),
        "cudaFuncAttributeMaxDynamicSharedMemorySize".to_owned(),
        launch.shared_bytes.to_string(),
    ]
}

/// Arguments of the call that sets the attributes of a launch.
fn attribute_arguments(launch: &Launch) -> Vec<String> {
    let mut arguments = vec![
        "&config".to_owned(),
        launch.kernel.to_string(),
        launch.pdl.to_string(),
    ];
    if launch.cluster_blocks() > 1 {
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

/// The argument for a kernel's parameter.
fn argument(arg: Arg) -> String {
    match arg {
        Arg::X => "x".to_owned(),
        Arg::Residual => "residual".to_owned(),
        Arg::Concatenation => "concatenation".to_owned(),
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

/// A pointer into the workspace, at an offset in bytes.
fn workspace(element: &str, offset: u64) -> String {
    match (element, offset) {
        ("void", 0) => "workspace".to_owned(),
        ("void", _) => format!("static_cast<char*>(workspace) + {offset}"),
        // Offsets are multiples of 256.
        (_, 0) => format!("static_cast<{element}*>(workspace)"),
        _ => format!("static_cast<{element}*>(workspace) + {}", offset / 4),
    }
}
