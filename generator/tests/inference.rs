//! Inferred sizes of a network against those of PyTorch.

use tdc_generator::config::yaml::parse;
use tdc_generator::config::{Config, Overrides};

/// Output shape of the last op.
fn shape(input: &str, ops: &str) -> String {
    let text = format!("name: net\ninput: {input}\nops: [{ops}]\n");
    match parse(&text, "x.yaml", &Overrides::default()) {
        Ok(Config::Network(network)) => network.op(network.last_op()).y.to_string(),
        Ok(Config::LayerSet(_)) => panic!("a layer set"),
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn convolutions() {
    for (input, options, expected) in [
        ("1x8x9x9", "", "1x4x9x9"),
        ("1x8x9x9", "kernel: 1", "1x4x9x9"),
        // An even kernel cannot be centred: the padding is half of it, rounded down, on every side.
        ("1x8x9x9", "kernel: 2", "1x4x8x8"),
        ("1x8x9x9", "kernel: [4, 5]", "1x4x8x9"),
        ("1x8x9x9", "stride: 2", "1x4x5x5"),
        ("1x8x8x8", "stride: 2", "1x4x4x4"),
        ("3x8x9x9", "stride: [2, 3], pad: 0", "3x4x4x3"),
        ("1x8x9x9", "dilation: 2", "1x4x9x9"),
        ("1x8x9x9", "dilation: [2, 4], pad: 0", "1x4x5x1"),
        ("1x8x9x9", "pad: [2, 0]", "1x4x11x7"),
        ("1x8x9x9", "pad: [1, 2, 0, 1]", "1x4x8x10"),
        ("1x8x9x9", "pad: {bottom: 3}", "1x4x10x7"),
        ("1x8x9x9", "kernel: 11, pad: 1", "1x4x1x1"),
        ("1x8x9x9", "groups: 4", "1x4x9x9"),
        ("1x8x1x1", "kernel: 3", "1x4x1x1"),
        ("1x3x223x224", "kernel: 7, stride: 2", "1x4x112x112"),
    ] {
        let comma = if options.is_empty() { "" } else { ", " };
        let op = format!("{{op: conv, name: a, n: 4{comma}{options}}}");
        assert_eq!(shape(input, &op), expected, "{input} {options}");
    }
}

#[test]
fn pools() {
    for (input, options, expected) in [
        ("1x8x9x9", "kernel: 2", "1x8x4x4"),
        ("1x8x9x9", "kernel: 2, ceil_mode: true", "1x8x5x5"),
        ("1x8x9x9", "kernel: 3, stride: 2, pad: 1", "1x8x5x5"),
        ("1x8x112x112", "kernel: 3, stride: 2, pad: 1", "1x8x56x56"),
        (
            "1x8x112x112",
            "kernel: 3, stride: 2, ceil_mode: true",
            "1x8x56x56",
        ),
        // The last window would start in the padding, so it is dropped.
        ("1x8x2x2", "kernel: 2, pad: 1, ceil_mode: true", "1x8x2x2"),
        ("1x8x3x3", "kernel: 2, pad: 1, ceil_mode: true", "1x8x2x2"),
        (
            "1x8x5x5",
            "kernel: 1, stride: 4, ceil_mode: true",
            "1x8x2x2",
        ),
        (
            "1x8x6x6",
            "kernel: 1, stride: 4, ceil_mode: true",
            "1x8x2x2",
        ),
        (
            "1x8x9x9",
            "kernel: 3, stride: 1, dilation: [2, 4]",
            "1x8x5x1",
        ),
        ("1x8x9x7", "kernel: [3, 2], stride: [1, 2]", "1x8x7x3"),
    ] {
        let op = format!("{{op: max_pool, name: a, {options}}}");
        assert_eq!(shape(input, &op), expected, "{input} {options}");
    }
    let average = "{op: avg_pool, name: a, kernel: 3, stride: 2, ceil_mode: true}";
    assert_eq!(shape("1x8x10x10", average), "1x8x5x5");
}

#[test]
fn joins_and_features() {
    let branches = "{op: conv, name: a, n: 5}, {op: conv, name: b, n: 6, inputs: input}";
    let concat = format!("{branches}, {{op: concat, name: c, inputs: [a, b, input]}}");
    assert_eq!(shape("2x3x7x9", &concat), "2x14x7x9");
    let flat = format!("{concat}, {{op: flatten, name: d}}");
    assert_eq!(shape("2x3x7x9", &flat), "2x882x1x1");
    let linear = format!("{flat}, {{op: linear, name: e, n: 10}}");
    assert_eq!(shape("2x3x7x9", &linear), "2x10x1x1");
    let twice = "{op: add, name: a, inputs: [input, input]}";
    assert_eq!(shape("2x3x7x9", twice), "2x3x7x9");
    let pooled = "{op: global_max_pool, name: a}, {op: linear, name: b, n: 4}";
    assert_eq!(shape("2x3x7x9", pooled), "2x4x1x1");
}
