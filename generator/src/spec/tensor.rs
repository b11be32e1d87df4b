//! The shape of an activation.

use serde::Serialize;
use std::fmt;

/// Largest number of elements of a tensor: generated kernels index with 32-bit integers.
pub const MAX_ELEMENTS: u64 = i32::MAX as u64;

/// Sizes of an NCHW activation. A flattened one has `h` = `w` = 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct TensorShape {
    /// Images.
    pub batch: u32,
    /// Channels.
    pub c: u32,
    /// Height.
    pub h: u32,
    /// Width.
    pub w: u32,
}

impl TensorShape {
    /// Sizes in NCHW order.
    pub const fn new(batch: u32, c: u32, h: u32, w: u32) -> Self {
        Self { batch, c, h, w }
    }

    /// Pixels of one channel.
    pub const fn pixels(&self) -> u64 {
        self.h as u64 * self.w as u64
    }

    /// Elements of one image; saturates where the product overflows.
    pub const fn image_len(&self) -> u64 {
        self.pixels().saturating_mul(self.c as u64)
    }

    /// Elements of the whole batch; saturates where the product overflows.
    pub const fn len(&self) -> u64 {
        self.image_len().saturating_mul(self.batch as u64)
    }

    /// Whether a size is zero.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}x{}", self.batch, self.c, self.h, self.w)
    }
}
