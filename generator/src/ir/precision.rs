//! How exact a convolution must be: the rounding of its products, its tolerance, and the order of its sums.

use serde::{Deserialize, Serialize};

/// How the products of a convolution may be rounded. Tensors in memory are fp32 and sums are added in fp32, whatever it says.
///
/// It is a permission: whatever is more precise will do where it is faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Not beyond the rounding of fp32.
    #[default]
    Fp32,
    /// Operands of 11 bits, with the range of fp32.
    Tf32,
    /// Operands of 11 bits, inputs with the range of fp16: beyond 65504 they are infinite, below 6e-5 they lose bits.
    Fp16,
    /// Operands of 8 bits, with the range of fp32.
    Bf16,
}

impl Precision {
    /// Every precision with its word in configs.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("fp32", Self::Fp32),
        ("tf32", Self::Tf32),
        ("fp16", Self::Fp16),
        ("bf16", Self::Bf16),
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
        }
    }

    /// The relative error that a convolution may have however few its terms are, as an L2 norm on zero-mean inputs.
    ///
    /// Rounding an operand of b bits errs by at most 2^-b of it, so a product of two by twice that: 2^-10 in tf32, 2^-7 in
    /// bf16. The errors of a sum's products are independent and its terms have any sign, so both add up as their squares,
    /// and the norm errs by the mean error of a product, a third of the largest. The bounds are the largest, rounded up; fp16
    /// has the bits of tf32, and more is allowed for what falls out of its range.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Fp32 => 1e-6,
            Self::Tf32 => 1e-3,
            Self::Fp16 => 5e-3,
            Self::Bf16 => 8e-3,
        }
    }
}

/// The relative error that a convolution may have beyond what its precision allows, as an L2 norm on zero-mean inputs: kernels that
/// are less exact may then compute it, such as Winograd's F(4x4, 3x3). In billionths, so that equal ones are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Default)]
pub struct Tolerance(u32);

impl Tolerance {
    /// What may be asked for: less than the first no fp32 kernel holds for every input, more than the last is no result.
    pub const RANGE: [f64; 2] = [1e-6, 0.1];

    /// The nearest whole number of billionths; `None` outside of [`RANGE`](Self::RANGE).
    pub fn new(error: f64) -> Option<Self> {
        let [least, most] = Self::RANGE;
        (least..=most)
            .contains(&error)
            .then(|| Self((error * 1e9).round() as u32))
    }

    /// So many billionths; 0 when none was asked for.
    pub fn billionths(self) -> u32 {
        self.0
    }

    /// The error as a number, 0 when none was asked for.
    pub fn value(self) -> f64 {
        f64::from(self.0) / 1e9
    }
}

/// How the partial sums of a convolution, split over blocks by input channels, become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Reduce {
    /// In a fixed order by a second launch: the same bits in every run.
    #[default]
    Ordered,
    /// By float atomics on a zeroed output, as TDC publishes it (Listing 2): the bits depend on which block comes first.
    Atomic,
}

impl Reduce {
    /// Every way with its word in configs.
    pub const NAMES: [(&'static str, Self); 2] =
        [("ordered", Self::Ordered), ("atomic", Self::Atomic)];
}
