//! A network with several inputs: its program reads each of them, and computes what the reference does.

use crate::networks::plan;
use crate::run::{Built, floats, outcome, stored_input, succeed};
use tdc_generator::emit::{Files, network_files};
use tdc_generator::ir::{
    Activation, BinaryOp, ConvOptions, DType, InputEncoding, Network, NetworkBuilder, OpOptions,
    TensorShape,
};
use tdc_generator::plan::recipes;
use tdc_generator::verify::reference::evaluate_network;
use tdc_generator::verify::{CheckpointParameters, Deviation, Random, random_input};
use tdc_weights::{Checkpoint, pack, resolve};

/// Name of the folder and of the network.
pub const NAME: &str = "siamese";

/// Two images of odd sizes, compared, with a factor for each channel as a third input. An input is read first, an input is a residual, inputs
/// are copied for a concatenation, and one is read by nothing but a product.
fn siamese() -> Network {
    let image = TensorShape::new(2, 3, 9, 7);
    let inputs = [
        ("left", image),
        ("right.image", image),
        ("gate", TensorShape::new(2, 5, 1, 1)),
    ];
    let inputs = inputs.map(|(name, shape)| (name.to_owned(), shape));
    let mut net = NetworkBuilder::with_inputs(NAME, &inputs);
    let bytes = InputEncoding {
        dtype: DType::Uint8,
        ..InputEncoding::PLAIN
    };
    net.encode_input(1, bytes);
    let add = |net: &mut NetworkBuilder, name: &str, inputs: &[&str], options: OpOptions| {
        let inputs: Vec<String> = inputs.iter().map(|&input| input.to_owned()).collect();
        net.op(name, Some(&inputs), options);
    };
    let binary = |op| OpOptions::Binary(op, Activation::None);
    let conv = |n| OpOptions::Conv(ConvOptions::new(n));
    add(&mut net, "features", &["right.image"], conv(3));
    let sum = OpOptions::Binary(BinaryOp::Add, Activation::Relu);
    add(&mut net, "sum", &["features", "left"], sum);
    add(
        &mut net,
        "difference",
        &["left", "right.image"],
        binary(BinaryOp::Sub),
    );
    let both = ["sum", "right.image", "difference"];
    add(&mut net, "both", &both, OpOptions::Concat);
    add(&mut net, "merged", &["both"], conv(5));
    add(
        &mut net,
        "gated",
        &["merged", "gate"],
        binary(BinaryOp::Mul),
    );
    net.finish().unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// The generated folder.
pub fn files() -> Files {
    network_files(&[plan(&siamese())]).unwrap()
}

pub fn all_inputs_are_read(built: &Built) {
    let network = siamese();
    let plan = plan(&network);
    let recipes = recipes(&network, &plan);
    let checkpoint = Checkpoint::random(&recipes, 5);
    let resolved = resolve(&recipes, &checkpoint).unwrap();
    let parameters = CheckpointParameters::new(&network, &plan, &checkpoint, &resolved).unwrap();
    let mut random = Random::new(9);
    let inputs = plan.inputs.iter();
    let inputs: Vec<Vec<f32>> = inputs
        .map(|input| random_input(input, &mut random))
        .collect();
    let doubles = |input: &Vec<f32>| input.iter().map(|&value| f64::from(value)).collect();
    let doubles: Vec<Vec<f64>> = inputs.iter().map(doubles).collect();
    let expected = evaluate_network(&network, &parameters, &doubles);

    let weights = built.path("siamese-weights.bin");
    let packed = pack(&plan.weights, &resolved.values).unwrap();
    std::fs::write(&weights, packed.bytes).unwrap();
    let output = built.path("siamese-output.bin");
    let mut program = built.program(NAME);
    program.arg("--weights").arg(&weights).args(["--runs", "1"]);
    program.arg("--output").arg(&output);
    for (index, (planned, input)) in plan.inputs.iter().zip(&inputs).enumerate() {
        let path = built.path(&format!("siamese-{index}.bin"));
        std::fs::write(&path, stored_input(planned, input)).unwrap();
        program.arg("--input").arg(path);
    }
    succeed(&mut program);
    let shape = network.op(network.last_op()).y;
    let deviation = Deviation::between(shape, &floats(&output), &expected[network.last_op().0]);
    assert!(deviation.relative < 1e-6, "{deviation}");

    let (code, text) = outcome(program.args(["--input", "one-too-many"]));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("--input may be given 3 times"), "{text}");
}
