//! The loss of a layer in a low-rank form: from a checkpoint alone, or as it was measured.
//!
//! From a checkpoint, for each layer one factorisation is computed, whose leading parts are the factors that `pack` makes for any smaller
//! ranks (truncated HOSVD); from it follow the losses of all ranks at once. CP factors of each rank are computed separately. See
//! docs/how-to/compress.md for the unit and the rules.

mod cp;
mod grid;
mod low_rank;
mod moments;
mod sensitivity;
mod tensors;

use super::Scope;
use super::form::{Form, form_of, has_ranks, with_forms};
use crate::ir::{Network, OpId, OpKind, Reduce};
use cp::CpLosses;
use grid::{Norm, TuckerGrid};
use low_rank::LowRankLosses;
use moments::Moments;
pub use sensitivity::SensitivityError;
use sensitivity::{Measured, Sensitivity};
use std::collections::BTreeMap;
use tdc_runtime::ConvShape;
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
        /// Of some CP ranks.
        cp: CpLosses,
    },
    /// From a file.
    Measured(Measured),
}

impl LossTable {
    /// For all linear layers and convolutions of one group in `network` that may have several forms in `scope`, or have ranks. Ranks are
    /// those of the scope, and those that the layer has, also in the `others`, which have the same layers. Calls `progress` with the name
    /// of each layer before it is factorised.
    ///
    /// # Errors
    /// [`LossError`] with all tensors that are missing or wrong.
    pub fn new(
        network: &Network,
        others: &[&Network],
        checkpoint: &Checkpoint,
        criterion: Criterion,
        scope: &Scope,
        mut progress: impl FnMut(&str),
    ) -> Result<Self, LossError> {
        let known: Vec<&Network> = others.iter().copied().chain([network]).collect();
        let own_forms = |op: OpId| -> Vec<Form> {
            let forms = known.iter().filter_map(|network| form_of(network, op));
            forms.collect()
        };
        let is_needed = |op: OpId| {
            let mut known = known.iter();
            scope.has_forms(network, op) || known.any(|network| has_ranks(network, op))
        };
        let ops = (0..network.ops.len()).map(OpId);
        let mut network = with_forms(network, ops.map(|op| (op, Form::Dense)));
        remove_requests(&mut network);
        let network = &network;
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
            let own = own_forms(id);
            let x = network.op(op.inputs[0]).y;
            let sizes = [x.c, op.y.c];
            let weight = tensors.weight(&op.name);
            let norm = match &moments {
                Some(moments) => moments.norm(id),
                None => Norm::relative(&weight, sizes),
            };
            let layer = LayerWeight {
                weight: &weight,
                sizes,
                filter: shape,
                norm: &norm,
            };
            let losses = layer.losses(scope.step, &own, scope.cp_ranks(network, id));
            let losses = losses.map_err(|error| LossError::NoConvergence {
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

/// The weight of a layer, and how its errors are measured.
struct LayerWeight<'a> {
    /// OIHW.
    weight: &'a [f64],
    /// Input and output channels.
    sizes: [u32; 2],
    /// Of a convolution.
    filter: Option<&'a ConvShape>,
    norm: &'a Norm,
}

impl LayerWeight<'_> {
    /// Tucker ranks on the grid of `step`, and those of `own`; CP ranks of both lists.
    fn losses(
        &self,
        step: u32,
        own: &[Form],
        mut cp_ranks: Vec<u32>,
    ) -> Result<LayerLosses, NoConvergence> {
        let mut own_ranks = Vec::new();
        for form in own {
            match *form {
                Form::Tucker(ranks) => own_ranks.push(ranks),
                Form::Cp(rank) => cp_ranks.push(rank),
                Form::Dense | Form::LowRank(_) => {}
            }
        }
        let is_pointwise = |shape: &ConvShape| (shape.r, shape.s) == (1, 1);
        let filter = self.filter;
        let tucker = filter.filter(|shape| !is_pointwise(shape) || !own_ranks.is_empty());
        let tucker =
            tucker.map(|shape| TuckerGrid::new(self.weight, shape, self.norm, step, &own_ranks));
        let low_rank = filter
            .is_none_or(is_pointwise)
            .then(|| LowRankLosses::new(self.weight, self.sizes, self.norm));
        let cp = filter.map(|shape| CpLosses::new(self.weight, shape, self.norm, &cp_ranks));
        Ok(LayerLosses::Computed {
            tucker: tucker.transpose()?,
            low_rank: low_rank.transpose()?,
            cp: cp.transpose()?.unwrap_or_default(),
        })
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
            (Self::Computed { cp, .. }, Form::Cp(rank)) => cp.loss(rank),
        }
    }
}
