//! The plan of one kernel asked for by itself, for each of its GPUs.

use super::chain::chain_units;
use super::lowering::fastest_lowering;
use super::{
    PlanError, PlannedUnit, Planner, Task, TaskFactor, TaskGraph, TuningTable, plan_problem,
    problem_label,
};
use crate::gpu::Gpu;
use crate::ir::{ConvProblem, LayerSpec, Network, OpKind, Problem, TilePolicy, TuckerProblem};
use tdc_runtime::{Conv, FusedOps, Tucker, Variant};

/// What the symbols of kernels outside networks and layer sets begin with: of those that programs embed, and of the same ones where
/// they are measured, so that it is the same machine code.
pub const KERNEL_PREFIX: &str = "tdc";

/// A kernel, planned.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelPlan {
    /// The problem's name.
    pub name: String,
    /// What it computes.
    pub op: KernelOp,
    /// One way for each GPU, in the order asked for.
    pub variants: Vec<VariantPlan>,
}

/// What a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KernelOp {
    /// A convolution.
    Conv(Conv),
    /// A Tucker layer.
    Tucker(Tucker),
}

/// A kernel, planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantPlan {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// The units, in order: one, or up to three of a Tucker layer.
    pub units: Vec<PlannedUnit>,
    /// All their steps.
    pub variant: Variant,
}

impl KernelOp {
    /// What a layer computes.
    pub fn of(layer: &LayerSpec) -> Self {
        let ConvProblem {
            shape,
            prologue,
            epilogue,
            ..
        } = layer.problem;
        let fused = FusedOps {
            prologue: prologue.is_some(),
            bias: epilogue.bias,
            residual: epilogue.residual,
            activation: epilogue.activation,
        };
        match layer.ranks {
            None => Self::Conv(Conv { shape, fused }),
            Some(ranks) => Self::Tucker(Tucker {
                shape,
                ranks,
                fused,
            }),
        }
    }
}

/// The name of what a layer computes.
pub fn kernel_name(layer: &LayerSpec) -> String {
    match layer.ranks {
        None => problem_label(&Problem::Conv(layer.problem)),
        Some(ranks) => {
            let factors = layer.problem.tucker_factors(ranks);
            match TuckerProblem::from_factors(&factors) {
                Some([whole, _]) => problem_label(&Problem::Tucker(whole)),
                // Its core asks for atomics, which names of whole layers do not tell.
                None => format!("tucker_{}", problem_label(&Problem::Conv(factors[1]))),
            }
        }
    }
}

/// Plans a layer for each of `gpus`, by `table` where it is of the GPU and measured times are asked for.
///
/// # Errors
/// [`PlanError`] when the layer's scheme and tile do not fit or nothing does, for the first GPU that has one.
pub fn plan_kernel(
    layer: &LayerSpec,
    gpus: &[&'static Gpu],
    tiles: TilePolicy,
    table: Option<&TuningTable>,
) -> Result<KernelPlan, PlanError> {
    let plan = |&gpu: &&'static Gpu| {
        let mut planner = Planner::new(gpu).with_tile_policy(tiles);
        if let Some(table) = table {
            planner = planner.with_table(table.clone());
        }
        let units = units(&mut planner, layer)?;
        let variant = chain_units(&units).ok_or_else(|| {
            PlanError::new(&layer.name, None, "nothing is computed", "name a layer")
        })?;
        Ok(VariantPlan {
            gpu,
            units,
            variant,
        })
    };
    Ok(KernelPlan {
        name: kernel_name(layer),
        op: KernelOp::of(layer),
        variants: gpus.iter().map(plan).collect::<Result<_, PlanError>>()?,
    })
}

/// The units of a layer. What it wishes for is meant for the core of a Tucker layer, in whatever unit that is.
fn units(planner: &mut Planner, layer: &LayerSpec) -> Result<Vec<PlannedUnit>, PlanError> {
    let name = &layer.name[..];
    let whole = Problem::Conv(layer.problem);
    let (problems, core) = match layer.ranks {
        None => (vec![(name, whole)], whole),
        Some(ranks) => {
            let factors = layer.problem.tucker_factors(ranks);
            let [first, core, last] = factors.map(Problem::Conv);
            let separate = vec![(name, first), (name, core), (name, last)];
            let units = match TuckerProblem::from_factors(&factors) {
                None => separate,
                Some(fused) => {
                    let [whole, core_last] = fused.map(Problem::Tucker);
                    let lowerings = [
                        vec![(name, whole)],
                        vec![(name, first), (name, core_last)],
                        separate,
                    ];
                    let fastest = fastest_lowering(planner, &lowerings, layer.scheme.as_deref());
                    lowerings.into_iter().nth(fastest).unwrap_or_default()
                }
            };
            (units, core)
        }
    };
    let unit = |(name, problem): (&str, Problem)| {
        let is_core = problem == core || matches!(problem, Problem::Tucker(_));
        let (scheme, tile) = match is_core {
            true => (layer.scheme.as_deref(), layer.tile.as_deref()),
            false => (None, None),
        };
        plan_problem(planner, KERNEL_PREFIX, name, &problem, scheme, tile)
    };
    problems.into_iter().map(unit).collect()
}

/// The convolutions of a network with what is fused to each, by the names of their ops, in the order they run.
pub fn network_layers(network: &Network) -> Vec<LayerSpec> {
    let graph = TaskGraph::new(network);
    let layer = |task: &Task, rest: &[Task]| {
        let op = network.op(task.parameters.layer?);
        let OpKind::Conv(conv) = &op.kind else {
            return None;
        };
        // Kernels of programs have NCHW activations, and a weight or Tucker factors.
        let problem = |task: &Task| match task.problem {
            Problem::Conv(problem) if conv.options.cp_rank.is_none() => Some(problem),
            _ => None,
        };
        let first = problem(task)?;
        let last = match conv.options.ranks {
            None => first,
            Some(_) if task.parameters.factors == [TaskFactor::First] => problem(rest.get(1)?)?,
            // Core and last factor are told with the first.
            Some(_) => return None,
        };
        Some(LayerSpec {
            name: op.name.clone(),
            problem: ConvProblem {
                shape: conv.shape,
                prologue: first.prologue,
                epilogue: last.epilogue,
                reduce: conv.options.reduce,
                precision: conv.options.precision,
                tolerance: conv.options.tolerance, input: Default::default(), output: Default::default(), },
            ranks: conv.options.ranks,
            cp_rank: None,
            layout: conv.options.layout,
            scheme: conv.options.scheme.clone(),
            tile: conv.options.tile.clone(),
        })
    };
    let tasks = &graph.tasks;
    let layers = tasks.iter().enumerate();
    layers
        .filter_map(|(index, task)| layer(task, &tasks[index + 1..]))
        .collect()
}
