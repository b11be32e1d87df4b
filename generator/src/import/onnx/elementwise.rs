//! Functions of single elements, and which activation function they are.
//!
//! Exporters spell one function in many ways: SiLU as `x * Sigmoid(x)`, hard swish as `x * Clip(x + 3, 0, 6) / 6`, GELU with `Erf` and three
//! scalars. So a chain of elementwise nodes is evaluated as a function of one number and compared with the known functions.

use super::attributes::Attributes;
use super::inputs::input;
use super::tensor::Tensor;
use crate::ir::{Activation, ActivationParameter, activate, erfc};

/// An elementwise operation on its operands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Elementwise {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    Max,
    Min,
    Neg,
    Reciprocal,
    Sqrt,
    Exp,
    Erf,
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid {
        alpha: f64,
        beta: f64,
    },
    Clip {
        min: f64,
        max: f64,
    },
    Activation(Activation),
}

impl Elementwise {
    /// The operation of a node; `None` if it is not elementwise. `constants` are the node's constant inputs.
    pub fn of(
        op: &str,
        constants: &[Option<&Tensor>],
        attributes: &Attributes<'_>,
    ) -> Option<Result<Self, String>> {
        let found = match op {
            "Add" => Self::Add,
            "Sum" if constants.len() == 2 => Self::Add,
            "Sub" => Self::Sub,
            "Mul" => Self::Mul,
            "Div" => Self::Div,
            "Pow" => Self::Pow,
            "Max" => Self::Max,
            "Min" => Self::Min,
            "Neg" => Self::Neg,
            "Reciprocal" => Self::Reciprocal,
            "Sqrt" => Self::Sqrt,
            "Exp" => Self::Exp,
            "Erf" => Self::Erf,
            "Relu" => Self::Activation(Activation::Relu),
            "Sigmoid" => Self::Activation(Activation::Sigmoid),
            "Tanh" => Self::Activation(Activation::Tanh),
            "HardSwish" => Self::Activation(Activation::HardSwish),
            "HardSigmoid" => Self::HardSigmoid {
                alpha: attributes.float("alpha").unwrap_or(0.2).into(),
                beta: attributes.float("beta").unwrap_or(0.5).into(),
            },
            "LeakyRelu" => {
                let slope = attributes.float("alpha").unwrap_or(0.01);
                if !slope.is_finite() {
                    return Some(Err(format!("its slope {slope} is not finite")));
                }
                Self::Activation(Activation::LeakyRelu {
                    slope: ActivationParameter::new(slope),
                })
            }
            "Gelu" => match attributes.string("approximate").as_deref() {
                None | Some("none") => Self::Activation(Activation::Gelu),
                Some("tanh") => Self::Activation(Activation::GeluTanh),
                Some(other) => {
                    return Some(Err(format!(
                        "`approximate` = {} is not supported",
                        other.escape_debug()
                    )));
                }
            },
            "Clip" => return Some(clip(constants, attributes)),
            _ => return None,
        };
        Some(Ok(found))
    }

    /// How many operands it has, which are the first inputs of its node; `None` if any number.
    pub fn operand_count(self) -> Option<usize> {
        match self {
            Self::Max | Self::Min => None,
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Pow => Some(2),
            Self::Neg | Self::Reciprocal | Self::Sqrt | Self::Exp | Self::Erf => Some(1),
            Self::HardSigmoid { .. } | Self::Clip { .. } | Self::Activation(_) => Some(1),
        }
    }

    /// The value for operands in order.
    pub fn apply(self, operands: &[f64]) -> f64 {
        let x = operands.first().copied().unwrap_or(f64::NAN);
        let y = operands.get(1).copied().unwrap_or(f64::NAN);
        match self {
            Self::Add => x + y,
            Self::Sub => x - y,
            Self::Mul => x * y,
            Self::Div => x / y,
            Self::Pow => x.powf(y),
            Self::Max => operands.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Self::Min => operands.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Neg => -x,
            Self::Reciprocal => 1.0 / x,
            Self::Sqrt => x.sqrt(),
            Self::Exp => x.exp(),
            Self::Erf => 1.0 - erfc(x),
            Self::HardSigmoid { alpha, beta } => (alpha * x + beta).clamp(0.0, 1.0),
            Self::Clip { min, max } => x.max(min).min(max),
            Self::Activation(function) => activate(function, x),
        }
    }
}

/// The bounds of `Clip`: attributes up to operator set 10, then inputs.
fn clip(constants: &[Option<&Tensor>], attributes: &Attributes<'_>) -> Result<Elementwise, String> {
    let bound = |index: usize, name: &str, default: f64| {
        if let Some(value) = attributes.float(name) {
            return Ok(f64::from(value));
        }
        match input(constants, index) {
            None => Ok(default),
            Some(tensor) => tensor.scalar().ok_or("its bounds are not single numbers"),
        }
    };
    Ok(Elementwise::Clip {
        min: bound(1, "min", f64::NEG_INFINITY)?,
        max: bound(2, "max", f64::INFINITY)?,
    })
}

/// What a function of one number computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Recognised {
    /// An activation function; [`Activation::None`] for x itself.
    Activation(Activation),
    /// `scale * x + shift`.
    Affine { scale: f64, shift: f64 },
}

/// A number beyond the values of a network's activations.
const FAR: f64 = 1e6;

/// The known function that equals `function` up to the rounding of its constants to fp32.
pub fn recognise(function: impl Fn(f64) -> f64) -> Option<Recognised> {
    // Numbers on both sides of every kink of the known functions, not symmetrical, and some far from zero.
    let near = (0..97).map(|index| -11.3 + 0.237 * f64::from(index));
    let points: Vec<f64> = near.chain([-83.0, -37.5, 41.5, 90.25]).collect();
    let values: Vec<f64> = points.iter().map(|&x| function(x)).collect();
    // Where a function is near zero, its error is that of larger values nearby. A function that is small everywhere has smaller errors.
    let size = values
        .iter()
        .fold(0.0, |size: f64, value| size.max(value.abs()));
    let floor = size.min(1.0);
    // Far away a bound is reached that other values of a network do not reach. Spellings by exponentials have no value there.
    let far = [-FAR, FAR].map(|x| (x, function(x)));
    let far = far.iter().filter(|(_, value)| !value.is_nan());
    let far: Vec<(f64, f64)> = far.copied().collect();
    let equals = |candidate: &dyn Fn(f64) -> f64| {
        let near = points.iter().copied().zip(values.iter().copied());
        near.chain(far.iter().copied()).all(|(x, value)| {
            let expected = candidate(x);
            (value - expected).abs() <= 2e-6 * (floor + expected.abs())
        })
    };
    let (low, high) = (function(-FAR), function(FAR));
    let slope = function(-2.0) / -2.0;
    let mut candidates = vec![Activation::None, Activation::Relu];
    if slope.is_finite() {
        let slope = ActivationParameter::new(slope as f32);
        candidates.push(Activation::LeakyRelu { slope });
    }
    // A bound beyond that in size is not reached by any activation of a network.
    let bound = |value: f64, none: f32, at: f64| if value == at { none } else { value as f32 };
    let (min, max) = (
        bound(low, f32::NEG_INFINITY, -FAR),
        bound(high, f32::INFINITY, FAR),
    );
    if !min.is_nan() && !max.is_nan() {
        let clip = Activation::Clip {
            min: ActivationParameter::new(0.0),
            max: ActivationParameter::new(0.0),
        };
        candidates.extend(clip.with_parameters(&[min, max]));
    }
    let plain = Activation::NAMES.iter().map(|&(_, activation)| activation);
    candidates.extend(plain.filter(|activation| activation.parameter_names().is_empty()));
    let found = candidates
        .into_iter()
        .find(|&candidate| equals(&|x| activate(candidate, x)));
    if let Some(found) = found {
        return Some(Recognised::Activation(found));
    }
    let shift = function(0.0);
    let scale = function(1.0) - shift;
    let is_affine = equals(&|x| scale * x + shift);
    is_affine.then_some(Recognised::Affine { scale, shift })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_activation_is_recognised() {
        for (name, activation) in Activation::NAMES {
            let found = recognise(|x| activate(activation, x));
            assert_eq!(found, Some(Recognised::Activation(activation)), "{name}");
        }
        for parameters in [
            [-1.0, 1.0],
            [f32::NEG_INFINITY, 0.5],
            [0.25, f32::INFINITY],
            // Outside of the values of small images.
            [0.0, 255.0],
            [-128.0, 127.0],
            [-3000.0, f32::INFINITY],
        ] {
            let (_, clip) = Activation::NAMES[2];
            let clip = clip.with_parameters(&parameters).unwrap();
            assert_eq!(
                recognise(|x| activate(clip, x)),
                Some(Recognised::Activation(clip))
            );
        }
    }

    #[test]
    fn other_spellings_are_recognised() {
        let sigmoid = |x: f64| activate(Activation::Sigmoid, x);
        let erf = |x: f64| 1.0 - erfc(x);
        let half = f64::from(std::f32::consts::FRAC_1_SQRT_2);
        let cube = f64::from(0.044_715_f32);
        let root = f64::from(0.797_884_6_f32);
        let found = |function: &dyn Fn(f64) -> f64| match recognise(function) {
            Some(Recognised::Activation(activation)) => activation.as_str(),
            Some(Recognised::Affine { .. }) => "affine",
            None => "unknown",
        };
        assert_eq!(found(&|x| x * sigmoid(x)), "silu");
        assert_eq!(
            found(&|x| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
            "hard_swish"
        );
        assert_eq!(
            found(&|x| x * (f64::from(1.0f32 / 6.0) * x + 0.5).clamp(0.0, 1.0)),
            "hard_swish"
        );
        assert_eq!(found(&|x| 0.5 * x * (1.0 + erf(x * half))), "gelu");
        assert_eq!(
            found(&|x| 0.5 * x * (1.0 + (root * (x + cube * x.powf(3.0))).tanh())),
            "gelu_tanh"
        );
        assert_eq!(found(&|x| 2.0 * x - 0.5), "affine");
        assert_eq!(found(&|x| x * x), "unknown");
        assert_eq!(found(&|x| (0.2 * x + 0.5).clamp(0.0, 1.0)), "unknown");
        assert_eq!(found(&|x| x * x.exp().ln_1p().tanh()), "unknown");
        // Small values are not taken for zeros.
        assert_eq!(found(&|x| 1e-7 * x * sigmoid(x)), "unknown");
        assert_eq!(found(&|x| 1e-7 * x), "affine");
    }
}
