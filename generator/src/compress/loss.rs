//! The loss of a layer in a low-rank form: from a checkpoint alone, or as it was measured.
//!
//! From a checkpoint, for each layer one factorisation is computed, whose leading parts are the factors that `pack` makes for any smaller
//! ranks (truncated HOSVD); from it follow the losses of all ranks at once. CP factors of each rank are computed separately. See
//! docs/how-to/compress.md for the unit and the rules.

mod cp;
mod grid;
mod layer;
mod low_rank;
mod moments;
mod sensitivity;
mod tensors;

use super::Scope;
use super::form::{Form, form_of, has_ranks, with_forms};
use super::parallel::on_all_processors;
use crate::ir::{Network, OpId, OpKind, Reduce};
use grid::Norm;
use layer::{ComputedLosses, LayerWeight, Part};
use moments::Moments;
pub use sensitivity::SensitivityError;
use sensitivity::{Measured, Sensitivity};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Mutex;
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
    Computed(ComputedLosses),
    /// From a file.
    Measured(Measured),
}

/// A factorisation that is about to be computed.
#[derive(Debug, Clone, Copy)]
pub struct Factorising<'a> {
    /// The layer.
    pub layer: &'a str,
    /// Its number among all factorisations, from 1 on. A layer has one for its Tucker ranks, one for its low ranks, and one for each CP rank.
    pub number: usize,
    /// The number of factorisations.
    pub count: usize,
}

impl LossTable {
    /// For all linear layers and convolutions of one group in `network` that may have several forms in `scope`, or have ranks. Ranks are
    /// those of the scope, and those that the layer has, also in the `others`, which have the same layers. All processors factorise layers, in
    /// any order; `progress` is called before each.
    ///
    /// # Errors
    /// [`LossError`] with all tensors that are missing or wrong.
    pub fn new(
        network: &Network,
        others: &[&Network],
        checkpoint: &Checkpoint,
        criterion: Criterion,
        scope: &Scope,
        progress: impl FnMut(Factorising) + Send,
    ) -> Result<Self, LossError> {
        let known: Vec<&Network> = others.iter().copied().chain([network]).collect();
        let own_forms = |op: OpId| -> Vec<Form> {
            let forms = known.iter().filter_map(|network| form_of(network, op));
            forms.collect()
        };
        let forms = scope.forms(network);
        let is_needed = |op: OpId| {
            let mut known = known.iter();
            matches!(forms.get(&op), Some(Ok(_))) || known.any(|network| has_ranks(network, op))
        };
        let ops = (0..network.ops.len()).map(OpId);
        let mut network = with_forms(network, ops.map(|op| (op, Form::Dense)));
        remove_requests(&mut network);
        let network = &network;
        let tensors = Tensors::new(network, checkpoint)?;
        let needed = || forms.iter().filter(|(op, _)| is_needed(**op));
        let last = needed().map(|(&op, _)| op).next_back();
        let moments = match criterion {
            Criterion::BnMoments => last.map(|last| Moments::new(network, &tensors, last)),
            Criterion::Weights => None,
        };
        let mut work = Vec::new();
        for (&id, forms) in needed() {
            let mut all = own_forms(id);
            all.extend(forms.iter().flatten());
            let layer = LayerWeight::new(network, id);
            let parts = layer.iter().flat_map(|layer| layer.parts(scope.step, &all));
            work.extend(parts.map(|part| (id, part)));
        }
        // The longest first.
        let multiply_adds = |(id, part): &(OpId, Part)| {
            LayerWeight::new(network, *id).map_or(0, |layer| layer.multiply_adds(part))
        };
        work.sort_by_cached_key(|work| Reverse(multiply_adds(work)));
        let progress = Mutex::new((0, progress));
        let found = on_all_processors(&work, |(id, part)| {
            let layer = LayerWeight::new(network, *id)?;
            if let Ok(mut progress) = progress.lock() {
                let (done, call) = &mut *progress;
                *done += 1;
                call(Factorising {
                    layer: layer.name,
                    number: *done,
                    count: work.len(),
                });
            }
            let weight = tensors.weight(layer.name);
            let norm = match &moments {
                Some(moments) => moments.norm(*id),
                None => Norm::relative(&weight, layer.sizes),
            };
            let losses = layer.losses(part, &weight, &norm);
            Some(losses.map_err(|error| LossError::NoConvergence {
                layer: layer.name.to_owned(),
                error,
            }))
        });
        let mut layers: BTreeMap<OpId, ComputedLosses> = BTreeMap::new();
        for ((id, _), found) in work.iter().zip(found) {
            if let Some(found) = found {
                layers.entry(*id).or_default().add(found?);
            }
        }
        Ok(Self {
            criterion: criterion.as_str().to_owned(),
            layers: layers
                .into_iter()
                .map(|(op, computed)| (op, LayerLosses::Computed(computed)))
                .collect(),
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

/// Removes what the config requests of convolutions: a scheme of Tucker layers does not compute a dense one, whose tensors are to be found.
fn remove_requests(network: &mut Network) {
    for op in &mut network.ops {
        if let OpKind::Conv(conv) = &mut op.kind {
            conv.options.scheme = None;
            conv.options.tile = None;
            conv.options.reduce = Reduce::default();
        }
    }
}

impl LayerLosses {
    fn loss(&self, form: Form) -> Option<f64> {
        match self {
            Self::Computed(computed) => computed.loss(form),
            Self::Measured(measured) => measured.loss(form),
        }
    }
}
