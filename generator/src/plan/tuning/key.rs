//! Tuning keys, by which problems share measurements.

use crate::ir::{Problem, Tolerance};
use crate::plan::problem_label;

/// The key of a problem in tables of measured times: the label of the problem that is [measured](Problem::measured).
pub fn tuning_key(problem: &Problem) -> String {
    problem_label(&problem.measured())
}

/// The keys of a problem's times, best first: its own, and that of the problem without its tolerance, whose kernels are more precise than
/// necessary.
pub fn tuning_keys(problem: &Problem) -> Vec<String> {
    let mut keys = vec![tuning_key(problem)];
    if let Problem::Conv(conv) = problem
        && conv.tolerance != Tolerance::default()
    {
        keys.push(tuning_key(&Problem::Conv(conv.without_tolerance())));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Activation, ConvProblem, Epilogue, Precision, Prologue, Reduce};
    use tdc_runtime::ConvShape;

    fn conv(bias: bool, residual: bool, relu: bool) -> ConvProblem {
        ConvProblem {
            epilogue: Epilogue {
                bias,
                residual,
                activation: match relu {
                    true => Activation::Relu,
                    false => Activation::None,
                },
            },
            ..ConvProblem::new(ConvShape::new(7, 5, 9, 8, 3, 2))
        }
    }

    #[test]
    fn bias_and_relu_share_a_measurement_and_nothing_else_does() {
        let key = |conv: ConvProblem| tuning_key(&Problem::Conv(conv));
        let plain = key(conv(false, false, false));
        assert_eq!(plain, "conv_c7_n5_h9_w8_k3x2_bias_relu");
        assert_eq!(key(conv(true, false, true)), plain);
        assert_ne!(key(conv(true, true, true)), plain);
        assert_eq!(key(conv(false, true, false)), key(conv(true, true, true)));
        let prologue = ConvProblem {
            prologue: Some(Prologue {
                activation: Activation::None,
            }),
            ..conv(false, false, false)
        };
        assert_ne!(key(prologue), plain);
        let tf32 = ConvProblem {
            precision: Precision::Tf32,
            ..conv(false, false, true)
        };
        assert_eq!(key(tf32), "conv_c7_n5_h9_w8_k3x2_bias_relu_tf32");
        let tolerant = ConvProblem {
            tolerance: Tolerance::new(5e-6).unwrap(),
            ..tf32
        };
        assert_eq!(
            key(tolerant),
            "conv_c7_n5_h9_w8_k3x2_bias_relu_tf32_tol5000"
        );
        assert_eq!(
            tuning_keys(&Problem::Conv(tolerant)),
            [key(tolerant), key(tf32)]
        );
        assert_eq!(tuning_keys(&Problem::Conv(tf32)), [key(tf32)]);
        let atomic = |bias| ConvProblem {
            reduce: Reduce::Atomic,
            ..conv(bias, false, false)
        };
        assert_ne!(key(atomic(true)), key(atomic(false)));
    }
}
