//! The forms that a layer may have, and a network with chosen forms.

use crate::ir::{ConvProblem, CpProblem, Epilogue, LinearProblem, Network, OpId, OpKind, Problem};
use crate::plan::horizontal_first;
use std::fmt;

/// How the weight of a layer is stored and applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// As it is.
    Dense,
    /// Tucker factors with ranks [D1, D2]: 1x1, the filter, 1x1.
    Tucker([u32; 2]),
    /// Two factors of a 1x1 convolution or a linear layer, with as many channels between them.
    LowRank(u32),
    /// CP factors: 1x1 to as many channels, an R x 1 and a 1 x S filter of each of them, 1x1.
    Cp(u32),
}

/// A layer with what is folded into it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LayerProblem {
    Conv(ConvProblem),
    Linear(LinearProblem),
}

impl LayerProblem {
    /// A layer of a network without what is folded into it; `None` for an op that is no convolution or linear layer.
    pub(super) fn of(network: &Network, op: OpId) -> Option<Self> {
        match &network.op(op).kind {
            OpKind::Conv(conv) => Some(Self::Conv(ConvProblem::new(conv.shape))),
            OpKind::Linear(linear) => Some(Self::Linear(LinearProblem {
                batch: network.op(op).y.batch,
                c: linear.c,
                n: linear.options.n,
                epilogue: Epilogue::default(),
            })),
            _ => None,
        }
    }

    /// The convolution, unless it is a linear layer.
    pub(super) fn conv(&self) -> Option<&ConvProblem> {
        match self {
            Self::Conv(conv) => Some(conv),
            Self::Linear(_) => None,
        }
    }

    /// The layer as it is.
    pub(super) fn dense(&self) -> Problem {
        match *self {
            Self::Conv(conv) => Problem::Conv(conv),
            Self::Linear(linear) => Problem::Linear(linear),
        }
    }

    /// The separate launches of a form; those of the dense layer for a form that the layer cannot have.
    pub(super) fn factors(&self, form: Form) -> Vec<Problem> {
        match (*self, form) {
            (Self::Conv(conv), Form::Tucker(ranks)) => {
                let chain = conv.tucker_chain(ranks).into_iter();
                chain.map(|(_, factor)| Problem::Conv(factor)).collect()
            }
            (Self::Conv(conv), Form::Cp(rank)) => {
                let order = horizontal_first(&CpProblem { conv, rank });
                conv.cp_factors(rank, order).map(Problem::Conv).to_vec()
            }
            (Self::Conv(conv), Form::LowRank(rank)) => {
                conv.low_rank_factors(rank).map(Problem::Conv).to_vec()
            }
            (Self::Linear(linear), Form::LowRank(rank)) => {
                linear.low_rank_factors(rank).map(Problem::Linear).to_vec()
            }
            _ => vec![self.dense()],
        }
    }

    /// D1 of a form that has a first factor.
    pub(super) fn d1(&self, form: Form) -> Option<u32> {
        match form {
            Form::Tucker([d1, _]) => Some(d1).filter(|d1| *d1 != self.channels()[0]),
            Form::Dense | Form::LowRank(_) | Form::Cp(_) => None,
        }
    }

    /// Different D1 of the forms that have a first factor, ascending.
    pub(super) fn d1s(&self, forms: &[Form]) -> Vec<u32> {
        let mut d1s: Vec<u32> = forms.iter().filter_map(|&form| self.d1(form)).collect();
        d1s.sort_unstable();
        d1s.dedup();
        d1s
    }

    /// Input and output channels.
    pub(super) fn channels(&self) -> [u32; 2] {
        match self {
            Self::Conv(conv) => [conv.shape.c, conv.shape.n],
            Self::Linear(linear) => [linear.c, linear.n],
        }
    }

    /// Floating-point operations of a form.
    pub(super) fn flops(&self, form: Form) -> u64 {
        self.factors(form).iter().map(Problem::flops).sum()
    }

    /// Bytes that the weights of a form have in fp32.
    pub(super) fn weight_bytes(&self, form: Form) -> u64 {
        self.factors(form).iter().map(weight_bytes).sum()
    }

    /// Number of weights of a form, without biases.
    pub(super) fn parameters(&self, form: Form) -> u64 {
        self.weight_bytes(form) / WEIGHT_BYTES
    }
}

/// Bytes of a weight in fp32.
pub(super) const WEIGHT_BYTES: u64 = 4;

/// Bytes that the weights of a problem have in fp32.
pub(super) fn weight_bytes(problem: &Problem) -> u64 {
    WEIGHT_BYTES * problem.weight_len()
}

impl Form {
    /// The numbers of an op's options: Tucker ranks, CP rank and rank.
    pub(super) fn ranks(self) -> (Option<[u32; 2]>, Option<u32>, Option<u32>) {
        match self {
            Self::Dense => (None, None, None),
            Self::Tucker(ranks) => (Some(ranks), None, None),
            Self::Cp(rank) => (None, Some(rank), None),
            Self::LowRank(rank) => (None, None, Some(rank)),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Dense => f.write_str("dense"),
            Self::Tucker([d1, d2]) => write!(f, "[{d1}, {d2}]"),
            Self::LowRank(rank) => write!(f, "rank {rank}"),
            Self::Cp(rank) => write!(f, "CP rank {rank}"),
        }
    }
}

/// The form of an op of a network; `None` if it has no weight.
pub(super) fn form_of(network: &Network, op: OpId) -> Option<Form> {
    let (ranks, cp_rank, rank) = match &network.op(op).kind {
        OpKind::Conv(conv) => (conv.options.ranks, conv.options.cp_rank, conv.options.rank),
        OpKind::Linear(linear) => (None, None, linear.options.rank),
        _ => return None,
    };
    match (ranks, cp_rank, rank) {
        (Some(ranks), ..) => Some(Form::Tucker(ranks)),
        (None, Some(rank), _) => Some(Form::Cp(rank)),
        (None, None, Some(rank)) => Some(Form::LowRank(rank)),
        (None, None, None) => Some(Form::Dense),
    }
}

/// Why `other` cannot be compared with `network`: it has other ops.
pub fn incomparable(network: &Network, other: &Network) -> Option<String> {
    if network.ops.len() != other.ops.len() {
        return Some(format!(
            "it has {} ops, the network {}",
            other.ops.len(),
            network.ops.len()
        ));
    }
    (0..network.ops.len()).map(OpId).find_map(|id| {
        let [op, of_other] = [network, other].map(|network| network.op(id));
        let is_same = (&op.name, &op.inputs, op.y)
            == (&of_other.name, &of_other.inputs, of_other.y)
            && LayerProblem::of(network, id) == LayerProblem::of(other, id);
        (!is_same).then(|| {
            format!(
                "its op `{}` is not that of the network, `{}`",
                of_other.name, op.name
            )
        })
    })
}

/// Whether an op has Tucker ranks, a CP rank or a rank.
pub fn has_ranks(network: &Network, op: OpId) -> bool {
    form_of(network, op).is_some_and(|form| form != Form::Dense)
}

/// The network with these forms; all other ops are as they were. Names of trained factors are dropped where the form changes: factors of
/// other ranks are no use.
pub fn with_forms(network: &Network, forms: impl IntoIterator<Item = (OpId, Form)>) -> Network {
    let mut network = network.clone();
    for (op, form) in forms {
        if form_of(&network, op) == Some(form) {
            continue;
        }
        let (ranks, cp_rank, rank) = form.ranks();
        match &mut network.ops[op.0].kind {
            OpKind::Conv(conv) => {
                conv.options.ranks = ranks;
                conv.options.cp_rank = cp_rank;
                conv.options.rank = rank;
                conv.options.factors = None;
            }
            OpKind::Linear(linear) => {
                linear.options.rank = rank;
                linear.options.factors = None;
            }
            _ => {}
        }
    }
    network
}
