//! `plan.json`: for each layer the choices of the planner, their source, and the predicted time.

use super::engine::RenderError;
use crate::cost::memset_us;
use crate::gpu::Gpu;
use crate::ir::{Format, Precision, TensorShape, Tolerance};
use crate::plan::{
    ChosenBy, LaunchPrediction, LayerPlan, LayerSetPlan, Location, NetworkPlan, OtherOutput,
    PlannedTensor, PlannedUnit, plans_by_gpu,
};
use crate::scheme::{TileField, scheme};
use serde::Serialize;
use serde_json::{Map, Value};
use tdc_runtime::{Arg, Step, WeightFile, WeightRegion, WeightSlot};

#[derive(Serialize)]
struct NetworkJson<'a> {
    generator: &'static str,
    name: &'a str,
    /// The shape of the only input, if it is fp32 NCHW.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<TensorShape>,
    /// Other inputs, in the order of the driver's table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<TensorJson<'a>>,
    /// The shape of the only output.
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<TensorShape>,
    /// Several outputs, in the order of the driver's table.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<TensorJson<'a>>,
    /// One for each GPU, in the order of the driver's table; of several batches one for each of them.
    variants: Vec<VariantJson<'a>>,
}

#[derive(Serialize)]
struct TensorJson<'a> {
    name: &'a str,
    shape: TensorShape,
    /// The format in the caller's memory, unless it is fp32 NCHW.
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
}

#[derive(Serialize)]
struct VariantJson<'a> {
    gpu: &'static str,
    /// The number of images, if there are several batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u32>,
    min_arch: String,
    arena_bytes: u64,
    /// Bytes of the arena if no memory were shared.
    arena_bytes_without_reuse: u64,
    /// Sum of the launches, each repeated.
    predicted_us: f64,
    /// Of the network as a whole.
    network_us: f64,
    floor_us: f64,
    fp32_lanes_floor_us: f64,
    flops: u64,
    weights: WeightsJson<'a>,
    layers: Vec<LayerJson<'a>>,
}

#[derive(Serialize)]
struct LayerSetJson<'a> {
    generator: &'static str,
    name: &'a str,
    gpu: &'static str,
    layers: Vec<LayerJson<'a>>,
}

#[derive(Serialize)]
struct WeightsJson<'a> {
    version: u32,
    layouts_checksum: String,
    header_bytes: u64,
    payload_bytes: u64,
    slots: Vec<SlotJson<'a>>,
}

/// A slot; offsets are bytes of the payload.
#[derive(Serialize)]
struct SlotJson<'a> {
    name: &'a str,
    layout: String,
    packed_offset: u64,
    packed_floats: usize,
    bias_offset: u64,
    bias_floats: u32,
}

#[derive(Serialize)]
struct LayerJson<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_op: Option<&'a str>,
    unit: &'a str,
    /// Precision, if it is not fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    precision: Option<Precision>,
    /// Relative error that is allowed if it is larger than the precision's bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    tolerance: Option<f64>,
    scheme: &'static str,
    tile: Map<String, Value>,
    chosen_by: ChosenBy,
    predicted_us: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_us: Option<f64>,
    floor_us: f64,
    fp32_lanes_floor_us: f64,
    flops: u64,
    bytes: u64,
    workspace_bytes: u64,
    steps: Vec<StepJson<'a>>,
    /// The branch, if it is not the caller's stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<usize>,
    /// Indices of layers of other branches that it waits for.
    #[serde(skip_serializing_if = "<[usize]>::is_empty")]
    waits: &'a [usize],
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryJson<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum StepJson<'a> {
    Launch {
        kernel: &'a str,
        grid: [u32; 3],
        block: [u32; 3],
        /// Blocks of a cluster, if there are clusters.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<[u32; 3]>,
        /// Dynamic shared memory, bytes.
        shared_bytes: u32,
        /// Preferred shared memory of an SM, KiB, unless it is left to the driver.
        #[serde(skip_serializing_if = "Option::is_none")]
        carveout_kib: Option<u32>,
        /// Whether the kernel may start before its predecessor has finished.
        pdl: bool,
        /// Resident threads of an SM over the maximum, 0 to 1.
        occupancy: f64,
        blocks_per_sm: u32,
        /// Number of waves; 0 if no block fits.
        waves: u64,
        predicted_us: f64,
    },
    Memset {
        target: Arg,
        bytes: u64,
        predicted_us: f64,
    },
}

#[derive(Serialize)]
struct MemoryJson<'a> {
    x: &'a Location,
    #[serde(skip_serializing_if = "Option::is_none")]
    residual: Option<&'a Location>,
    y: &'a Location,
    /// Outputs of merged convolutions, which follow `y` in each image.
    #[serde(skip_serializing_if = "<[OtherOutput]>::is_empty")]
    merged: &'a [OtherOutput],
    #[serde(skip_serializing_if = "Option::is_none")]
    appended: Option<&'a OtherOutput>,
    /// Byte offset in the arena.
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<u64>,
    /// Index of the layer's first slot in the weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    weights: Option<usize>,
}

/// The plans of a network's variants, at least one, as JSON text.
///
/// # Errors
/// [`RenderError`] if the plans cannot be written as JSON, or if there are none.
pub fn network_json(plans: &[NetworkPlan]) -> Result<String, RenderError> {
    let Some(first) = plans.first() else {
        return Err(RenderError::new("plan.json", "there is no plan"));
    };
    let by_gpu = plans_by_gpu(plans);
    let is_multi_batch = by_gpu.iter().any(|plans| plans.len() > 1);
    let largest = by_gpu[0].last().unwrap_or(first);
    let (input, inputs) = one_or_several(&largest.inputs);
    let (output, outputs) = one_or_several(&largest.outputs);
    text(&NetworkJson {
        generator: env!("CARGO_PKG_VERSION"),
        name: &first.name,
        input,
        inputs,
        output,
        outputs,
        variants: plans
            .iter()
            .map(|plan| VariantJson {
                batch: is_multi_batch.then(|| plan.batch()),
                ..variant(plan)
            })
            .collect(),
    })
}

/// The shape of a single tensor, or names and shapes of several.
fn one_or_several(tensors: &[PlannedTensor]) -> (Option<TensorShape>, Vec<TensorJson<'_>>) {
    if let [only] = tensors
        && only.format == Format::default()
    {
        return (Some(only.shape), Vec::new());
    }
    let tensors = tensors.iter().map(|tensor| TensorJson {
        name: &tensor.name,
        shape: tensor.shape,
        format: Some(tensor.format.name()).filter(|_| tensor.format != Format::default()),
    });
    (None, tensors.collect())
}

fn variant(plan: &NetworkPlan) -> VariantJson<'_> {
    let units = || plan.layers.iter().map(|layer| &plan.units[layer.unit]);
    let oldest = plan.units.iter().map(|unit| unit.variant().min_arch).max();
    VariantJson {
        gpu: plan.gpu.name,
        batch: None,
        min_arch: oldest.map(|arch| arch.to_string()).unwrap_or_default(),
        arena_bytes: plan.arena_bytes,
        arena_bytes_without_reuse: plan.arena_bytes_without_reuse,
        predicted_us: rounded(units().map(|unit| unit.predicted_us).sum()),
        network_us: rounded(plan.network_us()),
        floor_us: rounded(units().map(|unit| unit.floor_us).sum()),
        fp32_lanes_floor_us: rounded(units().map(|unit| unit.fp32_lanes_floor_us).sum()),
        flops: units().map(|unit| unit.problem.flops()).sum(),
        weights: weights(&plan.weights),
        layers: plan
            .layers
            .iter()
            .map(|layer| LayerJson {
                output_op: Some(&layer.output_op),
                branch: Some(layer.branch).filter(|&branch| branch > 0),
                waits: &layer.waits,
                memory: Some(memory(layer)),
                ..layer_json(&layer.name, &plan.units[layer.unit], plan.gpu)
            })
            .collect(),
    }
}

/// The plan of a layer set as JSON text.
///
/// # Errors
/// [`RenderError`] if the plan cannot be written as JSON.
pub fn layer_set_json(plan: &LayerSetPlan) -> Result<String, RenderError> {
    text(&LayerSetJson {
        generator: env!("CARGO_PKG_VERSION"),
        name: &plan.name,
        gpu: plan.gpu.name,
        layers: plan
            .layers
            .iter()
            .map(|layer| layer_json(&layer.name, &plan.units[layer.unit], plan.gpu))
            .collect(),
    })
}

fn text(value: &impl Serialize) -> Result<String, RenderError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| RenderError::new("plan.json", error))?;
    text.push('\n');
    Ok(text)
}

fn layer_json<'a>(name: &'a str, unit: &'a PlannedUnit, gpu: &Gpu) -> LayerJson<'a> {
    let variant = unit.variant();
    LayerJson {
        name,
        output_op: None,
        unit: &unit.unit.name,
        precision: Some(unit.problem.precision()).filter(|&found| found != Precision::Fp32),
        tolerance: (unit.problem.conv().map(|conv| conv.tolerance))
            .filter(|&tolerance| tolerance != Tolerance::default())
            .map(Tolerance::value),
        scheme: unit.scheme,
        tile: tile_fields(unit)
            .iter()
            .zip(&unit.tile.0)
            .map(|(field, &value)| (field.name.to_owned(), value.into()))
            .collect(),
        chosen_by: unit.chosen_by,
        predicted_us: rounded(unit.predicted_us),
        measured_us: unit.measured_us.map(rounded),
        floor_us: rounded(unit.floor_us),
        fp32_lanes_floor_us: rounded(unit.fp32_lanes_floor_us),
        flops: unit.problem.flops(),
        bytes: unit.problem.bytes(),
        workspace_bytes: variant.workspace_bytes,
        steps: steps(unit, gpu),
        branch: None,
        waits: &[],
        memory: None,
    }
}

/// The numbers of a unit's tile.
pub(super) fn tile_fields(unit: &PlannedUnit) -> &'static [TileField] {
    scheme(unit.scheme).map_or(&[], |scheme| scheme.tile_fields())
}

fn steps<'a>(unit: &'a PlannedUnit, gpu: &Gpu) -> Vec<StepJson<'a>> {
    let predictions = LaunchPrediction::for_unit(unit, gpu);
    let mut launches = unit.kernels.iter().zip(predictions);
    let steps = unit.variant().steps.iter();
    steps
        .filter_map(|step| {
            Some(match step {
                Step::Launch(launch) => {
                    let (kernel, LaunchPrediction { occupancy, us }) = launches.next()?;
                    StepJson::Launch {
                        kernel: &launch.kernel,
                        grid: launch.grid,
                        block: launch.block,
                        cluster: Some(launch.cluster).filter(|&cluster| cluster != [1; 3]),
                        shared_bytes: launch.shared_bytes,
                        carveout_kib: kernel.carveout,
                        pdl: launch.pdl,
                        occupancy: rounded(occupancy.fraction),
                        blocks_per_sm: occupancy.blocks_per_sm,
                        waves: occupancy.waves,
                        predicted_us: rounded(us),
                    }
                }
                Step::Memset { target, bytes } => StepJson::Memset {
                    target: *target,
                    bytes: *bytes,
                    predicted_us: rounded(memset_us(*bytes, gpu)),
                },
            })
        })
        .collect()
}

fn memory(layer: &LayerPlan) -> MemoryJson<'_> {
    MemoryJson {
        x: &layer.x,
        residual: layer.residual.as_ref(),
        y: &layer.y,
        merged: &layer.merged,
        appended: layer.appended.as_ref(),
        workspace: layer.workspace,
        weights: layer.slots.first().copied(),
    }
}

fn weights(file: &WeightFile) -> WeightsJson<'_> {
    WeightsJson {
        version: WeightFile::VERSION,
        layouts_checksum: format!("{:016x}", file.layouts_checksum()),
        header_bytes: WeightFile::HEADER_BYTES,
        payload_bytes: file.payload_bytes(),
        slots: file.iter().map(slot_json).collect(),
    }
}

fn slot_json((slot, region): (&WeightSlot, WeightRegion)) -> SlotJson<'_> {
    SlotJson {
        name: &slot.name,
        layout: slot.layout.to_string(),
        packed_offset: region.packed,
        packed_floats: slot.layout.len(),
        bias_offset: region.bias,
        bias_floats: slot.bias_len,
    }
}

/// Rounds to three decimals, so microseconds to nanoseconds.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
