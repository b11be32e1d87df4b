//! The shape of one convolution.

/// Zero padding around an image, in pixels per side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Padding {
    /// Rows above.
    pub top: u32,
    /// Columns to the left.
    pub left: u32,
    /// Rows below.
    pub bottom: u32,
    /// Columns to the right.
    pub right: u32,
}

impl Padding {
    /// The same padding on all four sides.
    pub const fn all(pixels: u32) -> Self {
        Self {
            top: pixels,
            left: pixels,
            bottom: pixels,
            right: pixels,
        }
    }
}

/// A two-dimensional convolution with every size known.
///
/// Input `batch x c x h x w`, output `batch x n x out_h x out_w`, both NCHW;
/// weights `n x (c / groups) x r x s` (PyTorch's OIHW).
///
/// ```
/// use tdc_runtime::{ConvShape, Padding};
///
/// let shape = ConvShape {
///     padding: Padding::all(1),
///     stride: [2, 2],
///     ..ConvShape::new(64, 32, 56, 56, 3, 3) // C, N, H, W, R, S
/// };
/// assert_eq!([shape.out_h(), shape.out_w()], [28, 28]);
/// assert_eq!(shape.flops(), 2 * 32 * 64 * 3 * 3 * 28 * 28);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ConvShape {
    /// Images in a batch (B in formulas).
    pub batch: u32,
    /// Input channels.
    pub c: u32,
    /// Output channels.
    pub n: u32,
    /// Input height.
    pub h: u32,
    /// Input width.
    pub w: u32,
    /// Filter height.
    pub r: u32,
    /// Filter width.
    pub s: u32,
    /// Step between output pixels, (vertical, horizontal).
    pub stride: [u32; 2],
    /// Zero padding of the input.
    pub padding: Padding,
    /// Step between filter taps, (vertical, horizontal).
    pub dilation: [u32; 2],
    /// Number of groups of channels that are convolved separately; `c` for a depthwise convolution.
    pub groups: u32,
}

impl ConvShape {
    /// Stride 1, no padding, no dilation, one group, batch 1.
    pub const fn new(c: u32, n: u32, h: u32, w: u32, r: u32, s: u32) -> Self {
        Self {
            batch: 1,
            c,
            n,
            h,
            w,
            r,
            s,
            stride: [1, 1],
            padding: Padding::all(0),
            dilation: [1, 1],
            groups: 1,
        }
    }

    /// Sizes of the weights: N, C of one group, R, S.
    pub const fn weight(&self) -> [u32; 4] {
        [self.n, self.c / self.groups, self.r, self.s]
    }

    /// Output height; zero if the filter is larger than the padded input.
    pub const fn out_h(&self) -> u32 {
        out_size(
            self.h,
            self.padding.top + self.padding.bottom,
            self.r,
            self.stride[0],
            self.dilation[0],
        )
    }

    /// Output width; zero if the filter is larger than the padded input.
    pub const fn out_w(&self) -> u32 {
        out_size(
            self.w,
            self.padding.left + self.padding.right,
            self.s,
            self.stride[1],
            self.dilation[1],
        )
    }

    /// Rows and columns of the input, padding included, that the given numbers of output rows and columns
    /// depend on.
    pub fn input_window(&self, outputs: [u32; 2]) -> [u32; 2] {
        let taps = [self.r, self.s];
        std::array::from_fn(|axis| {
            let outputs = outputs[axis].saturating_sub(1);
            let reach = (taps[axis].saturating_sub(1)).saturating_mul(self.dilation[axis]);
            let steps = outputs.saturating_mul(self.stride[axis]);
            steps.saturating_add(reach).saturating_add(1)
        })
    }

    /// Floating-point operations of direct convolution, a multiply-add counted as two.
    pub const fn flops(&self) -> u64 {
        2 * self.batch as u64
            * self.n as u64
            * (self.c / self.groups) as u64
            * self.r as u64
            * self.s as u64
            * self.out_h() as u64
            * self.out_w() as u64
    }

    /// Elements of the input.
    pub const fn input_len(&self) -> u64 {
        self.batch as u64 * self.c as u64 * self.h as u64 * self.w as u64
    }

    /// Elements of the output.
    pub const fn output_len(&self) -> u64 {
        self.batch as u64 * self.n as u64 * self.out_h() as u64 * self.out_w() as u64
    }

    /// Elements of the weights.
    pub const fn weight_len(&self) -> u64 {
        self.n as u64 * (self.c / self.groups) as u64 * self.r as u64 * self.s as u64
    }
}

/// `floor((size + pad - dilation * (window - 1) - 1) / stride) + 1`, or 0 if the window is larger than the
/// padded input.
const fn out_size(size: u32, pad: u32, window: u32, stride: u32, dilation: u32) -> u32 {
    let padded = size as u64 + pad as u64;
    let reach = dilation as u64 * (window as u64 - 1) + 1;
    if reach > padded {
        0
    } else {
        ((padded - reach) / stride as u64 + 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_sizes_follow_pytorch() {
        let mut stem = ConvShape::new(3, 64, 224, 223, 7, 7);
        stem.stride = [2, 2];
        stem.padding = Padding::all(3);
        assert_eq!((stem.out_h(), stem.out_w()), (112, 112));
        assert_eq!(stem.flops(), 2 * 64 * 3 * 49 * 112 * 112);

        let mut dilated = ConvShape::new(4, 4, 9, 8, 3, 2);
        dilated.dilation = [2, 3];
        dilated.padding.right = 1;
        assert_eq!((dilated.out_h(), dilated.out_w()), (5, 6));

        assert_eq!(ConvShape::new(1, 1, 2, 2, 3, 3).out_h(), 0);
    }

    #[test]
    fn outputs_see_the_taps_and_what_lies_between() {
        let mut shape = ConvShape::new(1, 1, 64, 64, 3, 2);
        assert_eq!(shape.input_window([1, 1]), [3, 2]);
        assert_eq!(shape.input_window([4, 5]), [6, 6]);
        shape.stride = [2, 3];
        shape.dilation = [4, 5];
        assert_eq!(
            shape.input_window([4, 5]),
            [3 * 2 + 2 * 4 + 1, 4 * 3 + 5 + 1]
        );
        shape.dilation = [u32::MAX, 1];
        assert_eq!(shape.input_window([4, 1]), [u32::MAX, 2]);
    }
}
