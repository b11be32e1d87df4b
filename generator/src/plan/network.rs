//! The plan of a network for one GPU: its units, the layers that use them, their memory and weights.

use super::choose::Planner;
use super::distinct::DistinctUnits;
use super::error::PlanError;
use super::graph::{Parameters, Task, TaskGraph};
use super::lowering::lower;
use super::memory::{Location, MemoryPlan};
use super::unit::{PlannedUnit, plan_problem};
use crate::gpu::Gpu;
use crate::ir::{Network, TensorShape};
use tdc_runtime::{Variant, WeightFile, WeightSlot};

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
    /// Byte offset of its workspace in the arena.
    pub workspace: Option<u64>,
    /// Indices of its slots in the weight file: none, one, or consecutive ones, one for each factor.
    pub slots: Vec<usize>,
    /// The ops whose parameters the layer reads.
    pub parameters: Parameters,
}

/// An output of a planned network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedOutput {
    /// Its name in the driver's interface.
    pub name: String,
    /// Its shape.
    pub shape: TensorShape,
}

/// A network, planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan {
    /// The network's name.
    pub name: String,
    /// The GPU planned for.
    pub gpu: &'static Gpu,
    /// Shape of the input.
    pub input: TensorShape,
    /// The outputs, at least one, in the order of their ops.
    pub outputs: Vec<PlannedOutput>,
    /// Distinct units, in the order of first use.
    pub units: Vec<PlannedUnit>,
    /// Layers in execution order.
    pub layers: Vec<LayerPlan>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes of the arena if no buffers shared memory.
    pub arena_bytes_without_reuse: u64,
    /// The file of packed weights.
    pub weights: WeightFile,
}

impl NetworkPlan {
    /// The shapes of the outputs, separated by commas.
    pub fn output_shapes(&self) -> String {
        let shapes = self.outputs.iter().map(|output| output.shape.to_string());
        shapes.collect::<Vec<_>>().join(", ")
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
    let mut planner = planner.with_tile_policy(network.tiles);
    let graph = lower(&mut planner, TaskGraph::new(network));
    let (units, unit_of_task) = plan_units(&mut planner, &network.name, &graph.tasks)?;
    let variant = |task: usize| units[unit_of_task[task]].variant();
    let memory = MemoryPlan::new(&graph, |task| variant(task).workspace_bytes);
    let mut slots: Vec<Vec<WeightSlot>> = Vec::new();
    let mut slots_end = 0;
    let mut layers = Vec::new();
    for (index, task) in graph.tasks.iter().enumerate() {
        let first_slot = slots_end;
        let own = task_slots(&graph, task, variant(index));
        slots_end += own.len();
        slots.push(own);
        layers.push(LayerPlan {
            name: task.name.clone(),
            output_op: graph.values[task.y.0].name.clone(),
            unit: unit_of_task[index],
            x: memory.location(&graph, task.x),
            residual: task.residual.map(|value| memory.location(&graph, value)),
            y: memory.location(&graph, task.y),
            workspace: memory.workspaces[index],
            slots: (first_slot..slots_end).collect(),
            parameters: task.parameters.clone(),
        });
    }
    Ok(NetworkPlan {
        name: network.name.clone(),
        gpu: planner.gpu(),
        input: network.input(),
        outputs: outputs(network),
        layers,
        units,
        arena_bytes: memory.arena.bytes,
        arena_bytes_without_reuse: memory.arena.bytes_without_reuse,
        weights: WeightFile::from_units(slots),
    })
}

fn outputs(network: &Network) -> Vec<PlannedOutput> {
    let outputs = network.outputs.iter();
    outputs
        .map(|output| PlannedOutput {
            name: output.name.clone(),
            shape: network.op(output.op).y,
        })
        .collect()
}

/// The distinct units of tasks, in the order of first use, and for each task the index of its unit.
fn plan_units(
    planner: &mut Planner,
    prefix: &str,
    tasks: &[Task],
) -> Result<(Vec<PlannedUnit>, Vec<usize>), Vec<PlanError>> {
    let mut units = DistinctUnits::default();
    let mut unit_of_task = Vec::new();
    let mut errors = Vec::new();
    for task in tasks {
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
            Err(error) => errors.push(error),
        }
    }
    match errors.is_empty() {
        true => Ok((units.into_vec(), unit_of_task)),
        false => Err(errors),
    }
}

/// The slots of a task's parameters, one for each of its weights.
fn task_slots(graph: &TaskGraph, task: &Task, variant: &Variant) -> Vec<WeightSlot> {
    let weights = task.parameters.weights();
    let slots = variant.packed_layouts().enumerate();
    slots
        .map(|(index, (_, layout))| {
            let name = match weights.get(index) {
                Some(&(layer, Some(factor))) => {
                    let layer = &graph.values[layer.0].name;
                    format!("{layer}.{}", factor.as_str())
                }
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
