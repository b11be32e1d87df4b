//! How the caller stores an input of a network, and how it is normalised.

use super::{DType, Format, Layout, TensorShape};
use serde::Serialize;

/// The format of an input in the caller's memory, and its normalisation: an element `v` of channel `c` becomes `(v - mean[c]) / std[c]`,
/// where a uint8 element stands for `v / 255`, as with torchvision's `ToTensor` and `Normalize`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InputEncoding {
    /// Element type: fp32 or uint8.
    pub dtype: DType,
    /// Order of the elements: NCHW or NHWC.
    pub layout: Layout,
    /// Subtracted from each channel; zeros if there is none.
    pub mean: Option<Vec<f32>>,
    /// Divisors of each channel; ones if there is none.
    pub std: Option<Vec<f32>>,
}

impl InputEncoding {
    /// The element types that configs may name.
    pub const DTYPES: [(&'static str, DType); 2] = [("fp32", DType::Fp32), ("uint8", DType::Uint8)];

    /// fp32 NCHW, as it is.
    pub const PLAIN: Self = Self {
        dtype: DType::Fp32,
        layout: Layout::Nchw,
        mean: None,
        std: None,
    };

    /// Whether ops read the caller's memory as it is.
    pub fn is_plain(&self) -> bool {
        *self == Self::PLAIN
    }

    /// Format in the caller's memory.
    pub fn format(&self) -> Format {
        Format::new(self.dtype, self.layout)
    }

    /// Scale and shift of each of `channels` channels: `(v - mean) / std = scale v + shift`.
    pub fn scale_shift(&self, channels: u32) -> (Vec<f64>, Vec<f64>) {
        /// Largest element, which stands for one.
        const LARGEST_BYTE: f64 = 255.0;
        let unit = match self.dtype {
            DType::Uint8 => 1.0 / LARGEST_BYTE,
            DType::Fp32 | DType::Fp16 | DType::Bf16 | DType::Split => 1.0,
        };
        let of_channel = |values: &Option<Vec<f32>>, channel: usize, default: f64| {
            let given = values.as_ref().map(|values| f64::from(values[channel]));
            given.unwrap_or(default)
        };
        (0..channels as usize)
            .map(|channel| {
                let std = of_channel(&self.std, channel, 1.0);
                (unit / std, -of_channel(&self.mean, channel, 0.0) / std)
            })
            .unzip()
    }

    /// What is wrong with the encoding of an input of a name and shape, and the remedy.
    pub(super) fn errors(&self, name: &str, shape: TensorShape) -> Vec<(String, String)> {
        let what = format!("the input `{}`", name.escape_debug());
        let mut errors = Vec::new();
        for (key, values) in [("mean", &self.mean), ("std", &self.std)] {
            let Some(values) = values else { continue };
            if values.len() != shape.c as usize {
                errors.push((
                    format!(
                        "`{key}` of {what} has {} numbers for {} channels",
                        values.len(),
                        shape.c
                    ),
                    "give one number for each channel".to_owned(),
                ));
            }
            let is_valid = |value: &f32| value.is_finite() && (key == "mean" || *value > 0.0);
            if let Some(wrong) = values.iter().find(|value| !is_valid(value)) {
                errors.push((
                    format!("`{key}` of {what} cannot contain {wrong}"),
                    match key {
                        "mean" => "use finite numbers".to_owned(),
                        _ => "use positive numbers".to_owned(),
                    },
                ));
            } else if let Some(large) = values.iter().find(|value| value.abs() > 1.0)
                && self.dtype == DType::Uint8
            {
                errors.push((
                    format!("`{key}` of {what} cannot contain {large}, because a uint8 element `v` stands for `v / 255`"),
                    format!("write {}", large / 255.0),
                ));
            }
        }
        errors
    }
}

impl Default for InputEncoding {
    fn default() -> Self {
        Self::PLAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_normalised_as_by_torchvision() {
        let encoding = InputEncoding {
            dtype: DType::Uint8,
            layout: Layout::Nhwc,
            mean: Some(vec![0.5, 0.25]),
            std: Some(vec![0.5, 0.25]),
        };
        let (scale, shift) = encoding.scale_shift(2);
        let normalised = |channel: usize, byte: f64| scale[channel] * byte + shift[channel];
        for (channel, byte, expected) in [
            (0, 0.0, -1.0),
            (0, 255.0, 1.0),
            (1, 51.0, (0.2 - 0.25) / 0.25),
        ] {
            assert!((normalised(channel, byte) - expected).abs() < 1e-12);
        }
        let plain = InputEncoding {
            dtype: DType::Uint8,
            ..InputEncoding::PLAIN
        };
        assert_eq!(plain.scale_shift(1), (vec![1.0 / 255.0], vec![0.0]));
        assert_eq!(InputEncoding::PLAIN.scale_shift(1), (vec![1.0], vec![0.0]));
        assert!(InputEncoding::PLAIN.is_plain() && !plain.is_plain());
    }
}
