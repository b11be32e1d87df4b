//! Grouped convolutions: groups that are merged to fill MMA tiles.

use crate::scheme::tensor_core::MMA_M;
use tdc_runtime::{ConvShape, Filter};

/// The groups of a convolution, merged so that a merged group has about as many channels as an MMA tile has rows and terms. Its
/// weights are a block-diagonal matrix. A convolution of one group is one merged group.
#[derive(Debug, Clone, Copy)]
pub(super) struct MergedGroups {
    /// Groups of a merged one; the last one may have fewer.
    pub(super) merged: u32,
    /// Input channels of a merged group.
    pub(super) c: u32,
    /// Output channels of a merged group, and of a group.
    pub(super) n: u32,
    pub(super) n_per_group: u32,
}

impl MergedGroups {
    pub(super) fn for_shape(shape: &ConvShape) -> Self {
        let [c, n] = [shape.c, shape.n].map(|channels| channels / shape.groups);
        let merged = (MMA_M / c.max(n)).clamp(1, shape.groups);
        Self {
            merged,
            c: merged * c,
            n: merged * n,
            n_per_group: n,
        }
    }

    /// How the weights are packed.
    pub(super) fn filter(self) -> Filter {
        match self.merged {
            1 => Filter::Taps,
            merged => Filter::MergedGroups {
                merged,
                n: self.n_per_group,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_merged_up_to_an_mma_tile() {
        let of = |c, n, groups| {
            let groups = MergedGroups::for_shape(&ConvShape {
                groups,
                ..ConvShape::new(c, n, 7, 7, 3, 3)
            });
            (groups.merged, groups.c, groups.n)
        };
        assert_eq!(of(128, 128, 32), (4, 16, 16));
        assert_eq!(of(104, 104, 13), (2, 16, 16));
        assert_eq!(of(1024, 1024, 32), (1, 32, 32));
        assert_eq!(of(120, 120, 5), (1, 24, 24));
        assert_eq!(of(32, 64, 8), (2, 8, 16));
        assert_eq!(of(10, 10, 2), (2, 10, 10));
        assert_eq!(of(67, 32, 1), (1, 67, 32));
    }
}
