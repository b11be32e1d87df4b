//! A network with tensors in fp16 NHWC: its program runs them, and copies the output of each layer to fp32 NCHW.

use crate::run::{Built, floats, succeed};
use std::collections::BTreeSet;
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::emit::{Files, network_files};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{Format, Network, Problem};
use tdc_generator::plan::{
    NetworkPlan, Planner, candidate_problems, plan_network_with, plan_problem, problem_label,
    recipes,
};
use tdc_generator::scheme::scheme;
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random};
use tdc_weights::{Checkpoint, pack, resolve};

/// Name of the folder and of the network.
pub const NAME: &str = "halves";

/// A first layer, pooling, a residual, and an output that is read in fp16 as well.
const NETWORK: &str = "
name: halves
input: 2x3x19x23
activations: fp16
precision: fp16
ops:
  - {op: conv, name: first, n: 24, kernel: 5, stride: 2, bias: true, activation: relu}
  - {op: max_pool, name: pool, kernel: 3, stride: 2, pad: 1}
  - {op: conv, name: a, n: 32, kernel: 1, bias: true, activation: relu}
  - {op: conv, name: b, n: 64, bn: b_bn}
  - {op: conv, name: shortcut, inputs: [a], n: 64, kernel: 1, bias: true}
  - {op: add, name: sum, inputs: [b, shortcut], activation: relu}
  - {op: conv, name: c, n: 40, bias: true}
  - {op: global_avg_pool, name: all}
  - {op: linear, name: fc, n: 5}
";

fn network() -> Network {
    match yaml::parse(NETWORK, "halves.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

/// A time for a table in which fp16 tensors pay, for which the network is too small.
fn us(problem: &Problem) -> f64 {
    let kind = problem.kind();
    let is_fp16 = |format| format == Format::FP16_NHWC;
    match [kind.input(), kind.output()].map(|tensor| is_fp16(tensor.format)) {
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

/// The generated folder.
pub fn files() -> Files {
    network_files(&[planned(&network())]).unwrap()
}

/// The output of the network, and the output of every layer as the program copies it, against float64.
pub fn outputs_of_layers_are_copied(built: &Built) {
    let network = network();
    let plan = planned(&network);
    let fp16 = plan
        .layers
        .iter()
        .filter(|layer| layer.y.format == Format::FP16_NHWC);
    assert!(fp16.count() >= 5, "{:?}", plan.layers);
    let recipes = recipes(&network, &plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
    let x = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    let doubles = [x.iter().map(|&value| f64::from(value)).collect()];
    let expected = evaluate_network(&network, &parameters, &doubles);

    let [weights, input, output, dumped] = ["weights", "input", "output", "dump"]
        .map(|name| built.path(&format!("{NAME}-{name}.bin")));
    let packed = pack(&plan.weights, &resolved.values).unwrap();
    std::fs::write(&weights, packed.bytes).unwrap();
    let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(&input, bytes).unwrap();
    let mut compared = BTreeSet::new();
    for (op, expected) in network.ops.iter().zip(&expected) {
        if !plan.layers.iter().any(|layer| layer.output_op == op.name) {
            continue;
        }
        let mut program = built.program(NAME);
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
        assert!(deviation.relative < 5e-3, "{}: {deviation}", op.name);
        compared.insert(op.name.as_str());
    }
    assert!(compared.len() >= 7, "{compared:?}");
    let deviation = Deviation::between(
        plan.outputs[0].shape,
        &floats(&output),
        expected.last().unwrap(),
    );
    assert!(deviation.relative < 5e-3, "{deviation}");
}
