//! Pairs of 16-bit numbers, as tensors in the NHWC formats store them: the device functions that convert them.

use super::DevicePart;
use crate::ir::DType;
use serde::Serialize;

/// Names of device functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct StoredPairs {
    /// The value of the first number of a pair.
    stored_low: &'static str,
    /// The value of the second one.
    stored_high: &'static str,
    /// Rounds two values to a pair.
    to_stored: &'static str,
    /// The larger ones of two pairs.
    max_stored: &'static str,
    /// A pair of the least numbers that are stored.
    least_stored: &'static str,
}

impl StoredPairs {
    const FP16: Self = Self {
        stored_low: "tdc_fp16x2_low",
        stored_high: "tdc_fp16x2_high",
        to_stored: "tdc_to_saturated_fp16x2",
        max_stored: "tdc_max_fp16x2",
        least_stored: "0xfbfffbffu",
    };

    const BF16: Self = Self {
        stored_low: "tdc_bf16x2_low",
        stored_high: "tdc_bf16x2_high",
        to_stored: "tdc_to_bf16x2",
        max_stored: "tdc_max_bf16x2",
        least_stored: "0xff80ff80u",
    };

    /// Those of the type that is not fp32, if there is one.
    pub(super) fn of(dtypes: [DType; 2]) -> Self {
        match dtypes.contains(&DType::Bf16) {
            true => Self::BF16,
            false => Self::FP16,
        }
    }
}

/// The parts of the device header that a kernel uses which does nothing but load and store tensors of these types.
pub(super) fn device_parts(dtypes: [DType; 2]) -> &'static [DevicePart] {
    let has = |dtype| dtypes.contains(&dtype);
    if has(DType::Split) {
        &[DevicePart::Pdl, DevicePart::Fp16, DevicePart::SplitTensor]
    } else if has(DType::Fp16) {
        &[DevicePart::Pdl, DevicePart::Fp16, DevicePart::SaturatedFp16]
    } else if has(DType::Bf16) {
        &[DevicePart::Pdl, DevicePart::Bf16]
    } else {
        &[DevicePart::Pdl]
    }
}
