//! Writes plans to folders: ordered files, a manifest of what the generator wrote, and safe replacement of
//! files.

mod check;
mod error;
mod file_system;
mod files;
mod lock;
mod manifest;
mod write;

pub use check::{Difference, DifferenceKind, check, check_bytes};
pub use error::EmitError;
pub use files::{Files, add_python_module, layer_set_files, network_files};
pub use manifest::MANIFEST;
pub use write::{StagedWrite, WriteSummary, stage, write, write_all_atomic, write_atomic};
