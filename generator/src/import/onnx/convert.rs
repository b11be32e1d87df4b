//! From the nodes of a graph to the ops of a network.
//!
//! Nodes are visited in topological order. Each of their outputs becomes a [`Value`]: a constant, the output of an op, or an elementwise
//! function that is not an op yet. Such a function becomes an op when another node reads it: by then its whole spelling is known, so that
//! `x * Sigmoid(x)` becomes one SiLU, which the op that computes x takes over if nothing else reads x.

mod aliases;
mod channels;
mod channels_last;
mod constants;
mod conv_transpose;
mod convolution;
mod filter;
mod functions;
mod l2_norm;
mod layer_norm;
mod linear;
mod lrn;
mod moments;
mod outputs;
mod padding;
mod pooling;
mod resize;
mod shapes;
mod softmax;

use super::attributes::Attributes;
use super::elementwise::Elementwise;
use super::error::{EXPORT_AGAIN, ImportError, REPLACE};
use super::fold::fold;
use super::graph::Graph;
use super::inputs::input;
use super::message::Node;
use super::names::{Names, op_type};
use super::tensor::Tensor;
use super::{Imported, Weights};
use crate::config::Overrides;
use crate::ir::{
    Format, INPUT_NAME, InputEncoding, Layout, NetworkBuilder, OpOptions, OutputOptions,
    TensorShape, is_name, reserved_reason,
};
use aliases::is_alias;
use moments::Moment;
use outputs::GraphOutput;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Index in [`Converter::values`].
type ValueId = usize;

/// Index of an op: first the network's inputs, then [`Converter::ops`].
type OpRef = usize;

/// A tensor of the graph.
#[derive(Debug, Clone)]
enum Value {
    /// Not computed, because of an error that was reported.
    Failed,
    /// Known numbers.
    Constant(Rc<Tensor>),
    /// The output of an op, of which ONNX has its own view: `dims` may lack axes of size 1.
    Op { op: OpRef, dims: Vec<usize> },
    /// The output of an op, with the channels as the last axis.
    ChannelsLast { op: OpRef },
    /// Flattened images, which `op` has in the order of channels, rows and columns, but ONNX in that of rows, columns and channels.
    FlatChannelsLast { op: OpRef, image: TensorShape },
    /// An elementwise function that is not an op yet.
    Function(Function),
    /// The output of an op with its channels in groups, within a channel shuffle.
    Grouped {
        op: OpRef,
        groups: usize,
        /// Whether the axes of groups and of channels were swapped.
        is_swapped: bool,
        dims: Vec<usize>,
    },
    /// The L2 norm of the channels of the value `of`, at least `least`.
    Norm {
        of: ValueId,
        least: f64,
        dims: Vec<usize>,
    },
    /// A mean over the channels of the value `of`.
    Moment {
        kind: Moment,
        of: ValueId,
        dims: Vec<usize>,
        node: usize,
    },
    /// The value `of` with zeros around its images.
    Padded {
        of: ValueId,
        /// Top, left, bottom, right.
        pads: [u32; 4],
        /// Whether the channels are the last axis.
        is_channels_last: bool,
        dims: Vec<usize>,
        node: usize,
    },
}

/// An elementwise operation whose result is not an op yet.
#[derive(Debug, Clone)]
struct Function {
    kind: Elementwise,
    operands: Vec<Operand>,
    dims: Vec<usize>,
    /// Whether the channels are the last axis.
    is_channels_last: bool,
    /// The node that computes it.
    node: usize,
    /// Functions that it is composed of, along the longest path.
    depth: usize,
}

/// An operand of a [`Function`].
#[derive(Debug, Clone, Copy)]
enum Operand {
    Value(ValueId),
    Number(f64),
}

/// A tensor of the weights: name, sizes and elements.
type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// An op of the network.
#[derive(Debug)]
struct NewOp {
    name: String,
    inputs: Vec<OpRef>,
    options: OpOptions,
    tensors: Vec<NamedTensor>,
}

/// Why a node has no value.
#[derive(Debug)]
enum Problem {
    /// What is wrong with the node, and the remedy.
    New(String, &'static str),
    /// An error that was reported already, for example at a node that computes an input.
    Reported,
}

fn unsupported(message: impl Into<String>) -> Problem {
    Problem::New(message.into(), REPLACE)
}

fn invalid(message: impl Into<String>) -> Problem {
    Problem::New(message.into(), EXPORT_AGAIN)
}

/// The state of the conversion.
struct Converter<'g> {
    graph: &'g Graph,
    ids: HashMap<&'g str, ValueId>,
    values: Vec<Value>,
    /// For each value the nodes that read it.
    readers: Vec<Vec<usize>>,
    /// For each op the values that are its output.
    views: Vec<Vec<ValueId>>,
    /// The outputs of the network.
    outputs: Vec<ValueId>,
    /// Names in the network and shapes of the inputs.
    inputs: Vec<(String, TensorShape)>,
    ops: Vec<NewOp>,
    /// For each input and op the shape of its output.
    shapes: Vec<TensorShape>,
    /// Infers shapes; the network itself is built from the ops that are left at the end.
    builder: NetworkBuilder,
    names: Names,
    /// Concatenations by what they concatenate.
    concats: HashMap<Vec<OpRef>, OpRef>,
    /// Elements of all constants that were computed.
    computed: usize,
    /// Elements of the weights of all ops, of which several may have the same constant.
    weights: usize,
    errors: Vec<ImportError>,
}

/// Most elements of all constants that are computed, 1 GiB.
const MAX_COMPUTED: usize = 1 << 28;

/// Most elements of the weights of all ops, 4 GiB.
const MAX_WEIGHTS: usize = 1 << 30;

/// Converts a graph; `name` is that of the network.
pub fn convert(
    graph: &Graph,
    name: &str,
    overrides: &Overrides,
) -> Result<Imported, Vec<ImportError>> {
    let name = match reserved_reason(name) {
        Some(_) => format!("net_{name}"),
        None => name.to_owned(),
    };
    let mut converter = Converter::new(graph)?;
    for index in 0..graph.nodes.len() {
        converter.visit(index);
    }
    let outputs = converter.output_ops();
    match converter.errors.is_empty() {
        true => converter.finish(&outputs, &name, overrides),
        false => Err(converter.errors),
    }
}

impl Value {
    /// The same value with the sizes that ONNX gives it.
    fn with_dims(self, dims: Vec<usize>) -> Self {
        match self {
            Self::Op { op, .. } => Self::Op { op, dims },
            other => other,
        }
    }
}

impl<'g> Converter<'g> {
    fn new(graph: &'g Graph) -> Result<Self, Vec<ImportError>> {
        let mut names = Names::new(&graph.nodes);
        let inputs = input_names(graph, &mut names);
        let mut builder = NetworkBuilder::with_inputs("network", &inputs);
        builder.added().map_err(ImportError::of_network)?;
        let mut converter = Self {
            graph,
            ids: HashMap::new(),
            values: Vec::new(),
            readers: Vec::new(),
            views: vec![Vec::new(); inputs.len()],
            outputs: Vec::new(),
            ops: Vec::new(),
            shapes: inputs.iter().map(|(_, shape)| *shape).collect(),
            inputs,
            builder,
            names,
            concats: HashMap::new(),
            computed: 0,
            weights: 0,
            errors: Vec::new(),
        };
        for (name, tensor) in &graph.constants {
            converter.define(name, Value::Constant(Rc::clone(tensor)));
        }
        for (op, input) in graph.inputs.iter().enumerate() {
            let value = match input.is_channels_last {
                true => Value::ChannelsLast { op },
                false => Value::Op {
                    op,
                    dims: input.dims.clone(),
                },
            };
            let id = converter.define(&input.name, value);
            converter.views[op].push(id);
        }
        converter.name_values();
        Ok(converter)
    }

    fn define(&mut self, name: &'g str, value: Value) -> ValueId {
        self.values.push(value);
        self.readers.push(Vec::new());
        self.ids.insert(name, self.values.len() - 1);
        self.values.len() - 1
    }

    /// An id for each output of a node. Aliases have the id of their input, and do not count among its readers.
    fn name_values(&mut self) {
        for (index, node) in self.graph.nodes.iter().enumerate() {
            let inputs = self.inputs(node);
            let source = input(&inputs, 0).filter(|_| is_alias(node));
            let skipped = usize::from(source.is_some());
            for id in inputs.into_iter().skip(skipped).flatten() {
                self.readers[id].push(index);
            }
            for (place, name) in node.output.iter().enumerate() {
                match source {
                    _ if name.is_empty() => {}
                    Some(source) if place == 0 => drop(self.ids.insert(name, source)),
                    _ => drop(self.define(name, Value::Failed)),
                }
            }
        }
        let outputs = self.graph.outputs.iter();
        self.outputs = outputs
            .filter_map(|name| self.ids.get(&name[..]).copied())
            .collect();
    }

    /// The inputs of a node; `None` for those that are left out.
    fn inputs(&self, node: &Node) -> Vec<Option<ValueId>> {
        let names = node.input.iter();
        names.map(|name| self.ids.get(&name[..]).copied()).collect()
    }

    /// Converts a node and reports everything that is wrong with it.
    fn visit(&mut self, index: usize) {
        let node = &self.graph.nodes[index];
        let inputs = self.inputs(node);
        let failed = |id: &ValueId| matches!(self.values[*id], Value::Failed);
        if inputs.iter().flatten().any(failed) {
            return;
        }
        let attributes = Attributes::of(node);
        let values = match op_type(node) {
            _ if is_alias(node) => self
                .check_alias(node, &inputs, &attributes)
                .map(|()| Vec::new()),
            "Split" => self.split(index, &inputs, &attributes),
            _ => self
                .convert(index, &inputs, &attributes)
                .map(|value| vec![value]),
        };
        let values = values.map(|values| self.with_axes_of_input(node, &inputs, values));
        let mut messages = attributes.errors();
        if let Ok(values) = &values {
            messages.extend(attributes.unread());
            let mut others = node.output.iter().skip(values.len().max(1));
            if others.any(|name| self.is_read(name)) {
                messages.push("only its first output is supported".to_owned());
            }
        }
        let is_understood = messages.is_empty();
        for message in messages {
            let error = ImportError::of_node(node, message, REPLACE);
            self.errors.push(error);
        }
        match values {
            Ok(values) if is_understood => {
                for (name, value) in node.output.iter().zip(values) {
                    if let Some(&output) = self.ids.get(&name[..]) {
                        self.set(output, value);
                    }
                }
            }
            Err(Problem::New(message, help)) => {
                self.errors.push(ImportError::of_node(node, message, help));
            }
            Ok(_) | Err(Problem::Reported) => {}
        }
    }

    /// The values of a node, of three axes if its input is, without rows.
    fn with_axes_of_input(
        &self,
        node: &Node,
        inputs: &[Option<ValueId>],
        values: Vec<Value>,
    ) -> Vec<Value> {
        /// Nodes that give their result axes of its own.
        const OTHER_AXES: [&str; 6] = [
            "Flatten",
            "Gather",
            "Reshape",
            "Squeeze",
            "Transpose",
            "Unsqueeze",
        ];
        let is_row = |id: ValueId| self.dims(id).len() == 3;
        if OTHER_AXES.contains(&op_type(node)) || !input(inputs, 0).is_some_and(is_row) {
            return values;
        }
        let without_rows = |value| match value {
            Value::Op { op, dims } if dims.len() == 4 && dims[2] == 1 => Value::Op {
                op,
                dims: vec![dims[0], dims[1], dims[3]],
            },
            other => other,
        };
        values.into_iter().map(without_rows).collect()
    }

    /// Whether a node or the output of the network needs a value.
    fn is_read(&self, name: &str) -> bool {
        let id = self.ids.get(name).copied();
        id.is_some_and(|id| self.outputs.contains(&id) || !self.readers[id].is_empty())
    }

    fn set(&mut self, id: ValueId, value: Value) {
        if let Value::Op { op, .. } | Value::ChannelsLast { op } = &value {
            self.views[*op].push(id);
        }
        self.values[id] = value;
    }

    /// The value of a node's first output.
    fn convert(
        &mut self,
        index: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let op = op_type(&self.graph.nodes[index]);
        if op == "Shape" {
            let dims = self.dims(first(inputs)?);
            return super::fold::shape(&dims, attributes)
                .map(|shape| Value::Constant(Rc::new(shape)))
                .map_err(invalid);
        }
        let shared: Vec<Option<Rc<Tensor>>> = inputs
            .iter()
            .map(|id| self.shared_constant((*id)?))
            .collect();
        let constants: Vec<Option<&Tensor>> = shared.iter().map(Option::as_deref).collect();
        let is_constant = inputs
            .iter()
            .zip(&constants)
            .all(|(id, constant)| id.is_none() || constant.is_some());
        if is_constant && let Some(folded) = fold(op, &constants, attributes) {
            let folded = folded.map_err(unsupported)?;
            self.computed = self.computed.saturating_add(folded.len());
            return match self.computed <= MAX_COMPUTED {
                true => Ok(Value::Constant(Rc::new(folded))),
                false => Err(unsupported(
                    "the model computes more than 1 GiB of constants",
                )),
            };
        }
        if let Some(value) = self.after_norm(index, inputs, &constants, attributes)? {
            return Ok(value);
        }
        if let Some(kind) = Elementwise::of(op, &constants, attributes) {
            let kind = kind.map_err(unsupported)?;
            // Operator set 6: the axis of the second operand's first axis.
            let has_axis = attributes.int("broadcast") == Some(1);
            let axis = attributes.int("axis").filter(|_| has_axis);
            return self.elementwise(index, kind, inputs, axis);
        }
        match op {
            "Conv" => self.convolution(index, inputs, attributes),
            "ConvTranspose" => self.conv_transpose(index, inputs, attributes),
            "BatchNormalization" => self.batch_norm(index, inputs, attributes),
            "Gemm" => self.gemm(index, inputs, attributes),
            "MatMul" => match self.last_channels_of(first(inputs)?)? {
                Some(op) => self.pixel_product(index, op, inputs),
                None => self.matrix_product(index, inputs),
            },
            "LayerNormalization" => self.layer_norm(index, inputs, attributes),
            "LpNormalization" => self.lp_normalization(index, inputs, attributes),
            "ReduceL2" => self.reduce_l2(inputs, attributes),
            "LRN" => self.lrn(index, inputs, attributes),
            "Softmax" => self.softmax(index, inputs, attributes),
            "MaxPool" | "AveragePool" => self.pool(index, inputs, attributes),
            "GlobalMaxPool" | "GlobalAveragePool" => self.global_pool(index, inputs),
            "ReduceMean" => self.reduce_mean(index, inputs, attributes),
            "Concat" => self.concat(index, inputs, attributes),
            "Pad" => self.pad(index, inputs, attributes),
            "Slice" => self.slice(index, inputs, &constants, attributes),
            "Resize" | "Upsample" => self.resize(index, inputs, &constants, attributes),
            "Transpose" => self.transpose(inputs, attributes),
            "PRelu" => self.prelu(index, inputs),
            "Flatten" | "Reshape" | "Squeeze" | "Unsqueeze" => {
                self.reshape(index, inputs, attributes)
            }
            "Gather" => self.gather(inputs, attributes),
            "Cast" => self.cast(inputs, attributes),
            _ => Err(unsupported(format!(
                "the operation {} is not supported",
                op.escape_debug()
            ))),
        }
    }

    fn constant(&self, id: ValueId) -> Option<&Tensor> {
        match &self.values[id] {
            Value::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    fn shared_constant(&self, id: ValueId) -> Option<Rc<Tensor>> {
        match &self.values[id] {
            Value::Constant(tensor) => Some(Rc::clone(tensor)),
            _ => None,
        }
    }

    /// A node's input that must be a constant.
    fn expect_constant(
        &self,
        inputs: &[Option<ValueId>],
        index: usize,
        what: &str,
    ) -> Result<Rc<Tensor>, Problem> {
        let id = input(inputs, index).ok_or_else(|| invalid(format!("it has no {what}")))?;
        self.shared_constant(id).ok_or_else(|| {
            unsupported(format!(
                "its {what} is computed; only constants are supported"
            ))
        })
    }

    /// A node's input that must be a constant list of integers.
    fn expect_ints(
        &self,
        inputs: &[Option<ValueId>],
        index: usize,
        what: &str,
    ) -> Result<Vec<i64>, Problem> {
        let constant = self.expect_constant(inputs, index, what)?;
        let list = constant.as_ints().map(<[i64]>::to_vec);
        list.ok_or_else(|| invalid(format!("its {what} is not a list of integers")))
    }

    /// The sizes of a value as ONNX has them.
    fn dims(&self, id: ValueId) -> Vec<usize> {
        match &self.values[id] {
            Value::Failed => Vec::new(),
            Value::Constant(tensor) => tensor.dims.clone(),
            Value::Op { dims, .. }
            | Value::Norm { dims, .. }
            | Value::Moment { dims, .. }
            | Value::Padded { dims, .. }
            | Value::Grouped { dims, .. } => dims.clone(),
            Value::ChannelsLast { op } => {
                let y = self.shapes[*op];
                [y.batch, y.h, y.w, y.c].map(|size| size as usize).to_vec()
            }
            Value::FlatChannelsLast { image, .. } => {
                vec![image.batch as usize, image.image_len() as usize]
            }
            Value::Function(function) => function.dims.clone(),
        }
    }

    /// The op that computes a node's input, which has the axes of the op's output: [B, C, H, W], [B, C, W] of a single row, [B, C]
    /// without an image, or the features of one image.
    fn op_of(&mut self, inputs: &[Option<ValueId>], index: usize) -> Result<OpRef, Problem> {
        let op = self.view_of(inputs, index)?;
        let id = input(inputs, index).unwrap_or_default();
        match self.is_plain(id, op) {
            true => Ok(op),
            false => Err(unsupported(format!(
                "its input was reshaped to {:?}, which is not supported here",
                self.dims(id)
            ))),
        }
    }

    /// Whether a value has the axes of the output of its op.
    fn is_plain(&self, id: ValueId, op: OpRef) -> bool {
        let y = self.shapes[op];
        let own = [y.batch, y.c, y.h, y.w].map(|size| size as usize);
        let dims = self.dims(id);
        // Of an image with as many rows and columns as channels the sizes are the same.
        if self.is_channels_last(id) {
            return false;
        }
        dims == own
            // The features of one image.
            || own == [1, own[1], 1, 1] && dims == [own[1]]
            || y.h == 1 && dims == [own[0], own[1], own[3]]
            || y.pixels() == 1 && dims == own[..2]
    }

    /// The op that computes a node's input, of whatever axes.
    fn view_of(&mut self, inputs: &[Option<ValueId>], index: usize) -> Result<OpRef, Problem> {
        let id = input(inputs, index).ok_or_else(|| invalid("an input is missing"))?;
        self.materialize(id).ok_or(Problem::Reported)
    }

    /// Adds an op for a node and returns its value, with the sizes of its output.
    fn add(
        &mut self,
        index: usize,
        inputs: Vec<OpRef>,
        options: OpOptions,
        tensors: impl FnOnce(&str) -> Vec<NamedTensor>,
    ) -> Result<Value, Problem> {
        let op = self.add_op(index, inputs, options, tensors)?;
        Ok(self.output(op, false))
    }

    /// The output of an op, with the channels as the second axis or the last one.
    fn output(&self, op: OpRef, is_channels_last: bool) -> Value {
        if is_channels_last {
            return Value::ChannelsLast { op };
        }
        let y = self.shapes[op];
        let dims = [y.batch, y.c, y.h, y.w].map(|size| size as usize);
        Value::Op {
            op,
            dims: dims.to_vec(),
        }
    }

    /// Adds an op for a node.
    fn add_op(
        &mut self,
        index: usize,
        inputs: Vec<OpRef>,
        options: OpOptions,
        tensors: impl FnOnce(&str) -> Vec<NamedTensor>,
    ) -> Result<OpRef, Problem> {
        let name = self.names.op(&self.graph.nodes[index]);
        self.add_named(index, name, inputs, options, tensors)
    }

    /// As [`add_op`](Self::add_op), with the name of the op.
    fn add_named(
        &mut self,
        index: usize,
        name: String,
        inputs: Vec<OpRef>,
        options: OpOptions,
        tensors: impl FnOnce(&str) -> Vec<NamedTensor>,
    ) -> Result<OpRef, Problem> {
        let input_names: Vec<String> = inputs
            .iter()
            .map(|&op| self.name_of(op).to_owned())
            .collect();
        self.builder.op(&name, Some(&input_names), options.clone());
        let shape = match self.builder.added() {
            Ok(shape) => shape,
            Err(errors) => {
                let node = &self.graph.nodes[index];
                for error in errors {
                    let error = ImportError::of_node(node, error.message, error.help);
                    self.errors.push(error);
                }
                return Err(Problem::Reported);
            }
        };
        let tensors = tensors(&name);
        let elements = tensors.iter().map(|(_, _, values)| values.len());
        self.weights = self.weights.saturating_add(elements.sum());
        if self.weights > MAX_WEIGHTS {
            return Err(unsupported("the network has more than 4 GiB of weights"));
        }
        self.ops.push(NewOp {
            tensors,
            name,
            inputs,
            options,
        });
        self.shapes.push(shape);
        self.views.push(Vec::new());
        Ok(self.shapes.len() - 1)
    }

    fn name_of(&self, op: OpRef) -> &str {
        match self.index_of(op) {
            None => &self.inputs[op].0,
            Some(index) => &self.ops[index].name,
        }
    }

    /// The index of an op in [`Converter::ops`]; `None` for an input.
    fn index_of(&self, op: OpRef) -> Option<usize> {
        op.checked_sub(self.inputs.len())
    }

    /// Whether only these nodes read the output of an op, under whatever name.
    fn is_only_read_by(&self, op: OpRef, nodes: &[usize]) -> bool {
        let views = &self.views[op];
        let makes_view = |node: usize| {
            let output = self.graph.nodes[node].output.first();
            let id = output.and_then(|name| self.ids.get(&name[..]));
            id.is_some_and(|id| views.contains(id))
        };
        views.iter().all(|&view| {
            !self.outputs.contains(&view)
                && self.readers[view]
                    .iter()
                    .all(|&reader| nodes.contains(&reader) || makes_view(reader))
        })
    }

    /// The network of those ops that the outputs depend on, and their tensors.
    fn finish(
        self,
        outputs: &BTreeMap<OpRef, GraphOutput<'_>>,
        name: &str,
        overrides: &Overrides,
    ) -> Result<Imported, Vec<ImportError>> {
        let first = self.inputs.len();
        let mut needed = vec![false; self.shapes.len()];
        for &output in outputs.keys() {
            needed[output] = true;
        }
        for op in (first..self.shapes.len()).rev() {
            if needed[op] {
                for &input in &self.ops[op - first].inputs {
                    needed[input] = true;
                }
            }
        }
        let mut builder = NetworkBuilder::with_inputs(name, &self.inputs);
        for (index, input) in self.graph.inputs.iter().enumerate() {
            if input.is_channels_last {
                let layout = Layout::Nhwc;
                let plain = InputEncoding::PLAIN;
                builder.encode_input(index, InputEncoding { layout, ..plain });
            }
        }
        let mut tensors = BTreeMap::new();
        // The first op has none before it, unless there is one input.
        let mut previous = (first == 1).then_some(0);
        for op in (first..self.shapes.len()).filter(|&op| needed[op]) {
            let NewOp {
                name,
                inputs,
                options,
                ..
            } = &self.ops[op - first];
            let inputs_by_name: Vec<String> = inputs
                .iter()
                .map(|&input| self.name_of(input).to_owned())
                .collect();
            let reads_previous = inputs.len() == 1 && previous == Some(inputs[0]);
            let options = match options.clone() {
                OpOptions::Conv(conv) => OpOptions::Conv(overrides.convolution(conv)),
                OpOptions::Linear(linear) => OpOptions::Linear(overrides.linear(linear)),
                other => other,
            };
            builder.op(
                name,
                (!reads_previous).then_some(&inputs_by_name[..]),
                options,
            );
            if let Some(output) = outputs.get(&op) {
                // A single output has the name of its op.
                let is_named = outputs.len() > 1 && is_name(output.name);
                builder.add_output(OutputOptions {
                    name: is_named.then(|| output.name.to_owned()),
                    format: Format::fp32(output.layout),
                });
            }
            previous = Some(op);
        }
        let mut network = builder.finish().map_err(ImportError::of_network)?;
        network.gpus = overrides.gpus(None);
        network.tiles = overrides.tiles(None);
        network.activations = overrides.activations(None);
        network.batches = overrides.batches(network.batch());
        for (op, _) in self
            .ops
            .into_iter()
            .zip(first..)
            .filter(|(_, op): &(NewOp, usize)| needed[*op])
        {
            for (name, dims, values) in op.tensors {
                tensors.insert(name, Weights { dims, values });
            }
        }
        Ok(Imported { network, tensors })
    }
}

/// The names of the inputs in the network, with their shapes: a single one has the name that a config gives it.
fn input_names(graph: &Graph, names: &mut Names) -> Vec<(String, TensorShape)> {
    let is_single = graph.inputs.len() == 1;
    let inputs = graph.inputs.iter().map(|input| {
        let name = if is_single { INPUT_NAME } else { &input.name };
        (names.like(name), input.shape)
    });
    inputs.collect()
}

/// A node's first input.
fn first(inputs: &[Option<ValueId>]) -> Result<ValueId, Problem> {
    input(inputs, 0).ok_or_else(|| invalid("it has no input"))
}
