//! Convolutions, with and without ranks.

use super::{Module, activated, boolean, is_symmetric, pair, tensor};
use crate::ir::{Conv, Op, OpId};
use crate::plan::factorized_layer;
use tdc_runtime::{Decomposition, FactorRole, Padding};

/// One of the convolutions that a layer consists of.
struct Part {
    /// The suffix of its attribute, and the tensor of a checkpoint.
    suffix: &'static str,
    source: String,
    /// Input and output channels.
    channels: [u32; 2],
    kernel: [u32; 2],
    stride: [u32; 2],
    padding: [u32; 2],
    dilation: [u32; 2],
    groups: u32,
}

impl Module<'_> {
    pub(super) fn convolution(&mut self, id: OpId, op: &Op, conv: &Conv) -> String {
        let mut parts = self.parts(id, op, conv);
        let Padding {
            top,
            left,
            bottom,
            right,
        } = conv.shape.padding;
        let is_symmetric = is_symmetric(conv.shape.padding);
        let mut value = tensor(op.inputs[0]);
        let mut padding = match is_symmetric {
            true => None,
            false => Some(format!("({left}, {right}, {top}, {bottom})")),
        };
        let count = parts.len();
        for (index, part) in parts.iter_mut().enumerate() {
            // Only one factor, or the two of CP with one axis each, have padding; that of the other axis commutes with the first of them.
            if part.padding != [0, 0] && !is_symmetric {
                part.padding = [0, 0];
                if let Some(padding) = padding.take() {
                    value = format!("F.pad({value}, {padding})");
                }
            }
            let bias = conv.options.bias && index + 1 == count;
            let child = self.child(id, part.suffix, &constructor(part, bias));
            self.source(id, part.suffix, "weight", &part.source);
            if bias {
                self.source(id, part.suffix, "bias", &format!("{}.bias", op.name));
            }
            value = format!("{child}({value})");
        }
        let value = self.normed(id, conv.shape.n, conv.options.bn.as_ref(), value);
        activated(conv.options.activation, &value)
    }

    /// The convolution, or its factors in order.
    fn parts(&self, id: OpId, op: &Op, conv: &Conv) -> Vec<Part> {
        let shape = &conv.shape;
        let pad = shape.padding;
        // Of asymmetric padding only whether there is any counts.
        let padding = [pad.top.max(pad.bottom), pad.left.max(pad.right)];
        let whole = Part {
            suffix: "",
            source: format!("{}.weight", op.name),
            channels: [shape.c, shape.n],
            kernel: [shape.r, shape.s],
            stride: shape.stride,
            padding,
            dilation: shape.dilation,
            groups: shape.groups,
        };
        let Some(layer) = factorized_layer(self.network, id) else {
            return vec![whole];
        };
        let roles = layer.decomposition.factors();
        // The 1x1 convolution of a low-rank layer has its stride in the first factor.
        let is_low_rank = matches!(layer.decomposition, Decomposition::LowRank(_));
        let part = |(&role, source): (&FactorRole, &String)| {
            let [n, c, r, s] = layer.factor_shape(role);
            let (axes, groups) = match role {
                FactorRole::First => ([is_low_rank; 2], 1),
                FactorRole::Core => ([true; 2], 1),
                FactorRole::Vertical => ([true, false], n),
                FactorRole::Horizontal => ([false, true], n),
                FactorRole::Last => ([false; 2], 1),
            };
            let of_axes = |values: [u32; 2], default: u32| {
                [0, 1].map(|axis| if axes[axis] { values[axis] } else { default })
            };
            Part {
                suffix: role.as_str(),
                source: source.clone(),
                channels: [c * groups, n],
                kernel: [r, s],
                stride: of_axes(shape.stride, 1),
                padding: of_axes(padding, 0),
                dilation: of_axes(shape.dilation, 1),
                groups,
            }
        };
        roles.iter().zip(&layer.factors).map(part).collect()
    }
}

fn constructor(part: &Part, bias: bool) -> String {
    let [c, n] = part.channels;
    let mut text = format!("nn.Conv2d({c}, {n}, {}", pair(part.kernel));
    for (name, value, default) in [
        ("stride", part.stride, 1),
        ("padding", part.padding, 0),
        ("dilation", part.dilation, 1),
    ] {
        if value != [default; 2] {
            text += &format!(", {name}={}", pair(value));
        }
    }
    if part.groups != 1 {
        text += &format!(", groups={}", part.groups);
    }
    text + &format!(", bias={})", boolean(bias))
}
