//! Layer norms that are spelled by means over the channels, as by exporters to operator sets below 17 and by TensorFlow's converters.
//!
//! A mean over the channels is a [`Value::Moment`]. An elementwise function of a value and its moments stays a [`Function`],
//! with the constants that it has for each channel. When an op reads it, it is evaluated as a function of x, mean and variance, and compared
//! with a layer norm.

use super::functions::Parts;
use super::layer_norm::LayerNorm;
use super::{Converter, Function, Value, ValueId};
use crate::ir::ChannelNorm;
use std::collections::HashMap;

/// A mean over the channels of a pixel of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Mean,
    MeanOfSquares,
    Variance,
}

/// A channel of a pixel: its value, and the moments of its pixel.
#[derive(Debug, Clone, Copy)]
struct Element {
    channel: usize,
    x: f64,
    mean: f64,
    variance: f64,
}

/// Most channels of a layer norm that is spelled by means: each of them is evaluated.
const MAX_CHANNELS: usize = 1 << 14;

impl Moment {
    fn at(self, element: Element) -> f64 {
        match self {
            Self::Mean => element.mean,
            Self::MeanOfSquares => element.variance + element.mean * element.mean,
            Self::Variance => element.variance,
        }
    }
}

impl Converter<'_> {
    /// The mean over the channels of a value, whose axis has the size 1 then or is left out: the variance of another value, if this one is
    /// the square of its difference to its mean.
    pub(super) fn channel_mean(&self, node: usize, id: ValueId, keeps_axis: bool) -> Value {
        let (kind, of) = self.square_of(id).unwrap_or((Moment::Mean, id));
        let mut dims = self.pixel_dims(id);
        if !keeps_axis {
            dims.remove(self.channel_axis(id));
        }
        Value::Moment {
            kind,
            of,
            dims,
            node,
        }
    }

    /// The sizes of a value, with one channel.
    fn pixel_dims(&self, id: ValueId) -> Vec<usize> {
        let mut dims = self.dims(id);
        if let Some(size) = dims.get_mut(self.channel_axis(id)) {
            *size = 1;
        }
        dims
    }

    /// A moment whose axis of the channels is there again; `None` for any other value or shape.
    pub(super) fn reshaped_moment(&self, id: ValueId, dims: &[usize]) -> Option<Value> {
        let mut moment = self.values[id].clone();
        match &mut moment {
            Value::Moment { of, dims: own, .. } if *dims == self.pixel_dims(*of) => {
                *own = dims.to_vec();
                Some(moment)
            }
            _ => None,
        }
    }

    /// The value whose square a value is, or the square of whose difference to its mean.
    fn square_of(&self, id: ValueId) -> Option<(Moment, ValueId)> {
        let parts = self.parts(id);
        // A constant for each channel would have to be one everywhere.
        if parts
            .bases
            .iter()
            .any(|&base| self.constant(base).is_some())
        {
            return None;
        }
        let is_square = |of: ValueId, base: fn(f64, f64) -> f64| {
            POINTS.iter().all(|&[x, mean, variance]| {
                let element = Element {
                    channel: 0,
                    x,
                    mean,
                    variance,
                };
                let (found, expected) = (
                    self.at_element(id, &parts, of, element),
                    base(x, mean).powi(2),
                );
                (found - expected).abs() <= 1e-12 * expected
            })
        };
        // The square of a difference to the mean is the square of the difference too.
        let find = |base| parts.bases.iter().find(|of| is_square(**of, base)).copied();
        let variance = find(|x, mean| x - mean).map(|of| (Moment::Variance, of));
        variance.or_else(|| find(|x, _| x).map(|of| (Moment::MeanOfSquares, of)))
    }

    /// The value whose moments a value depends on; `None` if it depends on none.
    pub(super) fn moments_of(&self, id: ValueId) -> Option<ValueId> {
        let bases = self.parts(id).bases;
        let moments = bases
            .iter()
            .chain([&id])
            .filter_map(|&base| self.moment_of(base));
        moments.map(|(_, of)| of).next()
    }

    /// Which mean a value is, and of which value.
    fn moment_of(&self, id: ValueId) -> Option<(Moment, ValueId)> {
        match &self.values[id] {
            Value::Moment { kind, of, .. } => Some((*kind, *of)),
            _ => None,
        }
    }

    /// The layer norm that a function is, and the value that it normalises.
    pub(super) fn spelled_layer_norm(
        &self,
        id: ValueId,
        function: &Function,
        parts: &Parts,
    ) -> Option<(ValueId, LayerNorm)> {
        let moments = parts.bases.iter().filter_map(|&base| self.moment_of(base));
        let of = moments.map(|(_, of)| of).next()?;
        let channels = *function.dims.get(self.channel_axis(of))?;
        if self.dims(of) != function.dims || channels > MAX_CHANNELS {
            return None;
        }
        let at = |channel: usize, [x, mean, variance]: [f64; 3]| {
            let element = Element {
                channel,
                x,
                mean,
                variance,
            };
            self.at_element(id, parts, of, element)
        };
        // The scale is what one more adds. Without a variance eps alone divides it.
        let shift = |channel| at(channel, [MEAN, MEAN, VARIANCE]);
        let slope = |channel, variance| at(channel, [MEAN + 1.0, MEAN, variance]) - shift(channel);
        // Most functions are no layer norms, which shows in their first channel. Only a channel with a scale tells eps.
        let first = (0..channels).find(|&channel| slope(channel, VARIANCE) != 0.0)?;
        let ratio = slope(first, 0.0) / slope(first, VARIANCE);
        let eps = VARIANCE / (ratio * ratio - 1.0);
        if !(0.0..f64::from(f32::MAX)).contains(&eps) {
            return None;
        }
        let deviation = |variance: f64| (variance + eps).sqrt();
        let mut norm = LayerNorm {
            eps: (eps as f32).max(ChannelNorm::MIN_EPS),
            scale: Vec::new(),
            shift: Vec::new(),
        };
        for channel in 0..channels {
            let shift = shift(channel);
            let scale = slope(channel, VARIANCE) * deviation(VARIANCE);
            let is_equal = POINTS.iter().all(|&[x, mean, variance]| {
                let expected = scale * (x - mean) / deviation(variance) + shift;
                let found = at(channel, [x, mean, variance]);
                (found - expected).abs() <= 1e-6 * (expected.abs() + scale.abs() + shift.abs())
            });
            if !is_equal {
                return None;
            }
            norm.scale.push(scale as f32);
            norm.shift.push(shift as f32);
        }
        Some((of, norm))
    }

    /// A function's value for an element of `of`; not a number if it depends on anything else.
    fn at_element(&self, id: ValueId, parts: &Parts, of: ValueId, element: Element) -> f64 {
        let mut known = HashMap::from([(of, Some(element.x))]);
        for &base in &parts.bases {
            let value = match &self.values[base] {
                // Without an axis of channels ONNX would align it otherwise.
                Value::Moment {
                    kind,
                    of: own,
                    dims,
                    ..
                } if *own == of && *dims == self.pixel_dims(of) => kind.at(element),
                Value::Constant(tensor) => tensor.element(element.channel).unwrap_or(f64::NAN),
                _ => continue,
            };
            known.insert(base, Some(value));
        }
        self.evaluate(id, &mut known).unwrap_or(f64::NAN)
    }
}

/// Where the parameters of a layer norm are found.
const MEAN: f64 = 0.375;
const VARIANCE: f64 = 1.75;

/// Value, mean and variance where a function is compared with a layer norm or a square: on both sides of the mean, small variances, and beyond
/// all bounds that a network's values reach.
const POINTS: [[f64; 3]; 9] = [
    [1.5, 0.25, 0.5],
    [-2.25, 0.75, 3.0],
    [0.0, -1.5, 1.25],
    [4.0, 3.75, 1e-3],
    [-30.0, 12.5, 90.0],
    [0.25, 0.125, 1e-9],
    [1e6, 0.25, 0.5],
    [-1e6, 0.25, 0.5],
    [1e3, -1e6, 1e12],
];
