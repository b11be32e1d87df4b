//! The constants of the weight file's format.

use serde::Serialize;
use tdc_runtime::WeightFile;

/// The constants of the weight file's format.
#[derive(Serialize)]
pub(super) struct WeightFileContext {
    magic: String,
    version: u32,
    header_bytes: u64,
    alignment: u64,
}

impl WeightFileContext {
    pub(super) fn new() -> Self {
        let magic: Vec<_> = WeightFile::MAGIC
            .iter()
            .map(|byte| format!("'{}'", byte.escape_ascii()))
            .collect();
        Self {
            magic: magic.join(", ").replace("'\\x00'", "'\\0'"),
            version: WeightFile::VERSION,
            header_bytes: WeightFile::HEADER_BYTES,
            alignment: WeightFile::ALIGNMENT,
        }
    }
}
