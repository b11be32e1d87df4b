//! The checked graph of a model: nodes in topological order, constants, inputs and outputs.

use super::channels_last_inputs::channels_last_inputs;
use super::error::{EXPORT_AGAIN, ImportError};
use super::message::{self, Model, Node, ValueInfo, data_type};
use super::names;
use super::tensor::Tensor;
use crate::config::Overrides;
use crate::ir::{Batches, TensorShape};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

/// A graph with inputs and outputs.
#[derive(Debug)]
pub struct Graph {
    /// Nodes, each after those that it reads.
    pub nodes: Vec<Node>,
    /// Initialisers.
    pub constants: BTreeMap<String, Rc<Tensor>>,
    /// The inputs, at least one.
    pub inputs: Vec<Input>,
    /// Names of the outputs, at least one.
    pub outputs: Vec<String>,
    /// Version of the default operator set.
    pub opset: i64,
}

/// An input of the graph.
#[derive(Debug)]
pub struct Input {
    /// Name.
    pub name: String,
    /// Its shape in the network: of two axes batch and features, of three batch, channels and columns, of one the features of an image.
    pub shape: TensorShape,
    /// The sizes that ONNX gives it, if the channels are not its last axis.
    pub dims: Vec<usize>,
    /// Whether the channels are its last axis, behind rows and columns.
    pub is_channels_last: bool,
}

impl Input {
    /// An input of the given shape, of which ONNX has so many axes; `None` if the shape does not fit.
    fn new(name: &str, shape: TensorShape, axes: usize, is_channels_last: bool) -> Option<Self> {
        let TensorShape { batch, c, h, w } = shape;
        let (sizes, others) = match axes {
            1 => (vec![c], [batch, h, w]),
            2 => (vec![batch, c], [1, h, w]),
            3 => (vec![batch, c, w], [1, 1, h]),
            _ => (vec![batch, c, h, w], [1; 3]),
        };
        (others == [1; 3]).then(|| Self {
            name: name.to_owned(),
            shape,
            dims: sizes.iter().map(|&size| size as usize).collect(),
            is_channels_last: is_channels_last && axes == 4,
        })
    }
}

/// Oldest version of the default operator set that is read: the one of the first released exporters.
const MIN_OPSET: i64 = 6;

/// Most nodes of a graph; networks have a few thousand.
const MAX_NODES: usize = 100_000;

/// Most bytes of all initialisers; the largest convolutional networks have a tenth of it.
const MAX_DECLARED_BYTES: usize = 4 << 30;

impl Graph {
    /// Checks a model. `folder` has its external data.
    pub fn new(
        model: Model,
        folder: Option<&Path>,
        overrides: &Overrides,
    ) -> Result<Self, Vec<ImportError>> {
        let mut errors = Vec::new();
        let opset = check_versions(&model, &mut errors);
        let Some(graph) = model.graph else {
            errors.push(ImportError::of_file("the model has no graph", EXPORT_AGAIN));
            return Err(errors);
        };
        if graph.node.len() > MAX_NODES {
            let message = format!(
                "the graph has {} nodes, at most {MAX_NODES} are read",
                graph.node.len()
            );
            errors.push(ImportError::of_file(message, "export a smaller network"));
            return Err(errors);
        }
        if !graph.sparse_initializer.is_empty() {
            errors.push(ImportError::of_file(
                "sparse initialisers are not supported",
                "make the weights dense",
            ));
        }
        check_nodes(&graph.node, &mut errors);
        let constants = constants(&graph.initializer, folder, &mut errors);
        let outputs = outputs(&graph.output, &mut errors);
        let own = own_inputs(&graph, &constants, &outputs);
        let inputs = inputs(&own, &graph.node, overrides, &mut errors);
        let nodes = match &inputs {
            Some(inputs) => sorted(graph.node, inputs, &constants, &mut errors),
            None => Vec::new(),
        };
        match inputs {
            Some(inputs) if errors.is_empty() => Ok(Self {
                nodes,
                constants,
                inputs,
                outputs,
                opset,
            }),
            _ => Err(errors),
        }
    }
}

fn is_default(domain: Option<&str>) -> bool {
    matches!(domain, None | Some("" | "ai.onnx"))
}

/// Checks the versions of a model and returns that of its operator set.
fn check_versions(model: &Model, errors: &mut Vec<ImportError>) -> i64 {
    if let Some(version) = model.ir_version.filter(|&version| version < 3) {
        errors.push(ImportError::of_file(
            format!("IR version {version} is not supported, only 3 and later"),
            EXPORT_AGAIN,
        ));
    }
    if let Some(function) = model.functions.first() {
        let name = function.name.as_deref().unwrap_or_default().escape_debug();
        errors.push(ImportError::of_file(
            format!("the model has functions of its own, such as `{name}`"),
            "inline them, for example by onnx.inliner",
        ));
    }
    let mut imports = model.opset_import.iter();
    let default = imports.find(|import| is_default(import.domain.as_deref()));
    let version = default.and_then(|import| import.version).unwrap_or(1);
    if version < MIN_OPSET {
        errors.push(ImportError::of_file(
            format!("operator set {version} is not supported, only {MIN_OPSET} and later"),
            "convert it by onnx.version_converter",
        ));
    }
    version
}

/// Nodes of other operator sets, and subgraphs.
fn check_nodes(nodes: &[Node], errors: &mut Vec<ImportError>) {
    let quantised = [
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "ConvInteger",
    ];
    for node in nodes {
        let op = names::op_type(node);
        if !is_default(node.domain.as_deref()) {
            let domain = node.domain.as_deref().unwrap_or_default().escape_debug();
            errors.push(ImportError::of_node(
                node,
                format!("it is an operation of the custom domain `{domain}`"),
                "export the network with standard operations",
            ));
        } else if quantised.contains(&op) {
            errors.push(ImportError::of_node(
                node,
                "quantised networks are not supported",
                "export the floating-point network; tdc rounds by `--precision`",
            ));
        } else if matches!(op, "If" | "Loop" | "Scan") {
            errors.push(ImportError::of_node(
                node,
                "control flow is not supported",
                "export with fixed shapes, so that it is folded",
            ));
        }
    }
}

fn constants(
    initializers: &[message::Tensor],
    folder: Option<&Path>,
    errors: &mut Vec<ImportError>,
) -> BTreeMap<String, Rc<Tensor>> {
    let mut constants = BTreeMap::new();
    // Many tensors may have the same external data.
    let declared = initializers.iter().map(Tensor::declared_bytes);
    let declared = declared.flatten().fold(0, usize::saturating_add);
    if declared > MAX_DECLARED_BYTES {
        let message = format!(
            "its initialisers have {} MiB, at most 4 GiB are read",
            declared >> 20
        );
        errors.push(ImportError::of_file(message, "export a smaller network"));
        return constants;
    }
    for proto in initializers {
        let name = proto.name.clone().unwrap_or_default();
        let shown = name.escape_debug();
        if name.is_empty() {
            // Left-out inputs have this name.
            let message = "an initialiser has no name";
            errors.push(ImportError::of_file(message, EXPORT_AGAIN));
            continue;
        }
        match Tensor::read(proto, folder) {
            Ok(tensor) => {
                if constants.insert(name.clone(), Rc::new(tensor)).is_some() {
                    let message = format!("there are two initialisers `{shown}`");
                    errors.push(ImportError::of_file(message, EXPORT_AGAIN));
                }
            }
            Err(message) => errors.push(ImportError::of_file(
                format!("initialiser `{shown}`: {message}"),
                "export it again, with its data in the same folder",
            )),
        }
    }
    constants
}

/// Most inputs of a network; networks have a few.
const MAX_INPUTS: usize = 64;

/// The inputs that are not initialisers, which IR version 3 lists among them, without those that nothing reads: Keras' converter leaves
/// constants of the network there.
fn own_inputs<'g>(
    graph: &'g message::Graph,
    constants: &BTreeMap<String, Rc<Tensor>>,
    outputs: &[String],
) -> Vec<&'g ValueInfo> {
    let reads = graph.node.iter().flat_map(|node| &node.input);
    let read: HashSet<&String> = reads.chain(outputs).collect();
    let is_read = |input: &&ValueInfo| input.name.as_ref().is_some_and(|name| read.contains(name));
    let all = graph.input.iter();
    let all: Vec<_> = all
        .filter(|input| !constants.contains_key(name_of(input)))
        .collect();
    let own: Vec<_> = all.iter().copied().filter(is_read).collect();
    // A graph that reads no input has other errors.
    if own.is_empty() { all } else { own }
}

/// Names and shapes of the inputs; `None` after an error.
fn inputs(
    own: &[&ValueInfo],
    nodes: &[Node],
    overrides: &Overrides,
    errors: &mut Vec<ImportError>,
) -> Option<Vec<Input>> {
    let names: Vec<&str> = own.iter().map(|input| name_of(input)).collect();
    let problem = match own.len() {
        0 => Some("the network has no input".to_owned()),
        count if count > MAX_INPUTS => Some(format!(
            "the network has {count} inputs, at most {MAX_INPUTS} are supported"
        )),
        _ => overrides.check_inputs(&names).err(),
    };
    if let Some(message) = problem {
        let help = "export it with images as inputs, and give their shapes by --input";
        errors.push(ImportError::of_file(message, help));
        return None;
    }
    let before = errors.len();
    let mut seen = HashSet::new();
    for name in names.iter().filter(|name| !seen.insert(**name)) {
        let message = format!("two inputs are named `{}`", name.escape_debug());
        errors.push(ImportError::of_file(message, EXPORT_AGAIN));
    }
    let channels_last = channels_last_inputs(nodes, &names);
    let inputs: Vec<_> = own
        .iter()
        .filter_map(|info| {
            let is_channels_last = channels_last.contains(name_of(info));
            input(info, is_channels_last, overrides, errors)
        })
        .collect();
    (errors.len() == before).then_some(inputs)
}

/// An input; `None` after an error.
fn input(
    input: &ValueInfo,
    is_channels_last: bool,
    overrides: &Overrides,
    errors: &mut Vec<ImportError>,
) -> Option<Input> {
    let name = name_of(input).to_owned();
    if let Some(element) = unsupported_element(input) {
        let message = format!(
            "the input `{}` has elements of type {element}, only floating-point numbers are supported",
            name.escape_debug()
        );
        errors.push(ImportError::of_file(
            message,
            "export it with an fp32 input",
        ));
        return None;
    }
    let given = match overrides.given_input(&name) {
        Some(_) => Ok(None),
        None => {
            let batch = overrides.batches.as_ref().map(Batches::largest);
            input_shape(input, is_channels_last, batch).map(Some)
        }
    };
    let axes = axes(input).map_or(4, <[_]>::len);
    let found = given.and_then(|given| {
        let shape = overrides.input(&name, given).ok_or("has no shape")?;
        let misfit = || format!("has {axes} axes, which {shape} does not fit");
        Input::new(&name, shape, axes, is_channels_last).ok_or_else(misfit)
    });
    match found {
        Ok(input) => Some(input),
        Err(message) => {
            errors.push(ImportError::of_file(
                format!("the input `{}` {message}", name.escape_debug()),
                "give its shape by --input, such as --input 1x3x224x224",
            ));
            None
        }
    }
}

/// The element type of an input that has no floating-point numbers.
fn unsupported_element(input: &ValueInfo) -> Option<i32> {
    let tensor = input.kind.as_ref().and_then(|kind| kind.tensor.as_ref())?;
    let floats = [
        data_type::FLOAT,
        data_type::FLOAT16,
        data_type::BFLOAT16,
        data_type::DOUBLE,
    ];
    // 0 is undefined.
    let element = tensor.element.filter(|&element| element != 0)?;
    (!floats.contains(&element)).then_some(element)
}

/// The shape in the file; a symbolic batch is `batch`, else 1.
fn input_shape(
    input: &ValueInfo,
    is_channels_last: bool,
    batch: Option<u32>,
) -> Result<TensorShape, String> {
    let dims = axes(input).ok_or("has no shape")?;
    let size = |dim: &message::Dimension| match (dim.value, &dim.symbol) {
        (Some(value), _) => {
            u32::try_from(value).map_err(|_| format!("has an axis of size {value}"))
        }
        (None, Some(symbol)) => Err(format!(
            "has an axis of the symbolic size `{}`",
            symbol.escape_debug()
        )),
        (None, None) => Err("has an axis of unknown size".to_owned()),
    };
    let batch_of = |first: &message::Dimension| match (batch, first.value) {
        (Some(batch), _) => Ok(batch),
        (None, Some(_)) => size(first),
        // Symbolic or unknown.
        (None, None) => Ok(1),
    };
    let shape = match dims {
        [c] => [1, size(c)?, 1, 1],
        [first, c] => [batch_of(first)?, size(c)?, 1, 1],
        [first, c, w] => [batch_of(first)?, size(c)?, 1, size(w)?],
        [first, h, w, c] if is_channels_last => [batch_of(first)?, size(c)?, size(h)?, size(w)?],
        [first, c, h, w] => [batch_of(first)?, size(c)?, size(h)?, size(w)?],
        _ => {
            return Err(format!(
                "has {} axes; supported are one to four: batch, channels, height and width",
                dims.len()
            ));
        }
    };
    let [batch, c, h, w] = shape;
    Ok(TensorShape::new(batch, c, h, w))
}

/// The axes of an input; `None` if the file does not have them.
fn axes(input: &ValueInfo) -> Option<&[message::Dimension]> {
    let kind = input.kind.as_ref()?;
    Some(&kind.tensor.as_ref()?.shape.as_ref()?.dim)
}

/// The names of the outputs: at least one, none twice.
fn outputs(outputs: &[ValueInfo], errors: &mut Vec<ImportError>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for output in outputs {
        let name = name_of(output);
        if names.iter().any(|other| other == name) {
            let message = format!("two outputs are named `{}`", name.escape_debug());
            errors.push(ImportError::of_file(message, EXPORT_AGAIN));
        }
        names.push(name.to_owned());
    }
    if names.is_empty() {
        errors.push(ImportError::of_file(
            "the network has no output",
            EXPORT_AGAIN,
        ));
    }
    names
}

fn name_of(value: &ValueInfo) -> &str {
    value.name.as_deref().unwrap_or_default()
}

/// The nodes in topological order, as near to the file's as possible. Reports values without or with two producers, and cycles.
fn sorted(
    nodes: Vec<Node>,
    inputs: &[Input],
    constants: &BTreeMap<String, Rc<Tensor>>,
    errors: &mut Vec<ImportError>,
) -> Vec<Node> {
    let is_input = |name: &str| inputs.iter().any(|input| input.name == name);
    let mut producers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|output| !output.is_empty()) {
            let taken = constants.contains_key(output) || is_input(output);
            if producers.insert(output, index).is_some() || taken {
                let message = format!("`{}` has two producers", output.escape_debug());
                errors.push(ImportError::of_node(node, message, EXPORT_AGAIN));
            }
        }
    }
    let before = errors.len();
    for node in &nodes {
        for name in node.input.iter().filter(|name| !name.is_empty()) {
            if !producers.contains_key(&name[..])
                && !constants.contains_key(name)
                && !is_input(name)
            {
                let message = format!("it reads `{}`, which nothing produces", name.escape_debug());
                errors.push(ImportError::of_node(node, message, EXPORT_AGAIN));
            }
        }
    }
    if errors.len() > before {
        return Vec::new();
    }
    let mut order = Vec::with_capacity(nodes.len());
    let mut placed = HashSet::new();
    // Depth first without recursion: a node is placed when all that it reads are.
    let mut open = HashSet::new();
    for start in 0..nodes.len() {
        let mut stack = vec![start];
        while let Some(&index) = stack.last() {
            if placed.contains(&index) {
                stack.pop();
                continue;
            }
            open.insert(index);
            let reads = nodes[index].input.iter();
            let missing = reads.filter_map(|name| producers.get(&name[..]));
            let missing: Vec<usize> = missing
                .copied()
                .filter(|read| !placed.contains(read))
                .collect();
            if missing.is_empty() {
                stack.pop();
                open.remove(&index);
                placed.insert(index);
                order.push(index);
            } else if missing.iter().any(|read| open.contains(read)) {
                errors.push(ImportError::of_node(
                    &nodes[index],
                    "it is part of a cycle",
                    EXPORT_AGAIN,
                ));
                return Vec::new();
            } else {
                stack.extend(missing.into_iter().rev());
            }
        }
    }
    let mut nodes: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    order
        .into_iter()
        .filter_map(|index| nodes[index].take())
        .collect()
}
