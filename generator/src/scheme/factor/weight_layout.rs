//! Packed weights of factors: matrices of 16x16 as the lanes of an MMA hold them, in the order in which a block reads them.

use super::Factor;
use crate::scheme::tensor_core::{MMA_K, MMA_M};
use tdc_runtime::{Axis, LayoutDim};

pub(in crate::scheme) fn dim(axis: Axis, count: u32, step: u32) -> LayoutDim {
    LayoutDim { axis, count, step }
}

/// A 16x16 matrix. A lane holds one row and two pairs of channels. Its registers are ordered by channel pair, then by row (this one and the
/// one eight rows below), then within a pair. If the other operand was converted from accumulators, the channels of a lane are those of its
/// accumulators.
pub(in crate::scheme) fn lanes(from_accumulators: bool) -> Vec<LayoutDim> {
    let (first, second) = match from_accumulators {
        true => (2, 8),
        false => (4, 2),
    };
    vec![
        dim(Axis::O, 8, 1),
        dim(Axis::I, 4, first),
        dim(Axis::I, 2, second),
        dim(Axis::O, 2, 8),
        dim(Axis::I, 2, 1),
    ]
}

/// The chunks of a 1x1 factor whose output channels `slices` blocks divide.
pub(in crate::scheme) fn pointwise(factor: &Factor, slices: u32) -> Vec<LayoutDim> {
    vec![
        dim(Axis::O, slices, factor.rows),
        dim(Axis::I, factor.chunks, factor.chunk_steps * MMA_K),
        dim(Axis::O, factor.rows / MMA_M, MMA_M),
        dim(Axis::I, factor.chunk_steps, MMA_K),
    ]
}
