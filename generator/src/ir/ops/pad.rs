//! Padding of images.

use super::ProblemKind;
use crate::ir::{ActivationParameter, Problem, Tensor, TensorShape, description, label};
use serde::Serialize;
use tdc_runtime::Padding;

/// What the rows and columns around an image are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PadMode {
    /// A finite number.
    Constant(ActivationParameter),
    /// The image mirrored at its first and last pixels, which are not repeated.
    Reflect,
    /// The nearest pixel of the image.
    Edge,
}

impl PadMode {
    /// All of them by their names in configs, a constant with the default value.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("constant", Self::ZERO),
        ("reflect", Self::Reflect),
        ("edge", Self::Edge),
    ];

    /// Zeros.
    pub const ZERO: Self = Self::Constant(ActivationParameter::new(0.0));

    /// Most pixels on a side of an axis of this size.
    pub fn limit(self, size: u32) -> u32 {
        match self {
            Self::Constant(_) | Self::Edge => u32::MAX,
            Self::Reflect => size - 1,
        }
    }
}

/// Rows and columns around each image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct PadProblem {
    /// What they are.
    pub mode: PadMode,
    /// Shape of the input.
    pub x: TensorShape,
    /// Number of pixels on each side, within the [limit](PadMode::limit) of the mode.
    pub padding: Padding,
}

impl ProblemKind for PadProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        let padded = |size: u32, before: u32, after: u32| {
            let size = u64::from(size) + u64::from(before) + u64::from(after);
            u32::try_from(size).unwrap_or(u32::MAX)
        };
        let Padding {
            top,
            left,
            bottom,
            right,
        } = self.padding;
        Tensor::nchw(TensorShape {
            h: padded(self.x.h, top, bottom),
            w: padded(self.x.w, left, right),
            ..self.x
        })
    }

    fn flops(&self) -> u64 {
        self.output().shape.len()
    }

    fn label(&self) -> String {
        let mode = match self.mode {
            PadMode::Constant(value) => label::number_label(value.get()),
            PadMode::Reflect => "reflect".to_owned(),
            PadMode::Edge => "edge".to_owned(),
        };
        let padding = label::padding(self.padding);
        format!("pad{mode}{}{padding}", label::sizes(self.x))
    }

    fn description(&self) -> String {
        let mode = match self.mode {
            PadMode::Constant(value) => format!("{}", value.get()),
            PadMode::Reflect => "the mirrored image".to_owned(),
            PadMode::Edge => "the nearest pixel".to_owned(),
        };
        format!("Images in {mode}{}", description::padding(self.padding))
    }

    fn measured(&self) -> Problem {
        Problem::Pad(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        pad_reference(self, inputs.x)
    }
}

/// The index of a padded pixel within `size` pixels, which are `before` behind the first; `None` for a constant.
#[cfg(feature = "check")]
fn source(mode: PadMode, size: u32, before: u32, index: u32) -> Option<usize> {
    let (size, index) = (i64::from(size), i64::from(index) - i64::from(before));
    let found = match mode {
        PadMode::Constant(_) => Some(index).filter(|index| (0..size).contains(index)),
        PadMode::Edge => Some(index.clamp(0, size - 1)),
        PadMode::Reflect if index < 0 => Some(-index),
        PadMode::Reflect if index >= size => Some(2 * (size - 1) - index),
        PadMode::Reflect => Some(index),
    };
    found.map(|index| index as usize)
}

/// Pixel by pixel.
#[cfg(feature = "check")]
pub fn pad_reference(p: &PadProblem, x: &[f64]) -> Vec<f64> {
    let out = p.output().shape;
    let mut y = Vec::with_capacity(out.len() as usize);
    for plane in x.chunks(p.x.pixels() as usize) {
        for row in 0..out.h {
            for column in 0..out.w {
                let row = source(p.mode, p.x.h, p.padding.top, row);
                let column = source(p.mode, p.x.w, p.padding.left, column);
                y.push(match (row, column, p.mode) {
                    (Some(row), Some(column), _) => plane[row * p.x.w as usize + column],
                    (_, _, PadMode::Constant(value)) => f64::from(value.get()),
                    _ => f64::NAN,
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
    fn pixels_are_numpys() {
        let row = |mode| {
            let padding = Padding {
                left: 2,
                right: 1,
                ..Padding::default()
            };
            let x = TensorShape::new(1, 1, 1, 3);
            pad_reference(&PadProblem { mode, x, padding }, &[1.0, 2.0, 3.0])
        };
        let half = PadMode::Constant(ActivationParameter::new(0.5));
        assert_eq!(row(half), [0.5, 0.5, 1.0, 2.0, 3.0, 0.5]);
        assert_eq!(row(PadMode::Edge), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(row(PadMode::Reflect), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    }
}
