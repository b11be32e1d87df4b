//! Parts of the sentences that describe ops in generated files.

use super::{Activation, DType, Epilogue, Format, Precision, Prologue};
use tdc_runtime::{ConvShape, Padding};

/// A filter with its options.
pub(super) fn filter(shape: &ConvShape) -> String {
    let mut text = pair([shape.r, shape.s]);
    text += &unless("stride", shape.stride, [1, 1]);
    text += &padding(shape.padding);
    text += &unless("dilation", shape.dilation, [1, 1]);
    if shape.groups > 1 {
        text += &format!(", {} groups", shape.groups);
    }
    text
}

pub(super) fn prologue(prologue: Option<Prologue>) -> String {
    match prologue.map(|prologue| prologue.activation) {
        None => String::new(),
        Some(Activation::None) => ", of scale * x + shift".to_owned(),
        Some(activation) => {
            let parameters = activation.parameters().into_iter();
            let parameters: String = parameters.map(|number| format!(", {number}")).collect();
            format!(", of {}(scale * x + shift{parameters})", activation.title())
        }
    }
}

pub(super) fn epilogue(epilogue: Epilogue) -> String {
    let mut text = String::new();
    for (present, part) in [(epilogue.bias, ", bias"), (epilogue.residual, ", residual")] {
        text += if present { part } else { "" };
    }
    text + &activation(epilogue.activation)
}

/// The activation function after a comma; empty for none.
pub(super) fn activation(activation: Activation) -> String {
    match activation {
        Activation::None => String::new(),
        other => format!(", {}", activation_title(other)),
    }
}

/// The activation with its parameters in brackets.
pub(super) fn activation_title(activation: Activation) -> String {
    let parameters = activation.parameters();
    let parameters: Vec<_> = parameters.iter().map(f32::to_string).collect();
    match parameters.is_empty() {
        true => activation.title().to_owned(),
        false => format!("{} ({})", activation.title(), parameters.join(", ")),
    }
}

pub(super) fn precision(precision: Precision) -> String {
    match precision {
        Precision::Fp32 => String::new(),
        _ => format!(", products of {} precision", precision.as_str()),
    }
}

/// The formats of input and output, if one of them is not fp32.
pub(super) fn formats(input: Format, output: Format) -> String {
    if [input, output].map(|format| format.dtype) == [DType::Fp32; 2] {
        String::new()
    } else if input == output {
        format!(", {}", input.name())
    } else {
        format!(", {} to {}", input.name(), output.name())
    }
}

pub(super) fn pair([vertical, horizontal]: [u32; 2]) -> String {
    format!("{vertical}x{horizontal}")
}

pub(super) fn unless(what: &str, value: [u32; 2], default: [u32; 2]) -> String {
    if value == default {
        String::new()
    } else {
        format!(", {what} {}", pair(value))
    }
}

pub(super) fn padding(padding: Padding) -> String {
    if padding == Padding::default() {
        String::new()
    } else if padding == Padding::all(padding.top) {
        format!(", padding {}", padding.top)
    } else {
        format!(
            ", padding {} above, {} left, {} below, {} right",
            padding.top, padding.left, padding.bottom, padding.right
        )
    }
}
