//! The order in which a warp computes the K steps of a chunk on the tensor cores, and the operand offsets of each step. All
//! offsets are constants of the generated code, except for the offset of the warp: computing an address in every step would take
//! longer than the products.

use super::tensor_core::PROMOTION_INTERVAL;
use serde::Serialize;
use std::collections::BTreeMap;

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

/// Offsets of a warp's first K step along one axis, as CUDA expressions.
#[derive(Debug, Clone, Serialize)]
struct WarpOffset {
    a: String,
    b: String,
}

/// A loop over K steps along one axis.
#[derive(Debug, Clone, Serialize)]
struct StepLoop {
    name: &'static str,
    /// Number of iterations, as a CUDA expression.
    count: String,
    /// Operand offsets of an iteration, as CUDA expressions.
    a: String,
    b: String,
}

/// How the generated code names the values on which the order of K steps depends.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepNames {
    /// The index of the warp along K.
    pub(super) warp_k: &'static str,
    /// Prefix of the constants.
    pub(super) prefix: &'static str,
}

/// The order of K steps as context of the templates. Its expressions refer to the constants by name.
#[derive(Debug, Clone, Serialize)]
pub(super) struct StepOrder {
    /// Offsets of the warp's first K step.
    warp_offsets: Vec<WarpOffset>,
    /// Loops around the innermost loop.
    loops: Vec<StepLoop>,
    /// Whether these loops are unrolled too.
    unrolls: bool,
    /// K steps of the innermost loop, which is a promotion interval if there is a hi/lo split, and the operand offsets of its
    /// step `i` as CUDA expressions; empty if it has one step.
    promotion_interval: u32,
    a_step_offset: String,
    b_step_offset: String,
    /// Of each axis, such as `row`: the distances of two K steps (`row_a`, `row_b`), the number of warps (`row_warps`), the K steps
    /// of a warp and of the innermost loop (`warp_rows`, `interval_rows`), and the iterations of the loop (`row_intervals`).
    #[serde(flatten)]
    constants: BTreeMap<String, u32>,
}

/// The axes of K, outermost first.
const AXES: [&str; 3] = ["group", "row", "column"];

impl StepOrder {
    /// The order for one warp, with its loops unrolled or not.
    pub(super) fn new(steps: ChunkSteps, names: StepNames, unrolls: bool) -> Self {
        let split = split_steps_over_warps(steps.counts, steps.warps).unwrap_or([1; 3]);
        let warp_steps = [0, 1, 2].map(|axis| steps.counts[axis] / split[axis]);
        let interval = promotion_interval(warp_steps, steps.split_terms);
        let mut constants = BTreeMap::new();
        for (axis, name) in AXES.iter().enumerate() {
            constants.extend([
                (format!("{name}_a"), steps.a[axis]),
                (format!("{name}_b"), steps.b[axis]),
                (format!("{name}_warps"), split[axis]),
                (format!("warp_{name}s"), warp_steps[axis]),
                (format!("interval_{name}s"), interval[axis]),
                (
                    format!("{name}_intervals"),
                    warp_steps[axis] / interval[axis],
                ),
            ]);
        }
        let split_axes = (0..3).filter(|&axis| split[axis] > 1);
        let looped_axes = (0..3).filter(|&axis| interval[axis] < warp_steps[axis]);
        Self {
            warp_offsets: split_axes
                .map(|axis| names.warp_offset(split, axis))
                .collect(),
            loops: looped_axes
                .map(|axis| names.step_loop(interval, axis))
                .collect(),
            unrolls,
            promotion_interval: interval.iter().product(),
            a_step_offset: names.step_offset(interval, steps.a, "a"),
            b_step_offset: names.step_offset(interval, steps.b, "b"),
            constants,
        }
    }

    /// K steps of the innermost loop.
    pub(super) fn promotion_interval(&self) -> u32 {
        self.promotion_interval
    }

    /// Whether there are loops around the innermost one.
    pub(super) fn has_loops(&self) -> bool {
        !self.loops.is_empty()
    }
}

impl StepNames {
    /// The constant of an axis whose name is `before`, the axis and `after`.
    fn constant(self, before: &str, axis: usize, after: &str) -> String {
        let name = format!("{before}{}{after}", AXES[axis]).to_ascii_uppercase();
        format!("{}{name}", self.prefix)
    }

    /// The offsets along an axis of the first K step of the warp, if `split` warps are along the axes.
    fn warp_offset(self, split: [u32; 3], axis: usize) -> WarpOffset {
        let warps = |axes: std::ops::Range<usize>| {
            let axes = axes.filter(|&axis| split[axis] > 1);
            axes.map(|axis| self.constant("", axis, "_warps")).collect()
        };
        let outer = match axis {
            0 => 1,
            _ => split[..axis].iter().product(),
        };
        let count = (outer > 1).then(|| self.constant("", axis, "_warps"));
        let warp = digit(self.warp_k, warps(axis + 1..3), count);
        let steps = self.constant("warp_", axis, "s");
        let offset = |after| format!("{warp} * ({steps} * {})", self.constant("", axis, after));
        WarpOffset {
            a: offset("_a"),
            b: offset("_b"),
        }
    }

    /// The loop along an axis whose iterations have `interval` steps.
    fn step_loop(self, interval: [u32; 3], axis: usize) -> StepLoop {
        let name = AXES[axis];
        let offset = |after| {
            let step = self.constant("", axis, after);
            match interval[axis] {
                1 => format!("{name} * {step}"),
                _ => format!(
                    "{name} * ({} * {step})",
                    self.constant("interval_", axis, "s")
                ),
            }
        };
        StepLoop {
            name,
            count: self.constant("", axis, "_intervals"),
            a: offset("_a"),
            b: offset("_b"),
        }
    }

    /// Offset of step `i` of the innermost loop: `interval` steps along the axes, which are `strides` apart in `operand`.
    fn step_offset(self, interval: [u32; 3], strides: [u32; 3], operand: &str) -> String {
        // Innermost axis first. Contiguous axes are merged: the steps of both are the stride of the inner one apart.
        let mut merged: Vec<Vec<usize>> = Vec::new();
        for axis in (0..3).rev().filter(|&axis| interval[axis] > 1) {
            let end_of = |axes: &[usize]| {
                let steps = axes.iter().map(|&axis| interval[axis]).product::<u32>();
                strides[axes[0]] * steps
            };
            match merged.last_mut() {
                Some(axes) if strides[axis] == end_of(axes) => axes.push(axis),
                _ => merged.push(vec![axis]),
            }
        }
        let counts = |axes: &[usize]| {
            let names = axes.iter().rev();
            names
                .map(|&axis| self.constant("interval_", axis, "s"))
                .collect::<Vec<_>>()
        };
        let term = |(index, axes): (usize, &Vec<usize>)| {
            let inner = counts(&merged[..index].concat());
            let count = (index + 1 < merged.len()).then(|| product(counts(axes)));
            let stride = self.constant("", axes[0], &format!("_{operand}"));
            format!("{} * {stride}", digit("i", inner, count.flatten()))
        };
        let terms: Vec<_> = merged.iter().enumerate().map(term).collect();
        terms.join(" + ")
    }
}

/// A digit of `index`, as a CUDA expression: without the digits that count to the product of `inner`, and, unless it is the first digit,
/// modulo its own `count`.
fn digit(index: &str, inner: Vec<String>, count: Option<String>) -> String {
    let mut digit = index.to_owned();
    if let Some(inner) = product(inner) {
        digit += &format!(" / {inner}");
    }
    if let Some(count) = count {
        digit += &format!(" % {count}");
    }
    digit
}

/// The product of expressions as one operand; `None` if there are none.
fn product(factors: Vec<String>) -> Option<String> {
    match factors.len() {
        0 | 1 => factors.into_iter().next(),
        _ => Some(format!("({})", factors.join(" * "))),
    }
}
