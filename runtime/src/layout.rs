//! Weight layouts as data, and the packer that implements them.

use crate::winograd::{self, Winograd};
use crate::{bf16, half};
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

/// One dimension of the packed tensor: `count` indices in steps of `step` along `axis` of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayoutDim {
    /// The axis of the source.
    pub axis: Axis,
    /// Size of this dimension in the packed tensor.
    pub count: u32,
    /// Increment of the index along the source axis.
    pub step: u32,
}

/// Meaning of the dimensions: the axes R and S index taps or Winograd points, the axis I the input channels of one
/// group or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Filter {
    /// The filter's taps.
    Taps,
    /// The taps of a grouped convolution whose groups are merged into a block-diagonal matrix: the axis I indexes
    /// the input channels of all groups of a merged one. The weights of an output channel are zero for the
    /// channels of the other groups.
    MergedGroups {
        /// Groups of a merged one.
        merged: u32,
        /// Output channels of a group.
        n: u32,
    },
    /// The points of Winograd's F(m x m, 3 x 3): each 3x3 filter is transformed in float64 and rounded once.
    Winograd(Winograd),
}

/// Conversion of the packed weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transform {
    /// None: one float per weight.
    None,
    /// fp16, with two terms the hi/lo split. Each output channel is multiplied by the quantisation scale, the
    /// power of two that brings its largest weight into [2^14, 2^15), and rounded to fp16; each packed 32-bit
    /// word has two weights, the first in the lower half. For each `run` of weights the hi terms are stored
    /// first, followed, if `terms` is 2, by the lo terms (the rounded remainders); together they have 22
    /// bits.
    ///
    /// The weights are followed by the dequantisation scales, one float for each output channel that the
    /// dimensions cover.
    Fp16 {
        /// Number of weights whose hi terms are adjacent; it divides the number of packed weights and is
        /// even.
        run: u32,
        /// 1 or 2.
        terms: u32,
    },
    /// Each weight is rounded to bf16; each packed 32-bit word has two, the first in the lower half. Their
    /// number is even. bf16 has the range of fp32, so no scale is needed.
    Bf16,
}

/// The order in which a kernel reads its parameters.
///
/// The packed block is a dense row-major tensor with the dimensions `dims`, outermost first. Each dimension
/// belongs to one axis of the OIHW source; the source index along an axis is the sum over its dimensions of
/// `index * step`, and an index past the end of the axis reads as zero (padding). For example `[O/8, I, R, S,
/// O%8]` splits the output channels into tiles of eight: `O: ceil(N/8) x step 8, I, R, S, O: 8 x step 1`.
/// [`Filter`] defines whether R and S index the taps of the source or Winograd points, and whether I indexes the
/// channels of several groups.
///
/// [`Transform`] defines the stored format of the weights. They are followed by `prologue_channels` scales
/// and as many shifts, for kernels that apply `scale * x + shift`, with an optional activation, to their input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightLayout {
    /// Sizes of the source: O, I (per group), R, S. All zero for a unit without weights.
    pub source: [u32; 4],
    /// Dimensions of the packed weights, outermost first.
    pub dims: Cow<'static, [LayoutDim]>,
    /// Meaning of the dimensions of the axes R and S.
    pub filter: Filter,
    /// The stored format of the weights.
    pub transform: Transform,
    /// Channels of the prologue; 0 if there is none.
    pub prologue_channels: u32,
}

/// Tensors that do not match their layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackError {
    /// The named slice has `found` elements instead of `expected`.
    Length {
        /// `weight`, `scale`, `shift` or `packed`.
        what: &'static str,
        /// Elements required by the layout.
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
        write!(f, "{what} has length {found}, expected {expected}")
    }
}

impl std::error::Error for PackError {}

impl WeightLayout {
    /// No parameters.
    pub const NONE: Self = Self {
        source: [0; 4],
        dims: Cow::Borrowed(&[]),
        filter: Filter::Taps,
        transform: Transform::None,
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
            filter: Filter::Taps,
            transform: Transform::None,
            prologue_channels: 0,
        }
    }

    /// The same layout followed by a prologue of `channels` input channels.
    pub fn with_prologue(mut self, channels: u32) -> Self {
        self.prologue_channels = channels;
        self
    }

    /// Elements of the OIHW source.
    pub fn source_len(&self) -> usize {
        self.source.iter().map(|&size| size as usize).product()
    }

    /// Sizes of the indexed tensor: the source, or the source with its filters as Winograd points.
    pub fn indexed_shape(&self) -> [u32; 4] {
        let [o, i, r, s] = self.source;
        match self.filter {
            Filter::Taps | Filter::MergedGroups { .. } => [o, i, r, s],
            Filter::Winograd(winograd) => [o, i, winograd.points(), winograd.points()],
        }
    }

    /// Number of weights in the dimensions, padding included.
    pub fn padded_len(&self) -> usize {
        if self.dims.is_empty() {
            0
        } else {
            self.dims.iter().map(|dim| dim.count as usize).product()
        }
    }

    /// Number of dequantisation scales of [`Transform::Fp16`]; 0 if weights are not scaled.
    pub fn dequant_scale_len(&self) -> usize {
        match self.transform {
            Transform::None | Transform::Bf16 => 0,
            Transform::Fp16 { .. } => {
                let dims = self.dims.iter().filter(|dim| dim.axis == Axis::O);
                let last: u64 = dims
                    .map(|dim| u64::from(dim.count - 1) * u64::from(dim.step))
                    .sum();
                last as usize + 1
            }
        }
    }

    /// Number of floats of the packed weights and dequantisation scales, without the prologue.
    pub fn weight_len(&self) -> usize {
        match self.transform {
            Transform::None => self.padded_len(),
            Transform::Fp16 { terms, .. } => {
                self.padded_len() * terms as usize / 2 + self.dequant_scale_len()
            }
            Transform::Bf16 => self.padded_len() / 2,
        }
    }

    /// Number of floats of the packed block: weights and dequantisation scales, then scales, then shifts.
    pub fn len(&self) -> usize {
        self.weight_len() + 2 * self.prologue_channels as usize
    }

    /// Whether the block is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Packs OIHW `weight` and the prologue's `scale` and `shift` into `packed`.
    ///
    /// ```
    /// use tdc_runtime::WeightLayout;
    ///
    /// let layout = WeightLayout::oihw([2, 3, 1, 1]);
    /// let weight = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    /// let mut packed = vec![0.0; layout.len()];
    /// layout.pack(&weight, &[], &[], &mut packed)?;
    /// assert_eq!(packed, weight);
    /// # Ok::<(), tdc_runtime::PackError>(())
    /// ```
    ///
    /// # Errors
    /// [`PackError::Length`] for the first slice whose length is wrong; `packed` is unchanged then.
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
        let points;
        let weight = match self.filter {
            Filter::Taps | Filter::MergedGroups { .. } => weight,
            Filter::Winograd(winograd) => {
                points = winograd::points(weight, winograd);
                &points
            }
        };
        let (packed_weight, prologue) = packed.split_at_mut(self.weight_len());
        match self.transform {
            Transform::None => self.gather(weight, &[], packed_weight),
            Transform::Fp16 { run, terms } => {
                let dequant_scale_len = self.dequant_scale_len();
                let (halves, dequant_scale) =
                    packed_weight.split_at_mut(packed_weight.len() - dequant_scale_len);
                half::dequant_scale(weight, self.source[0] as usize, dequant_scale);
                let mut scaled = vec![0.0; self.padded_len()];
                self.gather(weight, dequant_scale, &mut scaled);
                half::split(&scaled, run as usize, terms as usize, halves);
            }
            Transform::Bf16 => {
                let mut values = vec![0.0; self.padded_len()];
                self.gather(weight, &[], &mut values);
                bf16::round(&values, packed_weight);
            }
        }
        prologue[..channels].copy_from_slice(scale);
        prologue[channels..].copy_from_slice(shift);
        Ok(())
    }

    /// The weights in the order of the dimensions, divided by the `dequant_scale` of their output channel, if
    /// any.
    fn gather(&self, weight: &[f32], dequant_scale: &[f32], packed: &mut [f32]) {
        let sizes = self.indexed_shape();
        let [_, i_size, r_size, s_size] = sizes.map(|size| size as usize);
        let mut position = vec![0u32; self.dims.len()];
        for value in packed {
            let mut at = [0u64; 4];
            for (dim, &index) in self.dims.iter().zip(&position) {
                at[dim.axis.index()] += u64::from(index) * u64::from(dim.step);
            }
            if let Filter::MergedGroups { merged, n } = self.filter {
                // The channels of preceding groups wrap around to huge indices.
                let group = at[0] / u64::from(n) % u64::from(merged);
                at[1] = at[1].wrapping_sub(group * i_size as u64);
            }
            let inside = at
                .iter()
                .zip(sizes)
                .all(|(&index, size)| index < u64::from(size));
            *value = if inside {
                let [o, i, r, s] = at.map(|index| index as usize);
                let value = weight[((o * i_size + i) * r_size + r) * s_size + s];
                // Division by a power of two is exact.
                dequant_scale
                    .get(o)
                    .map_or(value, |dequant_scale| value / dequant_scale)
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

/// A line that describes the layout completely, such as `[64,3,7,7] O8x8 I3x1 R7x1 S7x1 O8x1 +0`. Weight
/// files are matched by it.
impl fmt::Display for WeightLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [o, i, r, s] = self.source;
        write!(f, "[{o},{i},{r},{s}]")?;
        for dim in self.dims.iter() {
            write!(f, " {}{}x{}", dim.axis.letter(), dim.count, dim.step)?;
        }
        match self.filter {
            Filter::Taps => {}
            Filter::MergedGroups { merged, n } => write!(f, " merged{merged}x{n}")?,
            Filter::Winograd(winograd) => write!(f, " winograd{}", winograd.m())?,
        }
        match self.transform {
            Transform::None => {}
            Transform::Fp16 { run, terms } => write!(f, " fp16_{run}x{terms}")?,
            Transform::Bf16 => write!(f, " bf16")?,
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
            filter: Filter::Taps,
            transform: Transform::None,
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
    fn merged_groups_are_blocks_on_the_diagonal() {
        // Three groups of two output and two input channels, two of them merged: the second merged group has one.
        let layout = WeightLayout {
            source: [6, 2, 1, 1],
            dims: vec![dim(Axis::O, 2, 4), dim(Axis::O, 4, 1), dim(Axis::I, 5, 1)].into(),
            filter: Filter::MergedGroups { merged: 2, n: 2 },
            transform: Transform::None,
            prologue_channels: 0,
        };
        let weight: Vec<f32> = (1..=12).map(|value| value as f32).collect();
        let mut packed = vec![f32::NAN; layout.len()];
        layout.pack(&weight, &[], &[], &mut packed).unwrap();
        let rows = [
            [1., 2., 0., 0., 0.],
            [3., 4., 0., 0., 0.],
            [0., 0., 5., 6., 0.],
            [0., 0., 7., 8., 0.],
            [9., 10., 0., 0., 0.],
            [11., 12., 0., 0., 0.],
            [0.; 5],
            [0.; 5],
        ];
        assert_eq!(packed, rows.as_flattened());
        assert_eq!(layout.to_string(), "[6,2,1,1] O2x4 O4x1 I5x1 merged2x2 +0");
    }

    #[test]
    fn halves_keep_22_bits_whatever_the_size_of_a_channel() {
        // N = 3 padded to 4, C = 2: runs of 4 are the two input channels of two output channels.
        let layout = WeightLayout {
            source: [3, 2, 1, 1],
            dims: vec![dim(Axis::O, 2, 2), dim(Axis::O, 2, 1), dim(Axis::I, 2, 1)].into(),
            filter: Filter::Taps,
            transform: Transform::Fp16 { run: 4, terms: 2 },
            prologue_channels: 1,
        };
        assert_eq!(layout.to_string(), "[3,2,1,1] O2x2 O2x1 I2x1 fp16_4x2 +1");
        assert_eq!((layout.dequant_scale_len(), layout.len()), (4, 8 + 4 + 2));
        let weight = [0.1f32, -1e-9, 3e20, 1.2345678e20, 0.0, 0.0];
        let mut packed = vec![f32::NAN; layout.len()];
        layout.pack(&weight, &[7.0], &[-7.0], &mut packed).unwrap();
        assert_eq!(&packed[12..], [7.0, -7.0]);
        let part = |word: usize, upper: bool| {
            let bits = packed[word].to_bits() >> if upper { 16 } else { 0 };
            half::value(bits as u16)
        };
        for (index, &weight) in weight.iter().enumerate() {
            let (word, upper) = (index / 4 * 4 + index % 4 / 2, index % 2 == 1);
            let largest: f32 = if index < 2 { 0.1 } else { 3e20 };
            let unpacked = (f64::from(part(word, upper)) + f64::from(part(word + 2, upper)))
                * f64::from(packed[8 + index / 2]);
            let error = (unpacked - f64::from(weight)).abs();
            let allowed =
                (f64::from(weight).abs() * 2f64.powi(-22)).max(f64::from(largest) * 2f64.powi(-38));
            assert!(error <= allowed, "{weight}: {unpacked}");
        }
        // Padding and a channel of zeros.
        assert_eq!(
            (packed[5], packed[7], packed[10], packed[11]),
            (0.0, 0.0, f32::MIN_POSITIVE, f32::MIN_POSITIVE)
        );
    }

    #[test]
    fn one_half_keeps_11_bits_and_bf16_8_without_a_scale() {
        let layout = |transform| WeightLayout {
            source: [2, 3, 1, 1],
            dims: vec![dim(Axis::O, 2, 1), dim(Axis::I, 4, 1)].into(),
            filter: Filter::Taps,
            transform,
            prologue_channels: 1,
        };
        let weight = [0.1f32, -1e-9, 1.5, 1e-30, 1.2345678e20, -3e20];
        let pack = |layout: &WeightLayout| {
            let mut packed = vec![f32::NAN; layout.len()];
            layout.pack(&weight, &[7.0], &[-7.0], &mut packed).unwrap();
            assert_eq!(&packed[layout.weight_len()..], [7.0, -7.0]);
            packed
        };
        let half_of = |packed: &[f32], index: usize| {
            (packed[index / 2].to_bits() >> (16 * (index % 2))) as u16
        };

        let halves = layout(Transform::Fp16 { run: 4, terms: 1 });
        assert_eq!(halves.to_string(), "[2,3,1,1] O2x1 I4x1 fp16_4x1 +1");
        assert_eq!((halves.dequant_scale_len(), halves.len()), (2, 4 + 2 + 2));
        let packed = pack(&halves);
        for (index, &weight) in weight.iter().enumerate() {
            let (o, i) = (index / 3, index % 3);
            let unpacked =
                f64::from(half::value(half_of(&packed, 4 * o + i))) * f64::from(packed[4 + o]);
            let largest = [1.5, 3e20][o];
            let allowed = (f64::from(weight).abs() * 2f64.powi(-11)).max(largest * 2f64.powi(-39));
            assert!(
                (unpacked - f64::from(weight)).abs() <= allowed,
                "{weight}: {unpacked}"
            );
        }
        assert_eq!((half_of(&packed, 3), half_of(&packed, 7)), (0, 0));

        let rounded = layout(Transform::Bf16);
        assert_eq!(rounded.to_string(), "[2,3,1,1] O2x1 I4x1 bf16 +1");
        assert_eq!((rounded.dequant_scale_len(), rounded.len()), (0, 4 + 2));
        let packed = pack(&rounded);
        for (index, &weight) in weight.iter().enumerate() {
            let bits = half_of(&packed, index / 3 * 4 + index % 3);
            let unpacked = f64::from(f32::from_bits(u32::from(bits) << 16));
            let error = (unpacked - f64::from(weight)).abs();
            assert!(
                error <= f64::from(weight).abs() * 2f64.powi(-8),
                "{weight}: {unpacked}"
            );
        }
        assert_eq!((half_of(&packed, 3), half_of(&packed, 7)), (0, 0));
    }

    #[test]
    fn points_of_a_filter_are_walked_padded_and_scaled_like_taps() {
        // N = 1 padded to 2, C = 2; the points outermost. The filter of the second channel is a large tap in its middle.
        let layout = WeightLayout {
            source: [1, 2, 3, 3],
            dims: vec![
                dim(Axis::R, 4, 1),
                dim(Axis::S, 4, 1),
                dim(Axis::O, 2, 1),
                dim(Axis::I, 2, 1),
            ]
            .into(),
            filter: Filter::Winograd(Winograd::F2),
            transform: Transform::None,
            prologue_channels: 0,
        };
        assert_eq!(
            layout.to_string(),
            "[1,2,3,3] R4x1 S4x1 O2x1 I2x1 winograd2 +0"
        );
        assert_eq!((layout.source_len(), layout.len()), (18, 64));
        let mut weight = [0.0; 18];
        (weight[0], weight[13]) = (1.0, 8e20);
        let mut packed = vec![f32::NAN; layout.len()];
        layout.pack(&weight, &[], &[], &mut packed).unwrap();
        let corner = [1.0, 0.5, 0.5, 0.0];
        let middle = [0.0, 0.5, -0.5, 0.0];
        for (point, values) in packed.chunks_exact(4).enumerate() {
            let (r, s) = (point / 4, point % 4);
            let expected = [
                corner[r] * corner[s],
                8e20 * middle[r] * middle[s],
                0.0,
                0.0,
            ];
            assert_eq!(values, expected, "{point}");
        }
        // Scaled by the largest of the points, 2e20, not of the taps.
        let halves = WeightLayout {
            transform: Transform::Fp16 { run: 2, terms: 1 },
            ..layout
        };
        let mut packed = vec![f32::NAN; halves.len()];
        halves.pack(&weight, &[], &[], &mut packed).unwrap();
        let largest = 2e20 / packed[halves.len() - 2];
        assert!((16384.0..32768.0).contains(&largest), "{largest}");
    }

    #[test]
    fn wrong_lengths_are_refused_and_nothing_is_written() {
        let layout = WeightLayout::oihw([2, 1, 1, 1]);
        let mut packed = [9.0; 2];
        let error = layout.pack(&[1.0], &[], &[], &mut packed).unwrap_err();
        assert_eq!(error.to_string(), "weight has length 1, expected 2");
        assert_eq!(packed, [9.0; 2]);
    }
}
