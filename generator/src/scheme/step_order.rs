//! In which order a warp takes the steps of a chunk on the tensor cores, and where each finds its operands: all of it is known when
//! the text is made, but for what depends on the warp. An address found step by step would take longer than the products.

use super::tensor_core::PROMOTION_INTERVAL;
use serde::Serialize;

/// Steps that are unrolled at most where the tensor cores add up everything.
const MAX_UNROLLED_STEPS: u32 = 12;

/// The steps of a chunk, which warps share.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSteps {
    /// Groups of channels, rows of the filter, its columns.
    pub(super) counts: [u32; 3],
    /// Steps of one group, row and column, in packed weights and in staged input elements.
    pub(super) a: [u32; 3],
    /// See [`a`](Self::a).
    pub(super) b: [u32; 3],
    /// Warps that share the steps.
    pub(super) warps: u32,
    /// Numbers that stand for a value.
    pub(super) split_terms: u32,
}

impl ChunkSteps {
    /// Whether the loop over a warp's steps is unrolled, each with products for so many tiles.
    pub(super) fn unroll(&self, tiles: u32) -> bool {
        let steps = self.counts.iter().product::<u32>() / self.warps;
        unrolls(steps, tiles, self.split_terms)
    }
}

/// How many warps share each of the counts, outermost first, so that all shares are equal; `None` where they cannot be.
pub(super) fn split_steps_over_warps(counts: [u32; 3], warps: u32) -> Option<[u32; 3]> {
    fn common(a: u32, b: u32) -> u32 {
        if b == 0 { a } else { common(b, a % b) }
    }
    let mut left = warps;
    let shares = counts.map(|count| {
        let share = common(count, left);
        left /= share;
        share
    });
    (left == 1).then_some(shares)
}

/// Steps of the innermost loop in each direction, of `warp_steps` steps of a warp: all of the inner directions before some of the next.
/// With two parts they add to one partial sum.
pub(super) fn promotion_interval(warp_steps: [u32; 3], split_terms: u32) -> [u32; 3] {
    let most = if split_terms == 2 {
        PROMOTION_INTERVAL
    } else {
        MAX_UNROLLED_STEPS
    };
    let mut promotion_interval = [1; 3];
    for axis in [2, 1, 0] {
        let inner: u32 = promotion_interval.iter().product();
        let fits = |&count: &u32| warp_steps[axis].is_multiple_of(count) && count * inner <= most;
        promotion_interval[axis] = (1..=most).rev().find(fits).unwrap_or(1);
        if promotion_interval[axis] < warp_steps[axis] {
            break;
        }
    }
    promotion_interval
}

/// Whether the loop over a warp's steps in a chunk is unrolled, each with products for so many tiles.
pub(super) fn unrolls(steps: u32, tiles: u32, split_terms: u32) -> bool {
    /// Products of matrices at most.
    const PRODUCTS: u32 = 128;
    steps * tiles * (2 * split_terms - 1) <= PRODUCTS
}

/// The share of a chunk's steps that a warp takes along one direction.
#[derive(Debug, Clone, Serialize)]
struct WarpOffset {
    /// Its number, as an expression.
    warp: String,
    /// Packed weights and staged input elements between two shares.
    a: u32,
    b: u32,
}

/// A loop over steps.
#[derive(Debug, Clone, Serialize)]
struct StepLoop {
    name: &'static str,
    count: u32,
    /// Packed weights and staged input elements between two rounds.
    a: u32,
    b: u32,
}

/// The order, as templates know it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StepOrder {
    /// Which steps a warp takes.
    warp_offsets: Vec<WarpOffset>,
    /// Loops around them.
    loops: Vec<StepLoop>,
    /// Whether they are unrolled too.
    unrolls: bool,
    /// Steps of the innermost loop, which with two parts add to one partial sum, and where step `i` of them finds its operands.
    promotion_interval: u32,
    a_step_offset: String,
    b_step_offset: String,
}

impl StepOrder {
    /// The order for a warp whose share is the variable `warp_k`, with its loops unrolled or not.
    pub(super) fn new(steps: ChunkSteps, warp_k: &str, unrolls: bool) -> Self {
        let ChunkSteps {
            counts,
            a,
            b,
            warps,
            split_terms,
        } = steps;
        let split = split_steps_over_warps(counts, warps).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| counts[axis] / split[axis]);
        let promotion_interval = promotion_interval(warp_steps, split_terms);
        let mut warp_offsets = Vec::new();
        let mut inner_warps = warps;
        for axis in 0..3 {
            if split[axis] == 1 {
                continue;
            }
            let outer_warps = inner_warps;
            inner_warps /= split[axis];
            let mut warp = warp_k.to_owned();
            if inner_warps > 1 {
                warp.push_str(&format!(" / {inner_warps}"));
            }
            if outer_warps < warps {
                warp.push_str(&format!(" % {}", split[axis]));
            }
            warp_offsets.push(WarpOffset {
                warp,
                a: warp_steps[axis] * a[axis],
                b: warp_steps[axis] * b[axis],
            });
        }
        let names = ["group", "row", "column"];
        let loops = [0, 1, 2]
            .into_iter()
            .filter(|&axis| promotion_interval[axis] < warp_steps[axis]);
        let loops = loops.map(|axis| StepLoop {
            name: names[axis],
            count: warp_steps[axis] / promotion_interval[axis],
            a: promotion_interval[axis] * a[axis],
            b: promotion_interval[axis] * b[axis],
        });
        Self {
            warp_offsets,
            loops: loops.collect(),
            unrolls,
            promotion_interval: promotion_interval.iter().product(),
            a_step_offset: step_offset(promotion_interval, a),
            b_step_offset: step_offset(promotion_interval, b),
        }
    }
}

/// Where step `i` of a chain lies, as an expression: `counts` of steps in three directions, outermost first, each a stride apart.
fn step_offset(counts: [u32; 3], strides: [u32; 3]) -> String {
    let mut terms = Vec::new();
    let mut inner = 1;
    let mut axis = 3;
    while axis > 0 {
        axis -= 1;
        let (mut count, stride) = (counts[axis], strides[axis]);
        // Directions that follow each other without a gap are one.
        while axis > 0 && strides[axis - 1] == count * stride {
            axis -= 1;
            count *= counts[axis];
        }
        if count > 1 {
            let mut term = "i".to_owned();
            if inner > 1 {
                term.push_str(&format!(" / {inner}"));
            }
            if counts[..axis].iter().any(|&outer| outer > 1) {
                term.push_str(&format!(" % {count}"));
            }
            if stride > 1 {
                term.push_str(&format!(" * {stride}"));
            }
            terms.push(term);
        }
        inner *= count;
    }
    match terms.is_empty() {
        true => "0".to_owned(),
        false => terms.join(" + "),
    }
}
