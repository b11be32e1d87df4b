//! Averages of adjacent windows: a thread computes those of a strip of a row, and adds up each column of the strip once.

use crate::gpu::Gpu;
use crate::ir::{Format, Layout, PoolKind, PoolProblem, ProblemKind};

/// The most output pixels of a strip: their sums are in registers.
const MAX_COLUMNS: u32 = 4;

/// The largest window that is unrolled.
const MAX_WINDOW: u32 = 25;

/// Threads of an SM that suffice to load at the full rate.
const ENOUGH_THREADS: u64 = 256;

/// Output pixels of a strip: as many as load the fewest columns of the input; 1 if strips do not pay.
pub(super) fn columns(problem: &PoolProblem, gpu: &Gpu) -> u32 {
    let [window_h, window_w] = problem.kernel;
    let stride = problem.stride[1];
    let is_average = problem.kind != PoolKind::Max && problem.input.layout == Layout::Nhwc;
    let is_small = u64::from(window_h) * u64::from(window_w) <= u64::from(MAX_WINDOW);
    if !is_average || !is_small || problem.dilation != [1; 2] || stride >= window_w {
        return 1;
    }
    let y = problem.output().shape;
    let threads = |columns: u32| {
        let strips = u64::from(y.w.div_ceil(columns));
        u64::from(y.batch * y.h) * strips * u64::from(y.c / Format::RUN_CHANNELS)
    };
    let loads = |columns: u32| y.w.div_ceil(columns) * ((columns - 1) * stride + window_w);
    (2..=MAX_COLUMNS)
        .filter(|&columns| threads(columns) >= u64::from(gpu.sms) * ENOUGH_THREADS)
        .min_by_key(|&columns| loads(columns))
        .unwrap_or(1)
}

/// Additions for strips of `columns` output pixels: of the elements of each column, and of the columns of each window.
pub(super) fn flops(problem: &PoolProblem, columns: u32) -> f64 {
    let [window_h, window_w] = problem.kernel.map(f64::from);
    let loads = f64::from((columns - 1) * problem.stride[1]) + window_w;
    let y = problem.output().shape;
    y.len() as f64 * (window_h * loads / f64::from(columns) + window_w)
}

#[cfg(test)]
mod tests {
    use crate::gpu::gpu;
    use crate::ir::Problem;
    use crate::plan::problem_of_label;

    #[test]
    fn strips_load_the_fewest_columns() {
        let columns = |label: &str| match problem_of_label(label) {
            Some(Problem::Pool(pool)) => super::columns(&pool, gpu("h200").unwrap()),
            other => panic!("{label}: {other:?}"),
        };
        for (label, expected) in [
            ("avgpool_b32_c288_h35_w35_k3x3_p1_o35x35_nhwc16", 4),
            ("avgpool_b32_c768_h17_w17_k3x3_p1_o17x17_nhwc16", 3),
            ("avgpool_b32_c768_h17_w17_k3x3_p1_o17x17_nhwcsplit", 3),
            // One image has too few threads.
            ("avgpool_c288_h35_w35_k3x3_p1_o35x35_nhwc16", 1),
            // Windows that do not overlap, maxima, an input in NCHW, a dilation, a large window.
            ("avgpool_b32_c288_h36_w36_k3x3_s3_o12x12_nhwc16", 1),
            ("maxpool_b32_c288_h35_w35_k3x3_p1_o35x35_nhwc16", 1),
            ("avgpool_b32_c288_h35_w35_k3x3_p1_o35x35_tonhwc16", 1),
            ("avgpool_b32_c288_h35_w35_k3x3_p2_d2_o35x35_nhwc16", 1),
            ("avgpool_b32_c288_h35_w35_k7x7_p3_o35x35_nhwc16", 1),
        ] {
            assert_eq!(columns(label), expected, "{label}");
        }
    }
}
