//! A network: a graph of typed ops with every size inferred.

mod batch;
mod builder;

use super::{
    Activation, Batches, BinaryOp, ChannelNorm, ConvOptions, ConvTransposeOptions,
    ConvTransposeProblem, DType, Format, InputEncoding, LinearOptions, Lrn, PadProblem,
    PoolProblem, ResizeProblem, ScaleShiftOptions, TensorShape, TilePolicy,
};
use crate::gpu::Targets;
#[cfg(feature = "onnx")]
pub(crate) use builder::is_name;
pub(crate) use builder::op_errors;
pub use builder::{NetworkBuilder, OutputOptions};
use serde::Serialize;
use tdc_runtime::{ConvShape, FactorRole};

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
