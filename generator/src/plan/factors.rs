//! The tasks of a convolution or linear layer: one, or one for each factor of a factorised layer.

use super::factor_order;
use super::graph::{Parameters, Task, TaskGraph, ValueId};
use crate::ir::{
    ConvProblem, CpProblem, DType, Format, INPUT_NAME, LayerSpec, LinearProblem, OpId, Problem,
};
use std::collections::HashMap;
use tdc_runtime::FactorRole;

/// The values that a layer reads and writes.
pub(super) struct LayerValues {
    pub x: ValueId,
    pub residual: Option<ValueId>,
    pub y: ValueId,
}

/// The ops whose parameters a layer reads, itself included.
pub(super) struct LayerOps {
    pub layer: OpId,
    /// See [`Parameters::fold`].
    pub fold: Vec<OpId>,
    /// The scale_shift op that is the layer's prologue.
    pub prologue: Option<OpId>,
}

/// A layer as one problem, or as the problems of its factors in the order of their execution.
struct LayerTasks<'a> {
    name: &'a str,
    problems: LayerProblems,
    /// The requested scheme and tile: of the only problem, or of the factors between the first and the last.
    scheme: Option<&'a String>,
    tile: Option<&'a Vec<u32>>,
}

/// What becomes of the first factor of a Tucker layer with D1 = C, and of the last one with D2 = N.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SquareFactors {
    /// The packer multiplies them into the core.
    Dropped,
    /// The program that embeds the kernel packs all three factors.
    Kept,
}

enum LayerProblems {
    Dense(Problem),
    Factors(Vec<(FactorRole, Problem)>),
}

impl LayerProblems {
    fn factors(roles: &[FactorRole], problems: impl IntoIterator<Item = Problem>) -> Self {
        Self::Factors(roles.iter().copied().zip(problems).collect())
    }

    /// Those of a convolution.
    fn of_conv(spec: &LayerSpec, square_factors: SquareFactors) -> Self {
        let conv = spec.problem;
        let in_layout = |conv: ConvProblem| Problem::Conv(conv.in_layout(spec.layout));
        if let Some(ranks) = spec.ranks {
            let factors = match square_factors {
                SquareFactors::Dropped => conv.tucker_chain(ranks),
                SquareFactors::Kept => {
                    let factors = conv.tucker_factors(ranks);
                    FactorRole::TUCKER.into_iter().zip(factors).collect()
                }
            };
            let problems = factors.into_iter();
            let problems = problems.map(|(role, conv)| (role, in_layout(conv)));
            return Self::Factors(problems.collect());
        }
        if let Some(rank) = spec.cp_rank {
            let horizontal_first = factor_order::horizontal_first(&CpProblem { conv, rank });
            let roles = match horizontal_first {
                true => &FactorRole::CP_HORIZONTAL_FIRST,
                false => &FactorRole::CP,
            };
            let problems = conv.cp_factors(rank, horizontal_first).map(in_layout);
            return Self::factors(roles, problems);
        }
        match spec.rank {
            Some(rank) => {
                let problems = conv.low_rank_factors(rank).map(in_layout);
                Self::factors(&FactorRole::LOW_RANK, problems)
            }
            None => Self::Dense(in_layout(conv)),
        }
    }
}

impl TaskGraph {
    /// The graph of a layer on its own, whose tasks `push` adds. As in a network of only this layer, the first values are the outputs of the
    /// ops: the input and the layer. All values are NCHW.
    pub(super) fn of_layer(
        name: &str,
        whole: &Problem,
        push: impl FnOnce(&mut Self, &LayerValues, &LayerOps),
    ) -> Self {
        let (x, y) = (ValueId(0), ValueId(1));
        let mut graph = Self {
            activations: DType::default(),
            linear_precisions: HashMap::new(),
            values: Vec::new(),
            tasks: Vec::new(),
            inputs: vec![x],
            outputs: vec![y],
            output_formats: vec![Format::default()],
        };
        graph.add_value(INPUT_NAME.to_owned(), whole.x(), None);
        graph.add_value(name.to_owned(), whole.y(), None);
        let residual = whole
            .reads_residual()
            .then(|| graph.add_value("residual".to_owned(), whole.y(), None));
        let ops = LayerOps {
            layer: OpId(y.0),
            fold: Vec::new(),
            prologue: None,
        };
        push(&mut graph, &LayerValues { x, residual, y }, &ops);
        graph
    }

    /// Adds the tasks of a convolution. With Tucker ranks there are three: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper,
    /// eqs. 2-4), or fewer if [square factors](ConvProblem::tucker_chain) are dropped. With a CP rank there are four: 1x1, an R x 1 and a 1 x S filter of each channel in [the cheaper order](factor_order), 1x1
    /// (CP paper, eq. 7). With a rank there are two: 1x1 to as many channels, 1x1 to N. The prologue belongs to the first factor, the
    /// epilogue to the last. The scheme and tile that the config requests belong to the factors between them.
    pub(super) fn push_layer(
        &mut self,
        spec: &LayerSpec,
        square_factors: SquareFactors,
        values: &LayerValues,
        ops: &LayerOps,
    ) {
        let layer = LayerTasks {
            name: &spec.name,
            problems: LayerProblems::of_conv(spec, square_factors),
            scheme: spec.scheme.as_ref(),
            tile: spec.tile.as_ref(),
        };
        self.push_tasks(layer, values, ops);
    }

    /// Adds the tasks of a linear layer: with a rank two, to as many features and to N.
    pub(super) fn push_linear(
        &mut self,
        name: &str,
        linear: LinearProblem,
        rank: Option<u32>,
        values: &LayerValues,
        ops: &LayerOps,
    ) {
        let problems = match rank {
            None => LayerProblems::Dense(Problem::Linear(linear)),
            Some(rank) => {
                let problems = linear.low_rank_factors(rank).map(Problem::Linear);
                LayerProblems::factors(&FactorRole::LOW_RANK, problems)
            }
        };
        let layer = LayerTasks {
            name,
            problems,
            scheme: None,
            tile: None,
        };
        self.push_tasks(layer, values, ops);
    }

    fn push_tasks(&mut self, layer: LayerTasks<'_>, values: &LayerValues, ops: &LayerOps) {
        let factors = match layer.problems {
            LayerProblems::Dense(problem) => {
                self.tasks.push(Task {
                    name: layer.name.to_owned(),
                    problem,
                    x: values.x,
                    residual: values.residual,
                    appended: None,
                    y: values.y,
                    parameters: Parameters {
                        layer: Some(ops.layer),
                        factors: Vec::new(),
                        fold: ops.fold.clone(),
                        ends_layer: true,
                        scale_shift: ops.prologue,
                        ..Parameters::default()
                    },
                    scheme: layer.scheme.cloned(),
                    tile: layer.tile.cloned(),
                });
                return;
            }
            LayerProblems::Factors(factors) => factors,
        };
        let mut x = values.x;
        let count = factors.len();
        for (index, (factor, problem)) in factors.into_iter().enumerate() {
            let name = format!("{}.{}", layer.name, factor.as_str());
            let (is_first, is_last) = (index == 0, index + 1 == count);
            let is_inner = !matches!(factor, FactorRole::First | FactorRole::Last);
            let y = match is_last {
                true => values.y,
                false => self.add_value(name.clone(), problem.y(), None),
            };
            self.tasks.push(Task {
                name,
                problem,
                x,
                residual: values.residual.filter(|_| is_last),
                appended: None,
                y,
                parameters: Parameters {
                    layer: Some(ops.layer),
                    factors: vec![factor],
                    fold: match is_last {
                        true => ops.fold.clone(),
                        false => Vec::new(),
                    },
                    ends_layer: is_last,
                    scale_shift: ops.prologue.filter(|_| is_first),
                    ..Parameters::default()
                },
                scheme: layer.scheme.filter(|_| is_inner).cloned(),
                tile: layer.tile.filter(|_| is_inner).cloned(),
            });
            x = y;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        Activation, BatchNorm, BinaryOp, ConvOptions, LinearOptions, NetworkBuilder, OpOptions,
        PaddingOption, ScaleShiftOptions, TensorShape,
    };
    use tdc_runtime::Padding;

    const PADDING: Padding = Padding {
        top: 1,
        left: 0,
        bottom: 2,
        right: 1,
    };

    fn graph(ops: &[(&str, &[&str], OpOptions)]) -> TaskGraph {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(3, 7, 9, 5));
        for (name, inputs, options) in ops {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options.clone());
        }
        TaskGraph::new(&builder.finish().unwrap())
    }

    fn scale_shift(activation: Activation) -> OpOptions {
        OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            activation,
        })
    }

    #[test]
    fn stride_padding_and_prologue_go_to_the_first_factor_and_the_epilogue_to_the_last() {
        let low_rank = ConvOptions {
            kernel: [1, 1],
            stride: [2, 3],
            pad: PaddingOption::Pixels(PADDING),
            bias: true,
            bn: Some(BatchNorm {
                name: "bn".to_owned(),
                eps: 1e-5,
            }),
            rank: Some(5),
            ..ConvOptions::new(11)
        };
        let other = ConvOptions {
            rank: None,
            ..low_rank.clone()
        };
        let graph = graph(&[
            ("other", &["input"], OpOptions::Conv(other)),
            ("before", &["input"], scale_shift(Activation::Relu)),
            ("a", &["before"], OpOptions::Conv(low_rank)),
            ("after", &["a"], scale_shift(Activation::None)),
            (
                "sum",
                &["after", "other"],
                OpOptions::Binary(BinaryOp::Add, Activation::Silu),
            ),
        ]);
        let [_, first, last] = &graph.tasks[..] else {
            panic!("{:?}", graph.tasks);
        };
        assert_eq!((&first.name[..], &last.name[..]), ("a.first", "a.last"));
        let conv = |task: &Task| *task.problem.nchw_conv().unwrap();
        let (first_conv, last_conv) = (conv(first), conv(last));
        // 12 x 6 padded pixels, every second row and third column.
        assert_eq!(
            (first.problem.x(), first.problem.y()),
            (TensorShape::new(3, 7, 9, 5), TensorShape::new(3, 5, 6, 2))
        );
        assert_eq!(
            (last.problem.x(), last.problem.y()),
            (TensorShape::new(3, 5, 6, 2), TensorShape::new(3, 11, 6, 2))
        );
        assert_eq!(first_conv.shape.padding, PADDING);
        assert_eq!(last_conv.shape.padding, Padding::default());
        assert_eq!(first_conv.prologue.unwrap().activation, Activation::Relu);
        assert_eq!(last_conv.prologue, None);
        assert_eq!(first_conv.epilogue, Default::default());
        assert_eq!(last_conv.epilogue.activation, Activation::Silu);
        assert!(last_conv.epilogue.bias && last_conv.epilogue.residual);
        assert_eq!(first.residual, None);
        assert!(last.residual.is_some() && last.x == first.y);
        assert_eq!(graph.values[last.y.0].name, "sum");
        assert_eq!(first.parameters.fold, []);
        assert_eq!(last.parameters.fold, [OpId(3), OpId(4)]);
        assert_eq!(first.parameters.scale_shift, Some(OpId(2)));
        assert_eq!(last.parameters.scale_shift, None);
    }

    #[test]
    fn a_linear_layer_with_a_rank_is_two_linear_layers() {
        let linear = LinearOptions {
            rank: Some(2),
            ..LinearOptions::new(13)
        };
        let graph = graph(&[
            ("pool", &["input"], OpOptions::GlobalAvgPool),
            ("fc", &["pool"], OpOptions::Linear(linear)),
            ("after", &["fc"], scale_shift(Activation::Relu)),
        ]);
        let [_, first, last] = &graph.tasks[..] else {
            panic!("{:?}", graph.tasks);
        };
        let linear = |task: &Task| match task.problem {
            Problem::Linear(linear) => linear,
            other => panic!("{other:?}"),
        };
        let (first_linear, last_linear) = (linear(first), linear(last));
        let sizes = |linear: LinearProblem| (linear.batch, linear.c, linear.n);
        assert_eq!(sizes(first_linear), (3, 7, 2));
        assert_eq!(sizes(last_linear), (3, 2, 13));
        assert_eq!(first_linear.epilogue, Default::default());
        assert!(last_linear.epilogue.bias);
        assert_eq!(last_linear.epilogue.activation, Activation::Relu);
        assert_eq!(graph.values[first.y.0].name, "fc.first");
        assert_eq!(first.parameters.factors, [FactorRole::First]);
        assert_eq!(last.parameters.factors, [FactorRole::Last]);
        assert_eq!(last.parameters.fold, [OpId(3)]);
        assert_eq!(first.parameters.fold, []);
    }
}
