//! Networks with plans for several batches: any number of images up to the largest gives what the reference gives, and no memory of the
//! caller beyond them is touched.

use crate::run::{Built, outcome, stored_input, stored_output, succeed};
use std::path::{Path, PathBuf};
use tdc_generator::emit::{Files, network_files};
use tdc_generator::gpu::Targets;
use tdc_generator::ir::{
    Activation, Batches, ConvOptions, DType, Format, InputEncoding, Layout, LinearOptions, Network,
    NetworkBuilder, OpOptions, OutputOptions, TensorShape,
};
use tdc_generator::plan::{
    NetworkPlan, PlannedTensor, plan_variants, section_recipes, weight_sections,
};
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random, random_input};
use tdc_weights::{Checkpoint, pack, resolve};

/// Name of the folder and of the network for one GPU.
pub const ONE: &str = "batches";

/// The same with an output in fp16.
pub const HALVES: &str = "batches_of_halves";

/// The same for two GPUs.
pub const TWO: &str = "batches_of_two";

/// The largest batch.
const LARGEST: u32 = 8;

/// Images of 1260 bytes, for one GPU of 140 in uint8 NHWC, and 11 results: images and results of odd numbers begin at addresses that are not
/// multiples of 16 bytes. 140 elements in fp32 are such a multiple.
pub fn batches(name: &str, gpus: &[&str]) -> Network {
    let has_bytes = name != TWO;
    let rows = if has_bytes { 4 } else { 9 };
    let mut net = NetworkBuilder::new(name, TensorShape::new(LARGEST, 5, rows, 7));
    if has_bytes {
        net.encode_input(
            0,
            InputEncoding {
                dtype: DType::Uint8,
                layout: Layout::Nhwc,
                mean: Some(vec![0.5, 0.25, 0.75, 0.0, 1.0]),
                std: None,
            },
        );
    }
    let conv = ConvOptions {
        bias: true,
        activation: Activation::Relu,
        stride: [2, 2],
        ..ConvOptions::new(32)
    };
    net.op("features", None, OpOptions::Conv(conv));
    net.op("pool", None, OpOptions::GlobalAvgPool);
    let head = OpOptions::Linear(LinearOptions::new(11));
    net.op("head", None, head);
    if name == HALVES {
        // 22 bytes an image, so that most images begin where kernels cannot store.
        let format = Format::FP16_NCHW;
        net.add_output(OutputOptions { name: None, format });
    }
    let mut network = net.finish().unwrap_or_else(|errors| panic!("{errors:?}"));
    network.gpus = Targets::named(gpus).unwrap();
    network.batches = Batches::new(&[1, 3, LARGEST]).unwrap();
    network
}

/// The plans for one GPU.
pub fn one() -> Vec<NetworkPlan> {
    plans(&batches(ONE, &["h200"]))
}

/// The generated folder with an output in fp16.
pub fn files_of_halves() -> Files {
    network_files(&plans(&batches(HALVES, &["h200"]))).unwrap()
}

/// The generated folder for two GPUs.
pub fn files_of_two() -> Files {
    network_files(&plans(&batches(TWO, &["h200", "rtx2080ti"]))).unwrap()
}

fn plans(network: &Network) -> Vec<NetworkPlan> {
    plan_variants(network).unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Writes weights and an input of the largest batch; returns their files and the expected output.
fn case(built: &Built, network: &Network) -> (PathBuf, PathBuf, Vec<f64>) {
    let plans = plans(network);
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    let given = &plans[plans.len() - 1].inputs[0];
    let x = random_input(given, &mut Random::new(9));
    let x64 = [x.iter().map(|&value| f64::from(value)).collect()];
    for section in weight_sections(&plans) {
        let recipes = section_recipes(network, &section);
        assert_eq!(recipes.len(), section.file().iter().count());
        let checkpoint = Checkpoint::random(&recipes, 5);
        let resolved = resolve(&recipes, &checkpoint).unwrap();
        let plan = section.plans[section.plans.len() - 1];
        let parameters = CheckpointParameters::new(network, plan, &checkpoint, &resolved).unwrap();
        expected = evaluate_network(network, &parameters, &x64).pop().unwrap();
        bytes.extend(pack(section.file(), &resolved.values).unwrap().bytes);
    }
    let file = |kind: &str, bytes: &[u8]| {
        let path = built.path(&format!("{}-{kind}.bin", network.name));
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let x = stored_input(given, &x);
    (file("weights", &bytes), file("input", &x), expected)
}

/// Compares the results of the first `images` images.
fn check(network: &Network, found: &Path, images: usize, expected: &[f64]) {
    let output = &network.outputs[0];
    let planned = PlannedTensor {
        name: output.name.clone(),
        shape: TensorShape {
            batch: images as u32,
            ..network.op(output.op).y
        },
        format: output.format,
    };
    let found = stored_output(&planned, found);
    let deviation = Deviation::between(planned.shape, &found, &expected[..found.len()]);
    let bound = output.format.dtype.rounding_error() + 1e-6;
    assert!(deviation.relative < bound, "{images} images: {deviation}");
}

/// One batch may have any number of images: only several need a table with an entry for each number.
#[test]
fn one_huge_batch_needs_no_table() {
    let mut net = NetworkBuilder::new("huge", TensorShape::new(1_000_000_000, 1, 1, 1));
    net.op("a", None, OpOptions::Activation(Activation::Relu));
    let files = network_files(&plans(&net.finish().unwrap())).unwrap();
    let driver = String::from_utf8_lossy(&files["src/huge.cu"]);
    assert!(!driver.contains("next_plan"));
}

/// The emitted program of [`ONE`] or [`HALVES`].
pub fn programs_take_any_batch(built: &Built, name: &str) {
    let network = batches(name, &["h200"]);
    let (weights, input, expected) = case(built, &network);
    let x = std::fs::read(input).unwrap();
    let output = built.path(&format!("{name}-output.bin"));
    for images in [1, 2, 5, 8] {
        let part = built.path(&format!("{name}-part.bin"));
        std::fs::write(&part, &x[..images * x.len() / LARGEST as usize]).unwrap();
        let mut program = built.program(name);
        program
            .arg("--weights")
            .arg(&weights)
            .arg("--input")
            .arg(&part);
        program
            .arg("--output")
            .arg(&output)
            .args(["--runs", "2", "--batch"]);
        succeed(program.arg(images.to_string()));
        check(&network, &output, images, &expected);
    }
    let text = succeed(
        built
            .program(name)
            .args(["--batch", "3", "--runs", "0", "--profile"]),
    );
    assert!(
        text.contains("Plan for 3 images. What each layer adds"),
        "{text}"
    );
    for (batch, message) in [
        ("0", "--batch must be from 1 to 8, not 0"),
        ("9", "--batch must be from 1 to 8, not 9"),
    ] {
        let (code, text) = outcome(built.program(name).args(["--batch", batch]));
        assert_eq!(code, Some(2));
        assert!(text.contains(message), "{text}");
    }
}

/// A host program with memory that ends behind the last image, for two GPUs.
pub fn memory_beyond_the_batch_is_not_touched(built: &Built) {
    let network = batches(TWO, &["h200", "rtx2080ti"]);
    let (weights, input, expected) = case(built, &network);
    for gpu in ["h200", "rtx2080ti"] {
        let output = |images: usize| built.path(&format!("batches-{gpu}-{images}.bin"));
        let mut program = built.program("several_batches");
        program.arg(&weights).arg(&input).arg(gpu);
        let text = succeed(program.args((1..=LARGEST as usize).map(output)));
        for images in 1..=LARGEST as usize {
            check(&network, &output(images), images, &expected);
        }
        let expected = [
            "batches_of_two: run: the network has no weights yet",
            "batches_of_two: run: a batch has 1 to 8 images, not 0",
            "batches_of_two: capture: a batch has 1 to 8 images, not 9",
            "batches_of_two: replay: no graph for 2 images was captured with the weights in use",
            "batches_of_two: run_layer: there is no plan 3, there are 3",
            "batches_of_two: run_layer: there is no layer 3, there are 3",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
