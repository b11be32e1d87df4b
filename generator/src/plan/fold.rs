//! Folding: turns a graph of ops into a list of tasks, by rules that need no choice.
//!
//! - scale_shift ops (BatchNorm) and activation functions after a layer are folded into its weights and bias and into its epilogue. An
//!   addition becomes its residual. Both require that no other op reads the values between them, and that they are no outputs.
//! - A scale_shift (and its activation function) that only convolutions read becomes their prologue.
//! - A convolution or linear layer with ranks becomes [a task for each factor](super::factors).
//! - Concatenations, slices and flattens are [views](super::views); only those that cannot be views are copied.
//!
//! Everything that is a choice, such as fusing the factors of a layer, is left to [candidates](super::candidates).

use super::candidates::output_task;
use super::factors::{LayerOps, LayerValues, SquareFactors};
use super::graph::{Parameters, Task, TaskGraph, Value, ValueId};
use super::views::{ConcatCopy, Views};
use crate::ir::{
    Activation, BinaryOp, ChannelNorm, ChannelNormProblem, Conv, ConvProblem, ConvTranspose,
    ConvTransposeProblem, ConvertProblem, Elementwise, ElementwiseProblem, Epilogue, Format,
    GlobalPoolProblem, InputEncoding, LayerSpec, Linear, LinearProblem, LrnProblem, Network,
    NormalizeProblem, OpId, OpKind, Problem, Prologue,
};
use std::collections::HashMap;

/// The tasks of a network, and its layers.
pub(crate) struct FoldedNetwork {
    /// The tasks.
    pub graph: TaskGraph,
    /// Each convolution and linear layer as one problem, with the ops that are folded into it and without its factors.
    #[cfg_attr(not(feature = "compress"), allow(dead_code))]
    pub layers: Vec<(OpId, Problem)>,
}

impl TaskGraph {
    /// The tasks of a network.
    pub fn new(network: &Network) -> Self {
        FoldedNetwork::new(network).graph
    }
}

impl FoldedNetwork {
    /// Folds a network.
    pub(crate) fn new(network: &Network) -> Self {
        let consumers = network.consumers();
        let mut graph = TaskGraph {
            values: network
                .ops
                .iter()
                .map(|op| Value {
                    name: op.name.clone(),
                    shape: op.y,
                    format: Format::default(),
                    parent: None,
                })
                .collect(),
            tasks: Vec::new(),
            activations: network.activations,
            linear_precisions: HashMap::new(),
            inputs: (0..network.inputs().len()).map(ValueId).collect(),
            outputs: network
                .outputs
                .iter()
                .map(|output| ValueId(output.op.0))
                .collect(),
            output_formats: network
                .outputs
                .iter()
                .map(|output| output.format.as_kernels_write(network.op(output.op).y))
                .collect(),
        };
        let views = Views::new(network, &consumers);
        let copies = views.place(&mut graph.values);
        let mut folder = Folder {
            network,
            consumers: &consumers,
            absorbed: vec![false; network.ops.len()],
            prologues: vec![None; network.ops.len()],
            views,
            copies,
            graph,
            layers: Vec::new(),
        };
        for index in 0..network.ops.len() {
            folder.visit(OpId(index));
        }
        folder.convert_unwritten_outputs();
        Self {
            graph: folder.graph,
            layers: folder.layers,
        }
    }
}

struct Folder<'a> {
    network: &'a Network,
    consumers: &'a [Vec<OpId>],
    /// Ops that are computed by another op's task.
    absorbed: Vec<bool>,
    /// For the output of a scale_shift that becomes the prologue of its readers: that prologue.
    prologues: Vec<Option<PrologueSource>>,
    views: Views<'a>,
    copies: Vec<ConcatCopy>,
    graph: TaskGraph,
    layers: Vec<(OpId, Problem)>,
}

/// A scale_shift that the convolutions that read it compute.
#[derive(Clone, Copy)]
struct PrologueSource {
    /// Its input.
    source: OpId,
    /// The op, which has the parameters.
    scale_shift: OpId,
    prologue: Prologue,
}

/// The ops after a layer that its task computes.
struct EpilogueOps {
    fold: Vec<OpId>,
    residual: Option<OpId>,
    activation: Activation,
    /// The last of them, whose output the task writes.
    output: OpId,
}

impl Folder<'_> {
    fn visit(&mut self, id: OpId) {
        if self.absorbed[id.0] {
            return;
        }
        let network = self.network;
        let op = network.op(id);
        match &op.kind {
            OpKind::Input(encoding) if encoding.is_plain() => {}
            OpKind::Input(encoding) => self.normalize(id, encoding),
            OpKind::Conv(conv) => self.conv(id, conv),
            OpKind::ConvTranspose(layer) => self.conv_transpose(id, layer),
            OpKind::Linear(linear) => self.linear(id, linear),
            OpKind::Pool(pool) => self.unfused_task(id, Problem::Pool(*pool)),
            OpKind::ChannelNorm(norm) => {
                let parameters = Parameters {
                    scale_shift: matches!(norm, ChannelNorm::LayerNorm { .. }).then_some(id),
                    ..Parameters::default()
                };
                let problem = ChannelNormProblem {
                    norm: *norm,
                    x: op.y,
                };
                self.task(id, Problem::ChannelNorm(problem), None, id, parameters);
            }
            OpKind::Lrn(lrn) => {
                let problem = LrnProblem { lrn: *lrn, x: op.y };
                self.unfused_task(id, Problem::Lrn(problem));
            }
            OpKind::Pad(pad) => self.unfused_task(id, Problem::Pad(*pad)),
            OpKind::Resize(resize) => self.unfused_task(id, Problem::Resize(*resize)),
            OpKind::GlobalPool { max } => {
                let x = network.op(op.inputs[0]).y;
                let max = *max;
                let input = Format::default();
                self.unfused_task(id, Problem::GlobalPool(GlobalPoolProblem { max, x, input }));
            }
            OpKind::Binary(binary, activation) => {
                let (output, activation) = self.absorb_activation(id, *activation);
                let function = Elementwise::Binary(*binary, activation);
                self.task(
                    id,
                    Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                    Some(op.inputs[1]),
                    output,
                    Parameters::default(),
                );
            }
            OpKind::Activation(activation) => {
                let function = Elementwise::Activation(*activation);
                self.unfused_task(
                    id,
                    Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                );
            }
            OpKind::ScaleShift(options) => self.scale_shift(id, options.activation),
            OpKind::PRelu => {
                let function = Elementwise::PRelu;
                let parameters = Parameters {
                    layer: Some(id),
                    ..Parameters::default()
                };
                let problem = ElementwiseProblem { function, x: op.y };
                self.task(id, Problem::Elementwise(problem), None, id, parameters);
            }
            OpKind::Flatten => {
                if self.views.flatten_needs_copy(id) {
                    self.copy(op.inputs[0], ValueId(id.0));
                }
            }
            OpKind::Concat => self.concat_copies(id),
            OpKind::Slice { start } => {
                if self.views.slice_needs_copy(id) {
                    self.slice_copy(id, *start);
                }
            }
            OpKind::Shuffle { groups } => {
                let function = Elementwise::Shuffle { groups: *groups };
                self.unfused_task(
                    id,
                    Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                );
            }
        }
    }

    /// The caller's tensor becomes a value of its own, and the op's output the normalised one.
    fn normalize(&mut self, id: OpId, encoding: &InputEncoding) {
        let op = self.network.op(id);
        let from = encoding.format();
        let given = ValueId(self.graph.values.len());
        self.graph.values.push(Value {
            name: format!("{}.given", op.name),
            shape: op.y,
            format: from,
            parent: None,
        });
        self.graph.inputs[id.0] = given;
        self.graph.tasks.push(Task {
            name: format!("{}.normalize", op.name),
            problem: Problem::Normalize(NormalizeProblem { x: op.y, from }),
            x: given,
            residual: None,
            appended: None,
            y: ValueId(id.0),
            parameters: Parameters {
                scale_shift: Some(id),
                ..Parameters::default()
            },
            scheme: None,
            tile: None,
        });
    }

    /// Adds a conversion of each output that no single task writes, such as a concatenation, and that is not required as it is stored. The
    /// search converts all others.
    fn convert_unwritten_outputs(&mut self) {
        for index in 0..self.graph.outputs.len() {
            let (output, to) = (self.graph.outputs[index], self.graph.output_formats[index]);
            let value = &self.graph.values[output.0];
            let is_written = self.graph.tasks.iter().any(|task| task.y == output);
            if is_written || value.format == to {
                continue;
            }
            let (name, x, from) = (value.name.clone(), value.shape, value.format);
            let converted = ValueId(self.graph.values.len());
            self.graph.values.push(Value {
                name: name.clone(),
                shape: x,
                format: to,
                parent: None,
            });
            self.graph.outputs[index] = converted;
            let problem = ConvertProblem { x, from, to };
            let task = output_task(&name, problem, output, converted);
            self.graph.tasks.push(task);
        }
    }

    fn conv(&mut self, id: OpId, conv: &Conv) {
        let op = self.network.op(id);
        let options = &conv.options;
        let prologue = self.prologues[op.inputs[0].0];
        let x = prologue.map_or(op.inputs[0], |prologue| prologue.source);
        let epilogue_ops = self.absorb_epilogue(id, options.activation, options.bn.is_some());
        let spec = LayerSpec {
            name: op.name.clone(),
            problem: ConvProblem {
                prologue: prologue.map(|prologue| prologue.prologue),
                epilogue: Epilogue {
                    bias: options.bias || !epilogue_ops.fold.is_empty(),
                    residual: epilogue_ops.residual.is_some(),
                    activation: epilogue_ops.activation,
                },
                reduce: options.reduce,
                precision: options.precision,
                tolerance: options.tolerance,
                ..ConvProblem::new(conv.shape)
            },
            ranks: options.ranks,
            cp_rank: options.cp_rank,
            rank: options.rank,
            layout: options.layout,
            scheme: options.scheme.clone(),
            tile: options.tile.clone(),
        };
        let values = LayerValues {
            x: ValueId(x.0),
            residual: epilogue_ops.residual.map(|op| ValueId(op.0)),
            y: ValueId(epilogue_ops.output.0),
        };
        let ops = LayerOps {
            layer: id,
            fold: epilogue_ops.fold,
            prologue: prologue.map(|prologue| prologue.scale_shift),
        };
        self.graph
            .push_layer(&spec, SquareFactors::Dropped, &values, &ops);
        self.layers.push((id, Problem::Conv(spec.problem)));
    }

    fn conv_transpose(&mut self, id: OpId, layer: &ConvTranspose) {
        let epilogue_ops = self.absorb_epilogue(id, layer.options.activation, false);
        let problem = ConvTransposeProblem {
            epilogue: Epilogue {
                bias: layer.options.bias || !epilogue_ops.fold.is_empty(),
                residual: false,
                activation: epilogue_ops.activation,
            },
            ..layer.problem
        };
        let parameters = Parameters {
            layer: Some(id),
            fold: epilogue_ops.fold,
            ..Parameters::default()
        };
        let output = epilogue_ops.output;
        self.task(
            id,
            Problem::ConvTranspose(problem),
            None,
            output,
            parameters,
        );
    }

    fn linear(&mut self, id: OpId, linear: &Linear) {
        let op = self.network.op(id);
        let epilogue_ops = self.absorb_epilogue(id, linear.options.activation, false);
        let problem = LinearProblem {
            batch: op.y.batch,
            c: linear.c,
            n: linear.options.n,
            epilogue: Epilogue {
                bias: linear.options.bias || !epilogue_ops.fold.is_empty(),
                residual: false,
                activation: epilogue_ops.activation,
            },
        };
        let values = LayerValues {
            x: ValueId(op.inputs[0].0),
            residual: None,
            y: ValueId(epilogue_ops.output.0),
        };
        let ops = LayerOps {
            layer: id,
            fold: epilogue_ops.fold,
            prologue: None,
        };
        let rank = linear.options.rank;
        self.graph
            .push_linear(&op.name, problem, rank, &values, &ops);
        let precision = linear.options.precision;
        self.graph.linear_precisions.insert(id, precision);
        self.layers.push((id, Problem::Linear(problem)));
    }

    /// A scale_shift: becomes the prologue of the convolutions that read it, or a task.
    fn scale_shift(&mut self, id: OpId, activation: Activation) {
        let op = self.network.op(id);
        let (output, activation) = self.absorb_activation(id, activation);
        if self.read_by_convs_only(output) {
            self.prologues[output.0] = Some(PrologueSource {
                source: op.inputs[0],
                scale_shift: id,
                prologue: Prologue { activation },
            });
            return;
        }
        let function = Elementwise::ScaleShift(activation);
        let parameters = Parameters {
            scale_shift: Some(id),
            ..Parameters::default()
        };
        self.task(
            id,
            Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
            None,
            output,
            parameters,
        );
    }

    /// Copies the inputs of a concatenation that are not views of it.
    fn concat_copies(&mut self, id: OpId) {
        let network = self.network;
        let copies: Vec<_> = self
            .copies
            .iter()
            .filter(|copy| copy.concat == id)
            .copied()
            .collect();
        for copy in copies {
            let input = network.op(copy.input);
            let view = self.graph.add_value(
                format!("{}.{}", network.op(id).name, input.name),
                input.y,
                Some((ValueId(id.0), copy.offset)),
            );
            self.copy(copy.input, view);
        }
    }

    /// Copies a slice from a view of the op that it reads.
    fn slice_copy(&mut self, id: OpId, start: u32) {
        let op = self.network.op(id);
        let offset = u64::from(start) * op.y.pixels();
        let parent = Some((ValueId(op.inputs[0].0), offset));
        let name = format!("{}.channels", op.name);
        let view = self.graph.add_value(name, op.y, parent);
        self.copy_value(view, ValueId(id.0));
    }

    /// Whether the op has readers and all are convolutions, so that its output need not be stored.
    fn read_by_convs_only(&self, id: OpId) -> bool {
        let readers = &self.consumers[id.0];
        let all = readers
            .iter()
            .all(|&reader| matches!(self.network.op(reader).kind, OpKind::Conv(_)));
        !readers.is_empty() && all && !self.network.is_output(id)
    }

    /// The only reader of an op; `None` if there are several or none, or if the op's output is the caller's.
    fn single_consumer(&self, id: OpId) -> Option<OpId> {
        match self.consumers[id.0][..] {
            [reader] if !self.network.is_output(id) => Some(reader),
            _ => None,
        }
    }

    /// Absorbs an activation function after `id` if no other op reads the value between them. Returns the op whose output is written, and
    /// the activation function that is applied to it.
    fn absorb_activation(&mut self, id: OpId, activation: Activation) -> (OpId, Activation) {
        if let Some(reader) = self.single_consumer(id)
            && let OpKind::Activation(next) = self.network.op(reader).kind
            && let Some(both) = activation.then(next)
        {
            self.absorbed[reader.0] = true;
            return (reader, both);
        }
        (id, activation)
    }

    /// Absorbs the ops after a layer that its weights, bias and epilogue can compute: scale_shifts, one addition, activation functions.
    fn absorb_epilogue(&mut self, id: OpId, activation: Activation, own_bn: bool) -> EpilogueOps {
        let is_conv = matches!(self.network.op(id).kind, OpKind::Conv(_));
        let mut epilogue_ops = EpilogueOps {
            fold: if own_bn { vec![id] } else { Vec::new() },
            residual: None,
            activation,
            output: id,
        };
        while let Some(reader) = self.single_consumer(epilogue_ops.output)
            && !self.absorbed[reader.0]
        {
            let op = self.network.op(reader);
            let is_linear = epilogue_ops.activation == Activation::None;
            match &op.kind {
                OpKind::Activation(next) => match epilogue_ops.activation.then(*next) {
                    Some(both) => epilogue_ops.activation = both,
                    None => break,
                },
                OpKind::ScaleShift(options) if is_linear && epilogue_ops.residual.is_none() => {
                    epilogue_ops.fold.push(reader);
                    epilogue_ops.activation = options.activation;
                }
                OpKind::Binary(BinaryOp::Add, after)
                    if is_conv && is_linear && epilogue_ops.residual.is_none() =>
                {
                    // The other operand must be computed before this layer runs.
                    let other = op
                        .inputs
                        .iter()
                        .copied()
                        .find(|&input| input != epilogue_ops.output);
                    let Some(other) =
                        other.filter(|&other| other < id || self.can_run_before(other, id))
                    else {
                        break;
                    };
                    epilogue_ops.residual = Some(other);
                    epilogue_ops.activation = *after;
                    if other > id {
                        // `other` must not absorb the same addition.
                        self.absorbed[reader.0] = true;
                        self.visit(other);
                        self.absorbed[other.0] = true;
                    }
                }
                _ => break,
            }
            self.absorbed[reader.0] = true;
            epilogue_ops.output = reader;
        }
        epilogue_ops
    }

    /// Whether `other`, a convolution after the Tucker layer `id`, may run before it to be its residual. A shortcut that changes the number
    /// of channels then does not interrupt a chain of Tucker layers, each fused with the next layer's first factor.
    fn can_run_before(&self, other: OpId, id: OpId) -> bool {
        let ranks = |op: OpId| match &self.network.op(op).kind {
            OpKind::Conv(conv) => Some(conv.options.ranks),
            _ => None,
        };
        let op = self.network.op(other);
        ranks(id).flatten().is_some()
            && ranks(other) == Some(None)
            && self.single_consumer(other).is_some()
            && op.inputs.iter().all(|&input| input < id)
    }

    /// Adds a task without parameters or second input that absorbs no other op.
    fn unfused_task(&mut self, id: OpId, problem: Problem) {
        self.task(id, problem, None, id, Parameters::default());
    }

    fn copy(&mut self, from: OpId, to: ValueId) {
        self.copy_value(ValueId(from.0), to);
    }

    fn copy_value(&mut self, from: ValueId, to: ValueId) {
        let value = &self.graph.values[to.0];
        let problem = Problem::Elementwise(ElementwiseProblem {
            function: Elementwise::Copy,
            x: value.shape,
        });
        let task = Task {
            name: value.name.clone(),
            problem,
            x: from,
            residual: None,
            appended: None,
            y: to,
            parameters: Parameters::default(),
            scheme: None,
            tile: None,
        };
        self.graph.tasks.push(task);
    }

    /// A task with the name and first input of op `id`.
    fn task(
        &mut self,
        id: OpId,
        problem: Problem,
        residual: Option<OpId>,
        y: OpId,
        parameters: Parameters,
    ) {
        let op = self.network.op(id);
        self.graph.tasks.push(Task {
            name: op.name.clone(),
            problem,
            x: ValueId(op.inputs[0].0),
            residual: residual.map(|op| ValueId(op.0)),
            appended: None,
            y: ValueId(y.0),
            parameters,
            scheme: None,
            tile: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, NetworkBuilder, OpOptions, TensorShape};

    /// Names of the tasks of a residual block whose shortcut follows its Tucker layer, each with its residual after a `+`.
    fn tasks(shortcut: ConvOptions, reads: &str, also: bool) -> String {
        let ranked = ConvOptions {
            ranks: Some([3, 3]),
            ..ConvOptions::new(8)
        };
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 7, 9, 9));
        let mut op = |name: &str, inputs: &[&str], options| {
            let inputs: Vec<_> = inputs.iter().map(|&input| input.to_owned()).collect();
            builder.op(name, Some(&inputs), options);
        };
        op("a", &["input"], OpOptions::Conv(ConvOptions::new(8)));
        op("b", &["a"], OpOptions::Conv(ranked));
        op("short", &[reads], OpOptions::Conv(shortcut));
        op(
            "sum",
            &["b", "short"],
            OpOptions::Binary(BinaryOp::Add, Activation::Relu),
        );
        if also {
            op(
                "more",
                &["sum", "short"],
                OpOptions::Binary(BinaryOp::Add, Activation::None),
            );
        }
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let names = graph.tasks.iter().map(|task| match task.residual {
            Some(residual) => format!("{}+{}", task.name, graph.values[residual.0].name),
            None => task.name.clone(),
        });
        names.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_shortcut_runs_before_the_layer_that_adds_it() {
        let dense = ConvOptions::new(8);
        let shortcut_first = "a short b.first b.core b.last+short";
        assert_eq!(tasks(dense.clone(), "a", false), shortcut_first);
        let grouped = ConvOptions {
            groups: 2,
            ..dense.clone()
        };
        assert_eq!(tasks(grouped, "a", false), shortcut_first);
        // A shortcut runs after the layer if it reads the layer, if another op reads it too, or if it is a Tucker layer itself.
        let layer_first = |shortcut, reads, also| {
            let names = tasks(shortcut, reads, also);
            assert!(
                names.starts_with("a b.first b.core b.last short"),
                "{names}"
            );
        };
        layer_first(dense.clone(), "b", false);
        layer_first(dense.clone(), "a", true);
        let ranked = ConvOptions {
            ranks: Some([2, 2]),
            ..dense
        };
        layer_first(ranked, "a", false);
    }
}
