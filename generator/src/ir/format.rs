//! Formats of tensors in memory: element type, layout, and both with a shape.

use super::TensorShape;
use serde::Serialize;

/// The type of a tensor's elements in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// 32-bit floating point.
    #[default]
    Fp32,
    /// 16-bit floating point, IEEE 754 binary16.
    Fp16,
    /// The upper 16 bits of an fp32 number: its range with 8 bits of precision.
    Bf16,
    /// Two fp16 numbers, hi and lo, whose sum times a power of two is the value. All elements of a tensor share the power of two, which
    /// is in its [header](Format::SPLIT_HEADER_BYTES). Only inside of networks: configs cannot name it.
    Split,
    /// Whole numbers from 0 to 255. Only of a network's input.
    Uint8,
}

impl DType {
    /// The types that configs may name.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("fp32", Self::Fp32),
        ("fp16", Self::Fp16),
        ("bf16", Self::Bf16),
    ];

    /// Bytes of an element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Fp32 | Self::Split => 4,
            Self::Fp16 | Self::Bf16 => 2,
            Self::Uint8 => 1,
        }
    }

    /// Error bound of a tensor whose elements were rounded to the type, as an L2 norm relative to it. It is the largest error of one
    /// element; 0 for fp32, to which every kernel rounds.
    pub const fn rounding_error(self) -> f64 {
        match self {
            Self::Fp32 | Self::Uint8 => 0.0,
            Self::Fp16 => 4.9e-4,
            Self::Bf16 => 3.91e-3,
            Self::Split => 2.4e-7,
        }
    }

    /// Name in configs and generated files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Split => "split",
            Self::Uint8 => "uint8",
        }
    }
}

/// The order of an activation tensor's elements, slowest axis first. N is the batch here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// Images, channels, rows, columns.
    #[default]
    Nchw,
    /// Images, rows, columns, channels. Dense, or a view of some [channels](Format::pixel_stride) of a dense tensor.
    Nhwc,
    /// Rows, columns, channels, images (TVM tutorial). Always dense, never a view of another tensor.
    Hwcn,
}

impl Layout {
    /// The layouts that a config may require of an op, with their names there.
    pub const NAMES: [(&'static str, Self); 2] = [("nchw", Self::Nchw), ("hwcn", Self::Hwcn)];
    /// The layouts that inputs and outputs of a network may have, with their names in configs.
    pub const OF_INTERFACES: [(&'static str, Self); 2] =
        [("nchw", Self::Nchw), ("nhwc", Self::Nhwc)];
    /// Every layout.
    pub const ALL: [Self; 3] = [Self::Nchw, Self::Nhwc, Self::Hwcn];

    /// Name in messages and generated text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nchw => "NCHW",
            Self::Nhwc => "NHWC",
            Self::Hwcn => "HWCN",
        }
    }

    /// Distances of adjacent images, channels, rows and columns of a dense tensor, in elements.
    pub fn strides(self, shape: TensorShape) -> [u64; 4] {
        let [batch, c, w] = [shape.batch, shape.c, shape.w].map(u64::from);
        match self {
            Self::Nchw => [shape.image_len(), shape.pixels(), w, 1],
            Self::Nhwc => [shape.image_len(), 1, w * c, c],
            Self::Hwcn => [1, batch, w * c * batch, c * batch],
        }
    }

    /// The index of element (image, channel, pixel) of a dense tensor.
    pub fn index(self, shape: TensorShape, [image, channel, pixel]: [usize; 3]) -> usize {
        let [image_stride, channel_stride, _, column_stride] =
            self.strides(shape).map(|stride| stride as usize);
        image * image_stride + channel * channel_stride + pixel * column_stride
    }
}

/// Format of an activation tensor, without its shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Default)]
pub struct Format {
    /// Element type.
    pub dtype: DType,
    /// Order of the elements.
    pub layout: Layout,
    /// Of a view of some channels of a 16-bit tensor in NHWC, such as a part of a concatenation: elements from one pixel to the next, which
    /// are the channels of that tensor. `None` for any other tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixel_stride: Option<u32>,
}

impl Format {
    /// fp16 in NHWC: what tensor cores read. The number of channels is a multiple of [`RUN_CHANNELS`](Self::RUN_CHANNELS), except of a
    /// network's output that a conversion writes.
    pub const FP16_NHWC: Self = Self::new(DType::Fp16, Layout::Nhwc);

    /// fp16 in NCHW. Only of a network's output.
    pub const FP16_NCHW: Self = Self::new(DType::Fp16, Layout::Nchw);

    /// bf16 in NHWC: as [`FP16_NHWC`](Self::FP16_NHWC), with the range of fp32.
    pub const BF16_NHWC: Self = Self::new(DType::Bf16, Layout::Nhwc);

    /// bf16 in NCHW. Only of a network's output.
    pub const BF16_NCHW: Self = Self::new(DType::Bf16, Layout::Nchw);

    /// Hi and lo in NHWC, for products that are as accurate as those of fp32. A tensor is a header of
    /// [`SPLIT_HEADER_BYTES`](Self::SPLIT_HEADER_BYTES), then hi of all elements, then lo of all elements. The number of channels is a
    /// multiple of [`RUN_CHANNELS`](Self::RUN_CHANNELS).
    pub const SPLIT_NHWC: Self = Self::new(DType::Split, Layout::Nhwc);

    /// Channels that kernels load and store at a time in the NHWC formats: 16 bytes of 16-bit numbers.
    pub const RUN_CHANNELS: u32 = 8;

    /// Size of the header of a tensor in [`SPLIT_NHWC`](Self::SPLIT_NHWC): the power of two, the number of maxima, two unused words, and
    /// [maxima](Self::SPLIT_MAXIMA). `templates/device/split_tensor.cuh` describes them.
    pub const SPLIT_HEADER_BYTES: u64 = 4096;

    /// The most maxima of a header, and so the most blocks of a kernel that writes one for each.
    pub const SPLIT_MAXIMA: u32 = Self::SPLIT_HEADER_BYTES as u32 / 4 - 4;

    /// Whether a tensor with this number of channels can have the format inside of a network.
    pub const fn fits_channels(self, channels: u32) -> bool {
        match self.layout {
            Layout::Nhwc => channels.is_multiple_of(Self::RUN_CHANNELS),
            Layout::Nchw | Layout::Hwcn => true,
        }
    }

    /// Whether the format is no view, or one that kernels can write a tensor with this number of channels to: in runs of
    /// [`RUN_CHANNELS`](Self::RUN_CHANNELS).
    pub fn fits_view(self, channels: u32) -> bool {
        self.pixel_stride.is_none_or(|stride| {
            self.is_16_bit_nhwc()
                && [channels, stride].map(|size| self.fits_channels(size)) == [true; 2]
                && channels <= stride
        })
    }

    /// Runs of [`RUN_CHANNELS`](Self::RUN_CHANNELS) from one pixel of a tensor of `channels` channels in NHWC to the next.
    pub fn pixel_runs(self, channels: u32) -> u32 {
        self.pixel_stride.unwrap_or(channels) / Self::RUN_CHANNELS
    }

    /// Whether it is NHWC of 16-bit floating point numbers, dense or a view.
    pub fn is_16_bit_nhwc(self) -> bool {
        [Self::FP16_NHWC, Self::BF16_NHWC].contains(&self.dense())
    }

    /// The format of a network's output of this shape as kernels write it. Of images of one pixel or of one channel both layouts are the same
    /// bytes: kernels write fp32 in NCHW, and 16-bit numbers of one pixel in NHWC.
    pub fn as_kernels_write(self, shape: TensorShape) -> Self {
        match self.dtype {
            DType::Fp16 | DType::Bf16 if shape.pixels() == 1 => Self {
                layout: Layout::Nhwc,
                ..self
            },
            DType::Fp32 if shape.pixels() == 1 || shape.c == 1 => Self::default(),
            _ => self,
        }
    }

    /// Name in messages and documentation.
    pub fn name(self) -> String {
        let name = format!("{} {}", self.dtype.as_str(), self.layout.name());
        match self.pixel_stride {
            Some(channels) => format!("{name} in a tensor of {channels} channels"),
            None => name,
        }
    }

    /// fp32 in a layout.
    pub const fn fp32(layout: Layout) -> Self {
        Self::new(DType::Fp32, layout)
    }

    /// A type in a layout.
    pub const fn new(dtype: DType, layout: Layout) -> Self {
        Self {
            dtype,
            layout,
            pixel_stride: None,
        }
    }

    /// A view of some channels of a tensor of this format that has `channels` channels.
    pub const fn view_of(self, channels: u32) -> Self {
        Self {
            pixel_stride: Some(channels),
            ..self
        }
    }

    /// The format of the tensor that contains a view; of any other tensor its own.
    pub const fn dense(self) -> Self {
        Self {
            pixel_stride: None,
            ..self
        }
    }
}

/// Shape and format of an activation tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Tensor {
    /// Shape.
    pub shape: TensorShape,
    /// Format.
    pub format: Format,
}

impl Tensor {
    /// fp32, NCHW.
    pub const fn nchw(shape: TensorShape) -> Self {
        Self {
            shape,
            format: Format::fp32(Layout::Nchw),
        }
    }

    /// A shape in a format.
    pub const fn new(shape: TensorShape, format: Format) -> Self {
        Self { shape, format }
    }

    /// Bytes of its elements, and of the header that it has in [`Format::SPLIT_NHWC`].
    pub const fn bytes(&self) -> u64 {
        let header = match self.format.dtype {
            DType::Split => Format::SPLIT_HEADER_BYTES,
            DType::Fp32 | DType::Fp16 | DType::Bf16 | DType::Uint8 => 0,
        };
        self.shape.len() * self.format.dtype.bytes() + header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_dense_tensor_has_an_index_of_its_own() {
        let shape = TensorShape::new(3, 5, 2, 7);
        for layout in Layout::ALL {
            let mut seen = vec![false; shape.len() as usize];
            for image in 0..3 {
                for channel in 0..5 {
                    for pixel in 0..14 {
                        let index = layout.index(shape, [image, channel, pixel]);
                        assert!(!std::mem::replace(&mut seen[index], true), "{layout:?}");
                    }
                }
            }
        }
        // Image 1, channel 2, row 1, column 3.
        assert_eq!(Layout::Nchw.index(shape, [1, 2, 10]), 70 + 2 * 14 + 10);
        assert_eq!(Layout::Nhwc.index(shape, [1, 2, 10]), 70 + 10 * 5 + 2);
        assert_eq!(Layout::Hwcn.index(shape, [1, 2, 10]), (10 * 5 + 2) * 3 + 1);
    }
}
