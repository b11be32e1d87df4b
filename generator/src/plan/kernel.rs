//! The plan of a single kernel for each of its GPUs.

use super::chain::chain_units;
use super::choose::Planner;
use super::error::PlanError;
use super::factors::SquareFactors;
use super::graph::{Task, TaskGraph};
use super::lowering::lower;
use super::name::problem_label;
use super::tuning::TuningTable;
use super::unit::{PlannedUnit, plan_problem};
use crate::gpu::Gpu;
use crate::ir::{
    ConvProblem, FusedTucker, LayerSpec, Layout, LinearProblem, Network, OpKind, Problem,
    TilePolicy,
};
use tdc_runtime::{Conv, ConvShape, FactorRole, FusedOps, LowRank, Tucker, Variant};

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
    /// A low-rank layer.
    LowRank(LowRank),
}

/// A kernel planned for one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantPlan {
    /// The GPU.
    pub gpu: &'static Gpu,
    /// The units, in order: one, up to three for a Tucker layer, two for a low-rank layer.
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
        match (layer.ranks, layer.rank) {
            (Some(ranks), _) => Self::Tucker(Tucker {
                shape,
                ranks,
                fused,
            }),
            (None, Some(rank)) => Self::LowRank(LowRank { shape, rank, fused }),
            (None, None) => Self::Conv(Conv { shape, fused }),
        }
    }
}

/// The name of a layer's problem.
pub fn kernel_name(layer: &LayerSpec) -> String {
    let whole = || {
        let linear = linear_problem(layer).map(Problem::Linear);
        problem_label(&linear.unwrap_or(Problem::Conv(layer.problem)))
    };
    match (layer.ranks, layer.rank) {
        (None, None) => whole(),
        (None, Some(rank)) => format!("rank{rank}_{}", whole()),
        (Some(ranks), _) => {
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

/// A layer as a linear layer, which is planned with the schemes of linear layers: a 1x1 convolution of images of one pixel, with nothing
/// that a linear layer does not have.
fn linear_problem(layer: &LayerSpec) -> Option<LinearProblem> {
    let ConvProblem {
        shape, epilogue, ..
    } = layer.problem;
    let whole = ConvProblem {
        epilogue,
        ..ConvProblem::new(linear_shape(shape.batch, shape.c, shape.n))
    };
    let has_more = epilogue.residual || layer.ranks.is_some() || layer.scheme.is_some();
    let is_linear = layer.problem == whole && !has_more;
    is_linear.then_some(LinearProblem {
        batch: shape.batch,
        c: shape.c,
        n: shape.n,
        epilogue,
    })
}

/// A linear layer as a convolution.
fn linear_shape(batch: u32, c: u32, n: u32) -> ConvShape {
    ConvShape {
        batch,
        ..ConvShape::new(c, n, 1, 1, 1, 1)
    }
}

/// The tasks of a layer on its own. Its input and output are NCHW, and its weight is dense or has Tucker or low-rank factors.
fn layer_graph(layer: &LayerSpec) -> TaskGraph {
    let spec = LayerSpec {
        layout: Layout::Nchw,
        cp_rank: None,
        ..layer.clone()
    };
    let whole = Problem::Conv(spec.problem);
    TaskGraph::of_layer(
        &spec.name,
        &whole,
        |graph, values, ops| match linear_problem(&spec) {
            Some(linear) => graph.push_linear(&spec.name, linear, spec.rank, values, ops),
            None => graph.push_layer(&spec, SquareFactors::Kept, values, ops),
        },
    )
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

/// The convolutions and linear layers of a network, each with its fused ops and the name of its op, in execution order. Layers with a CP
/// rank, or with another layout than NCHW, are left out: programs have no kernels of them.
pub fn network_layers(network: &Network) -> Vec<LayerSpec> {
    let graph = TaskGraph::new(network);
    let of_one_op = |a: &Task, b: &Task| {
        a.parameters.layer.is_some() && a.parameters.layer == b.parameters.layer
    };
    let layers = graph.tasks.chunk_by(of_one_op);
    layers
        .filter_map(|tasks| network_layer(network, tasks))
        .collect()
}

/// The layer with these tasks.
fn network_layer(network: &Network, tasks: &[Task]) -> Option<LayerSpec> {
    let (first, last) = (tasks.first()?, tasks.last()?);
    let op = network.op(first.parameters.layer?);
    match &op.kind {
        OpKind::Conv(conv) if conv.options.cp_rank.is_none() => {
            let options = &conv.options;
            Some(LayerSpec {
                name: op.name.clone(),
                problem: ConvProblem {
                    prologue: first.problem.nchw_conv()?.prologue,
                    epilogue: last.problem.nchw_conv()?.epilogue,
                    reduce: options.reduce,
                    precision: options.precision,
                    tolerance: options.tolerance,
                    ..ConvProblem::new(conv.shape)
                },
                ranks: options.ranks,
                cp_rank: None,
                rank: options.rank,
                layout: options.layout,
                scheme: options.scheme.clone(),
                tile: options.tile.clone(),
            })
        }
        OpKind::Linear(linear) => {
            let Problem::Linear(problem) = last.problem else {
                return None;
            };
            let shape = linear_shape(problem.batch, linear.c, problem.n);
            Some(LayerSpec {
                name: op.name.clone(),
                problem: ConvProblem {
                    epilogue: problem.epilogue,
                    ..ConvProblem::new(shape)
                },
                ranks: None,
                cp_rank: None,
                rank: linear.options.rank,
                layout: Layout::Nchw,
                scheme: None,
                tile: None,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, LinearOptions, NetworkBuilder, OpOptions, TensorShape};

    #[test]
    fn the_layers_of_a_network_have_no_cp_factors() {
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
            .map(|layer| (&layer.name[..], layer.ranks, layer.rank))
            .collect();
        let expected = [
            ("low", None, Some(3)),
            ("tucker", Some([2, 3]), None),
            ("dense", None, None),
            ("linear", None, Some(2)),
        ];
        assert_eq!(layers, expected);
    }
}
