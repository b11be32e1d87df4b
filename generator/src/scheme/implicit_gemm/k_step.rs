//! K steps: the terms of one, and how those of a chunk are divided and unrolled.

use crate::scheme::step_order::unrolls;
use crate::scheme::tensor_core::MMA_K;
use std::ops::RangeInclusive;
use tdc_runtime::ConvShape;

/// The 16 terms of a K step: `channels` channels of each of `columns` adjacent pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct KStep {
    pub(super) channels: u32,
    pub(super) columns: u32,
}

impl KStep {
    /// Numbers of input channels for which a K step covers one channel quad of each of four columns. With 1 or with 5 to 7
    /// channels more than half of a K step would be padding; the scheme does not support them.
    pub(super) const FEW_CHANNELS: RangeInclusive<u32> = 2..=4;

    pub(super) fn for_shape(shape: &ConvShape) -> Self {
        let columns = if shape.groups == 1 && Self::FEW_CHANNELS.contains(&shape.c) {
            4
        } else {
            1
        };
        Self {
            channels: MMA_K / columns,
            columns,
        }
    }

    /// K steps of a chunk of `chunk_groups` channel groups: along channel groups, filter rows, and filter columns.
    pub(super) fn counts(self, chunk_groups: u32, shape: &ConvShape) -> [u32; 3] {
        [chunk_groups, shape.r, shape.s.div_ceil(self.columns)]
    }

    /// Values of `warps_k` in the tile space.
    pub(super) fn warps_k(self) -> &'static [u32] {
        match self.columns {
            1 => &[1, 2, 3, 4, 6, 8, 9, 12, 16],
            _ => &[1, 2, 3, 5, 6, 7, 10, 11, 14],
        }
    }
}

/// Whether the loop over `steps` K steps of a warp in a chunk is unrolled; each has products for `tiles` MMA tiles. A single
/// chunk in fp32 is worth more code, because nothing else hides the loads at the start of a loop iteration. (On an H200
/// 160,96,28,28 by `h4w28m1wm2wp2wk2cl5cg2s1` takes 4.75 us unrolled and 6.08 us in a loop; layers with 7x7 filters take a sixth
/// less time.) Several chunks are iterations of the chunk loop, and more code was slightly slower.
pub(super) fn unrolls_steps_of_chunk(
    chunks: u32,
    steps: u32,
    tiles: u32,
    split_terms: u32,
) -> bool {
    /// Maximum number of unrolled `mma.sync` instructions of a single chunk.
    const OF_SINGLE: u32 = 384;
    unrolls(steps, tiles, split_terms)
        || split_terms == 2 && chunks == 1 && 3 * steps * tiles <= OF_SINGLE
}

/// Chunks of each block of a cluster, with `chunk_groups` of the `all_groups` channel groups in a chunk. `None` if a block would
/// have only padding, or if the padding would exceed an eighth of the channel groups. (If no padding were allowed, channel counts
/// such as 16 x 31 could hardly be split.)
pub(super) fn chunks(all_groups: u32, cluster: u32, chunk_groups: u32) -> Option<u32> {
    let chunks = all_groups.div_ceil(cluster * chunk_groups);
    let of_block = chunks * chunk_groups;
    let fits = (cluster - 1) * of_block < all_groups
        && 8 * (cluster * of_block - all_groups) <= all_groups;
    fits.then_some(chunks)
}
