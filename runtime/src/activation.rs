//! Activation functions.

use std::fmt;

/// An activation function. Its definition is that of PyTorch's function of the same name.
///
/// An input of NaN gives NaN, except for those that limit a value: `Relu`, `Clip` and `HardSigmoid` give a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Activation {
    /// x.
    #[default]
    None,
    /// max(0, x).
    Relu,
    /// min(max(x, min), max). ReLU6 is the one from 0 to 6.
    Clip {
        /// The least value; may be minus infinity.
        min: ActivationParameter,
        /// The largest value; may be infinity.
        max: ActivationParameter,
    },
    /// x if it is positive, else slope * x.
    LeakyRelu {
        /// The factor of negative values; finite.
        slope: ActivationParameter,
    },
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// min(max(x + 3, 0), 6) / 6.
    HardSigmoid,
    /// x * sigmoid(x). NaN for minus infinity.
    Silu,
    /// x * hard_sigmoid(x). NaN for minus infinity.
    HardSwish,
    /// The hyperbolic tangent.
    Tanh,
    /// x * Phi(x) with the distribution function Phi of the standard normal distribution. NaN for minus infinity.
    Gelu,
    /// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, an approximation of `Gelu`. NaN for minus infinity.
    GeluTanh,
}

impl Activation {
    /// All activation functions by their names in configs. Those with parameters have examples of them.
    pub const NAMES: [(&'static str, Self); 11] = [
        ("none", Self::None),
        ("relu", Self::Relu),
        (
            "clip",
            Self::Clip {
                min: ActivationParameter::new(0.0),
                max: ActivationParameter::new(6.0),
            },
        ),
        (
            "leaky_relu",
            Self::LeakyRelu {
                slope: ActivationParameter::new(0.1),
            },
        ),
        ("sigmoid", Self::Sigmoid),
        ("hard_sigmoid", Self::HardSigmoid),
        ("silu", Self::Silu),
        ("hard_swish", Self::HardSwish),
        ("tanh", Self::Tanh),
        ("gelu", Self::Gelu),
        ("gelu_tanh", Self::GeluTanh),
    ];

    /// Its name in configs.
    pub fn as_str(self) -> &'static str {
        let is_same = |known: &Self| std::mem::discriminant(known) == std::mem::discriminant(&self);
        let named = Self::NAMES.iter().find(|(_, known)| is_same(known));
        named.map_or("", |(name, _)| name)
    }

    /// Its name in sentences.
    pub const fn title(self) -> &'static str {
        match self {
            Self::None => "identity",
            Self::Relu => "ReLU",
            Self::Clip { .. } => "clip",
            Self::LeakyRelu { .. } => "leaky ReLU",
            Self::Sigmoid => "sigmoid",
            Self::HardSigmoid => "hard sigmoid",
            Self::Silu => "SiLU",
            Self::HardSwish => "hard swish",
            Self::Tanh => "tanh",
            Self::Gelu => "GELU",
            Self::GeluTanh => "GELU by tanh",
        }
    }

    /// The names of its parameters.
    pub const fn parameter_names(self) -> &'static [&'static str] {
        match self {
            Self::Clip { .. } => &["min", "max"],
            Self::LeakyRelu { .. } => &["slope"],
            _ => &[],
        }
    }

    /// Its parameters.
    pub fn parameters(self) -> Vec<f32> {
        match self {
            Self::Clip { min, max } => vec![min.get(), max.get()],
            Self::LeakyRelu { slope } => vec![slope.get()],
            _ => Vec::new(),
        }
    }

    /// The same function with other parameters; `None` if it cannot have them.
    pub fn with_parameters(self, parameters: &[f32]) -> Option<Self> {
        match (self, parameters) {
            (Self::Clip { .. }, &[min, max]) => {
                let is_range = min <= max && min < f32::INFINITY && max > f32::NEG_INFINITY;
                is_range.then(|| Self::Clip {
                    min: ActivationParameter::new(min),
                    max: ActivationParameter::new(max),
                })
            }
            (Self::LeakyRelu { .. }, &[slope]) => slope.is_finite().then(|| Self::LeakyRelu {
                slope: ActivationParameter::new(slope),
            }),
            (_, parameters) => {
                let fits = self.parameter_names().is_empty() && parameters.is_empty();
                fits.then_some(self)
            }
        }
    }

    /// This activation followed by another one, if one activation computes exactly both.
    pub const fn then(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::None, next) => Some(next),
            (first, Self::None) => Some(first),
            (Self::Relu, Self::Relu) => Some(Self::Relu),
            _ => None,
        }
    }
}

/// A parameter of an activation function: any number but NaN. There is one zero, so that equal parameters are the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ActivationParameter(u32);

impl ActivationParameter {
    /// The parameter of a value.
    ///
    /// # Panics
    /// If it is NaN.
    pub const fn new(value: f32) -> Self {
        assert!(!value.is_nan(), "a parameter of an activation is NaN");
        // -0.0 + 0.0 is 0.0.
        Self((value + 0.0).to_bits())
    }

    /// Its value.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

impl fmt::Debug for ActivationParameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ActivationParameter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f32(self.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activation_has_its_name_and_its_number_of_parameters() {
        for (name, activation) in Activation::NAMES {
            assert_eq!(activation.as_str(), name);
            let parameters = activation.parameters();
            assert_eq!(parameters.len(), activation.parameter_names().len());
            assert_eq!(activation.with_parameters(&parameters), Some(activation));
            assert_eq!(activation.with_parameters(&[1.0, 2.0, 3.0]), None);
        }
    }

    #[test]
    fn parameters_are_checked() {
        let [_, _, (_, clip), (_, leaky), ..] = Activation::NAMES;
        assert!(clip.with_parameters(&[f32::NEG_INFINITY, 2.0]).is_some());
        assert!(clip.with_parameters(&[-1.0, f32::INFINITY]).is_some());
        assert_eq!(clip.with_parameters(&[2.0, 1.0]), None);
        assert_eq!(clip.with_parameters(&[f32::NAN, 1.0]), None);
        assert_eq!(clip.with_parameters(&[f32::INFINITY; 2]), None);
        assert_eq!(
            clip.with_parameters(&[-0.0, 1.0]),
            clip.with_parameters(&[0.0, 1.0])
        );
        assert_eq!(leaky.with_parameters(&[f32::INFINITY]), None);
    }

    #[test]
    fn only_exact_pairs_are_merged() {
        for (_, activation) in Activation::NAMES {
            assert_eq!(Activation::None.then(activation), Some(activation));
            assert_eq!(activation.then(Activation::None), Some(activation));
        }
        assert_eq!(
            Activation::Relu.then(Activation::Relu),
            Some(Activation::Relu)
        );
        assert_eq!(Activation::Sigmoid.then(Activation::Relu), None);
        assert_eq!(Activation::Relu.then(Activation::Tanh), None);
    }
}
