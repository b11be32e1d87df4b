//! Why a plan cannot be made.

use thiserror::Error;

/// A layer that no unit can carry out as asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("layer `{layer}`: {message}; {help}")]
pub struct PlanError {
    /// The layer.
    pub layer: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: String,
}

impl PlanError {
    /// An error about one layer.
    pub fn new(layer: &str, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            layer: layer.to_owned(),
            message: message.into(),
            help: help.into(),
        }
    }
}
