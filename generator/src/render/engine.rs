//! The template engine with every template loaded.

use serde::Serialize;
use std::sync::OnceLock;
use tera::{Context, Tera};

/// A template that could not be filled: a defect of this crate, not of the input.
#[derive(Debug, thiserror::Error)]
#[error("template `{template}` cannot be rendered: {reason}")]
pub struct RenderError {
    template: String,
    reason: String,
}

impl RenderError {
    pub(super) fn new(template: &str, reason: impl ToString) -> Self {
        Self {
            template: template.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Fills the template `name` with `context`, which must be a struct or map.
pub fn render(name: &str, context: &impl Serialize) -> Result<String, RenderError> {
    static ENGINE: OnceLock<Result<Tera, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut tera = Tera::new();
        // C++ is not HTML, whatever a template is called.
        tera.autoescape_on(Vec::<String>::new());
        tera.add_raw_templates(tdc_templates::FILES.iter().copied())
            .map_err(|error| error.to_string())?;
        Ok(tera)
    });
    let engine = engine
        .as_ref()
        .map_err(|reason| RenderError::new(name, reason))?;
    let context =
        Context::from_serialize(context).map_err(|error| RenderError::new(name, error))?;
    engine
        .render(name, &context)
        .map_err(|error| RenderError::new(name, error))
}
