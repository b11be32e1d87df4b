//! The files of a network in addition to its units: driver, interface, program, build file, README.

use super::architectures::Architectures;
use super::banner::{CommentStyle, banner, gpu_titles};
use super::cuda_version::cuda_versions;
use super::device_header::device_header_name;
use super::engine::{RenderError, render};
use super::kernel::pointee;
use super::text::{literal, markdown_cell};
use super::unit::{has_batch_strides, packer_names};
use super::wrap::{wrap_call, wrap_list};
use crate::gpu::Gpu;
use crate::ir::{DType, Format, Layout, TensorShape};
use crate::plan::{
    BatchSchedule, LayerPlan, Location, Memory, NetworkPlan, PlannedTensor, TENSOR_ALIGNMENT,
    distinct_units, plans_by_gpu,
};
use serde::Serialize;
use std::collections::BTreeSet;
use tdc_runtime::{WeightFile, WeightRegion, WeightSlot};

/// The context of the templates of a network.
#[derive(Serialize)]
struct NetworkContext {
    banner: String,
    name: String,
    /// The include guard and the prefix of macros.
    guard: String,
    #[serde(rename = "macro")]
    macro_prefix: String,
    /// The CUDA toolkits that support it.
    cuda_versions: &'static str,
    /// nvcc options for the architectures.
    nvcc_arch: String,
    /// The same, one by one.
    nvcc_options: Vec<String>,
    /// CMake options for the architectures.
    cmake_arch: String,
    input_text: String,
    output_text: String,
    /// The largest batch.
    batch: u32,
    /// Whether there are plans for several batches.
    multi_batch: bool,
    /// The batches in a list.
    batches: String,
    inputs: Vec<TensorContext>,
    outputs: Vec<TensorContext>,
    /// Whether there is one input and one output; the interface then has simpler calls.
    single: bool,
    /// Alignment of inputs and outputs, bytes.
    tensor_alignment: u64,
    device_header: String,
    /// Names of the units of all variants.
    units: Vec<String>,
    variants: Vec<VariantContext>,
    /// Whether the driver has to choose among variants.
    multi_variant: bool,
    /// The variants' names in a list.
    variant_names: String,
    /// Whether any variant has parameters.
    has_slots: bool,
    /// Whether any layer's output is stored as HWCN.
    has_hwcn: bool,
    /// Whether any activation tensor is fp16 NHWC.
    has_fp16: bool,
    /// Whether any variant has several branches.
    has_branches: bool,
    /// Number of branches beside the caller's stream, and of events, of the variant that has the most.
    side_branches: usize,
    events: usize,
    file: WeightFileContext,
}

/// An input or output of the network.
#[derive(Serialize)]
struct TensorContext {
    /// Its row of the table, in C++ and in C.
    cpp: String,
    c: String,
    name: String,
    /// A Python name for it.
    identifier: String,
    /// Batch, channels, height and width, separated by commas.
    sizes: String,
    /// The name in a table of a README.
    markdown: String,
    dtype: &'static str,
    layout: &'static str,
    shape: String,
    bytes: u64,
}

impl TensorContext {
    /// An fp32 tensor in NCHW, of the network `network`.
    fn new(network: &str, name: &str, shape: TensorShape) -> Self {
        let (dtype, layout, element_bytes) = ("fp32", "nchw", 4);
        let bytes = element_bytes * shape.len();
        let row = |dtype: String, layout: String| {
            let TensorShape { batch, c, h, w } = shape;
            let size = shape.len();
            let name = literal(name);
            format!("{{\"{name}\", {dtype}, {layout}, {batch}, {c}, {h}, {w}, {size}, {bytes}}}")
        };
        Self {
            cpp: row(format!("DType::{dtype}"), format!("Layout::{layout}")),
            c: row(format!("{network}_{dtype}"), format!("{network}_{layout}")),
            name: literal(name),
            identifier: python_identifier(name),
            sizes: [shape.batch, shape.c, shape.h, shape.w]
                .map(|size| size.to_string())
                .join(", "),
            markdown: markdown_cell(name),
            dtype,
            layout,
            shape: shape.to_string(),
            bytes,
        }
    }
}

/// A Python name from the name of a tensor.
fn python_identifier(name: &str) -> String {
    let letters = name.chars();
    let letters = letters.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let name: String = letters.collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// The tables of one variant.
#[derive(Serialize)]
struct VariantContext {
    /// The GPU's name: that of the variant and of its namespace.
    gpu: &'static str,
    /// Title of the GPU.
    title: String,
    min_arch: u16,
    arena_bytes: u64,
    /// The same without reuse, of the plan for the largest batch.
    arena_bytes_without_reuse: u64,
    payload_bytes: u64,
    layouts_checksum: String,
    /// Layers of the plan for the largest batch.
    layer_count: usize,
    /// One for each batch, ascending.
    plans: Vec<PlanContext>,
    /// If there are several plans.
    schedule: Option<ScheduleContext>,
    slots: Vec<SlotContext>,
    /// Its row of the table of variants.
    row: String,
}

/// The tables of one plan.
#[derive(Serialize)]
struct PlanContext {
    batch: u32,
    layers: Vec<NetworkLayerContext>,
    /// Number of branches beside the caller's stream.
    side_branches: usize,
    /// The rows of the table of waits.
    waits: String,
    /// Its row of the table of plans, without the namespace of its variant.
    row: String,
}

/// The tables by which a driver with several plans chooses among them.
#[derive(Serialize)]
struct ScheduleContext {
    /// For 1, 2, ... images that are left, the index of the plan.
    next: String,
    /// Offsets in the arena of copies of inputs and outputs, in floats.
    input_copies: String,
    output_copies: String,
}

/// A layer's row of the tables and its case of the switch.
#[derive(Serialize)]
struct NetworkLayerContext {
    name: String,
    /// The name in a table of a README.
    markdown: String,
    scheme: &'static str,
    /// The name of its unit.
    unit: String,
    row: String,
    call: String,
}

/// The parameters of a layer, for a program that generates random ones.
#[derive(Serialize)]
struct SlotContext {
    name: String,
    row: String,
}

/// The constants of the weight file's format.
#[derive(Serialize)]
struct WeightFileContext {
    magic: String,
    version: u32,
    header_bytes: u64,
    alignment: u64,
}

/// A file of a network that one template renders.
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
    /// The README.
    Readme,
    /// The Python module that runs the network on PyTorch's tensors.
    Python,
}

impl NetworkFile {
    fn template(self) -> &'static str {
        match self {
            Self::Header => "network/network.h",
            Self::Driver => "network/network.cu",
            Self::Main => "network/main.cu",
            Self::CMake => "network/CMakeLists.txt",
            Self::Readme => "network/README.md",
            Self::Python => "network/network.py",
        }
    }

    fn comment(self) -> CommentStyle {
        match self {
            Self::Header | Self::Driver | Self::Main => CommentStyle::Cpp,
            Self::CMake => CommentStyle::CMake,
            Self::Readme | Self::Python => CommentStyle::Prose,
        }
    }
}

/// The text of one of a network's files; `plans` are those of its variants, at least one.
///
/// # Errors
/// [`RenderError`] for a template that does not fit its context, and when there is no plan.
pub fn network_text(plans: &[NetworkPlan], file: NetworkFile) -> Result<String, RenderError> {
    let Some(first) = plans.first() else {
        return Err(RenderError::new(file.template(), "there is no plan"));
    };
    render(file.template(), &context(first, plans, file.comment()))
}

fn context(first: &NetworkPlan, plans: &[NetworkPlan], comment: CommentStyle) -> NetworkContext {
    let title = match comment {
        CommentStyle::Prose => Vec::new(),
        _ => vec![format!(
            "Network {}: {} -> {}, fp32 NCHW.",
            first.name,
            tensor_shapes(plans, |plan| plan.input_shapes()),
            tensor_shapes(plans, |plan| plan.output_shapes())
        )],
    };
    let upper = first.name.to_ascii_uppercase();
    let gpus: Vec<&Gpu> = plans_by_gpu(plans)
        .iter()
        .map(|plans| plans[0].gpu)
        .collect();
    let archs = Architectures::new(&gpus, plans.iter().flat_map(|plan| &plan.units));
    let names: Vec<_> = gpus.iter().map(|gpu| gpu.name).collect();
    let has_slots = plans
        .iter()
        .any(|plan| plan.weights.iter().next().is_some());
    let mut layers = plans.iter().flat_map(|plan| &plan.layers);
    let has_hwcn = layers
        .clone()
        .any(|layer| layer.y.format.layout == Layout::Hwcn);
    let has_fp16 = layers.any(|layer| layer.y.format == Format::FP16_NHWC);
    let side_branches = plans.iter().map(|plan| plan.branches() - 1).max();
    let side_branches = side_branches.unwrap_or(0);
    let events = plans.iter().map(|plan| awaited(plan).len()).max();
    let optional = OptionalColumns {
        slots: has_slots,
        hwcn: has_hwcn,
        fp16: has_fp16,
        branches: side_branches > 0,
    };
    let by_gpu = plans_by_gpu(plans);
    let largest = by_gpu[0].last().unwrap_or(first);
    let batches: Vec<_> = by_gpu[0]
        .iter()
        .map(|plan| plan.batch().to_string())
        .collect();
    let tensor =
        |tensor: &PlannedTensor| TensorContext::new(&first.name, &tensor.name, tensor.shape);
    let inputs: Vec<_> = largest.inputs.iter().map(tensor).collect();
    let outputs: Vec<_> = largest.outputs.iter().map(tensor).collect();
    NetworkContext {
        banner: banner(comment, &title, &gpus),
        name: first.name.clone(),
        guard: format!("{upper}_H"),
        macro_prefix: upper,
        cuda_versions: cuda_versions(gpus.iter().map(|gpu| gpu.arch.sm)),
        nvcc_options: archs.nvcc().split(' ').map(str::to_owned).collect(),
        nvcc_arch: archs.nvcc(),
        cmake_arch: archs.cmake(),
        input_text: tensor_shapes(plans, |plan| plan.input_shapes()),
        output_text: tensor_shapes(plans, |plan| plan.output_shapes()),
        batch: largest.batch(),
        multi_batch: is_multi_batch(plans),
        batches: batches.join(", "),
        single: inputs.len() == 1 && outputs.len() == 1,
        inputs,
        outputs,
        tensor_alignment: TENSOR_ALIGNMENT,
        device_header: device_header_name(&first.name),
        units: distinct_units(plans)
            .iter()
            .map(|unit| unit.unit.name.to_string())
            .collect(),
        multi_variant: by_gpu.len() > 1,
        variants: by_gpu
            .into_iter()
            .map(|plans| variant_context(plans, &optional))
            .collect(),
        variant_names: names.join(", "),
        has_slots,
        has_hwcn,
        has_fp16,
        has_branches: optional.branches,
        side_branches,
        events: events.unwrap_or(0),
        file: file_context(),
    }
}

/// The columns of tables that only some networks have.
struct OptionalColumns {
    slots: bool,
    hwcn: bool,
    fp16: bool,
    branches: bool,
}

/// The layers that layers of other branches wait for, ascending: each has an event.
fn awaited(plan: &NetworkPlan) -> Vec<usize> {
    let waits = plan.layers.iter().flat_map(|layer| &layer.waits);
    let layers: BTreeSet<usize> = waits.chain(&plan.ends).copied().collect();
    layers.into_iter().collect()
}

/// The rows of the table of waits, in lines; empty if there is none.
fn waits_table(plan: &NetworkPlan) -> String {
    let end = (plan.layers.len(), &plan.ends);
    let layers = plan.layers.iter().enumerate();
    let layers = layers.map(|(index, layer)| (index, &layer.waits));
    let rows = layers.chain([end]).flat_map(|(layer, others)| {
        others
            .iter()
            .map(move |other| format!("{{{layer}, {other}}}"))
    });
    wrap_list(&rows.collect::<Vec<_>>(), 4, 4)
}

/// Whether there are plans for several batches.
fn is_multi_batch(plans: &[NetworkPlan]) -> bool {
    plans.windows(2).any(|pair| pair[0].gpu == pair[1].gpu)
}

/// The shapes of inputs or outputs, for the largest batch.
fn tensor_shapes(plans: &[NetworkPlan], shapes: impl Fn(&NetworkPlan) -> String) -> String {
    let largest = plans.iter().max_by_key(|plan| plan.batch());
    largest.map(shapes).unwrap_or_default()
}

/// `plans` are those of one GPU, by ascending batch.
fn variant_context(plans: &[NetworkPlan], optional: &OptionalColumns) -> VariantContext {
    let (first, largest) = (&plans[0], &plans[plans.len() - 1]);
    let gpu = first.gpu;
    let units = plans.iter().flat_map(|plan| &plan.units);
    let min_arch = units.map(|unit| unit.variant().min_arch.sm).max();
    let min_arch = min_arch.unwrap_or(0);
    let slots = slots(plans);
    // A single plan is only run as a whole.
    let schedule = is_multi_batch(plans).then(|| BatchSchedule::new(plans));
    let arena_bytes = match &schedule {
        Some(schedule) => schedule.arena_bytes,
        None => first.arena_bytes,
    };
    let own = |name: &str| format!("{}::{name}", gpu.name);
    let mut row = vec![
        format!("{{\"{}\"", gpu.name),
        format!("\"{}\"", literal(gpu.device_name)),
        gpu.arch.sm.to_string(),
        min_arch.to_string(),
        own("arena_bytes"),
        own("payload_bytes"),
        own("layouts_checksum"),
    ];
    if optional.slots {
        row.extend(match slots.is_empty() {
            true => ["nullptr".to_owned(), "0".to_owned()],
            false => [own("slots"), own("slots_size")],
        });
    }
    match is_multi_batch(plans) {
        true => {
            let tables = ["plans", "next_plan", "input_copies", "output_copies"];
            row.extend(tables.map(own));
        }
        false => row.extend(plan_columns(first, optional, own)),
    }
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let plan_contexts = plans.iter().map(|plan| plan_context(plan, optional));
    VariantContext {
        gpu: gpu.name,
        title: gpu_titles(&[gpu]),
        min_arch,
        arena_bytes,
        arena_bytes_without_reuse: largest.arena_bytes_without_reuse,
        payload_bytes: first.weights.payload_bytes(),
        layouts_checksum: format!("{:#018x}u", first.weights.layouts_checksum()),
        layer_count: largest.layers.len(),
        plans: plan_contexts.collect(),
        schedule: schedule.as_ref().map(schedule_context),
        slots,
        row: wrap_list(&row, 4, 5),
    }
}

/// The columns of the table of plans, or of variants with one plan each: names of the plan's own tables, as `own` qualifies them.
fn plan_columns(
    plan: &NetworkPlan,
    optional: &OptionalColumns,
    own: impl Fn(&str) -> String,
) -> Vec<String> {
    let mut columns = vec![own("layers"), own("layers_size")];
    if optional.branches {
        columns.push(own("side_branches"));
        columns.extend(match waits_table(plan).is_empty() {
            true => ["nullptr".to_owned(), "0".to_owned()],
            false => [own("waits"), own("waits_size")],
        });
    }
    columns.push(own("launch"));
    columns
}

fn plan_context(plan: &NetworkPlan, optional: &OptionalColumns) -> PlanContext {
    let batch = plan.batch();
    let own = |name: &str| format!("batch{batch}::{name}");
    let mut row = vec![format!("{{{batch}")];
    row.extend(plan_columns(plan, optional, own));
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let awaited = awaited(plan);
    let layers = plan.layers.iter().enumerate().map(|(index, layer)| {
        let event = awaited.binary_search(&index).ok();
        layer_context(plan, layer, event, optional)
    });
    PlanContext {
        batch,
        layers: layers.collect(),
        side_branches: plan.branches() - 1,
        waits: waits_table(plan),
        row: wrap_list(&row, 4, 5),
    }
}

fn schedule_context(schedule: &BatchSchedule) -> ScheduleContext {
    let list = |values: Vec<String>| wrap_list(&values, 4, 4);
    // A tensor that is never copied has no use for an offset.
    let offsets = |copies: &[Option<u64>]| {
        let offsets = copies.iter().map(|bytes| bytes.unwrap_or(0) / 4);
        list(offsets.map(|offset| offset.to_string()).collect())
    };
    ScheduleContext {
        next: list(schedule.next.iter().map(usize::to_string).collect()),
        input_copies: offsets(&schedule.input_copies),
        output_copies: offsets(&schedule.output_copies),
    }
}

/// `event` is the index of the event that is recorded after the layer.
fn layer_context(
    plan: &NetworkPlan,
    layer: &LayerPlan,
    event: Option<usize>,
    optional: &OptionalColumns,
) -> NetworkLayerContext {
    let y = &layer.y;
    let (output, start) = match y.memory {
        Memory::Arena { offset } => (None, offset / 4),
        Memory::Output { index } => (Some(index), 0),
        // No layer writes an input.
        Memory::Input { .. } => (None, 0),
    };
    // A layer that writes a whole output of the network writes it by its name in the interface.
    let whole = output
        .and_then(|index| plan.outputs.get(index))
        .filter(|output| output.shape == y.shape);
    let output_name = whole.map_or(&layer.output_op, |output| &output.name);
    let mut row = vec![
        format!("{{\"{}\"", literal(&layer.name)),
        format!("\"{}\"", literal(output_name)),
        output.map_or_else(|| "-1".to_owned(), |index| index.to_string()),
        (start + y.offset).to_string(),
        y.batch_stride.to_string(),
        y.shape.batch.to_string(),
        y.shape.image_len().to_string(),
    ];
    if optional.hwcn {
        row.push(channels_if(y, y.format.layout == Layout::Hwcn));
    }
    if optional.fp16 {
        row.push(channels_if(y, y.format == Format::FP16_NHWC));
    }
    if optional.branches {
        row.push(layer.branch.to_string());
        row.push(event.map_or_else(|| "-1".to_owned(), |event| event.to_string()));
    }
    if let Some(last) = row.last_mut() {
        last.push('}');
    }
    let unit = &plan.units[layer.unit];
    NetworkLayerContext {
        name: literal(&layer.name),
        markdown: markdown_cell(&layer.name),
        scheme: unit.scheme,
        unit: unit.unit.name.to_string(),
        row: wrap_list(&row, 4, 5),
        call: launch_call(plan, layer),
    }
}

/// The channels of a location, or 0.
fn channels_if(location: &Location, condition: bool) -> String {
    let channels = if condition { location.shape.c } else { 0 };
    channels.to_string()
}

/// `return <unit>_launch(...);` with the layer's memory.
fn launch_call(plan: &NetworkPlan, layer: &LayerPlan) -> String {
    let unit = &plan.units[layer.unit];
    let null = || "nullptr".to_owned();
    let parameter =
        |place: Option<u64>| place.map_or_else(null, |place| at("p.weights", place / 4));
    let (packed, bias) = plan.parameter_offsets(layer);
    let mut arguments = vec![
        pointer(&layer.x, "const "),
        parameter(packed),
        parameter(bias),
        layer
            .residual
            .as_ref()
            .map_or_else(null, |residual| pointer(residual, "const ")),
        pointer(&layer.y, ""),
        layer
            .workspace
            .map_or_else(null, |offset| at("p.arena", offset / 4)),
        "stream".to_owned(),
    ];
    if has_batch_strides(&unit.problem) {
        let residual = layer.residual.as_ref().unwrap_or(&layer.y);
        for location in [&layer.x, residual, &layer.y] {
            arguments.push(location.batch_stride.to_string());
        }
    }
    let head = format!("return {}_launch", unit.unit.name);
    format!("{};", wrap_call(&head, &arguments, 8, 12))
}

fn pointer(location: &Location, qualifier: &str) -> String {
    let address = match location.memory {
        Memory::Input { index } => at(&format!("p.input({index})"), location.offset),
        Memory::Output { index } => at(&format!("p.output({index})"), location.offset),
        // Tensors of other types than fp32 are no views, so their offset is 0.
        Memory::Arena { offset } => at("p.arena", offset / 4 + location.offset),
    };
    match location.format.dtype {
        DType::Fp32 => address,
        dtype => format!(
            "reinterpret_cast<{qualifier}{}*>({address})",
            pointee(dtype)
        ),
    }
}

fn at(base: &str, offset: u64) -> String {
    match offset {
        0 => base.to_owned(),
        _ => format!("{base} + {offset}"),
    }
}

/// Rows of the table by which random parameters are generated, in weight file order. `plans` have one weight file.
fn slots(plans: &[NetworkPlan]) -> Vec<SlotContext> {
    let slots: Vec<_> = plans[0].weights.iter().collect();
    let mut packers: Vec<Option<String>> = vec![None; slots.len()];
    for plan in plans {
        for layer in &plan.layers {
            let names = packer_names(&plan.units[layer.unit]);
            for (&slot, name) in layer.slots.iter().zip(names) {
                packers[slot].get_or_insert(name);
            }
        }
    }
    let rows = packers.into_iter().zip(slots);
    rows.filter_map(|(packer, (slot, region))| {
        Some(SlotContext {
            name: literal(&slot.name),
            row: slot_row(&packer?, slot, region),
        })
    })
    .collect()
}

fn slot_row(packer: &str, slot: &WeightSlot, region: WeightRegion) -> String {
    let [_, i, r, s] = slot.layout.source;
    let fan_in = u64::from(i) * u64::from(r) * u64::from(s);
    let values = [
        format!("{{{packer}"),
        slot.layout.source_len().to_string(),
        fan_in.max(1).to_string(),
        slot.layout.prologue_channels.to_string(),
        (region.packed / 4).to_string(),
        (region.bias / 4).to_string(),
        format!("{}}}", slot.bias_len),
    ];
    wrap_list(&values, 4, 5)
}

fn file_context() -> WeightFileContext {
    let magic: Vec<_> = WeightFile::MAGIC
        .iter()
        .map(|byte| format!("'{}'", byte.escape_ascii()))
        .collect();
    WeightFileContext {
        magic: magic.join(", ").replace("'\\x00'", "'\\0'"),
        version: WeightFile::VERSION,
        header_bytes: WeightFile::HEADER_BYTES,
        alignment: WeightFile::ALIGNMENT,
    }
}
