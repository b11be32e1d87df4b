//! The ops of embedded kernels: the type parameter of `Kernel`.

use crate::{Activation, ConvShape};
use std::fmt;

mod sealed {
    pub trait Sealed {}
}

/// Ops fused with a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FusedOps {
    /// `scale[c] x + shift[c]`, with an optional activation, applied to the input; scale and shift are packed with
    /// the weights.
    pub prologue: bool,
    /// A value added to each output channel.
    pub bias: bool,
    /// A tensor of the output's shape added to the output.
    pub residual: bool,
    /// Applied after bias and residual.
    pub activation: Activation,
}

/// An op of a [`Kernel`](crate::Kernel): [`Conv`], [`Tucker`] or [`LowRank`].
pub trait Op: Copy + fmt::Debug + PartialEq + Send + Sync + sealed::Sealed + 'static {
    /// The convolution from input to output; for a Tucker or low-rank layer the dense convolution that its factors
    /// approximate.
    fn shape(&self) -> &ConvShape;
    /// Ops fused with it.
    fn fused(&self) -> FusedOps;
    /// Floating-point operations, a multiply-add counted as two.
    fn flops(&self) -> u64;
}

/// A convolution. Input `batch x C x H x W` and output are dense NCHW. A linear layer is a 1x1 convolution of images of one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Conv {
    /// Sizes.
    pub shape: ConvShape,
    /// Ops fused with it.
    pub fused: FusedOps,
}

/// A Tucker layer: 1x1 from C to D1 channels, the R x S core to D2, 1x1 to N (TDC paper, eqs. 2-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tucker {
    /// Sizes of the dense convolution.
    pub shape: ConvShape,
    /// D1 and D2.
    pub ranks: [u32; 2],
    /// Ops fused with it.
    pub fused: FusedOps,
}

/// A low-rank layer: a 1x1 convolution from C to `rank` channels, and one from these to N. A linear layer with a rank is one of images of
/// one pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LowRank {
    /// Sizes of the dense convolution, whose filter is 1x1.
    pub shape: ConvShape,
    /// Channels between its factors.
    pub rank: u32,
    /// Ops fused with it.
    pub fused: FusedOps,
}

impl sealed::Sealed for Conv {}

impl Op for Conv {
    fn shape(&self) -> &ConvShape {
        &self.shape
    }

    fn fused(&self) -> FusedOps {
        self.fused
    }

    fn flops(&self) -> u64 {
        self.shape.flops()
    }
}

impl Tucker {
    /// The three convolutions, in order.
    pub const fn factors(&self) -> [ConvShape; 3] {
        let Self { shape, ranks, .. } = *self;
        let first = ConvShape {
            batch: shape.batch,
            ..ConvShape::new(shape.c, ranks[0], shape.h, shape.w, 1, 1)
        };
        let core = ConvShape {
            c: ranks[0],
            n: ranks[1],
            ..shape
        };
        let last = ConvShape {
            batch: shape.batch,
            ..ConvShape::new(ranks[1], shape.n, shape.out_h(), shape.out_w(), 1, 1)
        };
        [first, core, last]
    }
}

impl sealed::Sealed for Tucker {}

impl Op for Tucker {
    fn shape(&self) -> &ConvShape {
        &self.shape
    }

    fn fused(&self) -> FusedOps {
        self.fused
    }

    fn flops(&self) -> u64 {
        self.factors().iter().map(ConvShape::flops).sum()
    }
}

impl LowRank {
    /// The two convolutions, in order. The first has stride and padding.
    pub const fn factors(&self) -> [ConvShape; 2] {
        let Self { shape, rank, .. } = *self;
        let first = ConvShape { n: rank, ..shape };
        let last = ConvShape {
            batch: shape.batch,
            ..ConvShape::new(rank, shape.n, shape.out_h(), shape.out_w(), 1, 1)
        };
        [first, last]
    }
}

impl sealed::Sealed for LowRank {}

impl Op for LowRank {
    fn shape(&self) -> &ConvShape {
        &self.shape
    }

    fn fused(&self) -> FusedOps {
        self.fused
    }

    fn flops(&self) -> u64 {
        self.factors().iter().map(ConvShape::flops).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Padding;

    #[test]
    fn a_tucker_layer_counts_its_factors() {
        let shape = ConvShape {
            stride: [2, 2],
            padding: Padding::all(1),
            batch: 3,
            ..ConvShape::new(12, 20, 9, 7, 3, 3)
        };
        let tucker = Tucker {
            shape,
            ranks: [5, 6],
            fused: FusedOps::default(),
        };
        let [first, core, last] = tucker.factors();
        assert_eq!((first.c, first.n, first.h, first.w), (12, 5, 9, 7));
        assert_eq!((core.c, core.n, core.out_h(), core.out_w()), (5, 6, 5, 4));
        assert_eq!((last.c, last.n, last.h, last.w), (6, 20, 5, 4));
        let products = 12 * 5 * 63 + 5 * 6 * 9 * 20 + 6 * 20 * 20;
        assert_eq!(tucker.flops(), 2 * 3 * products);
    }

    #[test]
    fn a_low_rank_layer_counts_its_factors() {
        let shape = ConvShape {
            stride: [2, 3],
            padding: Padding::all(1),
            batch: 3,
            ..ConvShape::new(13, 11, 9, 7, 1, 1)
        };
        let layer = LowRank {
            shape,
            rank: 5,
            fused: FusedOps::default(),
        };
        let [first, last] = layer.factors();
        assert_eq!(
            (first.c, first.n, first.out_h(), first.out_w()),
            (13, 5, 6, 3)
        );
        assert_eq!((last.c, last.n, last.h, last.w), (5, 11, 6, 3));
        assert_eq!((last.stride, last.padding), ([1, 1], Padding::default()));
        assert_eq!(layer.flops(), 2 * 3 * 18 * (13 * 5 + 5 * 11));
    }
}
