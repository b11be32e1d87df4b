//! Conditions in the code of kernels that compute a rectangle of pixels from a rectangle of positions, as CUDA expressions.

use tdc_runtime::ConvShape;

/// The rectangle that a block or cluster computes.
#[derive(Debug, Clone, Copy)]
pub(in crate::scheme) struct Rectangle<'a> {
    /// The convolution whose filters read positions of its input.
    pub(in crate::scheme) shape: &'a ConvShape,
    /// Rows and columns of the positions.
    pub(in crate::scheme) positions: [u32; 2],
    /// Rows and columns of the output.
    pub(in crate::scheme) outputs: [u32; 2],
}

impl Rectangle<'_> {
    /// Conditions under which `row` and `column` of a position are inside the image; none if all are.
    pub(in crate::scheme) fn positions_inside(&self) -> Vec<&'static str> {
        let shape = self.shape;
        let out = [shape.out_h(), shape.out_w()];
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
        let out = [self.shape.out_h(), self.shape.out_w()];
        [0, 1].map(|axis| !out[axis].is_multiple_of(self.outputs[axis]))
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

/// The condition that all of these hold.
pub(in crate::scheme) fn all_of(conditions: &[&str]) -> String {
    match conditions {
        [] => "true".to_owned(),
        _ => conditions.join(" && "),
    }
}
