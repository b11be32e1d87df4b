//! The second launch of a unit that splits the input channels over the grid. It adds the partial sums in a fixed order and
//! applies the epilogue.

use super::{DevicePart, KernelBlueprint, activation_function, batch_stride_args, context};
use crate::cost::KernelWork;
use crate::ir::ConvProblem;
use serde::Serialize;
use tdc_runtime::Arg;

/// Numbers of splits in the tile spaces.
pub const SPLIT_COUNTS: [u32; 6] = [1, 2, 4, 8, 16, 32];

const THREADS: u32 = 256;

/// The role of the launch.
pub(super) const ROLE: &str = "reduce";

#[derive(Serialize)]
struct ReductionContext {
    threads: u32,
    splits: u32,
    n: u32,
    pixels: u32,
    /// Elements of the output, of all images and of one image.
    len: u64,
    image_len: u64,
    batched: bool,
    checks_len: bool,
    bias: bool,
    residual: bool,
    activation: Option<String>,
}

/// The launch that reduces `splits` partial outputs, stored as `[split][image][channel][pixel]` at the start of the workspace.
pub fn kernel(problem: &ConvProblem, splits: u32) -> KernelBlueprint {
    let shape = &problem.shape;
    let epilogue = problem.epilogue;
    let pixels = shape.out_h() * shape.out_w();
    let len = shape.output_len();
    let blocks = len.div_ceil(u64::from(THREADS));
    let mut args = vec![Arg::Workspace { offset: 0 }];
    args.extend(epilogue.bias.then_some(Arg::Bias));
    args.extend(epilogue.residual.then_some(Arg::Residual));
    args.push(Arg::Y);
    args.extend(
        batch_stride_args(shape.batch, epilogue.residual)
            .into_iter()
            .filter(|arg| *arg != Arg::XBatchStride),
    );
    KernelBlueprint {
        role: ROLE,
        template: "kernel/reduce.cu",
        context: context(&ReductionContext {
            threads: THREADS,
            splits,
            n: shape.n,
            pixels,
            len,
            image_len: u64::from(shape.n) * u64::from(pixels),
            batched: shape.batch > 1,
            checks_len: !len.is_multiple_of(u64::from(THREADS)),
            bias: epilogue.bias,
            residual: epilogue.residual,
            activation: activation_function(epilogue.activation),
        }),
        grid: [blocks as u32, 1, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl],
        args,
        work: work(problem, splits),
    }
}

/// Work of the launch.
pub(super) fn work(problem: &ConvProblem, splits: u32) -> KernelWork {
    let len = problem.shape.output_len();
    let moved = 4.0 * len as f64 * f64::from(splits + 1 + u32::from(problem.epilogue.residual));
    KernelWork {
        blocks: len.div_ceil(u64::from(THREADS)),
        threads: THREADS,
        registers: 32,
        shared_bytes: 0,
        flops: len as f64 * f64::from(splits),
        fma_fraction: 0.2,
        l2_bytes: moved,
        dram_bytes: 0.0,
        // The launch waits for its predecessor kernel; the loads of a few splits overlap.
        l2_round_trips: 3.0 + f64::from(splits) / 8.0,
        ..KernelWork::default()
    }
}
