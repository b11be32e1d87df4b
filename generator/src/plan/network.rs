//! The plan of a network for one GPU: its units, the layers that use them, their memory and weights.

use super::branches::{Branches, Load};
use super::carveout::set_carveouts;
use super::choose::{Choice, Planner};
use super::distinct::DistinctUnits;
use super::error::PlanError;
use super::graph::{Parameters, Task, TaskGraph, ValueId, WeightPart};
use super::lowering::lower;
use super::memory::{Location, MemoryPlan};
use super::unit::{PlannedUnit, plan_problem, planned_unit};
use crate::gpu::Gpu;
use crate::ir::{Format, FusedTucker, Network, OpKind, Problem, Tensor, TensorShape};
use crate::scheme::scheme;
use std::collections::{HashMap, VecDeque};
use tdc_runtime::{FactorRole, Variant, WeightFile, WeightSlot};

/// One step of a network: a unit with its memory and parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPlan {
    /// Name: of the op, or of a factor of a factorised layer.
    pub name: String,
    /// Name of the op whose output this layer writes; the last op if several are fused.
    pub output_op: String,
    /// Index of its unit.
    pub unit: usize,
    /// Input.
    pub x: Location,
    /// Second input.
    pub residual: Option<Location>,
    /// Output. If the unit computes the next layer's first factor too and this output has other readers, the factor's output follows
    /// it in each image.
    pub y: Location,
    /// Outputs of the convolutions that are merged with this one. They follow `y` in each image.
    pub merged: Vec<OtherOutput>,
    /// The end of the second input, if that is a concatenation and the unit appends to it.
    pub appended: Option<OtherOutput>,
    /// Byte offset of its workspace in the arena.
    pub workspace: Option<u64>,
    /// Indices of its slots in the weight file: none, one, or consecutive ones, one for each factor.
    pub slots: Vec<usize>,
    /// The ops whose parameters the layer reads.
    pub parameters: Parameters,
    /// The branch that it runs in: 0 is the caller's stream.
    pub branch: usize,
    /// Indices of layers of other branches that it waits for.
    pub waits: Vec<usize>,
}

impl LayerPlan {
    /// The outputs that it writes, each with the name of its op.
    pub fn outputs(&self) -> impl Iterator<Item = (&str, &Location)> {
        let others = self.merged.iter().chain(&self.appended);
        let others = others.map(|output| (&output.output_op[..], &output.location));
        std::iter::once((&self.output_op[..], &self.y)).chain(others)
    }
}

/// An output of a unit beside its first one.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct OtherOutput {
    /// Name of the op whose output it is.
    pub output_op: String,
    /// Its location.
    #[serde(flatten)]
    pub location: Location,
}

/// An input or output of a planned network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTensor {
    /// Its name in the driver's interface.
    pub name: String,
    /// Its shape.
    pub shape: TensorShape,
    /// Its format in the caller's memory.
    pub format: Format,
}

/// A network, planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan {
    /// The network's name.
    pub name: String,
    /// The GPU planned for.
    pub gpu: &'static Gpu,
    /// The inputs, at least one, in the order of their ops.
    pub inputs: Vec<PlannedTensor>,
    /// The outputs, at least one, in the order of their ops.
    pub outputs: Vec<PlannedTensor>,
    /// Distinct units, in the order of first use.
    pub units: Vec<PlannedUnit>,
    /// Layers in execution order. A layer starts when the one before it in its branch and those that it waits for have finished.
    pub layers: Vec<LayerPlan>,
    /// Indices of layers of other branches than 0 that must have finished, besides the last one of branch 0.
    pub ends: Vec<usize>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of the arena if no buffers shared memory.
    pub arena_bytes_without_reuse: u64,
    /// The file of packed weights.
    pub weights: WeightFile,
}

impl NetworkPlan {
    /// The number of images that it is for.
    pub fn batch(&self) -> u32 {
        self.inputs[0].shape.batch
    }

    /// The shapes of the inputs, separated by commas.
    pub fn input_shapes(&self) -> String {
        shapes(&self.inputs)
    }

    /// The shapes of the outputs, separated by commas.
    pub fn output_shapes(&self) -> String {
        shapes(&self.outputs)
    }

    /// Number of branches.
    pub fn branches(&self) -> usize {
        self.layers
            .iter()
            .map(|layer| layer.branch + 1)
            .max()
            .unwrap_or(1)
    }

    /// The layers in an order in which they may run, as different from their own as possible: each branch runs ahead of those before it,
    /// as far as it waits for none of them.
    pub fn late_order(&self) -> Vec<usize> {
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.branches()];
        for (index, layer) in self.layers.iter().enumerate() {
            queues[layer.branch].push_back(index);
        }
        let mut is_done = vec![false; self.layers.len()];
        let mut order = Vec::with_capacity(self.layers.len());
        while order.len() < self.layers.len() {
            let is_ready =
                |layer: usize| self.layers[layer].waits.iter().all(|&other| is_done[other]);
            let ready = queues
                .iter()
                .rposition(|queue| queue.front().is_some_and(|&layer| is_ready(layer)));
            let Some(layer) = ready.and_then(|branch| queues[branch].pop_front()) else {
                break;
            };
            is_done[layer] = true;
            order.push(layer);
        }
        order
    }

    /// Byte offsets of a layer's packed weights and of its bias in the payload of the weight file; `None` if the layer does not have them.
    pub fn parameter_offsets(&self, layer: &LayerPlan) -> (Option<u64>, Option<u64>) {
        let slots: Vec<_> = self.weights.iter().collect();
        let own = || layer.slots.iter().map(|&slot| slots[slot]);
        let packed = own().next().filter(|(slot, _)| !slot.layout.is_empty());
        let bias = own().find(|(slot, _)| slot.bias_len > 0);
        (
            packed.map(|(_, region)| region.packed),
            bias.map(|(_, region)| region.bias),
        )
    }
}

fn shapes(tensors: &[PlannedTensor]) -> String {
    let shapes = tensors.iter().map(|tensor| match tensor.format {
        plain if plain == Format::default() => tensor.shape.to_string(),
        other => format!("{} ({})", tensor.shape, other.name()),
    });
    shapes.collect::<Vec<_>>().join(", ")
}

/// The choices of some layers of a plan, by their indices.
pub(super) type FixedChoices = HashMap<usize, Choice>;

/// Plans a network for one GPU.
///
/// # Errors
/// One for each layer that cannot be planned.
pub fn plan_network(network: &Network, gpu: &'static Gpu) -> Result<NetworkPlan, Vec<PlanError>> {
    plan_network_with(network, Planner::new(gpu))
}

/// As [`plan_network`], for the GPU of the caller's planner; the tile policy is the network's.
///
/// # Errors
/// As [`plan_network`].
pub fn plan_network_with(
    network: &Network,
    planner: Planner,
) -> Result<NetworkPlan, Vec<PlanError>> {
    plan_network_fixed(network, planner, &FixedChoices::new())
}

/// The same with choices of the caller for some layers.
pub(super) fn plan_network_fixed(
    network: &Network,
    planner: Planner,
    fixed: &FixedChoices,
) -> Result<NetworkPlan, Vec<PlanError>> {
    let mut planner = planner.with_tile_policy(network.tiles);
    let graph = lower(&mut planner, TaskGraph::new(network));
    let (mut units, unit_of_task) = plan_units(&mut planner, &network.name, &graph.tasks, fixed)?;
    let variant = |task: usize| units[unit_of_task[task]].variant();
    let loads: Vec<Load> = unit_of_task
        .iter()
        .map(|&unit| units[unit].load(planner.gpu()))
        .collect();
    let mut branches = Branches::of_graph(&graph);
    let one = Branches::one(graph.tasks.len());
    if branches.us(&loads) >= one.us(&loads) {
        branches = one;
    }
    let memory = MemoryPlan::new(&graph, &branches, |task| variant(task).workspace_bytes);
    let mut slots: Vec<Vec<WeightSlot>> = Vec::new();
    let mut slots_end = 0;
    let mut layers = Vec::new();
    for (index, task) in graph.tasks.iter().enumerate() {
        let first_slot = slots_end;
        let own = task_slots(&graph, task, variant(index));
        slots_end += own.len();
        slots.push(own);
        let other = |value: ValueId| OtherOutput {
            output_op: graph.values[value.0].name.clone(),
            location: memory.location(&graph, value),
        };
        let merged = task.parameters.merged.iter().map(|layer| other(layer.y));
        layers.push(LayerPlan {
            name: task.name.clone(),
            output_op: graph.values[task.y.0].name.clone(),
            unit: unit_of_task[index],
            x: memory.location(&graph, task.x),
            residual: task.residual.map(|value| memory.location(&graph, value)),
            y: memory.location(&graph, task.y),
            merged: merged.collect(),
            appended: task.appended.map(other),
            workspace: memory.workspaces[index],
            slots: (first_slot..slots_end).collect(),
            parameters: task.parameters.clone(),
            branch: branches.of_task[index],
            waits: branches.waits[index].clone(),
        });
    }
    set_carveouts(&mut units, &unit_of_task, &branches, planner.gpu());
    Ok(NetworkPlan {
        name: network.name.clone(),
        gpu: planner.gpu(),
        inputs: inputs(network),
        outputs: outputs(network),
        layers,
        ends: branches.ends,
        units,
        arena_bytes: memory.arena.bytes,
        arena_bytes_without_reuse: memory.arena.bytes_without_reuse,
        weights: WeightFile::from_units(slots),
    })
}

fn inputs(network: &Network) -> Vec<PlannedTensor> {
    let inputs = network.inputs().iter();
    inputs
        .map(|input| PlannedTensor {
            name: input.name.clone(),
            shape: input.y,
            format: match &input.kind {
                OpKind::Input(encoding) => encoding.format(),
                _ => Format::default(),
            },
        })
        .collect()
}

fn outputs(network: &Network) -> Vec<PlannedTensor> {
    let outputs = network.outputs.iter();
    outputs
        .map(|output| PlannedTensor {
            name: output.name.clone(),
            shape: network.op(output.op).y,
            format: output.format,
        })
        .collect()
}

impl PlannedTensor {
    /// Bytes in the caller's memory.
    pub fn bytes(&self) -> u64 {
        Tensor::new(self.shape, self.format).bytes()
    }
}

/// The distinct units of tasks, in the order of first use, and for each task the index of its unit.
fn plan_units(
    planner: &mut Planner,
    prefix: &str,
    tasks: &[Task],
    fixed: &FixedChoices,
) -> Result<(Vec<PlannedUnit>, Vec<usize>), Vec<PlanError>> {
    let mut units = DistinctUnits::default();
    let mut unit_of_task = Vec::new();
    let mut errors = Vec::new();
    for (index, task) in tasks.iter().enumerate() {
        // What the config requests comes first.
        let requested = |choice: &&Choice| match (&task.scheme, &task.tile) {
            (_, Some(_)) => false,
            (Some(scheme), None) => scheme == choice.scheme.name(),
            (None, None) => true,
        };
        if let Some(choice) = fixed.get(&index).filter(requested) {
            let unit = planned_unit(prefix, &task.problem, choice, planner.gpu());
            unit_of_task.push(units.add(unit).0);
            continue;
        }
        let planned = plan_problem(
            planner,
            prefix,
            &task.name,
            &task.problem,
            task.scheme.as_deref(),
            task.tile.as_deref(),
        );
        match planned {
            Ok(unit) => unit_of_task.push(units.add(unit).0),
            Err(error) => errors.push(with_dropped_factors(error, task, tasks, planner.gpu())),
        }
    }
    match errors.is_empty() {
        true => Ok((units.into_vec(), unit_of_task)),
        false => Err(errors),
    }
}

/// The error of a task. If the task is all that is left of a Tucker layer with D1 = C and D2 = N, and the requested scheme is one of Tucker
/// layers, the remedy says why it cannot compute this layer.
fn with_dropped_factors(error: PlanError, task: &Task, tasks: &[Task], gpu: &Gpu) -> PlanError {
    let (Some(layer), Problem::Conv(core)) = (task.parameters.layer, task.problem) else {
        return error;
    };
    let mut others = tasks.iter().filter(|other| !std::ptr::eq(*other, task));
    let is_divided = others.any(|other| {
        let parameters = &other.parameters;
        parameters.layer == Some(layer) || parameters.next == Some(layer)
    });
    if is_divided || task.parameters.factors != [FactorRole::Core] {
        return error;
    }
    let [c, n] = [core.shape.c, core.shape.n];
    let factors = FactorRole::TUCKER
        .into_iter()
        .zip(core.tucker_factors([c, n]));
    let fused = FusedTucker::new(&factors.collect::<Vec<_>>());
    let requested = task.scheme.as_deref().and_then(scheme);
    let is_of_tucker_layers = requested.zip(fused).is_some_and(|(scheme, fused)| {
        !scheme.tiles(&Problem::Tucker(fused.whole), gpu).is_empty()
    });
    match is_of_tucker_layers {
        true => PlanError {
            help: format!(
                "with ranks [{c}, {n}] both 1x1 factors are multiplied into the core, so the layer is one convolution: remove `scheme`, \
                 or choose a scheme of convolutions"
            ),
            ..error
        },
        false => error,
    }
}

/// The slots of a task's parameters, one for each of its weights.
fn task_slots(graph: &TaskGraph, task: &Task, variant: &Variant) -> Vec<WeightSlot> {
    let weights = task.parameters.weights();
    let slots = variant.packed_layouts().enumerate();
    slots
        .map(|(index, (_, layout))| {
            let name = match weights.get(index) {
                Some(&(layer, WeightPart::Factor(factor))) => {
                    let layer = &graph.values[layer.0].name;
                    format!("{layer}.{}", factor.as_str())
                }
                Some(&(layer, WeightPart::Bias)) => {
                    format!("{}.bias", graph.values[layer.0].name)
                }
                // Several layers have a slot each, with the layer's name.
                Some(&(layer, _)) if weights.len() > 1 => graph.values[layer.0].name.clone(),
                _ => task.name.clone(),
            };
            WeightSlot {
                name,
                layout: layout.clone(),
                bias_len: match task.parameters.carries_bias(index) {
                    true => variant.bias_len,
                    false => 0,
                },
            }
        })
        .filter(|slot| !slot.layout.is_empty() || slot.bias_len > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::gpu;
    use crate::ir::{ConvOptions, NetworkBuilder, OpOptions};

    /// The errors of a layer from 16 to `n` channels between two Tucker layers.
    fn errors(n: u32, ranks: [u32; 2], scheme: &str) -> Vec<String> {
        let tucker = |n, ranks, scheme: Option<&str>| {
            OpOptions::Conv(ConvOptions {
                ranks: Some(ranks),
                scheme: scheme.map(str::to_owned),
                ..ConvOptions::new(n)
            })
        };
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 8, 9, 11));
        builder.op("a", None, tucker(16, [8, 8], None));
        builder.op("b", None, tucker(n, ranks, Some(scheme)));
        builder.op("c", None, tucker(16, [8, 8], None));
        match plan_network(&builder.finish().unwrap(), gpu("h200").unwrap()) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn a_scheme_of_tucker_layers_does_not_compute_a_core_alone() {
        for n in [13, 16] {
            let expected = format!(
                "layer `b.core`: scheme `tucker_fused` cannot compute conv_c16_n{n}_h9_w11_k3x3_p1; with ranks [16, {n}] both 1x1 \
                 factors are multiplied into the core, so the layer is one convolution: remove `scheme`, or choose a scheme of convolutions"
            );
            assert_eq!(errors(n, [16, n], "tucker_fused"), [expected]);
        }
        // One factor is left, or the scheme computes convolutions.
        for (ranks, scheme) in [
            ([16, 8], "tucker_fused"),
            ([8, 13], "tucker_fused"),
            ([16, 13], "direct"),
        ] {
            assert_eq!(errors(13, ranks, scheme), [""; 0], "{ranks:?} {scheme}");
        }
        // A scheme of neither.
        let expected = "layer `b.core`: scheme `linear` cannot compute conv_c16_n13_h9_w11_k3x3_p1; remove `scheme` to let the planner \
                        choose one that can";
        assert_eq!(errors(13, [16, 13], "linear"), [expected]);
    }

    /// The planner remembers that a problem has no unit, but not for which layer.
    #[test]
    fn each_layer_of_an_unsupported_problem_is_named() {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 16, 9, 11));
        for name in ["a", "b"] {
            let options = ConvOptions {
                scheme: Some("linear".to_owned()),
                ..ConvOptions::new(16)
            };
            builder.op(name, None, OpOptions::Conv(options));
        }
        let errors = plan_network(&builder.finish().unwrap(), gpu("h200").unwrap()).unwrap_err();
        let layers: Vec<_> = errors.iter().map(|error| &error.layer[..]).collect();
        assert_eq!(layers, ["a", "b"]);
    }
}
