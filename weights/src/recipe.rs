//! Recipes: from which tensors the values of each slot are computed.

use tdc_runtime::{Decomposition, FactorRole, WeightSlot};

/// The shape that a transposed convolution's weight has in a checkpoint, [I, O / groups, R, S], from that of its slot.
pub(crate) fn transposed_shape([o, i, r, s]: [u32; 4], groups: u32) -> [u32; 4] {
    [i.saturating_mul(groups), o / groups, r, s]
}

/// The sources of one slot of the weight file; plain data from the planner.
///
/// For a convolution followed by scales and shifts, `y = a (W x + b) + c` for each output channel, the slot
/// has `a W` and `a b + c`. Only the last slot of a factorised layer has `bias` and `fold`.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRecipe {
    /// Name, layout and bias length of the slot; `layout.source` is the weight's shape [O, I/groups, R, S].
    pub slot: WeightSlot,
    /// Source of the weight; `None` for an op without weights, which may still have a prologue.
    pub weight: Option<WeightSource>,
    /// Tensor of the layer's bias, shape `[O]`.
    pub bias: Option<String>,
    /// Scales and shifts of the output channels after the layer, folded into weight and bias in this order.
    pub fold: Vec<ScaleShiftSource>,
    /// Scale and shift of the input channels before the layer; stored after the weights.
    pub prologue: Option<ScaleShiftSource>,
}

/// The source of a weight.
#[derive(Debug, Clone, PartialEq)]
pub enum WeightSource {
    /// A tensor of the checkpoint with the shape of the slot's source, [O, I/groups, R, S].
    Tensor(String),
    /// The matrix [O, I * R * S] of a linear layer. R = S = 1 is the usual one; otherwise it reads a
    /// flattened I x R x S image.
    Linear(String),
    /// A tensor of a transposed convolution with the shape [I, O / groups, R, S]; the slot's source is [O, I / groups, R, S].
    Transposed {
        /// Its name.
        name: String,
        /// Groups of channels, a divisor of both numbers of channels.
        groups: u32,
    },
    /// One number for each of O channels, of a source [O, 1, 1, 1].
    Channels(String),
    /// A factor of a factorised layer.
    Factor {
        /// The layer, the same in the recipes of all its factors.
        layer: FactorizedLayer,
        /// The role of the factor.
        role: FactorRole,
    },
    /// The weight of a layer whose bias another slot has.
    WeightOf(Box<SlotRecipe>),
    /// The bias of a layer, as a weight of the source [O, 1, 1, 1].
    BiasOf(Box<SlotRecipe>),
    /// The weights of several layers, one after the other along O. Each has its own bias and folds; a layer without them has a bias of
    /// zeros if the slot has one.
    Merged(Vec<SlotRecipe>),
    /// The weights of several 1x1 layers whose outputs are added, side by side along I. Each has its own bias and folds; biases are added.
    Added(Vec<SlotRecipe>),
}

/// A convolution or linear layer whose weight is given by factors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FactorizedLayer {
    /// Tensor of the dense weight.
    pub weight: String,
    /// Shape of the dense weight: O, I, R, S; R = S = 1 for a low-rank layer.
    pub shape: [u32; 4],
    /// Decomposition and ranks.
    pub decomposition: Decomposition,
    /// Tensors of the trained factors in the order of [`Decomposition::factors`], such as
    /// `layer1.0.conv1.first.weight`. They are used if the checkpoint has all of them; if it has none, the
    /// dense weight is factorised.
    pub factors: Vec<String>,
}

/// A scale and a shift for each channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ScaleShiftSource {
    /// BatchNorm at inference: `weight * (x - running_mean) / sqrt(running_var + eps) + bias`.
    BatchNorm {
        /// Tensors are `{name}.running_mean`, `{name}.running_var` and, if present, `{name}.weight` (else 1)
        /// and `{name}.bias` (else 0).
        name: String,
        /// Added to the variance.
        eps: f64,
        /// Length of each tensor.
        channels: u32,
    },
    /// `scale * x + shift`.
    Tensors {
        /// Tensor of the scales.
        scale: String,
        /// Tensor of the shifts.
        shift: String,
        /// Length of each tensor.
        channels: u32,
    },
    /// `scale * x + shift` with numbers that are in no checkpoint.
    Constants {
        /// Name in messages.
        name: String,
        /// Of each channel.
        scale: Vec<f64>,
        /// As long as `scale`.
        shift: Vec<f64>,
    },
}

impl FactorizedLayer {
    /// The name of the layer: that of its dense weight without `.weight`.
    pub fn name(&self) -> &str {
        self.weight.strip_suffix(".weight").unwrap_or(&self.weight)
    }

    /// Shape of a factor's weight, OIHW.
    pub fn factor_shape(&self, role: FactorRole) -> [u32; 4] {
        let [o, i, r, s] = self.shape;
        let [inner, outer] = match self.decomposition {
            Decomposition::Tucker(ranks) => ranks,
            Decomposition::Cp(rank) | Decomposition::LowRank(rank) => [rank, rank],
        };
        match role {
            FactorRole::First => [inner, i, 1, 1],
            FactorRole::Core => [outer, inner, r, s],
            FactorRole::Vertical => [inner, 1, r, 1],
            FactorRole::Horizontal => [inner, 1, 1, s],
            FactorRole::Last => [o, outer, 1, 1],
        }
    }
}

impl ScaleShiftSource {
    /// Number of channels.
    pub fn channels(&self) -> u32 {
        match self {
            Self::BatchNorm { channels, .. } | Self::Tensors { channels, .. } => *channels,
            Self::Constants { scale, .. } => scale.len() as u32,
        }
    }

    /// Its name in messages.
    fn label(&self) -> &str {
        match self {
            Self::BatchNorm { name, .. } | Self::Constants { name, .. } => name,
            Self::Tensors { scale, .. } => scale,
        }
    }
}

impl SlotRecipe {
    /// The recipe, after those of its merged or added layers.
    pub(crate) fn with_layers(&self) -> impl Iterator<Item = &Self> {
        let layers = match &self.weight {
            Some(WeightSource::Merged(layers) | WeightSource::Added(layers)) => &layers[..],
            Some(WeightSource::WeightOf(layer) | WeightSource::BiasOf(layer)) => {
                std::slice::from_ref(&**layer)
            }
            _ => &[],
        };
        layers.iter().chain(std::iter::once(self))
    }

    /// All contradictions in the recipe.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        let layout = &self.slot.layout;
        let (outputs, bias_len) = (layout.source[0], self.slot.bias_len);
        match &self.weight {
            None => {
                if layout.source != [0; 4] {
                    found.push(format!(
                        "it has no weight, but its layout requires one of shape {:?}",
                        layout.source
                    ));
                }
                if self.bias.is_some() || !self.fold.is_empty() || bias_len != 0 {
                    found.push("it has a bias or a fold, but no weight".to_owned());
                }
            }
            Some(source) => {
                if layout.source.contains(&0) {
                    found.push(format!(
                        "it has a weight, but its layout's source {:?} is empty",
                        layout.source
                    ));
                }
                if let WeightSource::Factor { layer, role } = source {
                    found.extend(factor_inconsistencies(layer, *role, layout.source));
                }
                if let WeightSource::Transposed { name, groups } = source
                    && (*groups == 0 || !outputs.is_multiple_of(*groups))
                {
                    found.push(format!(
                        "`{name}` has {groups} groups, which do not divide {outputs} output channels"
                    ));
                }
                if let WeightSource::Merged(layers) | WeightSource::Added(layers) = source {
                    let axis = match source {
                        WeightSource::Merged(_) => 0,
                        _ => 1,
                    };
                    found.extend(layers_inconsistencies(layers, &self.slot, axis));
                    if self.bias.is_some() || !self.fold.is_empty() {
                        found.push("it has several layers; bias and folds are theirs".to_owned());
                    }
                }
                let part = match source {
                    WeightSource::WeightOf(layer) => Some(layer.slot.layout.source),
                    WeightSource::BiasOf(layer) => Some([layer.slot.bias_len, 1, 1, 1]),
                    _ => None,
                };
                let has_own = self.bias.is_some() || !self.fold.is_empty() || bias_len != 0;
                if part.is_some() && has_own {
                    found.push(
                        "it has a part of a layer; bias and folds are the layer's".to_owned(),
                    );
                }
                if let Some(part) = part
                    && part != layout.source
                {
                    found.push(format!(
                        "its layer has a weight or bias of shape {part:?}, its layout's source {:?}",
                        layout.source
                    ));
                }
                let needs_bias = self.bias.is_some() || !self.fold.is_empty();
                if bias_len != outputs && (bias_len != 0 || needs_bias) {
                    found.push(format!(
                        "its bias_len is {bias_len}, but it has {outputs} output channels"
                    ));
                }
            }
        }
        for scale_shift in &self.fold {
            if self.weight.is_some() && scale_shift.channels() != outputs {
                found.push(format!(
                    "`{}` has {} channels and is folded into {outputs} output channels",
                    scale_shift.label(),
                    scale_shift.channels()
                ));
            }
        }
        let prologue = self.prologue.as_ref().map_or(0, ScaleShiftSource::channels);
        if prologue != layout.prologue_channels {
            found.push(format!(
                "its prologue has {prologue} channels, its layout {}",
                layout.prologue_channels
            ));
        }
        found
    }
}

/// Contradictions in a slot with the weights of several layers, one after the other along the axis.
fn layers_inconsistencies(layers: &[SlotRecipe], slot: &WeightSlot, axis: usize) -> Vec<String> {
    let mut found = Vec::new();
    let channels = layers.iter().fold(0u32, |sum, layer| {
        sum.saturating_add(layer.slot.layout.source[axis])
    });
    if channels != slot.layout.source[axis] {
        found.push(format!(
            "its layers have {channels} {} channels, its layout's source {:?}",
            ["output", "input"][axis],
            slot.layout.source
        ));
    }
    for layer in layers {
        let name = &layer.slot.name;
        let mut expected = slot.layout.source;
        expected[axis] = layer.slot.layout.source[axis];
        if layer.slot.layout.source != expected {
            found.push(format!(
                "`{name}` has shape {:?}, its layout's source {:?}",
                layer.slot.layout.source, slot.layout.source
            ));
        }
        if layer.slot.bias_len != 0 && slot.bias_len == 0 {
            found.push(format!("`{name}` has a bias, but its bias_len is 0"));
        }
        if layer.prologue.is_some() {
            found.push(format!("`{name}` has a prologue of its own"));
        }
    }
    found
}

fn factor_inconsistencies(
    layer: &FactorizedLayer,
    role: FactorRole,
    source: [u32; 4],
) -> Vec<String> {
    let mut found = Vec::new();
    let [o, i, r, s] = layer.shape;
    match layer.decomposition {
        Decomposition::Tucker([d1, d2]) if d1 == 0 || d1 > i || d2 == 0 || d2 > o => {
            found.push(format!(
                "the ranks [{d1}, {d2}] of `{}` are not in 1..={i} and 1..={o}",
                layer.name()
            ));
        }
        Decomposition::Cp(0) => found.push(format!("the CP rank of `{}` is 0", layer.name())),
        Decomposition::LowRank(_) if [r, s] != [1, 1] => found.push(format!(
            "the filter of `{}` is {r}x{s}; only that of a 1x1 convolution or linear layer has a rank",
            layer.name()
        )),
        Decomposition::LowRank(rank) if rank == 0 || rank > o.min(i) => found.push(format!(
            "the rank {rank} of `{}` is not in 1..={}",
            layer.name(),
            o.min(i)
        )),
        Decomposition::Tucker(_) | Decomposition::Cp(_) | Decomposition::LowRank(_) => {}
    }
    let roles = layer.decomposition.factors();
    if layer.factors.len() != roles.len() || !roles.contains(&role) {
        found.push(format!(
            "`{}` has {} factors, and this one is {role:?}; with {} the factors are {roles:?}",
            layer.name(),
            layer.factors.len(),
            layer.decomposition
        ));
    }
    let expected = layer.factor_shape(role);
    if expected != source {
        found.push(format!(
            "its layout's source is {source:?}, but the {role:?} factor of `{}` has shape {expected:?}",
            layer.name()
        ));
    }
    found
}
