//! The plan of a network: its units, the layers that use them, and where everything lies in memory.

use super::fuse::{Parameters, Task, TaskGraph, ValueId};
use super::lowering;
use super::name::unit_name;
use super::{Arena, Choice, ChosenBy, Lifetime, PlanError, Planner};
use crate::cost::floor_us;
use crate::gpu::{Gpu, OLDEST_ARCH};
use crate::ir::{Layout, Network, Problem, TensorShape};
use crate::scheme::{KernelBlueprint, Tile};
use serde::Serialize;
use std::collections::HashMap;
use tdc_runtime::{Launch, Step, Unit, Variant, WeightFile, WeightSlot};

/// A launch with its symbol, ready to be rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedKernel {
    /// The kernel's symbol.
    pub symbol: String,
    /// Template, context, launch.
    pub blueprint: KernelBlueprint,
}

/// A unit with what it computes, how it was chosen and how it is rendered.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedUnit {
    /// What will run.
    pub unit: Unit,
    /// Prefix of its symbols: the name of the network or layer set.
    pub prefix: String,
    /// What it computes.
    pub problem: Problem,
    /// The scheme's name.
    pub scheme: &'static str,
    /// The tile.
    pub tile: Tile,
    /// Who chose it.
    pub chosen_by: ChosenBy,
    /// Estimated time, microseconds.
    pub predicted_us: f64,
    /// Measured time, microseconds, where a table has it.
    pub measured_us: Option<f64>,
    /// Physical limit of a single launch, microseconds.
    pub floor_us: f64,
    /// The kernels in order of their launches.
    pub kernels: Vec<PlannedKernel>,
}

impl PlannedUnit {
    /// The variant that the unit was planned with; of a unit that several plans share, the first.
    pub fn variant(&self) -> &Variant {
        &self.unit.variants[0]
    }
}

/// Whose memory a value lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// The caller's input.
    Input,
    /// The caller's output.
    Output,
    /// The arena, so many bytes in.
    Arena {
        /// Byte offset.
        offset: u64,
    },
}

/// Where a value lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Location {
    /// The block of memory.
    pub memory: Memory,
    /// Elements from there to the value's first: the channel offset of a view in a concatenation.
    pub offset: u64,
    /// Elements between the images of a batch, in NCHW.
    pub batch_stride: u64,
    /// How it lies.
    #[serde(skip_serializing_if = "is_nchw")]
    pub layout: Layout,
    /// Sizes.
    pub shape: TensorShape,
}

/// In the layout that needs no word.
fn is_nchw(layout: &Layout) -> bool {
    *layout == Layout::Nchw
}

/// One step of a network: a unit on certain memory with certain parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerPlan {
    /// Name: of the op, or of the factor of a Tucker layer.
    pub name: String,
    /// Name of the op whose output this layer writes; the last of those fused.
    pub output_op: String,
    /// Index of its unit.
    pub unit: usize,
    /// Input.
    pub x: Location,
    /// Second operand.
    pub residual: Option<Location>,
    /// Output. Behind it lies, in each image, what the unit makes with the first factor of the layer behind, if it goes on with that
    /// and others read the output too.
    pub y: Location,
    /// Byte offset of its workspace in the arena.
    pub workspace: Option<u64>,
    /// Indices of its parameters in the weight file: none, one, or one for each factor, one behind the other.
    pub slots: Vec<usize>,
    /// Where the parameters come from.
    pub parameters: Parameters,
}

/// A whole network, planned.
#[derive(Debug, Clone, PartialEq)]
pub struct NetworkPlan {
    /// The network's name.
    pub name: String,
    /// The GPU planned for.
    pub gpu: &'static Gpu,
    /// Sizes of the input.
    pub input: TensorShape,
    /// Sizes of the output.
    pub output: TensorShape,
    /// Name of the op whose output is the network's.
    pub output_name: String,
    /// Distinct units, in the order of first use.
    pub units: Vec<PlannedUnit>,
    /// Layers in the order they run.
    pub layers: Vec<LayerPlan>,
    /// Bytes of the arena.
    pub arena_bytes: u64,
    /// Bytes that all its tensors and workspaces would take side by side.
    pub arena_bytes_without_reuse: u64,
    /// The file of packed weights.
    pub weights: WeightFile,
}

impl NetworkPlan {
    /// Where a layer's packed blocks begin in the payload of the weight file, and where its bias does, in bytes; `None` for what it
    /// has not.
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

/// Plans a single problem as a unit of its own, named by the grammar.
///
/// # Errors
/// [`PlanError`] when the wishes do not fit or nothing does; `layer` is named in it.
pub fn plan_problem(
    planner: &mut Planner,
    prefix: &str,
    layer: &str,
    problem: &Problem,
    scheme: Option<&str>,
    tile: Option<&[u32]>,
) -> Result<PlannedUnit, PlanError> {
    let choice = planner.choose(layer, problem, scheme, tile)?;
    Ok(planned_unit(prefix, problem, &choice, planner.gpu()))
}

fn planned_unit(prefix: &str, problem: &Problem, choice: &Choice, gpu: &Gpu) -> PlannedUnit {
    let name = unit_name(problem, choice.scheme, &choice.tile);
    let blueprint = choice.scheme.blueprint(problem, &choice.tile);
    let kernels: Vec<PlannedKernel> = blueprint
        .kernels
        .into_iter()
        .map(|blueprint| PlannedKernel {
            symbol: format!("{prefix}_{name}_{}", blueprint.role),
            blueprint,
        })
        .collect();
    let memset = blueprint.zeroed.map(|zeroed| Step::Memset {
        target: zeroed.target,
        bytes: zeroed.bytes,
    });
    let launches = kernels.iter().map(|kernel| {
        Step::Launch(Launch {
            kernel: kernel.symbol.clone().into(),
            grid: kernel.blueprint.grid,
            block: kernel.blueprint.block,
            cluster: kernel.blueprint.cluster,
            shared_bytes: kernel.blueprint.shared_bytes,
            pdl: kernel.blueprint.pdl,
            args: kernel.blueprint.args.clone().into(),
        })
    });
    let steps: Vec<Step> = memset.into_iter().chain(launches).collect();
    let variant = Variant {
        gpu: gpu.name.into(),
        min_arch: OLDEST_ARCH,
        steps: steps.into(),
        workspace_bytes: blueprint.workspace_bytes,
        weights: blueprint.weights,
        extra_weight_layouts: blueprint.extra_weight_layouts.into(),
        bias_len: if problem.reads_bias() {
            problem.epilogue_shape().c
        } else {
            0
        },
    };
    PlannedUnit {
        unit: Unit {
            name: name.into(),
            variants: vec![variant].into(),
        },
        prefix: prefix.to_owned(),
        problem: *problem,
        scheme: choice.scheme.name(),
        tile: choice.tile.clone(),
        chosen_by: choice.chosen_by,
        predicted_us: choice.predicted_us,
        measured_us: choice.measured_us,
        floor_us: floor_us(problem.flops(), problem.bytes(), gpu),
        kernels,
    }
}

/// Plans a network for each of its GPUs, in their order.
///
/// # Errors
/// Every layer that cannot be planned; once, where it is wrong for several GPUs in the same way.
pub fn plan_variants(network: &Network) -> Result<Vec<NetworkPlan>, Vec<PlanError>> {
    plan_variants_with(network, Planner::new)
}

/// As [`plan_variants`], with a planner of the caller's for each GPU; tiles are chosen in the network's way.
///
/// # Errors
/// As there.
pub fn plan_variants_with(
    network: &Network,
    planner: impl Fn(&'static Gpu) -> Planner,
) -> Result<Vec<NetworkPlan>, Vec<PlanError>> {
    let mut plans = Vec::new();
    let mut errors: Vec<PlanError> = Vec::new();
    for gpu in network.gpus.gpus() {
        match plan_network_with(network, planner(gpu)) {
            Ok(plan) => plans.push(plan),
            Err(found) => {
                for error in found {
                    if !errors.contains(&error) {
                        errors.push(error);
                    }
                }
            }
        }
    }
    match errors.is_empty() {
        true => Ok(plans),
        false => Err(errors),
    }
}

/// The distinct units of several plans of one network, in the order of first use. A unit that several plans have carries
/// the variants of all of them.
pub fn distinct_units(plans: &[NetworkPlan]) -> Vec<PlannedUnit> {
    let mut units: Vec<PlannedUnit> = Vec::new();
    let mut index_of_name: HashMap<String, usize> = HashMap::new();
    for unit in plans.iter().flat_map(|plan| &plan.units) {
        let index = *index_of_name
            .entry(unit.unit.name.to_string())
            .or_insert(units.len());
        match units.get_mut(index) {
            // By its name it computes the same with the same scheme and tile.
            Some(known) => known.unit.variants.to_mut().push(unit.variant().clone()),
            None => units.push(unit.clone()),
        }
    }
    units
}

/// Plans a network for one GPU.
///
/// # Errors
/// Every layer that cannot be planned.
pub fn plan_network(network: &Network, gpu: &'static Gpu) -> Result<NetworkPlan, Vec<PlanError>> {
    plan_network_with(network, Planner::new(gpu))
}

/// As [`plan_network`], for the GPU of a planner of the caller's; tiles are chosen in the network's way.
///
/// # Errors
/// As there.
pub fn plan_network_with(
    network: &Network,
    planner: Planner,
) -> Result<NetworkPlan, Vec<PlanError>> {
    let mut planner = planner.with_tile_policy(network.tiles);
    let gpu = planner.gpu();
    let graph = lowering::choose_lowerings(&mut planner, TaskGraph::new(network));
    let mut units: Vec<PlannedUnit> = Vec::new();
    let mut unit_of_name: HashMap<String, usize> = HashMap::new();
    let mut unit_of_task = Vec::new();
    let mut errors = Vec::new();
    for task in &graph.tasks {
        let planned = plan_problem(
            &mut planner,
            &network.name,
            &task.name,
            &task.problem,
            task.scheme.as_deref(),
            task.tile.as_deref(),
        );
        match planned {
            Ok(unit) => {
                let index = *unit_of_name
                    .entry(unit.unit.name.to_string())
                    .or_insert(units.len());
                if index == units.len() {
                    units.push(unit);
                }
                unit_of_task.push(index);
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }

    let memory = MemoryPlan::new(&graph, &units, &unit_of_task);
    let mut slots: Vec<Vec<WeightSlot>> = Vec::new();
    let mut slots_end = 0;
    let layers = graph
        .tasks
        .iter()
        .zip(&unit_of_task)
        .enumerate()
        .map(|(index, (task, &unit))| {
            let variant = units[unit].variant();
            let first_slot = slots_end;
            let own = task_slots(&graph, task, variant);
            slots_end += own.len();
            slots.push(own);
            LayerPlan {
                name: task.name.clone(),
                output_op: graph.values[task.y.0].name.clone(),
                unit,
                x: memory.location(&graph, task.x),
                residual: task.residual.map(|value| memory.location(&graph, value)),
                y: memory.location(&graph, task.y),
                workspace: memory.workspaces[index],
                slots: (first_slot..slots_end).collect(),
                parameters: task.parameters.clone(),
            }
        })
        .collect();
    Ok(NetworkPlan {
        name: network.name.clone(),
        gpu,
        input: network.input(),
        output: network.op(network.output()).y,
        output_name: network.op(network.output()).name.clone(),
        layers,
        units,
        arena_bytes: memory.arena.bytes,
        arena_bytes_without_reuse: memory.arena.bytes_without_reuse,
        weights: WeightFile::from_units(slots),
    })
}

/// The slots of a task's parameters, one for each of its weights.
fn task_slots(graph: &TaskGraph, task: &Task, variant: &Variant) -> Vec<WeightSlot> {
    let weights = task.parameters.weights();
    let slots = variant.packed_layouts().enumerate();
    slots
        .map(|(index, (_, layout))| {
            let (name, factor) = match weights.get(index) {
                Some(&(layer, Some(factor))) => {
                    let layer = &graph.values[layer.0].name;
                    (format!("{layer}.{}", factor.as_str()), Some(factor))
                }
                _ => (task.name.clone(), None),
            };
            WeightSlot {
                name,
                layout: layout.clone(),
                bias_len: match Parameters::carries_bias(factor) {
                    true => variant.bias_len,
                    false => 0,
                },
            }
        })
        .filter(|slot| !slot.layout.is_empty() || slot.bias_len > 0)
        .collect()
}

struct MemoryPlan {
    /// For each value that owns memory, where it lies.
    memory: Vec<Option<Memory>>,
    /// For each task, the byte offset of its workspace.
    workspaces: Vec<Option<u64>>,
    arena: Arena,
}

impl MemoryPlan {
    fn new(graph: &TaskGraph, units: &[PlannedUnit], unit_of_task: &[usize]) -> Self {
        let mut memory: Vec<Option<Memory>> = vec![None; graph.values.len()];
        memory[graph.input.0] = Some(Memory::Input);
        memory[graph.output.0] = Some(Memory::Output);

        let mut lifetimes: Vec<Lifetime> = Vec::new();
        let mut buffer_of_value: Vec<Option<usize>> = vec![None; graph.values.len()];
        let mut workspace_buffers = Vec::new();
        for (index, task) in graph.tasks.iter().enumerate() {
            for value in [Some(task.x), task.residual, Some(task.y)]
                .into_iter()
                .flatten()
            {
                let (root, _) = graph.root(value);
                if memory[root.0].is_some() {
                    continue;
                }
                let buffer = *buffer_of_value[root.0].get_or_insert_with(|| {
                    lifetimes.push(Lifetime {
                        bytes: 4 * graph.values[root.0].shape.len(),
                        first: index,
                        last: index,
                    });
                    lifetimes.len() - 1
                });
                lifetimes[buffer].last = index;
            }
            let bytes = units[unit_of_task[index]].variant().workspace_bytes;
            workspace_buffers.push((bytes > 0).then(|| {
                lifetimes.push(Lifetime {
                    bytes,
                    first: index,
                    last: index,
                });
                lifetimes.len() - 1
            }));
        }
        let arena = Arena::plan(&lifetimes);
        for (value, buffer) in buffer_of_value.iter().enumerate() {
            if let Some(buffer) = buffer {
                memory[value] = Some(Memory::Arena {
                    offset: arena.offsets[*buffer],
                });
            }
        }
        let workspaces = workspace_buffers
            .iter()
            .map(|buffer| buffer.map(|buffer| arena.offsets[buffer]))
            .collect();
        Self {
            memory,
            workspaces,
            arena,
        }
    }

    fn location(&self, graph: &TaskGraph, value: ValueId) -> Location {
        let (root, offset) = graph.root(value);
        Location {
            memory: self.memory[root.0].expect("every value that a task touches was given memory"),
            offset,
            batch_stride: graph.values[root.0].shape.image_len(),
            layout: graph.values[root.0].layout,
            shape: graph.values[value.0].shape,
        }
    }
}
