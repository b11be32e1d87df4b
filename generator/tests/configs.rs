//! The configs that come with the project say what they should.

use std::path::{Path, PathBuf};
use tdc_generator::spec::yaml::load;
use tdc_generator::spec::{Config, LayerSet, Network, OpKind, Overrides, TensorShape};
use tdc_runtime::{ConvShape, Padding};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../configs")
        .join(name)
}

fn network(name: &str, overrides: &Overrides) -> Network {
    match load(&path(name), overrides) {
        Ok(Config::Network(network)) => network,
        Ok(Config::LayerSet(_)) => panic!("{name} is a layer set"),
        Err(errors) => panic!("{errors}"),
    }
}

fn layer_set(name: &str, overrides: &Overrides) -> LayerSet {
    match load(&path(name), overrides) {
        Ok(Config::LayerSet(set)) => set,
        Ok(Config::Network(_)) => panic!("{name} is a network"),
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn resnet18_has_torchvisions_shapes_and_the_published_ranks() {
    let network = network("resnet18.yaml", &Overrides::default());
    let found: Vec<String> = network
        .ops
        .iter()
        .filter_map(|op| match &op.kind {
            OpKind::Conv(conv) => {
                let s = &conv.shape;
                assert_eq!(s.stride[0], s.stride[1]);
                assert_eq!(s.padding, Padding::all(s.padding.top));
                assert_eq!((s.batch, s.dilation, s.groups), (1, [1, 1], 1));
                let ranks = match conv.options.ranks {
                    Some([d1, d2]) => format!("{d1} {d2}"),
                    None => "- -".to_owned(),
                };
                Some(format!(
                    "{} {} {} {} {} {} {} {} {} {ranks}",
                    op.name, s.c, s.n, s.h, s.w, s.r, s.s, s.stride[0], s.padding.top
                ))
            }
            _ => None,
        })
        .collect();
    let mut expected: Vec<&str> = include_str!("fixtures/resnet18-layers.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(
        network.op(network.output()).y,
        TensorShape::new(1, 1000, 1, 1)
    );
}

#[test]
fn every_conv_of_resnet18_has_its_batch_norm() {
    for op in &network("resnet18.yaml", &Overrides::default()).ops {
        if let OpKind::Conv(conv) = &op.kind {
            let expected = match op.name.strip_suffix("downsample.0") {
                Some(block) => format!("{block}downsample.1"),
                None => op.name.replace("conv", "bn"),
            };
            let bn = conv.options.bn.as_ref().map(|bn| bn.name.clone());
            assert_eq!(bn, Some(expected));
            assert!(!conv.options.bias);
        }
    }
}

#[test]
fn overrides_change_a_network() {
    let overrides = Overrides {
        input: "1x3x480x640".parse().ok(),
        batch: Some(2),
        dense: true,
    };
    let network = network("resnet18.yaml", &overrides);
    assert_eq!(network.input(), TensorShape::new(2, 3, 480, 640));
    let last = network.ops.iter().rfind(|op| op.name == "layer4.1");
    assert_eq!(last.map(|op| op.y), Some(TensorShape::new(2, 512, 15, 20)));
    assert!(network.ops.iter().all(|op| match &op.kind {
        OpKind::Conv(conv) => conv.options.ranks.is_none(),
        _ => true,
    }));
}

#[test]
fn core_shapes_are_those_of_the_paper() {
    let set = layer_set("core-shapes.yaml", &Overrides::default());
    assert_eq!(set.name, "core-shapes");
    let expected = [
        [32, 32, 7],
        [32, 32, 14],
        [32, 32, 28],
        [32, 32, 56],
        [64, 32, 7],
        [64, 32, 14],
        [64, 32, 28],
        [64, 32, 56],
        [64, 32, 112],
        [64, 32, 224],
        [64, 64, 56],
        [96, 64, 7],
        [96, 64, 28],
        [128, 96, 14],
        [160, 96, 28],
        [192, 96, 14],
        [192, 96, 28],
        [192, 160, 7],
    ];
    let shapes: Vec<ConvShape> = set.layers.iter().map(|layer| layer.problem.shape).collect();
    let expected: Vec<ConvShape> = expected
        .into_iter()
        .map(|[c, n, size]| ConvShape {
            padding: Padding::all(1),
            ..ConvShape::new(c, n, size, size, 3, 3)
        })
        .collect();
    assert_eq!(shapes, expected);
    assert_eq!(set.layers[0].name, "c32_n32_h7_w7");
}

#[test]
fn a_batch_can_be_asked_for_of_a_layer_set() {
    let overrides = Overrides {
        batch: Some(8),
        ..Overrides::default()
    };
    let set = layer_set("core-shapes.yaml", &overrides);
    assert!(
        set.layers
            .iter()
            .all(|layer| layer.problem.shape.batch == 8)
    );
}
