//! What `kernel!` embeds: the same text and launches that the generator makes for the same convolution.

use tdc::{Arch, ConvShape, Filter, Kernel, Padding, Transform, Winograd, kernel};
use tdc_generator::check::{CpuDevice, check_unit};
use tdc_generator::gpu::gpu;
use tdc_generator::plan::{PlannedUnit, Planner, plan_problem};
use tdc_generator::render::unit_text;
use tdc_generator::spec::{
    ConvProblem, Epilogue, Precision, Problem, Prologue, Reduce, Tiles, Tolerance,
};

static PLAIN: Kernel = kernel!(conv 64,32,56,56);
const RELU: Kernel = tdc::kernel!(conv 8, 12, 14, 10, kernel = 1, relu = true,);

/// The plan of a convolution, without the macro's grammar.
fn planned(
    problem: ConvProblem,
    gpu_name: &str,
    scheme: Option<&str>,
    tile: Option<&[u32]>,
) -> PlannedUnit {
    let mut planner = Planner::new(gpu(gpu_name).unwrap()).with_tiles(Tiles::default());
    let problem = Problem::Conv(problem);
    plan_problem(&mut planner, "tdc", "layer", &problem, scheme, tile).unwrap()
}

fn plain(shape: ConvShape) -> ConvProblem {
    ConvProblem {
        shape,
        prologue: None,
        epilogue: Epilogue::default(),
        reduce: Reduce::default(),
        precision: Precision::default(),
        tolerance: Tolerance::default(),
    }
}

fn assert_embeds(kernel: &Kernel, planned: &PlannedUnit) {
    let Problem::Conv(problem) = planned.problem else {
        panic!("{} is no convolution", planned.unit.name);
    };
    assert_eq!(kernel.source(), unit_text(planned).unwrap());
    assert_eq!(kernel.unit(), &planned.unit);
    assert_eq!(kernel.shape, problem.shape);
    assert_eq!(kernel.flops(), problem.shape.flops());
    assert_eq!(kernel.scheme, planned.scheme);
    assert_eq!(kernel.estimate_us, planned.estimate_us);
}

#[test]
fn a_static_and_a_constant_embed_what_the_generator_makes() {
    let shape = ConvShape {
        padding: Padding::all(1),
        ..ConvShape::new(64, 32, 56, 56, 3, 3)
    };
    assert_embeds(&PLAIN, &planned(plain(shape), "h200", None, None));
    let mut relu = plain(ConvShape::new(8, 12, 14, 10, 1, 1));
    relu.epilogue.relu = true;
    assert_embeds(&RELU, &planned(relu, "h200", None, None));
    let variant = PLAIN.unit().variant_for("h200", Arch::new(90)).unwrap();
    assert_eq!(
        variant.weights.source_len() as u64,
        PLAIN.shape.weight_len()
    );
}

/// A convolution with every option away from its default, and the call for it.
fn odd() -> (Kernel, PlannedUnit) {
    let call = kernel!(conv 12,18,15,13, kernel = [5, 3], stride = [2, 1], pad = [1, 0, 2, 3], dilation = [1, 2],
        groups = 3, batch = 3, bias = true, relu = true, residual = true, prologue = {relu: true}, gpu = "a100",
        scheme = direct, tile = [64, 2, 1, 1]);
    let problem = ConvProblem {
        shape: ConvShape {
            batch: 3,
            stride: [2, 1],
            padding: Padding {
                top: 1,
                left: 0,
                bottom: 2,
                right: 3,
            },
            dilation: [1, 2],
            groups: 3,
            ..ConvShape::new(12, 18, 15, 13, 5, 3)
        },
        prologue: Some(Prologue { relu: true }),
        epilogue: Epilogue {
            bias: true,
            residual: true,
            relu: true,
        },
        reduce: Reduce::default(),
        precision: Precision::default(),
        tolerance: Tolerance::default(),
    };
    let tile = [64, 2, 1, 1];
    (call, planned(problem, "a100", Some("direct"), Some(&tile)))
}

#[test]
fn every_option_reaches_the_kernel() {
    let (kernel, planned) = odd();
    assert_embeds(&kernel, &planned);
    assert_eq!(kernel.unit().variants[0].gpu, "a100");
}

#[test]
fn factors_have_a_layout_each() {
    let kernel = kernel!(conv 6,5,9,8, cp_rank = 3, scheme = cp_fused, tile = [2, 4, 4]);
    assert_eq!(kernel.scheme, "cp_fused");
    assert_eq!(kernel.shape.weight(), [5, 6, 3, 3]);
    let variant = &kernel.unit().variants[0];
    let sources: Vec<_> = variant
        .packed_layouts()
        .map(|(_, layout)| layout.source)
        .collect();
    assert_eq!(
        sources,
        [[3, 6, 1, 1], [3, 1, 3, 1], [3, 1, 1, 3], [5, 3, 1, 1]]
    );
}

#[test]
fn weights_of_lower_precision_have_their_layouts() {
    let problem = |precision| ConvProblem {
        precision,
        ..plain(ConvShape::new(32, 32, 16, 16, 1, 1))
    };
    let tile = [4, 8, 1, 2, 2, 1, 1, 1, 2];
    let planned = |precision| {
        planned(
            problem(precision),
            "h200",
            Some("implicit_gemm"),
            Some(&tile),
        )
    };
    let tf32 = kernel!(conv 32,32,16,16, kernel = 1, precision = tf32, scheme = implicit_gemm,
        tile = [4, 8, 1, 2, 2, 1, 1, 1, 2]);
    assert_embeds(&tf32, &planned(Precision::Tf32));
    let bf16 = kernel!(conv 32,32,16,16, kernel = 1, precision = bf16, scheme = implicit_gemm,
        tile = [4, 8, 1, 2, 2, 1, 1, 1, 2]);
    assert_embeds(&bf16, &planned(Precision::Bf16));
    let transforms = [tf32, bf16].map(|kernel| kernel.unit().variants[0].weights.transform);
    assert_eq!(
        transforms,
        [Transform::Halves { run: 256, parts: 1 }, Transform::Bf16]
    );
}

#[test]
fn points_of_filters_have_their_layout() {
    let tolerant = ConvProblem {
        tolerance: Tolerance::new(5e-6).unwrap(),
        ..plain(ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(32, 32, 16, 16, 3, 3)
        })
    };
    let tile = [4, 8, 8, 1, 2, 1, 1, 1, 1, 2];
    let kernel = kernel!(conv 32,32,16,16, tolerance = 5e-6, scheme = winograd,
        tile = [4, 8, 8, 1, 2, 1, 1, 1, 1, 2]);
    let planned = planned(tolerant, "h200", Some("winograd"), Some(&tile));
    assert_embeds(&kernel, &planned);
    let filter = kernel.unit().variants[0].weights.filter;
    assert_eq!(filter, Filter::Winograd(Winograd::F4));
}

/// Sizes that another macro passes on.
macro_rules! square {
    ($channels:literal, $size:literal) => {
        kernel!(conv $channels, $channels, $size, $size, stride = 2)
    };
}

#[test]
fn calls_may_come_from_other_macros() {
    let kernel = square!(16, 20);
    let shape = ConvShape {
        padding: Padding::all(1),
        stride: [2, 2],
        ..ConvShape::new(16, 16, 20, 20, 3, 3)
    };
    assert_embeds(&kernel, &planned(plain(shape), "h200", None, None));
}

/// The text is the planned one, word for word; here it runs with the launches that were embedded.
#[test]
fn what_is_embedded_computes_the_convolution() {
    let (odd, mut odd_unit) = odd();
    assert_embeds(&odd, &odd_unit);
    odd_unit.unit = odd.unit().clone();
    let mut relu = plain(ConvShape::new(8, 12, 14, 10, 1, 1));
    relu.epilogue.relu = true;
    let mut relu_unit = planned(relu, "h200", None, None);
    assert_embeds(&RELU, &relu_unit);
    relu_unit.unit = RELU.unit().clone();
    let units = [odd_unit, relu_unit];
    let mut device = CpuDevice::new(&units).unwrap();
    for unit in &units {
        check_unit(&mut device, unit, 11)
            .unwrap_or_else(|failure| panic!("{}: {failure}", unit.unit.name));
    }
}
