//! Collects the errors of a text.

use super::node::{Node, Value};
use crate::config::{ConfigErrors, Position};

/// Number of characters of an invalid value that a message quotes.
const MAX_QUOTED_CHARS: usize = 60;

/// The errors found in a text.
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

    /// Number of errors; comparing it before and after shows whether reading succeeded.
    pub(in crate::config) fn count(&self) -> usize {
        self.errors.len()
    }

    /// A value in the user's notation, for messages.
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

    /// The result, or the errors in the order of the text; an error in a part that several ops share is
    /// reported once.
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
