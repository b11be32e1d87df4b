//! The rectangle of pixels that a block or cluster computes, for launches of several convolutions of which one has a filter.

use crate::scheme::MAX_GRID;
use crate::scheme::tensor_core::MMA_N;
use serde::Serialize;
use tdc_runtime::ConvShape;

/// Taps of a filter at most: the code has instructions for each.
const MAX_TAPS: u64 = 128;

/// The rectangle, and the positions of the input that the filters of its pixels read.
#[derive(Debug, Clone, Copy)]
pub(in crate::scheme) struct Rectangle {
    /// The convolution with a filter.
    shape: ConvShape,
    /// Rows and columns of the output.
    outputs: [u32; 2],
    /// Rows and columns of the positions.
    pub(in crate::scheme) positions: [u32; 2],
}

impl Rectangle {
    /// `None` if the sizes of the convolution are near a limit of the kernels' integers, or the rectangle is.
    pub(in crate::scheme) fn new(shape: &ConvShape, outputs: [u32; 2]) -> Option<Self> {
        if !has_sane_sizes(shape) || outputs.iter().any(|size| !(1..=256).contains(size)) {
            return None;
        }
        let taps = [shape.r, shape.s];
        let reach = |axis: usize| {
            let dilated = (taps[axis] - 1) * shape.dilation[axis];
            (outputs[axis] - 1) * shape.stride[axis] + dilated + 1
        };
        let positions = [reach(0), reach(1)];
        positions[0].checked_mul(positions[1])?;
        Some(Self {
            shape: *shape,
            outputs,
            positions,
        })
    }

    /// Positions of the input.
    pub(in crate::scheme) fn position_count(&self) -> u32 {
        self.positions[0] * self.positions[1]
    }

    /// Pixels of the output.
    pub(in crate::scheme) fn pixels(&self) -> u32 {
        self.outputs[0] * self.outputs[1]
    }

    /// Pixels with padding to whole MMA tiles.
    pub(in crate::scheme) fn columns(&self) -> u32 {
        self.pixels().next_multiple_of(MMA_N)
    }

    /// Rectangles of an image, and of a row of rectangles.
    pub(in crate::scheme) fn tiles(&self) -> [u32; 2] {
        let [rows, columns] = [0, 1].map(|axis| self.out()[axis].div_ceil(self.outputs[axis]));
        [rows * columns, columns]
    }

    fn out(&self) -> [u32; 2] {
        [self.shape.out_h(), self.shape.out_w()]
    }

    /// Conditions under which `row` and `column` of a position are inside the image; none if all are.
    pub(in crate::scheme) fn positions_inside(&self) -> Vec<&'static str> {
        let (shape, out) = (&self.shape, self.out());
        let size = [shape.h, shape.w];
        let padding = [shape.padding.top, shape.padding.left];
        let names = [["row >= 0", "row < H"], ["column >= 0", "column < W"]];
        let inside = (0..2).flat_map(|axis| {
            let outputs = self.outputs[axis];
            // The end of the last rectangle's positions.
            let start = (out[axis].div_ceil(outputs) - 1) * outputs * shape.stride[axis];
            let ends_behind = start + self.positions[axis] > size[axis] + padding[axis];
            let [from, to] = names[axis];
            let from = (padding[axis] > 0).then_some(from);
            from.into_iter().chain(ends_behind.then_some(to))
        });
        inside.collect()
    }

    /// Whether the last rectangle along each axis ends outside the output.
    pub(in crate::scheme) fn is_cut(&self) -> [bool; 2] {
        [0, 1].map(|axis| !self.out()[axis].is_multiple_of(self.outputs[axis]))
    }

    /// The condition under which an item of the output is not stored: it is `none`, its channel `n` does not exist, or it is outside the image.
    pub(in crate::scheme) fn outside_output(
        &self,
        none: Option<&'static str>,
        is_uneven: bool,
    ) -> String {
        let [cut_rows, cut_columns] = self.is_cut();
        let mut outside: Vec<_> = none.into_iter().collect();
        outside.extend(is_uneven.then_some("n >= N"));
        outside.extend(cut_rows.then_some("out_row >= OUT_H"));
        outside.extend(cut_columns.then_some("out_column >= OUT_W"));
        match outside.is_empty() {
            true => "false".to_owned(),
            false => outside.join(" || "),
        }
    }
}

/// The constants of a rectangle in a kernel's template.
#[derive(Serialize)]
pub(in crate::scheme) struct RectangleContext {
    h: u32,
    w: u32,
    out_h: u32,
    out_w: u32,
    stride_h: u32,
    stride_w: u32,
    pad_top: u32,
    pad_left: u32,
    tiles: u32,
    tiles_w: u32,
    th: u32,
    tw: u32,
    /// Positions of the input, columns of their rows, pixels of the output without and with padding to MMA tiles.
    positions: u32,
    row_len: u32,
    pixels: u32,
    columns: u32,
}

impl RectangleContext {
    pub(in crate::scheme) fn new(rectangle: &Rectangle) -> Self {
        let shape = &rectangle.shape;
        let [tiles, tiles_w] = rectangle.tiles();
        let [th, tw] = rectangle.outputs;
        Self {
            h: shape.h,
            w: shape.w,
            out_h: shape.out_h(),
            out_w: shape.out_w(),
            stride_h: shape.stride[0],
            stride_w: shape.stride[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            tiles,
            tiles_w,
            th,
            tw,
            positions: rectangle.position_count(),
            row_len: rectangle.positions[1],
            pixels: rectangle.pixels(),
            columns: rectangle.columns(),
        }
    }
}

/// Whether the sizes of a convolution are far from any limit of a kernel's integers.
fn has_sane_sizes(shape: &ConvShape) -> bool {
    let dilated = |axis: usize, taps: u32| (taps - 1).saturating_mul(shape.dilation[axis]);
    let paddings = shape.padding;
    let padding = paddings.top.max(paddings.left).max(paddings.bottom);
    u64::from(shape.r) * u64::from(shape.s) <= MAX_TAPS
        && shape.h.max(shape.w) <= 1 << 14
        && dilated(0, shape.r).max(dilated(1, shape.s)) <= 1 << 10
        && shape.stride.iter().all(|&stride| stride <= 1 << 10)
        && padding.max(paddings.right) <= 1 << 14
        && shape.out_h().max(shape.out_w()) <= MAX_GRID
}

/// The condition that all of these hold.
pub(in crate::scheme) fn all_of(conditions: &[&str]) -> String {
    match conditions {
        [] => "true".to_owned(),
        _ => conditions.join(" && "),
    }
}
