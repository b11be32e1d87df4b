//! Parses YAML into a tree whose nodes have positions.
//!
//! Typed deserialisation stops at the first error and words it for Rust programmers. With a tree, the code
//! that knows the keys reports all errors, at their positions.

use super::report::Report;
use crate::config::Position;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_yaml::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};
use std::fmt;
use std::ops::Range;

/// Maximal nesting; a config needs five levels.
const MAX_DEPTH: usize = 24;

/// Maximal number of values that aliases may add, so that a few lines cannot expand to gigabytes.
const MAX_ALIASED: usize = 100_000;

/// A value with its position.
#[derive(Debug, Clone)]
pub(in crate::config) struct Node {
    pub(in crate::config) value: Value,
    /// Its position; for an alias, that of the alias.
    pub(in crate::config) at: Position,
    /// Its bytes in the text; for an alias, those of the anchored value.
    pub(in crate::config) written: Range<usize>,
}

/// The YAML values that a config can have.
#[derive(Debug, Clone)]
pub(in crate::config) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    String(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

/// The tree of a text; `None` after an error.
pub(super) fn read(text: &str, report: &mut Report<'_>) -> Option<Node> {
    let start = Position { line: 1, column: 1 };
    let options = serde_yaml::options! {
        budget: serde_yaml::budget! { max_depth: MAX_DEPTH, max_documents: 2 },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: MAX_ALIASED },
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        with_snippet: false,
    };
    let problem = match serde_yaml::from_str_with_options::<Node>(text, options) {
        Ok(Node {
            value: Value::Null, ..
        })
        | Err(Error::Eof { .. })
            if text.lines().all(is_blank) =>
        {
            "the file is empty; a config has `name`, `input` and `ops`, or `name` and `layers`"
                .to_owned()
        }
        Ok(node) => return Some(node),
        Err(error) => {
            let at = error.location().map_or(start, position);
            report.error(at, explain(&error));
            return None;
        }
    };
    report.error(start, problem);
    None
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn explain(error: &Error) -> String {
    match error {
        Error::AliasError { error, .. } => explain(error),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("duplicate key `{key}`; remove one of the two")
        }
        Error::MultipleDocuments { .. } => {
            "a second document begins; a file holds one config".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "this alias has no anchor; write `&name` before the value that `*name` repeats"
                .to_owned()
        }
        Error::AliasReplayLimitExceeded { .. } => {
            format!("aliases repeat more than {MAX_ALIASED} values; write fewer")
        }
        other => {
            let message = UserMessageFormatter.format_message(other).into_owned();
            let help = if message.contains("tab") {
                "indent with spaces"
            } else {
                "check brackets, quotes, colons and indentation here and just before"
            };
            format!("not valid YAML: {message}; {help}")
        }
    }
}

fn position(location: Location) -> Position {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).max(1);
    Position {
        line: number(location.line()),
        column: number(location.column()),
    }
}

fn written(location: Location) -> Range<usize> {
    let span = location.span();
    let number = |n: Option<u64>| usize::try_from(n.unwrap_or(0)).unwrap_or(0);
    let start = number(span.byte_offset());
    start..start.saturating_add(number(span.byte_len()))
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            value: spanned.value,
            at: position(spanned.referenced),
            written: written(spanned.defined),
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Value::Map(map))
    }
}
