//! Options of an ONNX file in a YAML file beside it.

#![cfg(feature = "onnx")]

use std::path::{Path, PathBuf};
use tdc_generator::config::yaml::network_text;
use tdc_generator::config::{Config, Overrides};
use tdc_generator::import;
use tdc_generator::ir::{Network, Precision};

/// A copy of a model with these options beside it.
fn model(options: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/onnx/legacy.onnx");
    let path = folder.path().join("net.onnx");
    std::fs::copy(fixture, &path).unwrap();
    std::fs::write(folder.path().join("net.onnx.yaml"), options).unwrap();
    (folder, path)
}

fn load(options: &str, overrides: &Overrides) -> Result<Network, String> {
    let (folder, path) = model(options);
    match import::load(&path, overrides) {
        Ok(Config::Network(network)) => Ok(network),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.replace(&format!("{}/", folder.path().display()), "")),
    }
}

const OPTIONS: &str = "\
gpu: [h200, l4]
tiles: model
precision: fp16
input: 1x3x21x17
layers:
  stem: {scheme: direct, precision: fp32}
  blocks.0.fc1: {rank: 2}
  blocks.1.conv1: {tolerance: 0.01}
  head: {rank: 3, factors: [u, v]}
";

#[test]
fn options_say_what_the_file_cannot() {
    let network = load(OPTIONS, &Overrides::default()).unwrap();
    let config = network_text(&network);
    for line in [
        "gpu: [h200, l4]\n",
        "tiles: model\n",
        "input: 1x3x21x17\n",
        "name: stem, n: 8, stride: 2, bias: true, activation: hard_swish, scheme: direct}",
        "name: blocks.0.conv1, n: 8, groups: 2, bias: true, activation: silu, precision: fp16}",
        "name: blocks.0.fc1, n: 4, kernel: 1, bias: true, activation: relu, rank: 2, precision: fp16}",
        "activation: silu, precision: fp16, tolerance: 0.01}",
        "name: head, n: 5, rank: 3, factors: [u, v], precision: fp16}",
    ] {
        assert!(config.contains(line), "{line}\n{config}");
    }
}

#[test]
fn options_say_how_inputs_are_stored() {
    let with = |input: &str| load(&format!("input: {input}\n"), &Overrides::default());
    let network = with("{dtype: uint8, layout: nhwc, std: [0.5, 1, 0.25]}").unwrap();
    let config = network_text(&network);
    let line = "dtype: uint8, layout: nhwc, std: [0.5, 1, 0.25]}\n";
    assert!(config.contains(line), "{config}");
    let error = with("{dtype: uint8, mean: [1]}").unwrap_err();
    assert!(error.contains("has 1 numbers for 3 channels"), "{error}");
    for other in ["{dtype: uint8}", "{layout: nchw}", "{}"] {
        let error = with(&format!("{{other: {other}}}")).unwrap_err();
        assert!(error.contains("no such input"), "{other}: {error}");
    }
}

#[test]
fn options_say_how_outputs_are_stored() {
    let with = |output: &str| load(&format!("output: {output}\n"), &Overrides::default());
    for output in [
        "{dtype: fp16, layout: nhwc}",
        "{head: {layout: nhwc, dtype: fp16}}",
    ] {
        let config = network_text(&with(output).unwrap());
        let expected = "output: {dtype: fp16, layout: nhwc}}\n";
        assert!(config.contains(expected), "{config}");
    }
    let error = with("{heads: {dtype: fp16}}").unwrap_err();
    assert!(
        error.contains("no such output; the model has `head`"),
        "{error}"
    );
    let error = with("{name: logits}").unwrap_err();
    assert!(error.contains("`name`"), "{error}");
    let error = with("nhwc").unwrap_err();
    assert!(error.contains("`output` must be a mapping"), "{error}");
}

#[test]
fn the_caller_comes_first() {
    let overrides = Overrides {
        precision: Some(Precision::Bf16),
        dense: true,
        ..Overrides::default()
    };
    let overrides = overrides.with_input_shapes(&["3x3x17x17".parse().unwrap()]);
    let network = load(OPTIONS, &overrides.unwrap()).unwrap();
    assert_eq!(network.name, "net_dense");
    let config = network_text(&network);
    assert!(config.contains("precision: bf16\n"), "{config}");
    assert!(config.contains("input: 3x3x17x17\n"), "{config}");
    assert!(!config.contains("rank"), "{config}");
}

#[test]
fn errors_have_positions() {
    let wrong = "\
precison: fp16
tiles: fast
layers:
  stem: {ranks: [9, 4]}
";
    let errors = load(wrong, &Overrides::default()).unwrap_err();
    for part in [
        "net.onnx.yaml:1:1: unknown key `precison`; did you mean `precision`?",
        "net.onnx.yaml:2:8: `tiles` cannot be `fast`",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let wrong = "\
layers:
  stem: {ranks: [9, 4]}
  steam: {}
  concat: {scheme: direct}
  head: {scheme: direct, rank: 99}
  blocks.0.conv1: {n: 5}
  blocks.0.fc1: {rank: 2, precision: fp12}
  blocks.0.fc2: 3
  7: {}
";
    let errors = load(wrong, &Overrides::default()).unwrap_err();
    for part in [
        "net.onnx.yaml:2:18: rank 9 is not between 1 and 3",
        "net.onnx.yaml:3:3: the model has no layer `steam`; did you mean `stem`?",
        "net.onnx.yaml:4:3: `concat` is an op concat; only convolutions and linear layers have options",
        "net.onnx.yaml:5:10: `scheme` is a key of the options of a convolution, not of the options of a linear layer",
        "net.onnx.yaml:6:20: `n` is a key of conv, not of the options of a convolution",
        "net.onnx.yaml:7:38: `precision` cannot be `fp12`",
        "net.onnx.yaml:8:17: the options of a layer must be a mapping, not `3`",
        "net.onnx.yaml:9:3: a layer must be a name, not `7`",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let errors = load("layers: [stem]", &Overrides::default()).unwrap_err();
    assert!(
        errors.contains("1:9: `layers` must be a mapping of names to options"),
        "{errors}"
    );
}

#[test]
fn kernels_are_expanded_again_if_options_change() {
    let (_folder, path) = model("precision: fp16\n");
    let options = path.with_extension("onnx.yaml");
    assert_eq!(import::files(&path), [path.clone(), options.clone()]);
    std::fs::remove_file(options).unwrap();
    assert_eq!(import::files(&path), [path]);
}
