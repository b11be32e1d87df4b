//! A network with several outputs in several formats: its program writes each of them, and they are what the reference computes.

use crate::networks::plan;
use crate::run::{Built, floats, outcome, stored_output, succeed};
use tdc_generator::emit::{Files, network_files};
use tdc_generator::ir::{
    Activation, ConvOptions, DType, Format, Layout, LinearOptions, Network, NetworkBuilder,
    OpOptions, OutputOptions, SliceOptions, TensorShape,
};
use tdc_generator::plan::recipes;
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random};
use tdc_weights::{Checkpoint, pack, resolve};

/// Names of the folders and of the networks: with outputs in fp32 NCHW, and in other formats.
pub const PLAIN: &str = "pyramid";
pub const FORMATS: &str = "pyramid_formats";

/// Two images of odd sizes. Its outputs are what usually takes no memory or launch of its own: a convolution before its activation, a slice,
/// an input of a concatenation, and the concatenation.
fn pyramid(name: &str) -> Network {
    let mut net = NetworkBuilder::new(name, TensorShape::new(2, 3, 9, 7));
    let conv = |n| OpOptions::Conv(ConvOptions::new(n));
    let is_plain = name == PLAIN;
    let output = |name: &str, dtype, layout| OutputOptions {
        name: Some(name.to_owned()),
        format: match is_plain {
            true => Format::default(),
            false => Format::new(dtype, layout),
        },
    };
    net.op("stem", None, conv(7));
    net.add_output(output("low", DType::Fp16, Layout::Nhwc));
    net.op("relu", None, OpOptions::Activation(Activation::Relu));
    net.add_output(output("features", DType::Bf16, Layout::Nchw));
    net.op(
        "slice",
        None,
        OpOptions::Slice(SliceOptions { start: 2, n: 3 }),
    );
    net.add_output(output("part", DType::Fp16, Layout::Nchw));
    net.op("top", Some(&["relu".to_owned()]), conv(5));
    net.name_output("top");
    let both = ["relu", "top"].map(str::to_owned);
    net.op("both", Some(&both), OpOptions::Concat);
    net.add_output(output("both", DType::Fp32, Layout::Nhwc));
    net.op("mean", None, OpOptions::GlobalAvgPool);
    net.add_output(output("pooled", DType::Bf16, Layout::Nhwc));
    net.op("scores", None, OpOptions::Linear(LinearOptions::new(5)));
    net.add_output(output("logits", DType::Fp16, Layout::Nchw));
    net.finish().unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The generated folder.
pub fn files(name: &str) -> Files {
    network_files(&[plan(&pyramid(name))]).unwrap()
}

pub fn all_outputs_are_written(built: &Built, name: &str) {
    let network = pyramid(name);
    let plan = plan(&network);
    assert!(plan.branches() > 1, "the driver runs branches");
    let recipes = recipes(&network, &plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
    let x = Random::new(9).values(plan.inputs[0].shape.len() as usize);
    let x64: Vec<_> = x.iter().map(|&value| f64::from(value)).collect();
    let expected = evaluate_network(&network, &parameters, &[x64]);

    let (weights, input) = (
        built.path(&format!("{name}-weights.bin")),
        built.path(&format!("{name}-input.bin")),
    );
    let packed = pack(&plan.weights, &resolved.values).unwrap();
    std::fs::write(&weights, packed.bytes).unwrap();
    let bytes: Vec<u8> = x.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(&input, bytes).unwrap();
    let path = |output: &str| built.path(&format!("{name}-{output}.bin"));
    let run = |more: &[&str]| {
        let mut program = built.program(name);
        program.arg("--weights").arg(&weights);
        program.arg("--input").arg(&input).args(["--runs", "1"]);
        for output in &network.outputs {
            program.arg("--output").arg(path(&output.name));
        }
        program.args(more);
        program
    };

    let text = succeed(&mut run(&[]));
    let names: Vec<&str> = network
        .outputs
        .iter()
        .map(|output| &output.name[..])
        .collect();
    assert_eq!(
        names,
        ["low", "features", "part", "top", "both", "pooled", "logits"]
    );
    for (output, planned) in network.outputs.iter().zip(&plan.outputs) {
        assert!(text.lines().any(|line| line == output.name), "{text}");
        let found = stored_output(planned, &path(&output.name));
        let deviation = Deviation::between(planned.shape, &found, &expected[output.op.0]);
        let bound = output.format.dtype.rounding_error() + 1e-6;
        assert!(deviation.relative < bound, "{}: {deviation}", output.name);
        // A layer that writes a whole output is found by its name. No layer writes all of a concatenation that is not converted.
        if output.name == "both" && name == PLAIN {
            continue;
        }
        let dumped = path("dump");
        let mut program = run(&["--dump", &output.name]);
        succeed(program.arg("--dump-file").arg(&dumped));
        assert_eq!(floats(&dumped), found, "{}", output.name);
    }
    let (code, text) = outcome(&mut run(&["--output", "one-too-many"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--output 7 times"), "{text}");
}
