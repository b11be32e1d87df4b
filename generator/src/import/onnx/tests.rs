//! Models that are built message by message: what is imported, what is refused, and hostile files.

use super::message::{
    Attribute, Dimension, Entry, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType, Type,
    ValueInfo,
};
use super::message::{attribute_kind, data_type};
use super::{Imported, parse};
use crate::config::Overrides;
use crate::ir::{
    Activation, ActivationParameter, ChannelNorm, Coordinates, Format, Interpolation, Layout,
    OpKind, PadMode, PoolKind, Rounding,
};
use prost::Message as _;
use std::path::Path;
use tdc_runtime::Padding;

fn node(op: &str, inputs: &[&str], output: &str) -> Node {
    Node {
        op_type: Some(op.to_owned()),
        name: Some(output.to_owned()),
        input: inputs.iter().map(|&name| name.to_owned()).collect(),
        output: vec![output.to_owned()],
        ..Node::default()
    }
}

fn ints(name: &str, values: &[i64]) -> Attribute {
    Attribute {
        name: Some(name.to_owned()),
        kind: Some(attribute_kind::INTS),
        ints: values.to_vec(),
        ..Attribute::default()
    }
}

fn int(name: &str, value: i64) -> Attribute {
    Attribute {
        name: Some(name.to_owned()),
        kind: Some(attribute_kind::INT),
        i: Some(value),
        ..Attribute::default()
    }
}

fn with(mut node: Node, attributes: &[Attribute]) -> Node {
    node.attribute = attributes.to_vec();
    node
}

fn tensor(name: &str, dims: &[i64]) -> Tensor {
    let count = dims.iter().product::<i64>();
    Tensor {
        name: Some(name.to_owned()),
        dims: dims.to_vec(),
        data_type: Some(data_type::FLOAT),
        float_data: (0..count)
            .map(|index| 0.125 * (index % 7) as f32 - 0.25)
            .collect(),
        ..Tensor::default()
    }
}

fn scalar(name: &str, value: f32) -> Tensor {
    Tensor {
        float_data: vec![value],
        ..tensor(name, &[])
    }
}

fn value(name: &str, dims: &[i64]) -> ValueInfo {
    let dim = |&size: &i64| match size {
        0 => Dimension {
            symbol: Some("batch".to_owned()),
            ..Dimension::default()
        },
        _ => Dimension {
            value: Some(size),
            ..Dimension::default()
        },
    };
    ValueInfo {
        name: Some(name.to_owned()),
        kind: Some(Type {
            tensor: Some(TensorType {
                element: Some(data_type::FLOAT),
                shape: Some(Shape {
                    dim: dims.iter().map(dim).collect(),
                }),
            }),
        }),
    }
}

/// A model of the newest operator set with the input `x` of 2x6x9x7 and the output `y`.
fn model(nodes: Vec<Node>, constants: Vec<Tensor>) -> Model {
    Model {
        ir_version: Some(8),
        opset_import: vec![OperatorSet {
            domain: None,
            version: Some(24),
        }],
        functions: Vec::new(),
        graph: Some(Graph {
            node: nodes,
            initializer: constants,
            input: vec![value("x", &[2, 6, 9, 7])],
            output: vec![value("y", &[])],
            sparse_initializer: Vec::new(),
        }),
    }
}

fn import_in(model: &Model, folder: Option<&Path>) -> Result<Imported, String> {
    let bytes = model.encode_to_vec().into();
    parse(bytes, "m.onnx", "m", folder, &Overrides::default()).map_err(|errors| errors.to_string())
}

fn import(nodes: Vec<Node>, constants: Vec<Tensor>) -> Result<Imported, String> {
    import_in(&model(nodes, constants), None)
}

/// The ops of a network: kind and activation.
fn ops(imported: &Imported) -> Vec<String> {
    let ops = imported.network.ops.iter().skip(1);
    ops.map(|op| match &op.kind {
        OpKind::Conv(conv) => format!("conv {}", conv.options.activation.as_str()),
        OpKind::Linear(linear) => format!("linear {}", linear.options.activation.as_str()),
        OpKind::Binary(kind, activation) => format!("{kind:?} {}", activation.as_str()),
        OpKind::Activation(activation) => activation.as_str().to_owned(),
        OpKind::ScaleShift(scale_shift) => {
            format!("scale_shift {}", scale_shift.activation.as_str())
        }
        other => format!("{other:?}")
            .split([' ', '(', '{'])
            .next()
            .unwrap_or_default()
            .to_owned(),
    })
    .collect()
}

fn conv(input: &str, output: &str) -> Node {
    with(
        node("Conv", &[input, "w"], output),
        &[ints("pads", &[1, 1, 1, 1])],
    )
}

fn filters() -> Tensor {
    tensor("w", &[6, 6, 3, 3])
}

#[test]
fn spellings_become_one_activation() {
    let silu = vec![
        conv("x", "a"),
        node("Sigmoid", &["a"], "s"),
        node("Mul", &["s", "a"], "y"),
    ];
    assert_eq!(ops(&import(silu, vec![filters()]).unwrap()), ["conv silu"]);

    let hard_swish = vec![
        conv("x", "a"),
        node("Add", &["a", "three"], "b"),
        node("Clip", &["b", "zero", "six"], "c"),
        node("Mul", &["a", "c"], "d"),
        node("Div", &["d", "six"], "y"),
    ];
    let numbers = vec![
        filters(),
        scalar("three", 3.0),
        scalar("zero", 0.0),
        scalar("six", 6.0),
    ];
    assert_eq!(
        ops(&import(hard_swish, numbers).unwrap()),
        ["conv hard_swish"]
    );

    let gelu = vec![
        node("Relu", &["x"], "r"),
        node("Div", &["r", "root"], "a"),
        node("Erf", &["a"], "b"),
        node("Add", &["one", "b"], "c"),
        node("Mul", &["r", "c"], "d"),
        node("Mul", &["half", "d"], "y"),
    ];
    let numbers = vec![
        scalar("root", std::f32::consts::SQRT_2),
        scalar("one", 1.0),
        scalar("half", 0.5),
    ];
    assert_eq!(ops(&import(gelu, numbers).unwrap()), ["relu", "gelu"]);
}

/// An op keeps its output if anything else reads it, or a part of the spelling of its activation.
#[test]
fn ops_that_others_read_keep_their_outputs() {
    let nodes = vec![
        conv("x", "a"),
        node("Sigmoid", &["a"], "s"),
        node("Mul", &["a", "s"], "b"),
        node("Add", &["b", "s"], "y"),
    ];
    assert_eq!(
        ops(&import(nodes, vec![filters()]).unwrap()),
        ["conv none", "silu", "sigmoid", "Add none"]
    );

    let nodes = vec![
        conv("x", "a"),
        node("Relu", &["a"], "b"),
        node("Add", &["a", "b"], "y"),
    ];
    assert_eq!(
        ops(&import(nodes, vec![filters()]).unwrap()),
        ["conv none", "relu", "Add none"]
    );

    // The same, if it is read under another name.
    let nodes = vec![
        conv("x", "a"),
        node("Identity", &["a"], "same"),
        node("Relu", &["a"], "b"),
        node("Add", &["same", "b"], "y"),
    ];
    assert_eq!(
        ops(&import(nodes, vec![filters()]).unwrap()),
        ["conv none", "relu", "Add none"]
    );

    let batch_norm = node("BatchNormalization", &["a", "g", "b", "m", "v"], "n");
    let parameters = ["g", "b", "m", "v"].map(|name| tensor(name, &[6]));
    let nodes = vec![conv("x", "a"), batch_norm, node("Add", &["a", "n"], "y")];
    let constants = parameters.into_iter().chain([filters()]).collect();
    assert_eq!(
        ops(&import(nodes, constants).unwrap()),
        ["conv none", "scale_shift none", "Add none"]
    );
}

#[test]
fn constants_for_channels_become_bias_scale_and_shift() {
    let nodes = vec![
        conv("x", "a"),
        node("Add", &["a", "c"], "b"),
        node("Relu", &["b"], "y"),
    ];
    let imported = import(nodes, vec![filters(), tensor("c", &[6, 1, 1])]).unwrap();
    assert_eq!(ops(&imported), ["conv relu"]);
    let bias = &imported.tensors["a.bias"].values;
    assert_eq!(*bias, [-0.25, -0.125, 0.0, 0.125, 0.25, 0.375]);

    let nodes = vec![
        node("Sub", &["x", "c"], "a"),
        node("Div", &["a", "d"], "b"),
        node("Relu", &["b"], "y"),
    ];
    let divisor = Tensor {
        float_data: vec![2.0, 4.0, 0.5, 1.0, 8.0, -2.0],
        ..tensor("d", &[1, 6, 1, 1])
    };
    let imported = import(nodes, vec![tensor("c", &[6, 1, 1]), divisor]).unwrap();
    assert_eq!(ops(&imported), ["scale_shift relu"]);
    let shift = &imported.tensors["a.shift"].values;
    assert_eq!(*shift, [0.125, 0.03125, 0.0, -0.125, -0.03125, 0.1875]);

    // One number for each column is not one for each channel.
    let nodes = vec![node("Add", &["x", "c"], "y")];
    let error = import(nodes, vec![tensor("c", &[7])]).unwrap_err();
    assert!(
        error.contains("only with one number for each channel"),
        "{error}"
    );
}

#[test]
fn shapes_are_folded() {
    let flat = |shape: Node, rest: Vec<Node>| {
        let mut nodes = vec![shape];
        nodes.extend(rest);
        import(nodes, vec![tensor("f", &[378, 5])]).map(|imported| ops(&imported))
    };
    let expected = Ok(vec!["Flatten".to_owned(), "linear none".to_owned()]);
    let product = || node("MatMul", &["b", "f"], "y");
    assert_eq!(
        flat(node("Flatten", &["x"], "b"), vec![product()]),
        expected
    );
    let constant = |name: &str, values: &[i64]| {
        with(node("Constant", &[], name), &[ints("value_ints", values)])
    };
    let reshape = vec![
        constant("s", &[0, -1]),
        node("Reshape", &["x", "s"], "b"),
        product(),
    ];
    assert_eq!(
        import(reshape, vec![tensor("f", &[378, 5])]).map(|imported| ops(&imported)),
        expected
    );
    let computed = vec![
        node("Shape", &["x"], "s"),
        constant("i", &[0]),
        node("Gather", &["s", "i"], "batch"),
        constant("rest", &[-1]),
        with(node("Concat", &["batch", "rest"], "t"), &[int("axis", 0)]),
        node("Reshape", &["x", "t"], "b"),
        product(),
    ];
    assert_eq!(
        import(computed, vec![tensor("f", &[378, 5])]).map(|imported| ops(&imported)),
        expected
    );
    // The same elements with other axes are not an image.
    let view = vec![
        node("GlobalAveragePool", &["x"], "p"),
        constant("s", &[2, 1, 6, 1]),
        node("Reshape", &["p", "s"], "v"),
        node("GlobalAveragePool", &["v"], "y"),
    ];
    let error = import(view, Vec::new()).unwrap_err();
    assert!(
        error.contains("its input was reshaped to [2, 1, 6, 1]"),
        "{error}"
    );
}

/// Top, left, bottom and right padding of the first convolution.
fn padding_of_conv(imported: &Imported) -> [u32; 4] {
    let mut ops = imported.network.ops.iter();
    let padding = ops.find_map(|op| match &op.kind {
        OpKind::Conv(conv) => Some(conv.shape.padding),
        _ => None,
    });
    let padding = padding.unwrap_or_else(|| panic!("{:?}", imported.network.ops));
    [padding.top, padding.left, padding.bottom, padding.right]
}

/// Padding that an exporter left to compute from the size of the image, in floats, as TensorFlow pads.
#[test]
fn computed_padding_is_folded() {
    let numbers = |name: &str, values: &[f32]| Tensor {
        name: Some(name.to_owned()),
        dims: vec![values.len() as i64],
        data_type: Some(data_type::FLOAT),
        float_data: values.to_vec(),
        ..Tensor::default()
    };
    let nodes = vec![
        node("Clip", &["before", "zero"], "least"),
        node("Clip", &["after", "zero", "two"], "both"),
        with(
            node("Concat", &["none", "least", "none", "both"], "floats"),
            &[int("axis", 0)],
        ),
        with(node("Cast", &["floats"], "p"), &[int("to", 7)]),
        node("Pad", &["x", "p"], "a"),
        conv("a", "y"),
    ];
    let constants = vec![
        filters(),
        numbers("before", &[-1.0, 1.5]),
        numbers("after", &[-3.0, 9.0]),
        numbers("none", &[0.0, 0.0]),
        numbers("zero", &[0.0]),
        numbers("two", &[2.0]),
    ];
    let imported = import(nodes, constants).unwrap();
    assert_eq!(padding_of_conv(&imported), [1, 2, 1, 3]);
}

#[test]
fn padding_is_folded_where_it_changes_nothing() {
    let pads = |name: &str| Tensor {
        dims: vec![8],
        data_type: Some(data_type::INT64),
        int64_data: vec![0, 0, 1, 2, 0, 0, 3, 4],
        name: Some(name.to_owned()),
        ..Tensor::default()
    };
    let nodes = vec![node("Pad", &["x", "p"], "a"), conv("a", "y")];
    let imported = import(nodes, vec![filters(), pads("p")]).unwrap();
    assert_eq!(padding_of_conv(&imported), [2, 3, 4, 5]);

    let pool = || {
        with(
            node("MaxPool", &["a"], "y"),
            &[ints("kernel_shape", &[6, 8])],
        )
    };
    let nodes = vec![node("Pad", &["x", "p"], "a"), pool()];
    let imported = import(nodes, vec![pads("p")]).unwrap();
    assert_eq!(ops(&imported), ["Pad", "Pool"]);
    let nodes = vec![
        node("Relu", &["x"], "r"),
        node("Pad", &["r", "p"], "a"),
        pool(),
    ];
    let imported = import(nodes, vec![pads("p")]).unwrap();
    let OpKind::Pool(found) = &imported.network.ops[2].kind else {
        panic!("{:?}", imported.network.ops);
    };
    let padding = found.padding;
    assert_eq!(
        [padding.top, padding.left, padding.bottom, padding.right],
        [1, 2, 3, 4]
    );
    assert_eq!(found.out, [9 + 4 - 5, 7 + 6 - 7]);

    // An average counts the zeros of the Pad, and not those of its own padding.
    let average = |pads_of_pool: &[i64]| {
        let attributes = [ints("kernel_shape", &[6, 8]), ints("pads", pads_of_pool)];
        let nodes = vec![
            node("Pad", &["x", "p"], "a"),
            with(node("AveragePool", &["a"], "y"), &attributes),
        ];
        import(nodes, vec![pads("p")])
    };
    let imported = average(&[0, 0, 0, 0]).unwrap();
    let OpKind::Pool(found) = &imported.network.ops[1].kind else {
        panic!("{:?}", imported.network.ops);
    };
    let counts_padding = PoolKind::Avg {
        count_include_pad: true,
    };
    assert_eq!((found.kind, found.padding.bottom), (counts_padding, 3));
    let imported = average(&[1, 0, 0, 0]).unwrap();
    assert_eq!(ops(&imported), ["Pad", "Pool"]);
    let OpKind::Pool(found) = &imported.network.ops[2].kind else {
        panic!("{:?}", imported.network.ops);
    };
    let does_not_count_padding = PoolKind::Avg {
        count_include_pad: false,
    };
    assert_eq!(
        (found.kind, found.padding.top, found.padding.bottom),
        (does_not_count_padding, 1, 0)
    );
}

#[test]
fn padding_has_all_spellings() {
    let float = |value| Attribute {
        f: Some(value),
        kind: Some(attribute_kind::FLOAT),
        ..named("value")
    };
    let mode = |mode: &str| Attribute {
        s: Some(mode.as_bytes().to_vec().into()),
        kind: Some(attribute_kind::STRING),
        ..named("mode")
    };
    let pads = [0, 0, 1, 2, 0, 0, 3, 4];
    let all = Padding {
        top: 1,
        left: 2,
        bottom: 3,
        right: 4,
    };
    let half = PadMode::Constant(ActivationParameter::new(0.5));
    let with_inputs = |inputs: &[&str], attributes: &[Attribute]| {
        let mut names = vec!["x"];
        names.extend(inputs);
        let constants = vec![
            list("p", &pads),
            scalar("half", 0.5),
            scalar("inf", f32::INFINITY),
            list("columns", &[2, 4]),
            list("axis", &[-1]),
            list("twice", &[3, -1]),
            list("far", &[4]),
        ];
        import(vec![with(node("Pad", &names, "y"), attributes)], constants)
    };
    let columns = Padding {
        left: 2,
        right: 4,
        ..Padding::default()
    };
    for (inputs, attributes, expected) in [
        (&["p"][..], &[][..], (PadMode::ZERO, all)),
        (&["p", "half"], &[], (half, all)),
        (&[], &[ints("pads", &pads), float(0.5)], (half, all)),
        (&[], &[ints("paddings", &pads)], (PadMode::ZERO, all)),
        (&["p", "", ""], &[mode("edge")], (PadMode::Edge, all)),
        (
            &["columns", "", "axis"],
            &[mode("reflect")],
            (PadMode::Reflect, columns),
        ),
    ] {
        let imported = with_inputs(inputs, attributes).unwrap();
        let OpKind::Pad(found) = imported.network.ops[1].kind else {
            panic!("{:?}", imported.network.ops);
        };
        assert_eq!((found.mode, found.padding), expected, "{inputs:?}");
    }
    for (inputs, attributes, part) in [
        (&["p"][..], &[mode("wrap")][..], "padding by `wrap`"),
        (&["p", "inf"], &[], "padding by inf"),
        (&["p", "p"], &[], "its value is not a single number"),
        (&["columns"], &[], "is not two numbers for each of 4 axes"),
        (&["p", "", "twice"], &[], "it pads the axes [3, -1] of 4"),
        (&["p", "", "far"], &[], "it pads the axes [4] of 4"),
        (
            &[],
            &[ints("pads", &[0, 1, 0, 0, 0, 0, 0, 0])],
            "rows and columns are padded",
        ),
        (
            &[],
            &[ints("pads", &[0, 0, -1, 0, 0, 0, 0, 0])],
            "rows and columns are padded",
        ),
        (
            &[],
            &[ints("pads", &[0, 0, 9, 0, 0, 0, 0, 0]), mode("reflect")],
            "9 rows of padding by the reflection of 9",
        ),
    ] {
        let error = with_inputs(inputs, attributes).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // Without pixels it is no op.
    let none = [ints("pads", &[0; 8]), mode("edge")];
    let nodes = vec![
        with(node("Pad", &["x"], "a"), &none),
        node("Relu", &["a"], "y"),
    ];
    assert_eq!(ops(&import(nodes, Vec::new()).unwrap()), ["relu"]);
    // Zeros that a convolution takes over and an activation reads too.
    let nodes = vec![
        node("Pad", &["x", "p"], "a"),
        conv("a", "b"),
        node("Relu", &["a"], "c"),
        node("GlobalMaxPool", &["b"], "d"),
        node("GlobalMaxPool", &["c"], "e"),
        node("Add", &["d", "e"], "y"),
    ];
    let imported = import(nodes, vec![filters(), list("p", &pads)]).unwrap();
    assert_eq!(
        ops(&imported)[..4],
        ["conv none", "GlobalPool", "Pad", "relu"]
    );
}

#[test]
fn files_are_read_whatever_their_order_and_version() {
    let nodes = vec![conv("x", "a"), node("Relu", &["a"], "y")];
    let reference = import(nodes.clone(), vec![filters()]).unwrap().network;
    let mut other = model(nodes.into_iter().rev().collect(), vec![filters()]);
    other.ir_version = Some(3);
    other.opset_import[0].version = Some(7);
    let graph = other.graph.as_mut().unwrap();
    // IR version 3 lists initialisers among the inputs.
    graph.input.insert(0, value("w", &[6, 6, 3, 3]));
    assert_eq!(import_in(&other, None).unwrap().network, reference);
    other.graph.as_mut().unwrap().input[1] = value("x", &[0, 6, 9, 7]);
    assert_eq!(import_in(&other, None).unwrap().network.input().batch, 1);
}

#[test]
fn all_errors_are_reported_with_their_nodes() {
    let mut custom = node("Fancy", &["x"], "c");
    custom.domain = Some("com.example".to_owned());
    let mut located = node("Det", &["x"], "l");
    located.metadata_props = vec![Entry {
        key: Some("pkg.torch.onnx.stack_trace".to_owned()),
        value: Some("File \"/a/net.py\", line 7, in forward\n".to_owned()),
    }];
    let error = import(
        vec![custom, node("QuantizeLinear", &["x"], "y")],
        Vec::new(),
    )
    .unwrap_err();
    for part in [
        "m.onnx: node `c` (Fancy)",
        "custom domain `com.example`",
        "error: m.onnx: node `y`",
        "quantised networks",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let bad_attribute = with(node("Relu", &["l"], "r"), &[int("fast", 1)]);
    let stride = with(node("MaxPool", &["x"], "p"), &[ints("kernel_shape", &[3])]);
    let nodes = vec![
        located,
        bad_attribute,
        stride,
        node("Add", &["r", "p"], "y"),
    ];
    let error = import(nodes, Vec::new()).unwrap_err();
    assert!(
        error.contains("node `l` (Det, net.py:7): the operation Det is not supported"),
        "{error}"
    );
    assert!(
        error.contains("node `p` (MaxPool): `kernel_shape` = [3]"),
        "{error}"
    );
    // Readers of a failed node cause no further errors.
    assert_eq!(error.lines().count(), 2, "{error}");
    let nodes = vec![with(node("Relu", &["x"], "y"), &[int("fast", 1)])];
    let error = import(nodes, Vec::new()).unwrap_err();
    assert!(
        error.contains("the attribute `fast` is not supported"),
        "{error}"
    );
}

#[test]
fn broken_graphs_are_errors() {
    for (nodes, expected) in [
        (vec![node("Relu", &["y"], "y")], "cycle"),
        (
            vec![
                node("Relu", &["b"], "a"),
                node("Relu", &["a"], "b"),
                node("Add", &["a", "x"], "y"),
            ],
            "cycle",
        ),
        (
            vec![node("Relu", &["nowhere"], "y")],
            "`nowhere`, which nothing produces",
        ),
        (
            vec![node("Relu", &["x"], "y"), node("Tanh", &["x"], "y")],
            "two producers",
        ),
        (
            vec![node("Relu", &["x"], "a")],
            "nothing computes the output `y`",
        ),
        (vec![node("Relu", &[], "y")], "an input is missing"),
        (vec![node("Conv", &["x"], "y")], "it has no weight"),
        (
            vec![node("Conv", &["x", "x"], "y")],
            "only constants are supported",
        ),
        (
            vec![with(
                node("Conv", &["x", "w"], "y"),
                &[ints("strides", &[0, 1])],
            )],
            "stride",
        ),
        (
            vec![with(
                node("Conv", &["x", "w"], "y"),
                &[ints("pads", &[-1, 0, 0, 0])],
            )],
            "`pads` = [-1, 0, 0, 0]",
        ),
        (
            vec![with(
                node("Conv", &["x", "w"], "y"),
                &[ints("pads", &[i64::MAX; 4])],
            )],
            "`pads`",
        ),
        (
            vec![with(
                node("Conv", &["x", "w"], "y"),
                &[ints("pads", &[u32::MAX.into(); 4])],
            )],
            "`pads` = [4294967295, 4294967295, 4294967295, 4294967295]",
        ),
        (
            vec![with(node("Conv", &["x", "w"], "y"), &[int("group", -3)])],
            "`group` = -3",
        ),
    ] {
        let error = import(nodes, vec![filters()]).map(|imported| imported.network);
        assert!(
            error.as_ref().is_err_and(|error| error.contains(expected)),
            "{expected}: {error:?}"
        );
    }
}

/// As in DenseNets.
#[test]
fn growing_concatenations_extend_each_other() {
    let concat =
        |inputs: &[&str], output: &str| with(node("Concat", inputs, output), &[int("axis", 1)]);
    let nodes = vec![
        node("Relu", &["x"], "a"),
        node("Tanh", &["x"], "b"),
        concat(&["a", "b"], "ab"),
        node("Sigmoid", &["ab"], "c"),
        concat(&["a", "b", "c"], "abc"),
        node("HardSwish", &["abc"], "d"),
        concat(&["a", "b", "c", "d"], "y"),
    ];
    let imported = import(nodes, Vec::new()).unwrap();
    let network = &imported.network;
    let concats = network.ops.iter().filter(|op| op.kind == OpKind::Concat);
    let inputs: Vec<Vec<&str>> = concats
        .map(|op| {
            op.inputs
                .iter()
                .map(|&input| &network.op(input).name[..])
                .collect()
        })
        .collect();
    assert_eq!(inputs, [["a", "b"], ["ab", "c"], ["abc", "d"]]);
}

#[test]
fn sizes_that_overflow_are_errors() {
    let pads = |value: i64| Tensor {
        dims: vec![8],
        data_type: Some(data_type::INT64),
        int64_data: vec![0, 0, value, value, 0, 0, value, value],
        name: Some("p".to_owned()),
        ..Tensor::default()
    };
    for reader in [
        conv("a", "y"),
        node("Relu", &["a"], "y"),
        node("Flatten", &["a"], "y"),
        node("GlobalMaxPool", &["a"], "y"),
    ] {
        for value in [0, 1 << 20, u32::MAX.into(), i64::MAX] {
            let nodes = vec![node("Pad", &["x", "p"], "a"), reader.clone()];
            let imported = import(nodes, vec![filters(), pads(value)]);
            assert_eq!(imported.is_ok(), value == 0, "{reader:?} {value}");
        }
    }
    let empty = Tensor {
        dims: vec![0],
        ..tensor("e", &[0])
    };
    let sum = vec![node("Add", &["e", "one"], "s"), node("Relu", &["x"], "y")];
    assert!(import(sum, vec![empty, scalar("one", 1.0)]).is_ok());
    // Without nodes, the output is an initialiser.
    assert!(import(Vec::new(), vec![tensor("y", &[2])]).is_err());
    // Constants with more axes add axes.
    let nodes = vec![
        node("GlobalAveragePool", &["x"], "g"),
        node("Flatten", &["g"], "f"),
        node("Mul", &["f", "one"], "y"),
    ];
    assert!(import(nodes, vec![tensor("one", &[1, 1, 1])]).is_err());
}

fn named(name: &str) -> Attribute {
    Attribute {
        name: Some(name.to_owned()),
        ..Attribute::default()
    }
}

fn list(name: &str, values: &[i64]) -> Tensor {
    Tensor {
        name: Some(name.to_owned()),
        dims: vec![values.len() as i64],
        data_type: Some(data_type::INT64),
        int64_data: values.to_vec(),
        ..Tensor::default()
    }
}

/// The slices and shuffles of a network: first channel and number of channels, or groups.
fn channel_ops(imported: &Imported) -> Vec<(u32, u32)> {
    let ops = imported.network.ops.iter();
    ops.filter_map(|op| match op.kind {
        OpKind::Slice { start } => Some((start, op.y.c)),
        OpKind::Shuffle { groups } => Some((groups, 0)),
        _ => None,
    })
    .collect()
}

#[test]
fn channels_are_sliced_and_split() {
    let slice = |starts: &[i64], ends: &[i64], axes: &[i64], steps: &[i64]| {
        let nodes = vec![
            node("Slice", &["x", "s", "e", "a", "t"], "b"),
            node("Relu", &["b"], "y"),
        ];
        let constants = vec![
            list("s", starts),
            list("e", ends),
            list("a", axes),
            list("t", steps),
        ];
        import(nodes, constants).map(|imported| channel_ops(&imported))
    };
    assert_eq!(slice(&[1], &[4], &[1], &[1]), Ok(vec![(1, 3)]));
    assert_eq!(slice(&[-2], &[i64::MAX], &[-3], &[1]), Ok(vec![(4, 2)]));
    assert_eq!(slice(&[0, 0], &[9, 6], &[2, 1], &[1, 1]), Ok(vec![]));
    for (starts, ends, axes, steps, expected) in [
        ([1], [4], [2], [1], "other axes than the channels"),
        ([0], [6], [1], [2], "every other channel"),
        ([5], [0], [1], [-1], "every other channel"),
        ([0], [1], [4], [1], "an axis that there is not"),
        ([3], [3], [1], [1], "`n`"),
    ] {
        let error = slice(&starts, &ends, &axes, &steps).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let error = import(
        vec![node("Slice", &["x", "s", "s", "", "x"], "y")],
        vec![list("s", &[1])],
    );
    assert!(error.unwrap_err().contains("its range is computed"));

    let split = |sizes: Option<&[i64]>, attributes: &[Attribute]| {
        let split = match sizes {
            Some(_) => node("Split", &["x", "sizes"], "a"),
            None => node("Split", &["x"], "a"),
        };
        let nodes = vec![
            outputs(with(split, attributes), &["b"]),
            with(node("Concat", &["b", "a"], "y"), &[int("axis", 1)]),
        ];
        let constants = sizes.map(|sizes| list("sizes", sizes));
        import(nodes, constants.into_iter().collect()).map(|imported| channel_ops(&imported))
    };
    let axis = int("axis", 1);
    assert_eq!(
        split(None, std::slice::from_ref(&axis)),
        Ok(vec![(0, 3), (3, 3)])
    );
    assert_eq!(
        split(Some(&[1, 5]), std::slice::from_ref(&axis)),
        Ok(vec![(0, 1), (1, 5)])
    );
    assert_eq!(
        split(None, &[int("axis", -3), ints("split", &[4, 2])]),
        Ok(vec![(0, 4), (4, 2)])
    );
    for (sizes, attributes, expected) in [
        (None, vec![], "along axis 0"),
        (
            Some(&[1, 4][..]),
            vec![axis.clone()],
            "are not the 6 channels",
        ),
        (Some(&[6, 0]), vec![axis.clone()], "are not the 6 channels"),
        (
            Some(&[i64::MAX, i64::MAX]),
            vec![axis.clone()],
            "are not the 6 channels",
        ),
        (None, vec![axis, int("num_outputs", 3)], "`num_outputs` = 3"),
    ] {
        let error = split(sizes, &attributes).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

fn text(name: &str, value: &str) -> Attribute {
    Attribute {
        name: Some(name.to_owned()),
        kind: Some(attribute_kind::STRING),
        s: Some(value.to_owned().into()),
        ..Attribute::default()
    }
}

#[test]
fn images_are_resized() {
    let resized = |node: Node, attributes: &[Attribute], constants: Vec<Tensor>| {
        let imported = import(vec![with(node, attributes)], constants)?;
        let op = &imported.network.ops[1];
        match op.kind {
            OpKind::Resize(resize) => Ok((resize.out, resize.coordinates, resize.interpolation)),
            _ => Err(format!("{:?}", op.kind)),
        }
    };
    let factors = |values: &[f32]| Tensor {
        float_data: values.to_vec(),
        ..tensor("s", &[values.len() as i64])
    };
    let by_scales = |attributes: &[Attribute], values: &[f32]| {
        resized(
            node("Resize", &["x", "", "s"], "y"),
            attributes,
            vec![factors(values)],
        )
    };
    let by_sizes = |attributes: &[Attribute], sizes: &[i64]| {
        let node = node("Resize", &["x", "", "", "z"], "y");
        resized(node, attributes, vec![list("z", sizes)])
    };
    let nearest = Interpolation::Nearest;
    assert_eq!(
        by_scales(&[], &[1.0, 1.0, 2.0, 3.0]),
        Ok((
            [18, 21],
            Coordinates::HalfPixel,
            nearest(Rounding::PreferFloor)
        ))
    );
    let bilinear = [
        text("mode", "linear"),
        text("coordinate_transformation_mode", "align_corners"),
    ];
    assert_eq!(
        by_sizes(&bilinear, &[2, 6, 5, 20]),
        Ok(([5, 20], Coordinates::AlignCorners, Interpolation::Bilinear))
    );
    // As PyTorch's exporters write the nearest pixel.
    let floor = [
        text("coordinate_transformation_mode", "asymmetric"),
        text("nearest_mode", "floor"),
        text("mode", "nearest"),
        Attribute {
            name: Some("cubic_coeff_a".to_owned()),
            kind: Some(attribute_kind::FLOAT),
            f: Some(-0.75),
            ..Attribute::default()
        },
    ];
    let third = 1.0 / 3.0;
    assert_eq!(
        by_scales(&floor, &[1.0, 1.0, third, 2.0]),
        Ok(([3, 14], Coordinates::Asymmetric, nearest(Rounding::Floor)))
    );
    // Before operator set 11, and before operator set 9.
    let old = Ok(([18, 14], Coordinates::Asymmetric, nearest(Rounding::Floor)));
    let scales = || factors(&[1.0, 1.0, 2.0, 2.0]);
    assert_eq!(
        resized(node("Resize", &["x", "s"], "y"), &[], vec![scales()]),
        old
    );
    assert_eq!(
        resized(node("Upsample", &["x", "s"], "y"), &[], vec![scales()]),
        old
    );
    let attribute = Attribute {
        name: Some("scales".to_owned()),
        kind: Some(attribute_kind::FLOATS),
        floats: vec![1.0, 1.0, 2.0, 2.0],
        ..Attribute::default()
    };
    assert_eq!(
        resized(node("Upsample", &["x"], "y"), &[attribute], Vec::new()),
        old
    );
    for (found, expected) in [
        (
            by_scales(&[text("mode", "cubic")], &[1.0, 1.0, 2.0, 2.0]),
            "`mode` = cubic",
        ),
        (
            by_scales(&[], &[1.0, 1.0, 1.3, 2.0]),
            "by [1.0, 1.0, 1.3, 2.0]",
        ),
        (
            by_scales(&[], &[1.0, 2.0, 2.0, 2.0]),
            "by [1.0, 2.0, 2.0, 2.0]",
        ),
        (
            by_scales(&[], &[1.0, 1.0, f32::NAN, 2.0]),
            "by [1.0, 1.0, NaN, 2.0]",
        ),
        (by_sizes(&[], &[2, 6, 0, 3]), "to [2, 6, 0, 3]"),
        (by_sizes(&[], &[2, 5, 4, 3]), "to [2, 5, 4, 3]"),
        (by_sizes(&[], &[2, 6, 1 << 31, 3]), "at most 268435456"),
        (
            by_sizes(&[int("antialias", 1)], &[2, 6, 4, 3]),
            "`antialias` = 1",
        ),
        (
            by_sizes(
                &[text("coordinate_transformation_mode", "tf_crop_and_resize")],
                &[2, 6, 4, 3],
            ),
            "tf_crop_and_resize",
        ),
        (
            resized(node("Resize", &["x", "", "x"], "y"), &[], Vec::new()),
            "its size is computed",
        ),
        (
            resized(node("Resize", &["x", "", ""], "y"), &[], Vec::new()),
            "neither scales nor sizes",
        ),
    ] {
        let error = found.unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// As in ConvNeXt; the images have as many rows and columns as channels, so that sizes do not tell the orders of axes apart.
#[test]
fn islands_with_the_channels_last_are_recognised() {
    let to_last = || {
        with(
            node("Transpose", &["x"], "t"),
            &[ints("perm", &[0, 2, 3, 1])],
        )
    };
    let from_last = |input: &str| {
        with(
            node("Transpose", &[input], "y"),
            &[ints("perm", &[0, 3, 1, 2])],
        )
    };
    let import = import_square;
    let constants = || {
        vec![
            tensor("g", &[7]),
            tensor("s", &[7]),
            tensor("m1", &[7, 28]),
            tensor("b1", &[28]),
            tensor("m2", &[28, 7]),
            tensor("b2", &[7]),
        ]
    };
    let nodes = vec![
        to_last(),
        node("LayerNormalization", &["t", "g", "s"], "n"),
        node("MatMul", &["n", "m1"], "c"),
        node("Add", &["b1", "c"], "d"),
        node("Gelu", &["d"], "e"),
        node("MatMul", &["e", "m2"], "f"),
        node("Add", &["f", "b2"], "h"),
        node("Mul", &["h", "g"], "i"),
        from_last("i"),
    ];
    let imported = import(nodes, constants()).unwrap();
    assert_eq!(
        ops(&imported),
        ["ChannelNorm", "conv gelu", "conv none", "scale_shift none"]
    );
    // The weight of a convolution is the transposed matrix.
    let (matrix, weight) = (tensor("m1", &[7, 28]), &imported.tensors["c.weight"]);
    assert_eq!(weight.dims, [28, 7, 1, 1]);
    assert_eq!(weight.values[9 * 7 + 2], matrix.float_data[2 * 28 + 9]);
    assert_eq!(
        imported.tensors["c.bias"].values,
        tensor("b1", &[28]).float_data
    );

    for (nodes, expected) in [
        (vec![to_last(), conv("t", "y")], "was reshaped"),
        (
            vec![to_last(), node("GlobalMaxPool", &["t"], "y")],
            "was reshaped",
        ),
        (
            vec![to_last(), node("Add", &["t", "x"], "y")],
            "and one without",
        ),
        (
            vec![to_last(), node("Flatten", &["t"], "y")],
            "the order of rows, columns and channels",
        ),
        (
            vec![node("LayerNormalization", &["x", "g", "s"], "y")],
            "a layer norm of",
        ),
        (
            vec![
                to_last(),
                with(
                    node("LayerNormalization", &["t", "g"], "y"),
                    &[int("axis", 1)],
                ),
            ],
            "from axis 1 on",
        ),
        (
            vec![to_last(), node("MatMul", &["t", "m2"], "y")],
            "for 28 channels",
        ),
        (
            vec![
                to_last(),
                with(
                    node("Transpose", &["t"], "y"),
                    &[ints("perm", &[0, 2, 3, 1])],
                ),
            ],
            "was reshaped",
        ),
    ] {
        let mut all = constants();
        all.push(tensor("w", &[6, 7, 3, 3]));
        let error = import(nodes.clone(), all).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// An image of 7x7 pixels with seven channels, so that sizes do not tell the orders of axes apart.
fn import_square(nodes: Vec<Node>, constants: Vec<Tensor>) -> Result<Imported, String> {
    let mut model = model(nodes, constants);
    model.graph.as_mut().unwrap().input = vec![value("x", &[2, 7, 7, 7])];
    import_in(&model, None)
}

fn mean(input: &str, output: &str) -> Node {
    node("ReduceMean", &[input, "axes"], output)
}

/// The numbers of spelled layer norms, with scale and shift of these sizes, along an axis.
fn norm_constants(axis: i64, sizes: &[i64]) -> Vec<Tensor> {
    vec![
        list("axes", &[axis]),
        scalar("eps", 1e-6),
        scalar("one", 1.0),
        scalar("two", 2.0),
        tensor("g", sizes),
        Tensor {
            float_data: vec![0.5, -1.5, 0.0, 3.0, 1.0, 0.25, -0.125],
            ..tensor("s", sizes)
        },
    ]
}

/// The nodes from `x` to its difference to the mean, `c`, and its standard deviation, `d`.
fn deviation(x: &str) -> Vec<Node> {
    vec![
        mean(x, "m"),
        node("Sub", &[x, "m"], "c"),
        node("Pow", &["c", "two"], "q"),
        mean("q", "v"),
        node("Add", &["v", "eps"], "e"),
        node("Sqrt", &["e"], "d"),
    ]
}

fn transposed(input: &str, output: &str, order: &[i64]) -> Node {
    with(node("Transpose", &[input], output), &[ints("perm", order)])
}

#[track_caller]
fn assert_layer_norm(imported: &Imported, name: &str) {
    let op = imported.network.ops.iter().find(|op| op.name == name);
    let OpKind::ChannelNorm(norm) = &op.unwrap().kind else {
        panic!("{:?}", op.unwrap().kind);
    };
    let eps = ActivationParameter::new(1e-6);
    assert_eq!(*norm, ChannelNorm::LayerNorm { eps });
    let constants = norm_constants(1, &[7]);
    for (tensor, expected) in [("weight", &constants[4]), ("bias", &constants[5])] {
        let found = &imported.tensors[&format!("{name}.{tensor}")];
        assert_eq!(found.dims, [7]);
        for (found, expected) in found.values.iter().zip(&expected.float_data) {
            assert!(
                (found - expected).abs() < 1e-6,
                "{tensor}: {found}, not {expected}"
            );
        }
    }
}

#[test]
fn spelled_layer_norms_are_recognised() {
    // PyTorch's, over the channels as the last axis; below operator set 18 axes are an attribute.
    let mut nodes = vec![transposed("x", "t", &[0, 2, 3, 1])];
    nodes.extend(deviation("t"));
    nodes.extend([
        node("Div", &["c", "d"], "n"),
        node("Mul", &["n", "g"], "w"),
        node("Add", &["w", "s"], "b"),
        transposed("b", "y", &[0, 3, 1, 2]),
    ]);
    let imported = import_square(nodes.clone(), norm_constants(-1, &[7])).unwrap();
    assert_eq!(ops(&imported), ["ChannelNorm"]);
    assert_layer_norm(&imported, "b");
    for node in &mut nodes {
        if node.op_type.as_deref() == Some("ReduceMean") {
            node.input.pop();
            node.attribute = vec![ints("axes", &[3])];
        }
    }
    let mut old = model(nodes, norm_constants(-1, &[7]));
    old.opset_import[0].version = Some(13);
    old.graph.as_mut().unwrap().input = vec![value("x", &[2, 7, 7, 7])];
    assert_layer_norm(&import_in(&old, None).unwrap(), "b");

    // Over the second axis, with the scale before the difference; an activation and a residual behind it.
    let mut nodes = deviation("x");
    nodes.extend([
        node("Mul", &["c", "g"], "w"),
        node("Div", &["w", "d"], "n"),
        node("Add", &["s", "n"], "b"),
        node("Relu", &["b"], "r"),
        node("Add", &["r", "x"], "y"),
    ]);
    let imported = import_square(nodes, norm_constants(1, &[7, 1, 1])).unwrap();
    assert_eq!(ops(&imported), ["ChannelNorm", "relu", "Add none"]);
    assert_layer_norm(&imported, "b");

    // TensorFlow's: the mean of squares, and x in one product. Its converter adds the axis of the channels again.
    let nodes = vec![
        node("Relu", &["x"], "r"),
        with(mean("r", "l"), &[int("keepdims", 0)]),
        with(node("Cast", &["l"], "u"), &[int("to", 1)]),
        node("Reshape", &["u", "pixels"], "m"),
        node("Mul", &["r", "r"], "q"),
        mean("q", "p"),
        node("Mul", &["m", "m"], "k"),
        node("Sub", &["p", "k"], "v"),
        node("Add", &["v", "eps"], "e"),
        node("Sqrt", &["e"], "d"),
        node("Reciprocal", &["d"], "i"),
        node("Mul", &["i", "g"], "w"),
        node("Mul", &["r", "w"], "n"),
        node("Mul", &["m", "w"], "o"),
        node("Sub", &["s", "o"], "z"),
        node("Add", &["n", "z"], "y"),
    ];
    let mut constants = norm_constants(1, &[7, 1, 1]);
    constants.push(list("pixels", &[2, 1, 7, 7]));
    let imported = import_square(nodes, constants).unwrap();
    assert_eq!(ops(&imported), ["relu", "ChannelNorm"]);
    assert_layer_norm(&imported, "y");

    // A factor for each channel of a sum is no part of the layer norm in it, and neither is a second one.
    let mut nodes = deviation("x");
    nodes.extend([
        node("Div", &["c", "d"], "n"),
        node("Mul", &["n", "g"], "w"),
        node("Add", &["w", "s"], "b"),
        node("Add", &["b", "x"], "a"),
        node("Div", &["a", "h"], "y"),
    ]);
    let mut constants = norm_constants(1, &[7, 1, 1]);
    constants.push(Tensor {
        float_data: vec![2.0, 4.0, 1.0, 8.0, -2.0, 0.5, -4.0],
        ..tensor("h", &[7, 1, 1])
    });
    let imported = import_square(nodes, constants).unwrap();
    assert_eq!(
        ops(&imported),
        ["ChannelNorm", "Add none", "scale_shift none"]
    );
    assert_layer_norm(&imported, "b");
    assert_eq!(imported.tensors["y.scale"].values[3], 0.125);
}

/// The layer norm of one pixel gates an image; the constant for each channel behind it must not take the image's sizes from it.
#[test]
fn constants_after_a_gate_keep_the_sizes_of_the_image() {
    let mut nodes = vec![node("GlobalAveragePool", &["x"], "p")];
    nodes.extend(deviation("p"));
    nodes.extend([
        node("Div", &["c", "d"], "n"),
        node("Mul", &["x", "n"], "f"),
        node("Mul", &["f", "g"], "z"),
        node("Conv", &["z", "w"], "y"),
    ]);
    let mut constants = norm_constants(1, &[7, 1, 1]);
    constants.push(tensor("w", &[5, 7, 1, 1]));
    let imported = import_square(nodes, constants).unwrap();
    assert_eq!(
        ops(&imported),
        [
            "GlobalPool",
            "ChannelNorm",
            "Gate none",
            "scale_shift none",
            "conv none"
        ]
    );
}

#[test]
fn means_over_the_channels_are_refused_elsewhere() {
    let kept = |keeps: i64| with(mean("x", "y"), &[int("keepdims", keeps)]);
    let only = "only as a part of a layer norm";
    // Each standard deviation with a number beside it.
    let mut wrong_eps = deviation("x");
    wrong_eps.extend([
        node("Add", &["d", "one"], "f"),
        node("Div", &["c", "f"], "y"),
    ]);
    // Functions that equal a layer norm for small values, or in their first channel.
    let bounded = |op: &str, bound: &str| {
        let mut nodes = deviation("x");
        nodes.extend([node("Div", &["c", "d"], "n"), node(op, &["n", bound], "y")]);
        nodes
    };
    let weighted = vec![
        mean("x", "m"),
        node("Sub", &["x", "m"], "c"),
        node("Mul", &["c", "h"], "w"),
        node("Mul", &["w", "c"], "q"),
        mean("q", "v"),
        node("Add", &["v", "eps"], "e"),
        node("Sqrt", &["e"], "d"),
        node("Div", &["c", "d"], "y"),
    ];
    let twice = vec![
        mean("x", "m"),
        node("Sub", &["x", "m"], "c"),
        node("Mul", &["c", "c"], "q"),
        mean("q", "v"),
        node("Sqrt", &["v"], "d"),
        node("Div", &["c", "d"], "n"),
        node("Mul", &["n", "n"], "p"),
        mean("p", "u"),
        node("Add", &["u", "eps"], "e"),
        node("Sqrt", &["e"], "f"),
        node("Div", &["c", "f"], "y"),
    ];
    let clipped = vec![
        mean("x", "m"),
        node("Sub", &["x", "m"], "c"),
        node("Mul", &["c", "c"], "q"),
        node("Clip", &["q", "", "large"], "p"),
        mean("p", "v"),
        node("Add", &["v", "eps"], "e"),
        node("Sqrt", &["e"], "d"),
        node("Div", &["c", "d"], "y"),
    ];
    // The mean of one value and the variance of another.
    let mut of_two = vec![node("Relu", &["x"], "r"), mean("r", "k")];
    of_two.extend(deviation("x"));
    of_two.extend([node("Sub", &["x", "k"], "l"), node("Div", &["l", "d"], "y")]);
    let mut root = deviation("x");
    root.push(node("Relu", &["d"], "y"));
    for (nodes, expected) in [
        (vec![kept(1)], only),
        (vec![kept(0)], only),
        (weighted, only),
        (twice, only),
        (clipped, only),
        // The mean of a column's pixels beside each of its rows.
        (
            vec![
                with(mean("x", "m"), &[int("keepdims", 0)]),
                node("Sub", &["x", "m"], "c"),
                node("Mul", &["c", "c"], "q"),
                mean("q", "v"),
                node("Sqrt", &["v"], "d"),
                node("Div", &["c", "d"], "y"),
            ],
            only,
        ),
        (vec![mean("x", "m"), node("Sub", &["x", "m"], "y")], only),
        (wrong_eps, only),
        (of_two, only),
        (root, only),
        (vec![mean("x", "m"), node("Mul", &["m", "g"], "y")], only),
    ] {
        let mut constants = norm_constants(1, &[7, 1, 1]);
        constants.extend([
            scalar("large", 20.0),
            Tensor {
                float_data: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
                ..tensor("h", &[7, 1, 1])
            },
        ]);
        let error = import_square(nodes, constants).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // Bounds are kept.
    for (op, bound) in [("Max", -20.0), ("Min", 20.0)] {
        let mut constants = norm_constants(1, &[7, 1, 1]);
        constants.push(scalar("bound", bound));
        let imported = import_square(bounded(op, "bound"), constants).unwrap();
        assert_eq!(ops(&imported), ["ChannelNorm", "clip"]);
    }
    // A scale along the rows.
    let mut nodes = deviation("x");
    nodes.extend([node("Div", &["c", "d"], "n"), node("Mul", &["n", "g"], "y")]);
    let error = import_square(nodes, norm_constants(1, &[7, 1])).unwrap_err();
    assert!(error.contains("a constant of this shape"), "{error}");
}

#[test]
fn all_elements_in_order_are_a_change_of_the_shape() {
    let gathered = |places: &[i64]| {
        let indices = Tensor {
            dims: vec![1, places.len() as i64, 1, 1],
            ..list("i", places)
        };
        let nodes = vec![
            node("GlobalAveragePool", &["x"], "p"),
            node("Reshape", &["p", "all"], "r"),
            node("Gather", &["r", "i"], "g"),
            node("Relu", &["g"], "y"),
        ];
        let mut model = model(nodes, vec![indices, list("all", &[-1])]);
        model.graph.as_mut().unwrap().input = vec![value("x", &[1, 6, 9, 7])];
        import_in(&model, None).map(|imported| ops(&imported))
    };
    let mut places: Vec<i64> = (0..6).collect();
    assert_eq!(
        gathered(&places),
        Ok(vec!["GlobalPool".to_owned(), "relu".to_owned()])
    );
    assert!(gathered(&places[..4]).is_err());
    places.swap(3, 4);
    let error = gathered(&places).unwrap_err();
    assert!(error.contains("a selection of elements of [6]"), "{error}");
}

#[test]
fn softmax_is_over_channels() {
    let softmax = |attributes: &[Attribute], opset: i64| {
        let nodes = vec![with(node("Softmax", &["x"], "y"), attributes)];
        let mut model = model(nodes, Vec::new());
        model.opset_import[0].version = Some(opset);
        import_in(&model, None).map(|imported| ops(&imported))
    };
    assert_eq!(
        softmax(&[int("axis", 1)], 13),
        Ok(vec!["ChannelNorm".to_owned()])
    );
    assert_eq!(
        softmax(&[int("axis", -3)], 24),
        Ok(vec!["ChannelNorm".to_owned()])
    );
    for (attributes, opset) in [
        (&[][..], 13),
        (&[int("axis", 1)], 12),
        (&[int("axis", 2)], 13),
    ] {
        let error = softmax(attributes, opset).unwrap_err();
        assert!(error.contains("a softmax of [2, 6, 9, 7]"), "{error}");
    }
    // Features have one meaning in all operator sets.
    let nodes = || {
        vec![
            node("GlobalAveragePool", &["x"], "g"),
            node("Flatten", &["g"], "f"),
            node("Softmax", &["f"], "y"),
        ]
    };
    for opset in [7, 13] {
        let mut model = model(nodes(), Vec::new());
        model.opset_import[0].version = Some(opset);
        let found = ops(&import_in(&model, None).unwrap());
        assert_eq!(found, ["GlobalPool", "ChannelNorm"], "{opset}");
    }
}

#[test]
fn channel_shuffles_are_recognised() {
    let shuffle = |groups: &[i64], order: &[i64], channels: &[i64]| {
        let nodes = vec![
            node("Reshape", &["x", "g"], "a"),
            with(node("Transpose", &["a"], "b"), &[ints("perm", order)]),
            node("Reshape", &["b", "c"], "y"),
        ];
        import(nodes, vec![list("g", groups), list("c", channels)])
            .map(|imported| channel_ops(&imported))
    };
    let channels = [2, 6, 9, 7];
    let shuffled = shuffle(&[2, 3, 2, 9, 7], &[0, 2, 1, 3, 4], &channels);
    assert_eq!(shuffled, Ok(vec![(3, 0)]));
    assert_eq!(
        shuffle(&[2, 2, -1, 9, 7], &[0, 2, 1, 3, 4], &[0, 6, 9, 7]),
        Ok(vec![(2, 0)])
    );
    for (groups, order, channels, expected) in [
        (
            &[2, 3, 2, 9, 7][..],
            [0, 2, 1, 4, 3],
            [2, 6, 9, 7],
            "a transposition",
        ),
        (
            &[2, 3, 2, 9, 7],
            [0, 2, 1, 3, 4],
            [2, 9, 6, 7],
            "from groups of channels",
        ),
        (
            &[2, 6, 3, 3, 7],
            [0, 2, 1, 3, 4],
            [2, 6, 9, 7],
            "a change of the shape",
        ),
    ] {
        let error = shuffle(groups, &order, &channels).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // Groups of channels are no image.
    let nodes = vec![node("Reshape", &["x", "g"], "a"), node("Relu", &["a"], "y")];
    let error = import(nodes, vec![list("g", &[2, 3, 2, 9, 7])]).unwrap_err();
    assert!(error.contains("groups of channels"), "{error}");
}

/// A node with outputs beside its first.
fn outputs(mut node: Node, others: &[&str]) -> Node {
    node.output
        .extend(others.iter().map(|&name| name.to_owned()));
    node
}

fn flag(name: &str, value: i32) -> Tensor {
    Tensor {
        name: Some(name.to_owned()),
        data_type: Some(data_type::BOOL),
        int32_data: vec![value],
        ..Tensor::default()
    }
}

#[test]
fn dropout_changes_nothing_unless_it_is_in_training() {
    let dropout = |inputs: &[&str]| {
        vec![
            node("Relu", &["x"], "a"),
            outputs(node("Dropout", inputs, "b"), &["mask"]),
            node("Tanh", &["b"], "y"),
        ]
    };
    let constants = || vec![scalar("ratio", 0.5), flag("off", 0), flag("on", 1)];
    for inputs in [
        &["a"][..],
        &["a", "ratio"],
        &["a", "ratio", "off"],
        &["a", "", "off"],
    ] {
        let imported = import(dropout(inputs), constants()).unwrap();
        assert_eq!(ops(&imported), ["relu", "tanh"], "{inputs:?}");
    }
    for inputs in [&["a", "ratio", "on"], &["a", "ratio", "a"]] {
        let error = import(dropout(inputs), constants()).unwrap_err();
        assert!(
            error.contains("node `b` (Dropout): Dropout in training"),
            "{error}"
        );
    }
    let error = import(dropout(&[""]), Vec::new()).unwrap_err();
    assert!(
        error.contains("node `b` (Dropout): it has no input"),
        "{error}"
    );
    // The mask is not computed.
    let mut nodes = dropout(&["a"]);
    nodes[2] = node("Max", &["b", "mask"], "y");
    let error = import(nodes, Vec::new()).unwrap_err();
    assert!(
        error.contains("only its first output is supported"),
        "{error}"
    );
    let mut as_output = model(dropout(&["a"]), Vec::new());
    as_output.graph.as_mut().unwrap().output = vec![value("mask", &[])];
    let error = import_in(&as_output, None).unwrap_err();
    assert!(
        error.contains("only its first output is supported"),
        "{error}"
    );
}

#[test]
fn missing_and_computed_inputs_of_elementwise_operations_are_errors() {
    for (nodes, expected) in [
        (vec![node("Max", &["x", ""], "y")], "an input is missing"),
        (vec![node("Add", &["x"], "y")], "an input is missing"),
        (vec![node("Relu", &[""], "y")], "an input is missing"),
        (vec![node("Max", &[], "y")], "an input is missing"),
        (
            vec![node("Clip", &["x", "", "x"], "y")],
            "a parameter of it is computed",
        ),
    ] {
        let error = import(nodes.clone(), Vec::new()).unwrap_err();
        assert!(error.contains(expected), "{nodes:?}: {error}");
    }
}

/// After an error nobody has read the rest of the attributes: that is not another error.
#[test]
fn a_node_with_an_error_has_no_further_ones_about_its_attributes() {
    let pool = with(
        node("AveragePool", &["x"], "y"),
        &[int("ceil_mode", 1), int("fancy", 3)],
    );
    let error = import(vec![pool], Vec::new()).unwrap_err();
    assert!(error.contains("it has no `kernel_shape`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn the_memory_of_a_file_is_bounded() {
    // Empty nodes of two bytes each, which become structures of some hundred.
    let mut nodes = Vec::new();
    for _ in 0..400_000 {
        nodes.extend([0x0a, 0]);
    }
    let length = (0..3).map(|index| (nodes.len() >> (7 * index)) as u8 & 0x7f | 0x80);
    let mut bytes = vec![0x3a];
    bytes.extend(length);
    *bytes.last_mut().unwrap() &= 0x7f;
    bytes.extend(nodes);
    let error = parse(bytes.into(), "m", "m", None, &Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("so many small parts"), "{error}");

    let large = |name: &str| Tensor {
        raw_data: Some(Vec::new().into()),
        ..tensor(name, &[])
    };
    let with_dims = |tensor: Tensor, dims: &[i64]| Tensor {
        dims: dims.to_vec(),
        ..tensor
    };
    let one = vec![with_dims(large("a"), &[1 << 15, (1 << 13) + 1])];
    let error = import(vec![node("Relu", &["x"], "y")], one).unwrap_err();
    assert!(error.contains("larger than 1 GiB"), "{error}");
    let names = ["a", "b", "c", "d", "e"];
    let five = names.map(|name| with_dims(large(name), &[1 << 14, 1 << 14]));
    let error = import(vec![node("Relu", &["x"], "y")], five.to_vec()).unwrap_err();
    assert!(
        error.contains("have 5120 MiB, at most 4 GiB are read"),
        "{error}"
    );
}

#[test]
fn bounds_far_from_zero_are_kept() {
    let clipped = |min: f32, max: f32| {
        let nodes = vec![conv("x", "a"), node("Clip", &["a", "min", "max"], "y")];
        let constants = vec![filters(), scalar("min", min), scalar("max", max)];
        ops(&import(nodes, constants).unwrap())
    };
    assert_eq!(clipped(0.0, 255.0), ["conv clip"]);
    assert_eq!(clipped(-128.0, 127.0), ["conv clip"]);
    assert_eq!(clipped(0.0, f32::INFINITY), ["conv relu"]);
}

#[test]
fn biases_of_products_are_for_features() {
    let product = |bias: &[i64]| {
        let nodes = vec![
            node("GlobalAveragePool", &["x"], "p"),
            node("Flatten", &["p"], "f"),
            node("Gemm", &["f", "m", "b"], "y"),
        ];
        import(nodes, vec![tensor("m", &[6, 2]), tensor("b", bias)])
            .map(|imported| imported.tensors["y.bias"].values.clone())
    };
    assert_eq!(product(&[2]), Ok(vec![-0.25, -0.125]));
    assert_eq!(product(&[1, 2]), Ok(vec![-0.25, -0.125]));
    assert_eq!(product(&[1, 1]), Ok(vec![-0.25, -0.25]));
    // One number for each of the two images.
    assert!(
        product(&[2, 1])
            .unwrap_err()
            .contains("a bias of [2, 1] for 2 features")
    );
}

#[test]
fn small_files_of_huge_tensors_end_quickly() {
    let empty = |name: &str, dims: &[i64]| Tensor {
        dims: dims.to_vec(),
        float_data: Vec::new(),
        ..tensor(name, &[])
    };
    let filled = |sizes: &[i64]| {
        let value = Attribute {
            name: Some("value".to_owned()),
            kind: Some(attribute_kind::TENSOR),
            t: Some(list("v", &[1])),
            ..Attribute::default()
        };
        (
            with(node("ConstantOfShape", &["n"], "ones"), &[value]),
            list("n", sizes),
        )
    };
    let flat = || node("Flatten", &["x"], "f");
    for (nodes, constants, expected) in [
        (
            vec![
                flat(),
                with(node("Gemm", &["f", "w", "b"], "y"), &[int("transB", 1)]),
            ],
            vec![empty("w", &[1 << 40, 0]), tensor("b", &[1])],
            "its weight is empty",
        ),
        (
            vec![node("Transpose", &["w"], "t"), node("Relu", &["x"], "y")],
            vec![empty("w", &[0, 1 << 32, 1 << 32])],
            "too many elements",
        ),
        (
            vec![filled(&[1 << 20]).0, node("Unsqueeze", &["x", "ones"], "y")],
            vec![filled(&[1 << 20]).1],
            "a tensor of 1048580 axes",
        ),
        (
            vec![filled(&[1 << 20]).0, node("Reshape", &["x", "ones"], "y")],
            vec![filled(&[1 << 20]).1],
            "a tensor of 1048576 axes",
        ),
    ] {
        let error = import(nodes, constants).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // A name whose prefixes would be looked at one by one.
    let mut long = node("Relu", &["x"], "y");
    long.name = Some(format!("/{}/Relu", ".".repeat(300_000)));
    assert!(import(vec![long], Vec::new()).is_ok());
}

#[test]
fn groups_do_not_hide_messages() {
    let mut bytes = vec![0x13, 0x14];
    bytes.extend(model(vec![node("Relu", &["x"], "y")], Vec::new()).encode_to_vec());
    let error = parse(bytes.into(), "m", "m", None, &Overrides::default()).unwrap_err();
    assert!(
        error.to_string().contains("fields are malformed"),
        "{error}"
    );
}

#[test]
fn batch_norms_in_training_are_refused() {
    let constants = || -> Vec<Tensor> {
        let names = ["g", "b", "m", "v"].map(|name| tensor(name, &[6]));
        names.into_iter().collect()
    };
    let norm = |others: &[&str], opset: i64, attributes: &[Attribute]| {
        let norm = outputs(
            node("BatchNormalization", &["x", "g", "b", "m", "v"], "y"),
            others,
        );
        let mut model = model(vec![with(norm, attributes)], constants());
        model.opset_import[0].version = Some(opset);
        import_in(&model, None).map(|imported| ops(&imported))
    };
    let right = Ok(vec!["scale_shift none".to_owned()]);
    assert_eq!(norm(&[], 7, &[]), right);
    assert_eq!(norm(&[], 24, &[int("training_mode", 0)]), right);
    assert_eq!(norm(&[], 6, &[int("is_test", 1)]), right);
    for (others, opset, attributes) in [
        (&["c", "d", "e", "f"][..], 9, vec![]),
        (&[], 6, vec![]),
        (&["c", "d"], 14, vec![int("training_mode", 1)]),
    ] {
        let error = norm(others, opset, &attributes).unwrap_err();
        assert!(error.contains("training"), "{error}");
    }
}

#[test]
fn pools_have_all_attributes() {
    let pool = |op: &str, attributes: &[Attribute]| {
        let nodes = vec![with(node(op, &["x"], "y"), attributes)];
        import(nodes, Vec::new()).map(|imported| match imported.network.ops[1].kind {
            OpKind::Pool(pool) => (pool.padding, pool.dilation, pool.out),
            ref other => panic!("{other:?}"),
        })
    };
    // As much padding as leaves a pixel of 9x7 in each window, and steps between the elements of a mean.
    let attributes = [
        ints("kernel_shape", &[2, 3]),
        ints("pads", &[2, 5, 0, 1]),
        ints("dilations", &[2, 3]),
        int("count_include_pad", 1),
    ];
    let padding = Padding {
        top: 2,
        left: 5,
        bottom: 0,
        right: 1,
    };
    let expected = (padding, [2, 3], [9 + 2 - 2, 7 + 6 - 6]);
    assert_eq!(pool("AveragePool", &attributes).unwrap(), expected);
    assert_eq!(pool("MaxPool", &attributes[..3]).unwrap(), expected);
    // A window that is larger than the image.
    let large = |ceil_mode| {
        let attributes = [
            ints("kernel_shape", &[11, 7]),
            ints("strides", &[3, 1]),
            int("ceil_mode", ceil_mode),
        ];
        pool("AveragePool", &attributes).map(|(_, _, out)| out)
    };
    assert_eq!(large(1), Ok([1, 1]));
    assert!(large(0).unwrap_err().contains("the window spans 11 pixels"));
}

#[test]
fn last_windows_in_the_padding_are_left_out() {
    let pool = |op: &str, attributes: &[Attribute]| {
        let nodes = vec![with(node(op, &["x"], "y"), attributes)];
        let imported = import(nodes, Vec::new()).unwrap();
        let y = imported.network.ops[1].y;
        [y.h, y.w]
    };
    // 9x7: seven columns with one on each side are five windows of two, the last of which has the padding alone.
    let attributes = [
        ints("kernel_shape", &[2, 2]),
        ints("strides", &[2, 2]),
        ints("pads", &[1, 1, 1, 1]),
        int("ceil_mode", 1),
    ];
    assert_eq!(pool("MaxPool", &attributes), [5, 4]);
    assert_eq!(pool("AveragePool", &attributes), [5, 4]);
    let nodes = vec![
        node("Relu", &["x"], "r"),
        node("Pad", &["r", "p"], "a"),
        with(
            node("MaxPool", &["a"], "y"),
            &[ints("kernel_shape", &[2, 2]), ints("dilations", &[3, 3])],
        ),
    ];
    let imported = import(nodes, vec![list("p", &[0, 0, 1, 1, 0, 0, 1, 1])]).unwrap();
    assert_eq!(ops(&imported), ["relu", "Pad", "Pool"]);
    // Of an average of two by two, the last windows of the padded image begin in the padding.
    let nodes = vec![
        with(
            node("Pad", &["x"], "a"),
            &[ints("pads", &[0, 0, 0, 0, 0, 0, 1, 1])],
        ),
        with(
            node("AveragePool", &["a"], "y"),
            &[
                ints("kernel_shape", &[2, 2]),
                ints("strides", &[3, 2]),
                int("ceil_mode", 1),
            ],
        ),
    ];
    let imported = import(nodes, Vec::new()).unwrap();
    assert_eq!(ops(&imported), ["Pad", "Pool"]);
    let y = imported.network.ops[2].y;
    assert_eq!([y.h, y.w], [4, 4]);
}

#[test]
fn images_of_one_row_are_flattened() {
    let nodes = vec![
        with(
            node("AveragePool", &["x"], "p"),
            &[ints("kernel_shape", &[9, 1])],
        ),
        node("Flatten", &["p"], "f"),
        node("MatMul", &["f", "m"], "y"),
    ];
    let mut model = model(nodes, vec![tensor("m", &[7, 3])]);
    model.graph.as_mut().unwrap().input = vec![value("x", &[2, 1, 9, 7])];
    let found = ops(&import_in(&model, None).unwrap());
    assert_eq!(found, ["Pool", "Flatten", "linear none"]);
}

#[test]
fn inputs_and_names_are_checked() {
    let relu = || vec![node("Relu", &["x"], "y")];
    let with_input = |element: i32, batch: i64| {
        let mut model = model(relu(), Vec::new());
        let mut input = value("x", &[batch, 6, 9, 7]);
        input
            .kind
            .as_mut()
            .unwrap()
            .tensor
            .as_mut()
            .unwrap()
            .element = Some(element);
        model.graph.as_mut().unwrap().input = vec![input];
        import_in(&model, None).map(|imported| imported.network.input().batch)
    };
    assert_eq!(with_input(data_type::FLOAT16, 3), Ok(3));
    assert!(
        with_input(data_type::INT32, 3)
            .unwrap_err()
            .contains("elements of type 6")
    );
    assert!(
        with_input(data_type::FLOAT, -1)
            .unwrap_err()
            .contains("an axis of size -1")
    );
    let error = import(relu(), vec![tensor("", &[6])]).unwrap_err();
    assert!(error.contains("an initialiser has no name"), "{error}");
    let mut untyped = int("axis", 1);
    untyped.kind = None;
    let concat = |attributes: &[Attribute]| {
        import(
            vec![with(node("Concat", &["x", "x"], "y"), attributes)],
            Vec::new(),
        )
        .map(|imported| ops(&imported))
    };
    assert!(concat(&[untyped]).unwrap_err().contains("another type"));
    assert!(
        concat(&[int("axis", 1), int("axis", 0)])
            .unwrap_err()
            .contains("`axis` twice")
    );
}

/// Chains that would overflow the stack or double the work with each node.
#[test]
fn long_chains_end() {
    let chain = |count: usize, make: &dyn Fn(&str, &str) -> Node| {
        let name = |index: usize| match index {
            0 => "x".to_owned(),
            _ if index == count => "y".to_owned(),
            _ => format!("v{index}"),
        };
        (0..count)
            .map(|index| make(&name(index), &name(index + 1)))
            .collect::<Vec<_>>()
    };
    let doubled = chain(60, &|input, output| node("Add", &[input, input], output));
    assert!(import(doubled, Vec::new()).is_ok());
    let functions = chain(2000, &|input, output| node("Tanh", &[input], output));
    assert!(import(functions, Vec::new()).is_ok());
    let aliases = chain(20_000, &|input, output| node("Identity", &[input], output));
    assert_eq!(import(aliases, Vec::new()).unwrap().network.ops.len(), 2);
}

#[cfg(unix)]
#[test]
fn external_data_stay_in_the_folder() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    let bytes: Vec<u8> = filters()
        .float_data
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let mut file = vec![7; 16];
    file.extend(&bytes);
    std::fs::write(folder.join("data.bin"), &file).unwrap();
    std::fs::write(outer.path().join("secret.bin"), &file).unwrap();
    std::os::unix::fs::symlink("../secret.bin", folder.join("link.bin")).unwrap();
    std::fs::write(folder.join("linked.bin"), &file).unwrap();
    std::fs::hard_link(folder.join("linked.bin"), folder.join("second.bin")).unwrap();
    let import = |entries: &[(&str, &str)]| {
        let entry = |&(key, value): &(&str, &str)| Entry {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let external = Tensor {
            float_data: Vec::new(),
            data_location: Some(1),
            external_data: entries.iter().map(entry).collect(),
            ..filters()
        };
        import_in(&model(vec![conv("x", "y")], vec![external]), Some(&folder))
            .map(|imported| imported.tensors)
    };
    let good = import(&[
        ("location", "data.bin"),
        ("offset", "16"),
        ("length", "1296"),
    ])
    .unwrap();
    let own = import_in(&model(vec![conv("x", "y")], vec![filters()]), None).unwrap();
    assert_eq!(good["y.weight"], own.tensors["y.weight"]);
    let absolute = outer.path().join("secret.bin").display().to_string();
    for (entries, expected) in [
        (
            &[("location", "../secret.bin")][..],
            "outside the model's folder",
        ),
        (&[("location", &absolute[..])], "outside the model's folder"),
        (&[("location", "link.bin")], "symbolic link"),
        (&[("location", "linked.bin")], "hard links"),
        (&[("location", "none.bin")], "cannot be read"),
        (&[("location", ".")], "are not a file"),
        (
            &[("location", "data.bin"), ("offset", "17")],
            "1296 bytes at 17",
        ),
        (
            &[("location", "data.bin"), ("offset", "18446744073709551615")],
            "1296 bytes at 18446744073709551615",
        ),
        (
            &[("location", "data.bin"), ("length", "1")],
            "another length",
        ),
        (
            &[("location", "data.bin"), ("offset", "-1")],
            "the offset of its external data",
        ),
        (&[("offset", "0")], "no location"),
    ] {
        let error = import(entries).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// No file makes the importer panic or hang.
#[test]
fn mutated_files_are_read_or_refused() {
    let nodes = vec![
        conv("x", "a"),
        node("Sigmoid", &["a"], "s"),
        node("Mul", &["a", "s"], "b"),
        with(
            node("MaxPool", &["b"], "p"),
            &[
                ints("kernel_shape", &[3, 2]),
                ints("pads", &[1, 1, 1, 1]),
                int("ceil_mode", 1),
            ],
        ),
        with(node("Concat", &["p", "p"], "c"), &[int("axis", 1)]),
        node("GlobalAveragePool", &["c"], "g"),
        node("Flatten", &["g"], "f"),
        with(node("Gemm", &["f", "m"], "y"), &[int("transB", 1)]),
    ];
    let valid = model(nodes, vec![filters(), tensor("m", &[5, 12])]).encode_to_vec();
    assert!(parse(valid.clone().into(), "m", "m", None, &Overrides::default()).is_ok());
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as usize
    };
    let mut accepted = 0;
    for round in 0..6000 {
        let mut bytes = valid.clone();
        if round % 3 == 0 {
            bytes.truncate(random(bytes.len()));
        }
        for _ in 0..=random(4) {
            if bytes.is_empty() {
                break;
            }
            let at = random(bytes.len());
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes[at] ^= 1 << random(8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random(256) as u8),
            }
        }
        accepted += usize::from(parse(bytes.into(), "m", "m", None, &Overrides::default()).is_ok());
    }
    assert!(accepted > 100, "{accepted} of 6000 files were accepted");
}

#[test]
fn activations_of_later_operator_sets() {
    let gelu = |approximate: &str| {
        let attribute = Attribute {
            name: Some("approximate".to_owned()),
            kind: Some(attribute_kind::STRING),
            s: Some(approximate.to_owned().into()),
            ..Attribute::default()
        };
        import(
            vec![with(node("Gelu", &["x"], "y"), &[attribute])],
            Vec::new(),
        )
    };
    assert_eq!(ops(&gelu("tanh").unwrap()), [Activation::GeluTanh.as_str()]);
    assert_eq!(ops(&gelu("none").unwrap()), [Activation::Gelu.as_str()]);
    assert!(gelu("other").is_err());
}

/// A model of two nodes with several outputs.
fn with_outputs(nodes: Vec<Node>, names: &[&str]) -> Result<Imported, String> {
    let mut model = model(nodes, vec![tensor("w", &[6, 6, 3, 3])]);
    if let Some(graph) = &mut model.graph {
        graph.output = names.iter().map(|name| value(name, &[])).collect();
    }
    import_in(&model, None)
}

#[test]
fn a_graph_may_have_several_outputs() {
    // The activation is not part of the convolution, whose own output is one of the network. They are listed in the order of the ops.
    let nodes = vec![conv("x", "a"), node("Relu", &["a"], "b"), conv("b", "c")];
    let imported = with_outputs(nodes.clone(), &["c", "a", "b"]).unwrap();
    assert_eq!(ops(&imported), ["conv none", "relu", "conv none"]);
    let outputs = imported.network.outputs.iter();
    let outputs: Vec<_> = outputs
        .map(|output| (output.op.0, &output.name[..]))
        .collect();
    assert_eq!(outputs, [(1, "a"), (2, "b"), (3, "c")]);
    // What no output depends on is left out.
    let imported = with_outputs(nodes, &["b", "a"]).unwrap();
    assert_eq!(ops(&imported), ["conv none", "relu"]);
}

/// A model of these nodes with inputs of the given names and sizes.
fn with_inputs(
    nodes: Vec<Node>,
    inputs: &[(&str, &[i64])],
    overrides: &Overrides,
) -> Result<Imported, String> {
    let mut model = model(nodes, vec![tensor("w", &[6, 6, 3, 3])]);
    if let Some(graph) = &mut model.graph {
        graph.input = inputs
            .iter()
            .map(|(name, dims)| value(name, dims))
            .collect();
    }
    let bytes = model.encode_to_vec().into();
    parse(bytes, "m.onnx", "m", None, overrides).map_err(|errors| errors.to_string())
}

#[test]
fn a_graph_may_have_several_inputs() {
    let nodes = || vec![conv("right", "a"), node("Add", &["a", "in put"], "y")];
    let image: &[i64] = &[2, 6, 9, 7];
    let inputs = [("in put", image), ("right", image)];
    let imported = with_inputs(nodes(), &inputs, &Overrides::default()).unwrap();
    let names: Vec<&str> = imported.network.ops.iter().map(|op| &op.name[..]).collect();
    assert_eq!(names, ["in_put", "right", "a", "y"]);
    let inputs_of = |index: usize| imported.network.ops[index].inputs.iter().map(|op| op.0);
    assert_eq!(inputs_of(2).collect::<Vec<_>>(), [1]);
    assert_eq!(inputs_of(3).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(imported.network.input_shapes(), "2x6x9x7, 2x6x9x7");

    // The names are those of the file.
    let shapes: Vec<_> = ["in put=1x6x5x8", "right=1x6x5x8"]
        .map(|text| text.parse().unwrap())
        .into();
    let overrides = Overrides::default().with_input_shapes(&shapes).unwrap();
    let imported = with_inputs(nodes(), &inputs, &overrides).unwrap();
    assert_eq!(imported.network.input_shapes(), "1x6x5x8, 1x6x5x8");
}

/// A model of these nodes with the input `x` of `batch` x 9 x 7 x 6, of which the channels are the last axis.
fn import_channels_last(
    nodes: Vec<Node>,
    constants: Vec<Tensor>,
    overrides: &Overrides,
) -> Result<Imported, String> {
    let mut model = model(nodes, constants);
    model.graph.as_mut().unwrap().input = vec![value("x", &[0, 9, 7, 6])];
    let bytes = model.encode_to_vec().into();
    parse(bytes, "m.onnx", "m", None, overrides).map_err(|errors| errors.to_string())
}

fn transpose(input: &str, order: &[i64], output: &str) -> Node {
    with(node("Transpose", &[input], output), &[ints("perm", order)])
}

#[test]
fn outputs_may_have_their_channels_last() {
    let layouts = |imported: &Imported| -> Vec<_> {
        let outputs = imported.network.outputs.iter();
        outputs
            .map(|output| (output.name.clone(), output.format))
            .collect()
    };
    let nhwc = Format::fp32(Layout::Nhwc);
    // The network of a segmentation, and the same with an activation function after the transposition.
    let segmentation = || {
        vec![
            transpose("x", &[0, 3, 1, 2], "a"),
            conv("a", "b"),
            transpose("b", &[0, 2, 3, 1], "c"),
        ]
    };
    let after = |node: Node| {
        let mut nodes = segmentation();
        nodes.push(node);
        import_channels_last(nodes, vec![filters()], &Overrides::default()).unwrap()
    };
    for imported in [
        after(node("Identity", &["c"], "y")),
        after(node("Sigmoid", &["c"], "y")),
    ] {
        let [op] = &ops(&imported)[..] else {
            panic!("{:?}", ops(&imported));
        };
        assert!(op.starts_with("conv"), "{op}");
        let [(name, format)] = &layouts(&imported)[..] else {
            panic!("{:?}", layouts(&imported));
        };
        assert_eq!((name, *format), (&imported.network.ops[1].name, nhwc));
    }
    // An input in the other order.
    let imported = import_square(vec![transpose("x", &[0, 2, 3, 1], "y")], Vec::new()).unwrap();
    let y = imported.network.ops[1].y;
    assert_eq!(
        (y.to_string(), layouts(&imported)[0].1),
        ("2x7x7x7".to_owned(), nhwc)
    );
    // One output of each order.
    let nodes = vec![
        conv("x", "a"),
        node("Relu", &["a"], "b"),
        transpose("b", &[0, 2, 3, 1], "c"),
    ];
    let mut model = model(nodes, vec![filters()]);
    model.graph.as_mut().unwrap().output = vec![value("c", &[]), value("a", &[])];
    let imported = import_in(&model, None).unwrap();
    let expected = [("a", Format::default()), ("c", nhwc)];
    let expected = expected.map(|(name, format)| (name.to_owned(), format));
    assert_eq!(layouts(&imported), expected);
    // The same tensor in both.
    let nodes = vec![conv("x", "a"), transpose("a", &[0, 2, 3, 1], "c")];
    let imported = with_outputs(nodes, &["a", "c"]).unwrap();
    assert_eq!(layouts(&imported), expected);
}

#[test]
fn inputs_of_keras_have_their_channels_last() {
    let none = Overrides::default();
    // Normalisation and padding come before the transposition. Rows have two pixels of padding above and none below.
    let before = || {
        vec![
            node("Mul", &["x", "half"], "a"),
            node("Sub", &["a", "means"], "b"),
            with(
                node("Pad", &["b"], "c"),
                &[ints("pads", &[0, 2, 0, 0, 0, 0, 1, 0])],
            ),
            transpose("c", &[0, 3, 1, 2], "d"),
        ]
    };
    let constants = || {
        let mut means = tensor("means", &[1, 1, 1, 6]);
        means.float_data[0] = 3.0;
        vec![scalar("half", 0.5), means, filters()]
    };
    let mut nodes = before();
    nodes.push(conv("d", "y"));
    let mut model = model(nodes.clone(), constants());
    model.opset_import[0].version = Some(10);
    model.graph.as_mut().unwrap().input = vec![value("x", &[0, 9, 7, 6])];
    let imported = import_in(&model, None).unwrap();
    assert_eq!(ops(&imported), ["scale_shift none", "conv none"]);
    assert_eq!(padding_of_conv(&imported), [3, 1, 1, 2]);
    let OpKind::Input(encoding) = &imported.network.ops[0].kind else {
        panic!("{:?}", imported.network.ops[0]);
    };
    assert_eq!(encoding.layout, Layout::Nhwc);
    assert_eq!(imported.network.input_shapes(), "1x6x9x7");

    // `--input` names sizes in tdc's order, whatever that of the file.
    let given = Overrides::default().with_input_shapes(&["2x6x5x8".parse().unwrap()]);
    let nodes = vec![transpose("x", &[0, 3, 1, 2], "d"), conv("d", "y")];
    let imported = import_channels_last(nodes, constants(), &given.unwrap()).unwrap();
    assert_eq!(imported.network.input_shapes(), "2x6x5x8");

    // Means, pools, concatenations and zeros in the order of the input.
    let nodes = vec![
        with(node("Concat", &["x", "x"], "a"), &[int("axis", 3)]),
        transpose("x", &[0, 3, 1, 2], "unread"),
        with(
            node("ReduceMean", &["a"], "y"),
            &[ints("axes", &[-3, 2]), int("keepdims", 0)],
        ),
    ];
    let imported = import_channels_last(nodes, Vec::new(), &none).unwrap();
    assert_eq!(ops(&imported), ["Concat", "GlobalPool"]);
    assert_eq!(imported.network.ops[2].y.c, 12);
    for (nodes, expected) in [
        (
            vec![transpose("x", &[0, 3, 1, 2], "d"), conv("x", "y")],
            "was reshaped",
        ),
        (
            vec![
                transpose("x", &[0, 3, 1, 2], "d"),
                with(node("Concat", &["x", "d"], "y"), &[int("axis", 3)]),
            ],
            "with the channels as the last axis and",
        ),
        (
            vec![
                transpose("x", &[0, 3, 1, 2], "d"),
                with(node("ReduceMean", &["x"], "y"), &[ints("axes", &[2, 3])]),
            ],
            "a mean over the axes",
        ),
        (
            vec![
                with(
                    node("Pad", &["x"], "c"),
                    &[ints("pads", &[0, 0, 2, 0, 0, 0, 1, 1])],
                ),
                transpose("c", &[0, 3, 1, 2], "y"),
            ],
            "rows and columns are padded",
        ),
    ] {
        let mut model = self::model(nodes, constants());
        model.opset_import[0].version = Some(10);
        model.graph.as_mut().unwrap().input = vec![value("x", &[1, 9, 7, 6])];
        let error = import_in(&model, None).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn features_in_the_order_of_keras_are_reordered() {
    let flatten = |then: Node| {
        vec![
            transpose("x", &[0, 3, 1, 2], "a"),
            conv("a", "b"),
            transpose("b", &[0, 2, 3, 1], "c"),
            node("Flatten", &["c"], "d"),
            then,
        ]
    };
    let constants = || vec![filters(), tensor("m", &[6 * 9 * 7, 5]), tensor("s", &[1])];
    let import = |then| import_channels_last(flatten(then), constants(), &Overrides::default());
    let imported = import(node("MatMul", &["d", "m"], "y")).unwrap();
    let layer = imported.network.ops.last().unwrap();
    let weight = &imported.tensors[&format!("{}.weight", layer.name)];
    assert_eq!(weight.dims, [5, 6 * 9 * 7]);
    let matrix = tensor("m", &[6 * 9 * 7, 5]).float_data;
    for (n, c, row, column) in [(0, 0, 0, 0), (4, 5, 8, 6), (2, 3, 1, 4), (1, 0, 7, 0)] {
        let own = weight.values[n * 378 + (c * 9 + row) * 7 + column];
        assert_eq!(own, matrix[((row * 7 + column) * 6 + c) * 5 + n]);
    }
    let error = import(node("Relu", &["d"], "y")).unwrap_err();
    assert!(error.contains("rows, columns and channels"), "{error}");
}

#[test]
fn inputs_that_nothing_reads_are_left_out() {
    let image: &[i64] = &[2, 6, 9, 7];
    let inputs = [("l", image), ("unread", &[3][..])];
    let imported = with_inputs(vec![conv("l", "y")], &inputs, &Overrides::default()).unwrap();
    assert_eq!(imported.network.input_shapes(), "2x6x9x7");
}

#[test]
fn inputs_may_have_one_to_three_axes() {
    let shape = |dims: &[i64]| {
        let nodes = vec![node("Relu", &["x"], "y")];
        let found = with_inputs(nodes, &[("x", dims)], &Overrides::default());
        found.map(|imported| imported.network.input_shapes())
    };
    assert_eq!(shape(&[5]).unwrap(), "1x5x1x1");
    assert_eq!(shape(&[0, 5]).unwrap(), "1x5x1x1");
    assert_eq!(shape(&[3, 5, 7]).unwrap(), "3x5x1x7");
    let error = shape(&[1, 2, 3, 4, 5]).unwrap_err();
    assert!(
        error.contains("has 5 axes; supported are one to four"),
        "{error}"
    );

    let given = |text: &str| {
        let nodes = vec![node("Relu", &["x"], "y")];
        let overrides = Overrides::default().with_input_shapes(&[text.parse().unwrap()]);
        let found = with_inputs(nodes, &[("x", &[0, 5, 7])], &overrides.unwrap());
        found.map(|imported| imported.network.input_shapes())
    };
    assert_eq!(given("2x5x1x9").unwrap(), "2x5x1x9");
    let error = given("2x5x3x9").unwrap_err();
    assert!(
        error.contains("has 3 axes, which 2x5x3x9 does not fit"),
        "{error}"
    );
}

#[test]
fn rows_have_convolutions_and_pools() {
    let row: &[i64] = &[2, 6, 11];
    let import = |convolution: Node, pool: Node, weight: &[i64]| {
        let mut model = model(vec![convolution, pool], vec![tensor("w", weight)]);
        if let Some(graph) = &mut model.graph {
            graph.input = vec![value("x", row)];
        }
        import_in(&model, None)
    };
    let convolution = || {
        let attributes = [
            ints("strides", &[2]),
            ints("pads", &[1, 2]),
            ints("kernel_shape", &[4]),
        ];
        with(node("Conv", &["x", "w"], "a"), &attributes)
    };
    let pool = |kernel: &[i64]| {
        with(
            node("MaxPool", &["a"], "y"),
            &[ints("kernel_shape", kernel)],
        )
    };
    let imported = import(convolution(), pool(&[3]), &[5, 6, 4]).unwrap();
    let [_, conv, pooled] = &imported.network.ops[..] else {
        panic!("{:?}", imported.network.ops);
    };
    assert_eq!((conv.y.h, conv.y.w), (1, 6));
    assert_eq!((pooled.y.c, pooled.y.h, pooled.y.w), (5, 1, 4));
    assert_eq!(imported.tensors["a.weight"].dims, [5, 6, 1, 4]);
    // Numbers for images do not fit rows, and the other way round.
    let error = import(convolution(), pool(&[1, 3]), &[5, 6, 4]).unwrap_err();
    assert!(
        error.contains("`kernel_shape` = [1, 3] is not supported"),
        "{error}"
    );
    let error = import(convolution(), pool(&[3]), &[5, 6, 1, 4]).unwrap_err();
    assert!(
        error.contains("its input has 3 axes, its weight 4"),
        "{error}"
    );
}

#[test]
fn constants_for_columns_are_not_taken_for_channels() {
    // As many channels as columns.
    let error = |dims: &[i64], sizes: &[i64]| {
        let mut model = model(
            vec![node("Add", &["x", "c"], "y")],
            vec![tensor("c", sizes)],
        );
        if let Some(graph) = &mut model.graph {
            graph.input = vec![value("x", dims)];
        }
        import_in(&model, None).err()
    };
    assert!(
        error(&[3, 5, 5], &[5])
            .is_some_and(|error| error.contains("only with one number for each channel"))
    );
    assert_eq!(error(&[3, 5, 5], &[5, 1]), None);
    // Features of one image have no other axis.
    assert_eq!(error(&[5], &[5]), None);
}

#[test]
fn wrong_inputs_are_reported() {
    let nodes = || vec![conv("l", "a"), node("Add", &["a", "r"], "y")];
    let image: &[i64] = &[2, 6, 9, 7];
    let given = |text: &str| Overrides::default().with_input_shapes(&[text.parse().unwrap()]);
    let import = |inputs: &[(&str, &[i64])], overrides: Overrides| {
        with_inputs(nodes(), inputs, &overrides).unwrap_err()
    };
    let both = [("l", image), ("r", image)];
    for (found, part) in [
        (
            import(
                &[("l", image), ("l", image), ("r", image)],
                Overrides::default(),
            ),
            "two inputs are named `l`",
        ),
        (
            import(&[("l", image), ("r", &[1, 6, 9, 7])], Overrides::default()),
            "the input `r` has batch 1, the first input 2",
        ),
        (
            import(&both, given("1x6x9x7").unwrap()),
            "`--input` names no input, there are `l`, `r`",
        ),
        (
            import(&both, given("x=1x6x9x7").unwrap()),
            "there is no such input; there is `l`, `r`",
        ),
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

#[test]
fn an_output_may_be_an_input() {
    let nodes = || vec![conv("x", "a"), node("Relu", &["a"], "b")];
    let imported = with_outputs(nodes(), &["b", "x"]).unwrap();
    let outputs = imported.network.outputs.iter();
    let outputs: Vec<_> = outputs
        .map(|output| (&output.name[..], &imported.network.op(output.op).kind))
        .collect();
    assert_eq!(outputs[0].0, "b");
    assert_eq!(outputs[1], ("x", &OpKind::Slice { start: 0 }));
    // A graph of only a view, whose sizes nothing else reads.
    let mut reshaped = model(vec![node("Reshape", &["x", "s"], "y")], Vec::new());
    if let Some(graph) = &mut reshaped.graph {
        graph.initializer = vec![Tensor {
            data_type: Some(data_type::INT64),
            int64_data: vec![4, -1, 9],
            float_data: Vec::new(),
            ..tensor("s", &[3])
        }];
    }
    let imported = import_in(&reshaped, None).unwrap();
    assert_eq!(imported.network.ops.len(), 2);
    assert_eq!(
        imported.network.op(imported.network.last_op()).kind,
        OpKind::Slice { start: 0 }
    );
}

#[test]
fn activations_after_several_inputs_are_those_of_their_ops() {
    let image: &[i64] = &[2, 6, 9, 7];
    let nodes = vec![
        conv("left", "a"),
        conv("right", "b"),
        node("Relu", &["b"], "c"),
        node("Sigmoid", &["a"], "d"),
        node("Sub", &["c", "d"], "y"),
    ];
    let inputs = [("left", image), ("right", image), ("other", image)];
    let nodes: Vec<Node> = nodes
        .into_iter()
        .chain([node("Mul", &["y", "other"], "z")])
        .collect();
    let mut model = model(nodes, vec![tensor("w", &[6, 6, 3, 3])]);
    if let Some(graph) = &mut model.graph {
        graph.input = inputs
            .iter()
            .map(|(name, dims)| value(name, dims))
            .collect();
        graph.output = vec![value("z", &[])];
    }
    let imported = import_in(&model, None).unwrap();
    assert_eq!(
        ops(&imported)[2..],
        ["conv sigmoid", "conv relu", "Sub none", "Mul none"]
    );
}

#[test]
fn hard_sigmoids_of_any_slope_are_clipped() {
    let slope = |alpha: f32| {
        let attribute = Attribute {
            name: Some("alpha".to_owned()),
            kind: Some(attribute_kind::FLOAT),
            f: Some(alpha),
            ..Attribute::default()
        };
        let nodes = vec![with(node("HardSigmoid", &["x"], "y"), &[attribute])];
        let imported = import(nodes, Vec::new()).unwrap();
        imported.network.op(imported.network.last_op()).kind.clone()
    };
    let OpKind::ScaleShift(found) = slope(0.3) else {
        panic!("{:?}", slope(0.3));
    };
    let clip = Activation::Clip {
        min: ActivationParameter::new(0.0),
        max: ActivationParameter::new(1.0),
    };
    assert_eq!(found.activation, clip);
}

#[test]
fn resized_axes_may_be_named() {
    let resized = |axes: &[i64], sizes: &[i64]| {
        let sizes = Tensor {
            data_type: Some(data_type::INT64),
            int64_data: sizes.to_vec(),
            float_data: Vec::new(),
            ..tensor("s", &[sizes.len() as i64])
        };
        let nodes = vec![with(
            node("Resize", &["x", "", "", "s"], "y"),
            &[ints("axes", axes)],
        )];
        let imported = import(nodes, vec![sizes])?;
        let y = imported.network.op(imported.network.last_op()).y;
        Ok::<_, String>([y.c, y.h, y.w])
    };
    assert_eq!(resized(&[3, 2], &[14, 18]).unwrap(), [6, 18, 14]);
    assert_eq!(resized(&[-1], &[21]).unwrap(), [6, 9, 21]);
    for (axes, sizes) in [
        (&[2, 2][..], &[18, 18][..]),
        (&[2], &[18, 14]),
        (&[4], &[3]),
        (&[1], &[3]),
    ] {
        assert!(resized(axes, sizes).is_err(), "{axes:?}");
    }
}

#[test]
fn wrong_outputs_are_reported_together() {
    let nodes = || {
        vec![
            conv("x", "a"),
            node("Identity", &["a"], "b"),
            conv("b", "c"),
        ]
    };
    let errors = with_outputs(nodes(), &["b", "nowhere", "a"]).unwrap_err();
    for part in [
        "nothing computes the output `nowhere`",
        "the outputs `b` and `a` are the same",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    let twice = with_outputs(nodes(), &["c", "c"]).unwrap_err();
    assert!(twice.contains("two outputs are named `c`"), "{twice}");
    let none = with_outputs(nodes(), &[]).unwrap_err();
    assert!(none.contains("the network has no output"), "{none}");
}

#[test]
fn differences_keep_the_order_of_their_operands() {
    let nodes = vec![
        conv("x", "a"),
        node("Sub", &["x", "a"], "d"),
        node("Relu", &["d"], "y"),
    ];
    let imported = import(nodes, vec![filters()]).unwrap();
    assert_eq!(ops(&imported), ["conv none", "Sub relu"]);
    let inputs: Vec<usize> = imported.network.ops[2]
        .inputs
        .iter()
        .map(|op| op.0)
        .collect();
    assert_eq!(inputs, [0, 1]);
    // A value for each channel would be an image of one pixel.
    let nodes = vec![
        node("GlobalAveragePool", &["x"], "m"),
        node("Sub", &["x", "m"], "y"),
    ];
    let error = import(nodes, Vec::new()).unwrap_err();
    assert!(error.contains("a difference needs equal shapes"), "{error}");
}

#[test]
fn prelu_has_a_slope_for_each_channel() {
    let prelu = |opset: i64, sizes: &[i64]| {
        let nodes = vec![conv("x", "a"), node("PRelu", &["a", "s"], "y")];
        let mut model = model(nodes, vec![filters(), tensor("s", sizes)]);
        model.opset_import[0].version = Some(opset);
        import_in(&model, None)
    };
    for (opset, sizes) in [(17, &[6, 1, 1][..]), (7, &[1, 6, 1, 1]), (6, &[6])] {
        let imported = prelu(opset, sizes).unwrap();
        assert_eq!(imported.network.ops[2].kind, OpKind::PRelu, "{sizes:?}");
        let slopes = &imported.tensors["y.weight"];
        assert_eq!(slopes.dims, [6]);
        assert_eq!(slopes.values, [-0.25, -0.125, 0.0, 0.125, 0.25, 0.375]);
    }
    let one = prelu(17, &[1, 1, 1]).unwrap();
    assert_eq!(ops(&one), ["conv leaky_relu"]);
    // From operator set 7 on a list is aligned with the columns.
    for (opset, sizes) in [(17, &[6][..]), (17, &[6, 9, 7]), (6, &[6, 1, 1])] {
        let error = prelu(opset, sizes).unwrap_err();
        assert!(error.contains("a slope of [6"), "{sizes:?}: {error}");
    }
    // Channels as the last axis.
    let nodes = vec![
        with(
            node("Transpose", &["x"], "a"),
            &[ints("perm", &[0, 2, 3, 1])],
        ),
        node("PRelu", &["a", "s"], "b"),
        with(
            node("Transpose", &["b"], "y"),
            &[ints("perm", &[0, 3, 1, 2])],
        ),
    ];
    let imported = import(nodes, vec![tensor("s", &[6])]).unwrap();
    assert_eq!(imported.network.ops[1].kind, OpKind::PRelu);
    assert_eq!(imported.tensors["b.weight"].dims, [6]);
}

#[test]
fn transposed_convolutions_have_all_attributes() {
    let weight = || tensor("w", &[6, 5, 3, 4]);
    let found = |attributes: &[Attribute]| -> Result<_, String> {
        let nodes = vec![
            with(node("ConvTranspose", &["x", "w"], "a"), attributes),
            node("Add", &["a", "c"], "b"),
            node("Relu", &["b"], "y"),
        ];
        let imported = import(nodes, vec![weight(), tensor("c", &[1, 10, 1, 1])])?;
        assert_eq!(imported.tensors["a.weight"].dims, [6, 5, 3, 4]);
        assert_eq!(imported.tensors["a.bias"].dims, [10]);
        let [_, op] = &imported.network.ops[..] else {
            panic!("{:?}", imported.network.ops);
        };
        let OpKind::ConvTranspose(layer) = &op.kind else {
            panic!("{:?}", op.kind);
        };
        let options = &layer.options;
        assert_eq!((options.activation, options.groups), (Activation::Relu, 2));
        let pad = options.pad;
        let pads = [pad.top, pad.left, pad.bottom, pad.right];
        Ok((pads, options.output_padding, [op.y.h, op.y.w]))
    };
    let groups = || int("group", 2);
    let auto_pad = |text: &'static str| Attribute {
        s: Some(text.as_bytes().into()),
        kind: Some(attribute_kind::STRING),
        ..named("auto_pad")
    };
    let strides = || ints("strides", &[2, 3]);
    // 9x7 at steps of 2 and 3 reach 8 * 2 + 3 = 19 rows and 6 * 3 + 4 = 22 columns.
    assert_eq!(
        found(&[groups(), strides()]),
        Ok(([0; 4], [0, 0], [19, 22]))
    );
    let all = [
        groups(),
        strides(),
        ints("kernel_shape", &[3, 4]),
        ints("dilations", &[2, 1]),
        ints("pads", &[1, 2, 0, 3]),
        ints("output_padding", &[1, 2]),
    ];
    assert_eq!(found(&all), Ok(([1, 2, 0, 3], [1, 2], [21, 19])));
    let valid = [groups(), strides(), auto_pad("VALID")];
    assert_eq!(found(&valid), Ok(([0; 4], [0, 0], [19, 22])));
    let upper = [groups(), strides(), auto_pad("SAME_UPPER")];
    assert_eq!(found(&upper), Ok(([0, 0, 1, 1], [0, 0], [18, 21])));
    let lower = [groups(), strides(), auto_pad("SAME_LOWER")];
    assert_eq!(found(&lower), Ok(([1, 1, 0, 0], [0, 0], [18, 21])));
    let sized = [groups(), strides(), ints("output_shape", &[16, 22])];
    assert_eq!(found(&sized), Ok(([2, 0, 1, 0], [0, 0], [16, 22])));
    for (attributes, part) in [
        (
            &[groups(), ints("output_shape", &[16, 22])][..],
            "the input reaches 11",
        ),
        (
            &[groups(), ints("output_shape", &[2, 10, 16, 22])],
            "only two sizes",
        ),
        (
            &[groups(), ints("kernel_shape", &[4, 3])],
            "its weight has 3x4",
        ),
        (
            &[groups(), ints("output_padding", &[1])],
            "`output_padding` = [1]",
        ),
        (
            &[groups(), ints("output_padding", &[1, 0])],
            "1 rows of output padding",
        ),
        (
            &[groups(), ints("pads", &[6, 0, 6, 0])],
            "12 rows are cut off 11",
        ),
        (&[groups(), auto_pad("SAME")], "`auto_pad` = SAME"),
        (&[int("group", -1)], "`group` = -1"),
        (&[int("group", 4)], "4 groups do not divide"),
    ] {
        let error = found(attributes).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    let nodes = vec![node("ConvTranspose", &["x", "w"], "y")];
    let error = import(nodes, vec![tensor("w", &[5, 6, 3, 3])]).unwrap_err();
    assert!(error.contains("its weight is for 5 channels"), "{error}");
}

#[test]
fn channels_are_divided_by_their_norm() {
    let eps_of = |imported: Imported| match imported.network.ops[1].kind {
        OpKind::ChannelNorm(ChannelNorm::L2 { eps }) => eps.get(),
        ref other => panic!("{other:?}"),
    };
    let lp = |attributes: &[Attribute]| {
        let nodes = vec![with(node("LpNormalization", &["x"], "y"), attributes)];
        import(nodes, Vec::new())
    };
    for axis in [1, -3] {
        let imported = lp(&[int("axis", axis), int("p", 2)]).unwrap();
        assert_eq!(eps_of(imported), ChannelNorm::MIN_EPS);
    }
    for (attributes, part) in [
        (&[int("axis", 1), int("p", 1)][..], "`p` = 1"),
        (&[], "along axis -1"),
        (&[int("axis", 5)], "along axis 5"),
    ] {
        let error = lp(attributes).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // As PyTorch's exporters spell it, the second time without Expand and with Max.
    let constants = || {
        vec![
            scalar("eps", 0.5),
            list("axes", &[1]),
            list("rows", &[2]),
            list("both", &[1, 2]),
            list("wide", &[1, 2, 6, 9, 7]),
        ]
    };
    let spelled = |norm: Node, least: Node, divisor: &str| {
        let nodes = vec![
            norm,
            least,
            node("Shape", &["x"], "shape"),
            node("Expand", &["least", "shape"], "expanded"),
            node("Div", &["x", divisor], "y"),
        ];
        import(nodes, constants())
    };
    let clip = || node("Clip", &["norm", "eps"], "least");
    let attribute = || with(node("ReduceL2", &["x"], "norm"), &[ints("axes", &[-3])]);
    assert_eq!(
        eps_of(spelled(attribute(), clip(), "expanded").unwrap()),
        0.5
    );
    let by_input = || node("ReduceL2", &["x", "axes"], "norm");
    let max = node("Max", &["eps", "norm"], "least");
    assert_eq!(eps_of(spelled(by_input(), max, "least").unwrap()), 0.5);
    let none = eps_of(spelled(by_input(), clip(), "norm").unwrap());
    assert_eq!(none, ChannelNorm::MIN_EPS);
    let without_axis = with(by_input(), &[int("keepdims", 0)]);
    for (norm, least, part) in [
        (
            node("ReduceL2", &["x", "rows"], "norm"),
            clip(),
            "along axis 2",
        ),
        (
            node("ReduceL2", &["x", "both"], "norm"),
            clip(),
            "the axes [1, 2]",
        ),
        (node("ReduceL2", &["x"], "norm"), clip(), "the axes []"),
        (without_axis, clip(), "`keepdims` = 0"),
        (
            by_input(),
            node("Relu", &["norm"], "least"),
            "a norm is supported only",
        ),
        (
            by_input(),
            node("Clip", &["norm", "eps", "eps"], "least"),
            "a norm is supported only",
        ),
        (
            by_input(),
            node("Expand", &["norm", "wide"], "least"),
            "the expansion of a norm",
        ),
    ] {
        let error = spelled(norm, least, "expanded").unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // Divided by another's norm, and read as it is.
    let nodes = vec![
        node("Sigmoid", &["x"], "other"),
        by_input(),
        node("Div", &["other", "norm"], "y"),
    ];
    let error = import(nodes, constants()).unwrap_err();
    assert!(error.contains("a norm is supported only"), "{error}");
    let nodes = vec![node("ReduceL2", &["x", "axes"], "y")];
    let error = import(nodes, constants()).unwrap_err();
    assert!(error.contains("a norm is supported only"), "{error}");
}

#[test]
fn local_response_normalisation_has_all_attributes() {
    let float = |name: &str, value: f32| Attribute {
        name: Some(name.to_owned()),
        kind: Some(attribute_kind::FLOAT),
        f: Some(value),
        ..Attribute::default()
    };
    let lrn = |attributes: &[Attribute]| {
        import(vec![with(node("LRN", &["x"], "y"), attributes)], Vec::new())
    };
    let all = [
        int("size", 4),
        float("alpha", 0.5),
        float("beta", 0.25),
        float("bias", 2.0),
    ];
    let kind = lrn(&all).unwrap().network.ops[1].kind.clone();
    let OpKind::Lrn(found) = kind else {
        panic!("{kind:?}");
    };
    let numbers = [found.alpha, found.beta, found.k].map(|number| number.get());
    assert_eq!((found.size, numbers), (4, [0.5, 0.25, 2.0]));
    for (attributes, part) in [
        (&[][..], "`size` is 0"),
        (&[int("size", -1)], "`size` = -1"),
        (&[int("size", 3), float("bias", 0.0)], "`k` is 0"),
        (
            &[int("size", 3), float("alpha", f32::NAN)],
            "`alpha` is not",
        ),
    ] {
        let error = lrn(attributes).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
}
