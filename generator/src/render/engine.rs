//! The template engine with every template loaded.

use super::margin::break_long_lines;
use serde::Serialize;
use std::sync::OnceLock;
use tera::{Context, Tera};

/// A template that cannot be rendered: a defect of this crate, not of the input.
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

/// Renders the template `name` with `context`, which must be a struct or map. Lines of C++ are broken at the margin.
pub fn render(name: &str, context: &impl Serialize) -> Result<String, RenderError> {
    static ENGINE: OnceLock<Result<Tera, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        let mut tera = Tera::new();
        // The output is C++, not HTML: no escaping for any template.
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
    let text = engine
        .render(name, &context)
        .map_err(|error| RenderError::new(name, error))?;
    let is_cpp = [".cu", ".cuh", ".h"].iter().any(|end| name.ends_with(end));
    Ok(match is_cpp {
        true => break_long_lines(&text),
        false => text,
    })
}
