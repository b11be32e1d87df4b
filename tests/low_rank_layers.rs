//! Layers with a rank in a network, on the CPU emulation: packed factors of the full rank compute the dense layers, those of a lower rank
//! the product of the factors.

mod device;

use device::{cpu, gpu_here};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::Network;
use tdc_generator::plan::{NetworkPlan, PlannedUnit, plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, Device, NetworkCheck, Random, check_network};
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, Resolved, pack, resolve};

/// Prime sizes, a batch of three, strides, padding that the prologue and the bias make non-zero, a residual, and an image of one pixel.
/// `A|B` is the full rank and a lower one.
const NETWORK: &str = "
name: low_rank
input: 3x7x9x5
ops:
  - {op: conv, name: shortcut, n: 11, kernel: 1, stride: [2, 3], pad: [1, 0, 2, 1], bias: true}
  - {op: scale_shift, name: before, activation: silu, inputs: input}
  - {op: conv, name: low, n: 11, kernel: 1, stride: [2, 3], pad: [1, 0, 2, 1], bias: true, bn: low_bn, rank: 7|3}
  - {op: add, name: sum, inputs: [low, shortcut], activation: gelu}
  - {op: conv, name: narrow, n: 5, kernel: 1, activation: relu, rank: 5|2}
  - {op: global_avg_pool, name: pool}
  - {op: conv, name: pixel, n: 13, kernel: 1, bias: true, rank: 5|1}
  - {op: flatten, name: flat}
  - {op: linear, name: wide, n: 17, rank: 13|4}
  - {op: scale_shift, name: after, bn: after_bn}
  - {op: linear, name: head, n: 3, bias: false, activation: tanh, rank: 3|2}
";

/// The network with the full ranks or the lower ones.
fn network(full: bool, overrides: &Overrides) -> Network {
    let chosen = |line: &str| match line.split_once('|') {
        None => line.to_owned(),
        Some((kept, lower)) if full => kept.to_owned() + lower.trim_start_matches(char::is_numeric),
        Some((other, lower)) => other.trim_end_matches(char::is_numeric).to_owned() + lower,
    };
    let text: Vec<_> = NETWORK.lines().map(chosen).collect();
    match yaml::parse(&text.join("\n"), "low_rank.yaml", overrides) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

fn planned(network: &Network) -> NetworkPlan {
    plan_network(network, gpu("h200").unwrap()).unwrap_or_else(|errors| panic!("{errors:?}"))
}

fn resolved(network: &Network, plan: &NetworkPlan, checkpoint: &Checkpoint) -> Resolved {
    resolve(&recipes(network, plan), checkpoint).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a network with weights that were packed from `checkpoint`, and compares it with a reference.
fn run(
    device: &mut dyn Device,
    (network, plan): (&Network, &NetworkPlan),
    resolved: &Resolved,
    reference: &CheckpointParameters,
) -> NetworkCheck {
    let file = pack(&plan.weights, &resolved.values).unwrap();
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let input = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    check_network(device, network, plan, reference, &payload, &[input]).unwrap()
}

fn check(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let dense_network = network(
        true,
        &Overrides {
            dense: true,
            ..Overrides::default()
        },
    );
    let dense_plan = planned(&dense_network);
    let checkpoint = Checkpoint::random(&recipes(&dense_network, &dense_plan), 5);
    let dense_resolved = resolved(&dense_network, &dense_plan, &checkpoint);
    let dense =
        CheckpointParameters::new(&dense_network, &dense_plan, &checkpoint, &dense_resolved)
            .unwrap();
    assert_eq!(dense_resolved.factorizations, []);
    for full in [true, false] {
        let network = network(full, &Overrides::default());
        let plan = planned(&network);
        let launches: Vec<_> = plan.layers.iter().map(|layer| &layer.name[..]).collect();
        let expected = "shortcut low.first low.last narrow.first narrow.last pool pixel.first pixel.last wide.first wide.last head.first \
                        head.last";
        assert_eq!(launches.join(" "), expected);
        let resolved = resolved(&network, &plan, &checkpoint);
        let errors = resolved.factorizations.iter();
        let errors: Vec<_> = errors.map(|f| f.relative_error.unwrap()).collect();
        assert_eq!(errors.len(), 5);
        let mut device = open(&plan.units);
        let of_dense = run(device.as_mut(), (&network, &plan), &resolved, &dense);
        if full {
            assert!(errors.iter().all(|&error| error < 1e-13), "{errors:?}");
            assert_eq!(
                (of_dense.failure, of_dense.exceeds_tolerance),
                (None, false)
            );
            continue;
        }
        assert!(errors.iter().all(|&error| error > 0.05), "{errors:?}");
        let (layer, _) = of_dense
            .failure
            .expect("the error of the first factorised layer");
        assert_eq!(layer, "low.last");
        let factors = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
        let of_factors = run(device.as_mut(), (&network, &plan), &resolved, &factors);
        assert_eq!(
            (of_factors.failure, of_factors.exceeds_tolerance),
            (None, false)
        );
        assert_eq!(of_factors.layers.len(), 7);
    }
}

#[test]
fn factors_compute_the_dense_layers_at_the_full_rank() {
    check(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn factors_compute_the_dense_layers_on_a_gpu() {
    check(gpu_here);
}
