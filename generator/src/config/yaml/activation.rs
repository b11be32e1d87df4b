//! The key `activation`: a name, or a name with parameters such as `{clip: [0, 6]}`.

use super::fields::Fields;
use super::node::{Node, Value};
use super::report::Report;
use crate::config::schema::Key;
use crate::ir::Activation;
use crate::suggest::nearest;

/// The activation that a mapping has; none if the key is missing or after an error.
pub(super) fn activation(fields: &Fields<'_>, report: &mut Report<'_>) -> Activation {
    let node = fields.get(Key::Activation);
    let activation = node.and_then(|node| read(node, report));
    activation.unwrap_or_default()
}

/// Whether a word is the name of an activation function.
pub(super) fn is_activation(word: &str) -> bool {
    Activation::NAMES.iter().any(|(name, _)| *name == word)
}

/// How an activation is written.
fn form(activation: Activation) -> String {
    let name = activation.as_str();
    match activation.parameter_names() {
        [] => name.to_owned(),
        [parameter] => format!("{{{name}: {parameter}}}"),
        parameters => format!("{{{name}: [{}]}}", parameters.join(", ")),
    }
}

fn read(node: &Node, report: &mut Report<'_>) -> Option<Activation> {
    let (name, parameters) = match &node.value {
        Value::String(name) => (Some((name.as_str(), node)), None),
        Value::Map(entries) => match &entries[..] {
            [(key, value)] => match &key.value {
                Value::String(name) => (Some((name.as_str(), key)), Some(value)),
                _ => (None, None),
            },
            _ => (None, None),
        },
        _ => (None, None),
    };
    let known = name.and_then(|(name, _)| Activation::NAMES.iter().find(|known| known.0 == name));
    let Some((_, activation)) = known else {
        let (name, at) = name.map_or((None, node), |(name, at)| (Some(name), at));
        let names = || Activation::NAMES.iter().map(|(name, _)| *name);
        let hint = match name.map(|name| (name, nearest(name, names()))) {
            Some(("relu6", _)) => "write {clip: [0, 6]}; ".to_owned(),
            Some((_, Some(near))) => format!("did you mean `{near}`? "),
            _ => String::new(),
        };
        let forms: Vec<_> = Activation::NAMES.map(|(_, known)| form(known)).into();
        let quoted = report.quote(at);
        report.error(
            at.at,
            format!(
                "`activation` cannot be {quoted}; {hint}it is one of {}",
                forms.join(", ")
            ),
        );
        return None;
    };
    let numbers = match parameters.map(|node| &node.value) {
        None => Some(Vec::new()),
        Some(Value::List(items)) => items.iter().map(number).collect(),
        Some(_) => parameters
            .map(number)
            .and_then(|number| Some(vec![number?])),
    };
    let found = numbers.and_then(|numbers| activation.with_parameters(&numbers));
    if found.is_none() {
        let needed = match activation {
            Activation::Clip { .. } => "two numbers of which the first is not larger",
            Activation::LeakyRelu { .. } => "a finite number",
            _ => "no parameters",
        };
        let name = activation.as_str();
        let message = format!(
            "`{name}` needs {needed}; write `activation: {}`",
            form(*activation)
        );
        report.error(parameters.unwrap_or(node).at, message);
    }
    found
}

/// A number that an f32 can hold, or an infinity.
fn number(node: &Node) -> Option<f32> {
    let wide = match node.value {
        Value::Integer(number) => number as f64,
        Value::Float(number) => number,
        _ => return None,
    };
    let narrow = wide as f32;
    (narrow.is_finite() || !wide.is_finite()).then_some(narrow)
}
