//! The files of a network beside its units: driver, interface, program, build file, introduction.

use super::banner::{Comment, banner};
use super::engine::{RenderError, render};
use super::text::literal;
use super::unit::takes_strides;
use super::wrap::{call, wrapped};
use crate::plan::{Layer, Location, Memory, NetworkPlan};
use crate::spec::{Problem, TensorShape};
use serde::Serialize;
use tdc_runtime::{WeightFile, WeightRegion, WeightSlot};

/// Everything that the templates of a network ask for.
#[derive(Serialize)]
struct NetworkContext {
    banner: String,
    name: String,
    /// The include guard and the prefix of macros.
    guard: String,
    #[serde(rename = "macro")]
    macro_prefix: String,
    /// Compute capability of the GPU planned for, times ten.
    arch: u16,
    min_arch: u16,
    input: TensorShape,
    output: TensorShape,
    input_text: String,
    output_text: String,
    input_size: u64,
    output_size: u64,
    input_bytes: u64,
    arena_bytes: u64,
    arena_sum_bytes: u64,
    weight_bytes: u64,
    layer_count: usize,
    unit_count: usize,
    units: Vec<String>,
    layers: Vec<LayerContext>,
    slots: Vec<SlotContext>,
    file: FileContext,
}

/// A layer's line of the table and its case of the switch.
#[derive(Serialize)]
struct LayerContext {
    name: String,
    row: String,
    call: String,
}

/// The parameters of a layer, for random ones.
#[derive(Serialize)]
struct SlotContext {
    name: String,
    row: String,
}

/// What the driver checks a weight file against.
#[derive(Serialize)]
struct FileContext {
    magic: String,
    version: u32,
    header_bytes: u64,
    payload_bytes: u64,
    layouts_checksum: String,
}

/// A file of a network that is made from one template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFile {
    /// The public header.
    Header,
    /// The driver.
    Driver,
    /// The program.
    Main,
    /// The build file.
    CMake,
    /// The introduction.
    Readme,
}

impl NetworkFile {
    fn template(self) -> &'static str {
        match self {
            Self::Header => "network/network.h",
            Self::Driver => "network/network.cu",
            Self::Main => "network/main.cu",
            Self::CMake => "network/CMakeLists.txt",
            Self::Readme => "network/README.md",
        }
    }

    fn comment(self) -> Comment {
        match self {
            Self::Header | Self::Driver | Self::Main => Comment::Cpp,
            Self::CMake => Comment::CMake,
            Self::Readme => Comment::Prose,
        }
    }
}

/// The text of one of a network's files.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context.
pub fn network_text(plan: &NetworkPlan, file: NetworkFile) -> Result<String, RenderError> {
    render(file.template(), &context(plan, file.comment()))
}

fn context(plan: &NetworkPlan, comment: Comment) -> NetworkContext {
    let title = match comment {
        Comment::Prose => Vec::new(),
        _ => vec![format!(
            "Network {}: {} -> {}, fp32 NCHW.",
            plan.name, plan.input, plan.output
        )],
    };
    let upper = plan.name.to_ascii_uppercase();
    NetworkContext {
        banner: banner(comment, &title, plan.gpu),
        name: plan.name.clone(),
        guard: format!("{upper}_H"),
        macro_prefix: upper,
        arch: plan.gpu.arch.sm,
        min_arch: plan
            .units
            .iter()
            .map(|unit| unit.variant().min_arch.sm)
            .max()
            .unwrap_or(0),
        input: plan.input,
        output: plan.output,
        input_text: plan.input.to_string(),
        output_text: plan.output.to_string(),
        input_size: plan.input.len(),
        output_size: plan.output.len(),
        input_bytes: 4 * plan.input.len(),
        arena_bytes: plan.arena_bytes,
        arena_sum_bytes: plan.arena_sum_bytes,
        weight_bytes: plan.weights.payload_bytes(),
        layer_count: plan.layers.len(),
        unit_count: plan.units.len(),
        units: plan
            .units
            .iter()
            .map(|unit| unit.unit.name.to_string())
            .collect(),
        layers: plan
            .layers
            .iter()
            .map(|layer| layer_context(plan, layer))
            .collect(),
        slots: slots(plan),
        file: file_context(&plan.weights),
    }
}

fn layer_context(plan: &NetworkPlan, layer: &Layer) -> LayerContext {
    let y = &layer.y;
    let (memory, start) = match y.memory {
        Memory::Arena { offset } => ("arena", offset / 4),
        Memory::Output | Memory::Input => ("output", 0),
    };
    let row = [
        format!("{{\"{}\"", literal(&layer.name)),
        format!("\"{}\"", literal(&layer.produces)),
        format!("Memory::{memory}"),
        (start + y.offset).to_string(),
        y.batch_stride.to_string(),
        y.shape.batch.to_string(),
        format!("{}}}", y.shape.image_len()),
    ];
    LayerContext {
        name: literal(&layer.name),
        row: wrapped(&row, 4, 5),
        call: launch_call(plan, layer),
    }
}

/// `return <unit>_launch(...);` with the layer's memory.
fn launch_call(plan: &NetworkPlan, layer: &Layer) -> String {
    let unit = &plan.units[layer.unit];
    let null = || "nullptr".to_owned();
    let (mut packed, mut bias) = (null(), null());
    if let Some((slot, region)) = layer.slot.and_then(|slot| plan.weights.iter().nth(slot)) {
        if !slot.layout.is_empty() {
            packed = at("p.weights", region.packed / 4);
        }
        if slot.bias_len > 0 {
            bias = at("p.weights", region.bias / 4);
        }
    }
    let mut arguments = vec![
        pointer(&layer.x),
        packed,
        bias,
        layer.residual.as_ref().map_or_else(null, pointer),
        pointer(&layer.y),
        layer
            .workspace
            .map_or_else(null, |offset| at("p.arena", offset / 4)),
        "stream".to_owned(),
    ];
    if takes_strides(&unit.problem) {
        let residual = layer.residual.as_ref().unwrap_or(&layer.y);
        for location in [&layer.x, residual, &layer.y] {
            arguments.push(location.batch_stride.to_string());
        }
    }
    let head = format!("return {}_launch", unit.unit.name);
    format!("{};", call(&head, &arguments, 8, 12))
}

fn pointer(location: &Location) -> String {
    match location.memory {
        Memory::Input => at("p.x", location.offset),
        Memory::Output => at("p.y", location.offset),
        Memory::Arena { offset } => at("p.arena", offset / 4 + location.offset),
    }
}

fn at(base: &str, offset: u64) -> String {
    match offset {
        0 => base.to_owned(),
        _ => format!("{base} + {offset}"),
    }
}

/// Rows of the table that random parameters are made by, in the order of the weight file.
fn slots(plan: &NetworkPlan) -> Vec<SlotContext> {
    let layers = plan.layers.iter().filter(|layer| layer.slot.is_some());
    layers
        .zip(plan.weights.iter())
        .map(|(layer, (slot, region))| {
            let unit = &plan.units[layer.unit];
            SlotContext {
                name: literal(&slot.name),
                row: slot_row(&unit.unit.name, &unit.problem, slot, region),
            }
        })
        .collect()
}

fn slot_row(unit: &str, problem: &Problem, slot: &WeightSlot, region: WeightRegion) -> String {
    let [_, i, r, s] = problem.weight();
    let fan_in = u64::from(i) * u64::from(r) * u64::from(s);
    let values = [
        format!("{{{unit}_pack"),
        slot.layout.source_len().to_string(),
        fan_in.max(1).to_string(),
        slot.layout.prologue_channels.to_string(),
        (region.packed / 4).to_string(),
        (region.bias / 4).to_string(),
        format!("{}}}", slot.bias_len),
    ];
    wrapped(&values, 4, 5)
}

fn file_context(weights: &WeightFile) -> FileContext {
    let magic: Vec<_> = WeightFile::MAGIC
        .iter()
        .map(|byte| format!("'{}'", byte.escape_ascii()))
        .collect();
    FileContext {
        magic: magic.join(", ").replace("'\\x00'", "'\\0'"),
        version: WeightFile::VERSION,
        header_bytes: WeightFile::HEADER_BYTES,
        payload_bytes: weights.payload_bytes(),
        layouts_checksum: format!("{:#018x}u", weights.layouts_checksum()),
    }
}
