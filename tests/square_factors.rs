//! Tucker layers with D1 = C or D2 = N in a network, on the CPU emulation: square factors are multiplied into the core, and every lowering
//! computes the layer of the three trained factors.

mod device;

use device::{cpu, gpu_here};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Network;
use tdc_generator::plan::{NetworkPlan, PlannedUnit, factorized_layer, plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, Device, Random, check_network};
use tdc_runtime::{Decomposition, WeightFile};
use tdc_weights::{Checkpoint, TuckerFactors, pack, resolve};

/// Odd sizes, a batch of two, a stride, a prologue, residuals, a BatchNorm, and a layer whose factors are all square.
const NETWORK: &str = "
name: square
input: 2x13x9x11
ops:
  - {op: conv, name: no_first, n: 24, bias: true, activation: relu, ranks: [13, 8]SCHEME}
  - {op: conv, name: no_last, n: 16, stride: 2, bn: bn, activation: relu, ranks: [9, 16]SCHEME}
  - {op: scale_shift, name: before, bn: before_bn, activation: relu}
  - {op: conv, name: prologue, n: 16, bias: true, ranks: [16, 8]SCHEME}
  - {op: add, name: sum, inputs: [prologue, no_last], activation: relu}
  - {op: conv, name: core_only, n: 16, kernel: [3, 1], pad: [1, 0, 1, 0], bias: true, ranks: [16, 16]}
  - {op: conv, name: residual, n: 16, bias: true, ranks: [9, 16]SCHEME}
  - {op: add, name: end, inputs: [residual, sum]}
  - {op: conv, name: after, n: 11, ranks: [9, 8]}
";

fn network(scheme: &str, overrides: &Overrides) -> Network {
    let text = NETWORK.replace("SCHEME", scheme);
    match yaml::parse(&text, "square.yaml", overrides) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

fn planned(network: &Network) -> NetworkPlan {
    plan_network(network, gpu("h200").unwrap()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Factors with orthogonal, not diagonal, square matrices, and the dense weights that they represent.
fn checkpoints(network: &Network, random: &Checkpoint) -> [Checkpoint; 2] {
    let (mut trained, mut dense) = (Vec::new(), Vec::new());
    let ops = (0..network.ops.len()).map(tdc_generator::ir::OpId);
    let layers: Vec<_> = ops.filter_map(|op| factorized_layer(network, op)).collect();
    let fp32 = |values: &[f64]| -> Vec<f32> { values.iter().map(|&v| v as f32).collect() };
    for name in random.names() {
        let values = random.tensor(name).unwrap().unwrap();
        let shape = random.shape(name).unwrap().to_vec();
        let Some(layer) = layers.iter().find(|layer| layer.weight == name) else {
            trained.push((name.to_owned(), shape.clone(), fp32(&values)));
            dense.push((name.to_owned(), shape, fp32(&values)));
            continue;
        };
        let Decomposition::Tucker(ranks) = layer.decomposition else {
            panic!("{layer:?}");
        };
        let sizes = layer.shape.map(|size| size as usize);
        let factors = TuckerFactors::hosvd(&values, sizes, ranks.map(|rank| rank as usize));
        let factors = factors.unwrap();
        let roles = layer.decomposition.factors().iter().zip(&layer.factors);
        for ((role, name), values) in roles.zip([&factors.first, &factors.core, &factors.last]) {
            let shape = layer.factor_shape(*role).map(|size| size as usize);
            trained.push((name.clone(), shape.to_vec(), fp32(values)));
        }
        dense.push((name.to_owned(), shape, fp32(&factors.reconstruct())));
    }
    [trained, dense].map(|values| Checkpoint::from_values("test".to_owned(), values))
}

/// The layers of the plan with this scheme, after a check of all values.
fn launches(open: fn(&[PlannedUnit]) -> Box<dyn Device>, scheme: &str) -> String {
    let compressed = network(scheme, &Overrides::default());
    let overrides = Overrides {
        dense: true,
        ..Overrides::default()
    };
    let dense_network = network("", &overrides);
    let dense_plan = planned(&dense_network);
    let dense_recipes = recipes(&dense_network, &dense_plan);
    let random = Checkpoint::random(&dense_recipes, 3);
    let [trained, dense] = checkpoints(&compressed, &random);
    let resolved = resolve(&dense_recipes, &dense).unwrap();
    let reference =
        CheckpointParameters::new(&dense_network, &dense_plan, &dense, &resolved).unwrap();
    let plan = planned(&compressed);
    let resolved = resolve(&recipes(&compressed, &plan), &trained).unwrap();
    assert!(resolved.factorizations.iter().all(|layer| layer.trained));
    let of_factors = CheckpointParameters::new(&compressed, &plan, &trained, &resolved).unwrap();
    let file = pack(&plan.weights, &resolved.values).unwrap();
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let input = [Random::new(9).values(plan.inputs[0].shape.len() as usize)];
    let mut device = open(&plan.units);
    for reference in [&reference, &of_factors] {
        let check = check_network(
            device.as_mut(),
            &compressed,
            &plan,
            reference,
            &payload,
            &input,
        );
        let check = check.unwrap();
        assert_eq!(
            (check.failure, check.exceeds_tolerance),
            (None, false),
            "{scheme}"
        );
    }
    let names: Vec<_> = plan.layers.iter().map(|layer| &layer.name[..]).collect();
    names.join(" ")
}

fn check(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let of = |scheme| launches(open, scheme);
    let separate = "no_first.core no_first.last no_last.first no_last.core prologue.core prologue.last core_only.core residual.first \
                    residual.core after";
    assert_eq!(of(", scheme: direct"), separate);
    let whole = "no_first no_last prologue core_only.core residual after";
    assert_eq!(of(", scheme: tucker_fused"), whole);
    // A launch without a first factor computes the next layer's, too.
    let chosen = of("");
    assert!(
        chosen.starts_with("no_first+no_last.first no_last.core"),
        "{chosen}"
    );
}

#[test]
fn square_factors_are_part_of_the_core() {
    check(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn square_factors_are_part_of_the_core_on_a_gpu() {
    check(gpu_here);
}
