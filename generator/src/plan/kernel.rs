//! The plan of a single kernel for each of its GPUs.

use super::chain::chain_units;
use super::choose::Planner;
use super::error::PlanError;
use super::factors::{LayerOps, LayerValues, SquareFactors};
use super::graph::{Task, TaskGraph, ValueId};
use super::lowering::lower;
use super::name::problem_label;
use super::tuning::TuningTable;
use super::unit::{PlannedUnit, plan_problem};
use crate::gpu::Gpu;
use crate::ir::{
    ConvProblem, DType, FusedTucker, INPUT_NAME, LayerSpec, Layout, Network, OpId, OpKind, Problem,
    TilePolicy,
};
use tdc_runtime::{Conv, FactorRole, FusedOps, Tucker, Variant};

/// Prefix of the symbols of kernels outside networks and layer sets: of kernels that programs embed, and of the same kernels when they are
/// measured, so that their machine code is the same.
pub const KERNEL_PREFIX: &str = "tdc";

/// A planned kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelPlan {
    /// The problem's name.
    pub name: String,
    /// The operation.
    pub op: KernelOp,
    /// One variant for each GPU, in the order given.
    pub variants: Vec<VariantPlan>,
}

/// The operation of a kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KernelOp {
    /// A convolution.
    Conv(Conv),
    /// A Tucker layer.
    Tucker(Tucker),
}

/// A kernel planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantPlan {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// The units, in order: one, or up to three for a Tucker layer.
    pub units: Vec<PlannedUnit>,
    /// The steps of all units.
    pub variant: Variant,
}

impl KernelOp {
    /// The operation of a layer.
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

/// The name of a layer's problem.
pub fn kernel_name(layer: &LayerSpec) -> String {
    match layer.ranks {
        None => problem_label(&Problem::Conv(layer.problem)),
        Some(ranks) => {
            let factors = layer.problem.tucker_factors(ranks);
            let core = factors[1];
            let factors: Vec<_> = FactorRole::TUCKER.into_iter().zip(factors).collect();
            match FusedTucker::new(&factors) {
                Some(fused) => problem_label(&Problem::Tucker(fused.whole)),
                // The partial sums of its core are added by atomics; there is no name for such a complete layer.
                None => format!("tucker_{}", problem_label(&Problem::Conv(core))),
            }
        }
    }
}

/// Plans a layer for each of `gpus`. With `tiles: tuned`, `table` replaces the committed table of its GPU.
///
/// # Errors
/// [`PlanError`] of the first GPU that has one, if the requested scheme and tile are not valid or no scheme supports the layer.
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

/// The units of a layer, as in a network of only this layer. The requested scheme and tile apply to the unit that computes the core of a
/// Tucker layer.
fn units(planner: &mut Planner, layer: &LayerSpec) -> Result<Vec<PlannedUnit>, PlanError> {
    let graph = lower(planner, layer_graph(layer));
    let unit = |task: &Task| {
        plan_problem(
            planner,
            KERNEL_PREFIX,
            &layer.name,
            &task.problem,
            task.scheme.as_deref(),
            task.tile.as_deref(),
        )
    };
    graph.tasks.iter().map(unit).collect()
}

/// The tasks of a layer on its own. Its input and output are NCHW, and its weight is dense or has Tucker factors.
fn layer_graph(layer: &LayerSpec) -> TaskGraph {
    let spec = LayerSpec {
        layout: Layout::Nchw,
        cp_rank: None,
        rank: None,
        ..layer.clone()
    };
    let whole = Problem::Conv(spec.problem);
    // As in a network of only this layer, the first values are the outputs of the ops: the input and the layer.
    let (input, output) = (ValueId(0), ValueId(1));
    let mut graph = TaskGraph {
        activations: DType::default(),
        values: Vec::new(),
        tasks: Vec::new(),
        inputs: vec![input],
        outputs: vec![output],
    };
    graph.add_value(INPUT_NAME.to_owned(), whole.x(), None);
    graph.add_value(spec.name.clone(), whole.y(), None);
    let has_residual = spec.problem.epilogue.residual;
    let residual = has_residual.then(|| graph.add_value("residual".to_owned(), whole.y(), None));
    let values = LayerValues {
        x: input,
        residual,
        y: output,
    };
    let ops = LayerOps {
        layer: OpId(output.0),
        fold: Vec::new(),
        prologue: None,
    };
    graph.push_layer(&spec, SquareFactors::Kept, &values, &ops);
    graph
}

/// The graphs of a network's Tucker layers, each as a kernel, that have factors which a network drops.
pub(super) fn layers_with_square_factors(network: &Network) -> Vec<TaskGraph> {
    let has_square_factor = |layer: &LayerSpec| {
        let shape = &layer.problem.shape;
        let ranks = layer.ranks.filter(|_| layer.layout == Layout::Nchw);
        ranks.is_some_and(|[d1, d2]| d1 == shape.c || d2 == shape.n)
    };
    let layers = network_layers(network).into_iter();
    let layers = layers.filter(has_square_factor);
    layers.map(|layer| layer_graph(&layer)).collect()
}

/// The convolutions of a network, each with its fused ops and the name of its op, in execution order.
pub fn network_layers(network: &Network) -> Vec<LayerSpec> {
    let graph = TaskGraph::new(network);
    let layer = |tasks: &[Task]| {
        let (task, last) = (tasks.first()?, tasks.last()?);
        let op = network.op(task.parameters.layer?);
        let OpKind::Conv(conv) = &op.kind else {
            return None;
        };
        // Kernels of programs have NCHW tensors, and a dense weight or Tucker factors.
        let problem = |task: &Task| {
            let conv_of_task = task.problem.nchw_conv().copied();
            let other_factors = conv.options.cp_rank.or(conv.options.rank);
            conv_of_task.filter(|_| other_factors.is_none())
        };
        let (first, last) = (problem(task)?, problem(last)?);
        Some(LayerSpec {
            name: op.name.clone(),
            problem: ConvProblem {
                prologue: first.prologue,
                epilogue: last.epilogue,
                reduce: conv.options.reduce,
                precision: conv.options.precision,
                tolerance: conv.options.tolerance,
                ..ConvProblem::new(conv.shape)
            },
            ranks: conv.options.ranks,
            cp_rank: None,
            rank: None,
            layout: conv.options.layout,
            scheme: conv.options.scheme.clone(),
            tile: conv.options.tile.clone(),
        })
    };
    let of_one_op = |a: &Task, b: &Task| {
        a.parameters.layer.is_some() && a.parameters.layer == b.parameters.layer
    };
    let layers = graph.tasks.chunk_by(of_one_op);
    layers.filter_map(layer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, LinearOptions, NetworkBuilder, OpOptions, TensorShape};

    #[test]
    fn the_layers_of_a_network_have_a_dense_weight_or_tucker_factors() {
        let pointwise = ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(5)
        };
        let mut net = NetworkBuilder::new("net", TensorShape::new(3, 7, 9, 5));
        for (name, ranks, cp_rank, rank) in [
            ("low", None, None, Some(3)),
            ("tucker", Some([2, 3]), None, None),
            ("cp", None, Some(2), None),
            ("dense", None, None, None),
        ] {
            let options = ConvOptions {
                ranks,
                cp_rank,
                rank,
                ..pointwise.clone()
            };
            net.op(name, None, OpOptions::Conv(options));
        }
        net.op("pool", None, OpOptions::GlobalAvgPool);
        let linear = LinearOptions {
            rank: Some(2),
            ..LinearOptions::new(3)
        };
        net.op("linear", None, OpOptions::Linear(linear));
        let layers = network_layers(&net.finish().unwrap());
        let layers: Vec<_> = layers
            .iter()
            .map(|layer| (&layer.name[..], layer.ranks))
            .collect();
        assert_eq!(layers, [("tucker", Some([2, 3])), ("dense", None)]);
    }
}
