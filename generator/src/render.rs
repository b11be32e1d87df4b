//! From plans to text. All arithmetic is done before: the templates only place finished numbers.

mod engine;
mod kernel;

pub use engine::RenderError;
pub use kernel::{kernel_text, unit_text};
