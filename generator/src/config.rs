//! User input: configs in YAML, the grammar of `kernel!` and overrides of the command line, converted to
//! [`ir`](crate::ir).

mod config_error;
mod overrides;
pub mod schema;
pub mod text;
pub mod yaml;

pub use config_error::{ConfigError, ConfigErrors, Position};
pub use overrides::{InputShape, Overrides};
pub use text::{KernelRequest, LayerSource};
pub use yaml::Config;
