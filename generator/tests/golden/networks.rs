//! Small requests that together use every kind of op and every shape of generated text.

use tdc_generator::emit::{Files, layer_set_files, network_files};
use tdc_generator::gpu::gpu;
use tdc_generator::plan::{LayerSetPlan, NetworkPlan, Planner, plan_network, plan_problem};
use tdc_generator::spec::{
    ConvOptions, ConvProblem, Epilogue, LinearOptions, NetworkBuilder, OpOptions, PoolOptions,
    Problem, Prologue, ScaleShiftOptions, TensorShape,
};
use tdc_runtime::{ConvShape, Padding};

/// Two images; every kind of op: stem, pooling, depthwise, residual, Tucker with channels split over blocks, prologue on a
/// shared buffer, concatenation, a linear layer.
pub fn mixed() -> NetworkPlan {
    let mut net = NetworkBuilder::new("mixed", TensorShape::new(2, 3, 13, 11));
    let named = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    net.op(
        "stem",
        None,
        OpOptions::Conv(ConvOptions {
            stride: [2, 2],
            bias: true,
            relu: true,
            ..ConvOptions::new(8)
        }),
    );
    net.op(
        "pool",
        None,
        OpOptions::MaxPool(PoolOptions {
            kernel: [3, 3],
            stride: [1, 1],
            pad: Padding::all(1),
            dilation: [1, 1],
            ceil_mode: false,
            count_include_pad: true,
        }),
    );
    net.op(
        "depthwise",
        None,
        OpOptions::Conv(ConvOptions {
            groups: 8,
            bias: true,
            ..ConvOptions::new(8)
        }),
    );
    net.op(
        "join",
        Some(&named(&["depthwise", "pool"])),
        OpOptions::Add { relu: true },
    );
    net.op(
        "norm",
        None,
        OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            relu: true,
        }),
    );
    net.op("grow", None, OpOptions::Conv(ConvOptions::new(5)));
    net.op("dense", Some(&named(&["join", "grow"])), OpOptions::Concat);
    net.op(
        "tucker",
        None,
        OpOptions::Conv(ConvOptions {
            ranks: Some([6, 4]),
            bias: true,
            relu: true,
            scheme: Some("direct".to_owned()),
            tile: Some(vec![32, 4, 1, 2]),
            ..ConvOptions::new(9)
        }),
    );
    net.op(
        "squeeze",
        None,
        OpOptions::Conv(ConvOptions {
            kernel: [1, 1],
            ..ConvOptions::new(9)
        }),
    );
    net.op(
        "sum",
        Some(&named(&["squeeze", "tucker"])),
        OpOptions::Add { relu: false },
    );
    net.op("average", None, OpOptions::GlobalAvgPool);
    net.op("flat", None, OpOptions::Flatten);
    net.op(
        "head",
        None,
        OpOptions::Linear(LinearOptions {
            n: 7,
            bias: true,
            relu: false,
        }),
    );
    plan(net)
}

/// One image, one layer without parameters, names that C++ and JSON must escape.
pub fn tiny() -> NetworkPlan {
    let mut net = NetworkBuilder::new("tiny", TensorShape::new(1, 2, 4, 4));
    net.op("a\"quoted\\name\\", None, OpOptions::Relu);
    plan(net)
}

/// Convolutions of a set, one of them twice, one with all that can be fused, one with a batch.
pub fn layers() -> LayerSetPlan {
    let gpu = gpu("h200").unwrap();
    let mut planner = Planner::new(gpu);
    let name = "some-layers";
    let plain = ConvProblem {
        shape: ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(6, 5, 9, 8, 3, 3)
        },
        prologue: None,
        epilogue: Epilogue::default(),
    };
    let everything = ConvProblem {
        shape: ConvShape {
            batch: 2,
            groups: 2,
            stride: [2, 1],
            dilation: [1, 2],
            padding: Padding {
                top: 1,
                left: 2,
                bottom: 0,
                right: 3,
            },
            ..plain.shape
        },
        prologue: Some(Prologue { relu: true }),
        epilogue: Epilogue {
            bias: true,
            residual: true,
            relu: true,
        },
    };
    let everything = ConvProblem {
        shape: ConvShape {
            n: 4,
            ..everything.shape
        },
        ..everything
    };
    let split = ConvProblem {
        shape: ConvShape::new(64, 20, 5, 5, 1, 1),
        ..plain
    };
    let layers = [
        ("plain", plain, None),
        ("everything", everything, None),
        ("plain.again", plain, None),
        ("split", split, Some(("pointwise", [16, 16, 8, 4, 1, 4]))),
    ];
    let planned = layers.map(|(layer, problem, wish)| {
        let unit = plan_problem(
            &mut planner,
            &LayerSetPlan::symbol_prefix(name),
            layer,
            &Problem::Conv(problem),
            wish.map(|(scheme, _)| scheme),
            wish.as_ref().map(|(_, tile)| tile.as_slice()),
        );
        (layer.to_owned(), unit.unwrap())
    });
    LayerSetPlan::new(name, gpu, planned.into()).unwrap()
}

/// Every folder by name.
pub fn folders() -> [(&'static str, Files); 3] {
    [
        ("mixed", network_files(&mixed()).unwrap()),
        ("tiny", network_files(&tiny()).unwrap()),
        ("some-layers", layer_set_files(&layers()).unwrap()),
    ]
}

fn plan(net: NetworkBuilder) -> NetworkPlan {
    let network = net.finish().unwrap_or_else(|errors| panic!("{errors:?}"));
    plan_network(&network, gpu("h200").unwrap()).unwrap_or_else(|errors| panic!("{errors:?}"))
}
