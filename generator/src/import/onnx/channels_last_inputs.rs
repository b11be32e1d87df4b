//! Inputs with the channels as the last axis, as TensorFlow and Keras have them. The file does not say which axis that is; the nodes do:
//! their converters write a transposition before the first convolution, whose axes are ONNX's.

use super::message::Node;
use super::names::op_type;
use std::collections::{HashMap, HashSet};

/// The transposition from channels as the last axis to channels as the second one.
pub const FROM_LAST: [i64; 4] = [0, 3, 1, 2];

/// Those inputs that reach such a transposition through nodes that keep the order of the axes.
pub fn channels_last_inputs<'n>(nodes: &[Node], inputs: &[&'n str]) -> HashSet<&'n str> {
    let mut readers: HashMap<&str, Vec<&Node>> = HashMap::new();
    for node in nodes {
        for name in &node.input {
            readers.entry(name).or_default().push(node);
        }
    }
    let mut found = HashSet::new();
    for &input in inputs {
        let mut seen = HashSet::from([input]);
        let mut open = vec![input];
        while let Some(value) = open.pop() {
            let readers = readers.get(value).map_or(&[][..], Vec::as_slice);
            if readers.iter().any(|node| moves_channels(node)) {
                found.insert(input);
                break;
            }
            let kept = readers.iter().filter(|node| keeps_axes(node));
            let outputs = kept.flat_map(|node| &node.output);
            open.extend(outputs.map(String::as_str).filter(|name| seen.insert(name)));
        }
    }
    found
}

/// Whether a node moves the channels from the last axis to the second one.
fn moves_channels(node: &Node) -> bool {
    let order = node
        .attribute
        .iter()
        .find(|attribute| attribute.name.as_deref() == Some("perm"));
    op_type(node) == "Transpose" && order.is_some_and(|order| order.ints == FROM_LAST)
}

/// Whether a node's output has the axes of its input.
fn keeps_axes(node: &Node) -> bool {
    matches!(
        op_type(node),
        "Add" | "Cast" | "Clip" | "Div" | "Dropout" | "Identity" | "Mul" | "Pad" | "Sub"
    )
}
