//! The packed weights of both convolutions, whose input channels the blocks divide, then the bias of the first one.

use super::channels::STEP_QUADS;
use super::geometry::Geometry;
use crate::ir::{DenseStepProblem, Problem, ProblemKind};
use crate::scheme::factor::{dim, lanes};
use crate::scheme::tensor_core::{MMA_K, MMA_M};
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

pub(super) fn layouts(problem: &DenseStepProblem, sizes: &Geometry) -> Vec<WeightLayout> {
    let cluster = sizes.tile.cluster;
    let (r, s) = (problem.growth.r, problem.growth.s);
    let fp16 = Transform::Fp16 {
        run: MMA_M * MMA_K,
        terms: sizes.split_terms,
    };
    let growth = vec![
        dim(Axis::I, cluster, sizes.slice),
        dim(Axis::O, sizes.growth.rows / MMA_M, MMA_M),
        dim(Axis::I, sizes.slice / MMA_K, MMA_K),
        dim(Axis::R, r, 1),
        dim(Axis::S, s, 1),
    ];
    let bias = vec![dim(Axis::O, problem.growth.n, 1)];
    let prologue_channels = Problem::DenseStep(*problem).scale_shift_channels();
    let all = [
        ([growth, lanes(false)].concat(), fp16, 0),
        (pointwise(sizes), fp16, prologue_channels),
        // If the problem has one.
        (bias, Transform::None, 0),
    ];
    let sources = problem.weights().into_iter();
    sources
        .zip(all)
        .map(
            |(source, (dims, transform, prologue_channels))| WeightLayout {
                source,
                filter: Filter::Taps,
                dims: dims.into(),
                transform,
                prologue_channels,
            },
        )
        .collect()
}

/// The 1x1 convolution. Adjacent quads of a block are as many quads apart as the cluster has blocks.
fn pointwise(sizes: &Geometry) -> Vec<LayoutDim> {
    let cluster = sizes.tile.cluster;
    let outer = vec![
        dim(Axis::I, cluster, 4),
        dim(Axis::O, sizes.pointwise.rows / MMA_M, MMA_M),
        dim(Axis::I, sizes.quads.all_steps(), MMA_K * cluster),
    ];
    let spread = |inner: LayoutDim| match (inner.axis, inner.count) {
        (Axis::I, STEP_QUADS) => dim(Axis::I, STEP_QUADS, 4 * cluster),
        _ => inner,
    };
    let lanes = lanes(false).into_iter().map(spread);
    outer.into_iter().chain(lanes).collect()
}
