//! The forms that a layer may have, and a network with chosen forms.

use crate::ir::{Network, OpId, OpKind};
use std::fmt;
use tdc_runtime::ConvShape;

/// How the weight of a layer is stored and applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// As it is.
    Dense,
    /// Tucker factors with ranks [D1, D2]: 1x1, the filter, 1x1.
    Tucker([u32; 2]),
}

impl Form {
    /// Floating-point operations of a convolution in this form.
    pub fn flops(self, shape: &ConvShape) -> u64 {
        match self {
            Self::Dense => shape.flops(),
            Self::Tucker(ranks) => tucker_shapes(shape, ranks)
                .iter()
                .map(ConvShape::flops)
                .sum(),
        }
    }

    /// Numbers that the weights of a convolution have in this form.
    pub fn weights(self, shape: &ConvShape) -> u64 {
        let len = |shape: &ConvShape| {
            shape
                .weight()
                .iter()
                .map(|&n| u64::from(n))
                .product::<u64>()
        };
        match self {
            Self::Dense => len(shape),
            Self::Tucker(ranks) => tucker_shapes(shape, ranks).iter().map(len).sum(),
        }
    }
}

/// The factors of a convolution with Tucker ranks.
fn tucker_shapes(shape: &ConvShape, ranks: [u32; 2]) -> [ConvShape; 3] {
    crate::ir::ConvProblem::new(*shape)
        .tucker_factors(ranks)
        .map(|factor| factor.shape)
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Dense => f.write_str("dense"),
            Self::Tucker([d1, d2]) => write!(f, "[{d1}, {d2}]"),
        }
    }
}

/// The form of an op of a network; `None` if it is not a convolution, or is decomposed otherwise.
pub(super) fn form_of(network: &Network, op: OpId) -> Option<Form> {
    match &network.op(op).kind {
        OpKind::Conv(conv) => match (conv.options.ranks, conv.options.cp_rank) {
            (Some(ranks), None) => Some(Form::Tucker(ranks)),
            (None, None) => Some(Form::Dense),
            _ => None,
        },
        _ => None,
    }
}

/// The network with these forms; all other ops are as they were.
pub fn with_forms(network: &Network, forms: impl IntoIterator<Item = (OpId, Form)>) -> Network {
    let mut network = network.clone();
    for (op, form) in forms {
        if let OpKind::Conv(conv) = &mut network.ops[op.0].kind {
            conv.options.ranks = match form {
                Form::Dense => None,
                Form::Tucker(ranks) => Some(ranks),
            };
        }
    }
    network
}
