//! Pieces of the canonical names of ops. The grammar is in `plan/name.rs`.

use super::{Activation, DType, Epilogue, Format, Layout, Precision, Prologue, TensorShape};
use tdc_runtime::{ConvShape, Padding};

/// `_b4`, or nothing for one image.
pub(super) fn batch(batch: u32) -> String {
    match batch {
        1 => String::new(),
        batch => format!("_b{batch}"),
    }
}

/// `_b2_c3_h13_w11`.
pub(super) fn sizes(x: TensorShape) -> String {
    format!("{}_c{}_h{}_w{}", batch(x.batch), x.c, x.h, x.w)
}

/// The formats of input and output: nothing for fp32 NCHW, `_hwcn` for fp32 HWCN; for fp16 NHWC `_nhwc16`, or `_fromnhwc16` and
/// `_tonhwc16` if the other one is fp32 NCHW, or both if they differ, as views do; for bf16 NHWC and split NHWC likewise with `nhwcbf16` and
/// `nhwcsplit`; for an input in uint8 `_fromuint8nhwc`, and the format of the output.
pub(super) fn formats(input: Format, output: Format) -> String {
    if input.dtype == DType::Uint8 {
        return from_uint8(input, output);
    }
    match [input, output].map(nhwc_format) {
        [Some(input), Some(output)] if input == output => format!("_{input}"),
        [Some(input), Some(output)] => format!("_from{input}_to{output}"),
        [Some(input), None] => format!("_from{input}"),
        [None, Some(output)] => format!("_to{output}"),
        [None, None] if input.layout == Layout::Hwcn => "_hwcn".to_owned(),
        [None, None] => String::new(),
    }
}

/// The names of NHWC formats that are no views.
pub(crate) const NHWC_FORMATS: [(&str, Format); 3] = [
    ("nhwc16", Format::FP16_NHWC),
    ("nhwcbf16", Format::BF16_NHWC),
    ("nhwcsplit", Format::SPLIT_NHWC),
];

/// `nhwc16`, `nhwcbf16` or `nhwcsplit`, of a view followed by `of` and the channels of the tensor that contains it; none for other formats.
pub(super) fn nhwc_format(format: Format) -> Option<String> {
    let mut names = NHWC_FORMATS.into_iter();
    let (name, _) = names.find(|(_, named)| *named == format.dense())?;
    Some(match format.pixel_stride {
        Some(channels) => format!("{name}of{channels}"),
        None => name.to_owned(),
    })
}

/// `_fromuint8nhwc`, followed by the format of the output as by [`formats`].
fn from_uint8(input: Format, output: Format) -> String {
    let output = formats(Format::default(), output);
    format!("_from{}{output}", input_format(input))
}

/// `fp32nhwc`, `uint8nchw`: an input in the caller's memory.
pub(super) fn input_format(format: Format) -> String {
    format.dtype.as_str().to_owned() + &format.layout.name().to_lowercase()
}

/// `_s2`, `_s1x2`, or nothing for the default in both directions.
pub(super) fn pair(letter: &str, [v, h]: [u32; 2], default: u32) -> String {
    if v != h {
        format!("_{letter}{v}x{h}")
    } else if v != default {
        format!("_{letter}{v}")
    } else {
        String::new()
    }
}

/// `_p1`, `_p1x0x1x0` (top, left, bottom, right), or nothing without padding.
pub(super) fn padding(p: Padding) -> String {
    if p == Padding::all(p.top) {
        pair("p", [p.top, p.top], 0)
    } else {
        format!("_p{}x{}x{}x{}", p.top, p.left, p.bottom, p.right)
    }
}

/// Image, filter and options of a convolution.
pub(super) fn filter(s: &ConvShape) -> String {
    let mut name = format!("_h{}_w{}_k{}x{}", s.h, s.w, s.r, s.s);
    name += &pair("s", s.stride, 1);
    name += &padding(s.padding);
    name += &pair("d", s.dilation, 1);
    if s.groups > 1 {
        name += &format!("_g{}", s.groups);
    }
    name
}

/// `_prologue`, followed by its activation function.
pub(super) fn prologue(p: Option<Prologue>) -> String {
    p.map_or(String::new(), |p| {
        format!("_prologue{}", activation(p.activation))
    })
}

/// `_bias`, `_residual` and the activation function, each if present.
pub(super) fn epilogue(e: Epilogue) -> String {
    let mut name = String::new();
    for (present, part) in [(e.bias, "_bias"), (e.residual, "_residual")] {
        name += if present { part } else { "" };
    }
    match e.activation {
        Activation::None => name,
        other => format!("{name}_{}", activation(other)),
    }
}

/// Name of the activation function in one word, with its parameters: `clip0x6`; empty for none.
pub(super) fn activation(activation: Activation) -> String {
    if activation == Activation::None {
        return String::new();
    }
    let parameters = activation.parameters().into_iter().map(number_label);
    activation.as_str().replace('_', "") + &parameters.collect::<Vec<_>>().join("x")
}

/// The activation of a name that [`activation`] writes.
pub(crate) fn activation_of_label(label: &str) -> Option<Activation> {
    if label.is_empty() {
        return Some(Activation::None);
    }
    let named = Activation::NAMES.iter().filter_map(|(name, known)| {
        let parameters = label.strip_prefix(&name.replace('_', ""))?;
        let parameters = parameters.split('x').filter(|text| !text.is_empty());
        let parameters: Option<Vec<f32>> = parameters.map(number_of_label).collect();
        known.with_parameters(&parameters?)
    });
    named
        .into_iter()
        .find(|&activation| self::activation(activation) == label)
}

/// A number as part of an identifier: the shortest that is read as the same, with `p` for the point and `m` for minus.
pub(crate) fn number_label(number: f32) -> String {
    let [plain, scientific] = [format!("{number}"), format!("{number:e}")];
    let shortest = match scientific.len() < plain.len() {
        true => scientific,
        false => plain,
    };
    shortest.replace('.', "p").replace('-', "m")
}

/// The number of a label that [`number_label`] writes.
pub(crate) fn number_of_label(label: &str) -> Option<f32> {
    label.replace('p', ".").replace('m', "-").parse().ok()
}

/// `_tf32`, or nothing for fp32.
pub(super) fn precision(p: Precision) -> String {
    match p {
        Precision::Fp32 => String::new(),
        _ => format!("_{}", p.as_str()),
    }
}
