//! Pooling.

use super::super::attributes::Attributes;
use super::super::inputs::input;
use super::convolution::{Window, window_pair};
use super::padding::distinct_axes;
use super::{Converter, Problem, Value, ValueId, first, invalid, op_type, unsupported};
use crate::ir::{OpOptions, PoolOptions};

impl Converter<'_> {
    /// Pooling over windows.
    pub(super) fn pool(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        let is_max = op_type(&self.graph.nodes[node]) == "MaxPool";
        let kernel = attributes
            .ints("kernel_shape")
            .ok_or_else(|| invalid("it has no `kernel_shape`"))?;
        let rank = self.dims(first(inputs)?).len();
        let kernel = window_pair(kernel, rank).ok_or_else(|| {
            unsupported(format!(
                "`kernel_shape` = {kernel:?} is not supported: images have two axes, rows one"
            ))
        })?;
        let (mut op, mut outer_pads) = self.padded_op_of(inputs)?;
        let x = self.shapes[op];
        let [top, left, bottom, right] = outer_pads;
        let image = [[x.h, top, bottom], [x.w, left, right]]
            .map(|sizes| sizes.into_iter().fold(0, u32::saturating_add));
        let window = Window::read(kernel, image, rank, attributes)?;
        let ceil_mode = attributes.int("ceil_mode").unwrap_or(0) != 0;
        let count_include_pad = attributes.int("count_include_pad").unwrap_or(0) != 0;
        if is_max {
            // Of the indices, which are the second output.
            attributes.expect_int("storage_order", 0);
        }
        // A maximum over numbers that are not negative does not change. An average counts the zeros.
        let may_fold = match is_max {
            true => self.is_never_negative(op),
            false => count_include_pad || window.pads == [0; 4],
        };
        let folded = window.with_more_padding(outer_pads);
        let out = |window: &Window, image: [u32; 2]| {
            [0, 1].map(|axis| output_size(window, image[axis], axis, ceil_mode))
        };
        // Windows of a pool begin within the image or the padding before it, and are not all padding.
        let is_same = out(&window, image) == out(&folded, [x.h, x.w]);
        if outer_pads != [0; 4] && !(may_fold && is_same && folded.has_pixels_everywhere()) {
            self.materialize(first(inputs)?).ok_or(Problem::Reported)?;
            (op, outer_pads) = self.padded_op_of(inputs)?;
        }
        let window = window.with_more_padding(outer_pads);
        let options = PoolOptions {
            kernel,
            stride: window.stride,
            pad: window.padding(),
            dilation: window.dilation,
            ceil_mode,
            count_include_pad: count_include_pad || outer_pads != [0; 4],
        };
        let options = if is_max {
            OpOptions::MaxPool(options)
        } else {
            OpOptions::AvgPool(options)
        };
        self.add(node, vec![op], options, |_| Vec::new())
    }

    /// Pooling over the whole image.
    pub(super) fn global_pool(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
    ) -> Result<Value, Problem> {
        let options = match op_type(&self.graph.nodes[node]) {
            "GlobalMaxPool" => OpOptions::GlobalMaxPool,
            _ => OpOptions::GlobalAvgPool,
        };
        let rank = self.dims(first(inputs)?).len();
        if ![3, 4].contains(&rank) {
            return Err(unsupported(format!(
                "its input has {rank} axes, not three or four"
            )));
        }
        let op = self.op_of(inputs, 0)?;
        self.add(node, vec![op], options, |_| Vec::new())
    }

    /// The mean over rows and columns is global pooling, that over the channels a part of a layer norm. From operator set 18 on the axes are an input.
    pub(super) fn reduce_mean(
        &mut self,
        node: usize,
        inputs: &[Option<ValueId>],
        attributes: &Attributes<'_>,
    ) -> Result<Value, Problem> {
        attributes.expect_int("noop_with_empty_axes", 0);
        let keeps_axes = attributes.int("keepdims").unwrap_or(1) != 0;
        let axes = match (attributes.ints("axes"), input(inputs, 1)) {
            (Some(axes), _) => axes.to_vec(),
            (None, Some(_)) => self.expect_ints(inputs, 1, "list of axes")?,
            (None, None) => return Err(unsupported("a mean over all axes is not supported")),
        };
        let id = first(inputs)?;
        let is_channels_last = self.is_channels_last(id);
        let images: &[usize] = if is_channels_last { &[1, 2] } else { &[2, 3] };
        let rank = self.dims(id).len();
        let mut places = distinct_axes(&axes, rank).unwrap_or_default();
        places.sort_unstable();
        if rank > 1 && places == [self.channel_axis(id)] {
            return Ok(self.channel_mean(node, id, keeps_axes));
        }
        if rank != 4 || places != images {
            return Err(unsupported(format!(
                "a mean over the axes {axes:?} is not supported, only over rows and columns, or over the channels in a layer norm"
            )));
        }
        let op = self.op_in_either_order(id)?;
        let op = self.add_op(node, vec![op], OpOptions::GlobalAvgPool, |_| Vec::new())?;
        if keeps_axes {
            return Ok(self.output(op, is_channels_last));
        }
        let y = self.shapes[op];
        Ok(Value::Op {
            op,
            dims: vec![y.batch as usize, y.c as usize],
        })
    }
}

/// The output size along an axis as ONNX defines it; `None` if the window does not fit.
fn output_size(window: &Window, image: u32, axis: usize, ceil_mode: bool) -> Option<u32> {
    let reach =
        u64::from(window.dilation[axis]) * u64::from(window.kernel[axis].checked_sub(1)?) + 1;
    let padded = u64::from(image) + u64::from(window.pads[axis]) + u64::from(window.pads[axis + 2]);
    let steps = match ceil_mode {
        true => padded.saturating_sub(reach),
        false => padded.checked_sub(reach)?,
    };
    let stride = u64::from(window.stride[axis]);
    let steps = match (stride, ceil_mode) {
        (0, _) => return None,
        // A last window that would begin in the padding behind the image is left out, as in PyTorch.
        (_, true) => steps
            .div_ceil(stride)
            .min((u64::from(image) + u64::from(window.pads[axis])).div_ceil(stride) - 1),
        (_, false) => steps / stride,
    };
    u32::try_from(steps + 1).ok()
}
