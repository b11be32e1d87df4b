//! The loss of a layer in a low-rank form: from a checkpoint alone, or as it was measured.
//!
//! From a checkpoint, for each layer one factorisation is computed, whose leading parts are the factors that `pack` makes for any smaller
//! ranks (truncated HOSVD); from it follow the losses of all ranks at once. See docs/how-to/compress.md for the unit and the rules.

mod grid;
mod low_rank;
mod moments;
mod sensitivity;
mod tensors;

use super::form::{Form, form_of, with_forms};
use crate::ir::{Network, OpId, OpKind};
use grid::{Norm, TuckerGrid};
use low_rank::LowRankLosses;
use moments::Moments;
pub use sensitivity::SensitivityError;
use sensitivity::{Measured, Sensitivity};
use std::collections::BTreeMap;
use tdc_weights::{Checkpoint, NoConvergence, WeightErrors};
use tensors::Tensors;

/// How the loss of a layer is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Criterion {
    /// The mean squared error of the layer's output as the next layers see it, by the moments of its input that the network's BatchNorms
    /// imply.
    #[default]
    BnMoments,
    /// The squared error of the weight, relative to the weight.
    Weights,
}

impl Criterion {
    /// Every criterion with its name.
    pub const NAMES: [(&'static str, Self); 2] =
        [("bn-moments", Self::BnMoments), ("weights", Self::Weights)];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names
            .find(|(_, known)| *known == self)
            .map_or("", |(name, _)| name)
    }
}

/// Why losses cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum LossError {
    /// Tensors are missing or wrong.
    #[error(transparent)]
    Tensors(#[from] WeightErrors),
    /// A weight cannot be factorised.
    #[error("{layer}: {error}")]
    NoConvergence {
        /// The layer.
        layer: String,
        /// Why.
        error: NoConvergence,
    },
    /// The network cannot be planned, which tells which tensors are read.
    #[error("{0}")]
    Plan(String),
}

/// The losses of all layers of a network.
#[derive(Debug)]
pub struct LossTable {
    criterion: String,
    layers: BTreeMap<OpId, LayerLosses>,
}

/// The losses of a layer in all of its forms.
#[derive(Debug)]
enum LayerLosses {
    /// By factorising its weight.
    Computed {
        /// Of filters larger than 1x1, and of layers that have Tucker ranks.
        tucker: Option<TuckerGrid>,
        /// Of 1x1 convolutions and linear layers.
        low_rank: Option<LowRankLosses>,
    },
    /// From a file.
    Measured(Measured),
}

impl LossTable {
    /// For all linear layers and convolutions of one group in `network`. Tucker ranks are multiples of `step`, all channels, or
    /// those that the layer has, also in the `others`, which have the same layers. Only layers for which `is_needed` holds are factorised.
    /// Calls `progress` with the name of each before.
    ///
    /// # Errors
    /// [`LossError`] with all tensors that are missing or wrong.
    pub fn new(
        network: &Network,
        others: &[&Network],
        checkpoint: &Checkpoint,
        criterion: Criterion,
        step: u32,
        is_needed: impl Fn(OpId) -> bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Self, LossError> {
        let known: Vec<&Network> = others.iter().copied().chain([network]).collect();
        let own_ranks = |op: OpId| {
            let forms = known.iter().map(|network| form_of(network, op));
            let ranks = forms.filter_map(|form| match form {
                Some(Form::Tucker(ranks)) => Some(ranks),
                _ => None,
            });
            ranks.collect::<Vec<_>>()
        };
        let ops = (0..network.ops.len()).map(OpId);
        let network = &with_forms(network, ops.map(|op| (op, Form::Dense)));
        let tensors = Tensors::new(network, checkpoint)?;
        let moments = match criterion {
            Criterion::BnMoments => Some(Moments::new(network, &tensors)),
            Criterion::Weights => None,
        };
        let mut layers = BTreeMap::new();
        for (index, op) in network.ops.iter().enumerate() {
            let id = OpId(index);
            let shape = match &op.kind {
                OpKind::Conv(conv) if conv.shape.groups == 1 => Some(&conv.shape),
                OpKind::Linear(_) => None,
                _ => continue,
            };
            if !is_needed(id) {
                continue;
            }
            progress(&op.name);
            let x = network.op(op.inputs[0]).y;
            let sizes = [x.c, op.y.c];
            let weight = tensors.weight(&op.name);
            let norm = match &moments {
                Some(moments) => moments.norm(id),
                None => Norm::relative(&weight, sizes),
            };
            let own = own_ranks(id);
            let filter = shape.filter(|shape| (shape.r, shape.s) != (1, 1) || !own.is_empty());
            let is_pointwise = shape.is_none_or(|shape| (shape.r, shape.s) == (1, 1));
            let tucker = filter.map(|shape| TuckerGrid::new(&weight, shape, &norm, step, &own));
            let low_rank = is_pointwise.then(|| LowRankLosses::new(&weight, sizes, &norm));
            let losses = || -> Result<LayerLosses, NoConvergence> {
                Ok(LayerLosses::Computed {
                    tucker: tucker.transpose()?,
                    low_rank: low_rank.transpose()?,
                })
            };
            let losses = losses().map_err(|error| LossError::NoConvergence {
                layer: op.name.clone(),
                error,
            })?;
            layers.insert(id, losses);
        }
        Ok(Self {
            criterion: criterion.as_str().to_owned(),
            layers,
        })
    }

    /// The losses of a file; docs/how-to/compress.md has its schema.
    ///
    /// # Errors
    /// All that is wrong with the file.
    pub fn measured(text: &str, network: &Network) -> Result<Self, Vec<SensitivityError>> {
        let Sensitivity { criterion, layers } = Sensitivity::read(text, network)?;
        let layers = layers.into_iter();
        Ok(Self {
            criterion,
            layers: layers
                .map(|(op, measured)| (op, LayerLosses::Measured(measured)))
                .collect(),
        })
    }

    /// The name of a layer whose loss at its own ranks is not known, if there is one.
    pub fn unknown<'n>(&self, network: &'n Network) -> Option<&'n str> {
        let mut ops = (0..network.ops.len()).map(OpId);
        let is_unknown =
            |op: OpId| form_of(network, op).is_some_and(|form| self.loss(op, form).is_infinite());
        let op = ops.find(|&op| is_unknown(op))?;
        Some(&network.op(op).name)
    }

    /// How losses were computed or measured, in a word or two.
    pub fn criterion(&self) -> &str {
        &self.criterion
    }

    /// The loss of a layer in a form; 0 for dense layers, and infinite for ranks whose loss is not known.
    pub fn loss(&self, layer: OpId, form: Form) -> f64 {
        match self.layers.get(&layer) {
            _ if form == Form::Dense => 0.0,
            Some(losses) => losses.loss(form).unwrap_or(f64::INFINITY),
            None => f64::INFINITY,
        }
    }
}

impl LayerLosses {
    fn loss(&self, form: Form) -> Option<f64> {
        match (self, form) {
            (_, Form::Dense) => Some(0.0),
            (Self::Measured(measured), form) => measured.loss(form),
            (Self::Computed { tucker, .. }, Form::Tucker(ranks)) => {
                tucker.as_ref().map(|grid| grid.loss(ranks))
            }
            (Self::Computed { low_rank, .. }, Form::LowRank(rank)) => {
                low_rank.as_ref().map(|losses| losses.loss(rank))
            }
        }
    }
}
