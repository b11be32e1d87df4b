//! From a graph of ops to a list of tasks, each carried out by one unit.
//!
//! - BatchNorm and ReLU behind a convolution become its weights and epilogue, an addition its residual, when nobody else reads
//!   what lies between.
//! - An affine map (and its ReLU) that only convolutions read becomes their prologue.
//! - A convolution with ranks becomes three: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper, eqs. 2-4); one with a CP
//!   rank becomes four: 1x1, an R x 1 and a 1 x S filter of each channel in [the cheaper order](factor_order), 1x1 (CP paper, eq. 7).
//!   What can take their place, two or one, is told on request, as is what [joins two layers](super::Join): that is a choice by time.
//! - A concatenation is no task: its inputs are written where they belong; only what cannot be is copied.
//! - A flatten is no task: it is another view of the same memory.
//! - Where layouts differ a [converter](layouts) comes between.

use super::{factor_order, layouts};
use crate::ir::{
    Conv, ConvProblem, CpProblem, Elementwise, ElementwiseProblem, Epilogue, GlobalPoolProblem,
    Layout, LinearProblem, Network, OpId, OpKind, Problem, Prologue, TensorShape, TuckerProblem,
};
use tdc_runtime::{ConvShape, Padding};

/// Index of a value in [`TaskGraph::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// An activation, and where it lives when that is inside another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Name: the op's, or the layer's with the word of the part that makes it.
    pub name: String,
    /// Sizes.
    pub shape: TensorShape,
    /// How it lies; a value inside another one is NCHW.
    pub layout: Layout,
    /// The value that holds it, and how many elements into each image it starts.
    pub parent: Option<(ValueId, u64)>,
}

/// Which factor of a Tucker or CP layer a task computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaskPart {
    /// 1x1 from C to D1 channels.
    First,
    /// R x S from D1 to D2.
    Core,
    /// R x 1 of each channel.
    Vertical,
    /// 1 x S of each channel.
    Horizontal,
    /// 1x1 from D2 to N.
    Last,
}

impl TaskPart {
    /// Those of a Tucker layer, in order.
    pub const TUCKER: [Self; 3] = [Self::First, Self::Core, Self::Last];

    /// Those of a CP layer, as its weights have them.
    pub const CP: [Self; 4] = [Self::First, Self::Vertical, Self::Horizontal, Self::Last];

    /// The same where the horizontal filter comes first.
    const CP_HORIZONTAL_FIRST: [Self; 4] =
        [Self::First, Self::Horizontal, Self::Vertical, Self::Last];

    /// Its word in names of tasks and slots.
    pub fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Core => "core",
            Self::Vertical => "vertical",
            Self::Horizontal => "horizontal",
            Self::Last => "last",
        }
    }
}

/// Where a task's parameters come from, as ops of the network.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    /// The convolution or linear layer whose weights it takes.
    pub layer: Option<OpId>,
    /// The factors of it that the task computes with, in order; none of a layer without ranks.
    pub parts: Vec<TaskPart>,
    /// Affine maps behind the layer, folded into weights and bias, in order: the layer itself stands for its own BatchNorm.
    pub fold: Vec<OpId>,
    /// The affine map before the layer, or the task's own for an affine task.
    pub affine: Option<OpId>,
    /// The layer behind, whose first factor follows those parts.
    pub next: Option<OpId>,
}

impl Parameters {
    /// Whose weights the task computes with, in order: the layer, and which factor of it where it has ranks.
    pub fn weights(&self) -> Vec<(OpId, Option<TaskPart>)> {
        let Some(layer) = self.layer else {
            return Vec::new();
        };
        let next = self.next.map(|next| (next, Some(TaskPart::First)));
        match self.parts.is_empty() {
            true => vec![(layer, None)],
            false => {
                let parts = self.parts.iter().map(|&part| (layer, Some(part)));
                parts.chain(next).collect()
            }
        }
    }

    /// Whether bias and folded maps go with these weights of the task's layer: with the last of its factors.
    pub fn carries_bias(part: Option<TaskPart>) -> bool {
        matches!(part, None | Some(TaskPart::Last))
    }
}

/// One unit's work.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The layer's name, with `.` and the part's word for the parts of a Tucker or CP layer.
    pub name: String,
    /// What is computed.
    pub problem: Problem,
    /// Input.
    pub x: ValueId,
    /// Second operand.
    pub residual: Option<ValueId>,
    /// Output.
    pub y: ValueId,
    /// Where its parameters come from.
    pub parameters: Parameters,
    /// Scheme asked for.
    pub scheme: Option<String>,
    /// Tile asked for.
    pub tile: Option<Vec<u32>>,
}

/// What can take the place of the tasks of a Tucker or CP layer, one for each factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Fusions {
    /// How many tasks those are.
    pub separate: usize,
    /// The whole layer.
    pub whole: Task,
    /// Of a Tucker layer, core and last factor, behind the task of the first.
    pub rest: Option<Task>,
}

/// Tasks in the order they run, and the values between them. The first values are the ops' own, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskGraph {
    /// Activations.
    pub values: Vec<Value>,
    /// Work, in order.
    pub tasks: Vec<Task>,
    /// The network's input.
    pub input: ValueId,
    /// The network's output.
    pub output: ValueId,
}

impl TaskGraph {
    /// Finds the tasks of a network.
    pub fn new(network: &Network) -> Self {
        let mut builder = Builder::new(network);
        builder.place_views();
        for index in 0..network.ops.len() {
            builder.visit(OpId(index));
        }
        layouts::with_converters(builder.graph)
    }

    /// The tasks that can carry out the Tucker or CP layer whose first task is at `index`, instead of one for each factor: all in
    /// one, or of a Tucker layer the first factor alone and the others in one. `None` where no layer begins or its sums are added
    /// by atomics.
    pub fn fusions(&self, index: usize) -> Option<Fusions> {
        let of_layer = |parts: &[TaskPart]| {
            let tasks = self.tasks.get(index..index + parts.len())?;
            let found = tasks.iter().map(|task| &task.parameters.parts[..]);
            found.eq(parts.chunks(1)).then_some(tasks)
        };
        let conv = |task: &Task| match task.problem {
            Problem::Conv(conv) => Some(conv),
            _ => None,
        };
        let of_tucker = of_layer(&TaskPart::TUCKER);
        let horizontal_first = of_layer(&TaskPart::CP_HORIZONTAL_FIRST);
        let tasks = of_tucker
            .or(horizontal_first)
            .or_else(|| of_layer(&TaskPart::CP))?;
        let [first, middle, .., last] = tasks else {
            return None;
        };
        let (first_conv, middle_conv, last_conv) = (conv(first)?, conv(middle)?, conv(last)?);
        let layer = first.parameters.layer?;
        let name = &self.values[layer.0].name;
        let task = |name, problem, x, parts: &[TaskPart], affine| Task {
            name,
            problem,
            x,
            parameters: Parameters {
                parts: parts.to_vec(),
                affine,
                ..last.parameters.clone()
            },
            scheme: middle.scheme.clone(),
            tile: middle.tile.clone(),
            ..last.clone()
        };
        let affine = first.parameters.affine;
        if of_tucker.is_none() {
            let filters = [middle_conv.shape, conv(&tasks[2])?.shape];
            let at = usize::from(horizontal_first.is_some());
            let (vertical, horizontal) = (filters[at], filters[1 - at]);
            let whole = CpProblem {
                conv: ConvProblem {
                    shape: ConvShape {
                        n: last_conv.shape.n,
                        r: vertical.r,
                        s: horizontal.s,
                        stride: [vertical.stride[0], horizontal.stride[1]],
                        padding: Padding {
                            left: horizontal.padding.left,
                            right: horizontal.padding.right,
                            ..vertical.padding
                        },
                        dilation: [vertical.dilation[0], horizontal.dilation[1]],
                        ..first_conv.shape
                    },
                    prologue: first_conv.prologue,
                    ..last_conv
                },
                rank: vertical.c,
            };
            let whole = Problem::Cp(whole);
            return Some(Fusions {
                separate: tasks.len(),
                whole: task(name.clone(), whole, first.x, &TaskPart::CP, affine),
                rest: None,
            });
        }
        let fused = TuckerProblem::of_factors(&[first_conv, middle_conv, last_conv])?;
        let [whole, rest] = fused.map(Problem::Tucker);
        let [_, others @ ..] = &TaskPart::TUCKER;
        Some(Fusions {
            separate: tasks.len(),
            whole: task(name.clone(), whole, first.x, &TaskPart::TUCKER, affine),
            rest: Some(task(format!("{name}.rest"), rest, middle.x, others, None)),
        })
    }

    /// The value that owns the memory of `id`, and the offset of `id` in each of its images, in elements.
    pub fn root(&self, id: ValueId) -> (ValueId, u64) {
        let (mut id, mut offset) = (id, 0);
        while let Some((parent, at)) = self.values[id.0].parent {
            id = parent;
            offset += at;
        }
        (id, offset)
    }
}

struct Builder<'a> {
    network: &'a Network,
    consumers: Vec<Vec<OpId>>,
    /// Ops that another op's task carries out.
    absorbed: Vec<bool>,
    /// Affine maps that became prologues, under the op that convolutions read.
    prologues: Vec<Option<AffineInput>>,
    /// Concatenation inputs that must be copied into place: (input, concatenation, elements into each image).
    copies: Vec<(OpId, OpId, u64)>,
    graph: TaskGraph,
}

/// An affine map that convolutions carry out as they read.
#[derive(Clone, Copy)]
struct AffineInput {
    /// What it reads.
    source: OpId,
    /// The op that has its parameters.
    affine: OpId,
    prologue: Prologue,
}

/// What was found to follow a layer.
struct Tail {
    fold: Vec<OpId>,
    residual: Option<OpId>,
    relu: bool,
    end: OpId,
}

impl<'a> Builder<'a> {
    fn new(network: &'a Network) -> Self {
        let ops = network.ops.len();
        Self {
            network,
            consumers: network.consumers(),
            absorbed: vec![false; ops],
            prologues: vec![None; ops],
            copies: Vec::new(),
            graph: TaskGraph {
                values: network
                    .ops
                    .iter()
                    .map(|op| Value {
                        name: op.name.clone(),
                        shape: op.y,
                        layout: Layout::Nchw,
                        parent: None,
                    })
                    .collect(),
                tasks: Vec::new(),
                input: ValueId(0),
                output: ValueId(network.output().0),
            },
        }
    }

    /// Decides which values live inside others: flattened ones in what they flatten, concatenated ones in the whole.
    fn place_views(&mut self) {
        for (index, op) in self.network.ops.iter().enumerate() {
            match op.kind {
                OpKind::Flatten if !self.flatten_is_copied(OpId(index)) => {
                    self.graph.values[index].parent = Some((ValueId(op.inputs[0].0), 0));
                }
                OpKind::Concat => {
                    let mut offset = 0;
                    for &input in &op.inputs {
                        let value = &self.graph.values[input.0];
                        let len = value.shape.image_len();
                        if self.can_live_inside(input) {
                            self.graph.values[input.0].parent = Some((ValueId(index), offset));
                        } else {
                            self.copies.push((input, OpId(index), offset));
                        }
                        offset += len;
                    }
                }
                _ => {}
            }
        }
        // A flattened output is written by whoever computes what it flattens: that value is the output's memory.
        let output = self.graph.output;
        if let Some((whole, _)) = self.graph.values[output.0].parent {
            self.graph.values[output.0].parent = None;
            self.graph.values[whole.0].parent = Some((output, 0));
        }
    }

    /// Whether a concatenation's input can be written straight into its place.
    fn can_live_inside(&self, id: OpId) -> bool {
        let op = self.network.op(id);
        let placed = self.graph.values[id.0].parent.is_some();
        // A flattened view of several images needs them one behind the other.
        let flattened = op.y.batch > 1
            && self.consumers[id.0]
                .iter()
                .any(|&reader| self.network.op(reader).kind == OpKind::Flatten);
        !placed && !flattened && !matches!(op.kind, OpKind::Input | OpKind::Flatten)
    }

    /// Flattening the network's input into its output moves data; every other flatten is a view.
    fn flatten_is_copied(&self, id: OpId) -> bool {
        let mut source = self.network.op(id).inputs[0];
        while self.network.op(source).kind == OpKind::Flatten {
            source = self.network.op(source).inputs[0];
        }
        let is_output = id == self.network.output();
        let shared = self.consumers[self.network.op(id).inputs[0].0].len() > 1;
        is_output && (shared || source == OpId(0) || source != self.network.op(id).inputs[0])
    }

    fn visit(&mut self, id: OpId) {
        let op = self.network.op(id);
        if !self.absorbed[id.0] {
            match &op.kind {
                OpKind::Input => {}
                OpKind::Conv(conv) => self.conv(id, conv),
                OpKind::Linear(linear) => {
                    let problem = |tail: &Tail| {
                        Problem::Linear(LinearProblem {
                            batch: op.y.batch,
                            c: linear.c,
                            n: linear.options.n,
                            epilogue: Epilogue {
                                bias: linear.options.bias || !tail.fold.is_empty(),
                                residual: false,
                                relu: tail.relu,
                            },
                        })
                    };
                    let tail = self.tail(id, linear.options.relu, false);
                    let parameters = Parameters {
                        layer: Some(id),
                        fold: tail.fold.clone(),
                        ..Parameters::default()
                    };
                    self.task(
                        &op.name,
                        problem(&tail),
                        op.inputs[0],
                        None,
                        tail.end,
                        parameters,
                    );
                }
                OpKind::Pool(pool) => self.plain(id, Problem::Pool(*pool)),
                OpKind::GlobalPool { max } => {
                    let x = self.network.op(op.inputs[0]).y;
                    let max = *max;
                    self.plain(id, Problem::GlobalPool(GlobalPoolProblem { max, x }));
                }
                OpKind::Add { relu } => {
                    let (end, relu) = self.relu_behind(id, *relu);
                    let function = Elementwise::Add { relu };
                    self.task(
                        &op.name,
                        Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                        op.inputs[0],
                        Some(op.inputs[1]),
                        end,
                        Parameters::default(),
                    );
                }
                OpKind::Relu => {
                    let function = Elementwise::Relu;
                    self.plain(
                        id,
                        Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                    );
                }
                OpKind::ScaleShift(options) => self.scale_shift(id, options.relu),
                OpKind::Flatten => {
                    if self.flatten_is_copied(id) {
                        self.copy(op.inputs[0], ValueId(id.0));
                    }
                }
                OpKind::Concat => {
                    let copies: Vec<_> = self
                        .copies
                        .iter()
                        .filter(|(_, concat, _)| *concat == id)
                        .copied()
                        .collect();
                    for (input, concat, offset) in copies {
                        let place = self.new_value(
                            format!("{}.{}", op.name, self.network.op(input).name),
                            self.network.op(input).y,
                            Some((ValueId(concat.0), offset)),
                        );
                        self.copy(input, place);
                    }
                }
            }
        }
    }

    fn conv(&mut self, id: OpId, conv: &Conv) {
        let op = self.network.op(id);
        let options = &conv.options;
        let input = self.prologues[op.inputs[0].0];
        let x = input.map_or(op.inputs[0], |input| input.source);
        let affine = input.map(|input| input.affine);
        let prologue = input.map(|input| input.prologue);
        let tail = self.tail(id, options.relu, options.bn.is_some());
        let epilogue = Epilogue {
            bias: options.bias || !tail.fold.is_empty(),
            residual: tail.residual.is_some(),
            relu: tail.relu,
        };
        let whole = ConvProblem {
            shape: conv.shape,
            prologue,
            epilogue,
            reduce: options.reduce,
            precision: options.precision,
            tolerance: options.tolerance,
        };
        let parameters = |parts: &[TaskPart], fold: &[OpId], affine| Parameters {
            layer: Some(id),
            parts: parts.to_vec(),
            fold: fold.to_vec(),
            affine,
            next: None,
        };
        let (parts, factors) = match (options.ranks, options.cp_rank) {
            (Some(ranks), _) => (&TaskPart::TUCKER[..], whole.tucker_factors(ranks).to_vec()),
            (None, Some(rank)) => {
                let horizontal_first =
                    factor_order::horizontal_first(&CpProblem { conv: whole, rank });
                let parts = match horizontal_first {
                    true => &TaskPart::CP_HORIZONTAL_FIRST,
                    false => &TaskPart::CP,
                };
                let factors = whole.cp_factors(rank, horizontal_first);
                (&parts[..], factors.to_vec())
            }
            (None, None) => {
                self.task(
                    &op.name,
                    whole.in_layout(options.layout),
                    x,
                    tail.residual,
                    tail.end,
                    parameters(&[], &tail.fold, affine),
                );
                self.wish(options.scheme.clone(), options.tile.clone());
                return;
            }
        };
        let mut from = ValueId(x.0);
        for (&part, factor) in parts.iter().zip(factors) {
            let name = format!("{}.{}", op.name, part.word());
            let (is_first, is_last) = (part == TaskPart::First, part == TaskPart::Last);
            let is_inner = !is_first && !is_last;
            let problem = factor.in_layout(options.layout);
            let y = match is_last {
                true => ValueId(tail.end.0),
                false => self.new_value(name.clone(), problem.y(), None),
            };
            self.push(Task {
                name,
                problem,
                x: from,
                residual: tail.residual.filter(|_| is_last).map(|op| ValueId(op.0)),
                y,
                parameters: parameters(
                    &[part],
                    if is_last { &tail.fold } else { &[] },
                    affine.filter(|_| is_first),
                ),
                scheme: options.scheme.clone().filter(|_| is_inner),
                tile: options.tile.clone().filter(|_| is_inner),
            });
            from = y;
        }
    }

    /// An affine map of its own, or the prologue of the convolutions that read it.
    fn scale_shift(&mut self, id: OpId, relu: bool) {
        let op = self.network.op(id);
        let (end, relu) = self.relu_behind(id, relu);
        if self.read_by_convs_only(end) {
            self.prologues[end.0] = Some(AffineInput {
                source: op.inputs[0],
                affine: id,
                prologue: Prologue { relu },
            });
            return;
        }
        let function = Elementwise::ScaleShift { relu };
        let parameters = Parameters {
            affine: Some(id),
            ..Parameters::default()
        };
        self.task(
            &op.name,
            Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
            op.inputs[0],
            None,
            end,
            parameters,
        );
    }

    /// Whether the op has readers and all are convolutions.
    fn read_by_convs_only(&self, id: OpId) -> bool {
        let readers = &self.consumers[id.0];
        let all = readers
            .iter()
            .all(|&reader| matches!(self.network.op(reader).kind, OpKind::Conv(_)));
        !readers.is_empty() && all
    }

    /// The only reader of an op, when there is just one and the op is not the network's output.
    fn only_reader(&self, id: OpId) -> Option<OpId> {
        match self.consumers[id.0][..] {
            [reader] => Some(reader),
            _ => None,
        }
    }

    /// Takes over a ReLU behind `id` when nobody else reads what lies between.
    fn relu_behind(&mut self, id: OpId, relu: bool) -> (OpId, bool) {
        match self.only_reader(id) {
            Some(reader) if self.network.op(reader).kind == OpKind::Relu => {
                self.absorbed[reader.0] = true;
                (reader, true)
            }
            _ => (id, relu),
        }
    }

    /// Follows affine maps, one addition and ReLUs behind a layer, and marks them as carried out.
    fn tail(&mut self, id: OpId, relu: bool, own_bn: bool) -> Tail {
        let is_conv = matches!(self.network.op(id).kind, OpKind::Conv(_));
        let mut tail = Tail {
            fold: if own_bn { vec![id] } else { Vec::new() },
            residual: None,
            relu,
            end: id,
        };
        while let Some(reader) = self.only_reader(tail.end)
            && !self.absorbed[reader.0]
        {
            let op = self.network.op(reader);
            match &op.kind {
                OpKind::Relu => tail.relu = true,
                OpKind::ScaleShift(options) if !tail.relu && tail.residual.is_none() => {
                    tail.fold.push(reader);
                    tail.relu = options.relu;
                }
                OpKind::Add { relu } if is_conv && !tail.relu && tail.residual.is_none() => {
                    // The other operand must be there when this layer runs.
                    let other = op.inputs.iter().copied().find(|&input| input != tail.end);
                    let Some(other) =
                        other.filter(|&other| other < id || self.runs_ahead(other, id))
                    else {
                        break;
                    };
                    tail.residual = Some(other);
                    tail.relu = *relu;
                    if other > id {
                        // Its own tail must not take the same addition.
                        self.absorbed[reader.0] = true;
                        self.visit(other);
                        self.absorbed[other.0] = true;
                    }
                }
                _ => break,
            }
            self.absorbed[reader.0] = true;
            tail.end = reader;
        }
        tail
    }

    /// Whether `other`, a convolution behind the layer with ranks `id`, may run ahead of it, so that the layer adds what it makes:
    /// a chain of such layers is then not cut where a shortcut changes the channels.
    fn runs_ahead(&self, other: OpId, id: OpId) -> bool {
        let ranks = |op: OpId| match &self.network.op(op).kind {
            OpKind::Conv(conv) => Some(conv.options.ranks),
            _ => None,
        };
        let op = self.network.op(other);
        ranks(id).flatten().is_some()
            && ranks(other) == Some(None)
            && self.only_reader(other).is_some()
            && op.inputs.iter().all(|&input| input < id)
    }

    /// A task without parameters or second operand that nothing is fused to.
    fn plain(&mut self, id: OpId, problem: Problem) {
        let op = self.network.op(id);
        self.task(
            &op.name,
            problem,
            op.inputs[0],
            None,
            id,
            Parameters::default(),
        );
    }

    fn copy(&mut self, from: OpId, to: ValueId) {
        let value = &self.graph.values[to.0];
        let problem = Problem::Elementwise(ElementwiseProblem {
            function: Elementwise::Copy,
            x: value.shape,
        });
        let task = Task {
            name: value.name.clone(),
            problem,
            x: ValueId(from.0),
            residual: None,
            y: to,
            parameters: Parameters::default(),
            scheme: None,
            tile: None,
        };
        self.push(task);
    }

    fn task(
        &mut self,
        name: &str,
        problem: Problem,
        x: OpId,
        residual: Option<OpId>,
        y: OpId,
        parameters: Parameters,
    ) {
        self.push(Task {
            name: name.to_owned(),
            problem,
            x: ValueId(x.0),
            residual: residual.map(|op| ValueId(op.0)),
            y: ValueId(y.0),
            parameters,
            scheme: None,
            tile: None,
        });
    }

    fn push(&mut self, task: Task) {
        self.graph.tasks.push(task);
    }

    /// Notes the config's wishes for the task just made.
    fn wish(&mut self, scheme: Option<String>, tile: Option<Vec<u32>>) {
        if let Some(task) = self.graph.tasks.last_mut() {
            task.scheme = scheme;
            task.tile = tile;
        }
    }

    fn new_value(
        &mut self,
        name: String,
        shape: TensorShape,
        parent: Option<(ValueId, u64)>,
    ) -> ValueId {
        self.graph.values.push(Value {
            name,
            shape,
            layout: Layout::Nchw,
            parent,
        });
        ValueId(self.graph.values.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, FACTORS, NetworkBuilder, OpOptions};

    #[test]
    fn no_op_can_be_named_as_a_part_of_another() {
        for part in TaskPart::TUCKER.iter().chain(&TaskPart::CP) {
            assert!(FACTORS.contains(&part.word()), "{part:?}");
        }
    }

    /// Names of the tasks of a block whose shortcut is computed behind its Tucker layer, each with what is added to it.
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
        op("sum", &["b", "short"], OpOptions::Add { relu: true });
        if also {
            op("more", &["sum", "short"], OpOptions::Add { relu: false });
        }
        let graph = TaskGraph::new(&builder.finish().unwrap());
        let told = graph.tasks.iter().map(|task| match task.residual {
            Some(added) => format!("{}+{}", task.name, graph.values[added.0].name),
            None => task.name.clone(),
        });
        told.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_shortcut_runs_ahead_of_the_layer_that_it_is_added_to() {
        let dense = ConvOptions::new(8);
        let ahead = "a short b.first b.core b.last+short";
        assert_eq!(tasks(dense.clone(), "a", false), ahead);
        let grouped = ConvOptions {
            groups: 2,
            ..dense.clone()
        };
        assert_eq!(tasks(grouped, "a", false), ahead);
        // One that reads the layer cannot, one that others read is not fused to, one with ranks adds as it always did.
        let behind = |shortcut, reads, also| {
            let told = tasks(shortcut, reads, also);
            assert!(told.starts_with("a b.first b.core b.last short"), "{told}");
        };
        behind(dense.clone(), "b", false);
        behind(dense.clone(), "a", true);
        let ranked = ConvOptions {
            ranks: Some([2, 2]),
            ..dense
        };
        behind(ranked, "a", false);
    }
}
