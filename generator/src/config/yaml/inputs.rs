//! The inputs of a network: their names and shapes, and how the caller stores them.

use super::fields::{Fields, integers, list};
use super::node::{Node, Value};
use super::report::Report;
use crate::config::schema::{Key, Mapping};
use crate::config::{Overrides, Position};
use crate::ir::{INPUT_NAME, InputEncoding, Layout, TensorShape};

/// An input as it is written.
#[derive(Debug, Clone)]
pub(super) struct WrittenInput {
    /// `None` for the only input.
    pub(super) name: Option<String>,
    pub(super) shape: Option<TensorShape>,
    pub(super) encoding: InputEncoding,
    pub(super) at: Position,
}

/// The inputs of a network, with the shapes of the caller where it gives any.
pub(super) fn inputs(
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<Vec<(String, TensorShape, InputEncoding)>> {
    let before = report.count();
    let node = fields.get(Key::Input);
    let written = match node {
        None => vec![WrittenInput {
            name: None,
            shape: None,
            encoding: InputEncoding::PLAIN,
            at: fields.at,
        }],
        Some(node) => written(node, report),
    };
    let at = node.map_or(fields.at, |node| node.at);
    let name = |input: &WrittenInput| input.name.clone().unwrap_or(INPUT_NAME.to_owned());
    let names: Vec<String> = written.iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if report.count() > before {
        return None;
    }
    if names.is_empty() {
        report.error(at, "the network has no input; write `input: 1x3x224x224`");
        return None;
    }
    if let Err(message) = overrides.check_inputs(&names) {
        report.error(at, message);
        return None;
    }
    const REMEDY: &str = "write it as 1x3x224x224";
    let inputs = written.iter().zip(&names).map(|(input, &name)| {
        let shape = overrides.input(name, input.shape);
        if shape.is_none() && node.is_some() {
            let name = name.escape_debug();
            report.error(
                input.at,
                format!("the input `{name}` has no `shape`; {REMEDY}"),
            );
        }
        Some((name.to_owned(), shape?, input.encoding.clone()))
    });
    // All are read, so that each mistake is reported.
    let inputs: Vec<Option<_>> = inputs.collect();
    if node.is_none() && inputs.contains(&None) {
        fields.require(Key::Input, REMEDY, report);
    }
    inputs.into_iter().collect()
}

/// The inputs of a value of `input`: a shape, an encoding, or a mapping of names to these.
pub(super) fn written(node: &Node, report: &mut Report<'_>) -> Vec<WrittenInput> {
    match &node.value {
        Value::Map(entries) if !is_encoding(entries) => entries
            .iter()
            .filter_map(|(key, node)| {
                let name = name_of("an input", key, report)?;
                input(Some(name), node, report)
            })
            .collect(),
        _ => input(None, node, report).into_iter().collect(),
    }
}

/// The key of a mapping of names; `what` has the name.
pub(super) fn name_of<'n>(
    what: &str,
    key: &'n Node,
    report: &mut Report<'_>,
) -> Option<&'n String> {
    if let Value::String(name) = &key.value {
        return Some(name);
    }
    let found = report.quote(key);
    let message = format!("the name of {what} must be text, not {found}; put it in quotes");
    report.error(key.at, message);
    None
}

/// Whether the entries describe one input. Else they are names and inputs, which may be named as keys are: `{mean: 1x3x8x8, std: 1x3x8x8}`.
fn is_encoding(entries: &[(Node, Node)]) -> bool {
    let name = |key: &Node| match &key.value {
        Value::String(word) => word.clone(),
        _ => String::new(),
    };
    let is_shape_key = |key: &Node| name(key) == Key::Shape.name();
    let is_input = |(key, value): &&(Node, Node)| match &value.value {
        Value::Map(_) => true,
        Value::String(text) => text.parse::<TensorShape>().is_ok(),
        Value::List(_) => !Mapping::Input.has(name(key)),
        _ => false,
    };
    let has_shape = entries.iter().any(|(key, _)| is_shape_key(key));
    let mut others = entries.iter().filter(|(key, _)| !is_shape_key(key));
    let are_keys = || entries.iter().all(|(key, _)| Mapping::Input.has(name(key)));
    match entries.len() {
        0 => false,
        1 if has_shape => true,
        _ => !others.all(|entry| is_input(&entry)) && (has_shape || are_keys()),
    }
}

fn input(name: Option<&String>, node: &Node, report: &mut Report<'_>) -> Option<WrittenInput> {
    let (shape, encoding) = match &node.value {
        Value::Map(_) => encoded(node, report)?,
        _ => (Some(shape(node, report)?), InputEncoding::PLAIN),
    };
    Some(WrittenInput {
        name: name.cloned(),
        shape,
        encoding,
        at: node.at,
    })
}

/// The value `{shape: ..., dtype: ..., layout: ..., mean: ..., std: ...}`.
fn encoded(node: &Node, report: &mut Report<'_>) -> Option<(Option<TensorShape>, InputEncoding)> {
    let fields = Fields::of(node, Mapping::Input.title(), report)?;
    fields.check_keys(node, Mapping::Input, &[], report);
    let plain = InputEncoding::PLAIN;
    let encoding = InputEncoding {
        dtype: fields
            .choice(Key::Dtype, &InputEncoding::DTYPES, report)
            .unwrap_or(plain.dtype),
        layout: fields
            .choice(Key::Layout, &Layout::OF_INTERFACES, report)
            .unwrap_or(plain.layout),
        mean: numbers(Key::Mean, &fields, report),
        std: numbers(Key::Std, &fields, report),
    };
    let shape = fields.get(Key::Shape);
    Some((shape.and_then(|node| self::shape(node, report)), encoding))
}

/// A list of numbers.
fn numbers(key: Key, fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Vec<f32>> {
    let node = fields.get(key)?;
    let items = list(key, node, "one number for each channel", report)?;
    let numbers = items.iter().map(|item| match item.value {
        Value::Float(number) => Some(number as f32),
        Value::Integer(number) => Some(number as f32),
        _ => {
            let found = report.quote(item);
            report.error(item.at, format!("`{key}` must have numbers, not {found}"));
            None
        }
    });
    // All are read, so that each mistake is reported.
    let numbers: Vec<Option<f32>> = numbers.collect();
    numbers.into_iter().collect()
}

fn shape(node: &Node, report: &mut Report<'_>) -> Option<TensorShape> {
    let message = match &node.value {
        Value::List(_) => {
            let [batch, c, h, w] =
                integers(Key::Input, node, "[batch, channels, height, width]", report)?;
            return Some(TensorShape::new(batch, c, h, w));
        }
        Value::String(text) => match text.parse() {
            Ok(shape) => return Some(shape),
            Err(error) => format!("{error}"),
        },
        _ => format!(
            "`input` must be a shape, not {}; write it as 1x3x224x224",
            report.quote(node)
        ),
    };
    report.error(node.at, message);
    None
}
