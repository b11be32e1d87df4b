//! Predicted times of layers beside measured ones.

use tdc_generator::gpu::{DEFAULT_GPU, gpu};
use tdc_generator::plan::{Planner, plan_problem, problem_of_label};

/// A layer, a tile, and the time of its launches when they are repeated, microseconds: one H200, `main.cu --profile` of
/// MobileNet-v3-large and EfficientNet-B0, the median of layers that occur several times. Depthwise convolutions without bias: `bench` of MobileNet-v2's.
type MeasuredLayer = (&'static str, &'static [u32], f64);

const SQUEEZE_EXCITE: &[MeasuredLayer] = &[
    (
        "squeezeexcite_c72_h28_w28_n24_bias_relu_gate_bias_hardsigmoid",
        &[16, 2, 1, 2],
        3.9,
    ),
    (
        "squeezeexcite_c120_h28_w28_n32_bias_relu_gate_bias_hardsigmoid",
        &[16, 2, 1, 1],
        4.25,
    ),
    (
        "squeezeexcite_c480_h14_w14_n120_bias_relu_gate_bias_hardsigmoid",
        &[16, 16, 4, 1],
        5.37,
    ),
    (
        "squeezeexcite_c672_h14_w14_n168_bias_relu_gate_bias_hardsigmoid",
        &[16, 32, 4, 1],
        5.7,
    ),
    (
        "squeezeexcite_c672_h7_w7_n168_bias_relu_gate_bias_hardsigmoid",
        &[16, 32, 8, 1],
        4.74,
    ),
    (
        "squeezeexcite_c960_h7_w7_n240_bias_relu_gate_bias_hardsigmoid",
        &[16, 32, 8, 1],
        5.25,
    ),
    (
        "squeezeexcite_c32_h112_w112_n8_bias_silu_gate_bias_sigmoid",
        &[16, 1, 1, 8],
        5.05,
    ),
    (
        "squeezeexcite_c96_h56_w56_n4_bias_silu_gate_bias_sigmoid",
        &[16, 2, 1, 4],
        4.87,
    ),
    (
        "squeezeexcite_c144_h56_w56_n6_bias_silu_gate_bias_sigmoid",
        &[16, 2, 1, 2],
        4.09,
    ),
    (
        "squeezeexcite_c144_h28_w28_n6_bias_silu_gate_bias_sigmoid",
        &[16, 4, 1, 2],
        4.4,
    ),
    (
        "squeezeexcite_c240_h28_w28_n10_bias_silu_gate_bias_sigmoid",
        &[16, 4, 1, 1],
        5.08,
    ),
    (
        "squeezeexcite_c240_h14_w14_n10_bias_silu_gate_bias_sigmoid",
        &[16, 4, 2, 1],
        4.52,
    ),
    (
        "squeezeexcite_c480_h14_w14_n20_bias_silu_gate_bias_sigmoid",
        &[16, 8, 2, 1],
        4.98,
    ),
    (
        "squeezeexcite_c672_h14_w14_n28_bias_silu_gate_bias_sigmoid",
        &[16, 16, 4, 1],
        4.67,
    ),
    (
        "squeezeexcite_c672_h7_w7_n28_bias_silu_gate_bias_sigmoid",
        &[16, 16, 4, 1],
        4.21,
    ),
    (
        "squeezeexcite_c1152_h7_w7_n48_bias_silu_gate_bias_sigmoid",
        &[16, 32, 8, 1],
        4.44,
    ),
];

const DEPTHWISE: &[MeasuredLayer] = &[
    (
        "conv_c16_n16_h112_w112_k3x3_p1_g16_bias_relu",
        &[2, 2, 64],
        1.39,
    ),
    (
        "conv_c64_n64_h112_w112_k3x3_s2_p1_g64_bias_relu",
        &[1, 2, 128],
        1.9,
    ),
    (
        "conv_c72_n72_h56_w56_k3x3_p1_g72_bias_relu",
        &[2, 2, 64],
        1.51,
    ),
    (
        "conv_c72_n72_h56_w56_k5x5_s2_p2_g72_bias_relu",
        &[1, 1, 64],
        1.63,
    ),
    (
        "conv_c120_n120_h28_w28_k5x5_p2_g120_bias_relu",
        &[1, 2, 64],
        1.4,
    ),
    (
        "conv_c240_n240_h28_w28_k3x3_s2_p1_g240_bias_hardswish",
        &[1, 1, 128],
        1.37,
    ),
    (
        "conv_c200_n200_h14_w14_k3x3_p1_g200_bias_hardswish",
        &[1, 1, 64],
        1.2,
    ),
    (
        "conv_c184_n184_h14_w14_k3x3_p1_g184_bias_hardswish",
        &[1, 1, 64],
        1.21,
    ),
    (
        "conv_c480_n480_h14_w14_k3x3_p1_g480_bias_hardswish",
        &[2, 1, 64],
        1.35,
    ),
    (
        "conv_c672_n672_h14_w14_k3x3_p1_g672_bias_hardswish",
        &[2, 2, 64],
        1.3,
    ),
    (
        "conv_c672_n672_h14_w14_k5x5_s2_p2_g672_bias_hardswish",
        &[1, 1, 64],
        1.6,
    ),
    (
        "conv_c960_n960_h7_w7_k5x5_p2_g960_bias_hardswish",
        &[1, 1, 64],
        1.37,
    ),
    (
        "conv_c32_n32_h112_w112_k3x3_p1_g32_bias_silu",
        &[4, 2, 64],
        1.87,
    ),
    (
        "conv_c96_n96_h112_w112_k3x3_s2_p1_g96_bias_silu",
        &[1, 2, 128],
        2.29,
    ),
    (
        "conv_c144_n144_h56_w56_k3x3_p1_g144_bias_silu",
        &[4, 2, 64],
        2.04,
    ),
    (
        "conv_c144_n144_h56_w56_k5x5_s2_p2_g144_bias_silu",
        &[2, 1, 64],
        2.39,
    ),
    (
        "conv_c240_n240_h28_w28_k5x5_p2_g240_bias_silu",
        &[2, 2, 64],
        1.88,
    ),
    (
        "conv_c240_n240_h28_w28_k3x3_s2_p1_g240_bias_silu",
        &[1, 1, 128],
        1.43,
    ),
    (
        "conv_c480_n480_h14_w14_k3x3_p1_g480_bias_silu",
        &[2, 1, 64],
        1.45,
    ),
    (
        "conv_c480_n480_h14_w14_k5x5_p2_g480_bias_silu",
        &[1, 2, 64],
        1.62,
    ),
    (
        "conv_c672_n672_h14_w14_k5x5_p2_g672_bias_silu",
        &[2, 2, 64],
        1.69,
    ),
    (
        "conv_c672_n672_h14_w14_k5x5_s2_p2_g672_bias_silu",
        &[1, 1, 64],
        1.65,
    ),
    (
        "conv_c1152_n1152_h7_w7_k5x5_p2_g1152_bias_silu",
        &[1, 1, 64],
        1.55,
    ),
    (
        "conv_c1152_n1152_h7_w7_k3x3_p1_g1152_bias_silu",
        &[2, 1, 64],
        1.32,
    ),
    ("conv_c32_n32_h112_w112_k3x3_p1_g32", &[4, 2, 64], 1.52),
    ("conv_c96_n96_h112_w112_k3x3_s2_p1_g96", &[1, 2, 128], 2.04),
    ("conv_c144_n144_h56_w56_k3x3_p1_g144", &[4, 2, 64], 1.64),
    ("conv_c144_n144_h56_w56_k3x3_s2_p1_g144", &[1, 2, 128], 1.52),
    ("conv_c192_n192_h28_w28_k3x3_p1_g192", &[2, 2, 64], 1.22),
    ("conv_c192_n192_h28_w28_k3x3_s2_p1_g192", &[1, 1, 64], 1.14),
    ("conv_c384_n384_h14_w14_k3x3_p1_g384", &[2, 1, 64], 1.2),
    ("conv_c576_n576_h14_w14_k3x3_p1_g576", &[2, 2, 64], 1.15),
    ("conv_c576_n576_h14_w14_k3x3_s2_p1_g576", &[1, 1, 64], 1.07),
    ("conv_c960_n960_h7_w7_k3x3_p1_g960", &[1, 1, 128], 0.99),
];

/// The errors of the predicted times of a scheme, as fractions of the measured ones.
fn errors(scheme: &str, layers: &[MeasuredLayer]) -> Vec<f64> {
    let mut planner = Planner::new(gpu(DEFAULT_GPU).unwrap());
    let mut error = |&(label, tile, us): &MeasuredLayer| {
        let problem = problem_of_label(label).unwrap_or_else(|| panic!("{label}"));
        let unit = plan_problem(
            &mut planner,
            "net",
            label,
            &problem,
            Some(scheme),
            Some(tile),
        );
        unit.unwrap_or_else(|error| panic!("{label}: {error:?}"))
            .predicted_us
            / us
            - 1.0
    };
    layers.iter().map(&mut error).collect()
}

fn check(scheme: &str, layers: &[MeasuredLayer], [worst, mean]: [f64; 2]) {
    let errors = errors(scheme, layers);
    for (error, (label, ..)) in errors.iter().zip(layers) {
        assert!(error.abs() <= worst, "{label}: {:.1} %", 100.0 * error);
    }
    let sum: f64 = errors.iter().map(|error| error.abs()).sum();
    let found = sum / errors.len() as f64;
    assert!(found <= mean, "{scheme}: {:.1} % on average", 100.0 * found);
}

#[test]
fn squeeze_and_excites_take_as_long_as_predicted() {
    check("squeeze_excite", SQUEEZE_EXCITE, [0.15, 0.06]);
}

#[test]
fn depthwise_convolutions_take_as_long_as_predicted() {
    check("depthwise", DEPTHWISE, [0.25, 0.08]);
}
