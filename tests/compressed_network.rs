//! A config with ranks by rank choice, as text: it is read, planned and packed like any other, its network computes what the product of its
//! factors does, on the CPU emulation, and `kernels!` embeds its layers.

mod device;

use device::{cpu, gpu_here};
use tdc::Arch;
use tdc_generator::compress::loss::{Criterion, LossTable};
use tdc_generator::compress::{Compression, Decomposition, Form, Limit, Scope, with_forms};
use tdc_generator::config::{Config, Overrides, yaml};
use tdc_generator::embed::{KernelMode, Settings, expand_config};
use tdc_generator::gpu::gpu;
use tdc_generator::ir::{Network, OpId};
use tdc_generator::plan::{PlannedUnit, plan_network, recipes};
use tdc_generator::verify::{CheckpointParameters, Device, Random, check_network};
use tdc_runtime::WeightFile;
use tdc_weights::{Checkpoint, pack, resolve};
use tempfile::TempDir;

/// Odd sizes, strides, a residual, a prologue, and the layers that each form is for.
const NETWORK: &str = "\
name: compressed
gpu: h200
input: 2x11x15x13
ops:
  - {op: conv, name: filter, n: 29, bn: bn1, activation: relu}
  - {op: conv, name: block.conv, n: 29, kernel: [3, 1], bias: true}
  - {op: add, name: sum, inputs: [block.conv, filter], activation: relu}
  - {op: scale_shift, name: before, bn: bn2, activation: silu}
  - {op: conv, name: wide, n: 37, stride: 2, bias: true, activation: relu}
  - {op: conv, name: pointwise, n: 131, kernel: 1, bn: bn3}
  - {op: global_avg_pool, name: pool}
  - {op: flatten, name: flat}
  - {op: linear, name: head, n: 19}
";

fn read(text: &str) -> Network {
    match yaml::parse(text, "compressed.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}"),
    }
}

/// The config with ranks of these decompositions, at a quarter of the operations.
fn compressed(
    dense: &Network,
    checkpoint: &Checkpoint,
    decompositions: &[Decomposition],
) -> String {
    let scope = Scope {
        step: 3,
        decompositions: decompositions.to_vec(),
        ..Scope::default()
    };
    let table = LossTable::new(dense, &[], checkpoint, Criterion::BnMoments, &scope, |_| ());
    let table = table.unwrap();
    let losses = |op: OpId, form: Form| table.loss(op, form);
    let gpu = gpu("h200").unwrap();
    let mut compression = Compression::new(dense, gpu, &scope, false, &losses).unwrap();
    let flops = compression.dense_choice().unwrap().flops / 4;
    let choice = compression.choose(&[Limit::Flops(flops)]).unwrap();
    yaml::with_ranks(NETWORK, &with_forms(dense, choice.forms)).unwrap()
}

/// Packs the factors of a network and runs it.
fn check(network: &Network, checkpoint: &Checkpoint, open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let plan = plan_network(network, gpu("h200").unwrap()).unwrap();
    let resolved = resolve(&recipes(network, &plan), checkpoint).unwrap();
    assert!(!resolved.factorizations.is_empty());
    let file = pack(&plan.weights, &resolved.values).unwrap();
    let payload: Vec<f32> = file.bytes[WeightFile::HEADER_BYTES as usize..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
        .collect();
    let factors = CheckpointParameters::new(network, &plan, checkpoint, &resolved).unwrap();
    let input = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    let mut device = open(&plan.units);
    let device = device.as_mut();
    let found = check_network(device, network, &plan, &factors, &payload, &[input]).unwrap();
    assert_eq!((found.failure, found.exceeds_tolerance), (None, false));
}

/// The constants that `kernels!` makes of a config, with their types.
fn constants(text: &str) -> Vec<(String, &'static str)> {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("compressed.yaml"), text).unwrap();
    let settings = Settings {
        base: folder.path().to_owned(),
        mode: KernelMode::Stub,
        stub_on_miss: false,
        archs: vec![Arch::new(90)],
        prepared: None,
        cache: Err("not used".to_owned()),
        record: None,
    };
    let found = expand_config(r#""compressed.yaml", tiles = model"#, &settings).unwrap();
    let types = found.into_iter();
    types.map(|(name, kernel)| (name, kernel.kind)).collect()
}

/// What is chosen from: the default, and CP factors.
const FORMS: [&[Decomposition]; 2] = [
    &Decomposition::DEFAULT,
    &[Decomposition::Cp, Decomposition::LowRank],
];

fn dense_and_checkpoint() -> (Network, Checkpoint) {
    let dense = read(NETWORK);
    let plan = plan_network(&dense, gpu("h200").unwrap()).unwrap();
    let checkpoint = Checkpoint::random(&recipes(&dense, &plan), 3);
    (dense, checkpoint)
}

fn check_all(open: fn(&[PlannedUnit]) -> Box<dyn Device>) {
    let (dense, checkpoint) = dense_and_checkpoint();
    let texts = FORMS.map(|decompositions| compressed(&dense, &checkpoint, decompositions));
    let [default, cp] = &texts;
    assert!(default.contains(" ranks: ["), "{default}");
    assert!(default.contains(" rank: "), "{default}");
    assert!(cp.contains("cp_rank: "), "{cp}");
    for text in &texts {
        check(&read(text), &checkpoint, open);
    }
}

/// Each layer has the type of its form; `kernels!` has no constants of CP layers.
#[test]
fn kernels_are_embedded_by_their_forms() {
    let (dense, checkpoint) = dense_and_checkpoint();
    let kind = |line: &str| {
        let has = |key: &str| line.contains(key);
        match [has(" ranks: "), has(" rank: "), has("cp_rank: ")] {
            [true, ..] => Some("__tdc::Kernel<__tdc::Tucker>"),
            [_, true, _] => Some("__tdc::Kernel<__tdc::LowRank>"),
            [.., true] => None,
            _ => Some("__tdc::Kernel<__tdc::Conv>"),
        }
    };
    for decompositions in FORMS {
        let text = compressed(&dense, &checkpoint, decompositions);
        let is_layer = |line: &&str| line.contains("op: conv") || line.contains("op: linear");
        let layers = text.lines().filter(is_layer);
        let expected: Vec<&str> = layers.filter_map(kind).collect();
        let found = constants(&text).into_iter().map(|(_, kind)| kind);
        assert_eq!(found.collect::<Vec<_>>(), expected, "{text}");
    }
}

#[test]
fn factors_by_rank_choice_compute_their_product() {
    check_all(cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn factors_by_rank_choice_compute_their_product_on_a_gpu() {
    check_all(gpu_here);
}
