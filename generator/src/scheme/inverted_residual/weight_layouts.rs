//! The packed weights: of the expansion, the depthwise convolution and the projection, then the biases of the first two. Each has its blocks'
//! slices of the expanded channels one after the other.

use super::geometry::Geometry;
use crate::ir::{InvertedResidualProblem, ProblemKind};
use crate::scheme::factor::{dim, lanes, pointwise};
use crate::scheme::tensor_core::{MMA_K, MMA_M};
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

pub(super) fn layouts(problem: &InvertedResidualProblem, sizes: &Geometry) -> Vec<WeightLayout> {
    let (cluster, slice) = (sizes.tile.cluster, sizes.slice);
    let (r, s) = (problem.depthwise.r, problem.depthwise.s);
    let fp16 = Transform::Fp16 {
        run: MMA_M * MMA_K,
        terms: sizes.split_terms,
    };
    let expand = [pointwise(&sizes.expand, cluster), lanes(false)].concat();
    let depthwise = vec![
        dim(Axis::O, cluster * slice / 4, 4),
        dim(Axis::R, r, 1),
        dim(Axis::S, s, 1),
        dim(Axis::O, 4, 1),
    ];
    let project = vec![
        dim(Axis::I, cluster, slice),
        dim(Axis::O, sizes.project.rows / MMA_M, MMA_M),
        dim(Axis::I, sizes.project.chunk_steps, MMA_K),
    ];
    let project = [project, lanes(false)].concat();
    let bias = || vec![dim(Axis::O, cluster * slice, 1)];
    let all: Vec<(Vec<LayoutDim>, Transform)> = vec![
        (expand, fp16),
        (depthwise, Transform::None),
        (project, fp16),
        // As many as the problem has.
        (bias(), Transform::None),
        (bias(), Transform::None),
    ];
    let sources = problem.weights().into_iter();
    sources
        .zip(all)
        .map(|(source, (dims, transform))| WeightLayout {
            source,
            filter: Filter::Taps,
            dims: dims.into(),
            transform,
            prologue_channels: 0,
        })
        .collect()
}
