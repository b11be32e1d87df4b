//! The kernel that finds the largest magnitude of an fp32 tensor, before another one scales it.

use super::{DevicePart, KernelBlueprint, context};
use crate::cost::KernelWork;
use crate::ir::TensorShape;
use serde::Serialize;
use tdc_runtime::Arg;

/// Role of the kernel, which is the end of its symbol.
pub(super) const ROLE: &str = "maxima";

const THREADS: u32 = 256;

/// Most blocks, each of which writes a maximum that every block of the next kernel reads; and elements of their threads if fewer suffice.
const MAX_BLOCKS: u32 = 256;
const ROUNDS: u64 = 8;

#[derive(Serialize)]
struct SplitMaximaContext {
    len: u64,
    image_len: u64,
    batched: bool,
    blocks: u32,
    /// Elements of a thread.
    rounds: u64,
    /// The header is in the workspace, else at the beginning of the output.
    to_workspace: bool,
}

fn blocks(x: TensorShape) -> u32 {
    let needed = x.len().div_ceil(ROUNDS * u64::from(THREADS));
    needed.min(MAX_BLOCKS.into()) as u32
}

/// The kernel, which writes the maxima to the header that begins `to`: the output, or the workspace.
pub(super) fn kernel(x: TensorShape, to: Arg) -> KernelBlueprint {
    let len = x.len();
    let batched = x.batch > 1;
    let blocks = blocks(x);
    let mut args = vec![Arg::X, to];
    args.extend(batched.then_some(Arg::XBatchStride));
    KernelBlueprint {
        role: ROLE,
        template: "kernel/split_maxima.cu",
        context: context(&SplitMaximaContext {
            len,
            image_len: x.image_len(),
            batched,
            blocks,
            rounds: len.div_ceil(u64::from(blocks) * u64::from(THREADS)),
            to_workspace: to != Arg::Y,
        }),
        grid: [blocks, 1, 1],
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
        blocks: blocks(x).into(),
        threads: THREADS,
        registers: 32,
        flops: x.len() as f64,
        fma_fraction: 0.05,
        l2_bytes: bytes,
        dram_bytes: bytes,
        l2_round_trips: 1.5,
        ..KernelWork::default()
    }
}
