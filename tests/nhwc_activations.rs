//! Networks with activations in fp16, bf16 or split NHWC, on the CPU emulation: the planner mixes formats and converts between them, and every
//! value is right.

mod device;

use device::{cpu, gpu_here};
use std::collections::BTreeSet;
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{DType, Layout, Network, Problem};
use tdc_generator::plan::{
    NetworkPlan, PlannedUnit, Planner, TuningTable, candidate_problems, plan_network_with,
    plan_problem, problem_label, recipes,
};
use tdc_generator::scheme::scheme;
use tdc_generator::verify::{CheckpointParameters, Device, Random, check_network};
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, pack, resolve};

/// Few input channels, a residual, a stride, 40 channels, which no convolution reads in split NHWC, pooling of every kind, two outputs.
const NETWORK: &str = "
name: formats
input: 3x3x19x23
activations: fp16
precision: fp16
ops:
  - {op: conv, name: first, n: 32, stride: 2, bias: true, activation: relu}
  - {op: max_pool, name: pool, kernel: 3, stride: 2, pad: 1}
  - {op: conv, name: a, n: 48, bias: true, activation: relu}
  - {op: conv, name: b, n: 40, kernel: 1, bn: b_bn}
  - {op: conv, name: shortcut, inputs: [pool], n: 40, bias: true}
  - {op: add, name: sum, inputs: [b, shortcut], activation: relu}
  - {op: conv, name: c, n: 64, stride: 2, bias: true, activation: silu, output: {name: features}}
  - {op: avg_pool, name: mean, kernel: 2, stride: 1}
  - {op: global_avg_pool, name: all}
  - {op: linear, name: fc, n: 5}
";

/// Residual blocks with a projection shortcut, before and after the convolution that it is added to; both sums are of one unit. The third
/// shortcut has another reader, so it is a convolution of its own.
const BLOCKS: &str = "
name: blocks
input: 8x16x9x11
activations: fp16
precision: fp16
ops:
  - {op: conv, name: first, n: 32, kernel: 1, bias: true, activation: relu}
  - {op: conv, name: a1, n: 48, bn: a_bn1, stride: 2, activation: relu}
  - {op: conv, name: a2, n: 64, kernel: 1, bn: a_bn2}
  - {op: conv, name: a_down, inputs: [first], n: 64, kernel: 1, stride: 2, bn: a_bn3}
  - {op: add, name: a, inputs: [a2, a_down], activation: relu}
  - {op: conv, name: b1, n: 32, kernel: 1, activation: relu}
  - {op: conv, name: b_down, inputs: [a], n: 40, kernel: 1, bias: true}
  - {op: conv, name: b2, inputs: [b1], n: 40, kernel: 1}
  - {op: add, name: b, inputs: [b_down, b2]}
  - {op: conv, name: c1, inputs: [a1], n: 40, kernel: 1, output: {name: features}}
  - {op: conv, name: c2, inputs: [b1], n: 40, kernel: 1}
  - {op: add, name: c, inputs: [c1, c2]}
  - {op: add, name: all, inputs: [b, c]}
";

/// Images are flattened before a linear layer, as NCHW; its output has no such order. The last layer has a number of inputs that no
/// convolution reads in fp16.
const LINEAR: &str = "
name: linear
input: 9x5x3x7
activations: fp16
precision: fp16
ops:
  - {op: conv, name: first, n: 16, bias: true, activation: relu}
  - {op: max_pool, name: pool, kernel: 2, stride: 1}
  - {op: flatten, name: flat}
  - {op: linear, name: a, n: 48, activation: relu}
  - {op: linear, name: b, n: 56, rank: 32}
  - {op: linear, name: c, n: 13}
";

/// Layers in fp32 in a network that may store fp16: each chain has the format of its precision, and pooling that of the tensor it reads.
const MIXED: &str = "
name: mixed
input: 8x16x9x11
activations: fp16
precision: fp16
ops:
  - {op: conv, name: a, n: 32, precision: fp32, bias: true, activation: relu}
  - {op: max_pool, name: pool, kernel: 2, stride: 1}
  - {op: conv, name: b, n: 48, kernel: 1, precision: fp32, activation: relu}
  - {op: conv, name: c, n: 32, bias: true, activation: relu}
  - {op: avg_pool, name: mean, kernel: 2, stride: 1}
  - {op: conv, name: d, n: 24, kernel: 1}
";

/// Concatenations of convolutions, of a pool and of a concatenation, which are written in NHWC; of a part in fp32, which is converted; of
/// parts with other readers; and of a part with 12 channels, which are not.
const CONCATS: &str = "
name: concats
input: 3x16x9x11
activations: fp16
precision: fp16
ops:
  - {op: conv, name: first, n: 32, kernel: 1, activation: relu}
  - {op: conv, name: a, n: 24, bias: true, activation: relu}
  - {op: conv, name: b1, inputs: [first], n: 16, kernel: 1}
  - {op: conv, name: b2, n: 40, bias: true}
  - {op: conv, name: c, inputs: [first], n: 16, kernel: 1}
  - {op: conv, name: left, n: 8, kernel: [1, 3], activation: relu}
  - {op: conv, name: right, inputs: [c], n: 24, kernel: [3, 1]}
  - {op: concat, name: both, inputs: [left, right]}
  - {op: max_pool, name: pool, inputs: [first], kernel: 3, stride: 1, pad: 1}
  - {op: concat, name: all, inputs: [a, b2, both, pool]}
  - {op: conv, name: d, n: 16, bias: true}
  - {op: softmax, name: soft}
  - {op: conv, name: e, inputs: [all], n: 32, kernel: 1}
  - {op: concat, name: converted, inputs: [e, soft]}
  - {op: conv, name: f, n: 16, bias: true, activation: relu}
  - {op: conv, name: g, n: 16}
  - {op: concat, name: read, inputs: [f, g]}
  - {op: conv, name: h, n: 12}
  - {op: conv, name: i, inputs: [read], n: 16}
  - {op: concat, name: odd, inputs: [h, i]}
  - {op: conv, name: j, n: 16}
";

/// The first network with fp32 activations, in a batch of which split NHWC is considered, and with an activation function that may be larger
/// than its argument.
fn split_network() -> Network {
    let text = NETWORK
        .replace("3x3x19x23", "8x3x19x23")
        .replace("activations: fp16\nprecision: fp16\n", "")
        .replace("activation: silu", "activation: sigmoid");
    network(&text, &Overrides::default())
}

fn network(text: &str, overrides: &Overrides) -> Network {
    match yaml::parse(text, "formats.yaml", overrides) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

/// A time for a table in which NHWC tensors pay. The network is too small for that otherwise.
fn us(problem: &Problem) -> f64 {
    let kind = problem.kind();
    let layouts = [kind.input(), kind.output()].map(|tensor| tensor.format.layout);
    match layouts.map(|layout| layout == Layout::Nhwc) {
        _ if matches!(problem, Problem::Convert(_)) => 1.0,
        [true, true] => 1.0,
        [false, false] => 50.0,
        _ => 10.0,
    }
}

/// Rows for every problem that the network may have.
fn table(network: &Network) -> TuningTable {
    let heading = "gpu: h200\ndevice: test\ndriver: 1\nnvrtc: 1\ngenerator: 1\n";
    let mut rows = BTreeSet::new();
    for problem in candidate_problems(network) {
        let problem = problem.measured();
        let mut planner = Planner::new(gpu("h200").unwrap());
        let Ok(unit) = plan_problem(&mut planner, "t", "layer", &problem, None, None) else {
            continue;
        };
        let tile = unit.tile.label(scheme(unit.scheme).unwrap().tile_fields());
        let us = us(&problem);
        let label = problem_label(&problem);
        rows.insert(format!(
            "{label} {} {tile} {us} 0123456789abcdef\n",
            unit.scheme
        ));
    }
    let rows: String = rows.into_iter().collect();
    let text = format!("{heading}{rows}");
    text.parse()
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn planned(network: &Network) -> NetworkPlan {
    let planner = Planner::new(gpu("h200").unwrap()).with_table(table(network));
    plan_network_with(network, planner).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The layers of a plan with the types of their inputs and outputs.
fn formats(plan: &NetworkPlan) -> Vec<String> {
    let layers = plan.layers.iter();
    let format = layers.map(|layer| {
        let kind = plan.units[layer.unit].problem.kind();
        let [x, y] = [kind.input(), kind.output()].map(|tensor| tensor.format.dtype.as_str());
        format!("{} {x}-{y}", layer.name)
    });
    format.collect()
}

/// Checks a network that is written for fp16 in fp16 and in bf16. `expected` are its layers and the types of their inputs and outputs.
fn check_16_bits(text: &str, expected: &[&str], open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    for dtype in ["fp16", "bf16"] {
        let network = network(&text.replace("fp16", dtype), &Overrides::default());
        let plan = planned(&network);
        let expected = expected.iter().map(|layer| layer.replace("fp16", dtype));
        assert_eq!(formats(&plan), expected.collect::<Vec<_>>());
        check_values(&network, &plan, open);
    }
}

fn check(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let expected = [
        "first fp32-fp16",
        "pool fp16-fp16",
        "a fp16-fp16",
        "b fp16-fp16",
        "shortcut fp16-fp16",
        "c fp16-fp16",
        "c.nchw fp16-fp32",
        "mean fp16-fp16",
        "all fp16-fp32",
        "fc fp32-fp32",
    ];
    check_16_bits(NETWORK, &expected, open);
}

fn check_linear(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let expected = [
        "first fp32-fp32",
        "first.nhwc fp32-fp16",
        "pool fp16-fp16",
        "pool.nchw fp16-fp32",
        "flat.nhwc fp32-fp16",
        "a fp16-fp16",
        "b.first fp16-fp16",
        "b.last fp16-fp16",
        "b.nchw fp16-fp32",
        "c fp32-fp32",
    ];
    check_16_bits(LINEAR, &expected, open);
}

fn check_blocks(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let split = BLOCKS.replace("activations: fp16\nprecision: fp16\n", "");
    let bf16 = BLOCKS.replace("fp16", "bf16");
    for (text, stored) in [(BLOCKS, "fp16"), (&bf16, "bf16"), (&split, "split")] {
        let network = network(text, &Overrides::default());
        let plan = planned(&network);
        let formats = formats(&plan);
        let projected: Vec<_> = formats.iter().filter(|name| name.contains('+')).collect();
        assert_eq!(
            projected,
            [
                &format!("a2+a_down {stored}-{stored}"),
                &format!("b2+b_down {stored}-{stored}"),
            ],
            "{formats:?}"
        );
        check_values(&network, &plan, open);
    }
}

/// Every value of the network is right, with random weights and inputs.
fn check_values(
    network: &Network,
    plan: &NetworkPlan,
    open: fn(&[PlannedUnit]) -> Box<dyn Device>,
) {
    let recipes = recipes(network, plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let parameters = CheckpointParameters::new(network, plan, &checkpoint, &resolved).unwrap();
    let file = pack(&plan.weights, &resolved.values).unwrap();
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let input = [Random::new(9).values(plan.inputs[0].shape.len() as usize)];
    let mut device = open(&plan.units);
    let check = check_network(
        device.as_mut(),
        network,
        plan,
        &parameters,
        &payload,
        &input,
    );
    let check = check.unwrap();
    assert_eq!((check.failure, check.exceeds_tolerance), (None, false));
}

fn check_split(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let network = split_network();
    let plan = planned(&network);
    assert_eq!(
        formats(&plan),
        [
            "first fp32-split",
            "pool split-split",
            "a split-split",
            "b split-split",
            "shortcut split-split",
            "sum.nchw split-fp32",
            "c fp32-fp32",
            "c.nhwc fp32-split",
            "mean split-split",
            "all split-fp32",
            "fc fp32-fp32",
        ]
    );
    check_values(&network, &plan, open);
}

fn check_mixed(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let network = network(MIXED, &Overrides::default());
    let plan = planned(&network);
    assert_eq!(
        formats(&plan),
        [
            "input.nhwc fp32-split",
            "a split-split",
            "pool split-split",
            "b split-split",
            "b.nchw split-fp32",
            "b.nhwc fp32-fp16",
            "c fp16-fp16",
            "mean fp16-fp16",
            "d fp16-fp16",
            "d.nchw fp16-fp32",
        ]
    );
    check_values(&network, &plan, open);
}

/// Each concatenation has one tensor, whether its parts are written by a unit, by a conversion or in fp32.
fn check_concats(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    for dtype in ["fp16", "bf16"] {
        let network = network(&CONCATS.replace("fp16", dtype), &Overrides::default());
        let plan = planned(&network);
        let strides = plan.layers.iter().filter_map(|layer| {
            let stride = layer.y.format.pixel_stride?;
            Some((&layer.name[..], layer.y.offset, stride))
        });
        assert_eq!(
            strides.collect::<Vec<_>>(),
            [
                ("a", 0, 128),
                ("b2", 24, 128),
                ("left", 64, 128),
                ("right", 72, 128),
                ("pool", 96, 128),
                ("e", 0, 48),
                ("soft.nhwc", 32, 48),
                ("f", 0, 32),
                ("g", 16, 32),
            ],
            "{:?}",
            formats(&plan)
        );
        check_values(&network, &plan, open);
    }
}

/// A network of convolutions, pools and concatenations of one image size: of parts that others read, of concatenations and twice of one value, and
/// with parts that NHWC does not fit, outputs of the network among them.
fn random_concats(index: u64) -> String {
    let mut random = Random::new(index);
    let mut below = |end: u64| random.below(end);
    let dtype = ["fp16", "bf16"][index as usize % 2];
    let mut text = format!(
        "name: random\ninput: {}x16x{}x{}\nactivations: {dtype}\nprecision: {dtype}\nops:\n",
        1 + below(3),
        5 + below(5),
        6 + below(6)
    );
    let mut values = vec!["input".to_owned()];
    let mut read = BTreeSet::new();
    for at in 0..8 + below(8) {
        // Late values more often, so that a chain forms.
        let earlier = |value: u64| values[(values.len() as u64 - 1 - value) as usize].clone();
        let x = earlier(below(values.len().min(3) as u64));
        let channels = match below(20) {
            0 => 12,
            other => [8, 16, 24, 32, 40][other as usize % 5],
        };
        let output = match below(12) {
            0 => format!(", output: {{name: kept{at}}}"),
            _ => String::new(),
        };
        let op = match below(12) {
            0 => format!(
                "{{op: max_pool, name: v{at}, inputs: [{x}], kernel: 3, stride: 1, pad: 1}}"
            ),
            1 => format!(
                "{{op: avg_pool, name: v{at}, inputs: [{x}], kernel: 3, stride: 1, pad: 1}}"
            ),
            2 => format!("{{op: softmax, name: v{at}, inputs: [{x}]}}"),
            3..=6 if x != "input" => {
                let others = (0..1 + below(3)).map(|_| earlier(below(values.len() as u64 - 1)));
                let others: Vec<_> = others.collect();
                read.extend(others.clone());
                let others = others.join(", ");
                format!("{{op: concat, name: v{at}, inputs: [{x}, {others}]{output}}}")
            }
            _ => format!(
                "{{op: conv, name: v{at}, inputs: [{x}], n: {channels}, kernel: {}, bias: true, activation: relu{output}}}",
                1 + 2 * below(2)
            ),
        };
        read.insert(x);
        text += &format!("  - {op}\n");
        values.push(format!("v{at}"));
    }
    // Everything must be read, and the last concatenation has two parts at least.
    let unread = values
        .iter()
        .skip(1)
        .filter(|value| !read.contains(&value[..]));
    let unread: Vec<_> = unread.map(|value| format!(", {value}")).collect();
    text += &format!(
        "  - {{op: concat, name: all, inputs: [{}{}]}}\n",
        values[0],
        unread.concat()
    );
    text + "  - {op: conv, name: last, n: 16, kernel: 1}\n"
}

/// Checks such networks, and returns the number of units that write a part of a tensor in NHWC.
fn check_random_concats(count: u64, open: fn(&[PlannedUnit]) -> Box<dyn Device>) -> usize {
    let views = (0..count).map(|index| {
        let text = random_concats(index);
        let network = network(&text, &Overrides::default());
        let plan = planned(&network);
        check_values(&network, &plan, open);
        let layers = plan.layers.iter();
        layers
            .filter(|layer| layer.y.format.pixel_stride.is_some())
            .count()
    });
    views.sum()
}

#[test]
fn random_concatenations_are_right() {
    assert!(check_random_concats(6, cpu) > 8);
}

mod deep {
    use super::*;

    #[test]
    #[ignore = "deep tier"]
    fn random_concatenations_are_right() {
        assert!(check_random_concats(30, cpu) > 50);
    }
}

#[test]
fn concatenations_are_right() {
    check_concats(cpu);
}

#[test]
fn layers_of_two_precisions_are_right() {
    check_mixed(cpu);
}

#[test]
fn values_in_split_tensors_are_right() {
    check_split(cpu);
}

#[test]
fn projection_shortcuts_are_right() {
    check_blocks(cpu);
}

#[test]
fn values_in_both_formats_are_right() {
    check(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn values_in_both_formats_are_right_on_a_gpu() {
    check(gpu_here);
    check_split(gpu_here);
    check_linear(gpu_here);
    check_blocks(gpu_here);
    check_mixed(gpu_here);
    check_concats(gpu_here);
    check_random_concats(30, gpu_here);
}

#[test]
fn linear_layers_as_convolutions_are_right() {
    check_linear(cpu);
}

/// Few images do not pay for conversions: the plan is that of fp32 activations.
#[test]
fn a_plan_without_fp16_is_the_same_as_if_it_were_not_allowed() {
    let plan = |activations| {
        let overrides = Overrides {
            activations: Some(activations),
            ..Overrides::default()
        };
        let planner = Planner::new(gpu("h200").unwrap());
        let plan = plan_network_with(&network(NETWORK, &overrides), planner).unwrap();
        let units = plan.units.iter().map(|unit| unit.unit.name.to_string());
        units.collect::<Vec<_>>()
    };
    assert_eq!(plan(DType::Fp16), plan(DType::Fp32));
}
