//! The memory that the messages of a file take once they are decoded, counted before they are.
//!
//! A message of two bytes becomes a structure of some hundred, so a small file of many empty messages could fill the memory of a machine.
//! The count walks through the tags of the file and keeps nothing.

use super::message;
use std::mem::size_of;

/// Messages whose parts are counted; others have a bounded size.
#[derive(Clone, Copy)]
enum Kind {
    Model,
    Graph,
    Node,
    Attribute,
    Tensor,
    Value,
    Type,
    TensorType,
    Shape,
    /// A structure without parts, of this size in memory beside its texts.
    Leaf(usize),
    /// A list of numbers of fixed size.
    Floats,
    /// A list of integers, each of which has as many bytes as it needs.
    Integers,
}

/// What a field becomes; `None` for fields that are skipped or stay in the file's bytes.
fn field(of: Kind, number: u64) -> Option<Kind> {
    let text = Kind::Leaf(size_of::<String>());
    let entry = Kind::Leaf(size_of::<message::Entry>());
    match (of, number) {
        (Kind::Model, 7) => Some(Kind::Graph),
        (Kind::Model, 8) => Some(Kind::Leaf(size_of::<message::OperatorSet>())),
        (Kind::Model, 25) => Some(Kind::Leaf(size_of::<message::Function>())),
        (Kind::Graph, 1) => Some(Kind::Node),
        (Kind::Graph, 5) => Some(Kind::Tensor),
        (Kind::Graph, 11 | 12) => Some(Kind::Value),
        (Kind::Graph, 15) => Some(Kind::Leaf(size_of::<message::SparseTensor>())),
        (Kind::Node, 1 | 2) => Some(text),
        (Kind::Node, 5) => Some(Kind::Attribute),
        (Kind::Node, 9) | (Kind::Tensor, 13) => Some(entry),
        (Kind::Attribute, 5) => Some(Kind::Tensor),
        (Kind::Attribute, 7) | (Kind::Tensor, 4 | 10) => Some(Kind::Floats),
        (Kind::Attribute, 8) | (Kind::Tensor, 1 | 5 | 7) => Some(Kind::Integers),
        (Kind::Value, 2) => Some(Kind::Type),
        (Kind::Type, 1) => Some(Kind::TensorType),
        (Kind::TensorType, 2) => Some(Kind::Shape),
        (Kind::Shape, 1) => Some(Kind::Leaf(size_of::<message::Dimension>())),
        _ => None,
    }
}

/// The size of a structure without its parts, from its content in the file.
fn own_size(kind: Kind, content: &[u8]) -> usize {
    match kind {
        Kind::Model => size_of::<message::Model>(),
        Kind::Graph => size_of::<message::Graph>(),
        Kind::Node => size_of::<message::Node>(),
        Kind::Attribute => size_of::<message::Attribute>(),
        Kind::Tensor => size_of::<message::Tensor>(),
        Kind::Value => size_of::<message::ValueInfo>(),
        // Parts of a value's structure.
        Kind::Type | Kind::TensorType | Kind::Shape => 0,
        Kind::Leaf(size) => size + content.len(),
        Kind::Floats => content.len(),
        Kind::Integers => {
            let last_bytes = content.iter().filter(|&&byte| byte < 0x80);
            size_of::<i64>() * last_bytes.count()
        }
    }
}

/// An upper bound of the bytes of a model's decoded messages; `None` for a file that is cut off or malformed, or that has groups, which no
/// version of the format has.
pub fn footprint(file: &[u8]) -> Option<usize> {
    let mut all = 0;
    // Without recursion; messages that contain each other are at most eight deep.
    let mut open = vec![(Kind::Model, file)];
    while let Some((kind, bytes)) = open.pop() {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (number, content) = next_field(&mut rest)?;
            let Some(part) = field(kind, number) else {
                continue;
            };
            // A number of a list that is not packed has no length; it takes eight bytes at most.
            let content = content.unwrap_or(&[0; 8]);
            // Lists grow by doubling.
            all += 2 * own_size(part, content);
            if !matches!(part, Kind::Leaf(_) | Kind::Floats | Kind::Integers) {
                open.push((part, content));
            }
        }
    }
    Some(all)
}

/// The number of the next field and its content if it has a length; `None` at an error.
fn next_field<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Option<&'b [u8]>)> {
    let tag = varint(bytes)?;
    let (number, wire_type) = (tag >> 3, tag & 7);
    let content = match wire_type {
        0 => {
            varint(bytes)?;
            None
        }
        1 => {
            bytes.split_off(..8)?;
            None
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Some(bytes.split_off(..length)?)
        }
        5 => {
            bytes.split_off(..4)?;
            None
        }
        _ => return None,
    };
    Some((number, content))
}

/// A number in groups of seven bits.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
