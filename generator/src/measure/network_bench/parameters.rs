//! Random parameters, the same for generated code and for PyTorch.

use crate::ir::{Network, OpId};
use crate::plan::{NetworkPlan, factorized_layer, recipes};
use tdc_runtime::{WeightLayout, WeightSlot};
use tdc_weights::{Checkpoint, SlotRecipe, WeightSource};

/// A random checkpoint of a network. Layers with ranks have random factors, so that nobody factorises a weight.
pub fn random_checkpoint(network: &Network, plan: &NetworkPlan, seed: u64) -> Checkpoint {
    let mut all = recipes(network, plan);
    for recipe in &mut all {
        if matches!(recipe.weight, Some(WeightSource::Factor { .. })) {
            recipe.weight = None;
        }
    }
    for index in 0..network.ops.len() {
        let Some(layer) = factorized_layer(network, OpId(index)) else {
            continue;
        };
        let roles = layer.decomposition.factors().iter();
        all.extend(roles.zip(&layer.factors).map(|(&role, name)| SlotRecipe {
            slot: WeightSlot {
                name: name.clone(),
                layout: WeightLayout::oihw(layer.factor_shape(role)),
                bias_len: 0,
            },
            weight: Some(WeightSource::Tensor(name.clone())),
            bias: None,
            fold: Vec::new(),
            prologue: None,
        }));
    }
    Checkpoint::random(&all, seed)
}
