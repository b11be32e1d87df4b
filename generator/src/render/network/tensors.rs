//! The inputs and outputs of a network in its interface.

use crate::ir::{DType, Format, Layout, TensorShape};
use crate::plan::{NetworkPlan, PlannedTensor, TENSOR_ALIGNMENT};
use crate::render::text::{literal, markdown_cell};
use serde::Serialize;

/// The tensors of the interface, those of the largest batch.
#[derive(Serialize)]
pub(super) struct InterfaceContext {
    input_text: String,
    output_text: String,
    /// The format of tensors of which these texts name none.
    format_text: &'static str,
    inputs: Vec<TensorContext>,
    outputs: Vec<TensorContext>,
    /// Whether there is one input and one output; the interface then has simpler calls.
    single: bool,
    /// The C++ type of an element of the first input.
    x_type: &'static str,
    /// The C++ type of an element of the first output.
    y_type: &'static str,
    /// Whether an input is uint8.
    has_uint8: bool,
    /// The types of 16-bit numbers that outputs have: `fp16`, `bf16`.
    output_number_types: Vec<&'static str>,
    /// Whether an output is NHWC.
    has_nhwc_output: bool,
    /// Alignment of inputs and outputs, bytes.
    tensor_alignment: u64,
}

impl InterfaceContext {
    /// `largest` is the plan for the largest batch.
    pub(super) fn new(largest: &NetworkPlan) -> Self {
        let tensor = |tensor: &PlannedTensor| TensorContext::new(&largest.name, tensor);
        let inputs: Vec<_> = largest.inputs.iter().map(tensor).collect();
        let outputs: Vec<_> = largest.outputs.iter().map(tensor).collect();
        Self {
            input_text: largest.input_shapes(),
            output_text: largest.output_shapes(),
            format_text: format_text(largest),
            single: inputs.len() == 1 && outputs.len() == 1,
            x_type: inputs.first().map_or("float", |input| input.element),
            y_type: outputs.first().map_or("float", |output| output.element),
            output_number_types: ["fp16", "bf16"]
                .into_iter()
                .filter(|&dtype| outputs.iter().any(|output| output.dtype == dtype))
                .collect(),
            has_nhwc_output: outputs.iter().any(|output| output.layout == "nhwc"),
            has_uint8: inputs.iter().any(|input| input.dtype == "uint8"),
            inputs,
            outputs,
            tensor_alignment: TENSOR_ALIGNMENT,
        }
    }
}

/// The format of the inputs and outputs whose shapes are written without one.
pub(super) fn format_text(plan: &NetworkPlan) -> &'static str {
    let mut tensors = plan.inputs.iter().chain(&plan.outputs);
    match tensors.all(|tensor| tensor.format == Format::default()) {
        true => "fp32 NCHW",
        false => "fp32 NCHW unless stated",
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
    /// The sizes in the order of the layout, separated by commas.
    sizes: String,
    /// The name in a table of a README.
    markdown: String,
    dtype: &'static str,
    /// In lower case.
    layout: String,
    /// The type of an element in C++, and in PyTorch.
    #[serde(skip)]
    element: &'static str,
    torch_type: &'static str,
    shape: String,
    bytes: u64,
}

impl TensorContext {
    /// A tensor of the network `network`.
    fn new(network: &str, tensor: &PlannedTensor) -> Self {
        let PlannedTensor {
            name,
            shape,
            format,
        } = tensor;
        let dtype = format.dtype.as_str();
        let layout = format.layout.name().to_lowercase();
        let bytes = tensor.bytes();
        let row = |dtype: String, layout: String| {
            let TensorShape { batch, c, h, w } = *shape;
            let size = shape.len();
            let name = literal(name);
            format!("{{\"{name}\", {dtype}, {layout}, {batch}, {c}, {h}, {w}, {size}, {bytes}}}")
        };
        Self {
            cpp: row(format!("DType::{dtype}"), format!("Layout::{layout}")),
            c: row(format!("{network}_{dtype}"), format!("{network}_{layout}")),
            name: literal(name),
            identifier: python_identifier(name),
            sizes: ordered_sizes(*shape, format.layout)
                .map(|size| size.to_string())
                .join(", "),
            markdown: markdown_cell(name),
            dtype,
            layout,
            element: match format.dtype {
                DType::Uint8 => "unsigned char",
                DType::Fp16 => "__half",
                DType::Bf16 => "__nv_bfloat16",
                DType::Fp32 | DType::Split => "float",
            },
            torch_type: match format.dtype {
                DType::Uint8 => "uint8",
                DType::Fp16 => "float16",
                DType::Bf16 => "bfloat16",
                DType::Fp32 | DType::Split => "float32",
            },
            shape: shape.to_string(),
            bytes,
        }
    }
}

/// The sizes of a tensor, slowest axis first.
fn ordered_sizes(shape: TensorShape, layout: Layout) -> [u32; 4] {
    let TensorShape { batch, c, h, w } = shape;
    match layout {
        Layout::Nchw => [batch, c, h, w],
        Layout::Nhwc => [batch, h, w, c],
        Layout::Hwcn => [h, w, c, batch],
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
