//! Common parts of the schemes for convolutions: prologue, epilogue, kernel parameters, and the reduction launch of split-K.

use super::{Blueprint, KernelBlueprint, LaunchWork, UnitWork, batch_stride_args, reduction};
use crate::cost::KernelWork;
use crate::ir::{Activation, ConvProblem, Problem};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// Prologue, epilogue, batch and partial sums as context of the templates; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct FusedOpsContext {
    batched: bool,
    /// Elements of the partial sums of one split, and of one image in them.
    partial_len: u64,
    partial_image_len: u64,
    prologue: bool,
    prologue_relu: bool,
    /// Offsets of the scales and shifts in the packed weights, in floats.
    scale_at: usize,
    shift_at: usize,
    bias: bool,
    residual: bool,
    relu: bool,
}

impl FusedOpsContext {
    /// For a kernel that applies the epilogue itself, or, if `split`, leaves it to the reduction launch.
    pub(super) fn new(problem: &ConvProblem, layout: &WeightLayout, split: bool) -> Self {
        let shape = &problem.shape;
        let epilogue = problem.epilogue;
        Self {
            batched: shape.batch > 1,
            partial_len: shape.output_len(),
            partial_image_len: shape.output_len() / u64::from(shape.batch),
            prologue: problem.prologue.is_some(),
            prologue_relu: problem
                .prologue
                .is_some_and(|prologue| prologue.activation == Activation::Relu),
            scale_at: layout.weight_len(),
            shift_at: layout.weight_len() + shape.c as usize,
            bias: epilogue.bias && !split,
            residual: epilogue.residual && !split,
            relu: epilogue.activation == Activation::Relu && !split,
        }
    }
}

/// Parameters of the convolution's kernel. If `split`, it writes partial sums to the workspace.
pub(super) fn args(problem: &ConvProblem, split: bool) -> Vec<Arg> {
    let batch = problem.shape.batch;
    let epilogue = problem.epilogue;
    let mut args = vec![Arg::X, Arg::Packed];
    if split {
        args.push(Arg::Workspace { offset: 0 });
        args.extend((batch > 1).then_some(Arg::XBatchStride));
    } else {
        args.extend(epilogue.bias.then_some(Arg::Bias));
        args.extend(epilogue.residual.then_some(Arg::Residual));
        args.push(Arg::Y);
        args.extend(batch_stride_args(batch, epilogue.residual));
    }
    args
}

/// The role of the convolution's kernel, which is the end of its symbol.
pub(super) fn role(split: bool) -> &'static str {
    if split { "partial" } else { "kernel" }
}

/// The kernel on its own, or followed by the reduction of its `splits` partial sums.
pub(super) fn blueprint(
    problem: &ConvProblem,
    splits: u32,
    kernel: KernelBlueprint,
    weights: WeightLayout,
) -> Blueprint {
    let mut kernels = vec![kernel];
    let mut workspace_bytes = 0;
    if splits > 1 {
        workspace_bytes = 4 * u64::from(splits) * problem.shape.output_len();
        kernels.push(reduction::kernel(problem, splits));
    }
    Blueprint {
        kernels,
        zeroed: None,
        workspace_bytes,
        weights,
        extra_weight_layouts: Vec::new(),
    }
}

/// The work of a [`blueprint`] whose first launch has the work `kernel`.
pub(super) fn unit_work(problem: &ConvProblem, splits: u32, kernel: KernelWork) -> UnitWork {
    let mut launches = vec![LaunchWork {
        role: role(splits > 1),
        work: kernel,
    }];
    if splits > 1 {
        launches.push(LaunchWork {
            role: reduction::ROLE,
            work: reduction::work(problem, splits),
        });
    }
    UnitWork {
        launches,
        zeroed_bytes: None,
    }
}

/// The convolution of a problem. Schemes for convolutions have no tiles for other problems.
pub(super) fn expect_conv(problem: &Problem) -> &ConvProblem {
    problem
        .conv()
        .expect("a scheme for convolutions has tiles for nothing else")
}
