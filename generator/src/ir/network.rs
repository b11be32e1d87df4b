//! A network: a graph of typed ops with every size inferred, and the builder that checks it.

mod batch;
mod decomposition;

use super::identifier::reserved_reason;
use super::options::BatchNorm;
use super::{
    Activation, Batches, BinaryOp, ChannelNorm, ConvOptions, ConvTransposeOptions,
    ConvTransposeProblem, DType, Epilogue, Format, InputEncoding, LinearOptions, Lrn, MAX_ELEMENTS,
    OpOptions, PadMode, PadOptions, PadProblem, PaddingOption, PoolKind, PoolOptions, PoolProblem,
    ProblemKind, ResizeOptions, ResizeProblem, ResizedSize, ScaleShiftOptions, SliceOptions,
    SpecError, SpecLocation, TensorShape, TilePolicy,
};
use crate::gpu::Targets;
use crate::suggest::nearest;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use tdc_runtime::{ConvShape, FactorRole, Padding};

/// Index of an op in [`Network::ops`]. An op's inputs always have smaller indices than the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct OpId(pub usize);

/// A convolution in a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Conv {
    /// Shapes.
    pub shape: ConvShape,
    /// The options of the config, including those for weights and planning.
    pub options: ConvOptions,
}

/// A transposed convolution in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConvTranspose {
    /// Shapes.
    pub problem: ConvTransposeProblem,
    /// The options of the config.
    pub options: ConvTransposeOptions,
}

/// A fully connected layer in a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Linear {
    /// Input features.
    pub c: u32,
    /// The options of the config.
    pub options: LinearOptions,
}

/// Windowed pooling in a network.
pub type Pool = PoolProblem;

/// A scale_shift op in a network.
pub type ScaleShift = ScaleShiftOptions;

/// Computation of an op.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum OpKind {
    /// An input of the network, as the caller stores it; its output is normalised fp32.
    Input(InputEncoding),
    /// Convolution, with its BatchNorm and activation.
    Conv(Box<Conv>),
    /// Transposed convolution, with its activation.
    ConvTranspose(Box<ConvTranspose>),
    /// Pooling over windows.
    Pool(Pool),
    /// Padding of images.
    Pad(PadProblem),
    /// Resizing of images.
    Resize(ResizeProblem),
    /// Normalisation over the channels of each pixel.
    ChannelNorm(ChannelNorm),
    /// Local response normalisation.
    Lrn(Lrn),
    /// Pooling over the complete image.
    GlobalPool {
        /// Maximum instead of average.
        max: bool,
    },
    /// Fully connected layer.
    Linear(Linear),
    /// An op on two tensors.
    Binary(BinaryOp, Activation),
    /// An activation function that is not fused.
    Activation(Activation),
    /// `scale * x + shift` for each channel.
    ScaleShift(ScaleShift),
    /// PReLU with a slope for each channel.
    PRelu,
    /// Concatenation along the channels.
    Concat,
    /// Consecutive channels, from this one on.
    Slice {
        /// The first channel.
        start: u32,
    },
    /// The channels in another order.
    Shuffle {
        /// Groups of consecutive channels, of each of which one channel is taken in turn.
        groups: u32,
    },
    /// C x H x W to one axis of features.
    Flatten,
}

/// One op with its inputs and the shape of its output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Op {
    /// Unique name.
    pub name: String,
    /// Operands, in order.
    pub inputs: Vec<OpId>,
    /// The computation.
    pub kind: OpKind,
    /// Shape of the output.
    pub y: TensorShape,
}

/// An output of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkOutput {
    /// The op whose output it is.
    pub op: OpId,
    /// Its name in the driver's interface: that of the op, unless the config names it.
    pub name: String,
    /// Its format in the caller's memory: fp32 or fp16, in NCHW or NHWC.
    pub format: Format,
}

/// A checked network. The first ops are its inputs, all of one batch size; the output of the last op is an output of the network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    /// Name: a C identifier, because it is the prefix of every generated symbol.
    pub name: String,
    /// The GPUs to plan for.
    pub gpus: Targets,
    /// How tiles are chosen.
    pub tiles: TilePolicy,
    /// How activation tensors between ops may be stored: in fp32, or, where the planner prefers it, in fp16 NHWC too.
    pub activations: DType,
    /// The batches to plan for. The shapes of the ops are for the largest.
    pub batches: Batches,
    /// Ops in an execution order.
    pub ops: Vec<Op>,
    /// The outputs, at least one, in the order of their ops. The last one is that of the last op.
    pub outputs: Vec<NetworkOutput>,
}

impl Network {
    /// The op with an id.
    pub fn op(&self, id: OpId) -> &Op {
        &self.ops[id.0]
    }

    /// The inputs, at least one, in the order of the driver's interface.
    pub fn inputs(&self) -> &[Op] {
        let is_input = |op: &Op| matches!(op.kind, OpKind::Input(_));
        let count = self.ops.iter().take_while(|op| is_input(op)).count();
        &self.ops[..count]
    }

    /// Sets how the caller stores an input.
    ///
    /// # Errors
    /// What is wrong with the encoding, which is not set then.
    pub(crate) fn encode_input(
        &mut self,
        index: usize,
        encoding: InputEncoding,
    ) -> Result<(), Vec<String>> {
        let op = &mut self.ops[index];
        let errors = encoding.errors(&op.name, op.y);
        if errors.is_empty() {
            op.kind = OpKind::Input(encoding);
            return Ok(());
        }
        let errors = errors.into_iter();
        Err(errors
            .map(|(message, help)| format!("{message}; {help}"))
            .collect())
    }

    /// The shapes of the inputs, separated by commas.
    pub fn input_shapes(&self) -> String {
        let shapes = self.inputs().iter().map(|input| input.y.to_string());
        shapes.collect::<Vec<_>>().join(", ")
    }

    /// Shape of the first input, in most networks the only one.
    pub fn input(&self) -> TensorShape {
        self.ops[0].y
    }

    /// Id of the last op, whose output is the last of the network's outputs, in most networks the only one.
    pub fn last_op(&self) -> OpId {
        OpId(self.ops.len() - 1)
    }

    /// Whether an op's output is an output of the network.
    pub fn is_output(&self, id: OpId) -> bool {
        self.outputs.iter().any(|output| output.op == id)
    }

    /// For each op, the ops that read it, in order; an op that reads it twice is listed twice.
    pub fn consumers(&self) -> Vec<Vec<OpId>> {
        let mut consumers = vec![Vec::new(); self.ops.len()];
        for (index, op) in self.ops.iter().enumerate() {
            for input in &op.inputs {
                consumers[input.0].push(OpId(index));
            }
        }
        consumers
    }
}

/// The options of an output of a network.
#[derive(Debug, Clone, Default)]
pub struct OutputOptions {
    /// Its name in the driver's interface, if it is not that of the op.
    pub name: Option<String>,
    /// As [`NetworkOutput::format`].
    pub format: Format,
}

/// Adds ops one by one, infers their shapes and collects all errors.
#[derive(Debug)]
pub struct NetworkBuilder {
    name: String,
    ops: Vec<Op>,
    /// The number of inputs, which are the first ops.
    input_count: usize,
    /// Ids by name; `None` for an invalid op, so that its readers cause no second error.
    ids: HashMap<String, Option<OpId>>,
    requested: usize,
    /// The previous op; `None` if it was invalid.
    previous: Option<OpId>,
    /// What the caller says of outputs, with the indices of their ops.
    requested_outputs: Vec<(usize, OutputOptions)>,
    /// Whether the caller has rejected an op and reported the reason.
    incomplete: bool,
    errors: Vec<SpecError>,
}

/// Maximum number of unknown names for which a similar known name is searched.
const MAX_SUGGESTIONS: usize = 20;

/// Name of the input of a network with a single one.
pub const INPUT_NAME: &str = "input";

/// The name of a Tucker layer's core and last factor in one task.
pub(crate) const CORE_LAST: &str = "core_last";

/// The names of a factorised layer's tasks: its factors, and [`CORE_LAST`].
pub(crate) fn factor_names() -> Vec<&'static str> {
    let factors = FactorRole::TUCKER.iter().chain(&FactorRole::CP);
    factors
        .map(|factor| factor.as_str())
        .chain([CORE_LAST])
        .collect()
}

/// What is wrong with an op of these options that reads a tensor of shape `x`.
pub(crate) fn op_errors(x: TensorShape, options: OpOptions) -> Vec<SpecError> {
    let mut builder = NetworkBuilder::new("layer", x);
    builder.op("layer", None, options);
    builder.finish().err().unwrap_or_default()
}

impl NetworkBuilder {
    /// A network with the given name and a single input of the given shape, named [`INPUT_NAME`].
    pub fn new(name: &str, input: TensorShape) -> Self {
        Self::with_inputs(name, &[(INPUT_NAME.to_owned(), input)])
    }

    /// A network with the given name and inputs, at least one.
    pub fn with_inputs(name: &str, inputs: &[(String, TensorShape)]) -> Self {
        let input = |(name, shape): &(String, TensorShape)| Op {
            name: name.clone(),
            inputs: Vec::new(),
            kind: OpKind::Input(InputEncoding::PLAIN),
            y: *shape,
        };
        let mut builder = Self {
            name: name.to_owned(),
            ops: inputs.iter().map(input).collect(),
            input_count: inputs.len(),
            ids: HashMap::new(),
            requested: 0,
            previous: None,
            requested_outputs: Vec::new(),
            incomplete: false,
            errors: Vec::new(),
        };
        builder.check_name(name);
        builder.check_inputs();
        builder
    }

    /// Says how the caller stores the input with this index.
    pub fn encode_input(&mut self, index: usize, encoding: InputEncoding) {
        let op = &mut self.ops[index];
        let errors = encoding.errors(&op.name, op.y);
        op.kind = OpKind::Input(encoding);
        for (message, help) in errors {
            self.error(SpecLocation::TopLevel("input"), message, help);
        }
    }

    /// Checks the name of the network.
    fn check_name(&mut self, name: &str) {
        let refusal = match is_identifier(name) {
            true => reserved_reason(name).map(|(reason, help)| (format!(": {reason}"), help)),
            false => Some((
                String::new(),
                "use letters, digits and _, not a digit first: it becomes a C++ namespace"
                    .to_owned(),
            )),
        };
        if let Some((reason, help)) = refusal {
            self.errors.push(SpecError::new(
                SpecLocation::TopLevel("name"),
                format!("`{name}` cannot be the name of a network{reason}"),
                help,
            ));
        }
    }

    /// Checks names and shapes of the inputs, and makes the only one of them the op before the first.
    fn check_inputs(&mut self) {
        let inputs: Vec<_> = self.ops.iter().map(|op| (op.name.clone(), op.y)).collect();
        let batch = inputs.first().map_or(1, |(_, shape)| shape.batch);
        for (index, (name, shape)) in inputs.iter().enumerate() {
            let what = match inputs.len() {
                1 => "the input".to_owned(),
                _ => format!("the input `{}`", name.escape_debug()),
            };
            let mut problem = check_shape(&what, *shape).err();
            if !is_name(name) {
                problem = Some((
                    format!("`{}` cannot be the name of an input", name.escape_debug()),
                    "names are not empty and have no spaces".to_owned(),
                ));
            } else if self.ids.contains_key(name) {
                problem = Some((
                    format!("there are two inputs named `{name}`"),
                    "give each input its own name".to_owned(),
                ));
            } else if problem.is_none() && shape.batch != batch {
                problem = Some((
                    format!("{what} has batch {}, the first input {batch}", shape.batch),
                    "give all inputs the same batch".to_owned(),
                ));
            }
            let id = problem.is_none().then_some(OpId(index));
            self.ids.entry(name.clone()).or_insert(id);
            if let Some((message, help)) = problem {
                self.error(SpecLocation::TopLevel("input"), message, help);
            }
        }
        if let [(name, _)] = &inputs[..] {
            self.previous = self.ids[name];
        }
    }

    /// Whether a name is that of an input.
    fn is_input(&self, name: &str) -> bool {
        self.ops[..self.input_count]
            .iter()
            .any(|op| op.name == name)
    }

    /// Adds an op. Without `inputs` it reads the previous op. Errors are collected for [`finish`](Self::finish).
    pub fn op(&mut self, name: &str, inputs: Option<&[String]>, options: OpOptions) {
        let index = self.requested;
        self.requested += 1;
        let errors_before = self.errors.len();
        if !is_name(name) {
            self.error(
                SpecLocation::Key(index, "name"),
                format!("`{}` cannot be the name of an op", name.escape_debug()),
                "names are not empty and have no spaces",
            );
        }
        if self.ids.contains_key(name) {
            let message = match (self.is_input(name), self.input_count) {
                (true, 1) => format!("`{name}` is the network's input"),
                (true, _) => format!("`{name}` is an input of the network"),
                (false, _) => format!("there are two ops named `{name}`"),
            };
            self.error(
                SpecLocation::Key(index, "name"),
                message,
                "give each op its own name",
            );
        }
        let operands = self.operands(index, inputs, &options);
        let built = operands.and_then(|operands| {
            let kind_and_shape = self.infer(index, &operands, options)?;
            Some((operands, kind_and_shape))
        });
        let id = match built {
            Some((inputs, (kind, y))) if self.errors.len() == errors_before => {
                self.ops.push(Op {
                    name: name.to_owned(),
                    inputs,
                    kind,
                    y,
                });
                Some(OpId(self.ops.len() - 1))
            }
            _ => None,
        };
        self.ids.entry(name.to_owned()).or_insert(id);
        self.previous = id;
    }

    /// The output shape of the op that was added last, or of the last input.
    ///
    /// # Errors
    /// The errors since the last call, after which more ops can be added.
    pub fn added(&mut self) -> Result<TensorShape, Vec<SpecError>> {
        match self.previous {
            Some(id) if self.errors.is_empty() => Ok(self.ops[id.0].y),
            // No op was added to several inputs.
            None if self.errors.is_empty() && self.requested == 0 => {
                Ok(self.ops[self.input_count - 1].y)
            }
            _ => Err(std::mem::take(&mut self.errors)),
        }
    }

    /// Makes the output of the op that was added last an output of the network in fp32 NCHW, with a name in the driver's interface. The
    /// last op's is one without a call, with the name of the op. Of several calls for one op the last one counts.
    pub fn name_output(&mut self, name: &str) {
        self.add_output(OutputOptions {
            name: Some(name.to_owned()),
            format: Format::default(),
        });
    }

    /// The same with options.
    pub fn add_output(&mut self, options: OutputOptions) {
        let index = self.requested.saturating_sub(1);
        if let Some(name) = options.name.as_ref().filter(|name| !is_name(name)) {
            self.error(
                SpecLocation::Key(index, "output"),
                format!("`{}` cannot be the name of an output", name.escape_debug()),
                "names are not empty and have no spaces",
            );
        }
        self.requested_outputs.push((index, options));
    }

    /// Records an op that the caller could not read, so that its readers cause no second error.
    pub fn add_invalid(&mut self, name: Option<&str>) {
        self.requested += 1;
        self.incomplete = true;
        self.previous = None;
        if let Some(name) = name {
            self.ids.entry(name.to_owned()).or_insert(None);
        }
    }

    /// The network, or all errors.
    ///
    /// # Errors
    /// All errors at once, in the order of the ops, then those of names of outputs. The list is empty if an op was
    /// [invalid](Self::add_invalid), which the caller has reported, and the others have no errors.
    pub fn finish(mut self) -> Result<Network, Vec<SpecError>> {
        if self.requested == 0 {
            self.error(
                SpecLocation::TopLevel("ops"),
                "the network has no ops".to_owned(),
                "list at least one",
            );
        }
        let outputs = self.outputs();
        if self.errors.is_empty() && !self.incomplete {
            let mut read = vec![false; self.ops.len()];
            for op in &self.ops {
                for input in &op.inputs {
                    read[input.0] = true;
                }
            }
            // No op needs to read an output of the network.
            for output in &outputs {
                read[output.op.0] = true;
            }
            for (index, _) in read.iter().enumerate().filter(|(_, read)| !**read) {
                let location = match index.checked_sub(self.input_count) {
                    None => SpecLocation::TopLevel("input"),
                    Some(index) => SpecLocation::Op(index),
                };
                let message = format!("nothing reads `{}`", self.ops[index].name);
                self.error(
                    location,
                    message,
                    "remove it, or name it among the inputs of a later op",
                );
            }
        }
        if self.errors.is_empty() && !self.incomplete {
            self.check_reserved_names();
        }
        if self.errors.is_empty() && !self.incomplete {
            Ok(Network {
                outputs,
                name: self.name,
                gpus: Targets::default(),
                tiles: TilePolicy::default(),
                activations: DType::default(),
                batches: Batches::one(self.ops[0].y.batch),
                ops: self.ops,
            })
        } else {
            Err(self.errors)
        }
    }

    /// The outputs of the network: those that the caller asked for, and that of the last op. Reports names that two of them have.
    ///
    /// If an op has an error, the ids are wrong, but there is no network either.
    fn outputs(&mut self) -> Vec<NetworkOutput> {
        let mut requested: BTreeMap<usize, OutputOptions> =
            std::mem::take(&mut self.requested_outputs)
                .into_iter()
                .collect();
        let is_complete = self.errors.is_empty() && !self.incomplete;
        requested
            .entry(self.requested.saturating_sub(1))
            .or_default();
        let mut outputs: Vec<NetworkOutput> = Vec::new();
        for (index, OutputOptions { name, format }) in requested {
            let op = OpId(index + self.input_count);
            let own_name = self
                .ops
                .get(op.0)
                .filter(|_| is_complete)
                .map(|op| op.name.clone());
            let name = name.or(own_name).unwrap_or_default();
            if outputs.iter().any(|output| output.name == name) {
                self.error(
                    SpecLocation::Key(index, "output"),
                    format!("two outputs are named `{}`", name.escape_debug()),
                    "give each output its own name; that of the last op has the op's name if there is no `output`",
                );
            }
            outputs.push(NetworkOutput { op, name, format });
        }
        outputs
    }

    /// Rejects names that other ops use for their own parts: the factors of a layer, whose weights have these names in a checkpoint,
    /// and the copies for a concatenation.
    fn check_reserved_names(&mut self) {
        let mut parts = HashMap::new();
        for op in &self.ops {
            let own: Vec<&str> = match &op.kind {
                OpKind::Conv(conv)
                    if conv.options.ranks.is_some()
                        || conv.options.cp_rank.is_some()
                        || conv.options.rank.is_some() =>
                {
                    factor_names()
                }
                OpKind::Linear(linear) if linear.options.rank.is_some() => factor_names(),
                OpKind::Concat => {
                    let inputs = op.inputs.iter();
                    inputs.map(|input| &self.ops[input.0].name[..]).collect()
                }
                _ => continue,
            };
            for part in own {
                parts.insert(format!("{}.{part}", op.name), op.name.clone());
            }
        }
        let taken = self.ops.iter().enumerate().filter_map(|(index, op)| {
            let owner = parts.get(&op.name)?;
            let message = format!("`{}` is what a part of `{owner}` is called", op.name);
            let location = match index.checked_sub(self.input_count) {
                None => SpecLocation::TopLevel("input"),
                Some(index) => SpecLocation::Key(index, "name"),
            };
            Some((location, message))
        });
        for (location, message) in taken.collect::<Vec<_>>() {
            self.error(location, message, "choose another name");
        }
    }

    fn error(&mut self, location: SpecLocation, message: String, help: impl Into<String>) {
        self.errors.push(SpecError::new(location, message, help));
    }

    /// Ids of the operands, or `None` if one is unknown (reported) or was invalid (already reported).
    fn operands(
        &mut self,
        index: usize,
        inputs: Option<&[String]>,
        options: &OpOptions,
    ) -> Option<Vec<OpId>> {
        let operands: Option<Vec<OpId>> = match inputs {
            None if index == 0 && self.input_count > 1 => {
                let names = self.ops[..self.input_count].iter();
                let names: Vec<_> = names.map(|op| format!("`{}`", op.name)).collect();
                self.error(
                    SpecLocation::Op(index),
                    format!("the network has several inputs: {}", names.join(", ")),
                    "name those that the first op reads in `inputs`",
                );
                return None;
            }
            None => self.previous.map(|id| vec![id]),
            Some(names) => {
                let ids: Vec<_> = names
                    .iter()
                    .enumerate()
                    .map(|(item, name)| match self.ids.get(name) {
                        Some(id) => *id,
                        None => {
                            let known = self.ids.keys().map(String::as_str);
                            // Suggestions for a file full of unknown names would not help.
                            let few = self.errors.len() < MAX_SUGGESTIONS;
                            let nearest = nearest(name, known.filter(|_| few));
                            let help = match nearest {
                                Some(known) => format!("did you mean `{known}`?"),
                                None => {
                                    "inputs are ops that stand further up, or `input`".to_owned()
                                }
                            };
                            self.error(
                                SpecLocation::Item(index, "inputs", item),
                                format!("`{name}` is not the name of an earlier op"),
                                help,
                            );
                            None
                        }
                    })
                    .collect();
                ids.into_iter().collect()
            }
        };
        let given = inputs.map_or(1, <[String]>::len);
        let (accepted, expected) = match options {
            OpOptions::Binary(..) => (given == 2, "two inputs"),
            OpOptions::Concat => (given >= 2, "two inputs or more"),
            _ => (given == 1, "one input"),
        };
        if !accepted {
            self.error(
                SpecLocation::Key(index, "inputs"),
                format!("this op takes {expected}, {given} given"),
                "name them in `inputs: [a, b]`",
            );
            return None;
        }
        operands
    }

    /// The op's kind with all sizes, and its output shape; `None` if an error was reported.
    fn infer(
        &mut self,
        index: usize,
        operands: &[OpId],
        options: OpOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let x = self.ops[operands[0].0].y;
        let (kind, y) = match options {
            OpOptions::Conv(options) => {
                let shape = self.conv_shape(index, x, &options)?;
                let y = TensorShape::new(x.batch, shape.n, shape.out_h(), shape.out_w());
                (OpKind::Conv(Box::new(Conv { shape, options })), y)
            }
            OpOptions::ConvTranspose(options) => self.conv_transpose(index, x, options)?,
            OpOptions::MaxPool(options) => self.pool(index, x, PoolKind::Max, &options)?,
            OpOptions::AvgPool(options) => {
                let kind = PoolKind::Avg {
                    count_include_pad: options.count_include_pad,
                };
                self.pool(index, x, kind, &options)?
            }
            OpOptions::GlobalMaxPool => (
                OpKind::GlobalPool { max: true },
                TensorShape::new(x.batch, x.c, 1, 1),
            ),
            OpOptions::GlobalAvgPool => (
                OpKind::GlobalPool { max: false },
                TensorShape::new(x.batch, x.c, 1, 1),
            ),
            OpOptions::Pad(options) => self.pad(index, x, &options)?,
            OpOptions::Resize(options) => self.resize(index, x, &options)?,
            OpOptions::Lrn(lrn) => self.lrn(index, x, lrn)?,
            OpOptions::ChannelNorm(norm) => {
                self.check_norm(index, norm)?;
                (OpKind::ChannelNorm(norm), x)
            }
            OpOptions::Linear(options) => {
                if x.pixels() != 1 {
                    self.error(
                        SpecLocation::Op(index),
                        format!("a linear layer needs features, its input is {x}"),
                        "put a flatten or a global pool before it",
                    );
                    return None;
                }
                self.check_positive(index, "n", &[options.n])?;
                let y = TensorShape::new(x.batch, options.n, 1, 1);
                self.check_weight_size(index, u64::from(x.c) * u64::from(options.n))?;
                if let Some(rank) = options.rank {
                    self.check_rank(index, [options.n, x.c], rank)?;
                }
                (OpKind::Linear(Linear { c: x.c, options }), y)
            }
            OpOptions::Binary(op, activation) => {
                let other = self.ops[operands[1].0].y;
                let factor = TensorShape::new(x.batch, x.c, 1, 1);
                let is_gate = op == BinaryOp::Mul && other != x && other == factor;
                let op = if is_gate { BinaryOp::Gate } else { op };
                if other != x && !is_gate {
                    let (what, help) = match op {
                        BinaryOp::Add => ("an addition needs equal shapes", ""),
                        BinaryOp::Sub => ("a difference needs equal shapes", ""),
                        BinaryOp::Mul | BinaryOp::Gate => (
                            "a product needs equal shapes, or BxCx1x1 second",
                            ", or put the factors of the channels second",
                        ),
                    };
                    self.error(
                        SpecLocation::Key(index, "inputs"),
                        format!("{what}, these are {x} and {other}"),
                        format!("make the branches agree in channels and stride{help}"),
                    );
                    return None;
                }
                (OpKind::Binary(op, activation), x)
            }
            OpOptions::Activation(Activation::None) => {
                self.error(
                    SpecLocation::Key(index, "activation"),
                    "an op that changes nothing".to_owned(),
                    "remove it",
                );
                return None;
            }
            OpOptions::Activation(function) => (OpKind::Activation(function), x),
            OpOptions::PRelu => (OpKind::PRelu, x),
            OpOptions::ScaleShift(options) => (OpKind::ScaleShift(options), x),
            OpOptions::Concat => {
                let mut c = 0u64;
                for operand in operands {
                    let other = self.ops[operand.0].y;
                    if (other.batch, other.h, other.w) != (x.batch, x.h, x.w) {
                        self.error(
                            SpecLocation::Key(index, "inputs"),
                            format!(
                                "a concatenation needs equal images, these are {x} and {other}"
                            ),
                            "make the branches agree in height and width",
                        );
                        return None;
                    }
                    c += u64::from(other.c);
                }
                let c = u32::try_from(c).unwrap_or(u32::MAX);
                (OpKind::Concat, TensorShape { c, ..x })
            }
            OpOptions::Slice(SliceOptions { start, n }) => {
                self.check_positive(index, "n", &[n])?;
                let end = u64::from(start) + u64::from(n);
                if end > u64::from(x.c) {
                    self.error(
                        SpecLocation::Key(index, "n"),
                        format!("channels {start} to {} of {} channels", end - 1, x.c),
                        "`start` + `n` is at most the number of channels",
                    );
                    return None;
                }
                (OpKind::Slice { start }, TensorShape { c: n, ..x })
            }
            OpOptions::Shuffle(groups) => {
                self.check_positive(index, "groups", &[groups])?;
                if !x.c.is_multiple_of(groups) {
                    self.error(
                        SpecLocation::Key(index, "groups"),
                        format!("{} channels do not divide into {groups} groups", x.c),
                        "use a divisor of the number of channels",
                    );
                    return None;
                }
                (OpKind::Shuffle { groups }, x)
            }
            OpOptions::Flatten => {
                let features = u32::try_from(x.image_len()).unwrap_or(u32::MAX);
                (OpKind::Flatten, TensorShape::new(x.batch, features, 1, 1))
            }
        };
        if let Err((message, help)) = check_shape("the output", y) {
            self.error(SpecLocation::Op(index), message, help);
            return None;
        }
        Some((kind, y))
    }

    fn lrn(&mut self, index: usize, x: TensorShape, lrn: Lrn) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_positive(index, "size", &[lrn.size]);
        let range = |from: f32| move |number: f32| (from..f32::INFINITY).contains(&number);
        let (not_negative, positive) = ("a number from 0", "a positive number");
        for (key, number, is_valid, expected) in [
            (
                "alpha",
                lrn.alpha,
                range(0.0)(lrn.alpha.get()),
                not_negative,
            ),
            ("beta", lrn.beta, range(0.0)(lrn.beta.get()), not_negative),
            ("k", lrn.k, range(f32::MIN_POSITIVE)(lrn.k.get()), positive),
        ] {
            if !is_valid {
                self.error(
                    SpecLocation::Key(index, key),
                    format!("`{key}` is {}", number.get()),
                    format!("it must be {expected}, so that the power exists"),
                );
            }
        }
        (self.errors.len() == before).then_some((OpKind::Lrn(lrn), x))
    }

    fn check_norm(&mut self, index: usize, norm: ChannelNorm) -> Option<()> {
        if let ChannelNorm::L2 { eps } = norm
            && !(ChannelNorm::MIN_EPS..f32::INFINITY).contains(&eps.get())
        {
            self.error(
                SpecLocation::Key(index, "eps"),
                format!("`eps` is {}", eps.get()),
                format!(
                    "it must be a number from {:e}, so that it can be divided by",
                    ChannelNorm::MIN_EPS
                ),
            );
            return None;
        }
        Some(())
    }

    fn pad(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &PadOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        let PadOptions { pad, mode } = *options;
        if let PadMode::Constant(value) = mode
            && !value.get().is_finite()
        {
            self.error(
                SpecLocation::Key(index, "value"),
                format!("`value` is {}", value.get()),
                "it must be a finite number",
            );
        }
        for (pixels, size, what) in [
            (pad.top.max(pad.bottom), x.h, "rows"),
            (pad.left.max(pad.right), x.w, "columns"),
        ] {
            if pixels > mode.limit(size) {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{pixels} {what} of padding by the reflection of {size}"),
                    "a reflection has one pixel less than the image",
                );
            }
        }
        let problem = PadProblem {
            mode,
            x,
            padding: pad,
        };
        let y = problem.output().shape;
        (self.errors.len() == before).then_some((OpKind::Pad(problem), y))
    }

    fn resize(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ResizeOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let (key, out) = match options.size {
            ResizedSize::Pixels(out) => {
                self.check_positive(index, "size", &out)?;
                ("size", out)
            }
            ResizedSize::Scale([down, right]) => {
                self.check_positive(index, "scale", &[down, right])?;
                let sizes = [x.h.saturating_mul(down), x.w.saturating_mul(right)];
                ("scale", sizes)
            }
        };
        for (size, out) in [(x.h, out[0]), (x.w, out[1])] {
            if u64::from(size) * u64::from(out) > ResizeProblem::MAX_PRODUCT {
                self.error(
                    SpecLocation::Key(index, key),
                    format!("{size} pixels become {out}"),
                    "the product of both is at most 268435456",
                );
                return None;
            }
        }
        let problem = ResizeProblem {
            x,
            out,
            coordinates: options.coordinates,
            interpolation: options.interpolation,
        };
        let [h, w] = out;
        Some((OpKind::Resize(problem), TensorShape { h, w, ..x }))
    }

    fn conv_transpose(
        &mut self,
        index: usize,
        x: TensorShape,
        options: ConvTransposeOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_positive(index, "n", &[options.n]);
        self.check_positive(index, "kernel", &options.kernel);
        self.check_positive(index, "stride", &options.stride);
        self.check_positive(index, "dilation", &options.dilation);
        self.check_positive(index, "groups", &[options.groups]);
        if self.errors.len() > before {
            return None;
        }
        let (n, groups) = (options.n, options.groups);
        if !x.c.is_multiple_of(groups) || !n.is_multiple_of(groups) {
            self.error(
                SpecLocation::Key(index, "groups"),
                format!(
                    "{groups} groups do not divide {} input and {n} output channels",
                    x.c
                ),
                "groups must divide both",
            );
            return None;
        }
        let [r, s] = options.kernel;
        let problem = ConvTransposeProblem {
            shape: ConvShape {
                batch: x.batch,
                stride: options.stride,
                padding: options.pad,
                dilation: options.dilation,
                groups,
                ..ConvShape::new(x.c, n, x.h, x.w, r, s)
            },
            output_padding: options.output_padding,
            epilogue: Epilogue::default(),
        };
        let pad = options.pad;
        let full = problem.full_size();
        for (axis, pads, what) in [
            (0, [pad.top, pad.bottom], "rows"),
            (1, [pad.left, pad.right], "columns"),
        ] {
            let cut = pads.iter().map(|&pixels| u64::from(pixels)).sum::<u64>();
            let added = options.output_padding[axis];
            let limit = options.stride[axis].max(options.dilation[axis]);
            if added >= limit {
                self.error(
                    SpecLocation::Key(index, "output_padding"),
                    format!("{added} {what} of output padding"),
                    format!("it is less than the larger one of stride and dilation, {limit}"),
                );
            } else if full[axis] > MAX_ELEMENTS {
                self.error(
                    SpecLocation::Op(index),
                    format!(
                        "the output has {} {what} before `pad` is cut off",
                        full[axis]
                    ),
                    format!("at most {MAX_ELEMENTS} are supported"),
                );
            } else if cut >= full[axis] {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{cut} {what} are cut off {}", full[axis]),
                    "use less padding",
                );
            }
        }
        let taps = u64::from(r) * u64::from(s);
        let weights = (u64::from(n) * u64::from(x.c / groups)).saturating_mul(taps);
        self.check_weight_size(index, weights);
        if self.errors.len() > before {
            return None;
        }
        let y = problem.output().shape;
        let layer = ConvTranspose { problem, options };
        Some((OpKind::ConvTranspose(Box::new(layer)), y))
    }

    fn conv_shape(
        &mut self,
        index: usize,
        x: TensorShape,
        options: &ConvOptions,
    ) -> Option<ConvShape> {
        let before = self.errors.len();
        self.check_positive(index, "n", &[options.n]);
        self.check_positive(index, "kernel", &options.kernel);
        self.check_positive(index, "stride", &options.stride);
        self.check_positive(index, "dilation", &options.dilation);
        self.check_positive(index, "groups", &[options.groups]);
        if self.errors.len() > before {
            return None;
        }
        let groups = options.groups;
        if !x.c.is_multiple_of(groups) || !options.n.is_multiple_of(groups) {
            self.error(
                SpecLocation::Key(index, "groups"),
                format!(
                    "{groups} groups do not divide {} input and {} output channels",
                    x.c, options.n
                ),
                "groups must divide both",
            );
        }
        self.check_decomposition(index, x, options);
        let padding = match options.pad {
            PaddingOption::Pixels(padding) => padding,
            PaddingOption::Same => {
                let half = |axis: usize| {
                    let reach =
                        u64::from(options.dilation[axis]) * u64::from(options.kernel[axis] - 1);
                    u32::try_from(reach / 2).unwrap_or(u32::MAX)
                };
                Padding {
                    top: half(0),
                    left: half(1),
                    bottom: half(0),
                    right: half(1),
                }
            }
        };
        self.check_window(index, x, options.kernel, options.dilation, padding, [0; 2])?;
        let shape = ConvShape {
            batch: x.batch,
            c: x.c,
            n: options.n,
            h: x.h,
            w: x.w,
            r: options.kernel[0],
            s: options.kernel[1],
            stride: options.stride,
            padding,
            dilation: options.dilation,
            groups,
        };
        let taps = u64::from(shape.r) * u64::from(shape.s);
        self.check_weight_size(
            index,
            (u64::from(shape.n) * u64::from(shape.c / groups)).saturating_mul(taps),
        )?;
        (self.errors.len() == before).then_some(shape)
    }

    fn pool(
        &mut self,
        index: usize,
        x: TensorShape,
        kind: PoolKind,
        options: &PoolOptions,
    ) -> Option<(OpKind, TensorShape)> {
        let before = self.errors.len();
        self.check_positive(index, "kernel", &options.kernel);
        self.check_positive(index, "stride", &options.stride);
        self.check_positive(index, "dilation", &options.dilation);
        if self.errors.len() > before {
            return None;
        }
        let pad = options.pad;
        for (axis, size, pixels) in [
            (0, x.h, pad.top.max(pad.bottom)),
            (1, x.w, pad.left.max(pad.right)),
        ] {
            let (window, dilation) = (options.kernel[axis], options.dilation[axis]);
            let reach = u64::from(dilation) * u64::from(window - 1) + 1;
            // Windows begin within the image or before it. Of the latter the first element that is not before the image is one of its first
            // `dilation` pixels.
            if u64::from(pixels) >= reach || pixels > 0 && dilation > size {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("{pixels} pixels of padding for a window that spans {reach}, in steps of {dilation}, on {size}"),
                    "use less padding or dilation, or a window could hold nothing else",
                );
            }
        }
        // Rounded up, the only window may reach further than the image.
        let overhang = match options.ceil_mode {
            true => options.stride.map(|stride| stride - 1),
            false => [0; 2],
        };
        self.check_window(index, x, options.kernel, options.dilation, pad, overhang)?;
        let rows = pooled_size(
            x.h,
            [pad.top, pad.bottom],
            options.kernel[0],
            options.stride[0],
            options.dilation[0],
            options.ceil_mode,
        );
        let columns = pooled_size(
            x.w,
            [pad.left, pad.right],
            options.kernel[1],
            options.stride[1],
            options.dilation[1],
            options.ceil_mode,
        );
        let pool = PoolProblem {
            kind,
            x,
            kernel: options.kernel,
            stride: options.stride,
            padding: pad,
            dilation: options.dilation,
            out: [rows, columns],
            input: Format::default(),
            output: Format::default(),
        };
        let y = TensorShape::new(x.batch, x.c, rows, columns);
        (self.errors.len() == before).then_some((OpKind::Pool(pool), y))
    }

    fn check_positive(&mut self, index: usize, key: &'static str, values: &[u32]) -> Option<()> {
        if let Some(item) = values.iter().position(|&value| value == 0) {
            self.error(
                SpecLocation::Item(index, key, item),
                format!("`{key}` is 0"),
                "it must be at least 1",
            );
            return None;
        }
        Some(())
    }

    /// Checks that a window with its dilation fits into the padded input, beyond which it may reach by `overhang`, and that the padded
    /// sizes are in range.
    fn check_window(
        &mut self,
        index: usize,
        x: TensorShape,
        kernel: [u32; 2],
        dilation: [u32; 2],
        pad: Padding,
        overhang: [u32; 2],
    ) -> Option<()> {
        let axes = [
            (0, x.h, [pad.top, pad.bottom], "height"),
            (1, x.w, [pad.left, pad.right], "width"),
        ];
        for (axis, size, pads, what) in axes {
            let (window, dilation) = (kernel[axis], dilation[axis]);
            let padded = u64::from(size) + pads.iter().map(|&p| u64::from(p)).sum::<u64>();
            let reach = u64::from(dilation) * u64::from(window - 1) + 1;
            if padded > MAX_ELEMENTS {
                self.error(
                    SpecLocation::Key(index, "pad"),
                    format!("the padded {what} is {padded}"),
                    format!("it must be below {MAX_ELEMENTS}"),
                );
                return None;
            }
            if reach > (padded + u64::from(overhang[axis])).min(MAX_ELEMENTS) {
                self.error(
                    SpecLocation::Key(index, "kernel"),
                    format!("the window spans {reach} pixels, the padded {what} is {padded}"),
                    "use a smaller kernel or more padding",
                );
                return None;
            }
        }
        Some(())
    }

    fn check_weight_size(&mut self, index: usize, elements: u64) -> Option<()> {
        if elements > MAX_ELEMENTS {
            self.error(
                SpecLocation::Op(index),
                format!("the weights have {elements} elements"),
                format!("at most {MAX_ELEMENTS} are supported"),
            );
            return None;
        }
        Some(())
    }
}

/// Number of windows, rounded down (`floor`) or up (`ceil`). As in PyTorch, a last window that would start in the padding is dropped.
fn pooled_size(
    size: u32,
    pad: [u32; 2],
    window: u32,
    stride: u32,
    dilation: u32,
    ceil: bool,
) -> u32 {
    let padded = u64::from(size) + u64::from(pad[0]) + u64::from(pad[1]);
    let reach = u64::from(dilation) * u64::from(window - 1) + 1;
    let room = padded.saturating_sub(reach);
    let stride = u64::from(stride);
    let mut count = if ceil {
        room.div_ceil(stride) + 1
    } else {
        room / stride + 1
    };
    if ceil && (count - 1) * stride >= u64::from(size) + u64::from(pad[0]) {
        count -= 1;
    }
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn check_shape(what: &str, shape: TensorShape) -> Result<(), (String, String)> {
    if shape.is_empty() {
        Err((
            format!("{what} {shape} is empty"),
            "every size must be at least 1".to_owned(),
        ))
    } else if shape.len() > MAX_ELEMENTS {
        Err((
            format!("{what} {shape} has more than {MAX_ELEMENTS} elements"),
            "use a smaller image or batch".to_owned(),
        ))
    } else {
        Ok(())
    }
}

/// Whether an op or an output can have a name: not empty, no spaces.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl BatchNorm {
    /// PyTorch's default epsilon.
    pub const DEFAULT_EPS: f64 = 1e-5;
}
