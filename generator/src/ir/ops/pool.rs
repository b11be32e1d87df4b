//! Pooling over windows.

use super::ProblemKind;
use crate::ir::{Format, Problem, Tensor, TensorShape, description, label};
use serde::Serialize;
use tdc_runtime::Padding;

/// Reduction of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub enum PoolKind {
    /// The largest element; padding is minus infinity.
    Max,
    /// The mean.
    Avg {
        /// Padded zeros count as elements.
        count_include_pad: bool,
    },
}

/// Pooling over windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct PoolProblem {
    /// Maximum or average.
    pub kind: PoolKind,
    /// Shape of the input.
    pub x: TensorShape,
    /// Window height and width.
    pub kernel: [u32; 2],
    /// Distance of adjacent windows, (vertical, horizontal).
    pub stride: [u32; 2],
    /// Padding.
    pub padding: Padding,
    /// Distance of a window's elements, (vertical, horizontal).
    pub dilation: [u32; 2],
    /// Output height and width (they depend on `ceil_mode`).
    pub out: [u32; 2],
    /// Format of the input.
    pub input: Format,
    /// Format of the output.
    pub output: Format,
}

impl PoolProblem {
    /// Whether the output size is rounded up where it is not a whole number.
    pub fn ceil_mode(&self) -> bool {
        let pad = self.padding;
        let whole = |size: u32, pads: u32, axis: usize| {
            let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            let steps = (size + pads).checked_sub(reach)?;
            Some(steps / self.stride[axis] + 1)
        };
        let rows = whole(self.x.h, pad.top + pad.bottom, 0);
        let columns = whole(self.x.w, pad.left + pad.right, 1);
        self.out.map(Some) != [rows, columns]
    }
}

impl ProblemKind for PoolProblem {
    fn input(&self) -> Tensor {
        Tensor::new(self.x, self.input)
    }

    fn output(&self) -> Tensor {
        let [h, w] = self.out;
        Tensor::new(TensorShape { h, w, ..self.x }, self.output)
    }

    fn terms(&self) -> f64 {
        f64::from(self.kernel[0]) * f64::from(self.kernel[1])
    }

    fn flops(&self) -> u64 {
        let window = u64::from(self.kernel[0]) * u64::from(self.kernel[1]);
        self.output().shape.len().saturating_mul(window)
    }

    fn label(&self) -> String {
        let kind = match self.kind {
            PoolKind::Max => "maxpool",
            PoolKind::Avg {
                count_include_pad: true,
            } => "avgpool",
            PoolKind::Avg {
                count_include_pad: false,
            } => "avgpoolvalid",
        };
        format!(
            "{kind}{}_k{}x{}{}{}{}_o{}x{}{}",
            label::sizes(self.x),
            self.kernel[0],
            self.kernel[1],
            label::pair("s", self.stride, 1),
            label::padding(self.padding),
            label::pair("d", self.dilation, 1),
            self.out[0],
            self.out[1],
            label::formats(self.input, self.output)
        )
    }

    fn description(&self) -> String {
        let kind = match self.kind {
            PoolKind::Max => "Maximum",
            PoolKind::Avg {
                count_include_pad: true,
            } => "Average (padding counts)",
            PoolKind::Avg {
                count_include_pad: false,
            } => "Average (padding does not count)",
        };
        let mut text = format!("{kind} over {}", description::pair(self.kernel));
        text += &description::unless("stride", self.stride, [1, 1]);
        text += &description::padding(self.padding);
        text += &description::unless("dilation", self.dilation, [1, 1]);
        text + &description::formats(self.input, self.output)
    }

    fn measured(&self) -> Problem {
        Problem::Pool(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        pool_reference(self, inputs.x)
    }
}

/// Plain loops over every window.
#[cfg(feature = "check")]
pub fn pool_reference(p: &PoolProblem, x: &[f64]) -> Vec<f64> {
    let (h, w) = (i64::from(p.x.h), i64::from(p.x.w));
    let mut y = Vec::new();
    for plane in x.chunks((h * w) as usize) {
        for i in 0..i64::from(p.out[0]) {
            for j in 0..i64::from(p.out[1]) {
                let row0 = i * i64::from(p.stride[0]) - i64::from(p.padding.top);
                let column0 = j * i64::from(p.stride[1]) - i64::from(p.padding.left);
                let mut elements = Vec::new();
                let mut counted = 0;
                for r in 0..i64::from(p.kernel[0]) {
                    for s in 0..i64::from(p.kernel[1]) {
                        let row = row0 + r * i64::from(p.dilation[0]);
                        let column = column0 + s * i64::from(p.dilation[1]);
                        if row < h + i64::from(p.padding.bottom)
                            && column < w + i64::from(p.padding.right)
                        {
                            counted += 1;
                        }
                        if (0..h).contains(&row) && (0..w).contains(&column) {
                            elements.push(plane[(row * w + column) as usize]);
                        }
                    }
                }
                y.push(match p.kind {
                    PoolKind::Max => elements.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    PoolKind::Avg {
                        count_include_pad: true,
                    } => elements.iter().sum::<f64>() / f64::from(counted),
                    PoolKind::Avg {
                        count_include_pad: false,
                    } => elements.iter().sum::<f64>() / elements.len() as f64,
                });
            }
        }
    }
    y
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;

    #[test]
    fn averages_count_padding_but_not_ceil_mode_overhang() {
        // PyTorch: AvgPool2d(2, stride=2, padding=1, ceil_mode=True) on 1x2 rows of ones.
        let problem = |count_include_pad| PoolProblem {
            kind: PoolKind::Avg { count_include_pad },
            x: TensorShape::new(1, 1, 2, 2),
            kernel: [2, 2],
            stride: [2, 2],
            padding: Padding::all(1),
            dilation: [1, 1],
            out: [2, 2],
            input: Format::default(),
            output: Format::default(),
        };
        let x = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(pool_reference(&problem(true), &x), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(pool_reference(&problem(false), &x), [1.0, 2.0, 3.0, 4.0]);
    }
}
