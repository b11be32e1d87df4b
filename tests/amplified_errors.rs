//! A network that amplifies rounding errors passes its check, and fails it with a wrong weight.

mod device;

use device::{cpu, gpu_here};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::gpu::gpu;
use tdc_generator::plan::{PlannedUnit, plan_network, recipes};
use tdc_generator::verify::{
    CheckFailure, CheckpointParameters, Device, NetworkCheck, Random, check_network,
    network_tolerance,
};
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, pack, resolve};

/// The second convolution subtracts two channels.
const NETWORK: &str = "
name: cancels
input: 1x1x13x11
ops:
  - {op: conv, name: channels, n: 2, kernel: 1}
  - {op: conv, name: difference, n: 1, kernel: 1}
";

/// Of the two channels; they differ by one part in 4096.
const NEARLY_EQUAL: [f32; 2] = [1.0, 1.0 + 1.0 / 4096.0];

/// Runs the network with these weights of the first convolution, and a last weight of -1, but packed as `packed_weight`.
fn run(
    open: fn(&[PlannedUnit]) -> Box<dyn Device>,
    channels: [f32; 2],
    packed_weight: f32,
) -> (NetworkCheck, f64) {
    let Ok(Config::Network(network)) = yaml::parse(NETWORK, "cancels.yaml", &Overrides::default())
    else {
        panic!("a network")
    };
    let plan = plan_network(&network, gpu("h200").unwrap()).unwrap();
    let recipes = recipes(&network, &plan);
    let checkpoint = |last: f32| {
        Checkpoint::from_values(
            "of this test".to_owned(),
            [
                (
                    "channels.weight".to_owned(),
                    vec![2, 1, 1, 1],
                    channels.to_vec(),
                ),
                (
                    "difference.weight".to_owned(),
                    vec![1, 2, 1, 1],
                    vec![1.0, last],
                ),
            ],
        )
    };
    let exact = resolve(&recipes, &checkpoint(-1.0)).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint(-1.0), &exact).unwrap();
    let packed = resolve(&recipes, &checkpoint(packed_weight)).unwrap();
    let file = pack(&plan.weights, &packed.values).unwrap();
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let input = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    let mut device = open(&plan.units);
    let check = check_network(
        device.as_mut(),
        &network,
        &plan,
        &parameters,
        &payload,
        &[input],
    )
    .unwrap();
    (check, network_tolerance(&plan))
}

fn assert_may_be_amplified(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let (check, tolerance) = run(open, NEARLY_EQUAL, -1.0);
    let (_, output_op, last) = check.layers.last().unwrap();
    assert_eq!(output_op, "difference");
    assert!(last.relative > 2.0 * tolerance, "{last}");
    assert_eq!((check.failure, check.exceeds_tolerance), (None, true));
}

#[test]
fn rounding_errors_may_be_amplified() {
    assert_may_be_amplified(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn rounding_errors_may_be_amplified_on_a_gpu() {
    assert_may_be_amplified(gpu_here);
}

const WRONG: f32 = -1.0 - 1.0 / 65536.0;

#[test]
fn a_wrong_weight_is_found_all_the_same() {
    let (check, tolerance) = run(cpu, NEARLY_EQUAL, WRONG);
    let Some((
        _,
        CheckFailure::Inaccurate {
            tolerance: bound, ..
        },
    )) = check.failure
    else {
        panic!("{:?}", check.failure)
    };
    assert!(bound > 10.0 * tolerance && bound < 2e-2, "{bound}");
}

/// Relative to zero any error is infinite, also that which random errors cause.
#[test]
fn values_that_should_be_zero_have_no_error() {
    assert_eq!(run(cpu, [1.0; 2], -1.0).0.failure, None);
    let (check, _) = run(cpu, [1.0; 2], WRONG);
    let Some((layer, CheckFailure::Inaccurate { deviation, .. })) = check.failure else {
        panic!("{:?}", check.failure)
    };
    assert_eq!(layer, "difference");
    assert_eq!(deviation.relative, f64::INFINITY);
}
