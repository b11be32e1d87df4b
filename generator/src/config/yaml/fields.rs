//! The keys and values of a mapping, with error messages in terms of the config.

use super::activation::is_activation;
use super::node::{Node, Value};
use super::report::Report;
use crate::config::Position;
use crate::config::schema::{Key, Mapping};
use crate::ir::MAX_ELEMENTS;
use crate::suggest::nearest;
use std::fmt::Display;

/// The entries of a mapping, followed by those of mappings with defaults.
#[derive(Debug, Clone)]
pub(in crate::config) struct Fields<'n> {
    pub(in crate::config) at: Position,
    entries: Vec<(&'n str, &'n Node)>,
    defaults: Vec<(&'n str, &'n Node)>,
}

impl<'n> Fields<'n> {
    /// The entries of a mapping; `what` names it in the error for other nodes.
    pub(in crate::config) fn of(
        node: &'n Node,
        what: &str,
        report: &mut Report<'_>,
    ) -> Option<Self> {
        let Value::Map(map) = &node.value else {
            let found = report.quote(node);
            report.error(
                node.at,
                format!("{what} must be a mapping, not {found}; write `key: value`"),
            );
            return None;
        };
        let entries = map
            .iter()
            .filter_map(|(key, value)| match &key.value {
                Value::String(word) => Some((word.as_str(), value)),
                _ => None,
            })
            .collect();
        Some(Self {
            at: node.at,
            entries,
            defaults: Vec::new(),
        })
    }

    /// Adds defaults for those of `keys` that are missing, after existing defaults.
    pub(in crate::config) fn with_defaults(
        mut self,
        defaults: &Fields<'n>,
        keys: impl Iterator<Item = Key>,
    ) -> Self {
        for key in keys {
            let found = defaults
                .entries
                .iter()
                .find(|(word, _)| *word == key.name());
            self.defaults.extend(found);
        }
        self
    }

    /// Reports every key of `node` that `mapping` does not have; `others` are mappings that a misplaced key
    /// may belong to.
    pub(in crate::config) fn check_keys(
        &self,
        node: &Node,
        mapping: Mapping,
        others: &[Mapping],
        report: &mut Report<'_>,
    ) {
        let Value::Map(map) = &node.value else { return };
        let what = mapping.title();
        let keys: Vec<&str> = mapping.keys().map(Key::name).collect();
        for (key, _) in map {
            let takes = || format!("{what} takes {}", keys.join(", "));
            let Value::String(word) = &key.value else {
                let found = report.quote(key);
                report.error(
                    key.at,
                    format!("a key must be a name, not {found}; {}", takes()),
                );
                continue;
            };
            if keys.contains(&word.as_str()) {
                continue;
            }
            let owners = others.iter().filter(|other| other.has(word));
            let owners: Vec<&str> = owners.map(|other| other.title()).collect();
            let takes = takes();
            let message = if !owners.is_empty() {
                format!(
                    "`{word}` is a key of {}, not of {what}; {takes}",
                    owners.join(", ")
                )
            } else if is_activation(word) && keys.contains(&Key::Activation.name()) {
                format!("unknown key `{word}`; write `activation: {word}`; {takes}")
            } else if let Some(known) = nearest(word, keys.iter().copied()) {
                format!("unknown key `{word}`; did you mean `{known}`? {takes}")
            } else {
                format!("unknown key `{word}`; {takes}")
            };
            report.error(key.at, message);
        }
    }

    /// The value of a key.
    pub(in crate::config) fn get(&self, key: Key) -> Option<&'n Node> {
        self.named(key.name())
    }

    fn named(&self, name: &str) -> Option<&'n Node> {
        let mut all = self.entries.iter().chain(&self.defaults);
        all.find(|(word, _)| *word == name).map(|(_, node)| *node)
    }

    /// The position of the value of a key with this name or of an item in it; that of the mapping if the key
    /// is missing.
    pub(in crate::config) fn position(
        &self,
        key: impl AsRef<str>,
        item: Option<usize>,
    ) -> Position {
        let Some(node) = self.named(key.as_ref()) else {
            return self.at;
        };
        match (&node.value, item) {
            (Value::List(items), Some(item)) => items.get(item).map_or(node.at, |item| item.at),
            _ => node.at,
        }
    }

    /// Whether the value of a key is this number.
    pub(in crate::config) fn integer_is(&self, key: Key, number: i128) -> bool {
        matches!(self.get(key), Some(Node { value: Value::Integer(found), .. }) if *found == number)
    }

    /// The value of a required key.
    pub(in crate::config) fn require(
        &self,
        key: Key,
        help: &str,
        report: &mut Report<'_>,
    ) -> Option<&'n Node> {
        let found = self.get(key);
        if found.is_none() {
            report.error(self.at, format!("`{key}` is missing; {help}"));
        }
        found
    }

    /// A whole number; `None` if it is missing or after an error.
    pub(in crate::config) fn integer(&self, key: Key, report: &mut Report<'_>) -> Option<u32> {
        self.get(key).and_then(|node| integer(key, node, report))
    }

    /// `true` or `false`.
    pub(in crate::config) fn boolean(
        &self,
        key: Key,
        default: bool,
        report: &mut Report<'_>,
    ) -> bool {
        self.get(key)
            .and_then(|node| boolean(key, node, report))
            .unwrap_or(default)
    }

    /// One of several names, mapped to its value.
    pub(in crate::config) fn choice<T: Copy>(
        &self,
        key: Key,
        words: &[(&'static str, T)],
        report: &mut Report<'_>,
    ) -> Option<T> {
        let node = self.get(key)?;
        let written = match &node.value {
            Value::String(written) => Some(written.as_str()),
            _ => None,
        };
        let found = words.iter().find(|(word, _)| Some(*word) == written);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let near = written.and_then(|written| nearest(written, all.iter().copied()));
            let hint = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
            let quoted = report.quote(node);
            report.error(
                node.at,
                format!(
                    "`{key}` cannot be {quoted}; {hint}it is one of {}",
                    all.join(", ")
                ),
            );
        }
        found.map(|(_, value)| *value)
    }

    /// A name.
    pub(in crate::config) fn string(&self, key: Key, report: &mut Report<'_>) -> Option<&'n str> {
        self.get(key).and_then(|node| string(key, node, report))
    }

    /// One number for both axes, or `[vertical, horizontal]`.
    pub(in crate::config) fn pair(&self, key: Key, report: &mut Report<'_>) -> Option<[u32; 2]> {
        let node = self.get(key)?;
        match &node.value {
            Value::List(_) => integers(key, node, "[vertical, horizontal]", report),
            _ => integer(key, node, report).map(|number| [number; 2]),
        }
    }

    /// A list of `COUNT` whole numbers, described as `form` in messages.
    pub(in crate::config) fn integers<const COUNT: usize>(
        &self,
        key: Key,
        form: &str,
        report: &mut Report<'_>,
    ) -> Option<[u32; COUNT]> {
        self.get(key)
            .and_then(|node| integers(key, node, form, report))
    }
}

/// A whole number from 0 to the largest supported size; `key` names it in messages.
pub(in crate::config) fn integer(
    key: impl Display,
    node: &Node,
    report: &mut Report<'_>,
) -> Option<u32> {
    let found = report.quote(node);
    let message = match &node.value {
        Value::Integer(number) if (0..=i128::from(MAX_ELEMENTS)).contains(number) => {
            return u32::try_from(*number).ok();
        }
        Value::Integer(number) if *number < 0 => {
            format!("`{key}` is negative: {found}; it must be a whole number from 0")
        }
        Value::Integer(_) => format!("`{key}` is too large: {found}; at most {MAX_ELEMENTS}"),
        // YAML reads whole numbers beyond 64 bits as floats.
        Value::Float(number) if *number > u64::MAX as f64 => {
            format!("`{key}` is too large: {found}; at most {MAX_ELEMENTS}")
        }
        Value::String(text) if text.parse::<u32>().is_ok() => {
            format!("`{key}` must be a whole number, not the text {found}; remove the quotes")
        }
        Value::Null => format!("`{key}` has no value; write a whole number"),
        _ => format!("`{key}` must be a whole number, not {found}; use digits only"),
    };
    report.error(node.at, message);
    None
}

/// `true` or `false`.
pub(in crate::config) fn boolean(key: Key, node: &Node, report: &mut Report<'_>) -> Option<bool> {
    let message = match &node.value {
        Value::Bool(flag) => return Some(*flag),
        Value::Null => format!("`{key}` has no value; write true or false"),
        _ => format!("`{key}` must be true or false, not {}", report.quote(node)),
    };
    report.error(node.at, message);
    None
}

/// A name. YAML reads some unquoted names as numbers or booleans; the message gives the remedy.
pub(in crate::config) fn string<'n>(
    key: Key,
    node: &'n Node,
    report: &mut Report<'_>,
) -> Option<&'n str> {
    let found = report.quote(node);
    let message = match &node.value {
        Value::String(text) => return Some(text),
        Value::Null => format!("`{key}` has no value; write a name"),
        Value::List(_) | Value::Map(_) => {
            format!("`{key}` must be one name, not {found}; write a single name")
        }
        Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
            format!("`{key}` must be a name, not {found}; put it in quotes if it is one")
        }
    };
    report.error(node.at, message);
    None
}

/// The items of a list.
pub(in crate::config) fn list<'n>(
    key: Key,
    node: &'n Node,
    form: &str,
    report: &mut Report<'_>,
) -> Option<&'n [Node]> {
    let message = match &node.value {
        Value::List(items) => return Some(items),
        Value::Null => format!("`{key}` has no value; write {form}"),
        _ => format!(
            "`{key}` must be a list, not {}; write {form}",
            report.quote(node)
        ),
    };
    report.error(node.at, message);
    None
}

/// A list of `COUNT` whole numbers, described as `form` in messages.
pub(in crate::config) fn integers<const COUNT: usize>(
    key: Key,
    node: &Node,
    form: &str,
    report: &mut Report<'_>,
) -> Option<[u32; COUNT]> {
    let items = list(key, node, form, report)?;
    if items.len() != COUNT {
        report.error(
            node.at,
            format!(
                "`{key}` needs {COUNT} numbers, not {}; write {form}",
                items.len()
            ),
        );
        return None;
    }
    let numbers: Vec<_> = items
        .iter()
        .map(|item| integer(key, item, report))
        .collect();
    let numbers: Option<Vec<u32>> = numbers.into_iter().collect();
    numbers?.try_into().ok()
}
