//! How a kernel wants its weights, as data, and the one packer that obeys it.

use std::borrow::Cow;
use std::fmt;

/// An axis of PyTorch's weight tensor (OIHW). A linear layer's weight has `R` = `S` = 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Axis {
    /// Output channels.
    O,
    /// Input channels of one group.
    I,
    /// Filter rows.
    R,
    /// Filter columns.
    S,
}

impl Axis {
    /// Position of the axis in OIHW order.
    pub const fn index(self) -> usize {
        self as usize
    }

    const fn letter(self) -> char {
        match self {
            Axis::O => 'O',
            Axis::I => 'I',
            Axis::R => 'R',
            Axis::S => 'S',
        }
    }
}

/// One dimension of the packed tensor: `count` steps of `step` along `axis` of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayoutDim {
    /// The source axis walked.
    pub axis: Axis,
    /// Size of this dimension in the packed tensor.
    pub count: u32,
    /// How far one step moves along the source axis.
    pub step: u32,
}

/// The order in which a kernel reads its parameters.
///
/// The packed block is a dense row-major tensor with the dimensions `dims`, outermost first. Each dimension walks one axis of
/// the OIHW source; the source index along an axis is the sum over its dimensions of `index * step`, and an index past the
/// axis' end reads as zero (padding). So `[O/8, I, R, S, O%8]` splits the output channels into tiles of eight:
/// `O: ceil(N/8) x step 8, I, R, S, O: 8 x step 1`.
///
/// After the weights come `prologue_channels` scales and as many shifts, for kernels that apply `max(0, scale * x + shift)`
/// or `scale * x + shift` to their input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightLayout {
    /// Sizes of the source: O, I (per group), R, S. All zero for a unit without weights.
    pub source: [u32; 4],
    /// Dimensions of the packed weights, outermost first.
    pub dims: Cow<'static, [LayoutDim]>,
    /// Channels of the input's affine prologue; 0 when there is none.
    pub prologue_channels: u32,
}

/// Weights that do not fit their layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackError {
    /// The named slice has `found` elements where `expected` are needed.
    Length {
        /// `weight`, `scale`, `shift` or `packed`.
        what: &'static str,
        /// Elements the layout asks for.
        expected: usize,
        /// Elements given.
        found: usize,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Length {
            what,
            expected,
            found,
        } = self;
        write!(f, "{what} has {found} elements, {expected} are needed")
    }
}

impl std::error::Error for PackError {}

impl WeightLayout {
    /// No parameters at all.
    pub const NONE: Self = Self {
        source: [0; 4],
        dims: Cow::Borrowed(&[]),
        prologue_channels: 0,
    };

    /// PyTorch's own order for a source of the given sizes.
    pub fn oihw(source: [u32; 4]) -> Self {
        let axes = [Axis::O, Axis::I, Axis::R, Axis::S];
        let dims = axes.map(|axis| LayoutDim {
            axis,
            count: source[axis.index()],
            step: 1,
        });
        Self {
            source,
            dims: dims.to_vec().into(),
            prologue_channels: 0,
        }
    }

    /// The same layout with an affine prologue over `channels` input channels behind the weights.
    pub fn with_prologue(mut self, channels: u32) -> Self {
        self.prologue_channels = channels;
        self
    }

    /// Elements of the OIHW source.
    pub fn source_len(&self) -> usize {
        self.source.iter().map(|&size| size as usize).product()
    }

    /// Elements of the packed weights, padding included, without the prologue.
    pub fn weight_len(&self) -> usize {
        if self.dims.is_empty() {
            0
        } else {
            self.dims.iter().map(|dim| dim.count as usize).product()
        }
    }

    /// Elements of the whole packed block: weights, then scales, then shifts.
    pub fn len(&self) -> usize {
        self.weight_len() + 2 * self.prologue_channels as usize
    }

    /// Whether the block holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packs OIHW `weight` and the prologue's `scale` and `shift` into `packed`.
    ///
    /// # Errors
    /// [`PackError::Length`] for the first slice that has not the length the layout asks for; `packed` is untouched then.
    pub fn pack(
        &self,
        weight: &[f32],
        scale: &[f32],
        shift: &[f32],
        packed: &mut [f32],
    ) -> Result<(), PackError> {
        let channels = self.prologue_channels as usize;
        for (what, expected, found) in [
            ("weight", self.source_len(), weight.len()),
            ("scale", channels, scale.len()),
            ("shift", channels, shift.len()),
            ("packed", self.len(), packed.len()),
        ] {
            if expected != found {
                return Err(PackError::Length {
                    what,
                    expected,
                    found,
                });
            }
        }
        let (packed_weight, prologue) = packed.split_at_mut(self.weight_len());
        self.pack_weight(weight, packed_weight);
        prologue[..channels].copy_from_slice(scale);
        prologue[channels..].copy_from_slice(shift);
        Ok(())
    }

    fn pack_weight(&self, weight: &[f32], packed: &mut [f32]) {
        let [_, i_size, r_size, s_size] = self.source.map(|size| size as usize);
        let mut position = vec![0u32; self.dims.len()];
        for value in packed {
            let mut at = [0u64; 4];
            for (dim, &index) in self.dims.iter().zip(&position) {
                at[dim.axis.index()] += u64::from(index) * u64::from(dim.step);
            }
            let inside = at
                .iter()
                .zip(self.source)
                .all(|(&index, size)| index < u64::from(size));
            *value = if inside {
                let [o, i, r, s] = at.map(|index| index as usize);
                weight[((o * i_size + i) * r_size + r) * s_size + s]
            } else {
                0.0
            };
            for (dim, index) in self.dims.iter().zip(&mut position).rev() {
                *index += 1;
                if *index < dim.count {
                    break;
                }
                *index = 0;
            }
        }
    }
}

/// One line that tells the layout completely, such as `[64,3,7,7] O8x8 I3x1 R7x1 S7x1 O8x1 +0`. Files are matched by it.
impl fmt::Display for WeightLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [o, i, r, s] = self.source;
        write!(f, "[{o},{i},{r},{s}]")?;
        for dim in self.dims.iter() {
            write!(f, " {}{}x{}", dim.axis.letter(), dim.count, dim.step)?;
        }
        write!(f, " +{}", self.prologue_channels)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for WeightLayout {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dim(axis: Axis, count: u32, step: u32) -> LayoutDim {
        LayoutDim { axis, count, step }
    }

    #[test]
    fn oihw_is_the_identity() {
        let layout = WeightLayout::oihw([2, 3, 1, 2]);
        let weight: Vec<f32> = (1..=12).map(|v| v as f32).collect();
        let mut packed = vec![f32::NAN; layout.len()];
        layout.pack(&weight, &[], &[], &mut packed).unwrap();
        assert_eq!(packed, weight);
    }

    #[test]
    fn split_axes_are_padded_with_zeros() {
        // N = 3 in tiles of 2, C = 2 padded to 3: packed [O/2][I 3][O%2].
        let layout = WeightLayout {
            source: [3, 2, 1, 1],
            dims: vec![
                dim(Axis::O, 2, 2),
                dim(Axis::I, 3, 1),
                dim(Axis::R, 1, 1),
                dim(Axis::S, 1, 1),
                dim(Axis::O, 2, 1),
            ]
            .into(),
            prologue_channels: 2,
        };
        let weight = [11., 12., 21., 22., 31., 32.];
        let mut packed = vec![f32::NAN; layout.len()];
        layout
            .pack(&weight, &[7., 8.], &[-7., -8.], &mut packed)
            .unwrap();
        assert_eq!(
            packed,
            [
                11., 21., 12., 22., 0., 0., 31., 0., 32., 0., 0., 0., 7., 8., -7., -8.
            ]
        );
        assert_eq!(layout.to_string(), "[3,2,1,1] O2x2 I3x1 R1x1 S1x1 O2x1 +2");
    }

    #[test]
    fn wrong_lengths_are_refused_and_nothing_is_written() {
        let layout = WeightLayout::oihw([2, 1, 1, 1]);
        let mut packed = [9.0; 2];
        let error = layout.pack(&[1.0], &[], &[], &mut packed).unwrap_err();
        assert_eq!(error.to_string(), "weight has 1 elements, 2 are needed");
        assert_eq!(packed, [9.0; 2]);
    }
}
