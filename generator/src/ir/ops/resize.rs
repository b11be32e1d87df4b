//! Resizing of images by interpolation, as ONNX defines it.

use super::ProblemKind;
use crate::ir::{Problem, Tensor, TensorShape, label};
use serde::Serialize;

/// The place in the input of an output pixel, along each axis. A pixel of the input is at its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Coordinates {
    /// `(pixel + 0.5) * in / out - 0.5`: the centres of corner pixels are as far from the border in both images.
    #[default]
    HalfPixel,
    /// The same, but 0 for an output of one pixel.
    PytorchHalfPixel,
    /// `pixel * (in - 1) / (out - 1)`: the centres of corner pixels coincide; 0 for an output of one pixel.
    AlignCorners,
    /// `pixel * in / out`: the corners of the images coincide at the top left.
    Asymmetric,
}

impl Coordinates {
    /// All of them by their names in configs and in ONNX.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("half_pixel", Self::HalfPixel),
        ("pytorch_half_pixel", Self::PytorchHalfPixel),
        ("align_corners", Self::AlignCorners),
        ("asymmetric", Self::Asymmetric),
    ];
}

/// The pixel of the input that is nearest to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// The nearest one; of two the one before.
    #[default]
    PreferFloor,
    /// The nearest one; of two the one behind.
    PreferCeil,
    /// The one before.
    Floor,
    /// The one behind.
    Ceil,
}

impl Rounding {
    /// All of them by their names in configs.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("prefer_floor", Self::PreferFloor),
        ("prefer_ceil", Self::PreferCeil),
        ("floor", Self::Floor),
        ("ceil", Self::Ceil),
    ];
}

/// How an output pixel is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// One pixel of the input.
    Nearest(Rounding),
    /// The four around the place, weighted by their distances. Beyond the border the image goes on with its border pixels.
    Bilinear,
}

/// Resizing of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct ResizeProblem {
    /// Shape of the input.
    pub x: TensorShape,
    /// Output height and width.
    pub out: [u32; 2],
    /// Where output pixels are in the input.
    pub coordinates: Coordinates,
    /// What is computed there.
    pub interpolation: Interpolation,
}

/// The place of an output pixel in the input along an axis: `(scale * pixel + shift) / divisor`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AxisPlaces {
    /// Factor of the pixel.
    pub scale: i64,
    /// Added to it.
    pub shift: i64,
    /// Positive.
    pub divisor: i64,
}

impl ResizeProblem {
    /// Largest product of the input's and the output's size along an axis: places are computed in 32 bits.
    pub const MAX_PRODUCT: u64 = 1 << 28;

    /// The places along an axis: 0 for rows, 1 for columns.
    pub fn places(&self, axis: usize) -> AxisPlaces {
        let size = i64::from([self.x.h, self.x.w][axis]);
        let out = i64::from(self.out[axis]);
        let at_zero = AxisPlaces {
            scale: 0,
            shift: 0,
            divisor: 1,
        };
        match self.coordinates {
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if out == 1 => at_zero,
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => AxisPlaces {
                scale: 2 * size,
                shift: size - out,
                divisor: 2 * out,
            },
            Coordinates::AlignCorners => AxisPlaces {
                scale: size - 1,
                shift: 0,
                divisor: out - 1,
            },
            Coordinates::Asymmetric => AxisPlaces {
                scale: size,
                shift: 0,
                divisor: out,
            },
        }
    }
}

impl ProblemKind for ResizeProblem {
    fn input(&self) -> Tensor {
        Tensor::nchw(self.x)
    }

    fn output(&self) -> Tensor {
        let [h, w] = self.out;
        Tensor::nchw(TensorShape { h, w, ..self.x })
    }

    fn terms(&self) -> f64 {
        match self.interpolation {
            Interpolation::Nearest(_) => 1.0,
            Interpolation::Bilinear => 4.0,
        }
    }

    fn flops(&self) -> u64 {
        self.output().shape.len() * self.terms() as u64
    }

    fn label(&self) -> String {
        let interpolation = match self.interpolation {
            Interpolation::Nearest(Rounding::PreferFloor) => "nearest",
            Interpolation::Nearest(Rounding::PreferCeil) => "nearestpreferceil",
            Interpolation::Nearest(Rounding::Floor) => "nearestfloor",
            Interpolation::Nearest(Rounding::Ceil) => "nearestceil",
            Interpolation::Bilinear => "bilinear",
        };
        let coordinates = match self.coordinates {
            Coordinates::HalfPixel => "",
            Coordinates::PytorchHalfPixel => "_pytorch",
            Coordinates::AlignCorners => "_align",
            Coordinates::Asymmetric => "_asymmetric",
        };
        let (sizes, [h, w]) = (label::sizes(self.x), self.out);
        format!("{interpolation}{sizes}_o{h}x{w}{coordinates}")
    }

    fn description(&self) -> String {
        let interpolation = match self.interpolation {
            Interpolation::Nearest(_) => "Nearest pixels",
            Interpolation::Bilinear => "Bilinear interpolation",
        };
        let name = |names: &[(&'static str, Coordinates)]| {
            let mut names = names.iter();
            let found = names.find(|(_, known)| *known == self.coordinates);
            found.map_or("", |(name, _)| *name)
        };
        format!("{interpolation}, coordinates {}", name(&Coordinates::NAMES))
    }

    fn measured(&self) -> Problem {
        Problem::Resize(*self)
    }

    #[cfg(feature = "check")]
    fn reference(&self, inputs: &crate::ir::ReferenceInputs) -> Vec<f64> {
        resize_reference(self, inputs.x)
    }
}

/// The definitions of ONNX, pixel by pixel.
#[cfg(feature = "check")]
pub fn resize_reference(p: &ResizeProblem, x: &[f64]) -> Vec<f64> {
    let (h, w) = (p.x.h as usize, p.x.w as usize);
    let place = |pixel: u32, size: u32, out: u32| {
        let (pixel, input, output) = (f64::from(pixel), f64::from(size), f64::from(out));
        let place = match p.coordinates {
            Coordinates::PytorchHalfPixel | Coordinates::AlignCorners if out == 1 => 0.0,
            Coordinates::HalfPixel | Coordinates::PytorchHalfPixel => {
                (pixel + 0.5) * input / output - 0.5
            }
            Coordinates::AlignCorners => pixel * (input - 1.0) / (output - 1.0),
            Coordinates::Asymmetric => pixel * input / output,
        };
        // A place half-way between two pixels must be that exactly.
        let denominator = 2.0 * output * (output - 1.0).max(1.0);
        (place * denominator).round() / denominator
    };
    let inside = |index: f64, size: usize| (index.max(0.0) as usize).min(size - 1);
    let mut y = Vec::new();
    for plane in x.chunks(h * w) {
        for i in 0..p.out[0] {
            for j in 0..p.out[1] {
                let (row, column) = (place(i, p.x.h, p.out[0]), place(j, p.x.w, p.out[1]));
                y.push(match p.interpolation {
                    Interpolation::Nearest(rounding) => {
                        let nearest = |place: f64| match rounding {
                            Rounding::PreferFloor => (place - 0.5).ceil(),
                            Rounding::PreferCeil => (place + 0.5).floor(),
                            Rounding::Floor => place.floor(),
                            Rounding::Ceil => place.ceil(),
                        };
                        plane[inside(nearest(row), h) * w + inside(nearest(column), w)]
                    }
                    Interpolation::Bilinear => {
                        let (down, right) = (row - row.floor(), column - column.floor());
                        let mut sum = 0.0;
                        for (step, row_weight) in [(0.0, 1.0 - down), (1.0, down)] {
                            let row = inside(row.floor() + step, h);
                            let left_weight = 1.0 - right;
                            for (step, weight) in [(0.0, left_weight), (1.0, right)] {
                                let column = inside(column.floor() + step, w);
                                sum += row_weight * weight * plane[row * w + column];
                            }
                        }
                        sum
                    }
                });
            }
        }
    }
    y
}

#[cfg(all(test, feature = "check"))]
mod tests {
    use super::*;

    fn resized(
        x: [u32; 2],
        out: [u32; 2],
        coordinates: Coordinates,
        interpolation: Interpolation,
        values: &[f64],
    ) -> Vec<f64> {
        let problem = ResizeProblem {
            x: TensorShape::new(1, 1, x[0], x[1]),
            out,
            coordinates,
            interpolation,
        };
        resize_reference(&problem, values)
    }

    /// Expected values of the examples in the ONNX specification of `Resize`.
    #[test]
    fn examples_of_the_specification() {
        let square: Vec<f64> = (1..=16).map(f64::from).collect();
        let nearest = Interpolation::Nearest(Rounding::PreferFloor);
        assert_eq!(
            resized(
                [2, 2],
                [4, 6],
                Coordinates::HalfPixel,
                nearest,
                &square[..4]
            ),
            [
                1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0,
                4.0, 4.0, 3.0, 3.0, 3.0, 4.0, 4.0, 4.0
            ]
        );
        assert_eq!(
            resized(
                [2, 2],
                [4, 4],
                Coordinates::HalfPixel,
                Interpolation::Bilinear,
                &square[..4]
            ),
            [
                1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75,
                4.0
            ]
        );
        // resize_downsample_sizes_nearest: 2x4 to 1x3.
        assert_eq!(
            resized(
                [2, 4],
                [1, 3],
                Coordinates::HalfPixel,
                nearest,
                &square[..8]
            ),
            [1.0, 2.0, 4.0]
        );
        // resize_upsample_sizes_nearest_ceil_half_pixel: 4x4 to 8x8, first row.
        let ceil = Interpolation::Nearest(Rounding::Ceil);
        let found = resized([4, 4], [8, 8], Coordinates::HalfPixel, ceil, &square);
        assert_eq!(found[..8], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
        // resize_upsample_sizes_nearest_floor_align_corners, first row.
        let floor = Interpolation::Nearest(Rounding::Floor);
        let found = resized([4, 4], [8, 8], Coordinates::AlignCorners, floor, &square);
        assert_eq!(found[..8], [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0]);
        // resize_upsample_sizes_nearest_round_prefer_ceil_asymmetric, first row.
        let ceil = Interpolation::Nearest(Rounding::PreferCeil);
        let found = resized([4, 4], [8, 8], Coordinates::Asymmetric, ceil, &square);
        assert_eq!(found[..8], [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
    }
}
