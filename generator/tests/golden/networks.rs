//! Small networks and a layer set that together have every kind of op and every form of generated code.

use crate::several_batches;
use tdc_generator::emit::{Files, add_python_module, layer_set_files, network_files};
use tdc_generator::gpu::{Targets, gpu};
use tdc_generator::ir::{
    Activation, ActivationParameter, BinaryOp, ConvOptions, LayerSet, LayerSpec, Layout,
    LinearOptions, Network, NetworkBuilder, OpOptions, PaddingOption, PoolOptions, Precision,
    Prologue, Reduce, ScaleShiftOptions, TensorShape, TilePolicy, Tolerance,
};
use tdc_generator::plan::{LayerSetPlan, NetworkPlan, plan_layer_set, plan_variants};
use tdc_runtime::Padding;

/// Two images; every kind of op: stem, pooling, depthwise, residual, Tucker with channels split over blocks
/// and in one launch, prologue on a shared buffer, HWCN inside a concatenation, a linear layer.
pub fn mixed() -> Network {
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
            activation: Activation::Relu,
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
        OpOptions::Binary(BinaryOp::Add, Activation::Relu),
    );
    net.op(
        "norm",
        None,
        OpOptions::ScaleShift(ScaleShiftOptions {
            bn: None,
            activation: Activation::Relu,
        }),
    );
    net.op(
        "grow",
        None,
        OpOptions::Conv(ConvOptions {
            layout: Layout::Hwcn,
            ..ConvOptions::new(5)
        }),
    );
    net.op("dense", Some(&named(&["join", "grow"])), OpOptions::Concat);
    net.op(
        "tucker",
        None,
        OpOptions::Conv(ConvOptions {
            ranks: Some([6, 4]),
            bias: true,
            activation: Activation::Relu,
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
        OpOptions::Binary(BinaryOp::Add, Activation::None),
    );
    net.op("mean", None, OpOptions::GlobalAvgPool);
    net.op(
        "gate",
        Some(&named(&["sum", "mean"])),
        OpOptions::Binary(BinaryOp::Mul, Activation::HardSwish),
    );
    net.op(
        "fused",
        None,
        OpOptions::Conv(ConvOptions {
            ranks: Some([8, 8]),
            bias: true,
            scheme: Some("tucker_fused".to_owned()),
            tile: Some(vec![2, 3, 1, 1, 1, 2, 1, 1, 16]),
            ..ConvOptions::new(11)
        }),
    );
    net.op(
        "chain",
        None,
        OpOptions::Conv(ConvOptions {
            kernel: [3, 5],
            cp_rank: Some(3),
            bias: true,
            activation: Activation::Relu,
            scheme: Some("cp_chain".to_owned()),
            tile: Some(vec![2, 3, 2, 64, 2, 2, 1]),
            ..ConvOptions::new(7)
        }),
    );
    net.op(
        "pairwise",
        None,
        OpOptions::Conv(ConvOptions {
            cp_rank: Some(5),
            stride: [1, 2],
            scheme: Some("depthwise".to_owned()),
            tile: Some(vec![1, 2, 64]),
            ..ConvOptions::new(11)
        }),
    );
    net.op("average", None, OpOptions::GlobalAvgPool);
    net.op("flat", None, OpOptions::Flatten);
    net.op("head", None, OpOptions::Linear(LinearOptions::new(7)));
    net.name_output("scores");
    net.finish().unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// One image, one layer without parameters, names that C++ and JSON must escape.
pub fn tiny() -> Network {
    let mut net = NetworkBuilder::new("tiny", TensorShape::new(1, 2, 4, 4));
    net.op(
        "a\"quoted\\name\\",
        None,
        OpOptions::Activation(Activation::Relu),
    );
    net.finish().unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// A network for two GPUs whose plans differ in kernels, layouts and memory, but share the stem.
pub fn pair() -> Network {
    let mut net = NetworkBuilder::new("pair", TensorShape::new(1, 3, 28, 28));
    let direct = |n, tile: Option<&[u32]>| {
        OpOptions::Conv(ConvOptions {
            bias: true,
            activation: Activation::Relu,
            scheme: Some("direct".to_owned()),
            tile: tile.map(<[u32]>::to_vec),
            ..ConvOptions::new(n)
        })
    };
    net.op("stem", None, direct(32, Some(&[32, 4, 1, 1])));
    net.op("core", None, direct(28, None));
    net.op("pool", None, OpOptions::GlobalAvgPool);
    net.op("head", None, OpOptions::Linear(LinearOptions::new(10)));
    let mut network = net.finish().unwrap_or_else(|errors| panic!("{errors:?}"));
    network.gpus = Targets::named(&["h200", "rtx2080ti"]).unwrap();
    network
}

/// A layer set: a duplicate convolution, one with everything that can be fused, one with split channels,
/// tensor cores in three precisions, each with a different packer, and CP layers, which have four.
pub fn layers() -> LayerSet {
    let layer = |name: &str, x, options, prologue, residual| {
        LayerSpec::new(name, x, options, prologue, residual)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
    };
    let x = TensorShape::new(1, 6, 9, 8);
    // The channels are divided among the blocks of a cluster.
    let tiled = ConvOptions {
        scheme: Some("direct_tiled".to_owned()),
        tile: Some(vec![2, 8, 2, 4, 4, 2, 3, 2, 1]),
        ..ConvOptions::new(5)
    };
    let plain = |name: &str| layer(name, x, tiled.clone(), None, false);
    let everything = ConvOptions {
        stride: [2, 1],
        pad: PaddingOption::Pixels(Padding {
            top: 1,
            left: 2,
            bottom: 0,
            right: 3,
        }),
        dilation: [1, 2],
        groups: 2,
        scheme: Some("direct".to_owned()),
        tile: Some(vec![32, 1, 1, 1]),
        bias: true,
        activation: Activation::Clip {
            min: ActivationParameter::new(0.0),
            max: ActivationParameter::new(6.0),
        },
        ..ConvOptions::new(4)
    };
    let split = ConvOptions {
        kernel: [1, 1],
        scheme: Some("pointwise".to_owned()),
        tile: Some(vec![16, 16, 8, 4, 1, 4]),
        activation: Activation::HardSwish,
        ..ConvOptions::new(20)
    };
    let tdc = ConvOptions {
        scheme: Some("tdc".to_owned()),
        tile: Some(vec![2, 3, 4]),
        ..ConvOptions::new(5)
    };
    let tdc_rows = ConvOptions {
        scheme: Some("tdc_rows".to_owned()),
        tile: Some(vec![2, 3, 4]),
        reduce: Reduce::Atomic,
        activation: Activation::Silu,
        ..ConvOptions::new(5)
    };
    let gemm = |precision, tile: [u32; 9]| ConvOptions {
        scheme: Some("implicit_gemm".to_owned()),
        tile: Some(tile.to_vec()),
        precision,
        bias: true,
        ..ConvOptions::new(19)
    };
    let winograd = |tolerance, tile: [u32; 10]| ConvOptions {
        scheme: Some("winograd".to_owned()),
        tile: Some(tile.to_vec()),
        tolerance,
        bias: true,
        ..ConvOptions::new(19)
    };
    let by = |scheme: &str, tile: &[u32]| ConvOptions {
        scheme: Some(scheme.to_owned()),
        tile: Some(tile.to_vec()),
        bias: true,
        activation: Activation::Relu,
        ..ConvOptions::new(19)
    };
    let hwcn = |tile| ConvOptions {
        layout: Layout::Hwcn,
        ..by("tvm", tile)
    };
    let cp = |scheme: &str, rank, tile: &[u32]| ConvOptions {
        cp_rank: Some(rank),
        kernel: [3, 5],
        stride: [1, 2],
        bias: true,
        activation: Activation::Relu,
        scheme: Some(scheme.to_owned()),
        tile: Some(tile.to_vec()),
        ..ConvOptions::new(13)
    };
    let gemm_x = TensorShape::new(1, 21, 6, 8);
    let (one_block, cluster) = ([3, 7, 1, 2, 1, 3, 1, 1, 2], [2, 8, 2, 1, 1, 9, 2, 1, 1]);
    LayerSet {
        name: "some-layers".to_owned(),
        gpu: gpu("h200").unwrap(),
        tiles: TilePolicy::default(),
        layers: vec![
            plain("plain"),
            layer(
                "everything",
                TensorShape { batch: 2, ..x },
                everything,
                Some(Prologue {
                    activation: Activation::Sigmoid,
                }),
                true,
            ),
            plain("plain.again"),
            layer("split", TensorShape::new(1, 64, 5, 5), split, None, false),
            layer("tdc", x, tdc, None, false),
            layer("tdc_rows", x, tdc_rows, None, false),
            layer(
                "tvm",
                TensorShape { batch: 5, ..x },
                hwcn(&[32, 8, 4, 8, 1, 4, 1]),
                Some(Prologue {
                    activation: Activation::Relu,
                }),
                true,
            ),
            layer(
                "wgmma",
                TensorShape { batch: 3, ..gemm_x },
                by("wgmma", &[4, 8, 32, 1, 1, 2, 1, 2, 2]),
                Some(Prologue {
                    activation: Activation::Sigmoid,
                }),
                true,
            ),
            layer(
                "tvm.buffers",
                TensorShape { batch: 12, ..x },
                hwcn(&[32, 16, 4, 8, 2, 8, 3]),
                None,
                false,
            ),
            layer(
                "single_channel",
                TensorShape { c: 1, ..x },
                ConvOptions {
                    activation: Activation::GeluTanh,
                    ..by("single_channel", &[8, 3, 1, 3, 4, 4, 64])
                },
                None,
                true,
            ),
            layer(
                "input_stationary",
                TensorShape { c: 1, ..x },
                ConvOptions {
                    activation: Activation::Gelu,
                    ..by("input_stationary", &[8, 4, 2, 64])
                },
                None,
                true,
            ),
            layer(
                "stride_fixed",
                x,
                ConvOptions {
                    activation: Activation::LeakyRelu {
                        slope: ActivationParameter::new(0.1),
                    },
                    ..by("stride_fixed", &[16, 4, 8, 32, 8, 1])
                },
                None,
                true,
            ),
            layer(
                "gemm",
                gemm_x,
                gemm(Precision::Fp32, cluster),
                Some(Prologue {
                    activation: Activation::None,
                }),
                true,
            ),
            layer(
                "gemm.tf32",
                gemm_x,
                gemm(Precision::Tf32, one_block),
                Some(Prologue {
                    activation: Activation::HardSigmoid,
                }),
                false,
            ),
            layer(
                "gemm.bf16",
                gemm_x,
                gemm(Precision::Bf16, cluster),
                None,
                false,
            ),
            // Merged groups of two, of eight input and twelve output channels; the last one has one group.
            layer(
                "gemm.groups",
                TensorShape::new(2, 20, 6, 8),
                ConvOptions {
                    groups: 5,
                    n: 30,
                    ..gemm(Precision::Fp32, [2, 8, 1, 1, 2, 3, 1, 1, 1])
                },
                Some(Prologue {
                    activation: Activation::Sigmoid,
                }),
                true,
            ),
            layer(
                "cp_chain",
                TensorShape { batch: 2, ..x },
                cp("cp_chain", 6, &[4, 3, 2, 96, 3, 2, 1]),
                Some(Prologue {
                    activation: Activation::Tanh,
                }),
                true,
            ),
            layer(
                "cp_chain.products",
                TensorShape { batch: 2, ..x },
                cp("cp_chain", 8, &[4, 3, 2, 192, 2, 1, 16]),
                Some(Prologue {
                    activation: Activation::Relu,
                }),
                true,
            ),
            layer("cp_fused", x, cp("cp_fused", 2, &[2, 4, 4]), None, false),
            layer(
                "winograd.f2",
                gemm_x,
                winograd(Tolerance::default(), [2, 6, 8, 2, 1, 1, 1, 2, 1, 1]),
                Some(Prologue {
                    activation: Activation::Relu,
                }),
                true,
            ),
            layer(
                "winograd.f4",
                gemm_x,
                winograd(
                    Tolerance::new(5e-6).unwrap(),
                    [4, 8, 8, 1, 2, 1, 1, 1, 1, 2],
                ),
                None,
                false,
            ),
        ],
    }
}

/// The plan of a network for the first of its GPUs.
pub fn plan(network: &Network) -> NetworkPlan {
    plans(network).swap_remove(0)
}

/// The plans of a network for its GPUs.
pub fn plans(network: &Network) -> Vec<NetworkPlan> {
    plan_variants(network).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The plan of a layer set.
pub fn plan_set(set: &LayerSet) -> LayerSetPlan {
    plan_layer_set(set, set.gpu).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn with_python(plans: &[NetworkPlan]) -> Files {
    let mut files = network_files(plans).unwrap();
    add_python_module(&mut files, plans).unwrap();
    files
}

/// Every folder by name.
pub fn folders() -> [(&'static str, Files); 5] {
    [
        ("mixed", with_python(&plans(&mixed()))),
        ("tiny", network_files(&plans(&tiny())).unwrap()),
        ("pair", with_python(&plans(&pair()))),
        (several_batches::ONE, with_python(&several_batches::one())),
        (
            "some-layers",
            layer_set_files(&plan_set(&layers())).unwrap(),
        ),
    ]
}
