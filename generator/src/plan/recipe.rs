//! Recipes: the checkpoint tensors that each slot of a network's weight file is packed from.

use super::Parameters;
use super::graph::{InnerLayer, WeightPart};
use super::network::{LayerPlan, NetworkPlan};
use super::sections::WeightSection;
use crate::ir::{BatchNorm, ChannelNorm, Network, OpId, OpKind};
use tdc_runtime::{Decomposition, FactorRole, WeightLayout, WeightSlot};
use tdc_weights::{FactorizedLayer, ScaleShiftSource, SlotRecipe, WeightSource};

/// One recipe for each slot of a section of a weight file, in order. The tensors have the names that PyTorch gives them in a checkpoint:
/// `<layer>.weight`, `<layer>.bias`, `<bn>.running_mean` and so on; factors `<layer>.first.weight` and so on, unless the config names them.
pub fn section_recipes(network: &Network, section: &WeightSection<'_>) -> Vec<SlotRecipe> {
    let mut all: Vec<Option<SlotRecipe>> = vec![None; section.file().iter().count()];
    for plan in &section.plans {
        for (slot, recipe) in plan_recipes(network, plan) {
            all[slot].get_or_insert(recipe);
        }
    }
    all.into_iter().flatten().collect()
}

/// The same for the weights of a plan that shares them with no other one.
pub fn recipes(network: &Network, plan: &NetworkPlan) -> Vec<SlotRecipe> {
    let plans = vec![plan];
    section_recipes(network, &WeightSection { plans })
}

/// The slots that a plan reads, each with its recipe.
fn plan_recipes(network: &Network, plan: &NetworkPlan) -> Vec<(usize, SlotRecipe)> {
    let slots: Vec<_> = plan.weights.iter().map(|(slot, _)| slot.clone()).collect();
    let of_layer = |layer: &LayerPlan| {
        let parameters = &layer.parameters;
        let weights = parameters.weights();
        let recipe = |(index, &slot): (usize, &usize)| {
            let source = weights.get(index).copied();
            let op = source.map(|(op, _)| op);
            let carries_bias = parameters.carries_bias(index);
            let fold = parameters.fold.iter().filter(|_| carries_bias);
            let before = parameters.scale_shift;
            let before = before.filter(|_| parameters.carries_prologue(index));
            let own = SlotRecipe {
                slot: slots[slot].clone(),
                weight: source.and_then(|(op, part)| {
                    let mut inner = parameters.inner.iter();
                    match inner.find(|inner| inner.layer == op) {
                        Some(inner) => inner_weight(network, inner, part),
                        None => weight(network, op, part),
                    }
                }),
                bias: op.filter(|_| carries_bias).and_then(|op| bias(network, op)),
                fold: folded(network, fold),
                prologue: before.and_then(|op| scale_shift_source(network, op)),
            };
            let recipe = match (&parameters.projection, parameters.merged.is_empty()) {
                (None, true) => own,
                (None, false) => {
                    let others = parameters.merged.iter();
                    let others = others.map(|merged| (merged.layer, &merged.fold));
                    of_layers(network, own, parameters, others, WeightSource::Merged)
                }
                (Some(projection), _) => {
                    let other = std::iter::once((projection.layer, &projection.fold));
                    of_layers(network, own, parameters, other, WeightSource::Added)
                }
            };
            (slot, recipe)
        };
        let recipes = layer.slots.iter().enumerate().map(recipe);
        recipes.collect::<Vec<_>>()
    };
    plan.layers.iter().flat_map(of_layer).collect()
}

/// The recipe of a slot with the weight of a convolution or linear layer and its bias, if it has one or ops are folded into it.
fn layer_recipe(network: &Network, id: OpId, fold: &[OpId]) -> Option<SlotRecipe> {
    let op = network.op(id);
    let (shape, has_bias) = match &op.kind {
        OpKind::Conv(conv) => (conv.shape.weight(), conv.options.bias),
        OpKind::Linear(linear) => {
            let options = &linear.options;
            ([options.n, linear.c, 1, 1], options.bias)
        }
        _ => return None,
    };
    let has_bias = has_bias || !fold.is_empty();
    Some(SlotRecipe {
        slot: WeightSlot {
            name: op.name.clone(),
            layout: WeightLayout::oihw(shape),
            bias_len: if has_bias { shape[0] } else { 0 },
        },
        weight: weight(network, id, WeightPart::Whole),
        bias: bias(network, id),
        fold: folded(network, fold),
        prologue: None,
    })
}

/// The recipe of a slot for several layers, each with the ops folded into it: `own`, but with weight and bias of all of them.
fn of_layers<'a>(
    network: &Network,
    own: SlotRecipe,
    parameters: &'a Parameters,
    others: impl Iterator<Item = (OpId, &'a Vec<OpId>)>,
    source: fn(Vec<SlotRecipe>) -> WeightSource,
) -> SlotRecipe {
    let first = parameters.layer.map(|layer| (layer, &parameters.fold));
    let all = first.into_iter().chain(others);
    let layers = all.filter_map(|(id, fold)| layer_recipe(network, id, fold));
    SlotRecipe {
        weight: Some(source(layers.collect())),
        bias: None,
        fold: Vec::new(),
        ..own
    }
}

fn folded<'a>(network: &Network, ops: impl IntoIterator<Item = &'a OpId>) -> Vec<ScaleShiftSource> {
    let ops = ops.into_iter();
    ops.filter_map(|&op| scale_shift_source(network, op))
        .collect()
}

fn weight(network: &Network, id: OpId, part: WeightPart) -> Option<WeightSource> {
    let op = network.op(id);
    let name = format!("{}.weight", op.name);
    match (&op.kind, part) {
        (OpKind::Linear(_), WeightPart::Whole) => Some(WeightSource::Linear(name)),
        (OpKind::ConvTranspose(layer), _) => Some(WeightSource::Transposed {
            name,
            groups: layer.options.groups,
        }),
        (OpKind::PRelu, _) => Some(WeightSource::Channels(name)),
        (OpKind::Conv(_), WeightPart::Whole) => Some(WeightSource::Tensor(name)),
        (OpKind::Conv(_) | OpKind::Linear(_), WeightPart::Factor(factor)) => {
            Some(WeightSource::Factor {
                layer: factorized_layer(network, id)?,
                role: factor,
            })
        }
        _ => None,
    }
}

/// A weight of an inner layer: that of the layer itself, or its bias.
fn inner_weight(network: &Network, inner: &InnerLayer, part: WeightPart) -> Option<WeightSource> {
    let layer = Box::new(layer_recipe(network, inner.layer, &inner.fold)?);
    Some(match part {
        WeightPart::Bias => WeightSource::BiasOf(layer),
        _ => WeightSource::WeightOf(layer),
    })
}

/// Name of the layer's own bias.
fn bias(network: &Network, id: OpId) -> Option<String> {
    let op = network.op(id);
    let has_bias = match &op.kind {
        OpKind::Conv(conv) => conv.options.bias,
        OpKind::Linear(linear) => linear.options.bias,
        OpKind::ConvTranspose(layer) => layer.options.bias,
        _ => false,
    };
    has_bias.then(|| format!("{}.bias", op.name))
}

/// The names and shapes of a convolution or linear layer with ranks in the checkpoint; `None` for any other op.
pub fn factorized_layer(network: &Network, id: OpId) -> Option<FactorizedLayer> {
    let op = network.op(id);
    let (shape, decomposition, factors) = match &op.kind {
        OpKind::Conv(conv) => {
            let (shape, options) = (&conv.shape, &conv.options);
            let tucker = options.ranks.map(Decomposition::Tucker);
            let decomposition = tucker
                .or(options.cp_rank.map(Decomposition::Cp))
                .or(options.rank.map(Decomposition::LowRank))?;
            let shape = [shape.n, shape.c, shape.r, shape.s];
            (shape, decomposition, &options.factors)
        }
        OpKind::Linear(linear) => {
            let options = &linear.options;
            let decomposition = Decomposition::LowRank(options.rank?);
            ([options.n, linear.c, 1, 1], decomposition, &options.factors)
        }
        _ => return None,
    };
    let named = |factor: &FactorRole| format!("{}.{}.weight", op.name, factor.as_str());
    Some(FactorizedLayer {
        weight: format!("{}.weight", op.name),
        shape,
        decomposition,
        factors: match factors {
            Some(names) => names.clone(),
            None => decomposition.factors().iter().map(named).collect(),
        },
    })
}

/// Scale and shift of the BatchNorm of a convolution, of a scale_shift op or of a layer norm; `None` if the op has neither.
pub fn scale_shift_source(network: &Network, id: OpId) -> Option<ScaleShiftSource> {
    let op = network.op(id);
    let channels = op.y.c;
    let batch_norm = |bn: &BatchNorm| ScaleShiftSource::BatchNorm {
        name: bn.name.clone(),
        eps: bn.eps,
        channels,
    };
    match &op.kind {
        OpKind::Input(encoding) => {
            let (scale, shift) = encoding.scale_shift(channels);
            Some(ScaleShiftSource::Constants {
                name: op.name.clone(),
                scale,
                shift,
            })
        }
        OpKind::Conv(conv) => conv.options.bn.as_ref().map(batch_norm),
        OpKind::ScaleShift(options) => Some(match &options.bn {
            Some(bn) => batch_norm(bn),
            None => ScaleShiftSource::Tensors {
                scale: format!("{}.scale", op.name),
                shift: format!("{}.shift", op.name),
                channels,
            },
        }),
        OpKind::ChannelNorm(ChannelNorm::LayerNorm { .. }) => Some(ScaleShiftSource::Tensors {
            scale: format!("{}.weight", op.name),
            shift: format!("{}.bias", op.name),
            channels,
        }),
        _ => None,
    }
}
