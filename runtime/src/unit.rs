//! Units: code that computes one op or several fused ops.

use crate::{Arch, PackError, WeightFile, WeightLayout};
use std::borrow::Cow;

/// A kernel parameter, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Arg {
    /// `const float*`: the input.
    X,
    /// `const float*`: the second operand, which is the residual of a convolution or the right-hand side of
    /// an addition.
    Residual,
    /// `float*`: the second operand of a unit that appends channels to it, see [`Arg::Residual`].
    Concatenation,
    /// `const float*`: the block that [`WeightLayout::pack`] writes; the first one if there are several.
    Packed,
    /// `const float*`: a later block, in a sequence of units.
    PackedAt {
        /// Byte offset from the first, a multiple of 256.
        offset: u64,
    },
    /// `const float*`: one value per output channel.
    Bias,
    /// `float*`: the output.
    Y,
    /// `float*`: an address in the workspace.
    Workspace {
        /// Byte offset, a multiple of 256.
        offset: u64,
    },
    /// `long long`: elements between the images of a batch of the input.
    XBatchStride,
    /// `long long`: elements between the images of a batch of the residual.
    ResidualBatchStride,
    /// `long long`: elements between the images of a batch of the output.
    YBatchStride,
    /// `long long`: elements between the images of a batch of a tensor between two units of a sequence.
    Elements {
        /// The number of elements.
        count: u64,
    },
}

/// Addresses and strides for the arguments of a unit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bindings {
    /// Address of the input.
    pub x: u64,
    /// Address of the second operand.
    pub residual: u64,
    /// Address of the packed parameters.
    pub packed: u64,
    /// Address of the bias.
    pub bias: u64,
    /// Address of the output.
    pub y: u64,
    /// Address of the workspace.
    pub workspace: u64,
    /// Elements between the input's images.
    pub x_batch_stride: u64,
    /// Elements between the second operand's images.
    pub residual_batch_stride: u64,
    /// Elements between the output's images.
    pub y_batch_stride: u64,
}

impl Bindings {
    /// The value of an argument.
    pub const fn get(&self, arg: Arg) -> u64 {
        match arg {
            Arg::X => self.x,
            Arg::Residual | Arg::Concatenation => self.residual,
            Arg::Packed => self.packed,
            Arg::PackedAt { offset } => self.packed + offset,
            Arg::Bias => self.bias,
            Arg::Y => self.y,
            Arg::Workspace { offset } => self.workspace + offset,
            Arg::XBatchStride => self.x_batch_stride,
            Arg::ResidualBatchStride => self.residual_batch_stride,
            Arg::YBatchStride => self.y_batch_stride,
            Arg::Elements { count } => count,
        }
    }
}

/// One kernel launch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Launch {
    /// The kernel's symbol in the image.
    pub kernel: Cow<'static, str>,
    /// Number of blocks.
    pub grid: [u32; 3],
    /// Threads per block.
    pub block: [u32; 3],
    /// Blocks per cluster, which divide the grid; at most 16 blocks. `[1, 1, 1]` means no cluster. A kernel
    /// that was compiled for an architecture before sm_90 is launched without clusters and has a fallback.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// Whether the kernel may start before its predecessor has finished (programmatic dependent launch). Such
    /// a kernel waits for the predecessor before it accesses anything except its packed weights and its bias.
    pub pdl: bool,
    /// Parameters, in the kernel's order.
    pub args: Cow<'static, [Arg]>,
}

impl Launch {
    /// Dynamic shared memory that every launch may use, in bytes; for more the function attribute must be
    /// raised.
    pub const DEFAULT_MAX_SHARED_BYTES: u32 = 48 * 1024;
    /// Portable cluster size: the largest that every GPU with clusters supports; for more the function
    /// attribute must be set.
    pub const MAX_PORTABLE_CLUSTER: u32 = 8;
    /// The oldest architecture that a kernel must be compiled for to use PDL or clusters.
    pub const MIN_ATTRIBUTE_ARCH: Arch = Arch::new(90);

    /// Number of blocks per cluster; 1 without clusters.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster.iter().product()
    }
}

/// A step of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Step {
    /// Launches a kernel.
    Launch(Launch),
    /// Sets memory to zero.
    Memset {
        /// The start: the output, which then is one image, or an address in the workspace.
        target: Arg,
        /// Bytes to zero.
        bytes: u64,
    },
}

/// A unit's code for one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Variant {
    /// The GPU that it was planned for, by its name in the GPU table.
    pub gpu: Cow<'static, str>,
    /// The oldest architecture that it runs on.
    pub min_arch: Arch,
    /// Launches and memsets, in order.
    pub steps: Cow<'static, [Step]>,
    /// Bytes of workspace that a launch needs; a session has one per stream.
    pub workspace_bytes: u64,
    /// The layout of the packed weights.
    pub weights: WeightLayout,
    /// Layouts of further weights of a unit: the other factors of a Tucker layer. Their blocks follow the
    /// first, each at a multiple of [`WeightFile::ALIGNMENT`] bytes, as in a weight file.
    pub extra_weight_layouts: Cow<'static, [WeightLayout]>,
    /// Number of bias values, one per output channel; 0 without bias.
    pub bias_len: u32,
}

impl Variant {
    /// Every layout with the offset of its block in the packed weights, in floats.
    pub fn packed_layouts(&self) -> impl Iterator<Item = (usize, &WeightLayout)> {
        let mut end = 0usize;
        let layouts = std::iter::once(&self.weights).chain(self.extra_weight_layouts.iter());
        layouts.map(move |layout| {
            let start = end.next_multiple_of(WeightFile::ALIGNMENT as usize / 4);
            end = start + layout.len();
            (start, layout)
        })
    }

    /// Packs the tensors of all layouts, OIHW each, and the scale and shift of the prologue, which belongs to
    /// the first layout.
    ///
    /// # Errors
    /// [`PackError`] for the first tensor whose length is wrong, and if the numbers of tensors and layouts
    /// differ.
    pub fn pack(
        &self,
        weights: &[&[f32]],
        scale: &[f32],
        shift: &[f32],
    ) -> Result<Vec<f32>, PackError> {
        let tensors = 1 + self.extra_weight_layouts.len();
        if weights.len() != tensors {
            return Err(PackError::Length {
                what: "the list of weights",
                expected: tensors,
                found: weights.len(),
            });
        }
        let mut packed = vec![0.0; self.packed_len()];
        for (index, ((at, layout), weight)) in self.packed_layouts().zip(weights).enumerate() {
            let (scale, shift): (&[f32], &[f32]) = match index {
                0 => (scale, shift),
                _ => (&[], &[]),
            };
            layout.pack(weight, scale, shift, &mut packed[at..at + layout.len()])?;
        }
        Ok(packed)
    }

    /// Number of floats of all packed weights.
    pub fn packed_len(&self) -> usize {
        let ends = self.packed_layouts().map(|(at, layout)| at + layout.len());
        ends.max().unwrap_or(0)
    }
}

/// A named op with its code: one or more launches, with variants that are selected by GPU when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unit {
    /// Unique canonical name; also the stem of its file name.
    pub name: Cow<'static, str>,
    /// Its variants, at least one. The planner creates one; a unit shared by plans for several GPUs has one
    /// for each, which differ in the GPU only.
    pub variants: Cow<'static, [Variant]>,
}

impl Unit {
    /// The variant for a device: the first that was planned for `gpu`, else the first that runs on `arch`.
    pub fn variant_for(&self, gpu: &str, arch: Arch) -> Option<&Variant> {
        self.variants
            .iter()
            .find(|variant| variant.gpu == gpu && variant.min_arch <= arch)
            .or_else(|| {
                self.variants
                    .iter()
                    .find(|variant| variant.min_arch <= arch)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WeightSlot;

    #[test]
    fn blocks_of_several_layouts_lie_as_in_a_weight_file() {
        let layouts = [[3, 5, 1, 1], [64, 1, 1, 1], [1, 1, 3, 3]].map(WeightLayout::oihw);
        let variant = Variant {
            gpu: "h200".into(),
            min_arch: Arch::new(70),
            steps: Vec::new().into(),
            workspace_bytes: 0,
            weights: layouts[0].clone(),
            extra_weight_layouts: layouts[1..].to_vec().into(),
            bias_len: 7,
        };
        let slots = layouts
            .iter()
            .enumerate()
            .map(|(index, layout)| WeightSlot {
                name: index.to_string(),
                layout: layout.clone(),
                // Only the last block is followed by the bias: after this one there is a factor of a
                // different layer.
                bias_len: if index == 1 { variant.bias_len } else { 0 },
            });
        let file = WeightFile::from_units([slots.collect()]);
        let packed: Vec<_> = variant.packed_layouts().collect();
        for ((at, layout), (slot, region)) in packed.iter().zip(file.iter()) {
            assert_eq!((*layout, 4 * *at as u64), (&slot.layout, region.packed));
        }
        assert_eq!(
            packed.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            [0, 64, 128]
        );
        assert_eq!(variant.packed_len(), 128 + 9);
    }
}
