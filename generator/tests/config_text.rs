//! Networks written as configs: the text gives the same network.

use std::path::Path;
use tdc_generator::config::yaml::{load, network_text, parse, parse_with_places};
use tdc_generator::config::{Config, Overrides};
use tdc_generator::ir::{Network, Precision, Tolerance};

/// The network of a config that was written for `network`.
fn read_back(network: &Network) -> Network {
    let text = network_text(network);
    match parse(&text, "written", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}\n{text}"),
    }
}

fn network(text: &str) -> Network {
    match parse(text, "given", &Overrides::default()) {
        Ok(Config::Network(network)) => network,
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn every_config_survives() {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs");
    let mut networks = 0;
    for file in std::fs::read_dir(configs).unwrap() {
        let path = file.unwrap().path();
        for overrides in [
            Overrides::default(),
            Overrides {
                dense: true,
                precision: Some(Precision::Fp16),
                tolerance: Tolerance::new(3e-5),
                ..Overrides::default()
            },
        ] {
            if let Config::Network(network) = load(&path, &overrides).unwrap() {
                assert_eq!(read_back(&network), network, "{}", path.display());
                networks += 1;
            }
        }
    }
    assert!(networks >= 10, "{networks} networks");
}

const EVERY_KEY: &str = r##"
name: every_key
gpu: [h200, rtx4090]
tiles: model
tolerance: 0.001
input: 2x6x19x17
ops:
  - {op: conv, name: "true", n: 8, kernel: [3, 5], stride: [2, 1], pad: [1, 2, 0, 3], dilation: [1, 2], groups: 2, bias: true}
  - {op: activation, name: "1.5", activation: {clip: [-.inf, 0.3]}}
  - {op: conv, name: 'quoted"\name', n: 8, kernel: 1, bn: {name: "a:b,", eps: 1e-3}, activation: {leaky_relu: 0.2}, precision: tf32}
  - {op: max_pool, name: m.a, kernel: [3, 2], stride: 2, pad: [1, 1, 0, 0], dilation: [1, 2], ceil_mode: true}
  - {op: avg_pool, name: m.b, kernel: 2, stride: 1, pad: 1, count_include_pad: false}
  - {op: scale_shift, name: m.c, bn: "#x", activation: relu}
  - {op: conv, name: t, n: 8, ranks: [4, 3], factors: [u, v, w], layout: nchw, tolerance: 0.01}
  - {op: conv, name: cp, n: 8, cp_rank: 5, inputs: [m.c]}
  - {op: conv, name: low, n: 8, kernel: 1, rank: 7, factors: [x, "y:"], inputs: [cp]}
  - {op: add, name: sum, inputs: [t, low], activation: silu}
  - {op: mul, name: square, inputs: [sum, sum]}
  - {op: conv, name: tiled, n: 5, scheme: direct, tile: {tp: 32, rn: 4, threads_n: 1, splits: 2}, inputs: square}
  - {op: layer_norm, name: normed, eps: 1e-6, inputs: square}
  - {op: layer_norm, name: normed_again}
  - {op: softmax, name: chances}
  - {op: resize, name: larger, scale: [2, 3], rounding: ceil}
  - {op: resize, name: smaller, size: [9, 8], mode: bilinear, coordinates: align_corners}
  - {op: resize, name: same, size: [6, 8], coordinates: asymmetric}
  - {op: slice, name: few, start: 2, n: 3, inputs: square}
  - {op: slice, name: most, n: 6, inputs: square}
  - {op: shuffle, name: shuffled, groups: 3}
  - {op: concat, name: all, inputs: [tiled, few, shuffled, same, square]}
  - {op: global_max_pool, name: p}
  - {op: mul, name: gated, inputs: [all, p]}
  - {op: flatten, name: f}
  - {op: linear, name: k, n: 5, rank: 4, factors: [d, "e f"]}
  - {op: linear, name: l, n: 7, rank: 5, bias: false, activation: tanh, output: {name: "~"}}
"##;

#[test]
fn every_key_survives() {
    let network = network(EVERY_KEY);
    assert_eq!(read_back(&network), network);
    let written = network_text(&network);
    for part in [
        "gpu: [h200, rtx4090]\n",
        "tiles: model\n",
        "name: \"true\"",
        "kernel: [3, 5], stride: [2, 1], pad: [1, 2, 0, 3], dilation: [1, 2], groups: 2, bias: true",
        "activation: {clip: [-.inf, 0.3]}",
        "tile: {tp: 32, rn: 4, threads_n: 1, splits: 2}",
        "output: {name: \"~\"}",
    ] {
        assert!(written.contains(part), "{part} is not in\n{written}");
    }
}

#[test]
fn defaults_are_left_out_and_modules_separated() {
    let network = network(
        "name: net\ninput: 1x3x8x8\nops:\n\
         - {op: conv, name: stem, n: 8, kernel: 3, stride: 1, pad: same, groups: 1, bias: false, inputs: input}\n\
         - {op: conv, name: layer1.0.conv1, n: 8, activation: none, inputs: [stem]}\n\
         - {op: conv, name: layer1.0.conv2, n: 8}\n\
         - {op: add, name: layer1.0, inputs: [layer1.0.conv2, stem]}\n\
         - {op: conv, name: layer1.1.conv1, n: 8}\n\
         - {op: conv, name: layer1.1.conv2, n: 8}\n\
         - {op: activation, name: features.0, activation: relu}\n\
         - {op: activation, name: features.1, activation: tanh}\n",
    );
    let expected = "\
name: net
input: 1x3x8x8
ops:
  - {op: conv, name: stem, n: 8}

  - {op: conv, name: layer1.0.conv1, n: 8}
  - {op: conv, name: layer1.0.conv2, n: 8}
  - {op: add, name: layer1.0, inputs: [layer1.0.conv2, stem]}

  - {op: conv, name: layer1.1.conv1, n: 8}
  - {op: conv, name: layer1.1.conv2, n: 8}

  - {op: activation, name: features.0, activation: relu}
  - {op: activation, name: features.1, activation: tanh}
";
    assert_eq!(network_text(&network), expected);
}

#[test]
fn several_inputs_have_names() {
    let text = "\
name: pair
input: {left: 1x3x8x8, right.image: 1x3x8x8}
ops:
  - {op: conv, name: a, inputs: [right.image], n: 3}
  - {op: conv, name: b, n: 3}
  - {op: sub, name: c, inputs: [left, b]}
";
    let found = network(text);
    assert_eq!(network_text(&found), text);
    assert_eq!(found.input_shapes(), "1x3x8x8, 1x3x8x8");
    // A layer's position is found after several inputs.
    let (_, places) = parse_with_places(text, "pair.yaml", &Overrides::default()).unwrap();
    let at = places.of_layer("b", Some("name"));
    assert_eq!((at.line, at.column), (5, 22));

    let read = |shapes: &[&str]| {
        let shapes: Vec<_> = shapes.iter().map(|shape| shape.parse().unwrap()).collect();
        let overrides = Overrides::default().with_input_shapes(&shapes)?;
        match parse(text, "pair.yaml", &overrides) {
            Ok(Config::Network(network)) => Ok(network.input_shapes()),
            Ok(other) => panic!("{other:?}"),
            Err(errors) => Err(errors.to_string()),
        }
    };
    let both = ["left=2x3x5x6", "right.image=2x3x5x6"];
    assert_eq!(read(&both).unwrap(), "2x3x5x6, 2x3x5x6");
    for (shapes, part) in [
        (
            &["2x3x5x6"][..],
            "2:8: `--input` names no input, there are `left`, `right.image`",
        ),
        (
            &["top=2x3x5x6"],
            "2:8: `--input top=...`: there is no such input",
        ),
        (
            &["left=2x3x5x6"],
            "2:8: the input `right.image` has batch 1, the first input 2",
        ),
        (
            &["left=2x3x5x6", "left=2x3x5x7"],
            "shapes 2x3x5x6 and 2x3x5x7",
        ),
        (
            &["left=2x3x5x6", "2x3x5x7"],
            "`--input 2x3x5x7` names no input, others do",
        ),
    ] {
        let error = read(shapes).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn several_batches_are_a_key_and_one_is_part_of_the_input() {
    let ops = "ops:\n  - {op: conv, name: a, n: 3}\n";
    let several = format!("name: net\ninput: 8x3x9x7\nbatch: [1, 8]\n{ops}");
    let found = network(&several);
    assert_eq!(network_text(&found), several);
    assert_eq!(found.batches.to_string(), "1,8");
    // The key replaces the batch of the input.
    for key in ["batch: 5", "batch: [5]"] {
        let one = network(&format!("name: net\ninput: 2x3x9x7\n{key}\n{ops}"));
        let expected = format!("name: net\ninput: 5x3x9x7\n{ops}");
        assert_eq!(network_text(&one), expected);
    }
}
