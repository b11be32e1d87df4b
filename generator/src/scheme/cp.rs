//! Code that the schemes for CP layers share: the layouts and offsets of the factors.

use super::MAX_GRID;
use super::packed_offsets;
use super::tiling::supports_tiling;
use crate::ir::{CpProblem, Problem};
use tdc_runtime::{Axis, Filter, LayoutDim, Transform, WeightLayout};

/// Maximum rank, whose values a thread keeps in registers. Layers of higher ranks are matrix products, for which other schemes are faster.
const MAX_RANK: u32 = 32;

/// Offset of a factor in the packed parameters, and its length, both in floats.
pub(super) type FactorRange = [usize; 2];

/// Values of one row of a packed factor: `rank`, padded to complete vectors.
pub(super) fn rank_pitch(rank: u32) -> u32 {
    match rank {
        1 | 2 => rank,
        _ => rank.next_multiple_of(4),
    }
}

/// Layouts of the four factors. Each is a matrix of rows of [`rank_pitch`] values: one row for each input channel, row of the filter,
/// column of the filter, and output channel. These are the vectors `S_s:`, `H_h:`, `W_w:` and `T_t:` of Algorithm 2. The number of rows is
/// padded so that each factor is a multiple of 16 bytes. The last factor has `n_rows` rows.
pub(super) fn layouts(problem: &CpProblem, n_rows: u32) -> [WeightLayout; 4] {
    let row = rank_pitch(problem.rank);
    let layout = |source: [u32; 4], rows: (Axis, u32), ranks: Axis, prologue_channels| {
        let dim = |axis, count| LayoutDim {
            axis,
            count,
            step: 1,
        };
        WeightLayout {
            source,
            dims: vec![dim(rows.0, rows.1.next_multiple_of(4)), dim(ranks, row)].into(),
            filter: Filter::Taps,
            transform: Transform::None,
            prologue_channels,
        }
    };
    let [first, vertical, horizontal, last] = problem.factors().map(|factor| factor.weight());
    let shape = &problem.conv.shape;
    let prologue_channels = Problem::Cp(*problem).scale_shift_channels();
    [
        layout(first, (Axis::I, shape.c), Axis::O, prologue_channels),
        layout(vertical, (Axis::R, shape.r), Axis::O, 0),
        layout(horizontal, (Axis::S, shape.s), Axis::O, 0),
        layout(last, (Axis::O, n_rows), Axis::I, 0),
    ]
}

/// The ranges of the factors in the packed parameters.
pub(super) fn factor_ranges(layouts: &[WeightLayout; 4]) -> [FactorRange; 4] {
    let offsets = packed_offsets(layouts);
    [0, 1, 2, 3].map(|factor| [offsets[factor], layouts[factor].weight_len()])
}

/// Whether a CP layer can be computed in a single launch. The bounds keep the sizes of tiles far from overflow.
pub(super) fn supports_fused_cp(problem: &CpProblem) -> bool {
    let shape = &problem.conv.shape;
    supports_tiling(&problem.conv)
        && problem.rank <= MAX_RANK
        && shape.n <= 1 << 16
        && shape.batch <= MAX_GRID
}

/// The CP layer of a problem that is known to be one.
pub(super) fn expect_cp(problem: &Problem) -> &CpProblem {
    match problem {
        Problem::Cp(problem) => problem,
        _ => unreachable!("a scheme for CP layers has tiles for nothing else"),
    }
}
