//! The planner's graph: tasks, each the work of one unit, and the values that they read and write.

use crate::ir::{ConvProblem, DType, Format, OpId, Precision, Problem, TensorShape};
use std::collections::HashMap;
use tdc_runtime::FactorRole;

/// Index of a value in [`TaskGraph::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub usize);

/// An activation tensor, and the value that contains it, if any.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// Name of the op that computes it; of a value between the factors of a layer, `<layer>.<factor>`.
    pub name: String,
    /// Shape.
    pub shape: TensorShape,
    /// Format. A view has that of the value that contains it, with a [pixel stride](Format::pixel_stride) in NHWC.
    pub format: Format,
    /// For a view: the value that contains it, and the offset in each image of that value, in elements.
    pub parent: Option<(ValueId, u64)>,
}

/// The ops of the network whose parameters a task reads.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parameters {
    /// The convolution or linear layer whose weights it reads.
    pub layer: Option<OpId>,
    /// The factors of that layer that the task computes, in order; empty for a layer without ranks.
    pub factors: Vec<FactorRole>,
    /// The scale_shift ops after the layer that are folded into weights and bias, in order. The layer's own id represents its own
    /// BatchNorm.
    pub fold: Vec<OpId>,
    /// Whether the task computes the end of the layer, to which bias and folded ops belong.
    pub ends_layer: bool,
    /// The scale_shift op whose scale and shift the task applies: its prologue, or a task that is a scale_shift itself.
    pub scale_shift: Option<OpId>,
    /// The layer whose first factor the task computes after those of `layer`.
    pub next: Option<OpId>,
    /// The layers whose outputs follow that of `layer` in each image, in order: their weights are one weight along O.
    pub merged: Vec<MergedLayer>,
    /// The projection shortcut that is added to `layer`: their weights are one weight along I.
    pub projection: Option<Projection>,
    /// The layers before `layer` in the same task, in order: `layer` is the last one of a squeeze-and-excite, a dense step or an
    /// inverted residual.
    pub inner: Vec<InnerLayer>,
}

/// A projection shortcut that a task computes together with the convolution that it is added to.
#[derive(Debug, Clone, PartialEq)]
pub struct Projection {
    /// The convolution.
    pub layer: OpId,
    /// As [`Parameters::fold`].
    pub fold: Vec<OpId>,
}

/// A layer whose output the next layer of the same task reads.
#[derive(Debug, Clone, PartialEq)]
pub struct InnerLayer {
    /// The convolution or linear layer.
    pub layer: OpId,
    /// As [`Parameters::fold`].
    pub fold: Vec<OpId>,
    /// Whether it has a bias, which is one of the task's weights.
    pub bias: bool,
}

/// What of a layer a weight is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightPart {
    /// The weight of a layer that is not factorised.
    Whole,
    /// A factor.
    Factor(FactorRole),
    /// The bias of an [inner layer](InnerLayer), with the ops folded into it.
    Bias,
}

/// A layer that a task computes together with another one of the same input.
#[derive(Debug, Clone, PartialEq)]
pub struct MergedLayer {
    /// The convolution.
    pub layer: OpId,
    /// As [`Parameters::fold`].
    pub fold: Vec<OpId>,
    /// Its output.
    pub y: ValueId,
}

impl Parameters {
    /// The layers that the task computes, those before and beside the first one included; without `next`.
    #[cfg(feature = "compress")]
    pub fn layers(&self) -> Vec<OpId> {
        let inner = self.inner.iter().map(|inner| inner.layer);
        let merged = self.merged.iter().map(|merged| merged.layer);
        let shortcut = self.projection.iter().map(|added| added.layer);
        inner
            .chain(self.layer)
            .chain(merged)
            .chain(shortcut)
            .collect()
    }

    /// The weights that the task reads, in order, each with its layer. Merged layers, and one with its projection
    /// shortcut, have one weight, that of the first.
    pub fn weights(&self) -> Vec<(OpId, WeightPart)> {
        let Some(layer) = self.layer else {
            return Vec::new();
        };
        if !self.inner.is_empty() {
            let layers = self.inner.iter().map(|inner| inner.layer);
            let weights = layers.chain([layer]).map(|id| (id, WeightPart::Whole));
            let biases = self.inner.iter().filter(|inner| inner.bias);
            let biases = biases.map(|inner| (inner.layer, WeightPart::Bias));
            return weights.chain(biases).collect();
        }
        let first = WeightPart::Factor(FactorRole::First);
        let next = self.next.map(|next| (next, first));
        match self.factors.is_empty() {
            true => vec![(layer, WeightPart::Whole)],
            false => {
                let factors = self.factors.iter();
                let factors = factors.map(|&factor| (layer, WeightPart::Factor(factor)));
                factors.chain(next).collect()
            }
        }
    }

    /// Whether scale and shift of a prologue belong to the weights with this index: the first ones that are not those of an inner layer.
    pub fn carries_prologue(&self, index: usize) -> bool {
        index == self.inner.len()
    }

    /// Whether bias and folded ops belong to the weights with this index in [`weights`](Self::weights): to the layer's last factor, or to
    /// the weights of a layer that is not factorised. Those of inner layers are theirs.
    pub fn carries_bias(&self, index: usize) -> bool {
        if !self.inner.is_empty() {
            return index == self.inner.len();
        }
        self.factors.is_empty() || self.ends_layer && index + 1 == self.factors.len()
    }
}

/// The work of one unit.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Name of the layer, followed by `.` and the factor's name for a factor of a factorised layer.
    pub name: String,
    /// The problem that its unit computes.
    pub problem: Problem,
    /// Input.
    pub x: ValueId,
    /// Second input: of the output's shape, that of a projection shortcut, or a concatenation.
    pub residual: Option<ValueId>,
    /// The end of that concatenation, if the task writes it.
    pub appended: Option<ValueId>,
    /// Output.
    pub y: ValueId,
    /// The source of its parameters.
    pub parameters: Parameters,
    /// The scheme that the config requests.
    pub scheme: Option<String>,
    /// The tile that the config requests.
    pub tile: Option<Vec<u32>>,
}

impl Task {
    /// The convolution in fp32 NCHW, of a layer that is not factorised, if the config requests neither a scheme nor atomics for it.
    pub(super) fn plain_conv(&self) -> Option<&ConvProblem> {
        let is_plain = self.parameters.factors.is_empty()
            && self.scheme.is_none()
            && self.problem.is_deterministic();
        self.problem.nchw_conv().filter(|_| is_plain)
    }

    /// The layer of a convolution that another task computes before its own; `None` without a layer.
    pub(super) fn as_inner(&self, conv: &ConvProblem) -> Option<InnerLayer> {
        Some(InnerLayer {
            layer: self.parameters.layer?,
            fold: self.parameters.fold.clone(),
            bias: conv.epilogue.bias,
        })
    }

    /// The values that the task reads: the input, then the residual.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> {
        std::iter::once(self.x).chain(self.residual)
    }

    /// The values that the task writes, without outputs that follow the first one.
    pub fn writes(&self) -> impl Iterator<Item = ValueId> {
        std::iter::once(self.y).chain(self.appended)
    }

    /// The values that the task reads, with their formats: a residual has that of the output.
    pub fn reads_in_formats(&self) -> impl Iterator<Item = (ValueId, Format)> {
        let residual = self.residual.map(|value| (value, self.output_format()));
        std::iter::once((self.x, self.input_format())).chain(residual)
    }

    /// The format in which the task reads its input.
    pub fn input_format(&self) -> Format {
        self.problem.kind().input().format
    }

    /// The format in which the task writes its output.
    pub fn output_format(&self) -> Format {
        self.problem.kind().output().format
    }
}

/// Tasks in execution order, and the values between them. The first values are the outputs of the ops, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskGraph {
    /// Activation tensors.
    pub values: Vec<Value>,
    /// Tasks, in execution order.
    pub tasks: Vec<Task>,
    /// The network's inputs, in the order of [`Network::inputs`](crate::ir::Network::inputs).
    pub inputs: Vec<ValueId>,
    /// How values may be stored: in fp32, which split NHWC replaces where that is faster, or in fp16 NHWC too.
    pub activations: DType,
    /// How products of each linear layer may be rounded, if it is computed as a convolution.
    pub linear_precisions: HashMap<OpId, Precision>,
    /// The network's outputs, in the order of [`Network::outputs`](crate::ir::Network::outputs).
    pub outputs: Vec<ValueId>,
    /// The format in which each of them is required.
    pub output_formats: Vec<Format>,
}

impl TaskGraph {
    /// The value that owns the memory of `id`, and the offset of `id` in each of its images, in elements.
    pub fn root(&self, id: ValueId) -> (ValueId, u64) {
        let (mut id, mut offset) = (id, 0);
        while let Some((parent, at)) = self.values[id.0].parent {
            id = parent;
            offset += at;
        }
        (id, offset)
    }

    /// Whether tasks before `task` compute a value, or all that contains it; so does an input of the network.
    pub(super) fn is_computed_before(&self, value: ValueId, task: usize) -> bool {
        let root = self.root(value).0;
        let writes = |other: &Task| self.root(other.y).0 == root;
        let last_writer = self.tasks.iter().rposition(writes);
        last_writer.is_none_or(|writer| writer < task)
    }

    /// The only task that reads a value or views of it; `None` if there are several, or if the value is an output or part of another one.
    pub(super) fn only_reader(&self, value: ValueId) -> Option<usize> {
        let is_of_value = |id: ValueId| self.root(id).0 == value;
        let is_output = self.outputs.iter().any(|&output| is_of_value(output));
        if self.values[value.0].parent.is_some() || is_output {
            return None;
        }
        let reads = |task: &Task| task.reads().any(is_of_value);
        let mut readers = (0..self.tasks.len()).filter(|&task| reads(&self.tasks[task]));
        readers.next().filter(|_| readers.next().is_none())
    }

    /// Adds an NCHW value, which is a view if it has a parent.
    pub(super) fn add_value(
        &mut self,
        name: String,
        shape: TensorShape,
        parent: Option<(ValueId, u64)>,
    ) -> ValueId {
        self.values.push(Value {
            name,
            shape,
            format: Format::default(),
            parent,
        });
        ValueId(self.values.len() - 1)
    }
}
