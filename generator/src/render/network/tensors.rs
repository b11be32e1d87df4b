//! The inputs and outputs of a network in its interface.

use crate::ir::TensorShape;
use crate::plan::{NetworkPlan, PlannedTensor, TENSOR_ALIGNMENT};
use crate::render::text::{literal, markdown_cell};
use serde::Serialize;

/// The tensors of the interface, those of the largest batch.
#[derive(Serialize)]
pub(super) struct InterfaceContext {
    input_text: String,
    output_text: String,
    inputs: Vec<TensorContext>,
    outputs: Vec<TensorContext>,
    /// Whether there is one input and one output; the interface then has simpler calls.
    single: bool,
    /// Alignment of inputs and outputs, bytes.
    tensor_alignment: u64,
}

impl InterfaceContext {
    /// `largest` is the plan for the largest batch.
    pub(super) fn new(largest: &NetworkPlan) -> Self {
        let tensor =
            |tensor: &PlannedTensor| TensorContext::new(&largest.name, &tensor.name, tensor.shape);
        let inputs: Vec<_> = largest.inputs.iter().map(tensor).collect();
        let outputs: Vec<_> = largest.outputs.iter().map(tensor).collect();
        Self {
            input_text: largest.input_shapes(),
            output_text: largest.output_shapes(),
            single: inputs.len() == 1 && outputs.len() == 1,
            inputs,
            outputs,
            tensor_alignment: TENSOR_ALIGNMENT,
        }
    }
}

/// An input or output of the network.
#[derive(Serialize)]
struct TensorContext {
    /// Its row of the table, in C++ and in C.
    cpp: String,
    c: String,
    name: String,
    /// A Python name for it.
    identifier: String,
    /// Batch, channels, height and width, separated by commas.
    sizes: String,
    /// The name in a table of a README.
    markdown: String,
    dtype: &'static str,
    layout: &'static str,
    shape: String,
    bytes: u64,
}

impl TensorContext {
    /// An fp32 tensor in NCHW, of the network `network`.
    fn new(network: &str, name: &str, shape: TensorShape) -> Self {
        let (dtype, layout, element_bytes) = ("fp32", "nchw", 4);
        let bytes = element_bytes * shape.len();
        let row = |dtype: String, layout: String| {
            let TensorShape { batch, c, h, w } = shape;
            let size = shape.len();
            let name = literal(name);
            format!("{{\"{name}\", {dtype}, {layout}, {batch}, {c}, {h}, {w}, {size}, {bytes}}}")
        };
        Self {
            cpp: row(format!("DType::{dtype}"), format!("Layout::{layout}")),
            c: row(format!("{network}_{dtype}"), format!("{network}_{layout}")),
            name: literal(name),
            identifier: python_identifier(name),
            sizes: [shape.batch, shape.c, shape.h, shape.w]
                .map(|size| size.to_string())
                .join(", "),
            markdown: markdown_cell(name),
            dtype,
            layout,
            shape: shape.to_string(),
            bytes,
        }
    }
}

/// A Python name from the name of a tensor.
fn python_identifier(name: &str) -> String {
    let letters = name.chars();
    let letters = letters.map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let name: String = letters.collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}
