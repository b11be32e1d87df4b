//! Networks with tensors in fp16, bf16 and split NHWC: their programs run them, and copy the output of each layer to fp32 NCHW.

use crate::run::{Built, floats, stored_input, stored_output, succeed};
use std::collections::BTreeSet;
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::emit::{Files, network_files};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{Format, Layout, Network, Problem};
use tdc_generator::plan::{
    NetworkPlan, Planner, candidate_problems, plan_network_with, plan_problem, problem_label,
    recipes,
};
use tdc_generator::scheme::scheme;
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random, random_input};
use tdc_weights::{Checkpoint, pack, resolve};

/// A network whose tensors are stored in a format.
pub struct Example {
    /// Name of the folder and of the network.
    pub name: &'static str,
    /// Images, and the keys that allow the format.
    images: u32,
    keys: &'static str,
    /// Of the input, beside its shape.
    encoding: &'static str,
    /// The key of the last op that says how the network's output is stored.
    output: &'static str,
    format: Format,
    /// Largest relative error of a layer's output.
    bound: f64,
}

/// One network for each format.
pub const EXAMPLES: [Example; 3] = [
    Example {
        name: "halves",
        images: 2,
        keys: "activations: fp16\nprecision: fp16\n",
        encoding: "",
        output: ", output: {dtype: fp16}",
        format: Format::FP16_NHWC,
        bound: 5e-3,
    },
    Example {
        name: "brain_floats",
        images: 2,
        keys: "activations: bf16\nprecision: bf16\n",
        encoding: "",
        output: ", output: {dtype: bf16}",
        format: Format::BF16_NHWC,
        bound: 4e-2,
    },
    Example {
        name: "splits",
        images: 8,
        keys: "",
        encoding: ", dtype: uint8, layout: nhwc, mean: [0.5, 0.25, 0.75], std: [0.25, 0.5, 0.75]",
        output: "",
        format: Format::SPLIT_NHWC,
        bound: 5e-6,
    },
];

/// A first layer, pooling, a residual, a concatenation, and an output that is read in the format as well.
const OPS: &str = "ops:
  - {op: conv, name: first, n: 24, kernel: 5, stride: 2, bias: true, activation: relu}
  - {op: max_pool, name: pool, kernel: 3, stride: 2, pad: 1}
  - {op: conv, name: a, n: 32, kernel: 1, bias: true, activation: relu}
  - {op: conv, name: b, n: 64, bn: b_bn}
  - {op: conv, name: shortcut, inputs: [a], n: 64, kernel: 1, bias: true}
  - {op: add, name: sum, inputs: [b, shortcut], activation: relu}
  - {op: conv, name: left, n: 24, kernel: 1}
  - {op: conv, name: right, inputs: [sum], n: 40, bias: true}
  - {op: concat, name: both, inputs: [left, right]}
  - {op: conv, name: c, n: 40, bias: true}
  - {op: global_avg_pool, name: all}
  - {op: linear, name: fc, n: 5OUTPUT}
";

impl Example {
    fn network(&self) -> Network {
        let Self {
            name,
            images,
            keys,
            encoding,
            output,
            ..
        } = self;
        let input = format!("{{shape: {images}x3x19x23{encoding}}}");
        let ops = OPS.replace("OUTPUT", output);
        let text = format!("name: {name}\ninput: {input}\n{keys}{ops}");
        match yaml::parse(&text, "network.yaml", &Overrides::default()) {
            Ok(Config::Network(network)) => network,
            other => panic!("{other:?}"),
        }
    }

    /// The generated folder.
    pub fn files(&self) -> Files {
        network_files(&[planned(&self.network())]).unwrap()
    }
}

/// A time for a table in which NHWC tensors pay, for which the network is too small.
fn us(problem: &Problem) -> f64 {
    let kind = problem.kind();
    let is_nhwc = |format: Format| format.layout == Layout::Nhwc;
    match [kind.input(), kind.output()].map(|tensor| is_nhwc(tensor.format)) {
        _ if matches!(problem, Problem::Convert(_)) => 5.0,
        [false, false] => 50.0,
        [true, true] => 1.0,
        _ => 10.0,
    }
}

fn planned(network: &Network) -> NetworkPlan {
    let mut rows = BTreeSet::new();
    for problem in candidate_problems(network) {
        let problem = problem.measured();
        let mut planner = Planner::new(gpu("h200").unwrap());
        let Ok(unit) = plan_problem(&mut planner, "t", "layer", &problem, None, None) else {
            continue;
        };
        let tile = unit.tile.label(scheme(unit.scheme).unwrap().tile_fields());
        let (label, us) = (problem_label(&problem), us(&problem));
        rows.insert(format!(
            "{label} {} {tile} {us} 0123456789abcdef\n",
            unit.scheme
        ));
    }
    let heading = "gpu: h200\ndevice: test\ndriver: 1\nnvrtc: 1\ngenerator: 1\n";
    let rows: String = rows.into_iter().collect();
    let table = format!("{heading}{rows}").parse();
    let table = table.unwrap_or_else(|error| panic!("{error}"));
    let planner = Planner::new(gpu("h200").unwrap()).with_table(table);
    plan_network_with(network, planner).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The output of the network, and the output of every layer as the program copies it, against float64.
pub fn outputs_of_layers_are_copied(built: &Built, example: &Example) {
    let network = example.network();
    let plan = planned(&network);
    let stored = plan
        .layers
        .iter()
        .filter(|layer| layer.y.format.dense() == example.format);
    let (dense, views): (Vec<_>, Vec<_>) =
        stored.partition(|layer| layer.y.format.pixel_stride.is_none());
    assert!(dense.len() >= 5, "{:?}", plan.layers);
    // A concatenation is stored in 16-bit NHWC only.
    let parts = views.iter().map(|layer| &layer.output_op[..]);
    assert_eq!(
        parts.collect::<Vec<_>>(),
        match example.format {
            Format::SPLIT_NHWC => &[][..],
            _ => &["left", "right"],
        }
    );
    let recipes = recipes(&network, &plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
    let x = random_input(&plan.inputs[0], &mut Random::new(9));
    let doubles = [x.iter().map(|&value| f64::from(value)).collect()];
    let expected = evaluate_network(&network, &parameters, &doubles);

    let [weights, input, output, dumped] = ["weights", "input", "output", "dump"]
        .map(|name| built.path(&format!("{}-{name}.bin", example.name)));
    let packed = pack(&plan.weights, &resolved.values).unwrap();
    std::fs::write(&weights, packed.bytes).unwrap();
    std::fs::write(&input, stored_input(&plan.inputs[0], &x)).unwrap();
    let mut compared = BTreeSet::new();
    for (op, expected) in network.ops.iter().zip(&expected) {
        if !plan.layers.iter().any(|layer| layer.output_op == op.name) {
            continue;
        }
        let mut program = built.program(example.name);
        program
            .arg("--weights")
            .arg(&weights)
            .arg("--input")
            .arg(&input);
        program.arg("--output").arg(&output).args(["--runs", "0"]);
        program
            .args(["--dump", &op.name])
            .arg("--dump-file")
            .arg(&dumped);
        succeed(&mut program);
        let deviation = Deviation::between(op.y, &floats(&dumped), expected);
        assert!(
            deviation.relative < example.bound,
            "{}: {deviation}",
            op.name
        );
        compared.insert(op.name.as_str());
    }
    assert!(compared.len() >= 9, "{compared:?}");
    let deviation = Deviation::between(
        plan.outputs[0].shape,
        &stored_output(&plan.outputs[0], &output),
        expected.last().unwrap(),
    );
    assert!(deviation.relative < example.bound, "{deviation}");
}
