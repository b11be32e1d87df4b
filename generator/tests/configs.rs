//! The configs of the project against published shapes and counts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tdc_generator::config::yaml::{self, load};
use tdc_generator::config::{Config, Overrides};
use tdc_generator::gpu::{DEFAULT_GPU, gpu};
use tdc_generator::ir::{
    Activation, Batches, ConvProblem, Elementwise, LayerSet, Network, Op, OpKind, Precision,
    Problem, TensorShape, Tolerance,
};
use tdc_generator::plan::{Task, TaskGraph, plan_network};
use tdc_runtime::{ConvShape, Padding};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../configs")
        .join(name)
}

fn network(name: &str, overrides: &Overrides) -> Network {
    match load(&path(name), overrides) {
        Ok(Config::Network(network)) => network,
        Ok(Config::LayerSet(_)) => panic!("{name} is a layer set"),
        Err(errors) => panic!("{errors}"),
    }
}

fn layer_set(name: &str, overrides: &Overrides) -> LayerSet {
    match load(&path(name), overrides) {
        Ok(Config::LayerSet(set)) => set,
        Ok(Config::Network(_)) => panic!("{name} is a network"),
        Err(errors) => panic!("{errors}"),
    }
}

/// A network of `configs/` with the number of operations of its convolutions in billions, dense and with
/// ranks. They were computed from the published list of layers by a different program, with a multiply-add
/// counted as two.
struct Published {
    name: &'static str,
    dense_gflops: &'static str,
    tucker_gflops: &'static str,
}

const NETWORKS: [Published; 5] = [
    published("resnet18", "3.627", "1.572"),
    published("resnet50", "8.174", "5.162"),
    published("vgg16", "30.693", "6.643"),
    published("densenet121", "5.666", "4.147"),
    published("densenet201", "8.579", "7.856"),
];

const fn published(
    name: &'static str,
    dense_gflops: &'static str,
    tucker_gflops: &'static str,
) -> Published {
    Published {
        name,
        dense_gflops,
        tucker_gflops,
    }
}

impl Published {
    fn network(&self, overrides: &Overrides) -> Network {
        network(&format!("{}.yaml", self.name), overrides)
    }

    fn tasks(&self, overrides: &Overrides) -> Vec<Task> {
        TaskGraph::new(&self.network(overrides)).tasks
    }

    /// The lines of its list of layers.
    fn layers(&self) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/fixtures/{}-layers.txt", self.name));
        std::fs::read_to_string(path).unwrap()
    }
}

fn dense(dense: bool) -> Overrides {
    Overrides {
        dense,
        ..Overrides::default()
    }
}

#[test]
fn networks_have_torchvisions_shapes_and_the_published_ranks() {
    for published in &NETWORKS {
        let network = published.network(&Overrides::default());
        assert_eq!(network.name, published.name);
        let found: Vec<String> = network
            .ops
            .iter()
            .filter_map(|op| match &op.kind {
                OpKind::Conv(conv) => {
                    let s = &conv.shape;
                    assert_eq!(s.stride[0], s.stride[1]);
                    assert_eq!(s.padding, Padding::all(s.padding.top));
                    assert_eq!((s.batch, s.dilation, s.groups), (1, [1, 1], 1));
                    let ranks = match conv.options.ranks {
                        Some([d1, d2]) => format!("{d1} {d2}"),
                        None => "- -".to_owned(),
                    };
                    Some(format!(
                        "{} {} {} {} {} {} {} {} {} {ranks}",
                        op.name, s.c, s.n, s.h, s.w, s.r, s.s, s.stride[0], s.padding.top
                    ))
                }
                _ => None,
            })
            .collect();
        let layers = published.layers();
        let mut expected: Vec<&str> = layers
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{}", published.name);
        assert_eq!(
            network.op(network.last_op()).y,
            TensorShape::new(1, 1000, 1, 1)
        );
    }
}

#[test]
fn flops_match_the_published_counts() {
    for published in &NETWORKS {
        for (is_dense, expected) in [
            (true, published.dense_gflops),
            (false, published.tucker_gflops),
        ] {
            let tasks = published.tasks(&dense(is_dense));
            let flops: u64 = tasks
                .iter()
                .filter(|task| matches!(task.problem, Problem::Conv(_)))
                .map(|task| task.problem.flops())
                .sum();
            // The published counts include square factors, which plans leave out.
            let flops = flops + square_factors(&published.network(&dense(is_dense)));
            let gflops = format!("{:.3}", flops as f64 / 1e9);
            assert_eq!(gflops, expected, "{}", published.name);
        }
    }
}

/// Operations of the first factors with D1 = C and the last factors with D2 = N.
fn square_factors(network: &Network) -> u64 {
    let of_op = |op: &Op| {
        let OpKind::Conv(conv) = &op.kind else {
            return 0;
        };
        let Some(ranks) = conv.options.ranks else {
            return 0;
        };
        let all = ConvProblem::new(conv.shape).tucker_factors(ranks);
        let is_square = |factor: &&ConvProblem| {
            let shape = &factor.shape;
            (shape.r, shape.s) == (1, 1) && shape.c == shape.n
        };
        all.iter()
            .filter(is_square)
            .map(|factor| factor.shape.flops())
            .sum()
    };
    network.ops.iter().map(of_op).sum()
}

/// Parameters and multiply-adds of networks without ranks, as torchvision publishes them with its trained weights (`num_params`, `_ops`);
/// those of Inception-v3 without its auxiliary classifier, whose 3,326,696 parameters torchvision counts.
const OTHER_NETWORKS: [(&str, u64, &str); 6] = [
    ("googlenet", 6_624_904, "1.498"),
    ("inception_v3", 27_161_264 - 3_326_696, "5.713"),
    ("mobilenet_v2", 3_504_872, "0.301"),
    ("mobilenet_v3_large", 5_483_032, "0.217"),
    ("resnext50_32x4d", 25_028_904, "4.230"),
    ("squeezenet1_1", 1_235_496, "0.349"),
];

#[test]
fn other_networks_have_torchvisions_parameters_and_operations() {
    for (name, parameters, multiply_adds) in OTHER_NETWORKS {
        let network = network(&format!("{name}.yaml"), &Overrides::default());
        assert_eq!(network.name, name);
        let (mut count, mut products) = (0, 0);
        for op in &network.ops {
            let (weights, n, bias, bn) = match &op.kind {
                OpKind::Conv(conv) => {
                    let [o, i, r, s] = conv.shape.weight().map(u64::from);
                    let options = &conv.options;
                    (o * i * r * s, o, options.bias, options.bn.is_some())
                }
                OpKind::Linear(linear) => {
                    let n = u64::from(linear.options.n);
                    (n * u64::from(linear.c), n, linear.options.bias, false)
                }
                _ => continue,
            };
            count += weights + n * (u64::from(bias) + 2 * u64::from(bn));
            products += weights * op.y.pixels();
        }
        assert_eq!(count, parameters, "{name}");
        let found = format!("{:.3}", products as f64 / 1e9);
        assert_eq!(found, multiply_adds, "{name}");
        let y = network.op(network.last_op()).y;
        assert_eq!(y, TensorShape::new(1, 1000, 1, 1), "{name}");
    }
}

/// Squeeze-and-excite is two launches of one unit where that is predicted to be faster: in six of eight places.
#[test]
fn the_squeeze_and_excites_of_mobilenet_v3_are_units() {
    let network = network("mobilenet_v3_large.yaml", &Overrides::default());
    let plan = plan_network(&network, gpu(DEFAULT_GPU).unwrap()).unwrap();
    let units = plan.layers.iter().map(|layer| &plan.units[layer.unit]);
    let fused = units.filter(|unit| unit.scheme == "squeeze_excite");
    assert_eq!(fused.map(|unit| unit.kernels.len()).sum::<usize>(), 12);
}

/// The three convolutions of an inverted residual are one launch in all blocks of MobileNet-v2 but the first, which has two, and the last, whose
/// weights do not fit in shared memory.
#[test]
fn the_inverted_residuals_of_mobilenet_v2_are_units() {
    let network = network("mobilenet_v2.yaml", &Overrides::default());
    let plan = plan_network(&network, gpu(DEFAULT_GPU).unwrap()).unwrap();
    let layers = plan.layers.iter();
    let fused = layers.filter(|layer| plan.units[layer.unit].scheme == "inverted_residual");
    let names: Vec<_> = fused.map(|layer| layer.name.clone()).collect();
    let expected: Vec<_> = (2..17)
        .map(|block| format!("features.{block}.conv.2"))
        .collect();
    assert_eq!(names, expected);
}

/// Two convolutions of adjacent dense layers are one launch wherever images have 14x14 or 7x7 pixels; the last ones of a block are followed by
/// a transition, which has more output channels.
#[test]
fn the_dense_steps_of_densenet121_are_units() {
    let options = Overrides {
        dense: true,
        ..Overrides::default()
    };
    let network = network("densenet121.yaml", &options);
    let plan = plan_network(&network, gpu(DEFAULT_GPU).unwrap()).unwrap();
    let layers = plan.layers.iter();
    let fused = layers.filter(|layer| plan.units[layer.unit].scheme == "dense_step");
    let names: Vec<_> = fused.map(|layer| layer.name.clone()).collect();
    for (block, layers) in [(3, 24), (4, 16)] {
        for layer in 1..layers {
            let conv = |layer: u32, conv: u32| {
                format!("features.denseblock{block}.denselayer{layer}.conv{conv}")
            };
            let name = format!("{}+{}", conv(layer, 2), conv(layer + 1, 1));
            assert!(names.contains(&name), "{name}");
        }
    }
}

/// The BatchNorm after a convolution in torchvision.
fn norm_after(network: &str, conv: &str) -> Option<String> {
    match network {
        "vgg16" => None,
        "resnet18" | "resnet50" => Some(match conv.strip_suffix("downsample.0") {
            Some(block) => format!("{block}downsample.1"),
            None => conv.replace("conv", "bn"),
        }),
        // In a DenseNet the norms precede the convolutions they belong to: conv1 is followed by that of
        // conv2. The stem is an exception.
        _ => match conv.strip_suffix(".conv1") {
            Some(layer) => Some(format!("{layer}.norm2")),
            None => (conv == "features.conv0").then(|| "features.norm0".to_owned()),
        },
    }
}

/// Whether a convolution and its BatchNorm are followed by a ReLU in torchvision, without an addition in
/// between.
fn relu_after(network: &str, conv: &str) -> bool {
    match network {
        "vgg16" => true,
        "resnet18" => conv.ends_with("conv1"),
        "resnet50" => conv.ends_with("conv1") || conv.ends_with("conv2"),
        _ => norm_after(network, conv).is_some(),
    }
}

#[test]
fn layers_have_the_norms_biases_and_relus_of_torchvision() {
    for published in &NETWORKS {
        let mut linear = Vec::new();
        for op in &published.network(&Overrides::default()).ops {
            match &op.kind {
                OpKind::Conv(conv) => {
                    let bn = conv.options.bn.as_ref().map(|bn| bn.name.clone());
                    assert_eq!(bn, norm_after(published.name, &op.name));
                    assert_eq!(conv.options.bias, published.name == "vgg16", "{}", op.name);
                    let relu = relu_after(published.name, &op.name);
                    assert_eq!(
                        conv.options.activation == Activation::Relu,
                        relu,
                        "{}",
                        op.name
                    );
                }
                OpKind::ScaleShift(options) => {
                    let bn = options.bn.as_ref().map(|bn| bn.name.as_str());
                    assert_eq!(bn, Some(op.name.as_str()));
                    assert_eq!(options.activation, Activation::Relu, "{}", op.name);
                }
                OpKind::Linear(layer) => {
                    assert!(layer.options.bias, "{}", op.name);
                    let relu = if layer.options.activation == Activation::Relu {
                        " relu"
                    } else {
                        ""
                    };
                    linear.push(format!("{} {} {}{relu}", op.name, layer.c, layer.options.n));
                }
                _ => {}
            }
        }
        let expected: &[&str] = match published.name {
            "resnet18" => &["fc 512 1000"],
            "resnet50" => &["fc 2048 1000"],
            "vgg16" => &[
                "classifier.0 25088 4096 relu",
                "classifier.3 4096 4096 relu",
                "classifier.6 4096 1000",
            ],
            "densenet121" => &["classifier 1024 1000"],
            _ => &["classifier 1920 1000"],
        };
        assert_eq!(linear, expected, "{}", published.name);
    }
}

#[test]
fn densenet_has_no_copies_and_one_unfused_norm() {
    for published in &NETWORKS {
        for overrides in [
            dense(true),
            dense(false),
            Overrides {
                batches: Some(Batches::one(3)),
                ..Overrides::default()
            },
        ] {
            let tasks = published.tasks(&overrides);
            let alone: Vec<_> = tasks
                .iter()
                .filter_map(|task| match task.problem {
                    Problem::Elementwise(p) => Some((task.name.as_str(), p.function)),
                    _ => None,
                })
                .collect();
            // The global pool reads norm5, which has a ReLU and hence cannot be fused with a convolution.
            let expected: &[_] = if published.name.starts_with("densenet") {
                &[("features.norm5", Elementwise::ScaleShift(Activation::Relu))]
            } else {
                &[]
            };
            assert_eq!(alone, expected, "{}", published.name);
        }
    }
}

#[test]
fn densenet_norms_become_prologues() {
    for published in &NETWORKS[3..] {
        for is_dense in [true, false] {
            let network = published.network(&dense(is_dense));
            let norms = network
                .ops
                .iter()
                .filter(|op| {
                    matches!(op.kind, OpKind::ScaleShift(_)) && op.name != "features.norm5"
                })
                .map(|op| op.name.replace("norm1", "conv1").replace("norm", "conv"));
            let tasks = published.tasks(&dense(is_dense));
            let prologues = tasks.iter().filter_map(|task| match task.problem {
                Problem::Conv(p) => p.prologue.map(|prologue| {
                    assert_eq!(prologue.activation, Activation::Relu, "{}", task.name);
                    task.name.clone()
                }),
                _ => None,
            });
            assert!(prologues.eq(norms), "{}", published.name);
        }
    }
}

#[test]
fn a_densenet_block_shares_one_buffer() {
    for (published, blocks) in NETWORKS[3..].iter().zip([[6, 12, 24, 16], [6, 12, 48, 32]]) {
        for is_dense in [true, false] {
            let network = published.network(&dense(is_dense));
            let plan = plan_network(&network, gpu(DEFAULT_GPU).unwrap()).unwrap();
            for (block, len) in (1..).zip(blocks) {
                let prefix = format!("features.denseblock{block}.");
                // The channels at the start of a block, and those that each of its layers adds.
                let start = match block {
                    1 => "features.pool0".to_owned(),
                    _ => format!("features.transition{}.pool", block - 1),
                };
                let outputs = plan.layers.iter().flat_map(|layer| layer.outputs());
                let parts: Vec<_> = outputs
                    .filter(|(op, _)| {
                        let added = op.starts_with(&prefix) && op.ends_with(".conv2");
                        added || *op == start
                    })
                    .map(|(_, y)| *y)
                    .collect();
                assert_eq!(parts.len(), 1 + len);
                let mut offset = 0;
                for part in &parts {
                    assert_eq!(part.memory, parts[0].memory);
                    assert_eq!(part.offset, offset);
                    offset += part.shape.image_len();
                }
                assert!(parts.iter().all(|part| part.batch_stride == offset));
            }
        }
    }
}

#[test]
fn overrides_change_a_network() {
    let overrides = Overrides {
        input: "1x3x480x640".parse().ok(),
        batches: Some(Batches::one(2)),
        dense: true,
        ..Overrides::default()
    };
    let network = network("resnet18.yaml", &overrides);
    assert_eq!(network.input(), TensorShape::new(2, 3, 480, 640));
    let last = network.ops.iter().rfind(|op| op.name == "layer4.1");
    assert_eq!(last.map(|op| op.y), Some(TensorShape::new(2, 512, 15, 20)));
    assert!(network.ops.iter().all(|op| match &op.kind {
        OpKind::Conv(conv) => conv.options.ranks.is_none(),
        _ => true,
    }));
}

/// A convolution's own key has precedence, then `defaults`, then the config's; the caller's overrides all.
#[test]
fn precision_of_the_layer_overrides_defaults() {
    let precisions = |text: &str, precision| {
        let overrides = Overrides {
            precision,
            ..Overrides::default()
        };
        let problems: Vec<Problem> = match yaml::parse(text, "x.yaml", &overrides).unwrap() {
            Config::Network(network) => {
                let tasks = TaskGraph::new(&network).tasks;
                tasks.into_iter().map(|task| task.problem).collect()
            }
            Config::LayerSet(set) => {
                let problems = set.layers.into_iter().map(|layer| layer.problem);
                problems.map(Problem::Conv).collect()
            }
        };
        let words = problems.iter().map(|problem| match problem {
            Problem::Conv(conv) => conv.precision.as_str(),
            _ => "none",
        });
        words.collect::<Vec<_>>().join(" ")
    };
    let network = "name: net
precision: bf16
input: 1x8x9x9
ops:
  - {op: conv, name: a, n: 8}
  - {op: conv, name: b, n: 8, ranks: [4, 2], precision: tf32}
  - {op: conv, name: c, n: 8, precision: fp32}
  - {op: flatten, name: f}
  - {op: linear, name: l, n: 3}
";
    assert_eq!(precisions(network, None), "bf16 tf32 tf32 tf32 fp32 none");
    let overridden = precisions(network, Some(Precision::Fp16));
    assert_eq!(overridden, "fp16 fp16 fp16 fp16 fp16 none");
    let silent = network.replace("precision: bf16\n", "");
    assert_eq!(precisions(&silent, None), "fp32 tf32 tf32 tf32 fp32 none");

    let set = "name: set
precision: fp16
defaults: {precision: tf32, kernel: 1}
layers:
  - {conv: [8, 8, 9, 9]}
  - {conv: [8, 8, 9, 9], precision: bf16}
";
    assert_eq!(precisions(set, None), "tf32 bf16");
    assert_eq!(precisions(set, Some(Precision::Fp32)), "fp32 fp32");
    assert_eq!(
        precisions(&set.replace("precision: tf32, ", ""), None),
        "fp16 bf16"
    );
}

/// The same for the tolerance, and for its absence.
#[test]
fn tolerance_of_the_layer_overrides_defaults() {
    let errors = |text: &str, tolerance| {
        let overrides = Overrides {
            tolerance,
            ..Overrides::default()
        };
        let Config::LayerSet(set) = yaml::parse(text, "x.yaml", &overrides).unwrap() else {
            panic!("{text}");
        };
        let problems = set.layers.into_iter().map(|layer| layer.problem);
        problems
            .map(|problem| format!("{:.3e}", problem.tolerance()))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let set = "name: set
tolerance: 3e-6
defaults: {kernel: 1}
layers:
  - {conv: [8, 8, 9, 9]}
  - {conv: [8, 8, 9, 9], tolerance: 1e-4}
  - {conv: [8, 8, 9, 9], precision: tf32}
";
    assert_eq!(errors(set, None), "3.000e-6 1.000e-4 1.000e-3");
    let default = set.replace("defaults: {", "defaults: {tolerance: 2e-5, ");
    assert_eq!(errors(&default, None), "2.000e-5 1.000e-4 1.000e-3");
    assert_eq!(
        errors(set, Tolerance::new(0.01)),
        "1.000e-2 1.000e-2 1.000e-2"
    );
    let silent = set.replace("tolerance: 3e-6\n", "");
    assert_eq!(errors(&silent, None), "1.000e-6 1.000e-4 1.000e-3");
}

#[test]
fn core_shapes_are_those_of_the_paper() {
    let set = layer_set("core-shapes.yaml", &Overrides::default());
    assert_eq!(set.name, "core-shapes");
    let expected = [
        [32, 32, 7],
        [32, 32, 14],
        [32, 32, 28],
        [32, 32, 56],
        [64, 32, 7],
        [64, 32, 14],
        [64, 32, 28],
        [64, 32, 56],
        [64, 32, 112],
        [64, 32, 224],
        [64, 64, 56],
        [96, 64, 7],
        [96, 64, 28],
        [128, 96, 14],
        [160, 96, 28],
        [192, 96, 14],
        [192, 96, 28],
        [192, 160, 7],
    ];
    let shapes: Vec<ConvShape> = set.layers.iter().map(|layer| layer.problem.shape).collect();
    let expected: Vec<ConvShape> = expected
        .into_iter()
        .map(|[c, n, size]| ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(c, n, size, size, 3, 3)
        })
        .collect();
    assert_eq!(shapes, expected);
    assert_eq!(set.layers[0].name, "c32_n32_h7_w7");
}

fn shapes(set: &LayerSet) -> Vec<ConvShape> {
    set.layers.iter().map(|layer| layer.problem.shape).collect()
}

/// Operations of the layers with this prefix, with a multiply-add counted as two.
fn flops(set: &LayerSet, prefix: &str) -> u64 {
    let layers = set.layers.iter();
    layers
        .filter(|layer| layer.name.starts_with(prefix))
        .map(|layer| layer.problem.shape.flops())
        .sum()
}

#[test]
fn beyond_paper_has_each_distinct_convolution_of_its_networks() {
    let set = layer_set("beyond-paper.yaml", &Overrides::default());
    let count = |prefix: &str| {
        let layers = set.layers.iter();
        layers
            .filter(|layer| layer.name.starts_with(prefix))
            .count()
    };
    assert_eq!(count("cp."), 5);
    assert_eq!(count("inception"), 46);
    assert_eq!(count("mobilenet_v2."), 28);
    assert_eq!(count("resnet50."), 44);
    assert_eq!(set.layers.len(), 5 + 46 + 28 + 44);
    let distinct: BTreeSet<ConvShape> = shapes(&set).into_iter().collect();
    assert_eq!(distinct.len(), set.layers.len());
    for shape in &distinct {
        // One output pixel for each step of the stride.
        assert_eq!(shape.out_h(), shape.h.div_ceil(shape.stride[0]));
        assert_eq!(shape.out_w(), shape.w.div_ceil(shape.stride[1]));
    }

    // Computed by hand.
    assert_eq!(
        flops(&set, "cp.conv1"),
        2 * 96 * 3 * 11 * 11 * 224 * 224_u64
    );
    assert_eq!(
        flops(&set, "mobilenet_v2.2.depthwise"),
        2 * 96 * 9 * 56 * 56
    );
    assert_eq!(flops(&set, "mobilenet_v2.18"), 2 * 320 * 1280 * 49);
    assert_eq!(
        flops(&set, "resnet50.layer2.0.downsample-b8"),
        2 * 8 * 256 * 512 * 28 * 28
    );
    // The modules that share no convolution with others: table 1 of the paper has 128, 73 and 170 million
    // multiply-adds.
    assert_eq!(flops(&set, "inception3a."), 2 * 128_049_152);
    assert_eq!(flops(&set, "inception4a."), 2 * 73_608_192);
    assert_eq!(flops(&set, "inception4e."), 2 * 169_996_288);

    let depthwise: Vec<[u32; 3]> = shapes(&set)
        .iter()
        .filter(|shape| shape.groups > 1)
        .map(|shape| {
            assert_eq!([shape.groups, shape.n], [shape.c, shape.c]);
            [shape.c, shape.h, shape.stride[0]]
        })
        .collect();
    let expected = [
        [32, 112, 1],
        [96, 112, 2],
        [144, 56, 1],
        [144, 56, 2],
        [192, 28, 1],
        [192, 28, 2],
        [384, 14, 1],
        [576, 14, 1],
        [576, 14, 2],
        [960, 7, 1],
    ];
    assert_eq!(depthwise, expected);

    for batch in [1, 8] {
        let overrides = Overrides {
            batches: Some(Batches::one(batch)),
            ..dense(true)
        };
        let network = network("resnet50.yaml", &overrides);
        let convs = network.ops.iter().filter_map(|op| match &op.kind {
            OpKind::Conv(conv) if conv.shape.r < 7 => Some(conv.shape),
            _ => None,
        });
        let layers = set.layers.iter();
        let listed = layers
            .filter(|layer| layer.name.starts_with("resnet50."))
            .map(|layer| layer.problem.shape)
            .filter(|shape| shape.batch == batch);
        assert_eq!(
            listed.collect::<BTreeSet<_>>(),
            convs.collect::<BTreeSet<_>>()
        );
    }
}

#[test]
fn held_out_shapes_are_in_no_other_config() {
    let held_out = layer_set("held-out.yaml", &Overrides::default());
    let distinct: BTreeSet<ConvShape> = shapes(&held_out).into_iter().collect();
    assert_eq!(held_out.layers.len(), 54);
    assert_eq!(distinct.len(), 54);
    assert_eq!(
        held_out.layers[0].problem.shape.flops(),
        2 * 17 * 31 * 9 * 29 * 29
    );
    // 20x15 with a [1, 7] filter; 4 images, two filters for each channel.
    let named = |name: &str| {
        let mut layers = held_out.layers.iter();
        layers.find(|layer| layer.name == name).unwrap().problem
    };
    assert_eq!(
        named("c96_n96_h20_w15").shape.flops(),
        2 * 96 * 96 * 7 * 20 * 15
    );
    assert_eq!(
        named("c48_n96_h56_w56").shape.flops(),
        2 * 4 * 96 * 9 * 56 * 56
    );

    let mut others: Vec<ConvShape> = ["core-shapes.yaml", "beyond-paper.yaml"]
        .iter()
        .flat_map(|name| shapes(&layer_set(name, &Overrides::default())))
        .collect();
    for published in &NETWORKS {
        for is_dense in [true, false] {
            let tasks = published.tasks(&dense(is_dense));
            others.extend(tasks.iter().filter_map(|task| match task.problem {
                Problem::Conv(conv) => Some(conv.shape),
                _ => None,
            }));
        }
    }
    let known: Vec<_> = others
        .iter()
        .filter(|shape| distinct.contains(shape))
        .collect();
    assert_eq!(known, Vec::<&ConvShape>::new());
}

#[test]
fn batch_overrides_a_layer_set() {
    let overrides = Overrides {
        batches: Some(Batches::one(8)),
        ..Overrides::default()
    };
    let set = layer_set("core-shapes.yaml", &overrides);
    assert!(
        set.layers
            .iter()
            .all(|layer| layer.problem.shape.batch == 8)
    );
}
