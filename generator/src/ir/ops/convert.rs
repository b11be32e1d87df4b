//! Conversion between formats.

use super::ProblemKind;
use crate::ir::{DType, Format, Layout, Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// Copy of a tensor to another format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ConvertProblem {
    /// Shape of the tensor.
    pub x: TensorShape,
    /// Format of the input.
    pub from: Format,
    /// Format of the output.
    pub to: Format,
}

impl ConvertProblem {
    /// Whether the input or the output is a [view](Format::pixel_stride) in NHWC.
    pub fn has_view(&self) -> bool {
        let mut formats = [self.from, self.to].into_iter();
        formats.any(|format| format.pixel_stride.is_some())
    }

    /// Whether one unit converts from one format to the other: between fp32 NCHW and the formats of values inside of a network, and to those
    /// of [outputs](crate::ir::NetworkOutput::format). A view is converted from or to fp32 NCHW.
    pub fn is_possible(&self) -> bool {
        const PLAIN: Format = Format::fp32(Layout::Nchw);
        const HWCN: Format = Format::fp32(Layout::Hwcn);
        const FP32_NHWC: Format = Format::fp32(Layout::Nhwc);
        let formats = [self.from, self.to];
        if self.has_view() {
            return formats.contains(&PLAIN)
                && formats.iter().all(|format| format.fits_view(self.x.c));
        }
        match (self.from, self.to) {
            (PLAIN, HWCN) | (HWCN, PLAIN) => true,
            (PLAIN, FP32_NHWC | Format::FP16_NCHW | Format::BF16_NCHW) => true,
            (PLAIN, Format::FP16_NHWC | Format::BF16_NHWC) => true,
            (PLAIN, Format::SPLIT_NHWC)
            | (Format::FP16_NHWC | Format::BF16_NHWC | Format::SPLIT_NHWC, PLAIN | FP32_NHWC) => {
                Format::SPLIT_NHWC.fits_channels(self.x.c)
            }
            _ => false,
        }
    }
}

impl ProblemKind for ConvertProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.from)
    }

    fn output(&self) -> Tensor {
        Tensor::new(self.x, self.to)
    }

    fn flops(&self) -> u64 {
        self.x.len()
    }

    fn label(&self) -> String {
        let name = |direction: &str, format| match format {
            Some(format) => format!("_{direction}{format}"),
            None => String::new(),
        };
        let from = name("from", label::nhwc_format(self.from));
        // One of two formats is not named: fp32 NCHW, or HWCN as the input.
        let to = match (self.to.dtype, self.to.layout) {
            (DType::Fp16, Layout::Nchw) => "_tonchw16".to_owned(),
            (DType::Bf16, Layout::Nchw) => "_tonchwbf16".to_owned(),
            (DType::Fp32, Layout::Nhwc) => "_tonhwc".to_owned(),
            (_, Layout::Nhwc) => name("to", label::nhwc_format(self.to)),
            (_, Layout::Hwcn) => "_hwcn".to_owned(),
            (_, Layout::Nchw) if self.from.layout == Layout::Hwcn => "_nchw".to_owned(),
            (_, Layout::Nchw) => String::new(),
        };
        format!("convert{}{from}{to}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        format!("Conversion from {} to {}", self.from.name(), self.to.name())
    }

    fn measured(&self) -> Problem {
        Problem::Convert(*self)
    }

    /// References are dense NCHW regardless of the problem's formats.
    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        inputs.x.to_vec()
    }
}
