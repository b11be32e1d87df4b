//! What the values of each slot are made from.

use std::fmt;
use tdc_runtime::WeightSlot;

/// What one slot of the weight file is made from. Plain data, made by the planner.
///
/// For a convolution followed by affines, `y = a (W x + b) + c` for each output channel, the slot holds `a W` and `a b + c`.
/// Of the slots of a layer in Tucker or CP form only the last one carries `bias` and `fold`.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRecipe {
    /// Name, layout and bias length of the slot; `layout.source` is the weight's shape [O, I/groups, R, S].
    pub slot: WeightSlot,
    /// Where the weight comes from; none for an op without weights, which may still have a prologue.
    pub weight: Option<WeightSource>,
    /// Tensor of the layer's own bias, shape `[O]`.
    pub bias: Option<String>,
    /// Affines over the output channels behind the layer, folded in this order into weight and bias.
    pub fold: Vec<ScaleShiftSource>,
    /// Affine over the input channels before the layer; its scale and shift are stored behind the weights.
    pub prologue: Option<ScaleShiftSource>,
}

/// Where a weight comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WeightSource {
    /// A tensor of the checkpoint with the slot's source shape [O, I/groups, R, S].
    Tensor(String),
    /// A linear layer's matrix [O, I * R * S]: with R = S = 1 the common one, else one that reads a flattened I x R x S image.
    Linear(String),
    /// One of the factors of a layer in Tucker or CP form.
    Factor {
        /// The whole layer, the same in the recipes of all its parts.
        layer: FactorizedLayer,
        /// Which of them.
        role: FactorRole,
    },
}

/// One of the convolutions that a layer in Tucker form (TDC paper, eqs. 2-4) or in CP form (Reustle et al., eq. 7) consists of, with
/// its weight's shape in OIHW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactorRole {
    /// [D1, I, 1, 1]: U1 transposed, eq. 2; or [K, I, 1, 1] of CP rank K.
    First,
    /// [D2, D1, R, S]: the core, eq. 3.
    Core,
    /// [K, 1, R, 1]: a vertical filter for each of the K channels.
    Vertical,
    /// [K, 1, 1, S]: a horizontal one.
    Horizontal,
    /// [O, D2, 1, 1]: U2, eq. 4; or [O, K, 1, 1].
    Last,
}

/// The form that factors have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decomposition {
    /// Tucker ranks [D1, D2]: D1 of the input channels (weight dimension 1), D2 of the output channels (dimension 0).
    Tucker([u32; 2]),
    /// CP rank K: the weight is a sum of so many outer products of four vectors.
    Cp(u32),
}

impl Decomposition {
    /// Its factors in order.
    pub fn roles(self) -> &'static [FactorRole] {
        use FactorRole::{Core, First, Horizontal, Last, Vertical};
        match self {
            Self::Tucker(_) => &[First, Core, Last],
            Self::Cp(_) => &[First, Vertical, Horizontal, Last],
        }
    }
}

impl fmt::Display for Decomposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tucker([d1, d2]) => write!(f, "ranks [{d1}, {d2}]"),
            Self::Cp(rank) => write!(f, "CP rank {rank}"),
        }
    }
}

/// A convolution whose weight is given by factors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FactorizedLayer {
    /// Tensor of the dense weight.
    pub weight: String,
    /// Shape of the dense weight: O, I, R, S.
    pub shape: [u32; 4],
    /// Form and ranks.
    pub decomposition: Decomposition,
    /// Tensors of the trained factors in the order of [`Decomposition::roles`], such as `layer1.0.conv1.first.weight`. They are taken when
    /// the checkpoint holds all of them; when it holds none, the dense weight is factorised.
    pub factors: Vec<String>,
}

/// A scale and a shift for each channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ScaleShiftSource {
    /// Batch normalisation in inference: `weight * (x - running_mean) / sqrt(running_var + eps) + bias`.
    BatchNorm {
        /// Tensors are `{name}.running_mean`, `{name}.running_var` and, where present, `{name}.weight` (else 1) and
        /// `{name}.bias` (else 0).
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
}

impl FactorizedLayer {
    /// The name of the layer: its dense weight's without `.weight`.
    pub fn name(&self) -> &str {
        self.weight.strip_suffix(".weight").unwrap_or(&self.weight)
    }

    /// Shape of a part's weight, OIHW.
    pub fn factor_shape(&self, role: FactorRole) -> [u32; 4] {
        let [o, i, r, s] = self.shape;
        let [inner, outer] = match self.decomposition {
            Decomposition::Tucker(ranks) => ranks,
            Decomposition::Cp(rank) => [rank, rank],
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
        }
    }

    /// How a message calls it.
    fn label(&self) -> &str {
        match self {
            Self::BatchNorm { name, .. } => name,
            Self::Tensors { scale, .. } => scale,
        }
    }
}

impl SlotRecipe {
    /// Every way in which the parts of the recipe contradict one another.
    pub(crate) fn inconsistencies(&self) -> Vec<String> {
        let mut found = Vec::new();
        let layout = &self.slot.layout;
        let (outputs, bias_len) = (layout.source[0], self.slot.bias_len);
        match &self.weight {
            None => {
                if layout.source != [0; 4] {
                    found.push(format!(
                        "it has no weight, but its layout wants one of shape {:?}",
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

fn factor_inconsistencies(
    layer: &FactorizedLayer,
    role: FactorRole,
    source: [u32; 4],
) -> Vec<String> {
    let mut found = Vec::new();
    let [o, i, ..] = layer.shape;
    match layer.decomposition {
        Decomposition::Tucker([d1, d2]) if d1 == 0 || d1 > i || d2 == 0 || d2 > o => {
            found.push(format!(
                "the ranks [{d1}, {d2}] of `{}` are not in 1..={i} and 1..={o}",
                layer.name()
            ));
        }
        Decomposition::Cp(0) => found.push(format!("the CP rank of `{}` is 0", layer.name())),
        Decomposition::Tucker(_) | Decomposition::Cp(_) => {}
    }
    let roles = layer.decomposition.roles();
    if layer.factors.len() != roles.len() || !roles.contains(&role) {
        found.push(format!(
            "`{}` has {} factors and this is the {role:?} one, but with {} there are {roles:?}",
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
