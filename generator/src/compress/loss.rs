//! The loss of a layer in a low-rank form, from a checkpoint alone.
//!
//! For each layer one factorisation is computed, whose leading parts are the factors that `pack` makes for any smaller ranks (truncated
//! HOSVD); from it follow the losses of all ranks at once. See docs/compression.md for the unit and the rules.

mod grid;
mod low_rank;
mod moments;
mod tensors;

use super::form::{Form, form_of, with_forms};
use crate::ir::{Network, OpId, OpKind};
use grid::{Norm, TuckerGrid};
use low_rank::LowRankLosses;
use moments::Moments;
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
    layers: BTreeMap<OpId, LayerLosses>,
}

/// The losses of a layer in all forms of one kind.
#[derive(Debug)]
enum LayerLosses {
    Tucker(TuckerGrid),
    LowRank(LowRankLosses),
}

impl LossTable {
    /// For all linear layers and convolutions of one group in `network`. Tucker ranks are multiples of `step`, all channels, or
    /// those that the layer has. Only layers for which `is_needed` holds are factorised. Calls `progress` with the name of each before.
    ///
    /// # Errors
    /// [`LossError`] with all tensors that are missing or wrong.
    pub fn new(
        network: &Network,
        checkpoint: &Checkpoint,
        criterion: Criterion,
        step: u32,
        is_needed: impl Fn(OpId) -> bool,
        mut progress: impl FnMut(&str),
    ) -> Result<Self, LossError> {
        let own_ranks = |op: OpId| match form_of(network, op) {
            Some(Form::Tucker(ranks)) => Some(ranks),
            _ => None,
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
            let (sizes, filter) = match &op.kind {
                OpKind::Conv(conv) if conv.shape.groups == 1 => {
                    let shape = &conv.shape;
                    let is_larger = (shape.r, shape.s) != (1, 1);
                    ([shape.c, shape.n], is_larger.then_some(shape))
                }
                OpKind::Linear(linear) => ([linear.c, linear.options.n], None),
                _ => continue,
            };
            if !is_needed(id) {
                continue;
            }
            progress(&op.name);
            let weight = tensors.weight(&op.name);
            let norm = match &moments {
                Some(moments) => moments.norm(id),
                None => Norm::relative(&weight, sizes),
            };
            let losses = match filter {
                Some(shape) => TuckerGrid::new(&weight, shape, &norm, step, own_ranks(id))
                    .map(LayerLosses::Tucker),
                None => LowRankLosses::new(&weight, sizes, &norm).map(LayerLosses::LowRank),
            };
            let losses = losses.map_err(|error| LossError::NoConvergence {
                layer: op.name.clone(),
                error,
            })?;
            layers.insert(id, losses);
        }
        Ok(Self { layers })
    }

    /// The loss of a layer in a form; 0 for dense layers, and infinite for ranks that are not on the grid.
    pub fn loss(&self, layer: OpId, form: Form) -> f64 {
        match (form, self.layers.get(&layer)) {
            (Form::Dense, _) => 0.0,
            (Form::Tucker(ranks), Some(LayerLosses::Tucker(grid))) => grid.loss(ranks),
            (Form::LowRank(rank), Some(LayerLosses::LowRank(losses))) => losses.loss(rank),
            _ => f64::INFINITY,
        }
    }
}
