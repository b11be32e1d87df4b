//! The last convolution of a residual block together with the projection shortcut that is added to it, as one unit in an NHWC format.

use super::candidate::Candidate;
use super::formats::nhwc_format;
use crate::ir::{
    Activation, ConvProblem, Epilogue, Format, Precision, Problem, ProjectedProblem, Shortcut,
};
use crate::plan::graph::{Parameters, Projection, Task, TaskGraph};
use tdc_runtime::Padding;

/// Adds a candidate for each sum of two such convolutions.
pub(super) fn add(graph: &TaskGraph, candidates: &mut Vec<Candidate>) {
    let sums = 0..graph.tasks.len();
    candidates.extend(sums.filter_map(|sum| projected(graph, sum)));
}

/// The candidate for a task that adds a residual, if another task computes the residual for it alone.
fn projected(graph: &TaskGraph, sum: usize) -> Option<Candidate> {
    let tasks = &graph.tasks;
    let residual = tasks[sum].residual?;
    let other = tasks.iter().position(|task| task.y == residual)?;
    if graph.only_reader(residual) != Some(sum) {
        return None;
    }
    let [last, before] = [sum, other].map(|index| &tasks[index]);
    let (last_conv, before_conv) = (pointwise(last)?, pointwise(before)?);
    let is_linear =
        before_conv.epilogue.activation == Activation::None && before.residual.is_none();
    if !is_linear || last_conv.precision != before_conv.precision {
        return None;
    }
    // Either of them may be the shortcut. The other one has as many pixels as the output.
    let dense = |conv: &ConvProblem| conv.shape.stride == [1, 1];
    let (own, own_conv, shortcut, shortcut_conv) = match dense(last_conv) {
        true => (last, last_conv, before, before_conv),
        false if dense(before_conv) => (before, before_conv, last, last_conv),
        false => return None,
    };
    let shape = &shortcut_conv.shape;
    let problem = ProjectedProblem {
        x: own.problem.x(),
        n: own_conv.shape.n,
        shortcut: Shortcut {
            image: [shape.c, shape.h, shape.w],
            stride: shape.stride,
        },
        epilogue: Epilogue {
            bias: last_conv.epilogue.bias || before_conv.epilogue.bias,
            residual: false,
            activation: last_conv.epilogue.activation,
        },
        precision: own_conv.precision,
        format: nhwc_format(graph, own_conv)?,
    };
    let fits = [problem.x.c, problem.n, shape.c]
        .iter()
        .all(|&channels| problem.format.fits_channels(channels));
    let mut covers = vec![sum, other];
    covers.sort_unstable();
    // The unit runs at the position of the first task.
    let is_ready = [own.x, shortcut.x]
        .iter()
        .all(|&input| graph.is_computed_before(input, covers[0]));
    // Sums of two split tensors change their scale, which only those of fp32 can.
    let is_added = problem.format != Format::SPLIT_NHWC || problem.precision == Precision::Fp32;
    let is_valid = fits && is_ready && is_added && problem.is_valid();
    let added = Projection {
        layer: shortcut.parameters.layer?,
        fold: shortcut.parameters.fold.clone(),
    };
    is_valid.then(|| Candidate {
        task: Task {
            name: format!("{}+{}", own.name, shortcut.name),
            problem: Problem::Projected(problem),
            x: own.x,
            residual: Some(shortcut.x),
            appended: None,
            y: last.y,
            parameters: Parameters {
                projection: Some(added),
                ..own.parameters.clone()
            },
            scheme: None,
            tile: None,
        },
        covers,
        other_outputs: Vec::new(),
        extends: None,
    })
}

/// The 1x1 convolution of a task: of a layer that is not factorised, without padding, groups, prologue, or a request of the config's.
fn pointwise(task: &Task) -> Option<&ConvProblem> {
    let conv = task.problem.nchw_conv()?;
    let shape = &conv.shape;
    let is_plain = task.parameters.factors.is_empty()
        && task.parameters.scale_shift.is_none()
        && task.scheme.is_none()
        && task.problem.is_deterministic();
    let is_pointwise =
        [shape.r, shape.s, shape.groups] == [1; 3] && shape.padding == Padding::default();
    (is_plain && is_pointwise).then_some(conv)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{
        BinaryOp, ConvOptions, DType, Layout, NetworkBuilder, OpOptions, Reduce, TensorShape,
    };

    /// A block of a network with fp16 activations: a convolution `a`, the block's last one `b`, its shortcut, and their sum.
    struct Block {
        images: u32,
        activations: DType,
        precision: Precision,
        b: ConvOptions,
        shortcut: ConvOptions,
        activation: Activation,
        /// Another op reads the shortcut's output.
        is_read: bool,
        /// The shortcut comes before `a`.
        is_first: bool,
    }

    fn pointwise(n: u32, stride: u32) -> ConvOptions {
        ConvOptions {
            kernel: [1, 1],
            stride: [stride; 2],
            ..ConvOptions::new(n)
        }
    }

    impl Block {
        fn new() -> Self {
            Self {
                images: 8,
                activations: DType::Fp16,
                precision: Precision::Fp16,
                b: pointwise(24, 1),
                shortcut: pointwise(24, 2),
                activation: Activation::Relu,
                is_read: false,
                is_first: false,
            }
        }

        /// The candidate's name and problem.
        fn candidate(self) -> Option<(String, ProjectedProblem)> {
            let x = TensorShape::new(self.images, 16, 7, 9);
            let mut builder = NetworkBuilder::new("net", x);
            let conv = |options: ConvOptions| {
                OpOptions::Conv(ConvOptions {
                    precision: self.precision,
                    ..options
                })
            };
            let a = ConvOptions {
                stride: [2, 2],
                ..ConvOptions::new(32)
            };
            let mut ops = vec![
                ("a", vec!["input"], conv(a)),
                ("b", vec!["a"], conv(self.b)),
                ("shortcut", vec!["input"], conv(self.shortcut)),
                (
                    "sum",
                    vec!["b", "shortcut"],
                    OpOptions::Binary(BinaryOp::Add, self.activation),
                ),
            ];
            if self.is_first {
                let shortcut = ops.remove(2);
                ops.insert(0, shortcut);
            }
            if self.is_read {
                let add = OpOptions::Binary(BinaryOp::Add, Activation::None);
                ops.push(("other", vec!["sum", "shortcut"], add));
            }
            for (name, inputs, options) in ops {
                let inputs: Vec<_> = inputs.into_iter().map(str::to_owned).collect();
                builder.op(name, Some(&inputs), options);
            }
            let mut network = builder.finish().unwrap();
            network.activations = self.activations;
            let graph = TaskGraph::new(&network);
            let candidates = graph.candidates();
            let mut projected = candidates.iter().filter_map(|candidate| {
                assert!(candidate.covers.is_sorted());
                match candidate.task.problem {
                    Problem::Projected(problem) => Some((candidate.task.name.clone(), problem)),
                    _ => None,
                }
            });
            let found = projected.next();
            assert_eq!(projected.next(), None);
            found
        }
    }

    #[test]
    fn a_convolution_and_its_shortcut_are_one_unit() {
        let (name, problem) = Block::new().candidate().unwrap();
        assert_eq!(name, "b+shortcut");
        assert_eq!(problem.x, TensorShape::new(8, 32, 4, 5));
        assert_eq!(problem.shortcut_input(), TensorShape::new(8, 16, 7, 9));
        assert_eq!(problem.shortcut.stride, [2, 2]);
        assert_eq!(problem.epilogue.activation, Activation::Relu);
        assert_eq!(problem.format, Format::FP16_NHWC);
        assert!(!problem.epilogue.bias && !problem.epilogue.residual);
        let biased = Block {
            shortcut: ConvOptions {
                bias: true,
                ..pointwise(24, 2)
            },
            ..Block::new()
        };
        assert!(biased.candidate().unwrap().1.epilogue.bias);
    }

    #[test]
    fn formats_follow_the_activations_of_the_network() {
        let fp32 = |precision| Block {
            activations: DType::Fp32,
            precision,
            ..Block::new()
        };
        let (_, problem) = fp32(Precision::Fp32).candidate().unwrap();
        assert_eq!(problem.format, Format::SPLIT_NHWC);
        assert_eq!(fp32(Precision::Tf32).candidate(), None);
        let bf16 = Block {
            precision: Precision::Bf16,
            ..Block::new()
        };
        assert_eq!(bf16.candidate(), None);
    }

    #[test]
    fn other_sums_are_left_alone() {
        let none = |change: &dyn Fn(&mut Block)| {
            let mut block = Block::new();
            change(&mut block);
            assert_eq!(block.candidate(), None);
        };
        none(&|block| block.is_read = true);
        // The unit would run before `a`, whose output it reads.
        none(&|block| block.is_first = true);
        none(&|block| block.shortcut.activation = Activation::Relu);
        none(&|block| block.shortcut.kernel = [3, 3]);
        none(&|block| block.b.kernel = [3, 3]);
        none(&|block| block.b.groups = 2);
        none(&|block| block.shortcut.scheme = Some("direct".to_owned()));
        none(&|block| block.shortcut.layout = Layout::Hwcn);
        none(&|block| block.b.reduce = Reduce::Atomic);
        none(&|block| block.b.rank = Some(2));
        none(&|block| (block.b.n, block.shortcut.n) = (17, 17));
    }
}
