//! Errors of planning.

use thiserror::Error;

/// A layer that no unit can compute as requested.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("layer `{layer}`: {message}; {help}")]
pub struct PlanError {
    /// The layer.
    pub layer: String,
    /// The key of the layer that cannot be satisfied, such as `scheme` or `tile`; `None` if its sizes are the reason.
    pub key: Option<&'static str>,
    /// The error.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl PlanError {
    /// An error of a layer, or of one of its keys.
    pub fn new(
        layer: &str,
        key: Option<&'static str>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            layer: layer.to_owned(),
            key,
            message: message.into(),
            help: help.into(),
        }
    }
}
