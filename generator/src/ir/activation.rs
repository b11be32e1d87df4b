//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
pub use tdc_runtime::{Activation, ActivationParameter};

/// The value of an activation function in float64.
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::None => x,
        Activation::Relu => x.max(0.0),
        Activation::Clip { min, max } => x.max(min.get().into()).min(max.get().into()),
        Activation::LeakyRelu { slope } if x < 0.0 => f64::from(slope.get()) * x,
        Activation::LeakyRelu { .. } => x,
        Activation::Sigmoid => sigmoid(x),
        Activation::HardSigmoid => hard_sigmoid(x),
        Activation::Silu => x * sigmoid(x),
        Activation::HardSwish => x * hard_sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::Gelu => 0.5 * x * erfc(-x * FRAC_1_SQRT_2),
        Activation::GeluTanh => {
            let inner = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + inner.tanh())
        }
    }
}

/// Whether kernels compute the function with an exponential and a division, which take several times as long as other instructions.
pub(crate) fn is_transcendental(activation: Activation) -> bool {
    match activation {
        Activation::None
        | Activation::Relu
        | Activation::Clip { .. }
        | Activation::LeakyRelu { .. }
        | Activation::HardSigmoid
        | Activation::HardSwish => false,
        Activation::Sigmoid
        | Activation::Silu
        | Activation::Tanh
        | Activation::Gelu
        | Activation::GeluTanh => true,
    }
}

/// Whether the magnitude of the function is at most that of its argument, for every argument.
pub(crate) fn never_grows(activation: Activation) -> bool {
    match activation {
        Activation::None
        | Activation::Relu
        | Activation::Silu
        | Activation::HardSwish
        | Activation::Tanh
        | Activation::Gelu
        | Activation::GeluTanh => true,
        Activation::Clip { min, max } => min.get() <= 0.0 && max.get() >= 0.0,
        Activation::LeakyRelu { slope } => slope.get().abs() <= 1.0,
        Activation::Sigmoid | Activation::HardSigmoid => false,
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

/// The complementary error function, `1 - erf(x)`, with a relative error below 1e-10.
pub(crate) fn erfc(x: f64) -> f64 {
    // Far from zero: the continued fraction of Laplace, evaluated from its end.
    if x > 3.0 {
        let fraction = (1..=60)
            .rev()
            .fold(x, |tail, k| x + 0.5 * f64::from(k) / tail);
        return 0.5 * FRAC_2_SQRT_PI * (-x * x).exp() / fraction;
    }
    if x < -3.0 {
        return 2.0 - erfc(-x);
    }
    // Else a series of terms of one sign: erf(x) = 2/sqrt(pi) exp(-x^2) (x + 2/3 x^3 + 4/15 x^5 + ...).
    let mut term = x;
    let mut sum = x;
    for k in 1..=80 {
        term *= 2.0 * x * x / f64::from(2 * k + 1);
        sum += term;
    }
    1.0 - FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(found: f64, expected: f64, what: &str) {
        let error = (found - expected).abs() / expected.abs().max(1e-300);
        assert!(error < 1e-9, "{what}: {found} is not {expected}");
    }

    /// Values from tables of the error function.
    #[test]
    fn the_complementary_error_function_is_that_of_tables() {
        for (x, expected) in [
            (-4.0, 1.999_999_984_582_74),
            (-1.0, 1.842_700_792_949_71),
            (0.0, 1.0),
            (0.5, 0.479_500_122_186_953),
            (1.0, 0.157_299_207_050_285),
            (2.0, 4.677_734_981_047_26e-3),
            (3.0, 2.209_049_699_858_54e-5),
            (4.0, 1.541_725_790_028_00e-8),
            (5.0, 1.537_459_794_428_03e-12),
        ] {
            assert_near(erfc(x), expected, &format!("erfc({x})"));
        }
    }

    /// Values that PyTorch 2 and tables of the functions give.
    #[test]
    fn activations_have_known_values() {
        let parameter = ActivationParameter::new;
        let clip = Activation::Clip {
            min: parameter(-1.0),
            max: parameter(f32::INFINITY),
        };
        let leaky = Activation::LeakyRelu {
            slope: parameter(0.25),
        };
        for (activation, x, expected) in [
            (Activation::Relu, 1.5, 1.5),
            (Activation::Relu, -1.5, 0.0),
            (clip, -3.0, -1.0),
            (clip, 1e30, 1e30),
            (leaky, -2.0, -0.5),
            (leaky, 2.0, 2.0),
            (Activation::Sigmoid, 0.0, 0.5),
            (Activation::Sigmoid, 1.0, 0.731_058_578_630_004),
            (Activation::Sigmoid, -20.0, 2.061_153_618_190_20e-9),
            (Activation::HardSigmoid, -3.5, 0.0),
            (Activation::HardSigmoid, 0.75, 0.625),
            (Activation::HardSigmoid, 4.0, 1.0),
            (Activation::Silu, 1.0, 0.731_058_578_630_004),
            (Activation::Silu, -2.0, -0.238_405_844_044_235),
            (Activation::HardSwish, 1.5, 1.125),
            (Activation::HardSwish, -1.5, -0.375),
            (Activation::HardSwish, 5.0, 5.0),
            (Activation::Tanh, 0.5, 0.462_117_157_260_009),
            (Activation::Gelu, 1.0, 0.841_344_746_068_542),
            (Activation::Gelu, -1.0, -0.158_655_253_931_457),
            (Activation::GeluTanh, 1.0, 0.841_191_990_608_276_2),
            (Activation::GeluTanh, -1.0, -0.158_808_009_391_723_8),
            (Activation::Gelu, -3.0, -4.049_694_096_022_8e-3),
        ] {
            assert_near(
                activate(activation, x),
                expected,
                &format!("{activation:?}({x})"),
            );
        }
    }

    #[test]
    fn functions_that_never_grow_are_known() {
        let parameter = ActivationParameter::new;
        let clip = |min, max| Activation::Clip {
            min: parameter(min),
            max: parameter(max),
        };
        let leaky = |slope| Activation::LeakyRelu {
            slope: parameter(slope),
        };
        let others = [clip(-1.0, 6.0), clip(0.5, 1.0), leaky(-0.5), leaky(2.0)];
        let named = Activation::NAMES.map(|(_, activation)| activation);
        let mut found = [0; 2];
        for activation in named.into_iter().chain(others) {
            let grows = (-4000..=4000)
                .map(|step| f64::from(step) / 400.0)
                .any(|x| activate(activation, x).abs() > x.abs());
            assert_eq!(never_grows(activation), !grows, "{activation:?}");
            found[usize::from(grows)] += 1;
        }
        assert!(found.iter().all(|&count| count >= 4), "{found:?}");
    }

    #[test]
    fn activations_of_large_values_are_limits() {
        for (_, activation) in Activation::NAMES {
            for x in [-1e4, 1e4] {
                let y = activate(activation, x);
                assert!(
                    y.is_finite() && y.abs() <= 1e4,
                    "{activation:?}({x}) is {y}"
                );
            }
        }
    }
}
