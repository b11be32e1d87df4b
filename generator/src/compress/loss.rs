//! The loss of a layer in a low-rank form, from a checkpoint alone.
//!
//! For each layer one factorisation is computed, whose leading parts are the factors that `pack` makes for any smaller ranks (truncated
//! HOSVD); from it follow the losses of all ranks at once. See docs/compression.md for the unit and the rules.

mod grid;
mod moments;
mod tensors;

use super::form::Form;
use crate::ir::{Network, OpId, OpKind};
use grid::{Norm, TuckerGrid};
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
    layers: BTreeMap<OpId, TuckerGrid>,
}

impl LossTable {
    /// For all convolutions of one group with filters larger than 1x1 in `network`, which has no ranks. Ranks are multiples of `step`, or
    /// all channels. Calls `progress` with the name of each layer before it is factorised.
    ///
    /// # Errors
    /// [`LossError`] with all tensors that are missing or wrong.
    pub fn new(
        network: &Network,
        checkpoint: &Checkpoint,
        criterion: Criterion,
        step: u32,
        mut progress: impl FnMut(&str),
    ) -> Result<Self, LossError> {
        let tensors = Tensors::new(network, checkpoint)?;
        let moments = match criterion {
            Criterion::BnMoments => Some(Moments::new(network, &tensors)),
            Criterion::Weights => None,
        };
        let mut layers = BTreeMap::new();
        for (index, op) in network.ops.iter().enumerate() {
            let OpKind::Conv(conv) = &op.kind else {
                continue;
            };
            let shape = &conv.shape;
            if shape.groups > 1 || (shape.r, shape.s) == (1, 1) {
                continue;
            }
            progress(&op.name);
            let weight = tensors.weight(&op.name);
            let norm = match &moments {
                Some(moments) => moments.norm(OpId(index)),
                None => Norm::relative(&weight, shape),
            };
            let grid = TuckerGrid::new(&weight, shape, &norm, step);
            let grid = grid.map_err(|error| LossError::NoConvergence {
                layer: op.name.clone(),
                error,
            })?;
            layers.insert(OpId(index), grid);
        }
        Ok(Self { layers })
    }

    /// The loss of a layer in a form; 0 for dense layers, and infinite for ranks that are not on the grid.
    pub fn loss(&self, layer: OpId, form: Form) -> f64 {
        match (form, self.layers.get(&layer)) {
            (Form::Dense, _) => 0.0,
            (Form::Tucker(ranks), Some(grid)) => grid.loss(ranks),
            (Form::Tucker(_), None) => f64::INFINITY,
        }
    }
}
