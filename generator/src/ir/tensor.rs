//! The shape of an activation tensor.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Largest number of elements of a tensor: generated kernels index with 32-bit integers.
pub const MAX_ELEMENTS: u64 = i32::MAX as u64;

/// Shape of an activation tensor, in any layout. A flattened one has `h` = `w` = 1.
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

    /// Elements of one image; saturates if the product overflows.
    pub const fn image_len(&self) -> u64 {
        self.pixels().saturating_mul(self.c as u64)
    }

    /// Elements of the complete batch; saturates if the product overflows.
    pub const fn len(&self) -> u64 {
        self.image_len().saturating_mul(self.batch as u64)
    }

    /// Whether any size is zero.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Display for TensorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}x{}", self.batch, self.c, self.h, self.w)
    }
}

/// Error: the text is not a tensor shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shape; write batch, channels, height and width as 1x3x224x224")]
pub struct ParseShapeError(String);

impl FromStr for TensorShape {
    type Err = ParseShapeError;

    /// Parses the format that [`Display`](fmt::Display) writes. Zeros are accepted; the checks of a network report them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = |size: &str| match size.bytes().all(|byte| byte.is_ascii_digit()) {
            true => size.parse::<u32>().ok(),
            false => None,
        };
        let sizes: Option<Vec<u32>> = text.trim().split(['x', 'X']).map(size).collect();
        match sizes.as_deref() {
            Some(&[batch, c, h, w]) => Ok(Self::new(batch, c, h, w)),
            _ => Err(ParseShapeError(text.chars().take(60).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_they_are_written() {
        let shape = TensorShape::new(1, 3, 480, 640);
        assert_eq!("1x3x480x640".parse(), Ok(shape));
        assert_eq!(shape.to_string().parse(), Ok(shape));
        assert_eq!("0x1X2x3".parse(), Ok(TensorShape::new(0, 1, 2, 3)));
        for bad in [
            "",
            "1x3x4",
            "1x3x4x5x6",
            "1x3x+4x5",
            "1x3x4x99999999999",
            "1 x3x4x5",
            "1x3x4x",
        ] {
            let error = bad.parse::<TensorShape>().unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "`{bad}` is not a shape; write batch, channels, height and width as 1x3x224x224"
                )
            );
        }
    }
}
