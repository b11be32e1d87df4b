//! What is factorised of a layer, and the losses that follow from it.

use super::cp::cp_loss;
use super::grid::{Norm, TuckerGrid};
use super::low_rank::LowRankLosses;
use crate::compress::form::Form;
use crate::ir::{Network, OpId, OpKind};
use std::collections::BTreeMap;
use tdc_runtime::ConvShape;
use tdc_weights::NoConvergence;

/// A layer whose weight can be factorised.
pub(super) struct LayerWeight<'a> {
    pub name: &'a str,
    /// Input and output channels.
    pub sizes: [u32; 2],
    /// Of a convolution.
    filter: Option<&'a ConvShape>,
}

/// A part of the losses of a layer, which is computed on its own.
pub(super) enum Part {
    /// At Tucker ranks on the grid of the step, and at others.
    Tucker { step: u32, also: Vec<[u32; 2]> },
    /// At all ranks.
    LowRank,
    /// At a CP rank.
    Cp(u32),
}

/// The losses of a [`Part`].
pub(super) enum PartLosses {
    Tucker(TuckerGrid),
    LowRank(LowRankLosses),
    Cp(u32, f64),
}

impl<'a> LayerWeight<'a> {
    /// `None` for an op that is no linear layer or convolution of one group.
    pub(super) fn new(network: &'a Network, op: OpId) -> Option<Self> {
        let op = network.op(op);
        let filter = match &op.kind {
            OpKind::Conv(conv) if conv.shape.groups == 1 => Some(&conv.shape),
            OpKind::Linear(_) => None,
            _ => return None,
        };
        Some(Self {
            name: &op.name,
            sizes: [network.op(op.inputs[0]).y.c, op.y.c],
            filter,
        })
    }

    /// What is computed for these forms. For Tucker forms it is one part with the whole grid of `step`.
    pub(super) fn parts(&self, step: u32, forms: &[Form]) -> Vec<Part> {
        let [c, n] = self.sizes;
        let is_on_grid = |rank: u32, channels: u32| rank.is_multiple_of(step) || rank == channels;
        let (mut tucker, mut low_rank, mut cp_ranks) = (None, false, Vec::new());
        for form in forms {
            match *form {
                Form::Dense => {}
                Form::Tucker([d1, d2]) => {
                    let also = tucker.get_or_insert_with(Vec::new);
                    if !(is_on_grid(d1, c) && is_on_grid(d2, n)) {
                        also.push([d1, d2]);
                    }
                }
                Form::LowRank(_) => low_rank = true,
                Form::Cp(rank) => cp_ranks.push(rank),
            }
        }
        cp_ranks.sort_unstable();
        cp_ranks.dedup();
        let tucker = tucker.map(|also| Part::Tucker { step, also });
        let low_rank = low_rank.then_some(Part::LowRank);
        let cp = cp_ranks.into_iter().map(Part::Cp);
        tucker.into_iter().chain(low_rank).chain(cp).collect()
    }

    /// About how many multiplications and additions a part takes.
    pub(super) fn multiply_adds(&self, part: &Part) -> u64 {
        let [c, n] = self.sizes.map(u64::from);
        let taps = self.filter.map_or(1, |shape| u64::from(shape.r * shape.s));
        let products = match part {
            Part::Tucker { .. } => 4 * (c + n),
            Part::LowRank => 8 * c.min(n),
            // Some hundred rounds of alternating least squares.
            Part::Cp(rank) => 1000 * u64::from(*rank),
        };
        [n, taps, products].into_iter().fold(c, u64::saturating_mul)
    }

    /// The losses of a part, for a weight in OIHW.
    pub(super) fn losses(
        &self,
        part: &Part,
        weight: &[f64],
        norm: &Norm,
    ) -> Result<PartLosses, NoConvergence> {
        Ok(match (part, self.filter) {
            (Part::Tucker { step, also }, Some(shape)) => {
                PartLosses::Tucker(TuckerGrid::new(weight, shape, norm, *step, also)?)
            }
            (Part::Cp(rank), Some(shape)) => {
                PartLosses::Cp(*rank, cp_loss(weight, shape, norm, *rank)?)
            }
            (Part::LowRank, _) => {
                PartLosses::LowRank(LowRankLosses::new(weight, self.sizes, norm)?)
            }
            (Part::Tucker { .. } | Part::Cp(_), None) => {
                unreachable!("a linear layer has low ranks only")
            }
        })
    }
}

/// The losses of a layer whose weight was factorised.
#[derive(Debug, Default)]
pub(super) struct ComputedLosses {
    /// Of layers that may have Tucker ranks.
    tucker: Option<TuckerGrid>,
    /// Of layers that may have a low rank.
    low_rank: Option<LowRankLosses>,
    /// By CP rank, of some of them.
    cp: BTreeMap<u32, f64>,
}

impl ComputedLosses {
    pub(super) fn add(&mut self, losses: PartLosses) {
        match losses {
            PartLosses::Tucker(grid) => self.tucker = Some(grid),
            PartLosses::LowRank(losses) => self.low_rank = Some(losses),
            PartLosses::Cp(rank, loss) => {
                self.cp.insert(rank, loss);
            }
        }
    }

    /// The loss in a form; `None` if it was not computed.
    pub(super) fn loss(&self, form: Form) -> Option<f64> {
        match form {
            Form::Dense => Some(0.0),
            Form::Tucker(ranks) => self.tucker.as_ref().map(|grid| grid.loss(ranks)),
            Form::LowRank(rank) => self.low_rank.as_ref().map(|losses| losses.loss(rank)),
            Form::Cp(rank) => self.cp.get(&rank).copied(),
        }
    }
}
