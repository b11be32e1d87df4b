//! Conversion of dense tensors between layouts.

use crate::ir::{Layout, TensorShape};

/// Converts NCHW values to a dense tensor of another layout; empty stays empty.
pub(super) fn from_nchw(shape: TensorShape, layout: Layout, values: &[f32]) -> Vec<f32> {
    let mut converted = values.to_vec();
    if layout != Layout::Nchw && !values.is_empty() {
        for (place, index) in element_indices(shape, layout).zip(0..) {
            converted[place] = values[index];
        }
    }
    converted
}

/// Converts a dense tensor of another layout to NCHW.
pub(super) fn to_nchw(shape: TensorShape, layout: Layout, values: Vec<f32>) -> Vec<f32> {
    match layout {
        Layout::Nchw => values,
        _ => element_indices(shape, layout)
            .map(|place| values[place])
            .collect(),
    }
}

/// The indices of the elements of an NCHW tensor in another layout, in NCHW order.
fn element_indices(shape: TensorShape, layout: Layout) -> impl Iterator<Item = usize> {
    let (c, pixels) = (shape.c as usize, shape.pixels() as usize);
    (0..shape.len() as usize).map(move |index| {
        let position = [index / pixels / c, index / pixels % c, index % pixels];
        layout.index(shape, position)
    })
}
