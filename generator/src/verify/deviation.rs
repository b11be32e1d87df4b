//! The difference between a result and the reference.

use crate::ir::TensorShape;
use std::fmt;
use std::ops::Range;

/// The difference between a result and the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Deviation {
    /// `|result - reference| / |reference|`, L2 norms.
    pub relative: f64,
    /// NCHW position of the worst element.
    pub worst: [usize; 4],
    /// The result at that position.
    pub found: f64,
    /// The reference at that position.
    pub expected: f64,
}

impl Deviation {
    /// Compares a result with its reference; NaN counts as an infinite deviation.
    pub fn between(shape: TensorShape, found: &[f32], expected: &[f64]) -> Self {
        Self::for_channels(shape, 0..shape.c, found, expected)
    }

    /// The same for some channels only.
    pub(super) fn for_channels(
        shape: TensorShape,
        channels: Range<u32>,
        found: &[f32],
        expected: &[f64],
    ) -> Self {
        let image_len = shape.image_len() as usize;
        let [begin, end] = [channels.start, channels.end]
            .map(|channel| channel as usize * shape.pixels() as usize);
        let (mut error, mut norm) = (0.0, 0.0);
        let mut worst = (0, -1.0);
        let images = found.chunks(image_len).zip(expected.chunks(image_len));
        for (image, (found, expected)) in images.enumerate() {
            let pairs = found[begin..end].iter().zip(&expected[begin..end]);
            for (place, (&found, &expected)) in pairs.enumerate() {
                let difference = (f64::from(found) - expected).abs();
                let difference = if difference.is_nan() {
                    f64::INFINITY
                } else {
                    difference
                };
                error += difference * difference;
                norm += expected * expected;
                if difference > worst.1 {
                    worst = (image * image_len + begin + place, difference);
                }
            }
        }
        let index = worst.0;
        let pixels = shape.pixels() as usize;
        let (c, w) = (shape.c as usize, shape.w as usize);
        Self {
            relative: if error == 0.0 {
                0.0
            } else {
                (error / norm).sqrt()
            },
            worst: [
                index / (pixels * c),
                index / pixels % c,
                index % pixels / w,
                index % w,
            ],
            found: found.get(index).copied().map_or(f64::NAN, f64::from),
            expected: expected.get(index).copied().unwrap_or(f64::NAN),
        }
    }
}

/// The larger of two deviations; ties go to the first.
pub(super) fn larger_deviation(first: Deviation, second: Deviation) -> Deviation {
    match second.relative > first.relative {
        true => second,
        false => first,
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "relative error {:.2e}; largest difference at [batch, channel, row, column] = {:?}: {} instead of {}",
            self.relative, self.worst, self.found, self.expected
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_small_channels_are_not_masked_by_large_ones() {
        // Two images of three channels; the last channel is small and wrong in the second image.
        let shape = TensorShape::new(2, 3, 1, 2);
        let expected = [
            1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3, 1e3, 1e3, 1e3, 1e3, 1e-3, 1e-3,
        ];
        let mut found = expected.map(|value| value as f32);
        found[11] = 3e-3;
        assert!(Deviation::between(shape, &found, &expected).relative < 1e-5);
        let large = Deviation::for_channels(shape, 0..2, &found, &expected);
        let small = Deviation::for_channels(shape, 2..3, &found, &expected);
        assert!(large.relative < 1e-7 && small.relative > 0.9, "{small}");
        assert_eq!(small.worst, [1, 2, 0, 1]);
        assert_eq!(larger_deviation(large.clone(), small.clone()), small);
        let none = Deviation::for_channels(shape, 3..3, &found, &expected);
        assert_eq!(larger_deviation(large.clone(), none), large);
    }
}
