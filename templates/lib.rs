//! The templates of generated code, embedded.

/// Name and text of every template.
pub const FILES: &[(&str, &str)] = &[];
