//! The same network as a PyTorch module, as Python text: what a config or an ONNX file is compared with.
//!
//! The module has the ops of the config one by one, each as PyTorch's own function where that computes the same. Tensors have four axes
//! throughout: features are B x C x 1 x 1. A layer with ranks is the sequence of its factors.

mod convolutions;
mod windows;

use crate::ir::{
    Activation, BatchNorm, BinaryOp, ChannelNorm, ConvTranspose, Linear, Lrn, Network, Op, OpId,
    OpKind, PadMode, PadProblem, ScaleShift,
};
use crate::plan::factorized_layer;
use std::collections::BTreeSet;
use tdc_runtime::{FactorRole, Padding};

/// The text of a Python module with the class `Network`, the constant `INPUTS` (C, H, W of each input) and the constant `PARAMETERS`, which
/// has the tensor of a checkpoint for each parameter of the class. It depends on the network but not on its batch.
pub fn torch_module(network: &Network) -> String {
    let mut module = Module::new(network);
    for (index, op) in network.ops.iter().enumerate() {
        module.add(OpId(index), op);
    }
    module.text()
}

/// A function that PyTorch does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Helper {
    Average,
    Bilinear,
    LocalResponseNorm,
}

impl Helper {
    fn text(self) -> &'static str {
        match self {
            Self::Average => AVERAGE,
            Self::Bilinear => BILINEAR,
            Self::LocalResponseNorm => LOCAL_RESPONSE_NORM,
        }
    }
}

const AVERAGE: &str = r#"
def average(x, kernel, stride, dilation, pads, counted):
    """Means over windows. `pads` (left, right, top, bottom) end with the last windows; those of `counted` count as elements."""
    taps = x.new_ones(1, 1, *kernel)
    ones = F.pad(x.new_ones(1, 1, *x.shape[2:]), counted, value=1.0)
    ones = F.pad(ones, [pad - most for pad, most in zip(pads, counted)])
    counts = F.conv2d(ones, taps, stride=stride, dilation=dilation)
    channels = x.shape[1]
    taps = taps.expand(channels, 1, *kernel)
    return F.conv2d(F.pad(x, pads), taps, stride=stride, dilation=dilation, groups=channels) / counts

"#;

const BILINEAR: &str = r#"
def bilinear(x, rows, columns):
    """Interpolates rows, then columns: (index, index, weight of the second)."""
    x = torch.lerp(x[:, :, rows[0]], x[:, :, rows[1]], rows[2][:, None])
    return torch.lerp(x[:, :, :, columns[0]], x[:, :, :, columns[1]], columns[2])

"#;

const LOCAL_RESPONSE_NORM: &str = r#"
def local_response_norm(x, size, alpha, beta, k):
    """As ONNX defines it: a window of even size has one channel more after its own than before it."""
    before = (size - 1) // 2
    squares = F.pad((x * x).unsqueeze(1), (0, 0, 0, 0, before, size - 1 - before))
    return x / (k + alpha * F.avg_pool3d(squares, (size, 1, 1), stride=1).squeeze(1)).pow(beta)

"#;

/// The text as it grows.
struct Module<'a> {
    network: &'a Network,
    /// For each op, the last op that reads it.
    last_reader: Vec<Option<OpId>>,
    /// Statements of the constructor and of `forward`.
    constructor: Vec<String>,
    forward: Vec<String>,
    /// Parameters and the tensors of a checkpoint.
    parameters: Vec<(String, String)>,
    helpers: BTreeSet<Helper>,
}

impl<'a> Module<'a> {
    fn new(network: &'a Network) -> Self {
        let consumers = network.consumers();
        Self {
            network,
            last_reader: consumers.iter().map(|of| of.last().copied()).collect(),
            constructor: Vec::new(),
            forward: Vec::new(),
            parameters: Vec::new(),
            helpers: BTreeSet::new(),
        }
    }

    /// Adds an op: its parameters, its statement, and the end of the tensors that nothing reads any more.
    fn add(&mut self, id: OpId, op: &Op) {
        if matches!(op.kind, OpKind::Input(_)) {
            return;
        }
        let value = self.expression(id, op);
        let name = string(&op.name);
        self.forward
            .push(format!("{} = {value}  # {name}", tensor(id)));
        let mut dead: Vec<OpId> = op.inputs.clone();
        dead.sort();
        dead.dedup();
        dead.retain(|&input| {
            self.last_reader[input.0] == Some(id) && !self.network.is_output(input)
        });
        if !dead.is_empty() {
            let dead: Vec<_> = dead.into_iter().map(tensor).collect();
            self.forward.push(format!("del {}", dead.join(", ")));
        }
    }

    /// The value of an op.
    fn expression(&mut self, id: OpId, op: &Op) -> String {
        let operand = |index: usize| tensor(op.inputs[index]);
        let x = || operand(0);
        match &op.kind {
            OpKind::Input(_) => tensor(id),
            OpKind::Conv(conv) => self.convolution(id, op, conv),
            OpKind::ConvTranspose(layer) => self.transposed_convolution(id, op, layer),
            OpKind::Linear(layer) => self.linear(id, op, layer),
            OpKind::Pool(pool) => self.pooling(&x(), pool),
            OpKind::Resize(resize) => self.resizing(id, &x(), resize),
            OpKind::Pad(problem) => padded_image(&x(), problem),
            OpKind::Lrn(lrn) => self.lrn(&x(), *lrn),
            OpKind::ChannelNorm(norm) => self.channel_norm(id, op, *norm),
            OpKind::GlobalPool { max: true } => format!("{}.amax((2, 3), keepdim=True)", x()),
            OpKind::GlobalPool { max: false } => format!("F.adaptive_avg_pool2d({}, 1)", x()),
            OpKind::Binary(binary, activation) => {
                let operator = match binary {
                    BinaryOp::Add => "+",
                    BinaryOp::Sub => "-",
                    BinaryOp::Mul | BinaryOp::Gate => "*",
                };
                let value = format!("{} {operator} {}", operand(0), operand(1));
                activated(*activation, &value)
            }
            OpKind::Activation(activation) => activated(*activation, &x()),
            OpKind::ScaleShift(options) => self.scale_shift(id, op, options),
            OpKind::PRelu => {
                let slopes = self.parameter(id, "weight", &format!("{}.weight", op.name), op.y.c);
                format!("F.prelu({}, {slopes})", x())
            }
            OpKind::Concat => {
                let operands: Vec<_> = op.inputs.iter().map(|&input| tensor(input)).collect();
                format!("torch.cat(({},), 1)", operands.join(", "))
            }
            OpKind::Slice { start } => format!("{}[:, {start}:{}]", x(), start + op.y.c),
            OpKind::Shuffle { groups } => format!(
                "{}.unflatten(1, ({groups}, {})).transpose(1, 2).flatten(1, 2)",
                x(),
                op.y.c / groups
            ),
            OpKind::Flatten => format!("{}.flatten(1)[:, :, None, None]", x()),
        }
    }

    /// Declares a module of PyTorch, a child with this suffix; returns the expression for it.
    fn child(&mut self, id: OpId, suffix: &str, constructor: &str) -> String {
        let name = attribute(id, suffix);
        self.constructor
            .push(format!("self.{name} = {constructor}"));
        format!("self.{name}")
    }

    /// Names the tensor of a checkpoint that a parameter of a child is.
    fn source(&mut self, id: OpId, suffix: &str, parameter: &str, source: &str) {
        let name = format!("{}.{parameter}", attribute(id, suffix));
        self.parameters.push((name, source.to_owned()));
    }

    /// Declares a parameter with one number for each channel; returns the expression for it.
    fn parameter(&mut self, id: OpId, suffix: &str, source: &str, channels: u32) -> String {
        let expression = self.child(
            id,
            suffix,
            &format!("nn.Parameter(torch.ones({channels}), requires_grad=False)"),
        );
        self.parameters
            .push((attribute(id, suffix), source.to_owned()));
        expression
    }

    /// Declares a constant tensor; returns the expression for it.
    fn constant(&mut self, id: OpId, suffix: &str, values: &str) -> String {
        let name = attribute(id, suffix);
        self.constructor.push(format!(
            "self.register_buffer(\"{name}\", torch.tensor({values}), persistent=False)"
        ));
        format!("self.{name}")
    }

    /// The value after a BatchNorm, if there is one.
    fn normed(&mut self, id: OpId, channels: u32, bn: Option<&BatchNorm>, value: String) -> String {
        let Some(bn) = bn else {
            return value;
        };
        let constructor = format!("nn.BatchNorm2d({channels}, eps={:?})", bn.eps);
        let norm = self.child(id, "bn", &constructor);
        for part in ["weight", "bias", "running_mean", "running_var"] {
            self.source(id, "bn", part, &format!("{}.{part}", bn.name));
        }
        format!("{norm}({value})")
    }

    fn linear(&mut self, id: OpId, op: &Op, layer: &Linear) -> String {
        let options = &layer.options;
        let x = tensor(op.inputs[0]);
        let mut value = format!("{x}.flatten(1)");
        let parts = match factorized_layer(self.network, id) {
            None => vec![("", layer.c, options.n, format!("{}.weight", op.name))],
            Some(factors) => {
                let roles = factors.decomposition.factors().iter();
                let part = |(&role, source): (&FactorRole, &String)| {
                    let [n, c, ..] = factors.factor_shape(role);
                    (role.as_str(), c, n, source.clone())
                };
                roles.zip(&factors.factors).map(part).collect()
            }
        };
        let count = parts.len();
        for (index, (suffix, c, n, source)) in parts.into_iter().enumerate() {
            let bias = options.bias && index + 1 == count;
            let constructor = format!("nn.Linear({c}, {n}, bias={})", boolean(bias));
            let child = self.child(id, suffix, &constructor);
            self.source(id, suffix, "weight", &source);
            if bias {
                self.source(id, suffix, "bias", &format!("{}.bias", op.name));
            }
            value = format!("{child}({value})");
        }
        activated(options.activation, &format!("{value}[:, :, None, None]"))
    }

    fn transposed_convolution(&mut self, id: OpId, op: &Op, layer: &ConvTranspose) -> String {
        let (options, shape) = (&layer.options, &layer.problem.shape);
        let (pad, [rows, columns]) = (options.pad, options.output_padding);
        let allowed = |axis: usize| {
            options.output_padding[axis] < options.stride[axis].max(options.dilation[axis])
        };
        let is_native = is_symmetric(pad) && allowed(0) && allowed(1);
        let (padding, output_padding) = match is_native {
            true => ([pad.top, pad.left], options.output_padding),
            false => ([0, 0], [0, 0]),
        };
        let constructor = format!(
            "nn.ConvTranspose2d({}, {}, {}, stride={}, padding={}, output_padding={}, groups={}, bias={}, dilation={})",
            shape.c,
            shape.n,
            pair(options.kernel),
            pair(options.stride),
            pair(padding),
            pair(output_padding),
            options.groups,
            boolean(options.bias && is_native),
            pair(options.dilation)
        );
        let child = self.child(id, "", &constructor);
        self.source(id, "", "weight", &format!("{}.weight", op.name));
        let mut value = format!("{child}({})", tensor(op.inputs[0]));
        let bias = format!("{}.bias", op.name);
        if !is_native {
            // What is cut off is negative padding.
            let [left, right, top, bottom] = [
                -i64::from(pad.left),
                i64::from(columns) - i64::from(pad.right),
                -i64::from(pad.top),
                i64::from(rows) - i64::from(pad.bottom),
            ];
            value = format!("F.pad({value}, ({left}, {right}, {top}, {bottom}))");
        }
        match (options.bias, is_native) {
            (true, true) => self.source(id, "", "bias", &bias),
            (true, false) => {
                let bias = self.parameter(id, "bias", &bias, shape.n);
                value = format!("{value} + {bias}[:, None, None]");
            }
            (false, _) => {}
        }
        activated(options.activation, &value)
    }

    fn scale_shift(&mut self, id: OpId, op: &Op, options: &ScaleShift) -> String {
        let x = tensor(op.inputs[0]);
        let value = match &options.bn {
            Some(bn) => self.normed(id, op.y.c, Some(bn), x),
            None => {
                let [scale, shift] = ["scale", "shift"]
                    .map(|part| self.parameter(id, part, &format!("{}.{part}", op.name), op.y.c));
                format!("{x} * {scale}[:, None, None] + {shift}[:, None, None]")
            }
        };
        activated(options.activation, &value)
    }

    fn channel_norm(&mut self, id: OpId, op: &Op, norm: ChannelNorm) -> String {
        let x = tensor(op.inputs[0]);
        match norm {
            ChannelNorm::Softmax => format!("F.softmax({x}, 1)"),
            ChannelNorm::L2 { eps } => format!("F.normalize({x}, eps={})", number(eps.get())),
            ChannelNorm::LayerNorm { eps } => {
                let [weight, bias] = ["weight", "bias"]
                    .map(|part| self.parameter(id, part, &format!("{}.{part}", op.name), op.y.c));
                format!(
                    "F.layer_norm({x}.permute(0, 2, 3, 1), ({},), {weight}, {bias}, {}).permute(0, 3, 1, 2)",
                    op.y.c,
                    number(eps.get())
                )
            }
        }
    }

    fn lrn(&mut self, x: &str, lrn: Lrn) -> String {
        // PyTorch's windows of even size have one channel more before their own.
        let function = match lrn.size % 2 {
            1 => "F.local_response_norm",
            _ => {
                self.helpers.insert(Helper::LocalResponseNorm);
                "local_response_norm"
            }
        };
        let [alpha, beta, k] = [lrn.alpha, lrn.beta, lrn.k].map(|value| number(value.get()));
        format!(
            "{function}({x}, {}, alpha={alpha}, beta={beta}, k={k})",
            lrn.size
        )
    }

    /// The complete module.
    fn text(self) -> String {
        let network = self.network;
        let inputs = network.inputs().iter();
        let inputs = inputs.map(|input| format!("({}, {}, {})", input.y.c, input.y.h, input.y.w));
        let mut text = format!(
            "\"\"\"The network {} as a PyTorch module, made by tdc-gen to compare with.\"\"\"\n\nimport torch\nimport torch.nn.functional as F\n\
             from torch import nn\n\n# C, H, W of each input.\nINPUTS = [{}]\n\n# The tensor of a checkpoint for each parameter.\nPARAMETERS = {{\n",
            network.name,
            inputs.collect::<Vec<_>>().join(", ")
        );
        for (parameter, source) in &self.parameters {
            text += &format!("    \"{parameter}\": {},\n", string(source));
        }
        text += "}\n\n";
        for helper in &self.helpers {
            text += helper.text();
        }
        text +=
            "\nclass Network(nn.Module):\n    def __init__(self):\n        super().__init__()\n";
        for statement in &self.constructor {
            text += &format!("        {statement}\n");
        }
        let inputs = 0..network.inputs().len();
        let inputs: Vec<_> = inputs.map(|index| tensor(OpId(index))).collect();
        text += &format!("\n    def forward(self, {}):\n", inputs.join(", "));
        for statement in &self.forward {
            text += &format!("        {statement}\n");
        }
        let outputs = network.outputs.iter().map(|output| tensor(output.op));
        let outputs: Vec<_> = outputs.collect();
        text + &format!("        return ({},)\n", outputs.join(", "))
    }
}

/// The variable of an op's output.
fn tensor(id: OpId) -> String {
    format!("x{}", id.0)
}

/// The attribute of an op's module. Names of configs may be those of a module's own methods, so they are not used.
fn attribute(id: OpId, suffix: &str) -> String {
    match suffix {
        "" => format!("op{}", id.0),
        suffix => format!("op{}_{suffix}", id.0),
    }
}

/// A literal of Python.
fn string(text: &str) -> String {
    serde_json::json!(text).to_string()
}

fn boolean(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

/// The finite number exactly, in float64.
fn number(value: f32) -> String {
    format!("{:?}", f64::from(value))
}

/// A tuple of two numbers.
fn pair([a, b]: [u32; 2]) -> String {
    format!("({a}, {b})")
}

/// Whether PyTorch's functions support the padding: the same on opposite sides.
fn is_symmetric(pad: Padding) -> bool {
    pad.top == pad.bottom && pad.left == pad.right
}

/// The value after an activation function.
fn activated(activation: Activation, value: &str) -> String {
    match activation {
        Activation::None => value.to_owned(),
        Activation::Relu => format!("F.relu({value})"),
        Activation::Clip { min, max } => match [min.get(), max.get()] {
            [0.0, 6.0] => format!("F.relu6({value})"),
            limits => {
                let [min, max] = limits.map(|limit| match limit.is_finite() {
                    true => number(limit),
                    false => "None".to_owned(),
                });
                match min == max {
                    // Both are infinite.
                    true if min == "None" => value.to_owned(),
                    _ => format!("torch.clamp({value}, {min}, {max})"),
                }
            }
        },
        Activation::LeakyRelu { slope } => {
            format!("F.leaky_relu({value}, {})", number(slope.get()))
        }
        Activation::Sigmoid => format!("torch.sigmoid({value})"),
        Activation::HardSigmoid => format!("F.hardsigmoid({value})"),
        Activation::Silu => format!("F.silu({value})"),
        Activation::HardSwish => format!("F.hardswish({value})"),
        Activation::Tanh => format!("torch.tanh({value})"),
        Activation::Gelu => format!("F.gelu({value})"),
        Activation::GeluTanh => format!("F.gelu({value}, approximate=\"tanh\")"),
    }
}

fn padded_image(x: &str, problem: &PadProblem) -> String {
    let Padding {
        top,
        left,
        bottom,
        right,
    } = problem.padding;
    let mode = match problem.mode {
        PadMode::Constant(value) => format!("value={}", number(value.get())),
        PadMode::Reflect => "mode=\"reflect\"".to_owned(),
        PadMode::Edge => "mode=\"replicate\"".to_owned(),
    };
    format!("F.pad({x}, ({left}, {right}, {top}, {bottom}), {mode})")
}
