//! The order in which a warp computes the K steps of a chunk on the tensor cores, and the operand offsets of each step. All
//! offsets are constants of the generated code, except for the offset of the warp: computing an address in every step would take
//! longer than the products.

use super::tensor_core::PROMOTION_INTERVAL;
use serde::Serialize;

/// Maximum number of K steps of the innermost loop without a hi/lo split, when the tensor cores accumulate the entire sum.
const MAX_UNROLLED_STEPS: u32 = 12;

/// The K steps of a chunk, which are divided among warps.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkSteps {
    /// K steps along channel groups, filter rows and filter columns.
    pub(super) counts: [u32; 3],
    /// Distances of two K steps along each axis: `a` in packed weights (32-bit words), `b` in staged input elements.
    pub(super) a: [u32; 3],
    /// See [`a`](Self::a).
    pub(super) b: [u32; 3],
    /// Warps that split K.
    pub(super) warps: u32,
    /// Terms of each operand: 2 with a hi/lo split, else 1.
    pub(super) split_terms: u32,
}

impl ChunkSteps {
    /// Whether the loop over a warp's K steps is unrolled; each has products for `tiles` MMA tiles.
    pub(super) fn unroll(&self, tiles: u32) -> bool {
        let steps = self.counts.iter().product::<u32>() / self.warps;
        unrolls(steps, tiles, self.split_terms)
    }
}

/// Numbers of warps along each axis, outermost first, that give all warps the same number of K steps; `None` if there are none.
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

/// K steps of the innermost loop along each axis, for a warp with `warp_steps` K steps. Outer axes are included only after inner
/// ones are complete. With a hi/lo split the innermost loop is a promotion interval.
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

/// Whether the loop over `steps` K steps of a warp in a chunk is unrolled; each has products for `tiles` MMA tiles.
pub(super) fn unrolls(steps: u32, tiles: u32, split_terms: u32) -> bool {
    /// Maximum number of unrolled `mma.sync` instructions.
    const PRODUCTS: u32 = 128;
    steps * tiles * (2 * split_terms - 1) <= PRODUCTS
}

/// The offset of a warp's K steps along one axis.
#[derive(Debug, Clone, Serialize)]
struct WarpOffset {
    /// Index of the warp along the axis, as a CUDA expression.
    warp: String,
    /// Packed weights and staged input elements from one warp to the next.
    a: u32,
    b: u32,
}

/// A loop over K steps.
#[derive(Debug, Clone, Serialize)]
struct StepLoop {
    name: &'static str,
    count: u32,
    /// Packed weights and staged input elements from one iteration to the next.
    a: u32,
    b: u32,
}

/// The order of K steps as context of the templates.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StepOrder {
    /// Offsets of the warp's first K step.
    warp_offsets: Vec<WarpOffset>,
    /// Loops around the innermost loop.
    loops: Vec<StepLoop>,
    /// Whether these loops are unrolled too.
    unrolls: bool,
    /// K steps of the innermost loop, which is a promotion interval if there is a hi/lo split, and the operand offsets of its
    /// step `i` as CUDA expressions.
    promotion_interval: u32,
    a_step_offset: String,
    b_step_offset: String,
}

impl StepOrder {
    /// The order for the warp whose index along K is the variable `warp_k`, with its loops unrolled or not.
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

/// Offset of step `i` of the innermost loop, as a CUDA expression: `counts` steps along three axes, outermost first, `strides`
/// apart.
fn step_offset(counts: [u32; 3], strides: [u32; 3]) -> String {
    let mut terms = Vec::new();
    let mut inner = 1;
    let mut axis = 3;
    while axis > 0 {
        axis -= 1;
        let (mut count, stride) = (counts[axis], strides[axis]);
        // Contiguous axes are merged into one.
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
