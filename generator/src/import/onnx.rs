//! ONNX: a file becomes a network and its weights.
//!
//! ```text
//! bytes --message--> messages --graph--> checked graph --convert--> ops of a network and named tensors
//! ```
//! Operator sets from 6 and IR versions from 3 are read. Everything that is not understood is an error: nodes, attributes, shapes. All
//! errors of a file are reported at once.

mod attributes;
mod channels_last_inputs;
mod convert;
mod elementwise;
mod error;
mod external;
mod fold;
mod footprint;
mod graph;
mod inputs;
mod message;
mod names;
mod tensor;

pub use error::{ImportError, ImportErrors, NodePlace};

use crate::config::Overrides;
use crate::ir::Network;
use error::EXPORT_AGAIN;
use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

#[cfg(test)]
mod tests;

/// A network from a file, with its weights.
#[derive(Debug)]
pub struct Imported {
    /// The network.
    pub network: Network,
    /// The tensors that it reads, by their names in a checkpoint.
    pub tensors: BTreeMap<String, Weights>,
}

/// A tensor in fp32.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Sizes of the axes, as in PyTorch.
    pub dims: Vec<usize>,
    /// Elements in row-major order.
    pub values: Vec<f32>,
}

#[cfg(feature = "weights")]
impl Imported {
    /// The network, and its tensors as a checkpoint.
    pub fn into_parts(self) -> (Network, tdc_weights::Checkpoint) {
        let tensors = self.tensors.into_iter();
        let values = tensors.map(|(name, tensor)| (name, tensor.dims, tensor.values));
        let checkpoint =
            tdc_weights::Checkpoint::from_values("of the ONNX file".to_owned(), values);
        (self.network, checkpoint)
    }
}

/// The largest file that is read: the limit of the protocol buffers format.
const MAX_BYTES: u64 = 2 << 30;

/// Most memory of the decoded messages of a file: so many bytes, and so many times its size.
const MAX_FIXED_FOOTPRINT: usize = 48 << 20;
const MAX_FOOTPRINT_FACTOR: usize = 4;

/// Reads a file; external data must be in its folder.
///
/// # Errors
/// All errors that can be found.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Imported, ImportErrors> {
    let file = path.display().to_string();
    let bytes =
        read(path).map_err(|(message, help)| ImportErrors::of_file(&file, message, help))?;
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(
        bytes.into(),
        &file,
        &names::identifier(&stem),
        Some(folder),
        overrides,
    )
}

fn read(path: &Path) -> Result<Vec<u8>, (String, &'static str)> {
    let explain = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ("no such file".to_owned(), "check the path"),
        _ => (
            format!("the file cannot be read: {error}"),
            "check the file",
        ),
    };
    let file = File::open(path).map_err(explain)?;
    if file.metadata().map_err(explain)?.is_dir() {
        return Err(("this is a directory".to_owned(), "give an ONNX file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed shows a file that is too large.
    let mut limited = file.take(MAX_BYTES + 1);
    limited.read_to_end(&mut bytes).map_err(explain)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err((
            "the file is larger than 2 GiB".to_owned(),
            "export it with external data",
        ));
    }
    Ok(bytes)
}

/// Imports the content of a file; `file` is its name in messages, `name` that of the network, and `folder` has the external data: without
/// it external data are errors.
///
/// # Errors
/// All errors that can be found.
pub fn parse(
    bytes: Bytes,
    file: &str,
    name: &str,
    folder: Option<&Path>,
    overrides: &Overrides,
) -> Result<Imported, ImportErrors> {
    let Some(footprint) = footprint::footprint(&bytes) else {
        let message = "the file is not an ONNX model: its fields are malformed".to_owned();
        let help = "check that it is complete";
        return Err(ImportErrors::of_file(file, message, help));
    };
    if footprint > MAX_FIXED_FOOTPRINT + MAX_FOOTPRINT_FACTOR * bytes.len() {
        let message = format!(
            "its {} bytes are so many small parts that they would take {} MiB of memory",
            bytes.len(),
            footprint >> 20
        );
        return Err(ImportErrors::of_file(file, message, EXPORT_AGAIN));
    }
    let model = message::Model::decode(bytes).map_err(|error| {
        ImportErrors::of_file(
            file,
            format!("the file is not an ONNX model: {error}"),
            "check that it is complete",
        )
    })?;
    let with_file = |errors| ImportErrors::new(file, errors);
    let graph = graph::Graph::new(model, folder, overrides).map_err(with_file)?;
    convert::convert(&graph, name, overrides).map_err(with_file)
}
