//! The key `gpu`: one name, or a list of names.

use super::fields::Fields;
use super::node::{Node, Value};
use super::report::Report;
use crate::config::schema::Key;
use crate::config::{Overrides, Position};
use crate::gpu::{Gpu, Targets};

const FORM: &str = "write a name such as h200, or a list of names";

/// The GPUs to plan for: the caller's, else the config's, else the default; `None` after an error.
pub(in crate::config) fn targets(
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<Targets> {
    let before = report.count();
    let written = fields.get(Key::Gpu).and_then(|node| read(node, report));
    if report.count() > before {
        return None;
    }
    Some(overrides.gpus(written))
}

/// The GPU that a layer set is planned for; `None` after an error.
pub(super) fn single_target(
    fields: &Fields<'_>,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Option<&'static Gpu> {
    let targets = targets(fields, overrides, report)?;
    let [gpu] = targets.gpus() else {
        let at = match overrides.gpus {
            None => fields.position(Key::Gpu, Some(1)),
            Some(_) => fields.at,
        };
        let count = targets.gpus().len();
        report.error(
            at,
            format!("a layer set is planned for one GPU, not {count}; choose one"),
        );
        return None;
    };
    Some(gpu)
}

fn read(node: &Node, report: &mut Report<'_>) -> Option<Targets> {
    let names: Vec<(Position, &str)> = match &node.value {
        Value::String(name) => vec![(node.at, name)],
        Value::List(items) => {
            let names: Vec<_> = items.iter().filter_map(|item| name(item, report)).collect();
            if names.is_empty() && !items.is_empty() {
                return None;
            }
            names
        }
        Value::Null => {
            report.error(node.at, format!("`gpu` has no value; {FORM}"));
            return None;
        }
        _ => {
            let found = report.quote(node);
            report.error(
                node.at,
                format!("`gpu` must be the name of a GPU, not {found}; {FORM}"),
            );
            return None;
        }
    };
    let words: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
    match Targets::named(&words) {
        Ok(targets) => Some(targets),
        Err(errors) => {
            for error in errors {
                let at = error.index().map_or(node.at, |index| names[index].0);
                report.error(at, error.to_string());
            }
            None
        }
    }
}

fn name<'n>(item: &'n Node, report: &mut Report<'_>) -> Option<(Position, &'n str)> {
    if let Value::String(name) = &item.value {
        return Some((item.at, name));
    }
    let found = report.quote(item);
    report.error(
        item.at,
        format!("an item of `gpu` must be the name of a GPU, not {found}"),
    );
    None
}
