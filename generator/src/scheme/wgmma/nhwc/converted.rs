//! `wgmma_converted`: a convolution of an fp32 NCHW input, which is converted to an NHWC format first.
//!
//! In a network the planner can convert a tensor once for all of its readers. This scheme is for convolutions on their own, and for inputs
//! that one layer reads.

use super::super::kernel::layout;
use super::prepared::{Preparation, prepared_format};
use crate::ir::{ConvProblem, ConvertProblem, Format, ProblemKind};
use crate::scheme::convert::nhwc;
use crate::scheme::tensor_core::MMA_K;
use crate::scheme::wgmma::multiplies;
use crate::scheme::{KernelBlueprint, LaunchWork};
use tdc_runtime::{Arg, WeightLayout};

/// Conversion to an NHWC format; see the [module](self).
pub struct Converted;

impl Preparation for Converted {
    const NAME: &'static str = "wgmma_converted";
    const PROBLEMS: &'static str =
        "convolutions of one group with a multiple of 16 input channels; on Hopper GPUs";

    fn prepared(&self, problem: &ConvProblem) -> Option<ConvProblem> {
        let is_supported = problem.shape.c.is_multiple_of(MMA_K)
            && multiplies(problem)
            && nhwc::fits(&conversion(problem));
        let prepared = ConvProblem {
            input: prepared_format(problem),
            ..*problem
        };
        is_supported.then_some(prepared)
    }

    fn kernels(&self, problem: &ConvProblem, _: &WeightLayout, to: Arg) -> Vec<KernelBlueprint> {
        nhwc::kernels(&conversion(problem), to)
    }

    fn work(&self, problem: &ConvProblem) -> Vec<LaunchWork> {
        nhwc::work(&conversion(problem))
    }

    fn layout(&self, problem: &ConvProblem, tn: u32, chunk_groups: u32) -> WeightLayout {
        layout(problem, tn, chunk_groups)
    }
}

fn conversion(problem: &ConvProblem) -> ConvertProblem {
    ConvertProblem {
        x: ProblemKind::input(problem).shape,
        from: Format::default(),
        to: prepared_format(problem),
    }
}
