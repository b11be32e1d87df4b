//! Which layers may be decomposed, and into what.

use super::form::{Form, LayerProblem};
use crate::ir::{Conv, Layout, Network, OpId, OpKind, Reduce};

/// A kind of [`Form`] other than dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decomposition {
    /// Tucker factors of filters larger than 1x1.
    #[default]
    Tucker,
    /// Two factors of 1x1 convolutions and linear layers.
    LowRank,
}

impl Decomposition {
    /// Every kind with its name: that of the key in a config.
    pub const NAMES: [(&'static str, Self); 2] = [("ranks", Self::Tucker), ("rank", Self::LowRank)];
}

/// What may be decomposed.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// Ranks are multiples of this, or all channels.
    pub step: u32,
    /// Names of layers that stay as they are.
    pub keep: Vec<String>,
    /// The decompositions that are considered.
    pub decompositions: Vec<Decomposition>,
    /// If not empty: names of the only layers that may be decomposed.
    pub only: Vec<String>,
    /// The largest loss of a layer.
    pub most_loss: Option<f64>,
}

impl Default for Scope {
    fn default() -> Self {
        Self {
            step: 8,
            decompositions: Decomposition::NAMES.map(|(_, known)| known).to_vec(),
            keep: Vec::new(),
            only: Vec::new(),
            most_loss: None,
        }
    }
}

/// Why a layer stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ineligible {
    /// It has groups.
    Grouped,
    /// It has a CP rank.
    Decomposed,
    /// By [`Scope::decompositions`].
    OtherDecomposition,
    /// The config requests its scheme or layout.
    Requested,
    /// By [`Scope::keep`] or [`Scope::only`].
    Kept,
    /// Every form has a larger loss than [`Scope::most_loss`].
    LossTooLarge,
    /// The loss of no form is known.
    UnknownLoss,
    /// Every form needs as many operations as the dense layer.
    NoSmallerForm,
}

impl Ineligible {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grouped => "has groups",
            Self::Decomposed => "has a CP rank",
            Self::OtherDecomposition => "its decomposition was not asked for",
            Self::Requested => "the config requests its scheme or layout",
            Self::Kept => "kept by request",
            Self::LossTooLarge => "every form loses more than a layer may",
            Self::UnknownLoss => "its losses were not measured",
            Self::NoSmallerForm => "no ranks need fewer operations",
        }
    }
}

impl Scope {
    /// The forms of a layer, [`Form::Dense`] first; `None` if the op has no weight.
    pub(super) fn forms(
        &self,
        network: &Network,
        op: OpId,
    ) -> Option<Result<Vec<Form>, Ineligible>> {
        let named = network.op(op);
        let problem = LayerProblem::of(network, op)?;
        let (decomposition, reason) = match &named.kind {
            OpKind::Conv(conv) if (conv.shape.r, conv.shape.s) == (1, 1) => {
                (Decomposition::LowRank, ineligible(conv))
            }
            OpKind::Conv(conv) => (Decomposition::Tucker, ineligible(conv)),
            _ => (Decomposition::LowRank, None),
        };
        let is_kept = self.keep.contains(&named.name)
            || !self.only.is_empty() && !self.only.contains(&named.name);
        let reason = match reason {
            None if is_kept => Some(Ineligible::Kept),
            None if !self.decompositions.contains(&decomposition) => {
                Some(Ineligible::OtherDecomposition)
            }
            reason => reason,
        };
        Some(match reason {
            Some(reason) => Err(reason),
            None => match self.smaller_forms(&problem, decomposition) {
                forms if forms.is_empty() => Err(Ineligible::NoSmallerForm),
                forms => Ok(std::iter::once(Form::Dense).chain(forms).collect()),
            },
        })
    }

    /// Whether an op may have a form other than dense.
    pub fn has_forms(&self, network: &Network, op: OpId) -> bool {
        matches!(self.forms(network, op), Some(Ok(_)))
    }

    /// Whether a layer may have this loss.
    pub(super) fn allows(&self, loss: f64) -> bool {
        self.most_loss.is_none_or(|most| loss <= most)
    }

    /// The forms that need fewer operations than the dense layer.
    fn smaller_forms(&self, problem: &LayerProblem, decomposition: Decomposition) -> Vec<Form> {
        let [c, n] = problem.channels();
        let dense = problem.flops(Form::Dense);
        let forms: Vec<Form> = match decomposition {
            Decomposition::Tucker => {
                let d2s = ranks(n, self.step);
                let pairs = |d1| d2s.iter().map(move |&d2| Form::Tucker([d1, d2]));
                ranks(c, self.step).into_iter().flat_map(pairs).collect()
            }
            Decomposition::LowRank => {
                let ranks = ranks(c.min(n), self.step).into_iter();
                ranks.map(Form::LowRank).collect()
            }
        };
        let smaller = forms.into_iter();
        smaller
            .filter(|&form| problem.flops(form) < dense)
            .collect()
    }
}

/// The multiples of a step below the channels, and the channels.
pub(super) fn ranks(channels: u32, step: u32) -> Vec<u32> {
    let multiples = (1..).map(|index| index * step);
    let below = multiples.take_while(|&rank| rank < channels);
    below.chain([channels]).collect()
}

fn ineligible(conv: &Conv) -> Option<Ineligible> {
    let (shape, options) = (&conv.shape, &conv.options);
    if options.cp_rank.is_some() {
        Some(Ineligible::Decomposed)
    } else if shape.groups > 1 {
        Some(Ineligible::Grouped)
    } else if options.scheme.is_some()
        || options.layout != Layout::Nchw
        || options.reduce != Reduce::default()
    {
        Some(Ineligible::Requested)
    } else {
        None
    }
}
