//! What users write: configs in YAML, the grammar of `kernel!`, and what the command line overrides, turned into [`ir`](crate::ir).

mod config_error;
pub mod text;
pub mod yaml;

pub use config_error::{ConfigError, ConfigErrors, Position};
pub use text::{KernelRequest, LayerSource};
pub use yaml::{Config, Overrides};
