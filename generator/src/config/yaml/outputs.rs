//! The outputs of a network: their names, and how they are stored in the caller's memory.

use super::fields::Fields;
use super::inputs::name_of;
use super::node::{Node, Value};
use super::report::Report;
use crate::config::Position;
use crate::config::schema::{Key, Mapping};
use crate::ir::{DType, Format, Layout, OutputOptions};

/// The value of `output` in an op; `None` if the op has none.
pub(super) fn of_op(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<OutputOptions> {
    let node = fields.get(Key::Output)?;
    let output = Fields::of(node, "`output`", report)?;
    output.check_keys(node, Mapping::Output, &[], report);
    let name = output.string(Key::Name, report).map(str::to_owned);
    let (dtype, layout) = format(&output, report);
    Some(OutputOptions {
        name,
        format: Format::new(dtype.unwrap_or_default(), layout.unwrap_or_default()),
    })
}

/// The format of an output of a model file.
#[derive(Debug, Clone)]
pub(super) struct WrittenOutput {
    /// `None` for the only output.
    pub(super) name: Option<String>,
    /// What is written of its format; the rest stays as in the model.
    pub(super) dtype: Option<DType>,
    pub(super) layout: Option<Layout>,
    pub(super) at: Position,
}

/// The formats in the options of a model file: `{layout: nhwc}`, or a mapping of names to these.
pub(super) fn of_model(node: &Node, report: &mut Report<'_>) -> Vec<WrittenOutput> {
    match &node.value {
        Value::Map(entries) if has_names(entries) => entries
            .iter()
            .filter_map(|(key, node)| {
                let name = name_of("an output", key, report)?;
                of_one(Some(name), node, report)
            })
            .collect(),
        _ => of_one(None, node, report).into_iter().collect(),
    }
}

/// Whether the keys are names of outputs, each with a mapping.
fn has_names(entries: &[(Node, Node)]) -> bool {
    let mut values = entries.iter().map(|(_, node)| &node.value);
    !entries.is_empty() && values.all(|value| matches!(value, Value::Map(_)))
}

/// The format of one output, which has this name if there are several.
fn of_one(name: Option<&String>, node: &Node, report: &mut Report<'_>) -> Option<WrittenOutput> {
    let fields = Fields::of(node, "`output`", report)?;
    fields.check_keys(node, Mapping::ModelOutput, &[], report);
    let (dtype, layout) = format(&fields, report);
    Some(WrittenOutput {
        name: name.cloned(),
        dtype,
        layout,
        at: node.at,
    })
}

/// `dtype` and `layout`, if they are written.
fn format(fields: &Fields<'_>, report: &mut Report<'_>) -> (Option<DType>, Option<Layout>) {
    (
        fields.choice(Key::Dtype, &DType::NAMES, report),
        fields.choice(Key::Layout, &Layout::OF_INTERFACES, report),
    )
}
