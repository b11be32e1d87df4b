//! Packs weights in device memory: the source of the packing kernels, and a layout in the form that they
//! read.
//!
//! The same kernels serve every layout, and are part of this crate as PTX: they run once for the weights of a
//! layer, so specialising them would gain nothing, and programs need no second image for each kernel.

use crate::{Filter, Launch, Transform, WeightLayout};
use std::borrow::Cow;

/// The kernels `tdc_pack_dequant_scales` and `tdc_pack_weights`.
pub const TEXT: &str = include_str!("device_packing/pack.cu");

/// [`TEXT`] compiled for every architecture from sm_70 on.
pub const PTX: &str = include_str!("device_packing/pack.ptx");

const THREADS: u32 = 256;

/// Maximum number of blocks; with more words each thread packs several.
const MAX_BLOCKS: u64 = 4096;

impl WeightLayout {
    /// The layout as `struct Layout` of [`TEXT`], followed by its dimensions.
    pub fn device_words(&self) -> Vec<u32> {
        let mut numbers = self.source.to_vec();
        let mut g = [[0; 3]; 6];
        let (points, denominator) = match self.filter {
            Filter::Taps | Filter::MergedGroups { .. } => (0, 1),
            Filter::Winograd(winograd) => {
                let (rows, denominator) = winograd.filter();
                for (to, from) in g.iter_mut().zip(rows) {
                    *to = from.map(|value| i32::from(value).cast_unsigned());
                }
                (winograd.points(), denominator)
            }
        };
        numbers.push(points);
        numbers.extend(g.as_flattened());
        numbers.push(u32::from(denominator));
        numbers.extend(match self.filter {
            Filter::MergedGroups { merged, n } => [merged, n],
            Filter::Taps | Filter::Winograd(_) => [1, 1],
        });
        numbers.extend(match self.transform {
            Transform::None => [0, 1, 0],
            Transform::Fp16 { run, terms } => [run, terms, 0],
            Transform::Bf16 => [0, 1, 1],
        });
        numbers.push(self.dims.len() as u32);
        for dim in self.dims.iter() {
            numbers.extend([dim.axis.index() as u32, dim.count, dim.step]);
        }
        numbers
    }

    /// Number of words of the packed weights, without dequantisation scales and prologue.
    pub fn packed_word_len(&self) -> usize {
        self.weight_len() - self.dequant_scale_len()
    }

    /// The launch that computes the dequantisation scales: `tdc_pack_dequant_scales(weight, dequant_scale,
    /// layout)`. `None` if there are none.
    pub fn dequant_scale_launch(&self) -> Option<Launch> {
        let blocks = self.dequant_scale_len() as u32;
        (blocks > 0).then(|| launch("tdc_pack_dequant_scales", blocks))
    }

    /// The launch that follows it: `tdc_pack_weights(weight, dequant_scale, packed, layout, words)`. `None`
    /// if there are no weights.
    pub fn pack_launch(&self) -> Option<Launch> {
        let blocks = (self.packed_word_len() as u64).div_ceil(u64::from(THREADS));
        (blocks > 0).then(|| launch("tdc_pack_weights", blocks.min(MAX_BLOCKS) as u32))
    }
}

fn launch(kernel: &'static str, blocks: u32) -> Launch {
    Launch {
        kernel: kernel.into(),
        grid: [blocks, 1, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: false,
        args: Cow::Borrowed(&[]),
    }
}
