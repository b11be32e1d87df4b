//! Convolutions, and the windows that they share with pools.

use super::super::attributes::Attributes;
use super::filter::Filter;
use super::padding::padding;
use super::{Converter, OpRef, Problem, Value, ValueId, first, invalid, unsupported};
use crate::ir::{Activation, ConvOptions, OpOptions, PaddingOption};
use tdc_runtime::Padding;

/// Sizes of a window: a filter or a pool.
pub(super) struct Window {
    pub(super) kernel: [u32; 2],
    pub(super) stride: [u32; 2],
    pub(super) dilation: [u32; 2],
    /// Top, left, bottom, right.
    pub(super) pads: [u32; 4],
}

impl Window {
    /// The window of a node that reads images of `image` rows and columns, a tensor of `rank` axes: of three without rows.
    pub(super) fn read(
        kernel: [u32; 2],
        image: [u32; 2],
        rank: usize,
        attributes: &Attributes<'_>,
    ) -> Result<Self, Problem> {
        let mut window = Self::given(kernel, rank, attributes)?;
        match attributes.string("auto_pad").as_deref() {
            None | Some("NOTSET") => {}
            Some("VALID") => window.pads = [0; 4],
            Some("SAME_UPPER") => window.pads = window.same(image, false),
            Some("SAME_LOWER") => window.pads = window.same(image, true),
            Some(other) => {
                return Err(unsupported(format!(
                    "`auto_pad` = {} is not supported",
                    other.escape_debug()
                )));
            }
        }
        Ok(window)
    }

    /// The window of a node with the padding of its attribute `pads`, whatever `auto_pad` is.
    pub(super) fn given(
        kernel: [u32; 2],
        rank: usize,
        attributes: &Attributes<'_>,
    ) -> Result<Self, Problem> {
        let pair = |name: &str| match attributes.ints(name) {
            None => Ok([1, 1]),
            Some(values) => window_pair(values, rank).ok_or_else(|| other_axes(name, values)),
        };
        let (stride, dilation) = (pair("strides")?, pair("dilations")?);
        let given = match attributes.ints("pads") {
            None => [0; 4],
            Some(values) => window_pads(values, rank).ok_or_else(|| {
                unsupported(format!(
                    "`pads` = {values:?} is not supported: pads of 0 or more for the {} axes of an image are",
                    rank.saturating_sub(2)
                ))
            })?,
        };
        Ok(Self {
            kernel,
            stride,
            dilation,
            pads: given,
        })
    }

    /// Padding so that the output has the input's size over the stride, rounded up; an odd pixel goes to the upper or the lower side.
    fn same(&self, image: [u32; 2], lower: bool) -> [u32; 4] {
        let all = |axis: usize| {
            let stride = u64::from(self.stride[axis].max(1));
            let reach =
                u64::from(self.dilation[axis]) * u64::from(self.kernel[axis].saturating_sub(1)) + 1;
            let covered =
                (u64::from(image[axis]).div_ceil(stride)).saturating_sub(1) * stride + reach;
            u32::try_from(covered.saturating_sub(u64::from(image[axis]))).unwrap_or(u32::MAX)
        };
        let split = |all: u32| {
            if lower {
                [all.div_ceil(2), all / 2]
            } else {
                [all / 2, all.div_ceil(2)]
            }
        };
        let ([top, bottom], [left, right]) = (split(all(0)), split(all(1)));
        [top, left, bottom, right]
    }

    /// The same window with more pixels around the image.
    pub(super) fn with_more_padding(&self, more: [u32; 4]) -> Self {
        let mut pads = self.pads;
        for (pad, more) in pads.iter_mut().zip(more) {
            *pad = pad.saturating_add(more);
        }
        Self { pads, ..*self }
    }

    /// Whether the padding is less than the window, without dilation, so that a pool has pixels in each of its windows.
    pub(super) fn has_pixels_everywhere(&self) -> bool {
        let mut pads = self.pads.iter().enumerate();
        self.dilation == [1, 1] && pads.all(|(side, &pad)| pad < self.kernel[side % 2])
    }

    pub(super) fn padding(&self) -> Padding {
        padding(self.pads)
    }

    /// The padding as configs have it.
    fn padding_option(&self) -> PaddingOption {
        let half = |axis: usize| {
            self.dilation[axis].saturating_mul(self.kernel[axis].saturating_sub(1)) / 2
        };
        match self.pads == [half(0), half(1), half(0), half(1)] {
            true => PaddingOption::Same,
            false => PaddingOption::Pixels(self.padding()),
        }
    }
}

fn other_axes(name: &str, values: &[i64]) -> Problem {
    unsupported(format!(
        "`{name}` = {values:?} is not supported: images have two axes, rows one"
    ))
}

/// Numbers for rows and columns, of a tensor of `rank` axes: of three axes there is one number, for columns.
pub(super) fn window_pair(values: &[i64], rank: usize) -> Option<[u32; 2]> {
    match rank {
        3 => sizes::<1>(values).map(|[columns]| [1, columns]),
        _ => sizes::<2>(values),
    }
}

/// Padding at the top, the left, the bottom and the right, likewise.
fn window_pads(values: &[i64], rank: usize) -> Option<[u32; 4]> {
    match rank {
        3 => sizes::<2>(values).map(|[left, right]| [0, left, 0, right]),
        _ => sizes::<4>(values),
    }
}

/// A list of that many numbers from 0, as large as configs may have them.
pub(super) fn sizes<const COUNT: usize>(values: &[i64]) -> Option<[u32; COUNT]> {
    let values: Option<Vec<u32>> = values
        .iter()
        .map(|&value| i32::try_from(value).ok()?.try_into().ok())
        .collect();
    values?.try_into().ok()
}

impl Converter<'_> {
    pub(super) fn convolution(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let filter = Filter::read(self, inputs, attributes, "a convolution")?;
        let [n, c, r, s] = filter.sizes;
        let (op, outer_pads) = self.padded_op_of(inputs)?;
        let x = self.shapes[op];
        let [top, left, bottom, right] = outer_pads;
        let image = [[x.h, top, bottom], [x.w, left, right]]
            .map(|sizes| sizes.into_iter().fold(0, u32::saturating_add));
        let rank = self.dims(first(inputs)?).len();
        let window = Window::read([r, s], image, rank, attributes)?;
        let window = window.with_more_padding(outer_pads);
        let groups = filter.groups;
        if c.checked_mul(groups) != Some(x.c) {
            return Err(invalid(format!(
                "its weight is for {c} channels in {groups} groups, its input has {}",
                x.c
            )));
        }
        let options = OpOptions::Conv(ConvOptions {
            kernel: window.kernel,
            stride: window.stride,
            pad: window.padding_option(),
            dilation: window.dilation,
            groups,
            bias: filter.has_bias(n)?,
            ..ConvOptions::new(n)
        });
        self.add(node, vec![op], options, |name| filter.tensors(name))
    }

    /// Whether an op's output has no negative number, so that padding it by zeros does not change a maximum.
    pub(super) fn is_never_negative(&self, op: OpRef) -> bool {
        let Some(op) = self.index_of(op).map(|index| &self.ops[index]) else {
            return false;
        };
        let activation = match &op.options {
            OpOptions::Conv(conv) => conv.activation,
            OpOptions::ConvTranspose(layer) => layer.activation,
            OpOptions::Linear(linear) => linear.activation,
            OpOptions::Binary(_, activation) | OpOptions::Activation(activation) => *activation,
            OpOptions::ScaleShift(scale_shift) => scale_shift.activation,
            _ => Activation::None,
        };
        match activation {
            Activation::Relu | Activation::Sigmoid | Activation::HardSigmoid => true,
            Activation::Clip { min, .. } => min.get() >= 0.0,
            _ => false,
        }
    }
}
