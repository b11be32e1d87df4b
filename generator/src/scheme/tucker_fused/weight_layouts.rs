//! The packed weights of the factors.

use super::geometry::TuckerFusedGeometry;
use crate::ir::{Problem, TuckerProblem};
use crate::scheme::factor::{dim, lanes, pointwise};
use crate::scheme::tensor_core::{MMA_K, MMA_M};
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// Weight layouts of the factors: matrices of 16x16 as the lanes of an MMA hold them, in the order in which a block reads them.
pub(super) fn layouts(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Vec<WeightLayout> {
    let (split, factors) = (&sizes.split, &sizes.factors);
    let first = factors.first.iter();
    let first = first.map(|first| (pointwise(first, split.d1_splits), false));
    let core_and_last = [
        (core(problem, sizes), sizes.sums.first_in_registers),
        (
            pointwise(&factors.last, sizes.tile.blocks_n),
            sizes.sums.core_in_registers,
        ),
    ];
    let next = factors.next.iter().map(|next| {
        let dims = vec![
            dim(Axis::I, sizes.tile.blocks_n, factors.last.rows),
            dim(Axis::O, next.rows / MMA_M, MMA_M),
            dim(Axis::I, next.chunk_steps, MMA_K),
        ];
        (dims, true)
    });
    let all = first.chain(core_and_last).chain(next);
    let problem = Problem::Tucker(*problem);
    let mut prologue_channels = problem.scale_shift_channels();
    let sources = problem.weights().into_iter();
    all.zip(sources)
        .map(|((outer, from_accumulators), source)| WeightLayout {
            source,
            filter: Filter::Taps,
            dims: [outer, lanes(from_accumulators)].concat().into(),
            transform: Transform::Fp16 {
                run: MMA_M * MMA_K,
                terms: sizes.split_terms,
            },
            // The prologue belongs to the first factor.
            prologue_channels: std::mem::take(&mut prologue_channels),
        })
        .collect()
}

/// The chunks of the core: rows of the filter, or the filters of some groups of channels.
fn core(problem: &TuckerProblem, sizes: &TuckerFusedGeometry) -> Vec<LayoutDim> {
    let (r, s) = (problem.core.r, problem.core.s);
    let (core, groups) = (&sizes.factors.core, sizes.split.block_d1_groups);
    let slices = [
        dim(Axis::I, sizes.split.d1_splits, groups * MMA_K),
        dim(Axis::O, sizes.tile.d2_splits, core.rows),
    ];
    let tiles = dim(Axis::O, core.rows / MMA_M, MMA_M);
    let chunks = match core.chunk_steps / (r * s) {
        0 => vec![
            dim(Axis::I, groups, MMA_K),
            dim(Axis::R, r, 1),
            tiles,
            dim(Axis::S, s, 1),
        ],
        chunk_groups => vec![
            dim(Axis::I, groups / chunk_groups, chunk_groups * MMA_K),
            tiles,
            dim(Axis::I, chunk_groups, MMA_K),
            dim(Axis::R, r, 1),
            dim(Axis::S, s, 1),
        ],
    };
    [&slices[..], &chunks].concat()
}
