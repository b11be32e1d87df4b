//! Collects the mistakes of one text.

use super::node::{Node, Value};
use crate::config::{ConfigErrors, Position};

/// Characters of a wrong value that a message repeats.
const MAX_QUOTED_CHARS: usize = 60;

/// The mistakes found so far in a text.
#[derive(Debug)]
pub(in crate::config) struct Report<'t> {
    text: &'t str,
    errors: Vec<(Position, String)>,
}

impl<'t> Report<'t> {
    pub(in crate::config) fn new(text: &'t str) -> Self {
        Self {
            text,
            errors: Vec::new(),
        }
    }

    pub(in crate::config) fn error(&mut self, at: Position, message: impl Into<String>) {
        self.errors.push((at, message.into()));
    }

    /// Mistakes so far: who compares two counts knows whether a part was read well.
    pub(in crate::config) fn count(&self) -> usize {
        self.errors.len()
    }

    /// A value in the words of the user, to put behind "not".
    pub(in crate::config) fn quote(&self, node: &Node) -> String {
        match &node.value {
            Value::Null => "nothing".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::String(_) => {
                let written = self.text.get(node.written.clone()).unwrap_or_default();
                let mut quoted: String = written.trim().chars().take(MAX_QUOTED_CHARS).collect();
                if quoted.len() < written.trim().len() {
                    quoted.push_str("...");
                }
                format!("`{quoted}`")
            }
        }
    }

    /// The result, or the mistakes in the order of the text; a part that several ops share is reported once.
    pub(in crate::config) fn finish<T>(
        mut self,
        file: &str,
        result: Option<T>,
    ) -> Result<T, ConfigErrors> {
        match result {
            Some(result) if self.errors.is_empty() => Ok(result),
            _ => {
                self.errors.sort();
                self.errors.dedup();
                Err(ConfigErrors::in_text(file, self.text, &self.errors))
            }
        }
    }
}
