//! Which problems share a measurement.

use crate::ir::{ConvProblem, Epilogue, Problem, Reduce, Tolerance};
use crate::plan::problem_label;

/// The problem that is measured in the place of `problem`.
///
/// Bias and ReLU of a convolution or linear layer are always there: they cost one load and one maximum an output element behind a
/// sum of hundreds of products, the same for every tile, so that leaving them out of the key saves measurements and the time told
/// is at most a little too long. What moves a tensor more (a residual) or works in the innermost loop (a prologue) stays in the
/// key. With float atomics any epilogue costs a launch of its own, so there it stays as it is.
pub fn measured_problem(problem: &Problem) -> Problem {
    let with_both = |epilogue: Epilogue| Epilogue {
        bias: true,
        relu: true,
        ..epilogue
    };
    match *problem {
        Problem::Conv(mut p) if p.reduce == Reduce::Ordered => {
            p.epilogue = with_both(p.epilogue);
            Problem::Conv(p)
        }
        Problem::HwcnConv(mut p) => {
            p.epilogue = with_both(p.epilogue);
            Problem::HwcnConv(p)
        }
        Problem::Cp(mut p) => {
            p.conv.epilogue = with_both(p.conv.epilogue);
            Problem::Cp(p)
        }
        Problem::Tucker(mut p) => {
            p.epilogue = with_both(p.epilogue);
            Problem::Tucker(p)
        }
        Problem::Linear(mut p) => {
            p.epilogue = with_both(p.epilogue);
            Problem::Linear(p)
        }
        other => other,
    }
}

/// The key of a problem in tables of measured times: the label of the problem that is measured.
pub fn tuning_key(problem: &Problem) -> String {
    problem_label(&measured_problem(problem))
}

/// The keys under which times of a problem may stand, the best first: its own, and that of the problem without its tolerance,
/// whose kernels are more exact than they must be.
pub fn tuning_keys(problem: &Problem) -> Vec<String> {
    let mut keys = vec![tuning_key(problem)];
    if let Some(conv) = problem.conv()
        && conv.tolerance != Tolerance::default()
    {
        let exact = ConvProblem {
            tolerance: Tolerance::default(),
            ..*conv
        };
        keys.push(tuning_key(&exact.in_layout(problem.x_layout())));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Precision, Prologue};
    use tdc_runtime::ConvShape;

    fn conv(bias: bool, residual: bool, relu: bool) -> ConvProblem {
        ConvProblem {
            shape: ConvShape::new(7, 5, 9, 8, 3, 2),
            prologue: None,
            epilogue: Epilogue {
                bias,
                residual,
                relu,
            },
            reduce: Reduce::Ordered,
            precision: Precision::Fp32,
            tolerance: Tolerance::default(),
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
            prologue: Some(Prologue { relu: false }),
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
