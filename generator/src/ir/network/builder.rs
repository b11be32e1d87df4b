//! Builds a network op by op, with all sizes inferred, and checks it.

mod decomposition;
mod shapes;
mod windows;

use super::{INPUT_NAME, Network, NetworkOutput, Op, OpId, OpKind, factor_names};
use crate::gpu::Targets;
use crate::ir::identifier::reserved_reason;
use crate::ir::{
    Batches, DType, Format, InputEncoding, OpOptions, SpecError, SpecLocation, TensorShape,
    TilePolicy,
};
use crate::suggest::nearest;
use shapes::check_shape;
use std::collections::{BTreeMap, HashMap};

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
