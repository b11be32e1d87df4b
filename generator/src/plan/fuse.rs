//! From a graph of ops to a list of tasks, each carried out by one unit.
//!
//! - BatchNorm and ReLU behind a convolution become its weights and epilogue, an addition its residual, when nobody else reads
//!   what lies between.
//! - An affine map (and its ReLU) that only convolutions read becomes their prologue.
//! - A convolution with ranks becomes three: 1x1 to D1 channels, the R x S core to D2, 1x1 to N (TDC paper, eqs. 2-4); one with a CP
//!   rank becomes four: 1x1, an R x 1 and a 1 x S filter of each channel in [the cheaper order](factor_order), 1x1 (CP paper, eq. 7).
//!   What can take their place, two or one, is told on request, as is what [joins two layers](super::NextFusion): that is a choice by time.
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
pub enum TaskFactor {
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

impl TaskFactor {
    /// Those of a Tucker layer, in order.
    pub const TUCKER: [Self; 3] = [Self::First, Self::Core, Self::Last];

    /// Those of a CP layer, as its weights have them.
    pub const CP: [Self; 4] = [Self::First, Self::Vertical, Self::Horizontal, Self::Last];

    /// The same where the horizontal filter comes first.
    const CP_HORIZONTAL_FIRST: [Self; 4] =
        [Self::First, Self::Horizontal, Self::Vertical, Self::Last];

    /// Its word in names of tasks and slots.
    pub fn as_str(self) -> &'static str {
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
    pub factors: Vec<TaskFactor>,
    /// Affine maps behind the layer, folded into weights and bias, in order: the layer itself stands for its own BatchNorm.
    pub fold: Vec<OpId>,
    /// The affine map before the layer, or the task's own for an affine task.
    pub scale_shift: Option<OpId>,
    /// The layer behind, whose first factor follows those parts.
    pub next: Option<OpId>,
}

impl Parameters {
    /// Whose weights the task computes with, in order: the layer, and which factor of it where it has ranks.
    pub fn weights(&self) -> Vec<(OpId, Option<TaskFactor>)> {
        let Some(layer) = self.layer else {
            return Vec::new();
        };
        let next = self.next.map(|next| (next, Some(TaskFactor::First)));
        match self.factors.is_empty() {
            true => vec![(layer, None)],
            false => {
                let factors = self.factors.iter().map(|&factor| (layer, Some(factor)));
                factors.chain(next).collect()
            }
        }
    }

    /// Whether bias and folded maps go with these weights of the task's layer: with the last of its factors.
    pub fn carries_bias(factor: Option<TaskFactor>) -> bool {
        matches!(factor, None | Some(TaskFactor::Last))
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
pub struct FusedTasks {
    /// How many tasks those are.
    pub separate_count: usize,
    /// The whole layer.
    pub whole: Task,
    /// Of a Tucker layer, core and last factor, behind the task of the first.
    pub core_last: Option<Task>,
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
    pub fn fused_tasks(&self, index: usize) -> Option<FusedTasks> {
        let of_layer = |factors: &[TaskFactor]| {
            let tasks = self.tasks.get(index..index + factors.len())?;
            let found = tasks.iter().map(|task| &task.parameters.factors[..]);
            found.eq(factors.chunks(1)).then_some(tasks)
        };
        let conv = |task: &Task| match task.problem {
            Problem::Conv(conv) => Some(conv),
            _ => None,
        };
        let of_tucker = of_layer(&TaskFactor::TUCKER);
        let horizontal_first = of_layer(&TaskFactor::CP_HORIZONTAL_FIRST);
        let tasks = of_tucker
            .or(horizontal_first)
            .or_else(|| of_layer(&TaskFactor::CP))?;
        let [first, middle, .., last] = tasks else {
            return None;
        };
        let (first_conv, middle_conv, last_conv) = (conv(first)?, conv(middle)?, conv(last)?);
        let layer = first.parameters.layer?;
        let name = &self.values[layer.0].name;
        let task = |name, problem, x, factors: &[TaskFactor], scale_shift| Task {
            name,
            problem,
            x,
            parameters: Parameters {
                factors: factors.to_vec(),
                scale_shift,
                ..last.parameters.clone()
            },
            scheme: middle.scheme.clone(),
            tile: middle.tile.clone(),
            ..last.clone()
        };
        let scale_shift = first.parameters.scale_shift;
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
            return Some(FusedTasks {
                separate_count: tasks.len(),
                whole: task(name.clone(), whole, first.x, &TaskFactor::CP, scale_shift),
                core_last: None,
            });
        }
        let fused = TuckerProblem::from_factors(&[first_conv, middle_conv, last_conv])?;
        let [whole, core_last] = fused.map(Problem::Tucker);
        let [_, others @ ..] = &TaskFactor::TUCKER;
        Some(FusedTasks {
            separate_count: tasks.len(),
            whole: task(
                name.clone(),
                whole,
                first.x,
                &TaskFactor::TUCKER,
                scale_shift,
            ),
            core_last: Some(task(
                format!("{name}.core_last"),
                core_last,
                middle.x,
                others,
                None,
            )),
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
    prologues: Vec<Option<PrologueSource>>,
    /// Concatenation inputs that must be copied into place: (input, concatenation, elements into each image).
    copies: Vec<(OpId, OpId, u64)>,
    graph: TaskGraph,
}

/// An affine map that convolutions carry out as they read.
#[derive(Clone, Copy)]
struct PrologueSource {
    /// What it reads.
    source: OpId,
    /// The op that has its parameters.
    scale_shift: OpId,
    prologue: Prologue,
}

/// What was found to follow a layer.
struct EpilogueOps {
    fold: Vec<OpId>,
    residual: Option<OpId>,
    activation: Activation,
    output: OpId,
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
                OpKind::Flatten if !self.flatten_needs_copy(OpId(index)) => {
                    self.graph.values[index].parent = Some((ValueId(op.inputs[0].0), 0));
                }
                OpKind::Concat => {
                    let mut offset = 0;
                    for &input in &op.inputs {
                        let value = &self.graph.values[input.0];
                        let len = value.shape.image_len();
                        if self.can_be_view(input) {
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
    fn can_be_view(&self, id: OpId) -> bool {
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
    fn flatten_needs_copy(&self, id: OpId) -> bool {
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
                    let problem = |epilogue_ops: &EpilogueOps| {
                        Problem::Linear(LinearProblem {
                            batch: op.y.batch,
                            c: linear.c,
                            n: linear.options.n,
                            epilogue: Epilogue {
                                bias: linear.options.bias || !epilogue_ops.fold.is_empty(),
                                residual: false,
                                activation: epilogue_ops.activation,
                            },
                        })
                    };
                    let epilogue_ops = self.absorb_epilogue(id, linear.options.activation, false);
                    let parameters = Parameters {
                        layer: Some(id),
                        fold: epilogue_ops.fold.clone(),
                        ..Parameters::default()
                    };
                    self.task(
                        &op.name,
                        problem(&epilogue_ops),
                        op.inputs[0],
                        None,
                        epilogue_ops.output,
                        parameters,
                    );
                }
                OpKind::Pool(pool) => self.unfused_task(id, Problem::Pool(*pool)),
                OpKind::GlobalPool { max } => {
                    let x = self.network.op(op.inputs[0]).y;
                    let max = *max;
                    self.unfused_task(id, Problem::GlobalPool(GlobalPoolProblem { max, x }));
                }
                OpKind::Add(activation) => {
                    let (output, activation) = self.absorb_activation(id, *activation);
                    let function = Elementwise::Add(activation);
                    self.task(
                        &op.name,
                        Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
                        op.inputs[0],
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
                OpKind::Flatten => {
                    if self.flatten_needs_copy(id) {
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
        let scale_shift = input.map(|input| input.scale_shift);
        let prologue = input.map(|input| input.prologue);
        let epilogue_ops = self.absorb_epilogue(id, options.activation, options.bn.is_some());
        let epilogue = Epilogue {
            bias: options.bias || !epilogue_ops.fold.is_empty(),
            residual: epilogue_ops.residual.is_some(),
            activation: epilogue_ops.activation,
        };
        let whole = ConvProblem {
            shape: conv.shape,
            prologue,
            epilogue,
            reduce: options.reduce,
            precision: options.precision,
            tolerance: options.tolerance, input: Default::default(), output: Default::default(), };
        let parameters = |factors: &[TaskFactor], fold: &[OpId], scale_shift| Parameters {
            layer: Some(id),
            factors: factors.to_vec(),
            fold: fold.to_vec(),
            scale_shift,
            next: None,
        };
        let (factors, problems) = match (options.ranks, options.cp_rank) {
            (Some(ranks), _) => (
                &TaskFactor::TUCKER[..],
                whole.tucker_factors(ranks).to_vec(),
            ),
            (None, Some(rank)) => {
                let horizontal_first =
                    factor_order::horizontal_first(&CpProblem { conv: whole, rank });
                let factors = match horizontal_first {
                    true => &TaskFactor::CP_HORIZONTAL_FIRST,
                    false => &TaskFactor::CP,
                };
                let problems = whole.cp_factors(rank, horizontal_first);
                (&factors[..], problems.to_vec())
            }
            (None, None) => {
                self.task(
                    &op.name,
                    Problem::Conv(whole.in_layout(options.layout)),
                    x,
                    epilogue_ops.residual,
                    epilogue_ops.output,
                    parameters(&[], &epilogue_ops.fold, scale_shift),
                );
                self.set_requested(options.scheme.clone(), options.tile.clone());
                return;
            }
        };
        let mut from = ValueId(x.0);
        for (&factor, conv) in factors.iter().zip(problems) {
            let name = format!("{}.{}", op.name, factor.as_str());
            let (is_first, is_last) = (factor == TaskFactor::First, factor == TaskFactor::Last);
            let is_inner = !is_first && !is_last;
            let problem = Problem::Conv(conv.in_layout(options.layout));
            let y = match is_last {
                true => ValueId(epilogue_ops.output.0),
                false => self.new_value(name.clone(), problem.y(), None),
            };
            self.push(Task {
                name,
                problem,
                x: from,
                residual: epilogue_ops
                    .residual
                    .filter(|_| is_last)
                    .map(|op| ValueId(op.0)),
                y,
                parameters: parameters(
                    &[factor],
                    if is_last { &epilogue_ops.fold } else { &[] },
                    scale_shift.filter(|_| is_first),
                ),
                scheme: options.scheme.clone().filter(|_| is_inner),
                tile: options.tile.clone().filter(|_| is_inner),
            });
            from = y;
        }
    }

    /// An affine map of its own, or the prologue of the convolutions that read it.
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
            &op.name,
            Problem::Elementwise(ElementwiseProblem { function, x: op.y }),
            op.inputs[0],
            None,
            output,
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
    fn single_consumer(&self, id: OpId) -> Option<OpId> {
        match self.consumers[id.0][..] {
            [reader] => Some(reader),
            _ => None,
        }
    }

    /// Fuses an activation that follows `id`, if nothing else reads the output of `id`: the op whose output is then written, and
    /// the activation of both.
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

    /// Fuses what follows a layer: scale_shift ops into its weights, one addition as its residual, an activation.
    fn absorb_epilogue(
        &mut self,
        id: OpId,
        activation: Activation,
        own_bn: bool,
    ) -> EpilogueOps {
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
                OpKind::ScaleShift(options)
                    if is_linear && epilogue_ops.residual.is_none() =>
                {
                    epilogue_ops.fold.push(reader);
                    epilogue_ops.activation = options.activation;
                }
                OpKind::Add(after)
                    if is_conv && is_linear && epilogue_ops.residual.is_none() =>
                {
                    // The other operand must be there when this layer runs.
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
                        // Its own tail must not take the same addition.
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

    /// Whether `other`, a convolution behind the layer with ranks `id`, may run ahead of it, so that the layer adds what it makes:
    /// a chain of such layers is then not cut where a shortcut changes the channels.
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

    /// A task without parameters or second operand that nothing is fused to.
    fn unfused_task(&mut self, id: OpId, problem: Problem) {
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
    fn set_requested(&mut self, scheme: Option<String>, tile: Option<Vec<u32>>) {
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
    use crate::ir::{ConvOptions, FACTOR_SUFFIXES, NetworkBuilder, OpOptions};

    #[test]
    fn no_op_can_be_named_as_a_part_of_another() {
        for part in TaskFactor::TUCKER.iter().chain(&TaskFactor::CP) {
            assert!(FACTOR_SUFFIXES.contains(&part.as_str()), "{part:?}");
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
        op("sum", &["b", "short"], OpOptions::Add(Activation::Relu));
        if also {
            op("more", &["sum", "short"], OpOptions::Add(Activation::None));
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
