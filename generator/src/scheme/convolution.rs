//! Common parts of the schemes for convolutions: prologue, epilogue, kernel parameters, and the reduction launch of split-K.

use super::{
    Blueprint, KernelBlueprint, LaunchWork, UnitWork, activation_function, batch_stride_args,
    reduction,
};
use crate::cost::KernelWork;
use crate::ir::{Activation, ConvProblem, Problem, activate};
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
    /// Names of device functions.
    prologue_activation: Option<String>,
    /// Whether the prologue's activation of 0 is 0, so that it may be applied to padding.
    prologue_keeps_zero: bool,
    /// Offsets of the scales and shifts in the packed weights, in floats.
    scale_at: usize,
    shift_at: usize,
    bias: bool,
    residual: bool,
    activation: Option<String>,
    /// The fraction of a sum that is missing in it, as a literal.
    truncated: Option<String>,
}

impl FusedOpsContext {
    /// For a kernel that applies the epilogue itself, or, if `split`, leaves it to the reduction launch.
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
            truncated: None,
        }
    }

    /// Of sums in which this [fraction](super::tensor_core::truncated) is missing.
    pub(super) fn truncated(self, fraction: f64) -> Self {
        Self {
            truncated: Some(format!("{fraction:.3e}f")),
            ..self
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
