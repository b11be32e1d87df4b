//! Precision of a convolution: the rounding of its products, its tolerance, and the order of its sums.

use super::Format;
use serde::{Deserialize, Serialize};

/// How the products of a convolution may be rounded. Sums are added in fp32 in every precision; how tensors are stored is another question.
///
/// It is a permission: a more precise kernel is used if it is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Error bound of fp32 arithmetic.
    #[default]
    Fp32,
    /// Operands of 11 bits, with the range of fp32.
    Tf32,
    /// Operands of 11 bits. Inputs have the range of fp16, unless the scheme scales them: beyond 65504 they become 65504, below 6e-5 they
    /// lose bits.
    Fp16,
    /// Operands of 8 bits, with the range of fp32.
    Bf16,
}

impl Precision {
    /// Every precision with its name in configs.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("fp32", Self::Fp32),
        ("tf32", Self::Tf32),
        ("fp16", Self::Fp16),
        ("bf16", Self::Bf16),
    ];

    /// Name in configs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// The NHWC format whose numbers products in this precision read as they are; `None` for the precisions of fp32 numbers.
    pub const fn nhwc_format(self) -> Option<Format> {
        match self {
            Self::Fp32 | Self::Tf32 => None,
            Self::Fp16 => Some(Format::FP16_NHWC),
            Self::Bf16 => Some(Format::BF16_NHWC),
        }
    }

    /// Least error bound of a convolution, regardless of its number of terms, as an L2 norm on zero-mean inputs.
    ///
    /// Rounding an operand of b bits has a relative error of at most 2^-b, so a product of two operands has at most twice that: 2^-10 in
    /// tf32, 2^-7 in bf16. The errors of a sum's products are independent and its terms have any sign, so both add as their squares. The
    /// relative error of the norm is therefore the mean error of a product, a third of the largest. The bounds here are the largest error,
    /// rounded up. fp16 has the bits of tf32, and a larger bound for values outside its range.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Fp32 => 1e-6,
            Self::Tf32 => 1e-3,
            Self::Fp16 => 5e-3,
            Self::Bf16 => 8e-3,
        }
    }
}

/// The relative error that a convolution may have if it is larger than its precision's bound, as an L2 norm on zero-mean inputs. It allows
/// less precise kernels, such as Winograd's F(4x4, 3x3). Stored in billionths, so that equal values compare equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Default)]
pub struct Tolerance(u32);

impl Tolerance {
    /// Valid values. No fp32 kernel is below the first for every input; a result with an error above the last is useless.
    pub const RANGE: [f64; 2] = [1e-6, 0.1];

    /// Rounds to billionths; `None` outside of [`RANGE`](Self::RANGE).
    pub fn new(error: f64) -> Option<Self> {
        let [least, most] = Self::RANGE;
        (least..=most)
            .contains(&error)
            .then(|| Self((error * 1e9).round() as u32))
    }

    /// The value in billionths; 0 if no tolerance was requested.
    pub fn billionths(self) -> u32 {
        self.0
    }

    /// The value as a number; 0 if no tolerance was requested.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1e9
    }
}

/// How the partial sums of a convolution that is split over blocks along the input channels are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// In a fixed order, by a second launch: the same bits in every run.
    #[default]
    Ordered,
    /// By float atomics on a zeroed output, as published by TDC (Listing 2): the bits depend on the order of the blocks.
    Atomic,
}

impl Reduce {
    /// Every value with its name in configs.
    pub const NAMES: [(&'static str, Self); 2] =
        [("ordered", Self::Ordered), ("atomic", Self::Atomic)];
}
