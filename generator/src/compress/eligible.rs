//! Which layers may be decomposed, and into what.

use super::form::{Form, LayerProblem};
use crate::ir::{Conv, Layout, Network, OpId, OpKind, Problem, Reduce};
use crate::plan::{FoldedNetwork, MixedLaunch};
use crate::suggest::nearest;
use std::collections::BTreeMap;

/// A kind of [`Form`] other than dense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decomposition {
    /// Tucker factors of filters larger than 1x1.
    #[default]
    Tucker,
    /// Two factors of 1x1 convolutions and linear layers.
    LowRank,
    /// CP factors of filters larger than 1x1.
    Cp,
}

impl Decomposition {
    /// Every kind with its name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("tucker", Self::Tucker),
        ("rank", Self::LowRank),
        ("cp", Self::Cp),
    ];

    /// The kinds that are considered by default: not [`Cp`](Self::Cp), whose factors take long to compute.
    pub const DEFAULT: [Self; 2] = [Self::Tucker, Self::LowRank];

    /// The kinds that a layer may have.
    fn of(op: &OpKind) -> &'static [Self] {
        match op {
            OpKind::Conv(conv) if (conv.shape.r, conv.shape.s) != (1, 1) => {
                &[Self::Tucker, Self::Cp]
            }
            _ => &[Self::LowRank],
        }
    }
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
            decompositions: Decomposition::DEFAULT.to_vec(),
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
    /// It is part of a squeeze-and-excite.
    SqueezeExcite,
    /// It is the first layer, and can normalise the input.
    NormalizesInput,
}

impl Ineligible {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grouped => "it has groups",
            Self::OtherDecomposition => "its decomposition was not asked for",
            Self::Requested => "the config requests its scheme or layout",
            Self::Kept => "kept by request",
            Self::LossTooLarge => "every form loses more than a layer may",
            Self::UnknownLoss => "its losses were not measured",
            Self::NoSmallerForm => "no ranks need fewer operations",
            Self::SqueezeExcite => {
                "it is part of a squeeze-and-excite, which one unit computes where that is faster"
            }
            Self::NormalizesInput => "its launch also normalises the input where that is faster",
        }
    }
}

/// What is wrong with a layer that a [`Scope`] names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// No op has the name.
    #[error("there is no layer named `{name}`{}", similar.as_ref().map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name of a layer.
        similar: Option<String>,
    },
    /// The op is no layer.
    #[error(
        "`{name}` has no weight that could be factorised: it is no convolution or linear layer"
    )]
    NoLayer {
        /// The op.
        name: String,
    },
    /// A layer that should be decomposed cannot be.
    #[error("`{name}` cannot be factorised: {}", reason.as_str())]
    Ineligible {
        /// The layer.
        name: String,
        /// Why.
        reason: Ineligible,
    },
}

impl Scope {
    /// Checks the names of layers.
    ///
    /// # Errors
    /// One for each name in [`keep`](Self::keep) and [`only`](Self::only) that no layer has, and for each layer of `only` that cannot be
    /// decomposed.
    pub fn check(&self, network: &Network) -> Result<(), Vec<ScopeError>> {
        let only = self.only.iter().map(|name| (name, true));
        let names = self.keep.iter().map(|name| (name, false)).chain(only);
        let forms = self.forms(network);
        let errors = names.filter_map(|(name, is_decomposed)| {
            let name = name.clone();
            let mut ops = (0..network.ops.len()).map(OpId);
            let Some(op) = ops.find(|&op| network.op(op).name == name) else {
                let names = forms.keys().map(|&op| &network.op(op).name[..]);
                let similar = nearest(&name, names).map(str::to_owned);
                return Some(ScopeError::Unknown { name, similar });
            };
            match forms.get(&op) {
                None => Some(ScopeError::NoLayer { name }),
                Some(&Err(reason)) if is_decomposed => {
                    Some(ScopeError::Ineligible { name, reason })
                }
                Some(_) => None,
            }
        });
        let errors: Vec<ScopeError> = errors.collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors),
        }
    }

    /// The forms of all layers of a network, [`Form::Dense`] first, or why a layer has no other one.
    pub(super) fn forms(&self, network: &Network) -> BTreeMap<OpId, Result<Vec<Form>, Ineligible>> {
        let mixed = MixedLaunch::of_graph(&FoldedNetwork::new(network).graph).into_iter();
        let mixed = mixed.flat_map(|launch| {
            let reason = match launch.problem {
                Problem::SqueezeExcite(_) => Ineligible::SqueezeExcite,
                _ => Ineligible::NormalizesInput,
            };
            launch.layers.into_iter().map(move |layer| (layer, reason))
        });
        let mixed: BTreeMap<OpId, Ineligible> = mixed.collect();
        let ops = (0..network.ops.len()).map(OpId);
        let forms = ops.filter_map(|op| {
            let forms = match mixed.get(&op) {
                Some(&reason) => Err(reason),
                None => self.forms_of(network, op)?,
            };
            Some((op, forms))
        });
        forms.collect()
    }

    /// The same of a layer, whatever launches the plan may have; `None` if the op has no weight.
    fn forms_of(&self, network: &Network, op: OpId) -> Option<Result<Vec<Form>, Ineligible>> {
        let named = network.op(op);
        let problem = LayerProblem::of(network, op)?;
        let reason = match &named.kind {
            OpKind::Conv(conv) => ineligible(conv),
            _ => None,
        };
        let possible = Decomposition::of(&named.kind).iter();
        let decompositions = possible.filter(|&kind| self.decompositions.contains(kind));
        let decompositions: Vec<Decomposition> = decompositions.copied().collect();
        let is_kept = self.keep.contains(&named.name)
            || !self.only.is_empty() && !self.only.contains(&named.name);
        let reason = match reason {
            None if is_kept => Some(Ineligible::Kept),
            None if decompositions.is_empty() => Some(Ineligible::OtherDecomposition),
            reason => reason,
        };
        Some(match reason {
            Some(reason) => Err(reason),
            None => {
                let kinds = decompositions.into_iter();
                let smaller = kinds.flat_map(|kind| self.smaller_forms(&problem, kind));
                let forms: Vec<Form> = std::iter::once(Form::Dense).chain(smaller).collect();
                match forms.len() {
                    1 => Err(Ineligible::NoSmallerForm),
                    _ => Ok(forms),
                }
            }
        })
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
            Decomposition::Cp => {
                let ranks = ranks(c.max(n), self.step).into_iter();
                ranks.map(Form::Cp).collect()
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
    if conv.shape.groups > 1 {
        Some(Ineligible::Grouped)
    } else if requests(conv) {
        Some(Ineligible::Requested)
    } else {
        None
    }
}

fn requests(conv: &Conv) -> bool {
    let options = &conv.options;
    options.scheme.is_some()
        || options.layout != Layout::Nchw
        || options.reduce != Reduce::default()
}

/// Whether the config requests the scheme or the layout of a layer.
pub(super) fn is_requested(network: &Network, op: OpId) -> bool {
    match &network.op(op).kind {
        OpKind::Conv(conv) => requests(conv),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{ConvOptions, LinearOptions, NetworkBuilder, OpOptions, TensorShape};

    fn network() -> Network {
        let mut builder = NetworkBuilder::new("net", TensorShape::new(1, 12, 9, 7));
        let conv = ConvOptions::new(20);
        builder.op("filter", None, OpOptions::Conv(conv.clone()));
        let grouped = ConvOptions {
            groups: 4,
            ..conv.clone()
        };
        builder.op("grouped", None, OpOptions::Conv(grouped));
        let tiny = ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(2)
        };
        builder.op("tiny", None, OpOptions::Conv(tiny));
        builder.op("pool", None, OpOptions::GlobalAvgPool);
        builder.op("flat", None, OpOptions::Flatten);
        builder.op("fc", None, OpOptions::Linear(LinearOptions::new(9)));
        builder.finish().unwrap()
    }

    /// The errors of the names, with Tucker ranks and low ranks that are multiples of 4.
    fn errors(keep: &[&str], only: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let scope = Scope {
            step: 4,
            keep: owned(keep),
            only: owned(only),
            ..Scope::default()
        };
        let errors = scope.check(&network()).err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn layers_that_cannot_be_factorised_are_named_with_the_reason() {
        assert_eq!(errors(&[], &["filter"]), [""; 0]);
        assert_eq!(errors(&["grouped", "tiny"], &["filter"]), [""; 0]);
        assert_eq!(
            errors(
                &["flter", "pool"],
                &["grouped", "tiny", "flat", "nothing", "filter"]
            ),
            [
                "there is no layer named `flter`; did you mean `filter`?",
                "`pool` has no weight that could be factorised: it is no convolution or linear layer",
                "`grouped` cannot be factorised: it has groups",
                "`tiny` cannot be factorised: no ranks need fewer operations",
                "`flat` has no weight that could be factorised: it is no convolution or linear layer",
                "there is no layer named `nothing`",
            ]
        );
        // Named twice: to be kept, and to be decomposed.
        assert_eq!(
            errors(&["filter"], &["filter"]),
            ["`filter` cannot be factorised: kept by request"]
        );
    }
}
