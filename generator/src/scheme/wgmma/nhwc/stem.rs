//! `wgmma_stem`: the first layer of a network, with at most four channels, as a product of [gathered](super::gather) pixels.
//!
//! A kernel gathers the pixels. If their scale depends on the input, another kernel finds the largest magnitude first. An input in uint8 is
//! normalised as it is gathered; its scale follows from the range of bytes.

use super::gather::{self, Gather, gather_kernel, gather_work};
use super::prepared::Preparation;
use crate::ir::{Activation, ConvProblem, DType, Format, ProblemKind};
use crate::scheme::{KernelBlueprint, LaunchWork, split_maxima};
use tdc_runtime::{Arg, WeightLayout};

/// Gathering of pixels with few channels; see the [module](self).
pub struct Stem;

impl Preparation for Stem {
    const NAME: &'static str = "wgmma_stem";
    const PROBLEMS: &'static str =
        "convolutions with at most four input channels and a stride of 1 or 2; on Hopper GPUs";

    fn reads(&self, problem: &ConvProblem) -> bool {
        match problem.input.dtype {
            // Scale and shift only.
            DType::Uint8 => problem
                .prologue
                .is_some_and(|prologue| prologue.activation == Activation::None),
            _ => problem.input == Format::default() && problem.prologue.is_none(),
        }
    }

    fn prepared(&self, problem: &ConvProblem) -> Option<ConvProblem> {
        Some(Gather::new(problem)?.gathered(problem))
    }

    fn kernels(
        &self,
        problem: &ConvProblem,
        layout: &WeightLayout,
        to: Arg,
    ) -> Vec<KernelBlueprint> {
        let input = ProblemKind::input(problem).shape;
        let maxima = needs_maxima(problem).then(|| split_maxima::kernel(input, to));
        let gathering = gather_kernel(&gather_of(problem), problem, layout, to);
        maxima.into_iter().chain([gathering]).collect()
    }

    fn work(&self, problem: &ConvProblem) -> Vec<LaunchWork> {
        let launch = |role, work| LaunchWork { role, work };
        let input = ProblemKind::input(problem).shape;
        let maxima =
            needs_maxima(problem).then(|| launch(split_maxima::ROLE, split_maxima::work(input)));
        let gathering = launch(gather::ROLE, gather_work(&gather_of(problem), problem));
        maxima.into_iter().chain([gathering]).collect()
    }

    fn layout(&self, problem: &ConvProblem, tn: u32, _: u32) -> WeightLayout {
        gather_of(problem).layout(problem, tn)
    }
}

fn gather_of(problem: &ConvProblem) -> Gather {
    Gather::new(problem).expect("a supported convolution")
}

/// Whether the gathered image has a scale that depends on the input.
fn needs_maxima(problem: &ConvProblem) -> bool {
    problem.input.dtype != DType::Uint8
        && gather_of(problem).gathered(problem).input == Format::SPLIT_NHWC
}
