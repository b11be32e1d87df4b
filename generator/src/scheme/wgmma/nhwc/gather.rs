//! Gathering of pixels: a convolution of few channels as one of 16 channels, the terms of a K step.
//!
//! A pixel of the gathered image has four channels (the missing ones are zero) of four pixels of the image. With a stride of 2 these are two
//! rows and two columns, so the gathered image is half as high and as wide, and the filter too; its stride is 1. With a stride of 1 they are
//! four columns, and gathered pixels overlap; the filter has a quarter of the columns. Padding is part of the gathered image.

use super::prepared::prepared_format;
use super::terms;
use crate::cost::KernelWork;
use crate::ir::{ConvProblem, DType, Format, Layout, ProblemKind};
use crate::scheme::stored_pairs::{StoredPairs, device_parts};
use crate::scheme::tensor_core::{MMA_K, supports_mma, weight_transform};
use crate::scheme::tiling::supports_tiling;
use crate::scheme::{KernelBlueprint, context};
use serde::Serialize;
use tdc_runtime::{Arg, Axis, ConvShape, Filter, LayoutDim, Padding, WeightLayout};

/// Role of the kernel that gathers, which is the end of its symbol.
pub(super) const ROLE: &str = "gather";

const THREADS: u32 = 256;

/// Channels of a pixel in a gathered pixel.
const CHANNELS: u32 = 4;

/// Pixels of a run of eight numbers.
const RUN_PIXELS: u32 = 2;

/// How pixels of an image are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gather {
    /// Rows and columns of a gathered pixel.
    size: [u32; 2],
    /// Rows and columns from a gathered pixel to the next.
    step: [u32; 2],
    /// Gathered pixels from a tap of the gathered filter to the next.
    dilation: [u32; 2],
    /// Rows and columns of the gathered filter.
    taps: [u32; 2],
}

impl Gather {
    /// `None` if the convolution has too many channels, or another stride or dilation.
    pub(super) fn new(problem: &ConvProblem) -> Option<Self> {
        let shape = &problem.shape;
        let (size, step) = match shape.stride {
            [1, 1] => ([1, 4], [1, 1]),
            [2, 2] => ([2, 2], [2, 2]),
            _ => return None,
        };
        let gather = Self {
            size,
            step,
            dilation: [0, 1].map(|axis| size[axis] / step[axis]),
            taps: [shape.r.div_ceil(size[0]), shape.s.div_ceil(size[1])],
        };
        let is_supported = shape.c <= CHANNELS
            && shape.dilation == [1, 1]
            && supports_tiling(problem)
            && supports_mma(problem, MMA_K, gather.taps[0] * gather.taps[1]);
        is_supported.then_some(gather)
    }

    /// The same convolution of the gathered image.
    pub(super) fn gathered(&self, problem: &ConvProblem) -> ConvProblem {
        let shape = &problem.shape;
        let size =
            |outputs: u32, axis: usize| outputs + (self.taps[axis] - 1) * self.dilation[axis];
        ConvProblem {
            shape: ConvShape {
                c: MMA_K,
                h: size(shape.out_h(), 0),
                w: size(shape.out_w(), 1),
                r: self.taps[0],
                s: self.taps[1],
                stride: [1, 1],
                dilation: self.dilation,
                padding: Padding::default(),
                ..*shape
            },
            input: prepared_format(problem),
            prologue: None,
            ..*problem
        }
    }

    /// As that of [`wgmma`](super::super::kernel::layout), of the gathered filter.
    pub(super) fn layout(&self, problem: &ConvProblem, tn: u32) -> WeightLayout {
        let shape = &problem.shape;
        let dim = |axis, count, step| LayoutDim { axis, count, step };
        // The two runs of a gathered pixel.
        let runs = match self.size {
            [2, _] => dim(Axis::R, 2, 1),
            _ => dim(Axis::S, 2, RUN_PIXELS),
        };
        WeightLayout {
            source: shape.weight(),
            dims: vec![
                dim(Axis::O, shape.n.div_ceil(tn), tn),
                dim(Axis::R, self.taps[0], self.size[0]),
                dim(Axis::S, self.taps[1], self.size[1]),
                runs,
                dim(Axis::O, tn, 1),
                dim(Axis::S, RUN_PIXELS, 1),
                dim(Axis::I, CHANNELS, 1),
            ]
            .into(),
            filter: Filter::Taps,
            transform: weight_transform(problem.precision, tn * MMA_K),
            prologue_channels: problem.prologue.map_or(0, |_| shape.c),
        }
    }
}

#[derive(Serialize)]
struct GatherContext {
    c: u32,
    h: u32,
    w: u32,
    gathered_h: u32,
    gathered_w: u32,
    /// Rows and columns from a gathered pixel to the next.
    step_h: u32,
    step_w: u32,
    pad_top: u32,
    pad_left: u32,
    /// The two runs of a gathered pixel are of different rows, else of different columns.
    runs_are_rows: bool,
    batched: bool,
    /// Runs of all images.
    len: u64,
    checks_len: bool,
    /// Values are divided by a scale; hi and lo of them are stored.
    scales: bool,
    hi_lo: bool,
    #[serde(flatten)]
    pairs: StoredPairs,
    /// The input is in uint8, and dense: its pixels' channels are adjacent, or not.
    from_uint8: bool,
    from_nhwc: bool,
    /// Offsets of the scales and shifts of the normalisation in the packed weights, in floats.
    scale_at: usize,
    shift_at: usize,
}

/// Runs of a gathered image, of hi or of lo.
fn runs(gathered: &ConvProblem) -> u64 {
    ProblemKind::input(gathered).shape.len() / u64::from(Format::RUN_CHANNELS)
}

/// The kernel that gathers the input to a tensor of the gathered convolution's input format. Without products of lo it does not store lo.
pub(super) fn gather_kernel(
    gather: &Gather,
    problem: &ConvProblem,
    layout: &WeightLayout,
    to: Arg,
) -> KernelBlueprint {
    let shape = &problem.shape;
    let gathered = gather.gathered(problem);
    let scales = gathered.input == Format::SPLIT_NHWC;
    let dtypes = [problem.input.dtype, gathered.input.dtype];
    let len = runs(&gathered);
    let from_uint8 = problem.input.dtype == DType::Uint8;
    let mut args = vec![Arg::X];
    args.extend(from_uint8.then_some(Arg::Packed));
    args.push(to);
    args.extend((shape.batch > 1 && !from_uint8).then_some(Arg::XBatchStride));
    KernelBlueprint {
        role: ROLE,
        template: "kernel/gather_pixels.cu",
        context: context(&GatherContext {
            c: shape.c,
            h: shape.h,
            w: shape.w,
            gathered_h: gathered.shape.h,
            gathered_w: gathered.shape.w,
            step_h: gather.step[0],
            step_w: gather.step[1],
            pad_top: shape.padding.top,
            pad_left: shape.padding.left,
            runs_are_rows: gather.size[0] > 1,
            batched: shape.batch > 1,
            len,
            checks_len: !len.is_multiple_of(THREADS.into()),
            scales,
            hi_lo: terms(&gathered) == 2,
            pairs: StoredPairs::of(dtypes),
            from_uint8,
            from_nhwc: problem.input.layout == Layout::Nhwc,
            scale_at: layout.weight_len(),
            shift_at: layout.weight_len() + shape.c as usize,
        }),
        grid: [len.div_ceil(THREADS.into()) as u32, 1, 1],
        block: [THREADS, 1, 1],
        cluster: [1; 3],
        shared_bytes: 0,
        pdl: true,
        device: device_parts(dtypes),
        args,
        work: gather_work(gather, problem),
    }
}

/// Work of the launch, for the cost model.
pub(super) fn gather_work(gather: &Gather, problem: &ConvProblem) -> KernelWork {
    let gathered = gather.gathered(problem);
    let len = runs(&gathered);
    let bytes = 16 * u64::from(terms(&gathered)) * len + ProblemKind::input(problem).bytes();
    KernelWork {
        blocks: len.div_ceil(THREADS.into()),
        threads: THREADS,
        registers: 32,
        flops: ProblemKind::input(&gathered).shape.len() as f64,
        fma_fraction: 0.1,
        l2_bytes: bytes as f64,
        dram_bytes: bytes as f64,
        l2_round_trips: 2.0,
        ..KernelWork::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every product of a convolution is one of the gathered one, at the place where it reads the same value.
    #[test]
    fn a_gathered_filter_reads_what_the_filter_reads() {
        for (r, stride, pad) in [
            (7, 2, 3),
            (3, 2, 1),
            (3, 1, 1),
            (5, 1, 0),
            (1, 1, 0),
            (4, 2, 2),
        ] {
            let problem = ConvProblem::new(ConvShape {
                stride: [stride; 2],
                padding: Padding::all(pad),
                ..ConvShape::new(3, 64, 33, 29, r, r)
            });
            let gather = Gather::new(&problem).unwrap();
            let gathered = gather.gathered(&problem).shape;
            assert_eq!(gathered.out_h(), problem.shape.out_h());
            assert_eq!(gathered.out_w(), problem.shape.out_w());
            for axis in 0..2 {
                for (output, tap) in (0..7).flat_map(|output| (0..r).map(move |tap| (output, tap)))
                {
                    // Rows and columns are counted from the first one of the padding.
                    let reads = output * stride + tap;
                    let gathered_tap = tap / gather.size[axis];
                    let pixel = output + gathered_tap * gathered.dilation[axis];
                    assert_eq!(pixel * gather.step[axis] + tap % gather.size[axis], reads);
                }
            }
        }
    }
}
