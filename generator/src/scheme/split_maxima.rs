//! The kernel that finds the largest magnitude of an fp32 tensor, before another one scales it.

use super::{DevicePart, KernelBlueprint, context};
use crate::cost::KernelWork;
use crate::ir::TensorShape;
use serde::Serialize;
use tdc_runtime::Arg;

/// Role of the kernel, which is the end of its symbol.
pub(super) const ROLE: &str = "maxima";

const THREADS: u32 = 1024;

/// Blocks, if there is enough for them. Each writes a maximum that every block of the next kernel reads.
const MAX_BLOCKS: u32 = 256;

/// Elements of a thread, if fewer blocks suffice.
const ELEMENTS: u64 = 8;

#[derive(Serialize)]
struct SplitMaximaContext {
    image_len: u64,
    batch: u32,
    batched: bool,
    /// Blocks of an image; images from one of a block to its next one; all blocks.
    parts: u32,
    image_step: u32,
    blocks: u32,
    /// The header is in the workspace, else at the beginning of the output.
    to_workspace: bool,
}

/// Blocks of an image, and blocks that have different images.
fn grid(x: TensorShape) -> [u32; 2] {
    let rows = x.batch.min(MAX_BLOCKS);
    let needed = x.image_len().div_ceil(ELEMENTS * u64::from(THREADS));
    [needed.min((MAX_BLOCKS / rows).into()) as u32, rows]
}

/// The kernel, which writes the maxima to the header that begins `to`: the output, or the workspace.
pub(super) fn kernel(x: TensorShape, to: Arg) -> KernelBlueprint {
    let [parts, rows] = grid(x);
    let batched = x.batch > 1;
    let mut args = vec![Arg::X, to];
    args.extend(batched.then_some(Arg::XBatchStride));
    KernelBlueprint {
        role: ROLE,
        template: "kernel/split_maxima.cu",
        context: context(&SplitMaximaContext {
            image_len: x.image_len(),
            batch: x.batch,
            batched,
            parts,
            image_step: rows,
            blocks: parts * rows,
            to_workspace: to != Arg::Y,
        }),
        grid: [parts, rows, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: &[DevicePart::Pdl, DevicePart::Fp16, DevicePart::SplitTensor],
        args,
        work: work(x),
    }
}

/// Work of the launch, for the cost model.
pub(super) fn work(x: TensorShape) -> KernelWork {
    let bytes = 4.0 * x.len() as f64;
    KernelWork {
        blocks: grid(x).iter().map(|&size| u64::from(size)).product(),
        threads: THREADS,
        registers: 32,
        flops: x.len() as f64,
        fma_fraction: 0.05,
        l2_bytes: bytes,
        dram_bytes: bytes,
        // A block also reduces the maxima of its warps, one after the other.
        l2_round_trips: 7.0,
        ..KernelWork::default()
    }
}
