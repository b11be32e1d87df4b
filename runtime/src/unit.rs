//! A unit: what carries out one op, or several fused ones.

use crate::{Arch, PackError, WeightFile, WeightLayout};
use std::borrow::Cow;

/// What a kernel parameter is bound to when a unit is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum Arg {
    /// `const float*`: the input.
    X,
    /// `const float*`: the second operand: residual of a convolution, right-hand side of an addition.
    Residual,
    /// `const float*`: the block that [`WeightLayout::pack`] writes; the first of several.
    Packed,
    /// `const float*`: a later one of several blocks, in a chain of units.
    PackedAt {
        /// Byte offset from the first, a multiple of 256.
        offset: u64,
    },
    /// `const float*`: one value an output channel.
    Bias,
    /// `float*`: the output.
    Y,
    /// `float*`: the workspace, `offset` bytes in.
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
    /// `long long`: elements between the images of a batch of a tensor between the units of a chain.
    Elements {
        /// So many.
        count: u64,
    },
}

/// What a unit's arguments are bound to.
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
    /// What an argument is bound to.
    pub const fn get(&self, arg: Arg) -> u64 {
        match arg {
            Arg::X => self.x,
            Arg::Residual => self.residual,
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
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster, which can read each other's shared memory: divisors of the grid's sizes, 16 blocks at most. `[1, 1, 1]`
    /// means none. A kernel that was compiled for less than sm_90 is launched without and copes.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared_bytes: u32,
    /// Whether the kernel may begin before the launch ahead of it has ended (programmatic dependent launch). Such a kernel waits
    /// by itself before it touches anything but its packed weights and its bias.
    pub pdl: bool,
    /// Parameters, in the kernel's order.
    pub args: Cow<'static, [Arg]>,
}

impl Launch {
    /// Dynamic shared memory that every launch gets; for more the kernel must be granted it, bytes.
    pub const DEFAULT_MAX_SHARED_BYTES: u32 = 48 * 1024;
    /// Blocks of the largest cluster that every GPU with clusters forms; for more the kernel must be granted it.
    pub const MAX_PORTABLE_CLUSTER: u32 = 8;
    /// What a kernel's text must have been compiled for, at least, for its launches to overlap or form clusters.
    pub const MIN_ATTRIBUTE_ARCH: Arch = Arch::new(90);

    /// Blocks of a cluster; 1 when there are none.
    pub fn cluster_blocks(&self) -> u32 {
        self.cluster.iter().product()
    }
}

/// One piece of work on the stream.
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
        /// Where it begins: the output, which then is one image, or a place in the workspace.
        target: Arg,
        /// Bytes to zero.
        bytes: u64,
    },
}

/// One way to carry a unit out, made for one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Variant {
    /// The GPU it was planned for, as the GPU table names it.
    pub gpu: Cow<'static, str>,
    /// The oldest architecture it runs on.
    pub min_arch: Arch,
    /// What is put on the stream, in order.
    pub steps: Cow<'static, [Step]>,
    /// Bytes of workspace a launch needs; it belongs to a stream's session, not to the kernel.
    pub workspace_bytes: u64,
    /// How the parameters are packed.
    pub weights: WeightLayout,
    /// Layouts of further weights, where a unit computes with several: the other factors of a Tucker layer. Their blocks follow the
    /// first, each at a multiple of [`WeightFile::ALIGNMENT`] bytes, as in a weight file.
    pub extra_weight_layouts: Cow<'static, [WeightLayout]>,
    /// Values of bias, one an output channel; 0 when the unit adds none.
    pub bias_len: u32,
}

impl Variant {
    /// Every layout, and where its block begins in the packed parameters, in floats.
    pub fn packed_layouts(&self) -> impl Iterator<Item = (usize, &WeightLayout)> {
        let mut end = 0usize;
        let layouts = std::iter::once(&self.weights).chain(self.extra_weight_layouts.iter());
        layouts.map(move |layout| {
            let start = end.next_multiple_of(WeightFile::ALIGNMENT as usize / 4);
            end = start + layout.len();
            (start, layout)
        })
    }

    /// Packs the tensors of all layouts, OIHW each, and the scale and shift of the prologue, which the first has.
    ///
    /// # Errors
    /// [`PackError`] for the first that has not the length its layout asks for, and for more or fewer tensors than layouts.
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

    /// Floats of all packed parameters.
    pub fn packed_len(&self) -> usize {
        let ends = self.packed_layouts().map(|(at, layout)| at + layout.len());
        ends.max().unwrap_or(0)
    }
}

/// A named, complete way to compute something: one, two or more launches, chosen by GPU when it is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unit {
    /// Unique name, by the naming grammar; also the stem of its file.
    pub name: Cow<'static, str>,
    /// Ways to carry it out; never empty. As planned there is one; a unit that plans for several GPUs share has one for each,
    /// equal but for the GPU.
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
                // Not the last of them: behind it lies a factor of another layer.
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
