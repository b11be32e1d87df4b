//! What each slot of a network's weight file is made from.

use super::fuse::{Parameters, TaskPart};
use super::network::{Layer, NetworkPlan};
use crate::ir::{BatchNorm, Network, OpId, OpKind};
use tdc_weights::{Affine, FactorPart, FactoredLayer, Form, SlotRecipe, WeightSource};

/// One recipe for each slot of `plan.weights`, in order, with the checkpoint's names as PyTorch writes them: `<layer>.weight`,
/// `<layer>.bias`, `<bn>.running_mean` and so on, factors as `<layer>.first.weight` unless the config names them.
pub fn recipes(network: &Network, plan: &NetworkPlan) -> Vec<SlotRecipe> {
    let slots: Vec<_> = plan.weights.iter().map(|(slot, _)| slot.clone()).collect();
    let of_layer = |layer: &Layer| {
        let parameters = &layer.parameters;
        let weights = parameters.weights();
        let recipe = |(index, &slot): (usize, &usize)| {
            let (op, part) = weights
                .get(index)
                .map_or((None, None), |&(op, part)| (Some(op), part));
            let carries_bias = Parameters::carries_bias(part);
            let fold = parameters.fold.iter().filter(|_| carries_bias);
            let before = parameters.affine.filter(|_| index == 0);
            SlotRecipe {
                slot: slots[slot].clone(),
                weight: op.and_then(|op| weight(network, op, part)),
                bias: op.filter(|_| carries_bias).and_then(|op| bias(network, op)),
                fold: fold.filter_map(|&op| affine(network, op)).collect(),
                prologue: before.and_then(|op| affine(network, op)),
            }
        };
        let recipes = layer.slots.iter().enumerate().map(recipe);
        recipes.collect::<Vec<_>>()
    };
    plan.layers.iter().flat_map(of_layer).collect()
}

fn weight(network: &Network, id: OpId, part: Option<TaskPart>) -> Option<WeightSource> {
    let op = network.op(id);
    let name = format!("{}.weight", op.name);
    match (&op.kind, part) {
        (OpKind::Linear(_), _) => Some(WeightSource::Linear(name)),
        (OpKind::Conv(_), None) => Some(WeightSource::Tensor(name)),
        (OpKind::Conv(_), Some(part)) => Some(WeightSource::Factor {
            layer: factored_layer(network, id)?,
            part: match part {
                TaskPart::First => FactorPart::First,
                TaskPart::Core => FactorPart::Core,
                TaskPart::Vertical => FactorPart::Vertical,
                TaskPart::Horizontal => FactorPart::Horizontal,
                TaskPart::Last => FactorPart::Last,
            },
        }),
        _ => None,
    }
}

/// The layer's own bias.
fn bias(network: &Network, id: OpId) -> Option<String> {
    let op = network.op(id);
    let has_bias = match &op.kind {
        OpKind::Conv(conv) => conv.options.bias,
        OpKind::Linear(linear) => linear.options.bias,
        _ => false,
    };
    has_bias.then(|| format!("{}.bias", op.name))
}

/// A convolution with Tucker ranks or a CP rank as the checkpoint knows it; `None` for any other op.
pub fn factored_layer(network: &Network, id: OpId) -> Option<FactoredLayer> {
    let op = network.op(id);
    let OpKind::Conv(conv) = &op.kind else {
        return None;
    };
    let shape = &conv.shape;
    let options = &conv.options;
    let (form, parts) = match (options.ranks, options.cp_rank) {
        (Some(ranks), _) => (Form::Tucker(ranks), &TaskPart::TUCKER[..]),
        (None, Some(rank)) => (Form::Cp(rank), &TaskPart::CP[..]),
        (None, None) => return None,
    };
    let named = |part: &TaskPart| format!("{}.{}.weight", op.name, part.word());
    Some(FactoredLayer {
        weight: format!("{}.weight", op.name),
        shape: [shape.n, shape.c, shape.r, shape.s],
        form,
        factors: match &options.factors {
            Some(names) => names.clone(),
            None => parts.iter().map(named).collect(),
        },
    })
}

/// The BatchNorm of a convolution, or the map of an affine op; `None` when the op has neither.
pub fn affine(network: &Network, id: OpId) -> Option<Affine> {
    let op = network.op(id);
    let channels = op.y.c;
    let batch_norm = |bn: &BatchNorm| Affine::BatchNorm {
        name: bn.name.clone(),
        eps: bn.eps,
        channels,
    };
    match &op.kind {
        OpKind::Conv(conv) => conv.options.bn.as_ref().map(batch_norm),
        OpKind::ScaleShift(options) => Some(match &options.bn {
            Some(bn) => batch_norm(bn),
            None => Affine::ScaleShift {
                scale: format!("{}.scale", op.name),
                shift: format!("{}.shift", op.name),
                channels,
            },
        }),
        _ => None,
    }
}
