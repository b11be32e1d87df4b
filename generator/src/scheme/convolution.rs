//! What the schemes for convolutions share: both ends of the kernel, its parameters, and the second launch of a split sum.

use super::{Blueprint, KernelBlueprint, activation_function, batch_stride_args, reduction};
use crate::ir::{Activation, ConvProblem, Problem, activate};
use serde::Serialize;
use tdc_runtime::{Arg, WeightLayout};

/// Prologue, epilogue, batch and partial sums as templates see them; part of a scheme's context.
#[derive(Serialize)]
pub(super) struct FusedOpsContext {
    batched: bool,
    /// Elements of one split's partial sums, and of one image in it.
    partial_len: u64,
    partial_image_len: u64,
    prologue: bool,
    /// Names of device functions.
    prologue_activation: Option<String>,
    /// Whether the prologue's activation of 0 is 0, so that it may be applied to padding.
    prologue_keeps_zero: bool,
    /// Where the scales and shifts begin in the packed block.
    scale_at: usize,
    shift_at: usize,
    bias: bool,
    residual: bool,
    activation: Option<String>,
}

impl FusedOpsContext {
    /// For a kernel that finishes its sums, or leaves that to the reduction.
    pub(super) fn new(problem: &ConvProblem, layout: &WeightLayout, split: bool) -> Self {
        let shape = &problem.shape;
        let epilogue = problem.epilogue;
        let prologue_activation = problem
            .prologue
            .map_or(Activation::None, |prologue| prologue.activation);
        Self {
            batched: shape.batch > 1,
            partial_len: shape.output_len(),
            partial_image_len: shape.output_len() / u64::from(shape.batch),
            prologue: problem.prologue.is_some(),
            prologue_activation: activation_function(prologue_activation),
            prologue_keeps_zero: activate(prologue_activation, 0.0) == 0.0,
            scale_at: layout.weight_len(),
            shift_at: layout.weight_len() + shape.c as usize,
            bias: epilogue.bias && !split,
            residual: epilogue.residual && !split,
            activation: activation_function(epilogue.activation).filter(|_| !split),
        }
    }
}

/// Parameters of the convolution's kernel.
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

/// The word for what the convolution's kernel does.
pub(super) fn role(split: bool) -> &'static str {
    if split { "partial" } else { "kernel" }
}

/// The kernel alone, or with the reduction of its `splits` partial sums behind it.
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

/// The convolution in a problem that a scheme for convolutions was given.
pub(super) fn expect_conv(problem: &Problem) -> &ConvProblem {
    problem
        .conv()
        .expect("a scheme for convolutions has tiles for nothing else")
}
